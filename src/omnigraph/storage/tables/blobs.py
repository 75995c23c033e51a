"""Blob columns: their shape as Lance wants it, the descriptors of their cells, and the content behind them.

The shape is for the catalog-to-schema mapping and for writers that have cells as plain structs. A read gives
descriptors, which say what a cell holds without its bytes; those are read by range through `Table.blobs`. An external
object is never opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType
from numpy.typing import NDArray

from omnigraph.errors import BlobIntegrityError

RowIds: TypeAlias = NDArray[np.int64]

_INLINE, _PACKED, _DEDICATED, _EXTERNAL = range(4)
_KINDS: Final = frozenset({_INLINE, _PACKED, _DEDICATED, _EXTERNAL})
_COMPARED_BYTES: Final = 4 << 20

_MEMBERS: Final = {
    "kind": pa.uint8(),
    "position": pa.uint64(),
    "size": pa.uint64(),
    "blob_id": pa.uint32(),
    "blob_uri": pa.string(),
}
_DESCRIPTOR: Final = pa.struct([pa.field(name, type_, nullable=False) for name, type_ in _MEMBERS.items()])


def blob_field(name: str, *, nullable: bool) -> pa.Field:
    """The field of a blob column in a table schema."""
    return lance.blob_field(name, nullable=nullable)


def read_field(stored: pa.Field) -> pa.Field:
    """How a stored column comes out of a read: a blob column as descriptors, any other one as it is."""
    return stored.with_type(_DESCRIPTOR) if isinstance(stored.type, BlobType) else stored


def blob_column(
    data: pa.Array, uri: pa.Array, valid: pa.Array, position: pa.Array | None = None, size: pa.Array | None = None
) -> pa.Array:
    """Managed bytes and external references as one column: a valid cell has exactly one of the two. Null, empty (`data`
    of no bytes) and external stay three different things. A reference may name a part of its object."""
    type_ = blob_field("blob", nullable=True).type
    absent = pa.nulls(len(valid), pa.uint64())
    span = [absent if part is None else part for part in (position, size)]
    cells = pa.StructArray.from_arrays(
        [data.cast(pa.large_binary()), uri.cast(pa.string()), *span],
        fields=[type_.storage_type.field(i) for i in range(4)],
        mask=pa.compute.invert(valid),
    )
    return pa.ExtensionArray.from_storage(type_, cells)


# Descriptors


@dataclass(frozen=True)
class BlobDescriptors:
    """The descriptors of a blob column for some rows, without their bytes. A null cell is valid in no array."""

    valid: NDArray[np.bool_]
    external: NDArray[np.bool_]
    uri: pa.ChunkedArray
    position: NDArray[np.uint64]
    size: NDArray[np.uint64]

    @classmethod
    def of(cls, descriptors: pa.ChunkedArray) -> BlobDescriptors:
        valid = descriptors.is_valid().to_numpy()

        def member(name: str) -> NDArray[np.uint64]:
            values: NDArray[np.uint64] = pc.fill_null(pc.struct_field(descriptors, name), 0).to_numpy()
            return values

        external = valid & (member("kind") == _EXTERNAL)
        return cls(valid, external, pc.struct_field(descriptors, "blob_uri"), member("position"), member("size"))

    @property
    def managed(self) -> NDArray[np.bool_]:
        managed: NDArray[np.bool_] = self.valid & ~self.external
        return managed


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A cell that holds a value: bytes of the graph's own, or a reference to a caller's object when `uri` is set."""

    size: int
    uri: str | None = None
    offset: int = 0


def stored_blob(cell: dict[str, Any] | None) -> StoredBlob | None:
    """The blob that one descriptor describes; None when the cell is null."""
    if cell is None:
        return None
    if cell["kind"] not in _KINDS:
        raise BlobIntegrityError(f"the cell is of the unknown kind {cell['kind']}")
    if cell["kind"] == _EXTERNAL:
        if not cell["blob_uri"]:
            raise BlobIntegrityError("an external reference names no object")
        return StoredBlob(cell["size"], cell["blob_uri"], cell["position"])
    return StoredBlob(cell["size"])


# Content


class BlobContent:
    """The bytes of one managed cell, read when they are asked for."""

    def __init__(self, file: Any, reading: Callable[[], AbstractContextManager[None]]) -> None:
        if file is None:
            raise BlobIntegrityError("a cell that should hold a value is null")
        self._file = file
        self.reading = reading

    def __len__(self) -> int:
        return int(self._file.size())

    def read(self) -> bytes:
        """All of it."""
        with self.reading():
            return bytes(self._file.readall())

    def part(self, start: int, length: int) -> bytes:
        with self.reading():
            return bytes(self._file.read_range(start, length))

    def equals(self, other: BlobContent) -> bool:
        """Whether both hold the same bytes; read a few megabytes at a time, and no further than they agree."""
        if len(self) != len(other):
            return False
        starts = range(0, len(self), _COMPARED_BYTES)
        ranges = ((start, min(_COMPARED_BYTES, len(self) - start)) for start in starts)
        return all(self.part(*range_) == other.part(*range_) for range_ in ranges)


def carried_blobs(
    descriptors: pa.ChunkedArray, contents: Callable[[RowIds], list[BlobContent]], row_ids: RowIds
) -> pa.Array:
    """The stored cells of some rows as a column to write: bytes are read and references stay what they are."""
    described = BlobDescriptors.of(descriptors)
    data: list[bytes | None] = [None] * len(row_ids)
    managed = np.flatnonzero(described.managed)
    for row, content in zip(managed.tolist(), contents(row_ids[managed]), strict=True):
        data[row] = content.read()
    is_part = described.external & (described.size > 0)
    return blob_column(
        pa.array(data, pa.large_binary()),
        pc.if_else(pa.array(described.external), described.uri.combine_chunks(), None),
        pa.array(described.valid),
        pa.array(described.position, mask=~is_part),
        pa.array(described.size, mask=~is_part),
    )


def spans_of_blobs(descriptors: Iterable[pa.ChunkedArray], rows: int, nbytes: int) -> Iterator[slice]:
    """Consecutive rows whose managed bytes are at most so many together, or a single row."""
    ends = np.zeros(rows, np.int64)
    for column in descriptors:
        described = BlobDescriptors.of(column)
        ends += np.cumsum(np.where(described.managed, described.size, 0).astype(np.int64))
    first = 0
    while first < rows:
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + nbytes, side="right")))
        yield slice(first, last)
        first = last
