"""Lance schemas with their field ids spelled out, for changes of a table's columns that touch no data.

An Arrow schema has no field ids, and Lance would number it afresh; but data files name their columns by id, and an
id must never be used again. Pylance builds a schema with given ids only from its serialised fields, so those are
handled here: kept as they are, left out, or renumbered. Called by staging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

# Numbers of the `Field` message of Lance's file format.
_ID, _PARENT_ID = 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NO_PARENT = -1


def without_columns(dataset: Any, dropped: Collection[str]) -> LanceSchema:
    """The schema of a dataset without some of its columns; all others keep their ids."""
    metadata, serialised = _parts(dataset.lance_schema)
    kept: list[bytes] = []
    at = 0
    for field in dataset.lance_schema.fields():
        size = _tree_size(field)
        if field.name() not in dropped:
            kept += serialised[at : at + size]
        at += size
    return LanceSchema._from_protos(metadata, *kept)


def with_columns(dataset: Any, added: Sequence[pa.Field]) -> LanceSchema:
    """The schema of a dataset with columns added at the end, under ids that no file of this version ever used."""
    metadata, serialised = _parts(dataset.lance_schema)
    _, fresh = _parts(LanceSchema.from_pyarrow(pa.schema(added)))
    first = _highest_id(dataset) + 1
    return LanceSchema._from_protos(metadata, *serialised, *(_renumbered(field, first) for field in fresh))


def _parts(schema: LanceSchema) -> tuple[Any, list[bytes]]:
    """The metadata and the serialised fields, each field followed by its children."""
    reduced: Any = schema.__reduce__()
    metadata, *fields = reduced[1]
    return metadata, fields


def _tree_size(field: Any) -> int:
    return 1 + sum(_tree_size(child) for child in field.children())


def _ids(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _ids(child)


def field_ids(dataset: Any) -> list[int]:
    """The id of every field of the schema, children included."""
    return [number for field in dataset.lance_schema.fields() for number in _ids(field)]


def _highest_id(dataset: Any) -> int:
    """Dropped columns are gone from the schema and still stand in the data files."""
    in_files = (
        number for fragment in dataset.get_fragments() for file in fragment.metadata.files for number in file.fields
    )
    return max((*field_ids(dataset), *in_files), default=-1)


def _renumbered(field: bytes, offset: int) -> bytes:
    """A serialised field with its id, and its parent's when it has one, moved up."""
    moved = b""
    numbers = {_ID: 0, _PARENT_ID: 0}  # zeros are not written
    rest = b""
    for number, wire, raw, value in _wire_fields(field):
        if number in (_ID, _PARENT_ID) and wire == _VARINT:
            numbers[number] = value
        else:
            rest += raw
    for number, value in numbers.items():
        signed = value - (1 << 64) if value >= 1 << 63 else value
        target = signed if number == _PARENT_ID and signed == _NO_PARENT else signed + offset
        moved += _varint(number << 3 | _VARINT) + _varint(target & ((1 << 64) - 1))
    return rest + moved


def _wire_fields(message: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    """Each field of a protobuf message: its number, wire type, bytes as written, and value when it is a varint."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        number, wire, value = tag >> 3, tag & 7, 0
        if wire == _VARINT:
            value, at = _read_varint(message, at)
        elif wire == _BYTES:
            size, at = _read_varint(message, at)
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"a Lance field holds the unknown wire type {wire}")
        yield number, wire, message[start:at], value


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
