"""The work of an executor on one partition of a source: type the rows, write fragments, report both.

`run` starts it inside `mapInArrow`, so it imports the engine only after the fork and gets everything as one
picklable `IngestTask`. It returns metadata: a row per fragment it wrote, a row per rejected input row, and one tally.
Accepted rows never travel back, and no version names the written files yet.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.errors import ConstraintRule
from omnigraph.language.violations import Sentence

if TYPE_CHECKING:
    from omnigraph.engine.bulk.executor import RemoteTable
    from omnigraph.engine.rows.kernels.ids import Mint
    from omnigraph.engine.rows.kernels.typed_rows import RecordForm, RejectedRow, TypedRows
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
    from omnigraph.language.catalog import Catalog
    from omnigraph.pipeline.execution.embedding import EmbedTask

ROW_COLUMN: Final = "#row"
"""The number of a row in its source: the Spark partition in the upper bits, its position there in the lower 33."""

PARTITION_BITS: Final = 33

CORRUPT_COLUMN: Final = "#corrupt"
"""The text of a record that has no columns; `FLAW_COLUMN` says why, where the reader knows."""

FLAW_COLUMN: Final = "#flaw"
TEXT_COLUMN: Final = "#text"
INTERNAL_COLUMNS: Final = (ROW_COLUMN, CORRUPT_COLUMN, FLAW_COLUMN)

FRAGMENT, REJECTED, TALLY, CELL = "fragment", "rejected", "tally", "cell"
"""What an outcome reports. A `cell` holds partial rows for a bucket of ids, to be filled by `updates`."""

PRESENT: Final = "#present:"
"""Before the name of a column: whether a partial row has it."""

OUTCOME_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("type", pa.string()),
        ("first", pa.int64()),
        ("rows", pa.int64()),
        ("rejected", pa.int64()),
        ("fragment", pa.string()),
        ("positions", pa.binary()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("problems", pa.string()),
        ("record", pa.string()),
        ("order", pa.int64()),
    ]
)

_FLUSH_ROWS: Final = 1 << 20
_FLUSH_BYTES: Final = 192 << 20

Numbers: TypeAlias = NDArray[np.int64]
RecordOf: TypeAlias = Callable[[int], str]
"""The whole record behind a row number, made only for rows that are rejected."""

Problem: TypeAlias = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class IngestTask:
    """The ingest of one source. `type_key` is None for graph records, which name their types themselves, and for a
    source that only queries read: of it, only records without columns arrive, to be rejected. Ids that the graph
    generates depend on `seed` and the row alone, so a task that runs twice makes the same ones. `most_rejected` limits
    how many rejected rows one task keeps; the tally counts them all."""

    catalog: bytes
    tables: Mapping[str, RemoteTable]
    seed: str
    millis: int
    type_key: str | None = None
    replaces: bool = False
    most_rejected: int = 1_000
    stop_beyond: int | None = None
    external_blobs: ExternalBlobPolicy | None = None
    embed: Mapping[str, tuple[EmbedTask, ...]] = field(default_factory=dict)
    buckets: Mapping[str, int] | None = None
    """Of an update: by type key, the buckets that its partial rows go to, to be filled from the stored ones."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _Ingest(self).run(batches)


class TooManyRejectedError(Exception):
    """Raised inside an executor; the driver makes a `ConstraintError` of it. The message is the row at which the task
    stopped, as one line of JSON: it survives the way through Spark."""


