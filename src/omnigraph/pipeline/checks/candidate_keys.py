"""Candidate keys: hashes of keys that may break a rule, found for all rules in one job, and the exchange behind it.

The rules call it. A key that is not a candidate breaks no rule, so most runs read no rows at all. An exchange moves
rows of many fragments into buckets by key, as Arrow batches packed into one cell per bucket: Spark moves a few large
cells where a join would move and sort every row. Hashes only choose the bucket; keys are compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.pipeline.spark.table_frames import TableScan, in_chunks
from omnigraph.pipeline.spark.tasks import map_batches, on_executors, spark_schema, union_of
from omnigraph.storage.tables.memory.key_hashes import Hashes, buckets_of, frequent_hashes, key_hashes, with_whole_key

# A bucket should fit into a processor's cache, and a task should have enough of them to be worth its start.
_ROWS_PER_BUCKET: Final = 64 << 10
_BUCKETS_PER_TASK: Final = 16
_MOST_BUCKETS: Final = 1 << 16
_CELLS: Final = pa.schema([("bucket", pa.int32()), ("lane", pa.int32()), ("rows", pa.binary())])
HASH: Final = "hash"
_HASHES: Final = pa.schema([(HASH, pa.uint64())])

Receive: TypeAlias = Callable[[Mapping[str, pa.Table]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that go to the buckets of their `key`, except those without a whole key. Of a `hashed` lane only the hashes
    of the keys arrive, in order."""

    name: str
    scan: TableScan
    key: tuple[str, ...]
    hashed: bool = False

    @property
    def schema(self) -> pa.Schema:
        return _HASHES if self.hashed else self.scan.transport_schema


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows that tasks have packed into cells for `buckets` buckets already: a frame per lane, with the columns of
    `CELL_COLUMNS`, and the schema of their rows."""

    frames: Mapping[str, DataFrame]
    schema: pa.Schema
    buckets: int


CELL_COLUMNS: Final = ("bucket", "rows")


def exchange(
    spark: SparkSession, lanes: Sequence[Lane], receive: Receive, schema: pa.Schema, also: SentRows | None = None
) -> DataFrame:
    """The rows that `receive` returns for each bucket. It gets a table per lane."""
    sendings = [(number, group) for number, lane in enumerate(lanes) for group in lane.scan.groups()]
    if not sendings and also is None:
        return spark.createDataFrame([], spark_schema(schema))
    buckets = bucket_count(lanes) if also is None else also.buckets
    tasks = math.ceil(buckets / _BUCKETS_PER_TASK)

    def send(number: int) -> Iterator[pa.RecordBatch]:
        lane, fragments = sendings[number]
        for rows in in_chunks(lanes[lane].scan.read(fragments)):
            yield _pack_cells(lanes[lane], rows, lane, buckets)

    schemas = [lane.schema for lane in lanes]
    names = [lane.name for lane in lanes]
    if also is not None:
        schemas += [also.schema] * len(also.frames)
        names += also.frames

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells: dict[int, list[list[pa.RecordBatch]]] = {}
        for batch in batches:
            numbers = (batch.column(name).to_pylist() for name in ("bucket", "lane"))
            for bucket, lane, cell in zip(*numbers, batch.column("rows"), strict=True):
                parts = cells.setdefault(bucket, [[] for _ in names])
                parts[lane].append(pa.ipc.read_record_batch(cell.as_buffer(), schemas[lane]))
        while cells:
            _, parts = cells.popitem()
            tables = [pa.Table.from_batches(*part).combine_chunks() for part in zip(parts, schemas, strict=True)]
            yield from receive(dict(zip(names, tables, strict=True)))

    sent = on_executors(spark, len(sendings), send, spark_schema(_CELLS))
    for lane, frame in enumerate([] if also is None else also.frames.values(), start=len(lanes)):
        sent = sent.unionByName(frame.select(*CELL_COLUMNS, F.lit(lane).alias("lane")))
    # A repartition by number is never split or rebalanced by the planner: a bucket is always whole.
    return map_batches(sent.repartitionById(tasks, F.col("bucket") % tasks), unpack, spark_schema(schema))


def bucket_count(lanes: Sequence[Lane]) -> int:
    rows = sum(lane.scan.table.rows for lane in lanes)
    return min(max(1, math.ceil(rows / _ROWS_PER_BUCKET)), _MOST_BUCKETS)


def cells_of(batch: pa.RecordBatch, key: Sequence[str], buckets: int) -> list[tuple[int, pa.Buffer]]:
    """Rows with a whole key as cells, each with its bucket."""
    chosen = buckets_of(key_hashes([batch.column(name) for name in key]), buckets)
    order = np.argsort(chosen, kind="stable")
    ordered = pa.record_batch([column.take(pa.array(order)) for column in batch.columns], batch.schema)
    counts = np.bincount(chosen, minlength=buckets)
    starts = np.cumsum(counts) - counts
    return [
        (bucket, ordered.slice(starts[bucket], counts[bucket]).serialize())
        for bucket in np.flatnonzero(counts).tolist()
    ]


def _pack_cells(lane: Lane, rows: pa.Table, number: int, buckets: int) -> pa.RecordBatch:
    """Cells for the buckets that get any of these rows."""
    (batch,) = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    batch = with_whole_key(batch, lane.key)
    if not batch.num_rows:
        return pa.RecordBatch.from_pylist([], schema=_CELLS)
    hashes = key_hashes([batch.column(name) for name in lane.key])
    if lane.hashed:
        hashes.sort()  # hashes in order are buckets in order
        batch = pa.record_batch([pa.array(hashes)], _HASHES)
    chosen = buckets_of(hashes, buckets)
    if not lane.hashed and buckets > 1:
        order = pa.array(np.argsort(chosen, kind="stable"))
        batch = pa.record_batch([column.take(order) for column in batch.columns], batch.schema)
    counts = np.bincount(chosen, minlength=buckets)
    starts = np.cumsum(counts) - counts
    filled = np.flatnonzero(counts)
    cells = [batch.slice(start, count).serialize() for start, count in zip(starts[filled], counts[filled], strict=True)]
    numbers = np.full(len(filled), number, np.int32)
    return pa.record_batch([filled.astype(np.int32), numbers, [memoryview(cell) for cell in cells]], schema=_CELLS)


CandidateKeys: TypeAlias = Hashes | None
"""Hashes of keys; None for all keys, where a list of them would be too long."""

# The hashes of one check go through the driver to every task that reads rows: eight megabytes at most.
_MOST_CANDIDATES: Final = 1 << 20
_CANDIDATES: Final = pa.schema([("hashes", pa.binary())])


def crowded_keys(spark: SparkSession, scans: Sequence[TableScan], key: Sequence[str], most: int) -> DataFrame:
    """Keys that may be held by more than `most` rows of these scans."""
    lanes = [Lane(str(number), scan, tuple(key), hashed=True) for number, scan in enumerate(scans)]

    def frequent(rows: Mapping[str, pa.Table]) -> Hashes:
        return frequent_hashes(np.concatenate([table.column(HASH).to_numpy() for table in rows.values()]), most)

    return candidates(spark, lanes, frequent)


def candidates(
    spark: SparkSession, lanes: Sequence[Lane], select: Callable[[Mapping[str, pa.Table]], Hashes]
) -> DataFrame:
    """The hashes that `select` returns for each bucket of an exchange."""
    share = _MOST_CANDIDATES // bucket_count(lanes)
    return exchange(spark, lanes, lambda rows: _pack_hashes(select(rows), share), _CANDIDATES)


def candidates_by_task(spark: SparkSession, tasks: int, select: Callable[[int], Hashes]) -> DataFrame:
    """The hashes that `select` returns in each of a number of tasks."""
    if not tasks:
        return spark.createDataFrame([], spark_schema(_CANDIDATES))
    share = _MOST_CANDIDATES // tasks
    return on_executors(spark, tasks, lambda number: _pack_hashes(select(number), share), spark_schema(_CANDIDATES))


def _pack_hashes(hashes: Hashes, share: int) -> Iterator[pa.RecordBatch]:
    """Hashes as one cell; null for more of them than the share of a task."""
    if len(hashes):
        yield pa.record_batch([[hashes.tobytes() if len(hashes) <= share else None]], schema=_CANDIDATES)


def candidate_keys(frames: Sequence[DataFrame]) -> list[CandidateKeys]:
    """The candidate keys of every frame, by one job."""
    if not frames:
        return []
    whole = union_of([frame.withColumn("number", F.lit(number)) for number, frame in enumerate(frames)])
    cells: list[list[bytes | None]] = [[] for _ in frames]
    for row in whole.collect():
        cells[row["number"]].append(row["hashes"])
    return [None if None in parts else np.frombuffer(b"".join(filter(None, parts)), np.uint64) for parts in cells]
