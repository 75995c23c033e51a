"""Work on executors: numbered pieces, each a task of its own, or the batches of a frame.

What reads, exchanges, indexes, compacts, exports and embeds fragments is spread this way. Work is pickled: it imports
the engine only when it runs, after the fork.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

OnBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def on_executors(
    spark: SparkSession, count: int, work: Callable[[int], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """What `work` gives for the numbers `0 .. count - 1`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return map_batches(spark.range(0, count, 1, count), run, schema)


def texts_of(spark: SparkSession, tasks: Sequence[Callable[[], str]]) -> list[str]:
    """What each of these tasks gives, in their order; every one of them is a task of Spark's."""
    if not tasks:
        return []

    def work(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"task": [number], "text": [tasks[number]()]})

    rows = on_executors(spark, len(tasks), work, "task long, text string").collect()
    return [text for _, text in sorted((row[0], row[1]) for row in rows)]


def map_batches(frame: DataFrame, work: OnBatches, schema: StructType | str) -> DataFrame:
    """What `work` makes of the batches of each partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batches)
        _settle()

    return frame.mapInArrow(run, schema)


def _settle() -> None:
    """Spark's workers look for garbage after every task, and would visit all that Lance brought along each time."""
    if "lance" in sys.modules and not gc.get_freeze_count():
        gc.freeze()
