"""Checking that a graph is whole: every branch's log without a gap, every head opens, every file it names is complete.

Reads only, and reads the store: nothing that a handle remembers is believed. A graph that was only ever touched through
OmniGraph verifies clean at any moment, also right after a process was killed in the middle of a write or the power
went; anything reported here was done by something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from omnigraph.api.maintenance import Problem, Verification
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.observers import Progress, Tally
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import IntegrityError, OmniGraphError
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import BranchRef, LogEntry, ParentLink, TableState, Tombstone, manifest_path
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import TableReader
from omnigraph.storage.tables.files import DamagedFile, check_version
from omnigraph.storage.topology import TopologyFiles

_ENTRIES_AT_ONCE = 256
_LOGS_AT_ONCE = 8
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The log of one branch: its newest commit that can be read, the version it should reach, and what is wrong.

    `head` is None when the branch was deleted meanwhile, or has no commit left to read. `commits` are those of its own
    log by version, `links` the parents in other logs, each with the entry that names it. `torn` is the newest slot
    when the file is not an object of any format, which is how a write that never ended looks.
    """

    ref: BranchRef
    head: LogEntry | None
    newest: int
    schemas: frozenset[str]
    problems: tuple[Problem, ...]
    commits: Mapping[int, str]
    links: Mapping[ParentLink, str]
    torn: str | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings about everything. `tables` are the versions that heads name, by folder and version; `topologies` the
    damaged ones among the stored builds, by folder."""

    logs: tuple[CheckedLog, ...]
    tables: Mapping[tuple[str, str], TableProblems]
    of_graph: tuple[Problem, ...]
    topologies: Mapping[str, Problem]

    @property
    def report(self) -> Verification:
        problems = [*self.of_graph]
        problems += [problem for log in self.logs for problem in log.problems]
        problems += [problem for table in self.tables.values() for problem in table.problems]
        problems += self.topologies.values()
        files = sum(table.files for table in self.tables.values())
        return Verification(len(self.logs), len(self.tables), files, tuple(problems))


def verify(workspace: Workspace) -> Verification:
    return examine(workspace).report


def examine(workspace: Workspace, progress: Progress | None = None) -> Examination:
    """Examine every branch, and again if one moved on meanwhile and was then cleaned up behind it."""
    root = workspace.root
    for _ in range(_ROUNDS):
        examination = _examine(root, progress)
        if examination.report.clean or all(
            max(root.log.slots(log.ref), default=0) <= log.newest for log in examination.logs
        ):
            break
    return examination


def _examine(root: GraphRoot, progress: Progress | None) -> Examination:
    """Every log and head of every live branch. A table version that several heads share is checked once."""
    refs, problems = _live_refs(root)
    read = Tally(progress, "reading logs", len(refs))

    def log_of(ref: BranchRef) -> CheckedLog:
        log = _check_log(root, ref)
        read.add()
        return log

    with ThreadPoolExecutor(_LOGS_AT_ONCE, thread_name_prefix="omnigraph-verify") as threads:
        logs = list(threads.map(log_of, refs))
    problems += _broken_links(root, logs)
    states: dict[tuple[str, str], tuple[str, TableState, frozenset[str]]] = {}
    digests: dict[str, str] = {}
    for log in logs:
        digests = dict.fromkeys(log.schemas, log.ref.branch) | digests
        columns = _columns(root, log.head)
        for type_key, state in log.head.tables.items() if log.head is not None else ():
            where, wanted = f"{type_key} on branch {log.ref.branch}", columns.get(type_key, frozenset())
            states.setdefault((state.path, state.version), (where, state, wanted))
    for digest, branch in digests.items():
        try:
            root.stored_schema(digest)
        except OmniGraphError as error:
            problems.append(_problem(f"branch {branch}", error))
    reader = TableReader(root.location)
    looked_at = Tally(progress, "checking tables", len(states))

    def table_of(item: tuple[str, TableState, frozenset[str]]) -> TableProblems:
        checked = _check_table(root, reader, *item)
        looked_at.add(what=f"checking {item[0]}")
        return checked

    checked = root.workers.map(table_of, states.values())
    tables = dict(zip(states, checked, strict=True))
    return Examination(tuple(logs), tables, tuple(problems), _damaged_topologies(root))


def _live_refs(root: GraphRoot) -> tuple[list[BranchRef], list[Problem]]:
    """Every branch whose ref can be read, and what is wrong with the others."""
    refs, problems = [root.identity.main], []
    try:
        refs = root.branches.all()
    except OmniGraphError as damage:
        with suppress(OmniGraphError):  # refs can't be listed, which is reported below
            problems += [_problem(f"branch {name}", error) for name, error in root.branches.damage()]
        if str(damage) not in {problem.reason for problem in problems}:
            problems.append(_problem("branches", damage))
        names: list[str] = []
        with suppress(OmniGraphError):  # a ref that can't be read is reported already
            names = root.branches.names()[1:]
        for name in names:
            try:
                refs.append(root.branches.head(name).ref)
            except OmniGraphError as error:
                if str(error) != str(damage):
                    problems.append(_problem(f"branch {name}", error))
    if not problems and (orphans := _orphans(refs, refs)):
        # Parents may have been created while branches were listed, or deleted while the branch was created.
        all_refs = [*root.branches.all(), *root.branches.deleted_since(datetime.min.replace(tzinfo=UTC))]
        problems += [
            Problem(f"branch {ref.branch}", f"the branch that it was created from ({parent}) is missing")
            for ref, parent in _orphans(all_refs, [ref for ref, _ in orphans])
        ]
    return refs, problems


def _orphans(all_refs: Iterable[BranchRef], refs: Iterable[BranchRef]) -> list[tuple[BranchRef, str]]:
    """Branches whose history lies in the log of an unknown branch."""
    ids = {ref.branch_id for ref in all_refs}
    return [(ref, point.branch_id) for ref in refs for point in ref.lineage if point.branch_id not in ids]


def _check_log(root: GraphRoot, ref: BranchRef) -> CheckedLog:
    """Read a branch's own log from the store: numbers without a gap, every entry readable and the child of the last."""
    where, first = f"branch {ref.branch}", ref.first_own_version
    slots = root.log.slots(ref)
    newest = max(slots, default=first - 1)
    problems: list[Problem] = []
    schemas: set[str] = set()
    commits: dict[int, str] = {}
    links: dict[ParentLink, str] = {}
    last: LogEntry | None = None
    if ref.fork is not None:
        point = _read(root, ref.fork.branch_id, ref.fork.version)
        last = point if isinstance(point, LogEntry) else None
        if last is None:
            problems.append(
                _missing_entry(where, ref.fork.branch_id, ref.fork.version, "which the branch was created from")
            )
    buried, torn = False, None
    for version, entry in _entries(root, ref, range(first, newest + 1)):
        path = slot_path(ref.branch_id, version)
        if isinstance(entry, OmniGraphError):
            problems.append(_problem(where, entry))
            if version == newest and last is not None and last.version == version - 1:
                torn = path if isinstance(entry, IntegrityError) and _is_torn(root, path) else None
        elif entry is None:
            problems.append(_missing_entry(where, ref.branch_id, version, "which commits after it build on"))
        elif isinstance(entry, Tombstone):
            buried = True
        else:
            parents = [link.commit_id for link in entry.commit.parents[:1]]
            if last is not None and last.version == version - 1 and parents != [last.commit.id]:
                problems.append(Problem(where, f"{path}: is not a child of the commit before it", path))
            last = entry
            schemas.add(entry.schema)
            commits[version] = entry.commit.id
            links |= {link: path for link in entry.commit.parents if link.branch_id != ref.branch_id}
    if newest < first and ref.fork is None:
        problems.append(_missing_entry(where, ref.branch_id, first, "the first commit of the graph"))
    if last is not None:
        schemas.add(last.schema)
    head = None if buried else last
    return CheckedLog(ref, head, newest, frozenset(schemas), tuple(problems), commits, links, torn)


