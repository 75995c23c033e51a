"""The partial rows of an update on executors: filled from the stored rows of the captured head, and written whole.

A run calls it after the ingest, which sends partial rows to buckets of ids. A bucket also learns where the stored rows
with its ids are. Rows that name no entity are rejected, and rows that would change nothing are only counted; the others
are written as fragments, which then replace stored rows as those of a merge do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.bulk.executor import PLACE, EntityRecords, RemoteTable
from omnigraph.engine.rows.columns import fillable, rows_schema
from omnigraph.engine.rows.end_ids import interface_ends, plain_ids, type_names, with_plain_ends
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, Stage, TypedRows
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import ConstraintRule
from omnigraph.language.catalog import TableType
from omnigraph.language.violations import Sentence, members_name, the_property, value_text
from omnigraph.pipeline.checks.candidate_keys import Lane, SentRows, exchange
from omnigraph.pipeline.execution.embedding import EmbedTask, fill_vectors
from omnigraph.pipeline.execution.ingest import (
    CELL,
    FRAGMENT,
    OUTCOME_SCHEMA,
    PRESENT,
    REJECTED,
    ROW_COLUMN,
    packed_positions,
)
from omnigraph.pipeline.execution.rejected_records import loose_record
from omnigraph.pipeline.spark.table_frames import TableScan
from omnigraph.storage.integer_sets import distinct

if TYPE_CHECKING:
    from omnigraph.engine.bulk.scan_plans import PinnedTable
    from omnigraph.engine.rows.stored_rows import FilledRows
    from omnigraph.storage.tables import Table

FILLED: Final = "filled"
"""The kind of an outcome that counts a bucket: unchanged rows, rejected ones, and in `first` superseded ones."""

_ORDER: Final = "#order"
_STORED: Final = "stored"
_IDS_PER_BUCKET: Final = 1 << 17
_MOST_BUCKETS: Final = 1 << 12
_BLOB_BYTES: Final = 64 << 20


def bucket_counts(txn: WriteTxn) -> dict[str, int]:
    """By type key, how many buckets the ids of a type go to. There are no more ids to be found than stored ones."""
    tables = txn.base.tables.items()
    return {key: min(_MOST_BUCKETS, 1 + state.rows // _IDS_PER_BUCKET) for key, state in tables}


@dataclass(frozen=True, slots=True)
class FillTask:
    """What executors need to fill the partial rows of one type; `__call__` gets the rows of one bucket."""

    type: TableType
    stored: EntityRecords
    table: RemoteTable
    keeps_last: bool
    most_rejected: int
    embed: tuple[EmbedTask, ...] = ()

    @property
    def readable(self) -> TableType:
        """The type as the kernels read it: vectors that will be computed can be left out."""
        return fillable(self.type, lambda prop: any(step.target == prop.column for step in self.embed))

    @property
    def cell_schema(self) -> pa.Schema:
        fields = list(rows_schema(self.readable))
        present = [pa.field(f"{PRESENT}{each.name}", pa.bool_()) for each in fields[1:]]
        return pa.schema([*fields, *present, pa.field(ROW_COLUMN, pa.int64())])

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        orders = [name for name in rows if name != _STORED]
        parts = [rows[name].append_column(_ORDER, pa.array(np.full(rows[name].num_rows, int(name)))) for name in orders]
        partial_rows = pa.concat_tables(parts).sort_by([(_ORDER, "ascending"), (ROW_COLUMN, "ascending")])
        if partial_rows.num_rows:
            yield pa.RecordBatch.from_pylist(_Bucket(self, partial_rows, rows[_STORED]).fill(), schema=OUTCOME_SCHEMA)


@dataclass
class _Bucket:
    """The rows of one bucket in input order, and where the stored rows with their ids are."""

    task: FillTask
    rows: pa.Table
    places: pa.Table
    _outcomes: list[dict[str, Any]] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def fill(self) -> list[dict[str, Any]]:
        from omnigraph.engine.rows.stored_rows import fill_partial, unknown_entity
        from omnigraph.storage.tables import TableReader

        task = self.task
        table = TableReader(task.stored.location).open(task.stored.state)
        targets = {step.target for step in task.embed}
        typed = self._distinct(self._typed_rows())
        filled = fill_partial(partial(self._read, table), typed, lambda prop: prop.column in targets, whole=True)
        self._reject([unknown_entity(filled.unknown, row) for row in range(len(filled.unknown))])
        self._reject(filled.broken)
        steps = [step for step in task.embed if step.target in filled.written]
        filled = self._with_texts(steps, filled.without(row.line for row in filled.broken))
        rows = fill_vectors(steps, task.type, filled.typed.rows)
        same = filled.equal_mask(table, rows)
        self._counts["unchanged"] = int(same.sum())
        changed = pa.array(~same)
        self._write(table, filled.filter(changed), rows.filter(changed))
        counts = {"first": self._counts["superseded"], "rows": self._counts["unchanged"]}
        rejected = self._counts["rejected"]
        self._outcomes.append({"kind": FILLED, "type": task.type.type_key, "rejected": rejected, **counts})
        return self._outcomes

    def _typed_rows(self) -> TypedRows:
        """The partial rows; their lines are their numbers here."""
        names = rows_schema(self.task.readable).names
        present = self.rows.select([f"{PRESENT}{name}" for name in names[1:]]).rename_columns(names[1:])
        lines = pa.array(np.arange(self.rows.num_rows))
        return TypedRows(self.task.readable, self.rows.select(names), lines, present)

    def _distinct(self, typed: TypedRows) -> TypedRows:
        """One row per id: joined, or the first one, where the others are rejected."""
        from omnigraph.engine.rows.stored_rows import join_repeated

        if self.task.keeps_last:
            joined = join_repeated(typed, keys=True)
            self._counts["superseded"] = len(typed) - len(joined)
            return joined
        codes = typed.rows.column("id").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        first = np.full(int(codes.max()) + 1, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        later = np.flatnonzero(first[codes] != np.arange(len(codes))).tolist()
        self._reject([self._repeat(typed, row, int(first[codes[row]])) for row in later])
        return typed.without(later)

    def _repeat(self, typed: TypedRows, row: int, first: int) -> RejectedRow:
        """The rejection of a row whose id an earlier one has."""
        type_, ids = self.task.type, typed.rows.column("id")
        entity_id, members = ids[row].as_py(), type_.key
        if members:
            shown = with_plain_ends(type_, typed.rows.slice(row, 1))
            cells = [(scalar, shown.column(column)[0].as_py()) for column, scalar in type_.key_columns]
            value = members_name([value_text(scalar, cell) for scalar, cell in cells])
            names = {"type": type_.name, "property": members_name(members), "value": value}
            sentence = Sentence.SHARED_KEY
            reason = sentence.text(**names, holder=ids[first].as_py(), entity_id=entity_id)
            return RejectedRow(row, type_.type_key, the_property(members), reason, Stage.KEYS, sentence.rule, entity_id)
        sentence = Sentence.REPEATED_ID
        reason = sentence.text(type_key=type_.type_key, entity_id=entity_id)
        return RejectedRow(row, type_.type_key, "id", reason, Stage.KEYS, sentence.rule, entity_id)

    def _read(self, table: Table, ids: pa.Array, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The stored rows, which the driver's head has at these places."""
        from omnigraph.engine.rows.stored_rows import rows_at

        wanted = self.places.filter(pc.is_in(self.places.column("id"), value_set=ids))
        if wanted.num_rows:
            yield rows_at(table, wanted.column(PLACE).to_numpy(), list(dict.fromkeys(["id", *columns])))

    def _with_texts(self, steps: Sequence[EmbedTask], filled: FilledRows) -> FilledRows:
        """Without rows that have neither a vector nor a text, where the schema wants a vector."""
        for step in steps:
            lacking = np.flatnonzero(step.without_text(filled.typed.rows)).tolist()
            lines = [filled.typed.lines[row].as_py() for row in lacking]
            ids = [filled.typed.rows.column("id")[row].as_py() for row in lacking]
            problem = (step.property, step.reason or "", Stage.VALUES, ConstraintRule.REQUIRED)
            self._reject(
                [RejectedRow(n, self.task.type.type_key, *problem, each) for n, each in zip(lines, ids, strict=True)]
            )
            filled = filled.without(lines)
        return filled

    def _write(self, table: Table, filled: FilledRows, rows: pa.Table) -> None:
        """Whole rows as fragments, those of one input together. Blobs that stay are copied."""
        from omnigraph.engine.rows.columns import as_table_rows, table_schema
        from omnigraph.storage.tables.fragments import write_new_fragments

        type_, lines = self.task.type, filled.typed.lines.to_numpy()
        orders = self.rows.column(_ORDER).to_numpy()[lines]
        numbers = self.rows.column(ROW_COLUMN).to_numpy()[lines]
        for order in distinct(orders).tolist():
            for here in _parts_by_blobs(filled, np.flatnonzero(orders == order)):
                part = _with_kept_blobs(table, filled.take(here), rows.take(pa.array(here)))
                left = numbers[here]
                for text in write_new_fragments(
                    self.task.table, as_table_rows(type_, part), table_schema(type_), replaces=False
                ):
                    written, left = np.split(left, [int(json.loads(text)["physical_rows"])])
                    described = {"first": int(written[0]), "rows": len(written), "fragment": text, "order": int(order)}
                    positions = packed_positions(written)
                    self._outcomes.append(
                        {"kind": FRAGMENT, "type": type_.type_key, "positions": positions, **described}
                    )

    def _reject(self, rejected: Sequence[RejectedRow]) -> None:
        for row in rejected:
            self._counts["rejected"] += 1
            if self._counts["rejected"] > self.task.most_rejected:
                continue
            problem = {"property": row.property, "reason": row.reason, "rule": row.rule.value}
            self._outcomes.append(
                {
                    "kind": REJECTED,
                    "type": row.type_key,
                    "row": self.rows.column(ROW_COLUMN)[row.line].as_py(),
                    "order": self.rows.column(_ORDER)[row.line].as_py(),
                    "id": row.entity_id,
                    "problems": json.dumps([problem]),
                    "record": self._record(row.line),
                }
            )

    def _record(self, line: int) -> str:
        """A partial row as a graph record again."""
        type_, columns = self.task.type, dict[str, pa.Array]()
        for name in rows_schema(type_).names:
            if name != "id" and self.rows.column(f"{PRESENT}{name}")[line].as_py():
                columns[name] = self.rows.column(name).slice(line, 1).combine_chunks()
        named = {prop.column: prop.name for prop in type_.property_list} | {"src": "from", "dst": "to"}
        record = {named[name]: cell for name, cell in columns.items()}
        for end in (each for each in interface_ends(type_) if each.column in columns):
            stored = columns[end.column]
            record |= {end.name: plain_ids(end, stored), f"{end.name}_type": type_names(end, stored)}
        record[type_.system_name("id")] = self.rows.column("id").slice(line, 1).combine_chunks()
        return loose_record(type_, pa.record_batch(record), 0)


