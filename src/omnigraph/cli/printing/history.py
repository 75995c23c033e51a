"""Prints commits and entity changes: a branch's history, the graph of merges, and the changes of one commit.

Merges are drawn as lanes of text, the way `git log --graph` does; each lane waits for the next commit of one line of
parents. Changes read like a diff. All of it is pure, commits or change blocks in and lines out, so a page from a server
reads the same as a local one.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.values import count_noun, one_line
from omnigraph.cli.printing.output import style_by
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.branches import BranchHead
    from omnigraph.api.commits import CommitReceipt, CommitSummary, EntityCounts
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.history import ChangeBlock, ChangeCause, ChangeRecord, EntityChange, SchemaChange


_MARKS = re.compile(r"^[*|/\\_ ]*")


@dataclass(frozen=True, slots=True)
class Node:
    """A commit to draw. Parents that are not drawn themselves end their lane."""

    id: str
    parents: tuple[str, ...]
    text: str


def draw(nodes: Sequence[Node]) -> Iterator[str]:
    ids = {node.id for node in nodes}
    lanes: list[str] = []
    for node in nodes:
        if node.id not in lanes:
            lanes.append(node.id)
        here = lanes.index(node.id)
        while lanes.count(node.id) > 1:
            double = lanes.index(node.id, here + 1)
            yield _moving_left(len(lanes), double, joins=here)
            del lanes[double]
        marks = " ".join("*" if i == here else "|" for i in range(len(lanes)))
        yield f"{marks} {node.text}"
        parents = [parent for parent in node.parents if parent in ids]
        if len(parents) > 1:
            # A new lane opens at the right; the lanes beyond make room.
            yield "| " * here + "|\\" + " \\" * (len(lanes) - here - 1)
            lanes[here : here + 1] = parents[:2]
        elif parents:
            lanes[here] = parents[0]
        else:
            if here < len(lanes) - 1:
                yield _moving_left(len(lanes), here)
            del lanes[here]


def dag_style(line: str) -> str:
    """Merges and forks in colour, commits plain."""
    marks = _MARKS.match(line)
    return "cyan" if marks is not None and marks.end() == len(line) else ""


def _moving_left(lanes: int, gone: int, joins: int | None = None) -> str:
    """Lane `gone` has no more commits, or joins another lane; the lanes beyond move over."""
    cells = [" "] * (2 * lanes)
    for lane in range(lanes):
        if lane != gone or joins is not None:
            cells[2 * lane if lane < gone else 2 * lane - 1] = "|" if lane < gone else "/"
    for gap in range(gone if joins is None else joins, gone - 1):
        cells[2 * gap + 1] = "_"
    return "".join(cells).rstrip()


_PAGE = 200
_MAIN = "main"


def list_line(listed: Callable[..., Any], branch: str, limit: int | None = None) -> Iterator[Any]:
    """The branch's own line of history, newest first, the inherited part included, as a method of a graph lists it."""
    before, left = None, sys.maxsize if limit is None else limit
    while left > 0:
        page = listed(branch, limit=min(left, _PAGE), before=before)
        yield from page.commits
        before, left = page.next_version, left - len(page.commits)
        if before is None:
            return


def describe_branch(graph: GraphApi, branch: str, limit: int | None) -> Iterator[str]:
    """The same line for a person, as `reachable` describes each commit."""
    return map(_text, list_line(partial(graph.commit_history, exact=False), branch, limit))


def reachable(graph: GraphApi, branch: str, limit: int | None) -> list[Node]:
    """The branch's line and everything that was merged into it, children before parents."""
    line: list[CommitSummary] = list(list_line(partial(graph.commit_history, exact=False), branch, limit))
    commits = {commit.graph_commit_id: commit for commit in line}
    merged = [commit.merged_parent_commit_id for commit in reversed(line) if commit.merged_parent_commit_id is not None]
    while merged and (limit is None or len(commits) < limit):
        commit_id = merged.pop()
        if commit_id in commits:
            continue
        try:
            commit = graph.describe_commit(commit_id)
        except NotFoundError:
            continue  # its branch is deleted; the merge commit still holds what it brought
        commits[commit_id] = commit
        merged += _parents(commit)
    return [Node(each.graph_commit_id, tuple(_parents(each)), _text(each)) for each in _children_first(commits)]


