"""Writing a DataFrame into one graph type as one commit: the sink of the data source.

Executors type the rows with the row kernels and write fragments. The commit runs where Spark has no session to join
with, so it judges the ids, endpoints and unique values of the new rows in one process with the engine's own
constraint stage; frames beyond the limits of the handle are for `write_frame`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph.api.enums import LoadMode
from omnigraph.engine.change import GraphChange, TypeChange
from omnigraph.engine.columns import as_table_rows, column_of, table_schema
from omnigraph.engine.constraints import FinalImage, check_constraints
from omnigraph.engine.external_blobs import DENY_EXTERNAL_BLOBS
from omnigraph.engine.indexes import table_types
from omnigraph.engine.kernels import RejectedRow, type_batch
from omnigraph.engine.publish import Intent, PublishedCommit, PublishPlan, WriteTxn
from omnigraph.engine.workspace import Workspace, opened
from omnigraph.errors import BadRequestError, ConflictError, KeyConflictError, ResourceLimitError
from omnigraph.language.catalog import Catalog, NodeType, TableType
from omnigraph.pipeline.blobs import admitted_blobs
from omnigraph.storage.location import Location
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.distributed import (
    PLACE,
    FragmentStaging,
    TableAddress,
    delete_rows,
    fragments_of,
    grouped,
    scan_fragments,
    write_new_fragments,
)

_FLUSH_ROWS = 1 << 20


@dataclass
class WrittenRows(WriterCommitMessage):
    """What one task wrote, in order, and the schema it was typed with. `stream` names the stream it belongs to."""

    fragments: tuple[str, ...]
    schema: str
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a frame goes, as executors and the committing process need it."""

    location: Location
    branch: str
    type_key: str
    mode: LoadMode
    catalog: bytes
    schema_digest: str
    address: TableAddress
    actor: str | None = None
    run_key: str | None = None

    @property
    def type(self) -> TableType:
        return table_types(Catalog.from_json(self.catalog))[self.type_key]

    def written(self, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Type and write what one task got; the first bad row ends the whole write."""
        type_ = self.type
        fragments: list[str] = []
        parts: list[pa.Table] = []
        seen = 0
        for batch in batches:
            rejected: list[RejectedRow] = []
            lines = pa.array(range(seen + 1, seen + batch.num_rows + 1), pa.int64())
            typed = type_batch(type_, _as_input(type_, batch), lines, rejected)
            if rejected:
                context = TaskContext.get()
                part = f"partition {context.partitionId()}, row" if context else "row"
                raise BadRequestError(rejected[0].message(part))
            admitted, refused = admitted_blobs(
                type_, typed.rows, DENY_EXTERNAL_BLOBS, keeps_references=self.mode is LoadMode.OVERWRITE
            )
            if refused:
                raise BadRequestError(min(refused.items())[1][1])
            seen += batch.num_rows
            parts.append(admitted)
            if sum(part.num_rows for part in parts) >= _FLUSH_ROWS:
                fragments += self._flush(type_, parts)
                parts = []
        if any(part.num_rows for part in parts):
            fragments += self._flush(type_, parts)
        return WrittenRows(tuple(fragments), self.schema_digest)

    def _flush(self, type_: TableType, parts: list[pa.Table]) -> list[str]:
        rows = as_table_rows(type_, pa.concat_tables(parts))
        return write_new_fragments(self.address, rows, table_schema(type_), replaces=self.mode is LoadMode.OVERWRITE)

    def publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        key: str | None,
        *,
        unless: Callable[[WriteTxn], bool] | None = None,
    ) -> PublishedCommit | None:
        """One commit for everything the tasks wrote, or none when `unless` finds that it was made before."""
        written = [message for message in messages if isinstance(message, WrittenRows) and message.fragments]
        if not written and self.mode is not LoadMode.OVERWRITE:
            return None
        with opened(self.location.uri) as workspace:
            intent = Intent(kind="pipeline", actor=self.actor, message="DataFrame write", idempotency_key=key)
            fragments = [text for message in written for text in message.fragments]
            commit = _FrameCommit(workspace, self, fragments, {message.schema for message in written})

            def prepare(txn: WriteTxn) -> PublishPlan | None:
                return None if unless is not None and unless(txn) else commit.prepare(txn)

            return workspace.commit(self.branch, prepare, intent, strict=self.mode is LoadMode.OVERWRITE)


@dataclass
class _FrameCommit:
    workspace: Workspace
    sink: Sink
    fragments: list[str]
    schemas: set[str]
    type: TableType = field(init=False)

    def __post_init__(self) -> None:
        self.type = self.sink.type

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        if self.schemas - {txn.base.schema}:
            raise ConflictError("the schema changed while the frame was written; nothing was written, write it again")
        mode, key = self.sink.mode, self.sink.type_key
        staging = FragmentStaging(txn.root.reader, txn.root.trace)
        base = txn.state(key)
        staged = staging.add_fragments(base, self.fragments, replaces=mode is LoadMode.OVERWRITE).state
        address = TableAddress.of(txn.root.location, staged)
        known = {f.file for f in fragments_of(txn.root.reader.open(base))} if mode is not LoadMode.OVERWRITE else set()
        fresh = [f for f in fragments_of(txn.root.reader.open(staged)) if f.file not in known]
        incoming = sum(f.rows for f in fresh)
        if incoming > self.workspace.limits.rows:
            raise ResourceLimitError(
                "rows of one DataFrame write",
                self.workspace.limits.rows,
                incoming,
                "use omnigraph.pipeline.write_frame, which has no such limit",
            )
        rows = _narrow_rows(address, [f.id for f in fresh], self.type)
        superseded: list[int] = []
        if mode is LoadMode.MERGE:
            rows, superseded = _last_per_id(rows)
        change = TypeChange(self.type, rows, replaces=mode is LoadMode.OVERWRITE, fresh=mode is LoadMode.APPEND)
        read_set = check_constraints(FinalImage(txn, GraphChange.of(change)), [change])
        if mode is not LoadMode.MERGE:
            _refuse_repeats(key, rows)
        replaced: list[int] = []
        if mode is not LoadMode.OVERWRITE and base.rows:
            replaced = self._stored_places(txn, base, rows)
        final = staging.without_rows(
            staged, {p.fragment: delete_rows(address, p) for p in grouped([*superseded, *replaced])}
        )
        inserted = rows.num_rows - len(replaced)
        gone = base.rows if mode is LoadMode.OVERWRITE else 0
        counts = ChangeCounts(inserted=inserted, updated=len(replaced), deleted=gone)
        return PublishPlan(staged={key: StagedTable(final.state, counts)}, read_set=read_set)

    def _stored_places(self, txn: WriteTxn, base: TableState, rows: pa.Table) -> list[int]:
        """Where ids of the new rows are stored already; an error for an append."""
        table = txn.root.reader.open(base)
        ids = rows.column("id")
        address = TableAddress.of(txn.root.location, base)
        found: list[int] = []
        for batch in scan_fragments(address, [f.id for f in fragments_of(table)], ["id"], with_places=True):
            hits = pa.table(batch).filter(pc.is_in(batch.column("id"), value_set=ids.combine_chunks()))
            if hits.num_rows and self.sink.mode is LoadMode.APPEND:
                raise KeyConflictError(self.sink.type_key, hits.column("id")[0].as_py())
            found += hits.column(PLACE).to_pylist()
        return found


def _narrow_rows(address: TableAddress, fragment_ids: list[int], type_: TableType) -> pa.Table:
    """The columns that constraints look at, with the place of each row."""
    members = {name for rule in type_.uniques for name in rule}
    if isinstance(type_, NodeType):
        members |= set(type_.key)
    columns = [*type_.system_columns, *(column_of(type_, name) or name for name in sorted(members))]
    wanted = list(dict.fromkeys(columns))
    batches = list(scan_fragments(address, fragment_ids, wanted, with_places=True)) if fragment_ids else []
    if batches:
        return pa.Table.from_batches(batches)
    schema = table_schema(type_)
    return pa.schema([*(schema.field(name) for name in wanted), pa.field(PLACE, pa.int64())]).empty_table()


def _last_per_id(rows: pa.Table) -> tuple[pa.Table, list[int]]:
    """The last row of every id, and the places of the others."""
    numbered = rows.append_column("#", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by("id").aggregate([("#", "max")]).column("#_max").combine_chunks()
    if len(last) == rows.num_rows:
        return rows, []
    kept = pc.is_in(numbered.column("#"), value_set=last)
    return rows.filter(kept), rows.filter(pc.invert(kept)).column(PLACE).to_pylist()


def _refuse_repeats(key: str, rows: pa.Table) -> None:
    counts = pc.value_counts(rows.column("id"))
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        first = repeated[0].as_py()
        raise KeyConflictError(key, first, message=f"the input holds the {key} id '{first}' more than once")


def _as_input(type_: TableType, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns as the row kernel calls them; a frame that was read from the graph says `src` and `dst`."""
    if type_.kind != "edge":
        return batch
    renamed = {"src": "from", "dst": "to"}
    return batch.rename_columns([renamed.get(name, name) for name in batch.schema.names])


class TypeWriter(DataSourceArrowWriter):
    """A batch write: one commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.written(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.publish(messages, self._sink.run_key)
