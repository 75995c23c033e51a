"""The judge: follows the history while it is made, computes what every commit must hold, and compares.

`follow` may run beside the workers; `settle` needs them to pause, and accounts for everything they did. A finding is
kept once per kind with an example and a count, and the run goes on: what a commit really holds is then taken for
granted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.engine.export import export_lines
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import HistoricalVersionReclaimedError, OmniGraphError
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import LogEntry
from tests.torture.findings import Findings, difference, neutral, told
from tests.torture.history import History
from tests.torture.model import ImpossibleError, State, applied, changes, row_of, seen_as
from tests.torture.operations import digest_of
from tests.torture.readings import READINGS
from tests.torture.shapes import Shape, document_of
from tests.torture.traces import Deed, Traces

Content = dict[str, dict[str, Mapping[str, Any]]]


class Checker:
    def __init__(self, graph: Graph, directory: Path) -> None:
        self._graph = graph
        self.findings = Findings()
        self.history = History(graph)
        self.traces = Traces(directory / "trace")
        self.states: dict[str, State | None] = {}
        self.judged: Counter[str] = Counter()
        self._pending: list[LogEntry] = []
        self._tags: dict[str, str] = {}

    # ---- every commit is its parents and its operation --------------------------------------------------------------

    def follow(self) -> None:
        """Judge the commits that are new."""
        entries = [*self._pending, *self.history.refresh()]
        self.traces.refresh()  # after the log, so that the operation of every commit is there
        self._pending = []
        for entry in sorted(entries, key=lambda e: e.commit.published_at):
            parents = self.history.parents(entry)
            if parents is None or any(p.commit.id not in self.states for p in parents):
                self._pending.append(entry)
            else:
                self.states[entry.commit.id] = self._judged(entry, parents)

    def _judged(self, entry: LogEntry, parents: list[LogEntry]) -> State | None:
        """The state of a commit; None when it can't be known, because one before it can't."""
        deed = self.traces.deeds.get(entry.commit.actor or "")
        if deed is None:
            self.findings.add("a commit of nobody", f"{entry.commit.id} by {entry.commit.actor}")
            return None
        states = [self.states[p.commit.id] for p in parents]
        bases = self.history.bases(*(p.commit.id for p in parents)) if len(parents) == 2 else []
        known = [s for s in states if s is not None]
        known_bases = [s for b in bases if (s := self.states[b]) is not None]
        if len(known) != len(states) or len(known_bases) != len(bases):
            return None
        try:
            expected = applied(deed.begun, known, known_bases)
        except ImpossibleError as reason:
            self.findings.add(f"{deed.kind}: a commit that can't be", f"{entry.commit.id}: {reason}", deed)
            expected = None
        return self._compared(entry, expected, known, deed)

    def _compared(self, entry: LogEntry, expected: State | None, parents: list[State], deed: Deed) -> State | None:
        self.judged["commits"] += 1
        try:
            actual = self.read(entry, expected.shape if expected else parents[0].shape)
        except HistoricalVersionReclaimedError:
            actual = None
        except ImpossibleError as reason:
            self.findings.add(f"{deed.kind}: another schema than expected", f"{entry.commit.id}: {reason}", deed)
            return None
        except Exception as error:
            self.findings.add(f"reading a commit: {told(error)}", f"{entry.commit.id}: {error}", deed)
            actual = None
        if expected is None:
            return actual
        counts = {key: state.rows for key, state in entry.tables.items()}
        if counts != expected.counts():
            detail = f"{entry.commit.id} counts {counts}, expected {expected.counts()}"
            self.findings.add(f"{deed.kind}: other row counts than expected", detail, deed)
        if actual is None:
            return expected
        self.judged["commits read in full"] += 1
        if actual.content() != expected.content():
            detail = f"{entry.commit.id}: {difference(expected, actual)}"
            self.findings.add(f"{deed.kind}: other content than expected", detail, deed)
        for broken in actual.broken_rules():
            self.findings.add(f"{deed.kind}: a rule of the schema is broken", f"{entry.commit.id}: {broken}", deed)
        return actual

    def read(self, entry: LogEntry, shape: Shape, graph: Graph | None = None) -> State:
        """The content of a commit, read completely. ImpossibleError when its schema is another one."""
        snapshot = Snapshot((graph or self._graph)._workspace, entry.branch, entry)
        declared = {
            t["name"]: {p["name"]: p["type"] for p in t["properties"]} for t in document_of(snapshot.catalog)["types"]
        }
        expected = {t.name: {p.name: p.type for p in t.properties} for t in shape.types}
        if declared != expected:
            raise ImpossibleError(f"the schema declares {declared}, expected {expected}")
        rows: dict[str, dict[str, Mapping[str, Any]]] = {t.ident: {} for t in shape.types}
        for text in export_lines(snapshot, ()):
            line = json.loads(text)
            type_ = shape.named(line.get("type") or line["edge"])
            assert type_ is not None
            key, row = row_of(type_, line)
            if key in rows[type_.ident]:
                raise ImpossibleError(f"{type_.name} {key} is there twice")
            if type_.kind == "edge":
                self._tags[line["data"]["id"]] = key
            rows[type_.ident][key] = row
        return State(shape, rows)

    # ---- accounts, with the workers at rest -------------------------------------------------------------------------

    def settle(self, graph: Graph) -> None:
        """Everything that was done so far is accounted for, and everything that should be readable is read."""
        self.follow()
        for entry in self._pending:
            self.findings.add("a commit without its parents", entry.commit.id)
        for disorder in self.history.disorder():
            self.findings.add("the log is out of order", disorder)
        for death in self.traces.take_deaths():
            if death["died"] != -9:
                self.findings.add(f"a worker ended by itself: {death['died']}", death)
        for deed in self.traces.take_finished():
            self._judge_deed(deed)
        self._judge_keys()
        self._judge_names(graph)
        self._judge_readability(graph)
        report = graph.maintenance.verify()
        for problem in report.problems:
            self.findings.add(f"verify: {neutral(problem.reason)}", f"{problem.where}: {problem.reason}")

    def _judge_deed(self, deed: Deed) -> None:
        self.judged[f"{deed.kind} {deed.outcome}"] += 1
        if deed.outcome in ("raw", "unexpected") or (deed.outcome == "unknown" and deed.error):
            place = deed.place()
            what = f"{deed.kind} gives {deed.error} at {place}: {neutral(deed.ended.get('message', ''))}"
            self.findings.add(what, deed.ended.get("traceback", "")[-1500:], deed)
        made = [e for e in self.history.by_actor.get(deed.op, ()) if self.history.stands(e)]
        if len(made) > 1:
            self.findings.add(f"{deed.kind}: one operation, several commits", [e.commit.id for e in made], deed)
        if made and deed.outcome in ("refused", "unexpected", "raw"):
            self.findings.add(f"{deed.kind}: failed with {deed.error}, and is in history", made[0].commit.id, deed)
        if deed.outcome == "done":
            judge = getattr(self, f"_judge_{deed.kind}", self._judge_write)
            judge(deed, made)
        for error in deed.ended.get("errors", ()):
            self.findings.add(f"cleanup reports: {neutral(error)}", error, deed)
        if deed.kind in ("branch", "unbranch") and deed.outcome in ("refused", "unexpected"):
            self._judge_refused_branch(deed)

    def _judge_write(self, deed: Deed, made: list[LogEntry]) -> None:
        commit = deed.ended.get("commit")
        if commit is None:
            if made and deed.kind not in ("indices", "maintain"):
                self.findings.add(f"{deed.kind}: said to have done nothing, and is in history", made[0].commit.id, deed)
            return
        entry = self.history.commits.get(commit)
        if entry is None or not self.history.stands(entry):
            self.findings.add(f"{deed.kind}: acknowledged, and not in history", commit, deed)
            return
        author = self.traces.deeds.get(entry.commit.actor or "")
        if author is None or (author.op != deed.op and author.key != deed.key):
            self.findings.add(f"{deed.kind}: acknowledged with a commit of somebody else", commit, deed)
        elif author.args != deed.args:
            self.findings.add(f"{deed.kind}: acknowledged with what another request under its key did", commit, deed)
        expected = deed.args.get("if_commit")
        if expected is not None and entry.commit.parents[0].commit_id != expected:
            self.findings.add(f"{deed.kind}: conditional on another commit than its parent", commit, deed)
        if deed.ended.get("deleted"):
            self._judge_unbranch(deed, [])

    def _judge_branch(self, deed: Deed, made: list[LogEntry]) -> None:
        if "earlier" in deed.ended:
            self._judge_earlier(deed, [ref.created_by for ref in self.history.lives.values()])
            return
        ref = self.history.lives.get(deed.ended["branch_id"])
        if ref is None or ref.created_by != deed.op:
            self.findings.add("branch: acknowledged, and not there", deed.ended, deed)
            return
        source, fork = deed.args["source"], ref.fork
        at = self.history.logs[fork.branch_id].get(fork.version) if fork is not None else None
        if not isinstance(at, LogEntry):
            self.findings.add("branch: its fork point is nowhere", deed.ended, deed)
        elif source in self.history.commits and at.commit.id != source:
            self.findings.add("branch: from another commit than asked for", at.commit.id, deed)

    def _judge_refused_branch(self, deed: Deed) -> None:
        if deed.kind == "branch":
            left = [r.branch for r in self.history.live() if r.created_by == deed.op]
        else:
            left = [s.branch for s in self.history.tombstones() if s.deleted_by == deed.op]
        if left:
            self.findings.add(f"{deed.kind}: failed with {deed.error}, and happened", left[0], deed)

    def _judge_earlier(self, deed: Deed, authors: list[str | None]) -> None:
        """A repeat was told that an earlier call had made, or deleted, the branch."""
        first = self.traces.deeds.get(deed.ended["earlier"])
        if first is None or first.key != deed.key or first.args != deed.args:
            self.findings.add(f"{deed.kind}: told of what another request did", deed.ended, deed)
        elif authors.count(first.op) != 1:
            self.findings.add(f"{deed.kind}: told of an earlier call that is not there", deed.ended, deed)

    def _judge_unbranch(self, deed: Deed, made: list[LogEntry]) -> None:
        if "earlier" in deed.ended:
            self._judge_earlier(deed, [stone.deleted_by for stone in self.history.tombstones()])
            return
        stones = [s for s in self.history.tombstones() if s.deleted_by == deed.op]
        if deed.kind == "merge" and "repeats" in deed.begun and not stones:
            return  # the branch that was merged was gone when the merge was repeated
        if len(stones) != 1:
            self.findings.add(f"{deed.kind}: a deletion acknowledged, and {len(stones)} tombstones", deed.args, deed)

    def _judge_cleanup(self, deed: Deed, made: list[LogEntry]) -> None:
        """What it removed shows in what is still readable."""

    # ---- what was read ----------------------------------------------------------------------------------------------

    def _judge_query(self, deed: Deed, made: list[LogEntry]) -> None:
        commit, asked = deed.ended["read"], deed.args["at"]
        entry, state = self.history.commits.get(commit), self.states.get(commit)
        if entry is None:
            self.findings.add("query: read at a commit that is not in history", commit, deed)
            return
        if asked.get("version", entry.version) != entry.version or asked.get("snapshot", commit) != commit:
            self.findings.add("query: read at another place than asked for", commit, deed)
        reading = READINGS[deed.args["reading"]]
        if state is not None and not reading.agrees(state, deed.args["params"], deed.ended["answer"]):
            expected = reading.expected(state, deed.args["params"])
            detail = f"at {commit} got {deed.ended['answer']}, expected {expected}"
            self.findings.add(f"query: another answer than expected to {deed.args['reading']}", detail, deed)

    def _judge_diff(self, deed: Deed, made: list[LogEntry]) -> None:
        before, after = (self.states.get(deed.args[side]) for side in ("before", "after"))
        if before is None or after is None:
            return
        got = {(name, self._tags.get(entity, entity), op) for name, entity, op in deed.ended["changes"]}
        self._compare_changes(deed, f"{deed.args['before']}..{deed.args['after']}", got, changes(before, after))

    def _judge_changes(self, deed: Deed, made: list[LogEntry]) -> None:
        self._compare_commit(deed, deed.args["commit"], deed.ended["changes"])

    def _judge_poll(self, deed: Deed, made: list[LogEntry]) -> None:
        stream = self.traces.streams
        if "baseline" in deed.ended:
            stream[deed.ended["stream"]] = deed.ended["baseline"]
            state = self.states.get(deed.ended["baseline"])
            if state is not None and exported(state) != deed.ended["content"]:
                self.findings.add("baseline: other content than its commit", deed.ended["baseline"], deed)
            return
        last = stream[deed.ended["stream"]]
        for block in deed.ended["blocks"]:
            if block["parent"] != last:
                detail = f"{block['commit']} has parent {block['parent']}, delivered before it: {last}"
                self.findings.add("feed: not every commit once and in order", detail, deed)
            last = block["commit"]
            self._compare_commit(deed, last, block["changes"])
        stream[deed.ended["stream"]] = last

    def _compare_commit(self, deed: Deed, commit: str, told_changes: list[list[str]]) -> None:
        entry = self.history.commits.get(commit)
        if entry is None:
            self.findings.add(f"{deed.kind}: changes of a commit that is not in history", commit, deed)
            return
        before, after = self.states.get(entry.commit.parents[0].commit_id), self.states.get(commit)
        if before is not None and after is not None:
            got = {(name, key, op) for name, key, op in told_changes}
            if len(got) != len(told_changes):
                self.findings.add(f"{deed.kind}: a change is told twice", commit, deed)
            # Records of the schema change say which types and properties are gone.
            self._compare_changes(deed, commit, got, changes(seen_as(before, after.shape), after))

    def _compare_changes(self, deed: Deed, where: str, got: set[Any], expected: set[Any]) -> None:
        if got != expected:
            detail = f"{where}: too many {sorted(got - expected)[:5]}, missing {sorted(expected - got)[:5]}"
            self.findings.add(f"{deed.kind}: other changes than expected", detail, deed)

    # ---- keys, names, readability -----------------------------------------------------------------------------------

    def _judge_keys(self) -> None:
        """Of all calls with one key at most one made a commit on one life of a branch, and all were told of that."""
        groups: dict[str, list[Deed]] = defaultdict(list)
        for deed in self.traces.deeds.values():
            if deed.key is not None:
                groups[deed.key].append(deed)
        for deeds in groups.values():
            if len(deeds) > 1:
                self._judge_key(deeds)

    def _judge_key(self, deeds: list[Deed]) -> None:
        made = [e for d in deeds for e in self.history.by_actor.get(d.op, ()) if self.history.stands(e)]
        per_life = Counter(e.branch_id for e in made)
        for branch_id, count in per_life.items():
            if count > 1:
                self.findings.add(
                    f"{deeds[0].kind}: one key, several commits on one branch",
                    [e.commit.id for e in made if e.branch_id == branch_id],
                    deeds[-1],
                )
        of_names = deeds[0].kind in ("branch", "unbranch")
        ops = {deed.op for deed in deeds}
        lives = [ref.branch_id for ref in self.history.lives.values() if ref.created_by in ops]
        stones = [stone.branch_id for stone in self.history.tombstones() if stone.deleted_by in ops]
        if of_names and len(lives) + len(stones) > 1:
            self.findings.add(f"{deeds[0].kind}: one key, done several times", [*lives, *stones], deeds[-1])
        first = next((d for d in deeds if d.outcome == "done" and (of_names or d.ended.get("commit"))), None)
        if first is None:
            return
        entry = None if of_names else self.history.commits.get(first.ended["commit"])
        for later in deeds[deeds.index(first) + 1 :]:
            gone = not of_names and (entry is None or self.history.tombstone(entry.branch_id) is not None)
            if (
                later.outcome in ("refused", "unexpected")
                and not gone
                and later.is_plain_repeat()
                and later.once("key")
            ):
                what = f"{later.kind}: the repeat of an acknowledged call fails with {later.error}"
                self.findings.add(what, later.ended.get("message"), later)

    def _judge_names(self, graph: Graph) -> None:
        names = graph.list_branches()
        for name in names:
            for other in names:
                if name != MAIN and other.startswith(f"{name}/"):
                    self.findings.add("a branch lives beneath another one", f"'{name}' and '{other}'")
        for one, other in self._lived_together():
            self.findings.add("a branch lived beneath another one", f"{one}, {other}")
        expected = sorted(ref.branch for ref in self.history.live())
        if sorted(names) != expected:
            self.findings.add("other branches than the logs say", f"listed {names}, logs say {expected}")

    def _lived_together(self) -> Iterator[tuple[str, str]]:
        """Lives of names that exclude each other, both certain to have lived at one moment."""
        certain = []
        for ref in self.history.lives.values():
            made = self.traces.deeds.get(ref.created_by or "")
            stone = self.history.tombstone(ref.branch_id)
            ended = self.traces.deeds.get(stone.deleted_by or "") if stone is not None else None
            if made is not None and made.outcome == "done" and (stone is None or ended is not None):
                until = float("inf") if ended is None else ended.begun["began"]
                certain.append((ref.branch, made.ended["ended"], until, ref.branch_id))
        for name, start, end, branch_id in certain:
            for other, other_start, other_end, other_id in certain:
                if other.startswith(f"{name}/") and max(start, other_start) < min(end, other_end):
                    yield f"'{name}' ({branch_id})", f"'{other}' ({other_id})"

    def _judge_readability(self, graph: Graph) -> None:
        """Every head, the whole private history of live branches, what they build on, and main as far as it is kept."""
        must: dict[str, str] = {}
        for ref in self.history.live():
            head = self.history.head(ref)
            must.setdefault(head.commit.id, f"the head of '{ref.branch}'")
            if ref.branch == MAIN:
                continue
            for entry in self.history.own(ref.branch_id):
                must.setdefault(entry.commit.id, f"a commit of live branch '{ref.branch}'")
                for link in entry.commit.parents:
                    must.setdefault(link.commit_id, f"a parent of a commit of '{ref.branch}'")
            if ref.fork is not None and isinstance(
                at := self.history.logs[ref.fork.branch_id].get(ref.fork.version), LogEntry
            ):
                must.setdefault(at.commit.id, f"the fork point of '{ref.branch}'")
        main = next(ref for ref in self.history.live() if ref.branch == MAIN)
        own = self.history.own(main.branch_id)
        for entry in own:
            if entry.version >= self.traces.first_kept(own):
                must.setdefault(entry.commit.id, "a commit of main that no cleanup released")
        for commit, why in must.items():
            self._judge_readable(graph, self.history.commits[commit], why)

    def _judge_readable(self, graph: Graph, entry: LogEntry, why: str) -> None:
        state = self.states.get(entry.commit.id)
        self.judged["reads of what must be readable"] += 1
        try:
            shape = state.shape if state is not None else None
            if shape is None:
                return
            actual = self.read(entry, shape, graph)
        except OmniGraphError as error:
            what = f"can't read {neutral(why)}: {type(error).__name__}"
            self.findings.add(what, f"{entry.commit.id}, {why}: {error}")
            return
        except Exception as error:
            self.findings.add(f"can't read {neutral(why)}: {told(error)}", f"{entry.commit.id}: {error}")
            return
        if state is not None and actual.content() != state.content():
            self.findings.add("a commit changed after it was made", f"{entry.commit.id}: {difference(state, actual)}")


def exported(state: State) -> str:
    """The digest of what an export of this state says."""
    lines = []
    for type_ in state.shape.types:
        names = type_.names()
        for row in state.of(type_.ident).values():
            ends = {end: row[end] for end in ("from", "to") if end in row}
            data = {names[i]: v for i, v in row.items() if i not in ends}
            lines.append({("edge" if ends else "type"): type_.name, **ends, "data": data})
    return digest_of(lines)
