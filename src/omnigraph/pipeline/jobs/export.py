"""Bulk export: one directory of files per type, all of one snapshot, written by executors.

Called by `omnigraph export --engine spark`. `ndjson` gives graph records that `load` takes back unchanged; the other
formats are tables for other tools. Nothing passes through the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.api.enums import PolicyAction
from omnigraph.api.export import ExportedFile
from omnigraph.api.pipeline import Progress
from omnigraph.engine.bulk.entity_records import EntityRecords
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.checks.table_frames import scan_frame
from omnigraph.pipeline.datasource.read import type_named, type_scan
from omnigraph.pipeline.execution.report import Stages
from omnigraph.pipeline.sources.sources import hadoop_uri, spark_errors
from omnigraph.pipeline.spark.tasks import on_executors

_LINES_PER_BATCH: Final = 4_096
# Without these, Spark writes quotes in a way of its own and cuts spaces off.
_RFC_4180: Final = {
    "header": "true",
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}


class BulkFormat(StrEnum):
    """Graph records, or rows in a format that Spark writes."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    JSON = "json"


def export_types(
    spark: SparkSession,
    graph: GraphHandle,
    directory: str,
    *,
    format: str = "parquet",
    types: Collection[str] = (),
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    progress: Progress | None = None,
) -> list[ExportedFile]:
    """Write `<directory>/nodes/<Type>` and `<directory>/edges/<Type>`; refuses to write over anything."""
    try:
        chosen_format = BulkFormat(format)
    except ValueError:
        raise BadRequestError(f"unknown export format '{format}'; use one of: {', '.join(BulkFormat)}") from None
    if "://" not in directory and Path(directory).exists() and any(Path(directory).iterdir()):
        raise BadRequestError(f"'{directory}' is not empty; export into a new directory")
    state = graph.workspace.snapshot(branch, snapshot=snapshot, version=version, at=at).acting(PolicyAction.EXPORT)
    state.refuse_narrowed("an export on Spark")
    chosen = [type_named(state, name) for name in (types or state.types())]
    stages = Stages(progress)
    written = []
    for type_ in chosen:
        place = f"{directory.rstrip('/')}/{type_.kind}s/{type_.name}"
        with stages.stage("export", type_.type_key), spark_errors(type_.type_key):
            _write(spark, state, type_, chosen_format, place)
        written.append(ExportedFile(type_.type_key, place, state.count(type_.type_key)))
    return written


def _write(spark: SparkSession, state: Snapshot, type_: TableType, format: BulkFormat, place: str) -> None:
    path = hadoop_uri(place) if "://" in place else str(Path(place).absolute())
    if format is BulkFormat.NDJSON:
        _records(spark, state, type_).write.mode("errorifexists").text(path)
        return
    rows = scan_frame(spark, type_scan(state, type_))
    options = _RFC_4180 if format is BulkFormat.CSV else {}
    rows.write.format(format.value).options(**options).mode("errorifexists").save(path)


def _records(spark: SparkSession, state: Snapshot, type_: TableType) -> DataFrame:
    groups = type_scan(state, type_).groups()
    if not groups:
        return spark.createDataFrame([], "value string")
    task = _LinesTask(EntityRecords.of(state, type_), tuple(groups))
    return on_executors(spark, len(groups), task.batches, "value string")


@dataclass(frozen=True, slots=True)
class _LinesTask:
    """What an executor needs to write the entities of some fragments as records."""

    records: EntityRecords
    groups: tuple[tuple[int, ...], ...]

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        batch: list[str] = []
        for line in self.records.lines(self.groups[group]):
            batch.append(line.decode())
            if len(batch) == _LINES_PER_BATCH:
                yield pa.RecordBatch.from_pydict({"value": batch})
                batch = []
        if batch:
            yield pa.RecordBatch.from_pydict({"value": batch})