class _Ingest:
    def __init__(self, task: IngestTask) -> None:
        from omnigraph.engine.maintenance.declared_indexes import table_types
        from omnigraph.engine.rows.columns import fillable_catalog
        from omnigraph.language.catalog import Catalog

        self._task = task
        declared = Catalog.from_json(task.catalog)
        self._types = table_types(declared)
        # Rows are read as if what will be embedded could be left out.
        self._readable: Catalog = fillable_catalog(
            declared, lambda node, prop: any(each.target == prop.column for each in task.embed.get(node.type_key, ()))
        )
        self._readable_types = table_types(self._readable)
        self._buffers: dict[str, _Buffer] = {}
        self._outcomes: list[dict[str, Any]] = []
        self._accepted: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            typed = self._graph_records(batch) if TEXT_COLUMN in batch.schema.names else self._type_rows(batch)
            for key, rows, numbers, record_of in typed:
                self._take(key, rows, numbers, record_of)
            yield from self._drain()
        for key in list(self._buffers):
            self._flush(key)
        for key in sorted({*self._accepted, *self._rejected}):
            counts = {"rows": self._accepted[key], "rejected": self._rejected[key]}
            self._outcomes.append({"kind": TALLY, "type": key, **counts})
        yield from self._drain()

    def _drain(self) -> Iterator[pa.RecordBatch]:
        if self._outcomes:
            yield pa.RecordBatch.from_pylist(self._outcomes, schema=OUTCOME_SCHEMA)
            self._outcomes = []

    def _type_rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table, Numbers, RecordOf]]:
        from omnigraph.engine.rows.kernels.records import type_batch
        from omnigraph.engine.rows.kernels.typed_rows import ends_without_type
        from omnigraph.pipeline.execution.rejected_records import loose_record

        batch = self._without_corrupt(self._task.type_key or "", batch)
        if not batch.num_rows:
            return
        type_ = self._readable_types[self._task.type_key or ""]
        numbers = _numbers(batch)
        loose = batch.drop_columns([ROW_COLUMN])
        rejected: list[RejectedRow] = []
        typed = type_batch(
            type_,
            loose,
            pa.array(numbers),
            rejected,
            catalog=self._readable,
            mint=self._mint(numbers),
            form=self._form,
        )

        def record_of(number: int) -> str:
            return loose_record(type_, loose, int(np.flatnonzero(numbers == number)[0]))

        rejected += (unclear := ends_without_type(typed))
        typed = typed.without(row.line for row in unclear)
        self._reject(rejected, record_of)
        yield type_.type_key, _with_presence(typed), typed.lines.to_numpy(zero_copy_only=False), record_of

    @property
    def _form(self) -> RecordForm:
        from omnigraph.engine.rows.kernels.typed_rows import RecordForm

        return RecordForm.WHOLE if self._task.buckets is None else RecordForm.PARTIAL

    def _without_corrupt(self, type_key: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that the file reader could not split into columns are rejected as a whole."""
        names = batch.schema.names
        rest = batch.drop_columns([name for name in (CORRUPT_COLUMN, FLAW_COLUMN) if name in names])
        if CORRUPT_COLUMN not in names or (corrupt := batch.column(CORRUPT_COLUMN)).null_count == len(corrupt):
            return rest
        numbers = _numbers(batch).tolist()
        texts: dict[int, str] = dict(zip(numbers, corrupt.to_pylist(), strict=True))
        for row in np.flatnonzero(corrupt.is_valid().to_numpy(zero_copy_only=False)).tolist():
            reason = batch.column(FLAW_COLUMN)[row].as_py() if FLAW_COLUMN in names else MALFORMED_RECORD
            problem = _problem(None, reason, ConstraintRule.RECORD)
            self._reject_row(type_key, numbers[row], None, [problem], texts.__getitem__)
        return rest.filter(corrupt.is_null())

    def _graph_records(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table, Numbers, RecordOf]]:
        from omnigraph.engine.rows.kernels.decoder import decode_collecting
        from omnigraph.engine.rows.kernels.ndjson import record_of as unwrapped
        from omnigraph.engine.rows.kernels.typed_rows import ends_without_type

        numbers = _numbers(batch)
        texts = [unwrapped(text) for text in batch.column(TEXT_COLUMN).to_pylist()]
        decoded = decode_collecting(b"\n".join(texts), self._readable, mint=self._mint(numbers), form=self._form)

        def record_of(number: int) -> str:
            return texts[int(np.flatnonzero(numbers == number)[0])].decode(errors="backslashreplace")

        unclear = {key: ends_without_type(typed) for key, typed in decoded.by_type.items()}
        rejected = [*decoded.rejected, *(row for rows in unclear.values() for row in rows)]
        self._reject([replace(row, line=int(numbers[row.line - 1])) for row in rejected], record_of)
        for key, typed in decoded.by_type.items():
            typed = typed.without(row.line for row in unclear[key])
            if len(typed):
                lines = typed.lines.to_numpy(zero_copy_only=False)
                yield key, _with_presence(typed), numbers[lines - 1], record_of

    def _mint(self, numbers: Numbers) -> Mint:
        """Ids for entities that have none: fresh to the graph, and the same whenever this batch is read again."""
        from omnigraph.engine.rows.kernels.ids import seeded_ulids

        return seeded_ulids(f"{self._task.seed}\n{numbers[0] if len(numbers) else 0}", self._task.millis)

    def _reject(self, rejected: list[RejectedRow], record_of: RecordOf) -> None:
        by_row: dict[int, list[RejectedRow]] = {}
        for row in rejected:
            by_row.setdefault(row.line, []).append(row)
        for number, rows in sorted(by_row.items()):
            problems = [_problem(row.property, row.reason, row.rule) for row in rows]
            self._reject_row(rows[0].type_key or "", number, rows[0].entity_id, problems, record_of)

    def _reject_row(
        self, type_key: str, number: int, entity_id: str | None, problems: list[Problem], record_of: RecordOf
    ) -> None:
        """Report a rejected row: once, with all of its violations and the whole record."""
        self._rejected[type_key] += 1
        total = self._rejected.total()
        described = {"type": type_key, "row": number, "id": entity_id}
        if self._task.stop_beyond is not None and total > self._task.stop_beyond:
            raise TooManyRejectedError(json.dumps({**described, "problems": problems}))
        if total <= self._task.most_rejected:
            record = {"problems": json.dumps(problems), "record": record_of(number)}
            self._outcomes.append({"kind": REJECTED, **described, **record})

    def _without(
        self, key: str, rows: pa.Table, numbers: Numbers, problems: Mapping[int, Problem], record_of: RecordOf
    ) -> tuple[pa.Table, Numbers]:
        """Reject the rows that have a problem, and return the others."""
        if not problems:
            return rows, numbers
        for row, problem in problems.items():
            self._reject_row(key, int(numbers[row]), rows.column("id")[row].as_py(), [problem], record_of)
        keep = np.ones(rows.num_rows, np.bool_)
        keep[list(problems)] = False
        return rows.filter(pa.array(keep)), numbers[keep]

    def _take(self, key: str, rows: pa.Table, numbers: Numbers, record_of: RecordOf) -> None:
        """Keep rows to be written, but for those without a blob that the policy admits, or without a text to embed."""
        is_partial = self._task.buckets is not None
        type_, steps = self._types[key], () if is_partial else self._task.embed.get(key, ())
        if any(prop.type.is_blob for prop in type_.property_list):
            from omnigraph.engine.bulk.executor import admitted_blobs
            from omnigraph.engine.write.external_blobs import DENY_EXTERNAL_BLOBS

            policy = self._task.external_blobs or DENY_EXTERNAL_BLOBS
            rows, refused = admitted_blobs(type_, rows, policy, keeps_references=self._task.replaces)
            problems = {row: _problem(*refused[row], ConstraintRule.BLOB) for row in sorted(refused)}
            rows, numbers = self._without(key, rows, numbers, problems, record_of)
        if steps and rows.num_rows:
            from omnigraph.pipeline.execution.embedding import fill_vectors

            problems = {}
            for step in steps:
                for row in np.flatnonzero(step.without_text(rows)).tolist():
                    problems.setdefault(row, _problem(step.property, step.reason or "", ConstraintRule.REQUIRED))
            rows, numbers = self._without(key, rows, numbers, problems, record_of)
            rows = fill_vectors(steps, type_, rows)
        self._accepted[key] += rows.num_rows
        if not rows.num_rows:
            return
        buffer = self._buffers.setdefault(key, _Buffer())
        buffer.parts.append(rows)
        buffer.numbers.append(numbers)
        buffer.rows += rows.num_rows
        buffer.size += rows.nbytes
        if buffer.rows >= _FLUSH_ROWS:
            self._flush(key)
        elif sum(b.size for b in self._buffers.values()) > _FLUSH_BYTES:
            self._flush(max(self._buffers, key=lambda k: self._buffers[k].size))

    def _flush(self, key: str) -> None:
        from omnigraph.engine.rows.columns import as_table_rows, table_schema
        from omnigraph.storage.tables.fragments import write_new_fragments

        buffer, type_ = self._buffers.pop(key), self._types[key]
        if self._task.buckets is not None:
            self._send(key, buffer, self._task.buckets[key])
            return
        rows = as_table_rows(type_, pa.concat_tables(buffer.parts))
        numbers = np.concatenate(buffer.numbers)
        table, replaces = self._task.tables[key], self._task.replaces
        for text in write_new_fragments(table, rows, table_schema(type_), replaces=replaces):
            here, numbers = np.split(numbers, [int(json.loads(text)["physical_rows"])])
            written = {"first": int(here[0]), "rows": len(here), "fragment": text, "positions": packed_positions(here)}
            self._outcomes.append({"kind": FRAGMENT, "type": key, **written})

    def _send(self, key: str, buffer: _Buffer, buckets: int) -> None:
        """Partial rows as cells for buckets of ids."""
        from omnigraph.pipeline.checks.candidate_keys import cells_of

        rows = pa.concat_tables(buffer.parts).append_column(ROW_COLUMN, pa.array(np.concatenate(buffer.numbers)))
        (batch,) = rows.combine_chunks().to_batches()
        for bucket, cell in cells_of(batch, ["id"], buckets):
            self._outcomes.append({"kind": CELL, "type": key, "first": bucket, "positions": cell.to_pybytes()})


def _with_presence(typed: TypedRows) -> pa.Table:
    """Rows beside what partial ones have."""
    rows = typed.rows
    if typed.present is not None:
        for name in typed.present.column_names:
            rows = rows.append_column(f"{PRESENT}{name}", typed.present.column(name))
    return rows


MALFORMED_RECORD: Final = Sentence.MALFORMED_ROW.text(reason="it does not have the columns of its file")


def _problem(property: str | None, reason: str, rule: ConstraintRule) -> Problem:
    return {"property": property, "reason": reason, "rule": rule.value}


@dataclass
class _Buffer:
    parts: list[pa.Table] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    rows: int = 0
    size: int = 0


def _numbers(batch: pa.RecordBatch) -> Numbers:
    numbers: Numbers = batch.column(ROW_COLUMN).to_numpy(zero_copy_only=False)
    return numbers


def packed_positions(numbers: Numbers) -> bytes:
    """Row numbers of a fragment, in order, as the runs they mostly are: each by its first number and its length."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
    lengths = np.diff(starts, append=len(numbers))
    return zlib.compress(np.stack([numbers[starts], lengths]).astype("<i8").tobytes(), 1)


def unpacked_positions(packed: bytes) -> Numbers:
    firsts, lengths = np.frombuffer(zlib.decompress(packed), "<i8").reshape(2, -1)
    before = np.cumsum(lengths) - lengths
    return np.repeat(firsts - before, lengths) + np.arange(lengths.sum())