def _broken_links(root: GraphRoot, logs: Iterable[CheckedLog]) -> Iterator[Problem]:
    """Entries of other logs that commits name as their parents, and that are gone or another commit now. A branch
    reports its fork point itself. Logs outlive their branches, so every former parent still exists."""
    commits = {log.ref.branch_id: log.commits for log in logs}
    for log in logs:
        for link, child in log.links.items():
            fork = log.ref.fork
            if fork is not None and (fork.branch_id, fork.version) == (link.branch_id, link.version):
                continue
            if commits.get(link.branch_id, {}).get(link.version) == link.commit_id:
                continue
            parent = _read(root, link.branch_id, link.version)  # or it was published after its log was read
            if isinstance(parent, LogEntry) and parent.commit.id == link.commit_id:
                continue
            path, where = slot_path(link.branch_id, link.version), f"branch {log.ref.branch}"
            if isinstance(parent, OmniGraphError):
                if link.branch_id not in commits:  # a log that was checked has reported it
                    yield _problem(where, parent)
            else:
                what = "is missing" if parent is None else "is another commit"
                reason = f"{path}: {what}, and {child} names commit {link.commit_id} there as a parent"
                yield Problem(where, reason, path)


def _is_torn(root: GraphRoot, path: str) -> bool:
    """Whether an object is none of anybody's making: empty, zeros, or broken off. Other bytes were put there."""
    data = (root.objects.get(path) or b"").rstrip(b"\0")
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        return not data or "truncated" in str(error)
    return False


