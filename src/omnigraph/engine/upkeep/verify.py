"""Checking that a graph is whole: every branch's log without a gap, every head opens, every file it names is complete.

Reads only, and reads the store: nothing that a handle remembers is believed. A graph that was only ever touched through
OmniGraph verifies clean at any moment, also right after a process was killed in the middle of a write or the power
went; anything reported here was done by something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from omnigraph.api.upkeep import Problem, Verification
from omnigraph.engine.progress import Progress, Tally
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import IntegrityError, OmniGraphError
from omnigraph.storage.log.log import slot_path
from omnigraph.storage.models import BranchRef, LogEntry, TableState, Tombstone
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import TableReader
from omnigraph.storage.tables.integrity import DamagedFile, check_version

_ENTRIES_AT_ONCE = 256
_LOGS_AT_ONCE = 8
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The log of one branch: its newest commit that can be read, the version it should reach, and what is wrong.

    `head` is None when the branch was deleted meanwhile, or has no commit left to read. `torn` is the newest slot when
    what stands there is no object of any format, which is how a write that never ended looks.
    """

    ref: BranchRef
    head: LogEntry | None
    newest: int
    schemas: frozenset[str]
    problems: tuple[Problem, ...]
    torn: str | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that was looked at. `tables` are the versions that heads name, by folder and version."""

    logs: tuple[CheckedLog, ...]
    tables: Mapping[tuple[str, str], TableProblems]
    of_graph: tuple[Problem, ...]

    @property
    def report(self) -> Verification:
        problems = [*self.of_graph]
        problems += [problem for log in self.logs for problem in log.problems]
        problems += [problem for table in self.tables.values() for problem in table.problems]
        files = sum(table.files for table in self.tables.values())
        return Verification(len(self.logs), len(self.tables), files, tuple(problems))


def verify(workspace: Workspace) -> Verification:
    return examine(workspace).report


def examine(workspace: Workspace, progress: Progress | None = None) -> Examination:
    """Look at every branch. What moved on meanwhile, and was then cleaned up behind it, is looked at again."""
    root = workspace.root
    for _ in range(_ROUNDS):
        found = _examined(root, progress)
        if found.report.clean or all(max(root.log.slots(log.ref), default=0) <= log.newest for log in found.logs):
            break
    return found


def _examined(root: GraphRoot, progress: Progress | None) -> Examination:
    """Every log and head of every live branch. A table version that several heads share is checked once."""
    refs, problems = _live_refs(root)
    read = Tally(progress, "reading logs", len(refs))

    def log_of(ref: BranchRef) -> CheckedLog:
        log = _check_log(root, ref)
        read.add()
        return log

    with ThreadPoolExecutor(_LOGS_AT_ONCE, thread_name_prefix="omnigraph-verify") as threads:
        logs = list(threads.map(log_of, refs))
    states: dict[tuple[str, str], tuple[str, TableState]] = {}
    digests: dict[str, str] = {}
    for log in logs:
        digests = dict.fromkeys(log.schemas, log.ref.branch) | digests
        for type_key, state in log.head.tables.items() if log.head is not None else ():
            states.setdefault((state.path, state.version), (f"{type_key} on branch {log.ref.branch}", state))
    for digest, branch in digests.items():
        problems += _schema_problems(root, f"branch {branch}", digest)
    reader = TableReader(root.location)
    looked_at = Tally(progress, "checking tables", len(states))

    def table_of(item: tuple[str, TableState]) -> TableProblems:
        checked = _check_table(root, reader, *item)
        looked_at.add(what=f"checking {item[0]}")
        return checked

    checked = root.workers.map(table_of, states.values())
    return Examination(tuple(logs), dict(zip(states, checked, strict=True)), tuple(problems))


def _live_refs(root: GraphRoot) -> tuple[list[BranchRef], list[Problem]]:
    """Every branch whose ref can be read, and what is wrong with the others."""
    refs, problems = [root.identity.main], []
    try:
        refs = root.branches.all()
    except OmniGraphError as damage:
        problems.append(_problem("branches", damage))
        for name in _named(root):
            try:
                refs.append(root.branches.head(name).ref)
            except OmniGraphError as error:
                if str(error) != str(damage):
                    problems.append(_problem(f"branch {name}", error))
    if not problems and (orphans := _orphans(refs, refs)):
        # Parents may have been created while branches were listed, or deleted while the branch was created.
        known = [*root.branches.all(), *root.branches.deleted_since(datetime.min.replace(tzinfo=UTC))]
        problems += [
            Problem(f"branch {ref.branch}", f"the branch that it was created from ({parent}) is missing")
            for ref, parent in _orphans(known, [ref for ref, _ in orphans])
        ]
    return refs, problems


def _orphans(known: Iterable[BranchRef], refs: Iterable[BranchRef]) -> list[tuple[BranchRef, str]]:
    """Branches whose history lies in the log of a branch that nobody knows."""
    ids = {ref.branch_id for ref in known}
    return [(ref, point.branch_id) for ref in refs for point in ref.lineage if point.branch_id not in ids]


def _named(root: GraphRoot) -> list[str]:
    try:
        return root.branches.names()[1:]
    except OmniGraphError:
        return []  # told already: a ref that can't be read


# Logs


def _check_log(root: GraphRoot, ref: BranchRef) -> CheckedLog:
    """Read a branch's own log from the store: numbers without a gap, every entry readable and the child of the last."""
    where, first = f"branch {ref.branch}", ref.first_own_version
    slots = root.log.slots(ref)
    newest = max(slots, default=first - 1)
    problems: list[Problem] = []
    schemas: set[str] = set()
    last: LogEntry | None = None
    if ref.fork is not None:
        point = _read(root, ref.fork.branch_id, ref.fork.version)
        last = point if isinstance(point, LogEntry) else None
        if last is None:
            problems.append(_missing(where, ref.fork.branch_id, ref.fork.version, "which the branch was created from"))
    buried, torn = False, None
    for version, found in _entries(root, ref, range(first, newest + 1)):
        path = slot_path(ref.branch_id, version)
        if isinstance(found, OmniGraphError):
            problems.append(_problem(where, found))
            if version == newest and last is not None and last.version == version - 1:
                torn = path if isinstance(found, IntegrityError) and _is_torn(root, path) else None
        elif found is None:
            problems.append(_missing(where, ref.branch_id, version, "which commits after it build on"))
        elif isinstance(found, Tombstone):
            buried = True
        else:
            parents = [link.commit_id for link in found.commit.parents[:1]]
            if last is not None and last.version == version - 1 and parents != [last.commit.id]:
                problems.append(Problem(where, f"{path}: is not a child of the commit before it", path))
            last = found
            schemas.add(found.schema)
    if newest < first and ref.fork is None:
        problems.append(_missing(where, ref.branch_id, first, "the first commit of the graph"))
    if last is not None:
        schemas.add(last.schema)
    return CheckedLog(ref, None if buried else last, newest, frozenset(schemas), tuple(problems), torn)


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
        return root.log.stored(branch_id, version)
    except OmniGraphError as error:
        return error