def _parts_by_blobs(filled: FilledRows, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The rows in parts whose stored blobs can be held together."""
    from omnigraph.storage.tables.blobs import BlobDescriptors

    sizes = np.zeros(len(rows), np.int64)
    for column in filled.kept_blobs():
        sizes += BlobDescriptors.of(filled.stored.column(column)).size.astype(np.int64)[rows]
    shares = np.cumsum(sizes) // _BLOB_BYTES
    yield from np.split(rows, np.flatnonzero(np.diff(shares)) + 1)


def _with_kept_blobs(table: Table, filled: FilledRows, rows: pa.Table) -> pa.Table:
    """The rows with the blobs that their records leave out."""
    from omnigraph.engine.rows.type_state import blob_cells
    from omnigraph.storage.tables.rows import row_ids_of

    row_ids = row_ids_of(filled.stored)
    for column, kept in filled.kept_blobs().items():
        stored = blob_cells(table, column, row_ids, filled.stored.column(column))
        numbers = np.arange(rows.num_rows)
        cells = pa.concat_arrays([rows.column(column).combine_chunks(), stored])
        index = rows.column_names.index(column)
        chosen = cells.take(pa.array(np.where(kept, numbers + rows.num_rows, numbers)))
        rows = rows.set_column(index, rows.schema.field(index), chosen)
    return rows


def filled_outcomes(
    spark: SparkSession, stored: PinnedTable, task: FillTask, cells: Mapping[int, DataFrame], buckets: int
) -> DataFrame:
    """The outcomes of filling the partial rows of one type. `cells` are the outcomes of the ingest, by the order of
    their inputs."""
    scan = TableScan(stored, ("id",), {}, places=True)
    frames = {
        str(order): outcomes.where((F.col("kind") == CELL) & (F.col("type") == task.type.type_key)).select(
            F.col("first").cast("int").alias("bucket"), F.col("positions").alias("rows")
        )
        for order, outcomes in cells.items()
    }
    sent = SentRows(frames, task.cell_schema, buckets)
    return exchange(spark, [Lane(_STORED, scan, ("id",))], task, OUTCOME_SCHEMA, sent)
