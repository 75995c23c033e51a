"""Writing a DataFrame or a stream into one graph type: the sink of the data source.

Executors type rows and write fragments. The commit runs in a process without a Spark session, so it checks ids,
endpoints and unique values with the engine's own constraint stage; larger frames are for `write_frame`. A stream makes
one commit per micro-batch, whose key names the query and the batch, so a repeated batch is recognised. Spark keeps only
the text of an exception: a writer adds the fields of its error as a note, and `error_behind` restores it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.executor import RemoteTable, admitted_blobs
from omnigraph.engine.bulk.staged_run import FrameCommit, GraphAddress, last_number
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.rows.columns import as_table_rows, fillable, table_schema
from omnigraph.engine.rows.end_ids import interface_ends
from omnigraph.engine.rows.kernels.ndjson import Block
from omnigraph.engine.rows.kernels.records import type_batch
from omnigraph.engine.rows.kernels.typed_rows import (
    RejectedRow,
    Stage,
    TypedRows,
    ends_without_type,
    first_in_stage_order,
)
from omnigraph.engine.write.external_blobs import DENY_EXTERNAL_BLOBS
from omnigraph.engine.write.load import LoadRequest, publish_load
from omnigraph.engine.write.publish import Intent, PublishedCommit, PublishPlan, WriteTxn
from omnigraph.engine.write.row_input import RowInput
from omnigraph.errors import BadRequestError, ConflictError, ConstraintError, ConstraintRule, KeyConflictError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.pipeline.execution.embedding import EmbedTask, client_of, fill_vectors

_MARK: Final = "omnigraph error: "
_CONSTRAINT: Final = ("rule", "type_key", "property", "entity_id", "line")
_KEY: Final = ("type_key", "entity_id")


@contextmanager
def note_error_fields() -> Iterator[None]:
    """Errors that have fields a caller may want are raised with these in a note."""
    try:
        yield
    except (ConstraintError, KeyConflictError) as error:
        names = _CONSTRAINT if isinstance(error, ConstraintError) else _KEY
        fields = {"message": str(error), **{name: getattr(error, name) for name in names}}
        error.add_note(_MARK + json.dumps(fields))
        raise


def error_behind(error: BaseException) -> ConstraintError | KeyConflictError | None:
    """The `ConstraintError` or `KeyConflictError` that made Spark fail; None when Spark failed for another reason."""
    for line in str(error).splitlines():
        if line.startswith(_MARK):
            fields = json.loads(line.removeprefix(_MARK))
            if "rule" in fields:
                return ConstraintError(ConstraintRule(fields.pop("rule")), **fields)
            return KeyConflictError(**fields)
    return None


_FLUSH_ROWS = 1 << 20


@dataclass
class WrittenRows(WriterCommitMessage):
    """The fragments of one task, in order, and their schema. `stream` names the stream it belongs to. The `rows` of an
    update are not written: the committing process needs them beside what is stored then."""

    fragments: tuple[str, ...]
    schema: str
    stream: str | None = None
    rows: bytes = b""

    @property
    def is_empty(self) -> bool:
        return not self.fragments and not self.rows


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a frame goes, as executors and the committing process need it."""

    graph: GraphAddress
    branch: str
    type_key: str
    mode: LoadMode
    catalog: bytes
    schema_digest: str
    table: RemoteTable
    actor: str | None = None
    run_key: str | None = None
    embed: tuple[EmbedTask, ...] = ()

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Type and write the rows of one task; the first bad row ends the whole write."""
        if self.mode is LoadMode.UPDATE:
            return WrittenRows((), self.schema_digest, rows=_pack(batches))
        catalog = Catalog.from_json(self.catalog)
        type_ = table_types(catalog)[self.type_key]
        # A frame that was read from the graph has `src` and `dst`; the row kernel calls them `from` and `to`.
        ends = {"src": "from", "dst": "to"} if type_.kind == "edge" else {}
        ends |= {f"{end.column}_type": f"{end.name}_type" for end in interface_ends(type_)}
        readable = fillable(type_, lambda prop: any(step.target == prop.column for step in self.embed))
        fragments: list[str] = []
        parts: list[pa.Table] = []
        seen = 0
        for batch in batches:
            rejected: list[RejectedRow] = []
            lines = pa.array(range(seen + 1, seen + batch.num_rows + 1), pa.int64())
            named = batch.rename_columns([ends.get(name, name) for name in batch.schema.names])
            typed = type_batch(readable, named, lines, rejected, catalog=catalog)
            rejected += [*ends_without_type(typed), *self._without_text(typed)]
            if rejected:
                context = TaskContext.get()
                part = f"partition {context.partitionId()}, row" if context else "row"
                raise first_in_stage_order(rejected, {type_.type_key: type_}).error(part)
            admitted, refused = admitted_blobs(
                type_, typed.rows, DENY_EXTERNAL_BLOBS, keeps_references=self.mode is LoadMode.OVERWRITE
            )
            if refused:
                row, (name, reason) = min(refused.items())
                entity_id, line = typed.rows.column("id")[row].as_py(), typed.lines[row].as_py()
                raise ConstraintError(ConstraintRule.BLOB, type_.type_key, name, entity_id, line, message=reason)
            seen += batch.num_rows
            parts.append(fill_vectors(self.embed, type_, admitted))
            if sum(part.num_rows for part in parts) >= _FLUSH_ROWS:
                fragments += self._flush(type_, parts)
                parts = []
        if any(part.num_rows for part in parts):
            fragments += self._flush(type_, parts)
        return WrittenRows(tuple(fragments), self.schema_digest)

    def _without_text(self, typed: TypedRows) -> Iterator[RejectedRow]:
        for step in self.embed:
            for row in np.flatnonzero(step.without_text(typed.rows)).tolist():
                line, entity_id = typed.lines[row].as_py(), typed.rows.column("id")[row].as_py()
                problem = (step.property, step.reason or "", Stage.VALUES, ConstraintRule.REQUIRED)
                yield RejectedRow(line, self.type_key, *problem, entity_id)

    def _flush(self, type_: TableType, parts: list[pa.Table]) -> list[str]:
        from omnigraph.storage.tables.fragments import write_new_fragments

        rows = as_table_rows(type_, pa.concat_tables(parts))
        return write_new_fragments(self.table, rows, table_schema(type_), replaces=self.mode is LoadMode.OVERWRITE)

    def publish(
        self, messages: Sequence[WriterCommitMessage | None], key: str | None, *, unless: Callable[[WriteTxn], bool]
    ) -> PublishedCommit | None:
        """One commit for everything the tasks wrote, or none when `unless` finds that it was made before."""
        written = [message for message in messages if isinstance(message, WrittenRows) and not message.is_empty]
        if not written and self.mode is not LoadMode.OVERWRITE:
            return None
        if self.mode is LoadMode.UPDATE:
            return self._publish_update(written, key, unless)
        with self.graph.open() as workspace:
            intent = Intent(kind="pipeline", actor=self.actor, message="DataFrame write", idempotency_key=key)
            fragments = [text for message in written for text in message.fragments]
            type_ = table_types(Catalog.from_json(self.catalog))[self.type_key]
            commit = FrameCommit(type_, self.mode, fragments)

            def prepare(txn: WriteTxn) -> PublishPlan | None:
                if unless(txn):
                    return None
                if any(message.schema != txn.base.schema for message in written):
                    raise ConflictError(
                        "the schema changed while the frame was written; nothing was written, write it again"
                    )
                return commit.prepare(txn)

            return workspace.commit(self.branch, prepare, intent, strict=self.mode is LoadMode.OVERWRITE)

    def _publish_update(
        self, written: Sequence[WrittenRows], key: str | None, unless: Callable[[WriteTxn], bool]
    ) -> PublishedCommit | None:
        """The rows of all tasks as one load, which finds what they change. Two repeats of it make one commit."""
        type_ = table_types(Catalog.from_json(self.catalog))[self.type_key]
        rows = RowInput(type_.name, "row", lambda _: _number_rows(message.rows for message in written))
        with self.graph.open() as opened:
            client = client_of(self.embed[0]) if self.embed else None
            workspace = opened if client is None else replace(opened, embedder=client)
            if unless(workspace.begin(self.branch, Intent(kind="pipeline", actor=self.actor))):
                return None
            request = LoadRequest(rows, self.mode, self.branch, actor=self.actor, idempotency_key=key)
            return publish_load(workspace, request)


def _pack(batches: Iterator[pa.RecordBatch]) -> bytes:
    """The rows of one task as an Arrow stream; nothing for no rows."""
    sink, writer = BytesIO(), None
    for batch in batches:
        if batch.num_rows:
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return sink.getvalue()


def _number_rows(streams: Iterable[bytes]) -> Iterator[Block]:
    first = 1
    for stream in streams:
        for batch in pa.ipc.open_stream(stream):
            yield Block(pa.array(np.arange(first, first + batch.num_rows)), batch)
            first += batch.num_rows


class TypeWriter(DataSourceArrowWriter):
    """A batch write: one commit. Without a sink, when the branch remembers the run key, no row is read or written."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with note_error_fields():
            return WriterCommitMessage() if self._sink is None else self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._sink is not None:
            with note_error_fields():
                self._sink.publish(messages, self._sink.run_key, unless=lambda _: False)


# Spark names the query to the tasks of a stream, but not to the committing process.
_QUERY_PROPERTY: Final = "sql.streaming.queryId"


class TypeStreamWriter(DataSourceStreamArrowWriter):
    """`stream` names the stream instead of the query id, for callers that keep track of batches themselves."""

    def __init__(self, sink: Sink, stream: str | None) -> None:
        self._sink = sink
        self._stream = stream

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_PROPERTY) if context else None
        with note_error_fields():
            return replace(self._sink.write(iterator), stream=self._stream or query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        streams = {m.stream for m in messages if isinstance(m, WrittenRows) and not m.is_empty}
        if not streams:
            return
        stream = streams.pop()
        if stream is None:
            raise BadRequestError("Spark named no query for this stream; give it a name with the option runKey")
        prefix = f"stream:{stream}:"

        def is_committed(txn: WriteTxn) -> bool:
            last = last_number(txn, prefix)
            return last is not None and last >= batchId

        with note_error_fields():
            self._sink.publish(messages, f"{prefix}{batchId}", unless=is_committed)
