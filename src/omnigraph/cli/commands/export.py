"""`omnigraph export`: a state of the graph as files that others, or a fresh graph, can read."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import AtSnapshot, AtTime, AtVersion, ReadBranch, Types, Uri
from omnigraph.cli.output import print_lines, print_warning
from omnigraph.cli.reading_point import ReadingPoint
from omnigraph.cli.usage import UsageError


class Format(StrEnum):
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"


def export(
    ctx: typer.Context,
    uri: Uri = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    types: Types = None,
    format: Annotated[
        Format, typer.Option("--format", help="Lines on stdout, or one file per type in --out.")
    ] = Format.NDJSON,
    out: Annotated[
        Path | None, typer.Option("--out", help="The directory for parquet and arrow files.", metavar="DIR")
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", hidden=True)] = False,
) -> None:
    """Write every entity of a state, one JSON object per line; `load` reads it back."""
    if jsonl:
        print_warning("--jsonl is deprecated; NDJSON is what export writes")
    if (out is None) is not (format is Format.NDJSON):
        raise UsageError("--out DIR goes with --format parquet or arrow, and NDJSON goes to stdout")
    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        if out is None:
            graph.export_to(sys.stdout.buffer, **point.pinned, types=types or ())
            sys.stdout.buffer.flush()
            return
        files = graph.export_files(out, format=format.value, **point.pinned, types=types or ())
    print_lines(f"{file.path}: {file.rows} entities" for file in files)