def _missing(where: str, branch_id: str, version: int, what: str) -> Problem:
    path = slot_path(branch_id, version)
    return Problem(where, f"{path}: the entry of version {version} is missing, {what}", path)


def _problem(where: str, error: OmniGraphError) -> Problem:
    return Problem(where, str(error), error.path if isinstance(error, IntegrityError) else None)


def _schema_problems(root: GraphRoot, where: str, digest: str) -> Iterable[Problem]:
    try:
        root.stored_schema(digest)
    except OmniGraphError as error:
        yield _problem(where, error)


# Tables


@dataclass(frozen=True, slots=True)
class TableProblems:
    files: int
    problems: tuple[Problem, ...]
    damaged: tuple[DamagedFile, ...] = ()

    @property
    def only_indexes(self) -> bool:
        """Whether everything that is wrong lies in indexes, which can be built again from the rows."""
        return (
            bool(self.damaged)
            and len(self.damaged) == len(self.problems)
            and all(file.index_segment is not None for file in self.damaged)
        )


def _check_table(root: GraphRoot, reader: TableReader, where: str, state: TableState) -> TableProblems:
    """What is wrong with a table version. A new `reader` believes nothing that the handle remembers."""
    try:
        checked = check_version(reader, root.objects, state)
    except OmniGraphError as error:
        return TableProblems(0, (_problem(where, error),))
    problems = [Problem(where, f"{file.path}: {file.reason}", file.path) for file in checked.damaged]
    if (checked.rows, checked.fragments) != (state.rows, state.fragments):
        replaced = f"holds {checked.rows} rows, the log says {state.rows}: the version was replaced by another tool"
        problems.append(Problem(where, f"{state.path}: {replaced}", state.path))
    return TableProblems(checked.files, tuple(problems), checked.damaged)
