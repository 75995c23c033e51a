"""The tables of a run between writing and publishing: frames for checks, removed rows, and declared indexes.

A run, re-embedding and distributed maintenance call it. Executors do the work on fragments; the driver stages versions
and never sees rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.bulk.executor import (
    OFFSET_BITS,
    PLACE,
    EntityRecords,
    by_fragment,
    columns_with_values,
    equal_rows_at,
    row_ids_at,
)
from omnigraph.engine.bulk.jobs import IndexBuild, IndexedVersions, TablesToIndex
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.bulk.staged_run import StagedRun
from omnigraph.engine.resources import Resources
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.pipeline.spark.table_frames import TableScan, scan_frame
from omnigraph.pipeline.spark.tasks import spark_schema, texts_of

Columns: TypeAlias = Sequence[str] | Mapping[str, str]
"""Columns of a table, with other names for them where it is a mapping."""

_UNCHANGED = pa.schema([("new", pa.int64()), ("stored", pa.int64()), ("nulled", pa.string())])
_REMAINING = pa.schema([("fragment", pa.int64()), ("remaining", pa.string()), ("deleted", pa.int64())])


class IncomingTables(StagedRun):
    """All tables of one attempt against one captured head, as frames."""

    def __init__(self, spark: SparkSession, txn: WriteTxn) -> None:
        super().__init__(txn)
        self.spark = spark

    def fresh(self, key: str, columns: Columns) -> TableScan:
        """Incoming rows that are still in, with their places. Nothing when the run does not write the type."""
        return _scan(self.fresh_rows(key), columns)

    def scan_stored(self, key: str, columns: Columns) -> TableScan:
        """Rows of the captured head, with their places. Nothing when the run replaces the type."""
        return _scan(self.stored_rows(key), columns)

    def scan_committed(self, key: str, columns: Columns) -> TableScan:
        """Rows of the captured head, whatever the run does to the type."""
        return _scan(self.committed_rows(key), columns)

    def frame(self, scan: TableScan) -> DataFrame:
        return scan_frame(self.spark, scan)

    def take_out(self, key: str, places: DataFrame) -> int:
        """Remove rows by place; one task per fragment writes its deletions, and returns metadata."""
        table = self.current(key)

        def delete(group: pa.Table) -> pa.Table:
            from omnigraph.storage.tables.fragments import delete_rows

            ((fragment, offsets),) = by_fragment(group.column(PLACE).to_pylist()).items()
            return pa.table([[fragment], [delete_rows(table, fragment, offsets)], [len(offsets)]], _REMAINING)

        by_number = places.select(F.shiftright(PLACE, OFFSET_BITS).alias("fragment"), PLACE).groupBy("fragment")
        remaining = by_number.applyInArrow(delete, spark_schema(_REMAINING)).collect()
        if remaining:
            self.without_rows(key, {row["fragment"]: row["remaining"] for row in remaining})
        return sum(row["deleted"] for row in remaining)

    def unchanged_rows(self, key: str, pairs: DataFrame, left_out: Sequence[str]) -> DataFrame:
        """Of places of incoming rows (`new`) and of those that they would replace (`stored`), the pairs that hold the
        same values; and a row for each column of `left_out` (`nulled`) that a stored row of the others has."""
        incoming, snapshot = self.by_key[key], self.txn.snapshot
        stored = EntityRecords.of(snapshot, incoming.type)
        new = EntityRecords.of(snapshot, incoming.type, incoming.all_rows)

        def locate(group: pa.Table) -> pa.Table:
            places = group.column("stored").to_numpy()
            row_ids = row_ids_at(stored, int(places[0]) >> OFFSET_BITS, places)
            return group.append_column("stored_row", pa.array(row_ids))

        def compare(group: pa.Table) -> pa.Table:
            places, stored_rows = group.column("new").to_numpy(), group.column("stored_row").to_numpy()
            same = equal_rows_at(new, row_ids_at(new, int(places[0]) >> OFFSET_BITS, places), stored, stored_rows)
            lost = columns_with_values(stored, stored_rows[~same], left_out)
            pairs = group.filter(pa.array(same)).select(["new", "stored"])
            nothing = pa.nulls(pairs.num_rows, pa.string())
            return pa.concat_tables(
                [
                    pairs.append_column("nulled", nothing).cast(_UNCHANGED),
                    pa.table([pa.nulls(len(lost)), pa.nulls(len(lost)), lost], _UNCHANGED.names).cast(_UNCHANGED),
                ]
            )

        pairs_schema = spark_schema(
            pa.schema([("new", pa.int64()), ("stored", pa.int64()), ("stored_row", pa.int64())])
        )
        by_stored = pairs.select("new", "stored").groupBy(F.shiftright("stored", OFFSET_BITS))
        located = by_stored.applyInArrow(locate, pairs_schema)
        return located.groupBy(F.shiftright("new", OFFSET_BITS)).applyInArrow(compare, spark_schema(_UNCHANGED))


def _scan(table: PinnedTable, columns: Columns) -> TableScan:
    names = columns if isinstance(columns, Mapping) else {}
    return TableScan(table, tuple(columns), names, places=True)


def index_tables(spark: SparkSession, resources: Resources, tables: TablesToIndex) -> IndexedVersions:
    """Staged versions of these tables with every declared index whole; tables that lack nothing are left out."""
    build = IndexBuild(resources, tables)
    return build.stage(texts_of(spark, build.tasks))
