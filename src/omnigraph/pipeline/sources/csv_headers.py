"""Checks the columns that a pipeline names against the headers of its CSV files, without Spark.

`pipeline validate` calls it. Only files on this machine are opened, and only their first record is read. A source that
can't be seen from here is not an error: the run reads it where Spark runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Final

from omnigraph.engine.rows.kernels.csv_rows import CsvReader
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.file.csv_options import csv_dialect
from omnigraph.pipeline.file.model import CSV_FORMAT, Complaints, Pipeline, Source
from omnigraph.pipeline.sources.input_files import LISTING_OPTIONS, InputFile
from omnigraph.pipeline.sources.parquet_files import local_path, plain_column

_SELECTING: Final = frozenset(name.lower() for name in LISTING_OPTIONS)
_METADATA: Final = "_metadata"


def check_columns(pipeline: Pipeline) -> None:
    """Raise for every mapping that names a column which the CSV files of its source do not have.

    Expressions other than a plain column are Spark's to understand, and are not looked at.
    """
    complaints = Complaints(pipeline.places)
    for source in pipeline.sources.values():
        try:
            columns = _columns(pipeline, source)
        except BadRequestError as error:
            complaints.add(f"source:{source.name}", "P018", str(error))
            continue
        known = {column.lower() for column in columns}
        for mapping in (m for m in pipeline.mappings if known and m.source == source.name):
            for name, expression in mapping.columns.items():
                column = plain_column(expression)
                if column is None or column.lower() in known:
                    continue
                hint = did_you_mean(column, columns) or f"its columns are {', '.join(columns)}"
                if column.startswith("_c") and column[2:].isdecimal():
                    hint = "columns have names by position only with `options: {header: false}`"
                message = f"the files of source '{source.name}' have no column '{column}'"
                complaints.add(f"{mapping.type_key}.{name}", "P018", message, hint)
    complaints.raise_any()


def _columns(pipeline: Pipeline, source: Source) -> list[str]:
    """The columns of a CSV source; none when they can't be known here."""
    if source.format != CSV_FORMAT or source.path is None or _SELECTING & {option.lower() for option in source.options}:
        return []
    path = pipeline.resolved(source.path)
    path = local_path(path) or path
    if "://" in path:
        return []
    for file in _files(path):
        found = InputFile(f"file:{file.absolute()}", file.stat().st_size, 0)
        if not found.is_readable:
            return []
        try:
            header = CsvReader(found.pieces(), csv_dialect(source.options)).header
        except BadRequestError as error:
            raise BadRequestError(f"{file}: {error}") from None
        if header:
            return [*header, *_partition_columns(file), _METADATA]
    return []


def _files(path: str) -> Iterator[Path]:
    """The files of a path, directory or pattern, in the order of their names. Spark passes over hidden ones."""
    for name in sorted(glob(path)) or [path]:
        if os.path.isfile(name):
            yield Path(name)
        for folder, folders, files in os.walk(name):
            folders[:] = sorted(inner for inner in folders if not _is_hidden(inner))
            yield from (Path(folder, file) for file in sorted(files) if not _is_hidden(file))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _partition_columns(file: Path) -> list[str]:
    """What directories such as `day=2026-01-01` add to the rows of their files."""
    return [part.partition("=")[0] for part in file.parent.parts if "=" in part]
