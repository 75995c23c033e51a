"""`omnigraph blob`: the bytes of one blob property, or what is known of them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from omnigraph.api.enums import EntityKind
from omnigraph.cli.inputs import STDIN, ReadingPoint
from omnigraph.cli.params import AtSnapshot, AtTime, AtVersion, Json, ReadBranch, Uri
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import reading
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, OmniGraphError

_U64 = 2**64 - 1
_READ_BYTES = 4 << 20

Entity = Annotated[EntityKind, typer.Argument(help="node or edge.", metavar="ENTITY")]
Type = Annotated[str, typer.Argument(help="The type.", metavar="TYPE")]
Id = Annotated[str, typer.Argument(help="The entity's id.", metavar="ID")]
Property = Annotated[str, typer.Argument(help="The blob property.", metavar="PROPERTY")]


def get(
    ctx: typer.Context,
    entity: Entity,
    type_: Type,
    id: Id,
    property: Property,
    uri: Uri = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Start at this byte.", metavar="N", min=0)] = None,
    length: Annotated[int | None, typer.Option("--length", help="At most so many bytes.", metavar="N", min=0)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file instead of stdout (-).", metavar="FILE")] = None,
) -> None:
    """Write the bytes of a blob to stdout or a file."""
    out = None if out == STDIN else out
    if length == 0:
        raise BadRequestError("Blob range --length must be greater than zero")
    if (offset or 0) + (length or 0) > _U64:
        raise BadRequestError("Blob range overflows u64")
    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        blob = graph.read_blob(entity.value, type_, id, property, **point.pinned)
        if (size := blob.description.size) is None:
            raise blob.description.not_downloaded()
        start, end = _range(offset, length, size)
        pieces = (blob.read_range(at, min(at + _READ_BYTES, end)) for at in range(start, end, _READ_BYTES))
        with reading(f"{type_} {id}", end - start) as advance:
            _deliver(map(advance, pieces), end - start, out)


def stat(
    ctx: typer.Context,
    entity: Entity,
    type_: Type,
    id: Id,
    property: Property,
    uri: Uri = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    json: Json = False,
) -> None:
    """Say how large a blob is, or where an external one lies. Its bytes are not read."""
    from omnigraph.api import wire

    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        told = graph.read_blob(entity.value, type_, id, property, **point.pinned).description
    if json:
        print_json(told)
    else:
        print_lines(_flat(wire.to_builtins(told)))


def _flat(told: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in told.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}: {value}"


def _range(offset: int | None, length: int | None, size: int) -> tuple[int, int]:
    """The bytes to read. What goes past the end is clipped; a start at or past the end can't be satisfied."""
    start = offset or 0
    if start >= size and not (size == 0 and offset is None and length is None):
        raise BadRequestError(f"Blob range is not satisfiable: it starts at {start} and the Blob has {size} bytes")
    return start, size if length is None else min(start + length, size)


def _deliver(pieces: Iterator[bytes], expected: int, out: Path | None) -> None:
    """Pieces to their place. A file is opened when the first bytes are there, so a failed read leaves it alone."""
    first = next(pieces, b"")
    written = 0
    try:
        sink: BinaryIO = sys.stdout.buffer if out is None else out.open("wb")
    except OSError as error:
        raise BadRequestError(f"can't write '{out}': {error.strerror}") from error
    try:
        for piece in itertools.chain([first], pieces):
            sink.write(piece)
            written += len(piece)
        sink.flush()
    finally:
        if out is not None:
            sink.close()
    if written != expected:
        raise OmniGraphError(f"Blob delivery stream ended after {written} bytes; expected {expected}")
