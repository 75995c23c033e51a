"""A Lance dataset as a source of a pipeline: pinned when the run begins, a task per group of fragments.

Called by `sources` only. Spark can't look into a scan that Python does, so the columns a mapping needs are worked
out here, and what can't be worked out safely is read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.bulk.scan_plans import ForeignDataset, foreign_dataset
from omnigraph.pipeline.checks.table_frames import TableScan, scan_frame


@dataclass(frozen=True, slots=True)
class LanceSource:
    uri: str
    dataset: ForeignDataset

    @classmethod
    def opened(cls, uri: str, options: Mapping[str, str]) -> LanceSource:
        """`version` picks a version; every other option goes to the object store."""
        version = options.get("version")
        store = {name: value for name, value in options.items() if name != "version"}
        return cls(uri, foreign_dataset(uri, None if version is None else int(version), store))

    @property
    def fingerprint(self) -> str:
        return self.dataset.digest

    def frame(self, spark: SparkSession, expressions: Sequence[str] | None = None) -> DataFrame:
        """The rows, with the columns that some Spark SQL expressions over them may name; all without expressions."""
        columns = tuple(self.dataset.table.schema.names)
        if expressions is not None:
            columns = spelled(columns, expressions)
        return scan_frame(spark, TableScan(self.dataset.table, columns, {}))


def spelled(columns: Sequence[str], expressions: Sequence[str]) -> tuple[str, ...]:
    """Columns that the expressions may mean: a name that is spelled in none of them can't be. A `*` means all.

    Too many are harmless, too few are not, so this reads no SQL. One column stays in any case, to count rows by.
    """
    text = "\n".join(expressions).lower()
    if "*" in text:
        return tuple(columns)
    # A backtick within a name is written twice.
    named = tuple(column for column in columns if column.lower().replace("`", "``") in text)
    return named or tuple(columns[:1])
