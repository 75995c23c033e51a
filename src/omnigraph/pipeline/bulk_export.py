"""Bulk export: one directory of files per type, all of one snapshot, written by executors.

Called by `omnigraph export --engine spark`. `ndjson` gives graph records that `load` takes back unchanged; the other
formats are tables for other tools. Nothing passes through the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.api.enums import Dates, PolicyAction
from omnigraph.api.queries import ExportedFile
from omnigraph.api.service.pipeline import Progress
from omnigraph.engine.bulk.executor import EntityRecords
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.execution.report import Stages
from omnigraph.pipeline.file import SparkSettings
from omnigraph.pipeline.sources.source_frames import hadoop_uri, spark_errors
from omnigraph.pipeline.spark.session import spark_session
from omnigraph.pipeline.spark.table_frames import scan_frame
from omnigraph.pipeline.spark.tasks import on_executors
from omnigraph.pipeline.spark.type_reader import type_scan

_LINES_PER_BATCH: Final = 4_096
# Without these, Spark escapes quotes with backslashes and trims spaces. An empty value is null, two quotes are an empty
# text.
_RFC_4180: Final = {
    "header": "true",
    "escape": '"',
    "nullValue": "",
    "emptyValue": '""',
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
    spark: SparkSession | None,
    graph: GraphHandle,
    directory: str,
    *,
    format: str = "parquet",
    types: Collection[str] = (),
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    epoch: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> list[ExportedFile]:
    """Write `<directory>/nodes/<Type>` and `<directory>/edges/<Type>`. Existing files are replaced only with `force`.

    Dates and times of records are texts of ISO 8601; with `epoch`, days and milliseconds since 1970. Without a session,
    Spark is started once everything is checked and allowed.
    """
    if format not in list(BulkFormat):
        raise BadRequestError(f"unknown export format '{format}'; use one of: {', '.join(BulkFormat)}")
    if not force and "://" not in directory and Path(directory).exists() and any(Path(directory).iterdir()):
        raise BadRequestError(f"'{directory}' is not empty; export into a new directory, or replace it with --force")
    state = graph._workspace.snapshot(branch, snapshot=snapshot, version=version, at=at).for_action(PolicyAction.EXPORT)
    state.refuse_restricted("an export on Spark")
    chosen = [state.catalog.type_named(name) for name in (types or state.types())]
    stages = Stages(progress)
    mode = "overwrite" if force else "errorifexists"
    written = []
    with spark_session(SparkSettings(), "omnigraph export", spark) as session:
        for type_ in chosen:
            place = f"{directory.rstrip('/')}/{type_.kind}s/{type_.name}"
            with stages.stage("export", type_.type_key), spark_errors(type_.type_key):
                if format == BulkFormat.NDJSON:
                    frame = _records(session, state, type_, Dates.EPOCH if epoch else Dates.ISO)
                else:
                    frame = scan_frame(session, type_scan(state, type_))
                path = hadoop_uri(place) if "://" in place else str(Path(place).absolute())
                options = _RFC_4180 if format == BulkFormat.CSV else {}
                spark_format = "text" if format == BulkFormat.NDJSON else format
                frame.write.format(spark_format).options(**options).mode(mode).save(path)
            written.append(ExportedFile(type_.type_key, place, state.count(type_.type_key)))
    return written


def _records(spark: SparkSession, state: Snapshot, type_: TableType, dates: Dates) -> DataFrame:
    groups = type_scan(state, type_).groups()
    if not groups:
        return spark.createDataFrame([], "value string")
    records = EntityRecords.of(state, type_, dates=dates)

    def batches(group: int) -> Iterator[pa.RecordBatch]:
        lines = records.lines(groups[group])
        while batch := [line.decode() for line in islice(lines, _LINES_PER_BATCH)]:
            yield pa.RecordBatch.from_pydict({"value": batch})

    return on_executors(spark, len(groups), batches, "value string")