def _entries(
    root: GraphRoot, ref: BranchRef, versions: range
) -> Iterator[tuple[int, LogEntry | Tombstone | OmniGraphError | None]]:
    for start in range(0, len(versions), _ENTRIES_AT_ONCE):
        some = versions[start : start + _ENTRIES_AT_ONCE]
        yield from zip(some, root.workers.map(lambda version: _read(root, ref.branch_id, version), some), strict=True)


def _read(root: GraphRoot, branch_id: str, version: int) -> LogEntry | Tombstone | OmniGraphError | None:
    try:
        return root.log.fetch(branch_id, version)
    except OmniGraphError as error:
        return error


def _missing_entry(where: str, branch_id: str, version: int, what: str) -> Problem:
    path = slot_path(branch_id, version)
    return Problem(where, f"{path}: the entry of version {version} is missing, {what}", path)


def _problem(where: str, error: OmniGraphError) -> Problem:
    return Problem(where, str(error), error.path if isinstance(error, IntegrityError) else None)


def _damaged_topologies(root: GraphRoot) -> dict[str, Problem]:
    files = TopologyFiles(root.objects)
    folders = sorted(files.folders())
    damages = zip(folders, root.workers.map(files.damage, folders), strict=True)
    defects = [(folder, *damage) for folder, damage in damages if damage is not None]
    return {folder: Problem("topology", f"{path}: {reason}", path) for folder, path, reason in defects}


class TableProblems(NamedTuple):
    files: int
    problems: tuple[Problem, ...]
    damaged: tuple[DamagedFile, ...] = ()


def _columns(root: GraphRoot, head: LogEntry | None) -> dict[str, frozenset[str]]:
    """The columns that each table of a head must have, by type key."""
    try:
        types = {} if head is None else table_types(root.catalog(head.schema))
    except OmniGraphError:
        return {}  # the schema is reported by itself
    return {
        type_key: frozenset((*type_.system_columns, *(prop.column for prop in type_.property_list)))
        for type_key, type_ in types.items()
    }


def _check_table(
    root: GraphRoot, reader: TableReader, where: str, state: TableState, columns: frozenset[str]
) -> TableProblems:
    """What is wrong with a table version. A new `reader` believes nothing that the handle remembers."""
    try:
        checked = check_version(reader, root.objects, state)
    except OmniGraphError as error:
        return TableProblems(0, (_problem(where, error),))
    problems = [Problem(where, f"{file.path}: {file.reason}", file.path) for file in checked.damaged]
    if (checked.rows, checked.fragments) != (state.rows, state.fragments):
        replaced = f"holds {checked.rows} rows, the log says {state.rows}: the version was replaced by another tool"
        problems.append(Problem(where, f"{state.path}: {replaced}", state.path))
    elif missing := sorted(columns - checked.columns):
        path = manifest_path(state)
        problems.append(Problem(where, f"{path}: the manifest lacks the column {', '.join(missing)}", path))
    return TableProblems(checked.files, tuple(problems), checked.damaged)
