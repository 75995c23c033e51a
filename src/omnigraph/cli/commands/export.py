"""`omnigraph export`: a snapshot of the graph as files that others, or a fresh graph, can read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.params import Engine, UsageError, choice_option, read_point_options, types_option
from omnigraph.cli.printing.output import print_lines, print_warning
from omnigraph.cli.printing.progress import entities, stages, steps, writing
from omnigraph.cli.target import Invocation

if TYPE_CHECKING:
    from omnigraph.api.queries import ByteWriter


class Format(StrEnum):
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"
    ORC = "orc"
    CSV = "csv"
    JSON = "json"


_LOCAL_FILES = (Format.PARQUET, Format.ARROW, Format.CSV)


@read_point_options
@types_option
@choice_option(
    "--format", Format, default="ndjson", help="Lines on stdout, or files in --out; orc and json need --engine spark."
)
@click.option("--out", help="The directory for files: one per type, or on Spark a folder each.", metavar="DIR")
@choice_option(
    "--engine", Engine, default="local", help="spark writes a folder per type, from executors, also to a URI."
)
@click.option("--epoch", is_flag=True, help="Write dates and times of NDJSON as days and milliseconds since 1970.")
@click.option("--force", is_flag=True, help="Replace files that are in --out already.")
@click.option("--jsonl", is_flag=True, hidden=True)
def export(
    invocation: Invocation,
    point: dict[str, Any],
    types: tuple[str, ...],
    format: Format,
    out: str | None,
    engine: Engine,
    epoch: bool,
    force: bool,
    jsonl: bool,
) -> None:
    if jsonl:
        print_warning("--jsonl is deprecated; NDJSON is what export writes")
    _check(engine, format, out, epoch=epoch, force=force)
    if out is None:
        _export_lines(invocation, types, point, epoch=epoch)
        return
    options: dict[str, Any] = {"format": format.value, "types": types, "force": force, **point}
    with invocation.open_storage() as graph:
        if engine is Engine.SPARK:
            from omnigraph.pipeline import export_types

            with stages("starting Spark") as stage_progress:
                files = export_types(None, graph, out, epoch=epoch, progress=stage_progress, **options)
        else:
            with steps("exporting") as progress:
                files = graph.export_files(out, progress=progress, **options)
    print_lines(f"{file.path}: {count_noun(file.rows, 'entity', 'entities')}" for file in files)


def _export_lines(invocation: Invocation, types: Sequence[str], point: dict[str, Any], *, epoch: bool) -> None:
    """NDJSON to stdout, with a progress bar when the lines themselves don't go to the terminal."""
    with invocation.open() as graph:
        bar: AbstractContextManager[ByteWriter] = nullcontext(sys.stdout.buffer)
        if not sys.stdout.isatty():
            bar = writing(sys.stdout.buffer, lambda: entities(graph, types=types, **point))
        with bar as lines:
            graph.export_to(lines, **point, types=types, epoch=epoch)
        sys.stdout.buffer.flush()


def _check(engine: Engine, format: Format, out: str | None, *, epoch: bool, force: bool) -> None:
    if out is not None and not out.strip():
        raise UsageError("--out is empty; give a directory, . for the working directory")
    if force and out is None:
        raise UsageError("--force is about files that are in --out already; give --out DIR")
    if epoch and format is not Format.NDJSON:
        raise UsageError(f"--epoch goes with NDJSON; --format {format} has types of its own for dates and times")
    if engine is Engine.SPARK:
        if out is None:
            raise UsageError("--engine spark writes files: give --out DIR")
        if format is Format.ARROW:
            raise UsageError("--engine spark does not write arrow; choose ndjson, parquet, orc, csv or json")
    elif format not in (Format.NDJSON, *_LOCAL_FILES):
        raise UsageError(f"--format {format} needs --engine spark")
    elif (out is None) is not (format is Format.NDJSON):
        raise UsageError("--out DIR goes with --format parquet, arrow or csv, and NDJSON goes to stdout")
