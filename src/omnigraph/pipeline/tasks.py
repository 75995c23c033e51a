"""Numbered pieces of work on executors, each a task of its own.

What reads, exchanges, indexes, compacts, exports and embeds fragments is spread this way. Work is pickled: it imports
the engine only when it runs, after the fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def on_executors(
    spark: SparkSession, count: int, work: Callable[[int], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """What `work` gives for the numbers `0 .. count - 1`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return spark.range(0, count, 1, count).mapInArrow(run, schema)