def _parents(commit: CommitReceipt) -> list[str]:
    return [parent for parent in (commit.parent_commit_id, commit.merged_parent_commit_id) if parent is not None]


def _children_first(commits: dict[str, CommitSummary]) -> Iterator[CommitSummary]:
    """The newest commit none of whose children is still to come."""
    waiting = Counter(parent for commit in commits.values() for parent in _parents(commit))
    ready = [(-commit.created_at, id) for id, commit in commits.items() if not waiting[id]]
    heapq.heapify(ready)
    while ready:
        commit = commits[heapq.heappop(ready)[1]]
        yield commit
        for parent in _parents(commit):
            waiting[parent] -= 1
            if not waiting[parent] and parent in commits:
                heapq.heappush(ready, (-commits[parent].created_at, parent))


def _text(commit: CommitSummary) -> str:
    when = commit.created.strftime("%Y-%m-%d %H:%M")
    place = f"{commit.graph_branch or 'main'}@{commit.graph_manifest_version}"
    text = f"{commit.graph_commit_id} {place} {when} {commit.kind}"
    if commit.actor_id is not None:
        text += f" by {commit.actor_id}"
    counts = (commit.changes or {}).values()
    totals = [sum(getattr(c, name) for c in counts) for name in ("inserted", "updated", "deleted")]
    changed = " ".join(f"{sign}{total}" for sign, total in zip("+~-", totals, strict=True) if total)
    text += f" ({changed})" if changed else ""
    return text if commit.message is None else f"{text} {one_line(commit.message)}"


def branch_heads(graph: GraphApi, names: Sequence[str]) -> list[BranchHead]:
    """The newest commit of each branch, and how far its line is from main's."""
    from omnigraph.api.branches import BranchHead

    lines = {name: _Line(graph, name) for name in names}
    main = lines.get(_MAIN) or _Line(graph, _MAIN)
    branched = {commit.id: commit for line in lines.values() for commit in line.own}
    heads = []
    for name, line in lines.items():
        ahead, behind = (0, 0) if name == _MAIN else _distance(line, main, branched)
        tip = line[0]
        heads.append(BranchHead(name, tip.id, tip.graph_manifest_version, tip.actor_id, tip.created_at, ahead, behind))
    return heads


def head_lines(heads: Sequence[BranchHead]) -> Iterator[str]:
    from omnigraph.api.commits import moment

    wide = max((len(head.name) for head in heads), default=0)
    for head in heads:
        when = moment(head.created_at).strftime("%Y-%m-%d %H:%M")
        far = "" if head.name == _MAIN else f", {head.ahead} ahead, {head.behind} behind"
        by = "" if head.actor_id is None else f" by {head.actor_id}"
        yield f"{head.name:<{wide}} {head.graph_commit_id} {when}{by}{far}"


class _Line:
    """The commits of a branch, newest first, listed only as far as somebody looks."""

    def __init__(self, graph: GraphApi, branch: str) -> None:
        self._rest = list_line(graph.commits, branch)
        self._commits: list[CommitReceipt] = []

    @cached_property
    def own(self) -> list[CommitReceipt]:
        """The commits since it left main's line."""
        return list(itertools.takewhile(lambda commit: commit.graph_branch is not None, self))

    def __getitem__(self, position: int) -> CommitReceipt:
        while len(self._commits) <= position:
            self._commits.append(next(self._rest))
        return self._commits[position]

    def __iter__(self) -> Iterator[CommitReceipt]:
        for position in itertools.count():
            try:
                yield self[position]
            except StopIteration:
                return


def _distance(branch: _Line, main: _Line, branched: Mapping[str, CommitReceipt]) -> tuple[int, int]:
    """The commits since the branch left main's line, without those that a merge has taken over since."""
    fork = next((commit.id for commit in itertools.islice(branch, len(branch.own), None)), None)
    since = list(itertools.takewhile(lambda commit: commit.id != fork, main))
    return _until(branch.own, _merged_commits(since, branched)), _until(since, _merged_commits(branch.own, branched))


