"""The `blob` commands write the bytes of one blob property, or show its size and address."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from omnigraph.api.enums import EntityKind
from omnigraph.cli.inputs import STDIN
from omnigraph.cli.params import ValueChoice, combine, file_option, json_option, read_point_options
from omnigraph.cli.printing.progress import reading
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, OmniGraphError

_U64 = 2**64 - 1
_READ_BYTES = 4 << 20


class BlobAddress(NamedTuple):
    """The property that holds a blob, as `read_blob` takes it."""

    entity: EntityKind
    type_name: str
    id: str
    property: str


blob_arguments = combine(
    "address",
    BlobAddress,
    entity=click.argument("entity", type=ValueChoice(EntityKind), help="node or edge."),
    type_name=click.argument("type_name", help="The type.", metavar="TYPE"),
    id=click.argument("id", help="The entity's id."),
    property=click.argument("property", help="The blob property."),
)


@blob_arguments
@read_point_options
@click.option("--offset", type=click.IntRange(min=0), help="Start at byte N.", metavar="N")
@click.option("--length", type=click.IntRange(min=0), help="Read at most N bytes.", metavar="N")
@file_option("--out", help="Write to a file; - is stdout.")
def get(
    invocation: Invocation,
    address: BlobAddress,
    point: dict[str, Any],
    offset: int | None,
    length: int | None,
    out: Path | None,
) -> None:
    if length == 0:
        raise BadRequestError("Blob range --length must be greater than zero")
    if (offset or 0) + (length or 0) > _U64:
        raise BadRequestError("Blob range overflows u64")
    with invocation.open() as graph:
        blob = graph.read_blob(*address, **point)
        if (size := blob.description.size) is None:
            raise blob.description.not_downloaded()
        # A range that goes past the end is clipped; a start at or past the end can't be satisfied.
        start, end = offset or 0, size if length is None else min((offset or 0) + length, size)
        if start >= size and not (size == 0 and offset is None and length is None):
            raise BadRequestError(f"Blob range is not satisfiable: it starts at {start} and the Blob has {size} bytes")
        pieces = (blob.read_range(at, min(at + _READ_BYTES, end)) for at in range(start, end, _READ_BYTES))
        with reading(f"{address.type_name} {address.id}", end - start) as advance:
            _deliver(map(advance, pieces), end - start, None if out == STDIN else out)


@blob_arguments
@read_point_options
@json_option
def stat(invocation: Invocation, address: BlobAddress, point: dict[str, Any]) -> None:
    from omnigraph.api import wire

    with invocation.open() as graph:
        description = graph.read_blob(*address, **point).description
    invocation.print(description, _flat_lines(wire.to_builtins(description)))


def _flat_lines(members: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in members.items():
        if isinstance(value, dict):
            yield from _flat_lines(value, f"{above}{key}.")
        else:
            yield f"{above}{key}: {value}"


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
