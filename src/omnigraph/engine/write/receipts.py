"""Receipts of commits for callers, and the digest of a request that an idempotency key keeps.

The digest tells a repeat of a request from another request with the same key. Preconditions, such as the expected
head, and the actor are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.history import CommitReceipt
from omnigraph.errors import BadRequestError
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.models import LogEntry


def receipt_of(entry: LogEntry) -> CommitReceipt:
    parents = [parent.commit_id for parent in entry.commit.parents]
    return CommitReceipt(
        graph_commit_id=entry.commit.id,
        graph_branch=None if entry.branch == MAIN else entry.branch,
        graph_manifest_version=entry.version,
        parent_commit_id=parents[0] if parents else None,
        merged_parent_commit_id=parents[1] if len(parents) > 1 else None,
        actor_id=entry.commit.actor,
        created_at=entry.commit.authored_at,
    )


class RequestDigest:
    """Built from the kind of a write and its parts, in an order that the kind fixes."""

    def __init__(self, kind: str, *parts: Any) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        try:
            self._hash.update(msgspec.json.encode([kind, *parts], order="deterministic", enc_hook=repr))
        except RecursionError:
            raise BadRequestError("a parameter of the request is nested too deeply") from None

    def watching(self, pieces: bytes | Iterable[bytes]) -> bytes | Iterable[bytes]:
        """The same input, whose bytes become part of the digest as they are read."""
        if isinstance(pieces, bytes):
            self._hash.update(pieces)
            return pieces
        return self._watch(pieces)

    def _watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._hash.update(piece)
            yield piece

    def add_rows(self, rows: pa.Table, made_up: pa.ChunkedArray) -> None:
        """Typed rows become part of the digest by their values alone: in whatever form and chunks they came, and
        whatever columns they left out. Generated ids are not part of the request."""
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            array = column.combine_chunks()
            if name == "id":
                array = pc.if_else(pc.is_in(array, value_set=made_up), pa.scalar(None, pa.string()), array)
            if array.null_count < len(array):
                self._hash.update(msgspec.json.encode([name, len(array)]))
                self._add(array)
        self._hash.update(msgspec.json.encode(["rows", rows.num_rows]))

    def _add(self, array: pa.Array) -> None:
        """The values of a column. What lies in memory below a null is not looked at."""
        self._hash.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        if pa.types.is_struct(array.type):
            for child in array.flatten():
                self._add(child)
            return
        array = array.drop_null()
        if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
            self._hash.update(pc.list_value_length(array).to_numpy(zero_copy_only=False).tobytes())
            self._add(array.flatten())
        elif pa.types.is_string(array.type) or pa.types.is_large_binary(array.type):
            self._hash.update(pc.binary_length(array).to_numpy(zero_copy_only=False).tobytes())
            wide = array.cast(pa.large_binary())
            offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
            if len(wide):
                self._hash.update(memoryview(wide.buffers()[2])[offsets[0] : offsets[-1]])
        else:
            numbers = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
            numbers = numbers.cast(pa.int64()) if pa.types.is_timestamp(numbers.type) else numbers
            self._hash.update(numbers.to_numpy(zero_copy_only=False).tobytes())

    @property
    def text(self) -> str:
        return self._hash.hexdigest()
