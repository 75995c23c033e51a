"""One write in memory: per type the rows it writes and the ids it removes; its receipt, and the digest of its request.

Loads, mutations and merges build a `GraphChange`; the constraint stage checks it against the pinned snapshot and
`staging_jobs` turn it into staged table versions. Nothing here reads the graph or decides whether a change is valid.
The digest distinguishes a repeat of a request from another request with the same idempotency key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.rows.columns import as_table_rows, rows_schema
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType
from omnigraph.storage.integer_sets import distinct
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables.staging import StagedTable, Staging

StagingJob: TypeAlias = Callable[[TableState], StagedTable]


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What the rows of one type did to it. `unchanged` rows say what was stored already. `nulled` are the properties
    that stored entities lost because their records left them out."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    nulled: tuple[str, ...] = ()

    @property
    def changes(self) -> ChangeCounts:
        return ChangeCounts(self.inserted, self.updated, self.deleted)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a change stand in the input they came from; `unit` is what the numbers count."""

    unit: str
    numbers: pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class TypeChange:
    """The change of one type.

    `rows` hold the final values of every entity written, in `columns.rows_schema`, one row per id (an input that lists
    a key twice keeps both rows, which is what the constraint stage refuses). `kept` marks, per blob column, the rows
    whose stored blob stays as it is: their cell in `rows` is null and means nothing.
    `replaces` makes `rows` the whole content of the type. `fresh` promises that no id of `rows` is stored yet.
    `kept_ends` marks the rows of stored edges whose ends stay as they are: no rule about ends has to be checked anew.
    With `columns`, all rows are stored already and only these columns change; `rows` have what rules need to see, or
    every column, if they are to be written `whole`.
    `counts` says what the rows change, where the write knows better than the store: it compared their values.
    """

    type: TableType
    rows: pa.Table
    deleted: frozenset[str] = frozenset()
    replaces: bool = False
    fresh: bool = False
    kept: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    kept_ends: NDArray[np.bool_] | None = None
    origin: Origin | None = None
    columns: tuple[str, ...] | None = None
    whole: bool = False
    counts: ChangeCounts | None = None

    @property
    def type_key(self) -> str:
        return self.type.type_key

    @property
    def ids(self) -> pa.ChunkedArray:
        return self.rows.column("id")

    def writes(self, ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Which of `ids` this change writes, as a mask."""
        return pc.is_in(ids, value_set=self.ids)

    @property
    def rows_with_new_ends(self) -> NDArray[np.int64]:
        """The numbers of the rows of edges that are new or may have moved."""
        return np.arange(self.rows.num_rows) if self.kept_ends is None else np.flatnonzero(~self.kept_ends)

    def of_new_ends(self, column: str) -> pa.ChunkedArray:
        """The values that these rows have in a column."""
        values = self.rows.column(column)
        return values if self.kept_ends is None else values.filter(pa.array(~self.kept_ends))

    def where(self, row: int) -> str:
        """The beginning of a message about a row: its place in the input, when it has one."""
        return "" if self.origin is None else f"{self.origin.unit} {self.line(row)}: "

    def line(self, row: int) -> int | None:
        """The number of a row's place in the input."""
        return None if self.origin is None else int(self.origin.numbers[row].as_py())

    def filter(self, keep: NDArray[np.bool_]) -> TypeChange:
        """The change without some of its rows."""
        mask, origin = pa.array(keep), self.origin
        return replace(
            self,
            rows=self.rows.filter(mask),
            kept={column: kept[keep] for column, kept in self.kept.items()},
            kept_ends=None if self.kept_ends is None else self.kept_ends[keep],
            origin=None if origin is None else Origin(origin.unit, origin.numbers.filter(mask)),
        )

    @classmethod
    def removal(cls, type_: TableType, ids: frozenset[str]) -> TypeChange:
        return cls(type_, rows_schema(type_).empty_table(), deleted=ids)

    def staging_job(self, staging: Staging) -> StagingJob:
        """What makes the new version of the type's table out of its version in the captured head."""

        def stage(base: TableState) -> StagedTable:
            if self.replaces or self.fresh:
                write = staging.overwrite if self.replaces else staging.append
                staged = write(base, as_table_rows(self.type, self.rows))
            else:
                staged = staging.change(base, *self._complete_and_patches(), self.deleted)
            return staged if self.counts is None else replace(staged, changes=self.counts)

        return stage

    def _complete_and_patches(self) -> tuple[pa.Table, list[pa.Table]]:
        """Rows that give all their values, and the others in tables without the columns that they keep."""
        columns = None if self.whole else self.columns
        names = rows_schema(self.type).names if columns is None else ["id", *columns]
        kept = {column: mask for column, mask in self.kept.items() if column in names}
        is_partial = np.full(self.rows.num_rows, columns is not None)
        for mask in kept.values():
            is_partial |= mask
        if not is_partial.any():
            return as_table_rows(self.type, self.rows), []
        patches = [
            as_table_rows(self.type, self.rows.filter(pa.array(chosen)).select(columns))
            for chosen, columns in _by_kept_blobs(is_partial, kept, names)
        ]
        return as_table_rows(self.type, self.rows.filter(pa.array(~is_partial))), patches


_MOST_BITS: Final = 62


def _by_kept_blobs(
    rows: NDArray[np.bool_], kept: Mapping[str, NDArray[np.bool_]], names: list[str]
) -> Iterator[tuple[NDArray[np.bool_], list[str]]]:
    """Groups of rows, each with the columns that it writes: by which blobs they keep, or, when that would be more
    groups, all rows without blobs and then the rows of each blob."""
    pattern = np.zeros(len(rows), np.int64)
    for bit, mask in enumerate(kept.values()):
        pattern |= mask.astype(np.int64) << min(bit, _MOST_BITS)
    patterns = distinct(pattern[rows])
    if len(patterns) <= len(kept) + 1 and len(kept) <= _MOST_BITS:
        for bits in patterns:
            dropped = [column for bit, column in enumerate(kept) if bits >> bit & 1]
            yield rows & (pattern == bits), [name for name in names if name not in dropped]
        return
    plain = [name for name in names if name not in kept]
    if len(plain) > 1:
        yield rows, plain
    for column, mask in kept.items():
        if (rows & ~mask).any():
            yield rows & ~mask, ["id", column]


@dataclass(frozen=True)
class GraphChange:
    """The change of the whole graph, by type key. Types that a write does not touch are absent."""

    by_type: Mapping[str, TypeChange]

    @classmethod
    def of(cls, *changes: TypeChange) -> GraphChange:
        return cls({change.type_key: change for change in changes})

    def staging_jobs(self, staging: Staging) -> dict[str, StagingJob]:
        return {key: change.staging_job(staging) for key, change in sorted(self.by_type.items())}


class RequestDigest:
    """Built from the kind of a write and its parts, in an order that the kind fixes."""

    def __init__(self, kind: str, *parts: Any) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        try:
            self._hash.update(msgspec.json.encode([kind, *parts], order="deterministic", enc_hook=repr))
        except RecursionError:
            raise BadRequestError("a parameter of the request is nested too deeply") from None

    def watch(self, pieces: bytes | Iterable[bytes]) -> bytes | Iterable[bytes]:
        """The same input, whose bytes become part of the digest as they are read."""
        return self._watch(pieces) if isinstance(pieces, bytes) else map(self._watch, pieces)

    def _watch(self, piece: bytes) -> bytes:
        self._hash.update(piece)
        return piece

    def add_rows(self, rows: pa.Table, generated: pa.BooleanArray | None) -> None:
        """Typed rows become part of the digest by their values alone: in whatever form and chunks they came, and
        whatever columns they left out. Ids that were `generated` are not part of the request."""
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            array = column.combine_chunks()
            if name == "id" and generated is not None:
                array = pc.if_else(generated, pa.scalar(None, pa.string()), array)
            if array.null_count < len(array):
                self._hash.update(msgspec.json.encode([name, len(array)]))
                self._add(array)
        self._hash.update(msgspec.json.encode(["rows", rows.num_rows]))

    def add_presence(self, present: pa.Table) -> None:
        """Which columns the rows have become part of the digest: a null clears a value, and no column keeps it."""
        for name, column in zip(present.column_names, present.columns, strict=True):
            self._hash.update(msgspec.json.encode([name, "present"]))
            self._hash.update(np.packbits(column.to_numpy()).tobytes())

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
