"""Which keys may break a rule, told by their hashes and found for all rules in one job.

Most runs have none, and then nothing else is looked at. A key that is not suspected is innocent; a suspected one is
only worth a closer look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.bulk.key_hashes import Hashes, crowded
from omnigraph.pipeline.exchange import HASH, Lane, bucket_count, exchange
from omnigraph.pipeline.scanning import TableScan
from omnigraph.pipeline.tasks import on_executors
from omnigraph.pipeline.transport import spark_schema

Suspects: TypeAlias = Hashes | None
"""Hashes of keys; None for everybody, where naming them would not pay."""

# The hashes of a question visit the driver, and travel to every task that looks closer: eight megabytes at most.
_MOST_NAMED: Final = 1 << 20
_FOUND: Final = pa.schema([("hashes", pa.binary())])


def crowded_keys(spark: SparkSession, scans: Sequence[TableScan], key: Sequence[str], most: int) -> DataFrame:
    """Keys that may be held by more than `most` rows of these scans."""
    lanes = [Lane(str(number), scan, tuple(key), hashed=True) for number, scan in enumerate(scans)]

    def found(rows: Mapping[str, pa.Table]) -> Hashes:
        return crowded(np.concatenate([table.column(HASH).to_numpy() for table in rows.values()]), most)

    return suspicion(spark, lanes, found)


def suspicion(
    spark: SparkSession, lanes: Sequence[Lane], found: Callable[[Mapping[str, pa.Table]], Hashes]
) -> DataFrame:
    """What `found` tells of each bucket of an exchange."""
    share = _MOST_NAMED // bucket_count(lanes)
    return exchange(spark, lanes, lambda rows: _told(found(rows), share), _FOUND)


def suspicion_by_task(spark: SparkSession, tasks: int, found: Callable[[int], Hashes]) -> DataFrame:
    """What `found` tells in each of a number of tasks."""
    if not tasks:
        return spark.createDataFrame([], spark_schema(_FOUND))
    share = _MOST_NAMED // tasks
    return on_executors(spark, tasks, lambda number: _told(found(number), share), spark_schema(_FOUND))


def _told(hashes: Hashes, share: int) -> Iterator[pa.RecordBatch]:
    """Hashes packed; null for more than their share."""
    if len(hashes):
        yield pa.record_batch([[hashes.tobytes() if len(hashes) <= share else None]], schema=_FOUND)


def suspects(frames: Sequence[DataFrame]) -> list[Suspects]:
    """The suspects of every frame, by one job."""
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


def _together(cells: Sequence[bytes | None]) -> Suspects:
    if None in cells:
        return None
    return np.concatenate([np.empty(0, np.uint64), *(np.frombuffer(cell, np.uint64) for cell in cells if cell)])
