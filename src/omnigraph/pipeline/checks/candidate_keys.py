"""Candidate keys: the hashes of keys that may break a rule, found for all rules in one job.

Most runs have none, and then no rows are read. A key that is not a candidate breaks no rule; for a candidate the
check reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.bulk.key_hashes import Hashes, crowded
from omnigraph.pipeline.checks.bucket_shuffle import HASH, Lane, bucket_count, exchange
from omnigraph.pipeline.checks.table_frames import TableScan
from omnigraph.pipeline.datasource.spark_types import spark_schema
from omnigraph.pipeline.spark.tasks import on_executors

CandidateKeys: TypeAlias = Hashes | None
"""Hashes of keys; None for all keys, where a list of them would be too long."""

# The hashes of one check go through the driver to every task that reads rows: eight megabytes at most.
_MOST_CANDIDATES: Final = 1 << 20
_FOUND: Final = pa.schema([("hashes", pa.binary())])


def crowded_keys(spark: SparkSession, scans: Sequence[TableScan], key: Sequence[str], most: int) -> DataFrame:
    """Keys that may be held by more than `most` rows of these scans."""
    lanes = [Lane(str(number), scan, tuple(key), hashed=True) for number, scan in enumerate(scans)]

    def found(rows: Mapping[str, pa.Table]) -> Hashes:
        return crowded(np.concatenate([table.column(HASH).to_numpy() for table in rows.values()]), most)

    return candidates(spark, lanes, found)


def candidates(
    spark: SparkSession, lanes: Sequence[Lane], found: Callable[[Mapping[str, pa.Table]], Hashes]
) -> DataFrame:
    """The hashes that `found` returns for each bucket of an exchange."""
    share = _MOST_CANDIDATES // bucket_count(lanes)
    return exchange(spark, lanes, lambda rows: _packed(found(rows), share), _FOUND)


def candidates_by_task(spark: SparkSession, tasks: int, found: Callable[[int], Hashes]) -> DataFrame:
    """The hashes that `found` returns in each of a number of tasks."""
    if not tasks:
        return spark.createDataFrame([], spark_schema(_FOUND))
    share = _MOST_CANDIDATES // tasks
    return on_executors(spark, tasks, lambda number: _packed(found(number), share), spark_schema(_FOUND))


def _packed(hashes: Hashes, share: int) -> Iterator[pa.RecordBatch]:
    """Hashes as one cell; null for more of them than the share of a task."""
    if len(hashes):
        yield pa.record_batch([[hashes.tobytes() if len(hashes) <= share else None]], schema=_FOUND)


def candidate_keys(frames: Sequence[DataFrame]) -> list[CandidateKeys]:
    """The candidate keys of every frame, by one job."""
    if not frames:
        return []
    numbered = [frame.withColumn("number", F.lit(number)) for number, frame in enumerate(frames)]
    whole = numbered[0]
    for frame in numbered[1:]:
        whole = whole.unionAll(frame)
    named: list[list[bytes | None]] = [[] for _ in frames]
    for row in whole.collect():
        named[row["number"]].append(row["hashes"])
    return [_together(cells) for cells in named]


def _together(cells: Sequence[bytes | None]) -> CandidateKeys:
    if None in cells:
        return None
    return np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(cell, np.uint64) for cell in cells if cell)])
