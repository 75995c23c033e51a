"""Rows of one table version by row id, in the order asked for, with the content of their blobs when it is wanted.

Diffs, merges and exports read through here: they know which rows they want before they read any value. External
objects are never opened; their references are all that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.storage.tables.reading import Table
from omnigraph.storage.tables.wide import take

RowIds = NDArray[np.uint64]

_EXTERNAL = 3
_COMPARED_BYTES = 4 << 20


def take_rows(table: Table, row_ids: RowIds, columns: Sequence[str]) -> pa.Table:
    """The rows with these ids, in this order. A blob column comes as its descriptors, without any content."""
    if not len(row_ids):
        with table.reading():
            return table.dataset.scanner(columns=list(columns), limit=0).to_table()
    # Lance wants plain ints; one call per block keeps its working memory bounded.
    return take(table, row_ids.tolist(), columns)


@dataclass(frozen=True)
class BlobDescriptors:
    """What a blob column says of some rows without their bytes. A null cell is valid in none of the arrays."""

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


def blob_bytes(table: Table, column: str, row_ids: RowIds) -> Iterator[bytes]:
    """The content of managed blobs, one after another; every row must have one."""
    if len(row_ids):
        with table.reading():
            blobs = table.dataset.take_blobs(column, ids=row_ids.tolist())
        for blob in blobs:
            with table.reading():
                content: bytes = blob.readall()
            yield content


def equal_blobs(column: str, left: Table, left_rows: RowIds, right: Table, right_rows: RowIds) -> NDArray[np.bool_]:
    """Whether managed blobs of equal sizes hold the same bytes, pair by pair, a range at a time."""
    if not len(left_rows):
        return np.zeros(0, np.bool_)
    pairs = zip(_opened(left, column, left_rows), _opened(right, column, right_rows), strict=True)
    return np.fromiter((_same_bytes(mine, other) for mine, other in pairs), np.bool_, len(left_rows))


def _opened(table: Table, column: str, row_ids: RowIds) -> Iterator[Callable[[], bytes]]:
    """The blobs of some rows, each as a function that reads its next bytes."""
    with table.reading():
        blobs = table.dataset.take_blobs(column, ids=row_ids.tolist())

    def following(blob: Any) -> bytes:
        with table.reading():
            return bytes(blob.read(_COMPARED_BYTES))

    return (partial(following, blob) for blob in blobs)


def _same_bytes(left: Callable[[], bytes], right: Callable[[], bytes]) -> bool:
    while True:
        mine, other = left(), right()
        if mine != other:
            return False
        if not mine:
            return True
