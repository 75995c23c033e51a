"""Work on executors: numbered tasks, batches of a frame, and Arrow types that Spark can transport.

Everything that runs on executors is started here. Work is pickled and imports the engine only when it runs, after the
fork. Spark lacks unsigned integers, half floats, dictionaries and fixed-size lists, and has only microseconds; no value
changes on the way, and the row kernels bring values back to the types of their table.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, groupby
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

OnBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
OptionalText = TypeVar("OptionalText", str, str | None)


def on_executors(
    spark: SparkSession, count: int, work: Callable[[int], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """The batches of `work` for the numbers `0 .. count - 1`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return map_batches(spark.range(0, count, 1, count), run, schema)


def texts_of(spark: SparkSession, tasks: Sequence[Callable[[], OptionalText]]) -> list[OptionalText]:
    """The result of each of these tasks, in order; every one is a task of Spark."""
    if not tasks:
        return []

    def work(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"task": [number], "text": pa.array([tasks[number]()], pa.string())})

    rows = on_executors(spark, len(tasks), work, "task long, text string").collect()
    return [row[1] for row in sorted(rows, key=lambda row: row[0])]


def union_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Every row of frames that have the same columns."""
    return reduce(DataFrame.unionByName, frames)


def consecutive_groups(sizes: Sequence[int], share: int) -> list[list[int]]:
    """Inputs of these sizes by task, as numbers in order: those that begin within the same `share` of the whole."""
    begins = zip(accumulate(sizes, initial=0), range(len(sizes)), strict=False)
    return [[number for _, number in group] for _, group in groupby(begins, lambda begin: begin[0] // share)]


def map_batches(frame: DataFrame, work: OnBatches, schema: StructType | str) -> DataFrame:
    """The batches that `work` makes of those of each partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to workers too; the driver ends them
        yield from work(batches)
        # Spark's workers look for garbage after every task, and would visit all that Lance brought along each time.
        if "lance" in sys.modules and not gc.get_freeze_count():
            gc.freeze()

    return frame.mapInArrow(run, schema)


_WIDER: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def transport_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.ExtensionType) or pt.is_large_binary(type_):
        return pa.binary()
    if type_ in _WIDER:
        return _WIDER[type_]
    if pt.is_dictionary(type_):
        return transport_type(type_.value_type)
    if pt.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pt.is_fixed_size_list(type_) or pt.is_list(type_) or pt.is_large_list(type_):
        return pa.list_(pa.field("element", transport_type(type_.value_type)))
    if pt.is_struct(type_):
        return pa.struct([(type_.field(i).name, transport_type(type_.field(i).type)) for i in range(type_.num_fields)])
    return type_


def transport_schema(schema: pa.Schema) -> pa.Schema:
    """Every field is nullable: Spark's joins make it so anyway, and the table decides about nulls."""
    return pa.schema([(field.name, transport_type(field.type)) for field in schema])


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(transport_schema(schema))


def to_transport(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema, columns = transport_schema(batch.schema), []
    for column, target in zip(batch.columns, schema.types, strict=True):
        if pt.is_fixed_size_list(column.type):
            # The slots of a null list are not its values; an ordinary list has none there.
            column = column.cast(pa.list_(column.type.value_type))
        columns.append(column if column.type == target else column.cast(target))
    return pa.record_batch(columns, schema=schema)
