"""Table versions as Spark DataFrames: one task per group of fragments, only the columns asked for.

Used by the constraint joins, `to_spark`, views and exports. The version is fixed when the frame is made; executors open
that version and nothing newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.bulk.executor import PLACE, VisibleTable
from omnigraph.engine.bulk.scan_plans import PinnedTable, all_of
from omnigraph.engine.rows.end_ids import PLAIN, IdForm, plain_ids, type_names
from omnigraph.language.catalog import EdgeEnd
from omnigraph.pipeline.spark.tasks import on_executors, spark_schema, to_transport, transport_schema
from omnigraph.storage.tables.memory.key_hashes import Hashes, among, key_hashes, with_whole_key

# A task should have enough to do to be worth its start, and there should be enough tasks for a cluster.
_ROWS_PER_TASK: Final = 1 << 20
_SAMPLE_ROWS: Final = 1 << 10
_TYPICAL_BYTES: Final = 64.0
_ROWS_PER_CHUNK: Final = 1 << 18
_BYTES_PER_CHUNK: Final = 64 << 20  # offsets of Arrow texts, and of cells, end at two gigabytes


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Rows whose key has one of these hashes: every row that is meant, and hardly any other."""

    columns: tuple[str, ...]
    hashes: Hashes

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = with_whole_key(batch, self.columns)
        return batch.filter(pa.array(among(key_hashes([batch.column(c) for c in self.columns]), self.hashes)))


@dataclass(frozen=True, slots=True)
class TableScan:
    """Which rows and columns of which version. `names` renames columns; `places` adds the address of each row. `among`
    is applied after `filter`, to columns of the scan. `id_form` is how an end of edges holds the ids of these nodes:
    they are read in that form. `ends` are those whose ids are read without tags; `src_type` and `dst_type` may be among
    the columns then."""

    table: PinnedTable
    columns: tuple[str, ...]
    names: Mapping[str, str]
    filter: str | None = None
    places: bool = False
    among: KeyFilter | None = None
    visible: VisibleTable | None = None
    id_form: IdForm = PLAIN
    ends: tuple[EdgeEnd, ...] = ()

    @property
    def result_schema(self) -> pa.Schema:
        masked = frozenset() if self.visible is None else self.visible.masked
        types = {f"{end.column}_type" for end in self.ends}
        stored = [pa.field(c, pa.string()) if c in types else self.table.schema.field(c) for c in self.columns]
        nullable = [field.with_nullable(field.nullable or field.name in masked) for field in stored]
        fields = [field.with_name(self.names.get(field.name, field.name)) for field in nullable]
        return pa.schema([*fields, *([pa.field(PLACE, pa.int64())] if self.places else [])])

    @property
    def transport_schema(self) -> pa.Schema:
        """The schema of the batches that `read` gives."""
        return transport_schema(self.result_schema)

    def groups(self, rows_per_task: int = _ROWS_PER_TASK) -> list[tuple[int, ...]]:
        """Fragments by task, in order."""
        return self.table.groups(rows_per_task)

    def bytes_per_row(self) -> float:
        """About how many bytes a row takes in memory, estimated from the first rows."""
        first = next(self.read(self.table.fragment_ids[:1], limit=_SAMPLE_ROWS), None)
        return first.nbytes / first.num_rows if first is not None and first.num_rows else _TYPICAL_BYTES

    def read(
        self, fragment_ids: Sequence[int], *, limit: int | None = None, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        if not fragment_ids:
            return
        from omnigraph.storage.tables.fragments import scan_fragments

        ends = {f"{end.column}_type": end.column for end in self.ends}
        columns = dict.fromkeys(ends.get(column, column) for column in self.columns)
        stored = [c for c in columns if self.visible is None or c not in self.visible.masked]
        blobs = any(isinstance(self.table.schema.field(c).type, pa.ExtensionType) for c in stored)
        batches = scan_fragments(
            self.table.remote,
            fragment_ids,
            stored,
            filter=all_of([text for text in (self.filter, self.visible and self.visible.filter) if text]) or None,
            limit=limit,
            batch_rows=batch_rows,
            addresses=PLACE if self.places or self.visible is not None else None,
            blobs_as_bytes=blobs,
        )
        names = list(self.result_schema.names)
        for batch in batches:
            visible = self._with_ids(batch if self.visible is None else self._with_masked(self.visible.of(batch)))
            ordered = visible.select([*self.columns, *([PLACE] if self.places else [])])
            rows = to_transport(ordered.rename_columns(names))
            yield rows if self.among is None else self.among.of(rows)

    def _with_ids(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Ids of nodes in the form that an end holds, and ends as users know them."""
        if self.id_form != PLAIN:
            batch = _with_column(batch, "id", self.id_form.store(batch.column("id")))
        for end in self.ends:
            if end.column in batch.schema.names:
                tagged = batch.column(end.column)
                batch = batch.append_column(f"{end.column}_type", type_names(end, tagged))
                batch = _with_column(batch, end.column, plain_ids(end, tagged))
        return batch

    def _with_masked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Masked columns are not even read; they are null."""
        masked = frozenset() if self.visible is None else self.visible.masked
        for column in self.columns:
            if column in masked and column not in batch.schema.names:
                type_ = self.table.schema.field(column).type
                plain = pa.large_binary() if isinstance(type_, pa.ExtensionType) else type_
                batch = batch.append_column(column, pa.nulls(batch.num_rows, plain))
        return batch


def _with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    return batch.set_column(index, batch.schema.field(index), values)


def in_chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in fewer pieces, large enough for work on whole columns."""
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        parts.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_PER_CHUNK or size >= _BYTES_PER_CHUNK:
            yield pa.Table.from_batches(parts).combine_chunks()
            parts, rows, size = [], 0, 0
    if parts:
        yield pa.Table.from_batches(parts).combine_chunks()


def scan_frame(spark: SparkSession, scan: TableScan) -> DataFrame:
    schema = spark_schema(scan.result_schema)
    groups = scan.groups()
    if not groups:
        return spark.createDataFrame([], schema)
    return on_executors(spark, len(groups), lambda number: scan.read(groups[number]), schema)
