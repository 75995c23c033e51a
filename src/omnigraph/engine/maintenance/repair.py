"""Repair: what is damaged, what another tool did to the tables of main, and what can safely be done about it.

Repair examines everything that verify does, and each thing that is wrong gets a row. Three things can be put right:

* An index is derived from its rows: a damaged one is built again with `confirm`. So is a stored topology: it is
  removed, and the next traversal that needs it makes it again.
* Rows that another tool appended to a table are not in the graph, because OmniGraph never reads the attached head that
  such tools move. With `confirm` and `force` they are loaded like any other input, in one commit.
* A newest log entry that breaks off on a local disk keeps its whole branch from being read. Earlier versions could
  leave one when the power went before the commit was acknowledged. With `confirm` and `force` it is set aside, not
  deleted, and the branch goes on from the commit before it.

Nothing else is guessed: it is named, and has to come from a backup.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.api.enums import Action, Classification, LoadMode
from omnigraph.api.maintenance import METADATA_ROW, Problem, RepairReport, TableRepaired
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, table_types
from omnigraph.engine.maintenance.verify import CheckedLog, Examination, examine
from omnigraph.engine.observers import Progress
from omnigraph.engine.rows.export_form import end_columns, graph_record
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.load import LoadRequest, load, record_input
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.language.catalog import EdgeType, TableType
from omnigraph.storage.identifiers import MAIN, new_ulid
from omnigraph.storage.models import LogEntry, TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.files import AttachedHead, foreign_head
from omnigraph.storage.tables.staging import StagedTable
from omnigraph.storage.topology import TopologyFiles

_DAMAGED: Final = "__manifest/damaged"


@dataclass(frozen=True, slots=True)
class _Finding:
    """A row, and what could be done about it: rows to load, or index segments to build again."""

    row: TableRepaired
    type: TableType | None = None
    missing: pa.Table | None = None
    damaged_segments: frozenset[str] = frozenset()


def repair(
    workspace: Workspace, *, confirm: bool, force: bool, actor: str | None = None, progress: Progress | None = None
) -> RepairReport:
    """Classify every table of main and everything else that is damaged; act only as far as the flags allow."""
    if force and not confirm:
        raise BadRequestError("force requires confirm")
    examination = examine(workspace, progress)
    root, logs = workspace.root, examination.logs
    of_logs = [_torn_log(root, examination, log, log.torn, confirm, force) for log in logs if log.torn]
    reported = {log.torn for log in logs}
    main = next(log for log in logs if log.ref.branch == MAIN)
    findings = [] if main.head is None else _tables_of_main(workspace, main.head, examination)
    reported |= {problem.path or problem.reason for problem in _problems_of(examination, main.head)}
    reported |= {problem.path for problem in examination.topologies.values()}
    others = [
        replace(_graph_row(main), error=problem.reason)
        for problem in examination.report.problems
        if (problem.path or problem.reason) not in reported
    ]
    others += [_topology_row(root, main, *damage, confirm) for damage in examination.topologies.items()]
    version, rows = None, [finding.row for finding in findings]
    if confirm:
        version, rows = _act(workspace, findings, force=force, actor=actor)
    return RepairReport(workspace.uri, confirm, force, version, (*rows, *of_logs, *others))


def _graph_row(log: CheckedLog) -> TableRepaired:
    """A row for what belongs to no table: the last version that can be read, and the one that the log should reach."""
    readable = 0 if log.head is None else log.head.version
    return TableRepaired(
        type_key=METADATA_ROW,
        published_dataset_version=readable,
        dataset_version_id=str(readable),
        lance_head_version=str(log.newest),
        classification=Classification.UNVERIFIABLE,
        action=Action.REFUSED,
    )


def _torn_log(
    root: GraphRoot, examination: Examination, log: CheckedLog, torn: str, confirm: bool, force: bool
) -> TableRepaired:
    """A truncated newest entry. If it never was whole, no reader could read it and no commit builds on it."""
    row = _graph_row(log)
    reason = (
        f"{torn}: the newest entry of branch '{log.ref.branch}' breaks off, so the branch can't be read. A power "
        "cut leaves this of a commit that was not acknowledged; if there is a backup of the file, put it back instead"
    )
    if not root.location.is_local:
        return _unverifiable(row, f"{reason}. This store never leaves half of an object: somebody changed it")
    if len(log.problems) > 1:
        return _unverifiable(row, f"{reason}. More of the log is damaged: {log.problems[0].reason}")
    if broken := _problems_of(examination, log.head):
        # A cleanup releases the commit before the head only after it has read the head.
        whole_once = "It was whole once, because the commit before it was released"
        return _unverifiable(row, f"{reason}. {whole_once}: {broken[0].reason}")
    if not confirm:
        offer = f"confirm with force sets it aside, and the branch goes on from version {log.newest - 1}"
        return replace(row, action=Action.PREVIEW, error=f"{reason}; {offer}")
    if not force:
        return _unverifiable(row, f"{reason}; it is set aside only with force")
    away = f"{_DAMAGED}/{log.ref.branch_id}-{log.newest:020d}-{new_ulid()}.json"
    root.objects.set_aside(torn, away)
    return replace(row, action=Action.FORCED, error=f"{torn}: was set aside as {away}")


def _topology_row(root: GraphRoot, main: CheckedLog, folder: str, problem: Problem, confirm: bool) -> TableRepaired:
    row = _graph_row(main)
    if not confirm:
        offer = "a topology is derived from its edges; confirm removes it, and it is made again when it is needed"
        return replace(row, action=Action.PREVIEW, error=f"{problem.reason}; {offer}")
    TopologyFiles(root.objects).remove(folder)
    return replace(row, action=Action.HEALED, error=f"{problem.reason}; the build was removed")


def _problems_of(examination: Examination, head: LogEntry | None) -> list[Problem]:
    states = [] if head is None else head.tables.values()
    return [problem for s in states for problem in examination.tables[s.path, s.version].problems]


def _tables_of_main(workspace: Workspace, head: LogEntry, examination: Examination) -> list[_Finding]:
    snapshot = Snapshot(workspace, MAIN, head)
    types: dict[str, TableType] = {}
    with contextlib.suppress(OmniGraphError):  # the schema has a row of its own then
        types = table_types(snapshot.catalog)
    published = dict.fromkeys(head.tables, head.version)
    with contextlib.suppress(OmniGraphError):  # so has a log that can't be read
        published = snapshot.table_versions()

    def finding_of(type_key: str) -> _Finding:
        return _examine(snapshot, type_key, types.get(type_key), published[type_key], examination)

    return list(workspace.root.workers.map(finding_of, sorted(head.tables)))


def _examine(
    snapshot: Snapshot, type_key: str, type_: TableType | None, published: int, examination: Examination
) -> _Finding:
    state = snapshot.entry.tables[type_key]
    checked = examination.tables[state.path, state.version]
    row = TableRepaired(
        type_key=type_key,
        published_dataset_version=published,
        dataset_version_id=state.version,
        lance_head_version=state.version,
        classification=Classification.NO_DRIFT,
        action=Action.NO_OP,
    )
    segments = [file.index_segment for file in checked.damaged if file.index_segment is not None]
    if segments and len(segments) == len(checked.damaged) == len(checked.problems) and type_ is not None:
        reason = f"{checked.problems[0].reason}; an index is derived from its rows, and confirm builds it again"
        damaged = replace(row, classification=Classification.UNVERIFIABLE, action=Action.PREVIEW, error=reason)
        return _Finding(damaged, type_, damaged_segments=frozenset(segments))
    if checked.problems:
        return _Finding(_unverifiable(row, checked.problems[0].reason))
    if type_ is None:
        return _Finding(row)
    try:
        head = foreign_head(snapshot.root.reader, state)
        if head is None:
            return _Finding(row, type_)
        version = head.table.state.version
        row = replace(row, lance_head_version=version, operations=head.operations, action=Action.PREVIEW)
        missing = _missing_rows(snapshot, type_, head)
    except OmniGraphError as error:
        return _Finding(_unverifiable(row, str(error)), type_)
    if not missing.num_rows:
        return _Finding(replace(row, classification=Classification.VERIFIED_MAINTENANCE), type_)
    suspicious = replace(row, classification=Classification.SUSPICIOUS, foreign_rows=missing.num_rows)
    return _Finding(suspicious, type_, missing)


def _unverifiable(row: TableRepaired, reason: str) -> TableRepaired:
    return replace(row, classification=Classification.UNVERIFIABLE, action=Action.REFUSED, error=reason)


def _missing_rows(snapshot: Snapshot, type_: TableType, head: AttachedHead) -> pa.Table:
    """The rows of the attached head whose ids the graph does not have, in the columns of the type."""
    if "id" not in head.table.columns:
        raise BadRequestError("the foreign version has no column 'id'")
    columns = [*type_.system_columns, *(p.column for p in type_.property_list if not p.type.is_blob)]
    rows = head.table.read([column for column in columns if column in head.table.columns])
    stored = snapshot.table(type_.type_key).existing_ids(rows.column("id").drop_null().to_pylist())
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=pa.array(sorted(stored), pa.string()))))


def _act(
    workspace: Workspace, findings: list[_Finding], *, force: bool, actor: str | None
) -> tuple[int | None, list[TableRepaired]]:
    version, unhealed = _rebuild_indexes(workspace, [f for f in findings if f.damaged_segments], actor)
    wanted = [f for f in findings if f.missing is not None]
    refusal: str | None = None if force else "the rows are taken in only with force"
    if wanted and force:
        try:
            lines = "\n".join(line for finding in wanted for line in _records(finding))
            request = LoadRequest(record_input(lines), LoadMode.APPEND, MAIN, actor=actor)
            if (commit := load(workspace, request).commit) is not None:
                version = commit.graph_manifest_version
        except OmniGraphError as error:
            refusal = str(error)
    rows = []
    for finding in findings:
        row = finding.row
        failure = unhealed if finding.damaged_segments else refusal
        if row.classification is Classification.VERIFIED_MAINTENANCE:
            row = replace(row, action=Action.HEALED)
        elif finding.missing is not None or finding.damaged_segments:
            done = Action.FORCED if finding.missing is not None else Action.HEALED
            row = replace(row, action=done) if failure is None else replace(row, action=Action.REFUSED, error=failure)
        rows.append(row)
    return version, rows


def _rebuild_indexes(
    workspace: Workspace, findings: list[_Finding], actor: str | None
) -> tuple[int | None, str | None]:
    """One commit without the damaged segments, and with new ones. The version of it, or why there is none."""
    if not findings:
        return None, None

    def reindex(finding: _Finding) -> Callable[[TableState], StagedTable]:
        assert finding.type is not None
        maintenance, specs = workspace.root.table_maintenance, declared_indexes(finding.type)
        return lambda state: maintenance.reindex(state, finding.damaged_segments, specs).staged

    def prepare(txn: WriteTxn) -> PublishPlan:
        return PublishPlan(txn.stage({finding.row.type_key: reindex(finding) for finding in findings}))

    try:
        published = workspace.commit(MAIN, prepare, Intent(kind="repair", actor=actor))
    except OmniGraphError as error:
        return None, str(error)
    return None if published is None else published.version, None


def _records(finding: _Finding) -> Iterator[str]:
    """Foreign rows as load records, by the names the schema has now. Blobs are not carried over."""
    type_, rows = finding.type, finding.missing
    if rows is None or type_ is None:
        return
    names = {prop.column: prop.name for prop in type_.property_list}
    ends = (
        {name: column.to_pylist() for name, column in end_columns(type_, rows).items()}
        if isinstance(type_, EdgeType)
        else {}
    )
    plain = pa.table({name: _as_json(rows.column(name)) for name in rows.column_names})
    for number, row in enumerate(plain.to_pylist()):
        data = {names[c]: value for c, value in row.items() if c in names and value is not None}
        beside = {"id": row["id"], **{name: values[number] for name, values in ends.items()}}
        yield json.dumps(graph_record(type_, data, beside))


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as the integers that a load takes."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64())
    return column