def _merged_commits(line: Sequence[CommitReceipt], branched: Mapping[str, CommitReceipt]) -> set[str]:
    """The commits that were merged into a line, also by way of another branch, down to where it left main's line."""
    commit_ids: set[str] = set()
    waiting = [commit.merged_parent_commit_id for commit in line if commit.merged_parent_commit_id is not None]
    while waiting:
        commit_id = waiting.pop()
        if commit_id not in commit_ids:
            commit_ids.add(commit_id)
            # The commit is unknown where it is main's, or where its branch is deleted.
            waiting += _parents(branched[commit_id]) if commit_id in branched else ()
    return commit_ids


def _until(line: Sequence[CommitReceipt], merged: Set[str]) -> int:
    """How many commits come before the first that was merged."""
    return next((n for n, commit in enumerate(line) if commit.id in merged), len(line))


def format_counts(counts: EntityCounts) -> str:
    parts = ((counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted"))
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "no entities"


_ABSENT = object()


def feed_lines(blocks: Iterable[ChangeBlock]) -> Iterator[str]:
    """Blocks with a blank line between them."""
    number = 0
    for number, block in enumerate(blocks, start=1):
        if number > 1:
            yield ""
        yield from block_lines(block.cause, block)
    if not number:
        yield "(no new commits)"


def block_lines(cause: ChangeCause, changes: Iterable[SchemaChange | ChangeRecord]) -> Iterator[str]:
    from omnigraph.api.history import SchemaChange

    facts = {
        "commit": cause.graph_commit_id,
        "branch": cause.authored_branch,
        "parent": cause.parent_commit_id,
        "merged_parent": cause.merged_parent_commit_id,
        "actor": cause.actor_id,
    }
    yield from (f"{label}: {value}" for label, value in facts.items() if value is not None)
    yield f"authored_at: {cause.authored.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
    for change in changes:
        yield from schema_change_lines(change) if isinstance(change, SchemaChange) else change_lines(change)


def schema_change_lines(change: SchemaChange) -> Iterator[str]:
    """What a commit did to a type, and the steps."""
    was = "" if change.renamed_from is None else f", was {change.renamed_from}"
    entities = "" if change.entities is None else f", with {count_noun(change.entities, 'entity', 'entities')}"
    yield f"schema {change.kind} {change.type_name} {change.change}{was}{entities}"
    yield from (f"  {step.line()}" for step in change.steps)


def change_lines(change: ChangeRecord) -> Iterator[str]:
    yield f"{change.op} {change.kind} {change.type_name} {change.id}"
    images = [image for image in (change.before, change.after) if image is not None]
    if change.kind is EntityKind.EDGE:
        ends = [str(image.endpoints) for image in images if image.endpoints]
        yield f"  {' => '.join(dict.fromkeys(ends))}"
    old = {} if change.before is None else change.before.properties
    new = {} if change.after is None else change.after.properties
    if change.op is Operation.INSERT:
        yield from (f"  + {key}: {_value(value)}" for key, value in new.items())
    elif change.op is Operation.DELETE:
        yield from (f"  - {key}: {_value(value)}" for key, value in old.items())
    else:
        for key in dict.fromkeys([*old, *new]):
            was, now = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if was != now or type(was) is not type(now):
                yield f"  {key}: {_value(was)} -> {_value(now)}"


def change_style(line: str) -> str:
    word = line.split(" ", 1)[0]
    operations = {"schema": "bold cyan", "insert": "bold green", "update": "bold yellow", "delete": "bold red"}
    properties = {"  + ": "green", "  - ": "red"}
    return operations.get(word) or properties.get(line[:4]) or ("dim" if word.endswith(":") else "")


_SIGNS = {Operation.INSERT: "+", Operation.UPDATE: "~", Operation.DELETE: "-"}


def describe_entity(change: EntityChange) -> str:
    """An entity that differs, behind the mark of its operation."""
    ends = f" {change.endpoints}" if change.endpoints is not None else ""
    return f"{_SIGNS[change.op]} {change.kind} {change.type_name} {change.id}{ends}"


diff_style = style_by({"+ ": "green", "~ ": "yellow", "- ": "red"}, otherwise="dim")


def _value(value: object) -> str:
    if value is _ABSENT:
        return "<absent>"
    return "<null>" if value is None else json.dumps(value, ensure_ascii=False)
