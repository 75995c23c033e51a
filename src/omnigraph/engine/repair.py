"""Repair: what another tool did to the tables of main, shown, and taken in only by consent.

OmniGraph never moves a table's attached head and never reads it, so a moved one harms nothing: rows that another tool
appended there are simply not in the graph. Repair finds them; with `confirm` and `force` it loads the missing ones
like any other input, validation included, in one commit. It never guesses: what can't be opened is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.indexes import table_types
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.verify import check_table
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.language.catalog import EdgeType, TableType
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.foreign import AttachedHead, attached_head

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph


class Classification(StrEnum):
    """`verified_maintenance` moved the attached head and no content; `suspicious` brought rows the graph lacks."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class Action(StrEnum):
    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TableRepaired:
    type_key: str
    published_dataset_version: str
    lance_head_version: str
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    foreign_rows: int = 0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "type_key": self.type_key,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "classification": self.classification.value,
            "action": self.action.value,
            "operations": list(self.operations),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class RepairReport:
    """`graph_manifest_version` is that of the commit that took rows in, None when there was none."""

    uri: str
    confirm: bool
    force: bool
    graph_manifest_version: int | None
    datasets: tuple[TableRepaired, ...]

    @property
    def refused(self) -> int:
        return sum(row.action is Action.REFUSED for row in self.datasets)

    def to_dict(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "confirm": self.confirm,
            "force": self.force,
            "graph_manifest_version": self.graph_manifest_version,
            "datasets": [row.to_dict() for row in self.datasets],
        }


@dataclass(frozen=True, slots=True)
class _Finding:
    row: TableRepaired
    type: TableType
    missing: pa.Table | None = None


def repair(graph: Graph, *, confirm: bool, force: bool, actor: str | None = None) -> RepairReport:
    """Classify every table of main. Rows that the graph lacks are taken in only with both flags."""
    if force and not confirm:
        raise BadRequestError("force requires confirm")
    snapshot = graph.snapshot()
    items = list(table_types(snapshot.catalog).items())
    found = list(graph.root.workers.map(lambda item: _examine(graph.root, snapshot, *item), items))
    version, rows = None, [finding.row for finding in found]
    if confirm:
        version, rows = _act(graph, found, force=force, actor=actor)
    return RepairReport(graph.uri, confirm, force, version, tuple(rows))


def _examine(root: GraphRoot, snapshot: Snapshot, type_key: str, type_: TableType) -> _Finding:
    state = snapshot.entry.tables[type_key]
    row = TableRepaired(type_key, state.version, state.version, Classification.NO_DRIFT, Action.NO_OP)
    _, problems = check_table(root, type_key, state)
    if problems:
        return _Finding(_unverifiable(row, problems[0].reason), type_)
    try:
        head = attached_head(root.reader, state)
        if not head.is_foreign:
            return _Finding(row, type_)
        row = replace(row, lance_head_version=str(head.version), operations=head.operations, action=Action.PREVIEW)
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
    known = snapshot.table(type_.type_key).existing_ids(rows.column("id").drop_null().to_pylist())
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=pa.array(sorted(known), pa.string()))))


def _act(
    graph: Graph, found: list[_Finding], *, force: bool, actor: str | None
) -> tuple[int | None, list[TableRepaired]]:
    wanted = [f for f in found if f.missing is not None]
    version: int | None = None
    refusal: str | None = None if force else "the rows are taken in only with force"
    if wanted and force:
        try:
            lines = "\n".join(line for finding in wanted for line in _records(finding))
            version = graph.load(lines, mode="append", actor=actor).commit.graph_manifest_version
        except OmniGraphError as error:
            refusal = str(error)
    return version, [_acted(finding, refusal) for finding in found]


def _acted(finding: _Finding, refusal: str | None) -> TableRepaired:
    row = finding.row
    if row.classification is Classification.VERIFIED_MAINTENANCE:
        return replace(row, action=Action.HEALED)
    if finding.missing is None:
        return row
    if refusal is not None:
        return replace(row, action=Action.REFUSED, error=refusal)
    return replace(row, action=Action.FORCED)


def _records(finding: _Finding) -> Iterator[str]:
    """Foreign rows as load records, by the names the schema has now. Blobs are not carried over."""
    type_, rows = finding.type, finding.missing
    if rows is None:
        return
    names = {prop.column: prop.name for prop in type_.property_list}
    plain = pa.table({name: _as_json(rows.column(name)) for name in rows.column_names})
    for row in plain.to_pylist():
        data = {names[c]: value for c, value in row.items() if c in names and value is not None}
        data["id"] = row["id"]
        if isinstance(type_, EdgeType):
            yield json.dumps({"edge": type_.name, "from": row["src"], "to": row["dst"], "data": data})
        else:
            yield json.dumps({"type": type_.name, "data": data})


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as the integers that a load takes."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64())
    return column
