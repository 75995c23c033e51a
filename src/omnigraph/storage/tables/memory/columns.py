"""Columns of table versions in memory, decoded once and shared by every handle of the process.

A column is kept fragment by fragment, under the names of the fragment's data files and the column's field id, so it
never goes stale: the next version of a table shares every column of the fragments it keeps, and a commit costs what it
added. Texts that repeat are kept as codes. `whole` puts the fragments of a version together, in the order of their row
ids; `take` reads some rows where they are. A column that is not in memory is loaded when the reads of it have cost as
much as loading it, or at once when a read needs all of it. What does not fit is read from the files, as if nothing were
kept. Only the names of immutable files decide what is found, so an eviction costs time and never a row.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import IntegrityError, ResourceLimitError
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache, RecentlyUsed, bytes_from_environment
from omnigraph.storage.integer_sets import is_ascending
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.memory.addresses import NOWHERE, OFFSET_BITS, OFFSET_MASK, FragmentRows, RowAddresses
from omnigraph.storage.tables.memory.row_space import RowIds, RowSpace

LIMIT_VARIABLE = "OMNIGRAPH_COLUMN_CACHE_BYTES"

Codes: TypeAlias = NDArray[np.int32]
ColumnKey: TypeAlias = tuple[str, ...]
"""The dataset, the data files of a fragment, and the field id of a column."""

_DEFAULT_BYTES: Final = 1 << 30
# One column may take this share of all memory for columns.
_SHARE_OF_ONE: Final = 4
_INT32_OFFSETS: Final = 1 << 31

# Fragments of fewer rows are read together.
_READ_TOGETHER: Final = 1 << 15
_LOADING_LOCKS: Final = 64
# Rows of more columns are read from the files.
_MOST_TAKEN: Final = 64
# A column that was too large is tried again when its table has this many times fewer rows.
_SHRUNK: Final = 2
_MOST_LOSSES: Final = 3
# Columns of which something is noted, and combinations of them.
_REMEMBERED: Final = 4_096
# What a column in memory takes besides its values.
_ENTRY_BYTES: Final = 1_024
# Seconds between two looks at the limits of a query that waits for another one to load.
_LOOK_AFTER: Final = 0.02

# A text column is coded if a sample of it repeats this often, and all of it does.
_SAMPLE: Final = 1 << 14
_REPEATS: Final = 4
_FEWEST_CODED: Final = 1 << 10

# What a read from the files earns towards loading the column: measured on a local disk, a request costs as much as
# decoding so many bytes in sequence, and each row of it as many as these.
_BYTES_PER_READ: Final = 1_000_000
_BYTES_PER_ROW: Final = 100_000
_TEXT_BYTES: Final = 24
_LIST_BYTES: Final = 64
_VECTOR_ITEM_BYTES: Final = 4


class StoredTable(Protocol):
    """What a table version tells of itself, and its columns as its files hold them."""

    @property
    def state(self) -> TableState: ...

    @property
    def uri(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def columns(self) -> frozenset[str]: ...

    @property
    def field_ids(self) -> Mapping[str, int]: ...

    @property
    def addresses(self) -> RowAddresses: ...

    @property
    def is_local(self) -> bool: ...

    def check_watch(self) -> None: ...

    def physical_batches(self, columns: Sequence[str], fragment_ids: Sequence[int]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """The values of some rows. With codes, each row has the position of its value, and null is negative; without, the
    values are one per row."""

    values: pa.Array
    codes: Codes | None = None

    def __len__(self) -> int:
        return len(self.values) if self.codes is None else len(self.codes)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + (0 if self.codes is None else self.codes.nbytes)

    def take(self, positions: NDArray[np.int64]) -> pa.Array:
        """The values of some rows, one for each."""
        if self.codes is None:
            return self.values.take(pa.array(positions))
        codes = self.codes[positions]
        return self.values.take(pa.array(codes, mask=codes < 0))

    def select(self, positions: NDArray[np.int64]) -> StoredColumn:
        """The column of some rows."""
        if self.codes is None:
            return StoredColumn(self.values.take(pa.array(positions)))
        return StoredColumn(self.values, self.codes[positions])


class VersionRows:
    """The live rows of a table version: their ids, ascending, and where each is among the physical rows of the
    fragments, one fragment after the other."""

    def __init__(self, fragments: Sequence[FragmentRows]) -> None:
        self.order: NDArray[np.int64] | None = None
        """The physical row of each; None where they are the same, one by one."""
        ids = [fragment.live_row_ids() for fragment in fragments if fragment.physical_rows]
        row_ids = ids[0] if len(ids) == 1 else np.concatenate([np.empty(0, np.int64), *ids])
        if any(fragment.deletion_count for fragment in fragments) or not is_ascending(row_ids):
            # Updated rows come last. A stable sort merges what is in order already.
            order = np.argsort(row_ids, kind="stable")
            row_ids, self.order = row_ids[order], _live_places(fragments)[order]
        self.space = RowSpace(row_ids)

    @property
    def nbytes(self) -> int:
        return self.space.nbytes_of_all + (0 if self.order is None else self.order.nbytes)


def _live_places(fragments: Sequence[FragmentRows]) -> NDArray[np.int64]:
    """Where the live rows are among the physical rows of the fragments."""
    starts = np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])
    return np.concatenate([start + f.live_offsets() for start, f in zip(starts.tolist(), fragments, strict=False)])


class ColumnMemory(ByteBoundCache[Any]):
    """The columns of this process. Values are `StoredColumn`s of fragments and of whole versions, and `VersionRows`."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(bytes_from_environment(LIMIT_VARIABLE, _DEFAULT_BYTES) if limit is None else limit)
        self._credit: RecentlyUsed[tuple[str, str], int] = RecentlyUsed(_REMEMBERED)
        self._credit_lock = threading.Lock()
        self._too_large: RecentlyUsed[tuple[str, int], int] = RecentlyUsed(_REMEMBERED)
        self._losses: RecentlyUsed[tuple[str, int], int] = RecentlyUsed(_REMEMBERED)
        self._used: RecentlyUsed[tuple[str, int], bool] = RecentlyUsed(_REMEMBERED)
        self._loading = [threading.Lock() for _ in range(_LOADING_LOCKS)]

    # Whole columns

    def rows(self, table: StoredTable) -> VersionRows:
        """The rows of a version."""
        key = table.uri, table.key
        if (rows := self.get(key)) is None:
            rows = VersionRows(table.addresses.fragments)
            self.keep(key, rows, rows.nbytes)
        return rows

    def whole(self, table: StoredTable, columns: Sequence[str]) -> dict[str, StoredColumn] | None:
        """Whole columns of a version in the order of its row ids; None when they can't be kept in memory."""
        if not columns or not all(is_kept(table, name) for name in columns) or not self._load(table, columns):
            return None
        whole = {name: self._join(table, name) for name in columns}
        if lost := [name for name, column in whole.items() if column is None]:
            self._note_loss(table, lost)
            return None
        return {name: column for name, column in whole.items() if column is not None}

    def _join(self, table: StoredTable, name: str) -> StoredColumn | None:
        key = table.uri, table.key, str(table.field_ids[name])
        joined: StoredColumn | None = self.get(key)
        if joined is not None:
            return joined
        rows = self.rows(table)
        parts: list[StoredColumn] = []
        for fragment in table.addresses.fragments:
            if (part := self.get(column_key(table, fragment, name))) is None:
                return None  # evicted since it was loaded
            parts.append(part)
        if len(parts) == 1 and rows.order is None:
            return parts[0]
        column = _concatenate(parts, table.schema.field(name).type)
        if rows.order is not None:
            column = column.select(rows.order)
        self._keep_column(key, column)
        return column

    # Some rows

    def take(self, table: StoredTable, row_ids: RowIds, columns: Sequence[str]) -> pa.Table | None:
        """Columns of the rows with these ids, in this order; None when they are not in memory, or the version does not
        have all of these rows."""
        if not 0 < len(columns) <= _MOST_TAKEN or not self.earn(table, columns, len(row_ids)):
            return None
        return self._take(table, row_ids, columns)

    def _take(self, table: StoredTable, row_ids: RowIds, columns: Sequence[str]) -> pa.Table | None:
        addresses = table.addresses.addresses(row_ids, live=not table.is_local)
        if (addresses == NOWHERE).any():
            return None
        arrays = {name: self.at(table, addresses, name) for name in columns}
        if any(array is None for array in arrays.values()):
            return None
        schema = pa.schema([table.schema.field(name) for name in columns])
        return pa.table([arrays[name] for name in columns], schema=schema)

    def take_of(
        self, table: StoredTable, fragments: Sequence[FragmentRows], row_ids: RowIds, columns: Sequence[str]
    ) -> pa.Table | None:
        """The same for rows of these fragments alone, which earn nothing."""
        held = all(column_key(table, fragment, name) in self for fragment in fragments for name in columns)
        return self._take(table, row_ids, columns) if held else None

    def at(self, table: StoredTable, addresses: NDArray[np.int64], name: str) -> pa.Array | None:
        """The values of a column at some row addresses; None when a fragment of them is not in memory."""
        fragments = addresses >> OFFSET_BITS
        offsets = addresses & OFFSET_MASK
        by_id = table.addresses.by_id
        if len(addresses) and (fragments == fragments[0]).all():
            part = self.get(column_key(table, by_id[int(fragments[0])], name))
            return None if part is None else part.take(offsets)
        order = np.argsort(fragments, kind="stable")
        parts = []
        for own in np.split(order, np.flatnonzero(np.diff(fragments[order])) + 1):
            if not len(own):
                continue
            part = self.get(column_key(table, by_id[int(fragments[own[0]])], name))
            if part is None:
                return None
            parts.append(part.take(offsets[own]))
        if not parts:
            return pa.array([], table.schema.field(name).type)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))

    # Loading

    def remember(self, table: StoredTable, base: StoredTable, rows: pa.Table) -> None:
        """What a writer of this process has added to a version, as one fragment: of columns that are in memory for the
        version before, so that the next reader need not ask the files."""
        before = {fragment.files for fragment in base.addresses.fragments}
        added = [fragment for fragment in table.addresses.fragments if fragment.files not in before]
        if len(added) != 1 or added[0].physical_rows != rows.num_rows or rows.num_rows > _READ_TOGETHER:
            return
        for name in rows.column_names:
            if self._used.get((table.uri, table.field_ids[name])):
                column = encode(one_piece(rows.column(name).cast(table.schema.field(name).type)))
                self._keep_column(column_key(table, added[0], name), column)

    def _keep_column(self, key: ColumnKey, column: StoredColumn) -> None:
        self.keep(key, column, column.nbytes + _ENTRY_BYTES)

    def holds(self, table: StoredTable, columns: Sequence[str]) -> bool:
        """Whether whole columns of a version are in memory."""
        return next(self._missing(table, columns), None) is None

    def earn(self, table: StoredTable, columns: Sequence[str], rows: int) -> bool:
        """Whether columns are in memory, for a read that else goes to the files for so many rows. Each such read earns
        what it costs; what is missing is loaded once that is earned."""
        if not all(is_kept(table, name) for name in columns):
            return False
        missing = list(self._missing(table, columns))
        if not missing:
            return True
        price = sum(fragment.physical_rows * value_bytes(table, name) for fragment, name in missing)
        account = table.uri, "\n".join(columns)
        with self._credit_lock:
            earned = len(columns) * (_BYTES_PER_READ + _BYTES_PER_ROW * rows)
            credit = min((self._credit.pop(account) or 0) + earned, self.limit)
            if credit < price:
                self._credit[account] = credit
                return False
        return self._load(table, columns, waits=False)

    def _missing(self, table: StoredTable, columns: Sequence[str]) -> Iterator[tuple[FragmentRows, str]]:
        for fragment in table.addresses.fragments:
            for name in columns:
                if column_key(table, fragment, name) not in self:
                    yield fragment, name

    def _load(self, table: StoredTable, columns: Sequence[str], *, waits: bool = True) -> bool:
        """Bring whole columns into memory; False when they are too large for it, or for the query that reads them. One
        thread at a time loads columns of a table; the others wait for it, or with `waits=False` read the files."""
        if self.holds(table, columns):
            return True
        loading = self._loading[hash(table.uri) % len(self._loading)]
        while not loading.acquire(timeout=_LOOK_AFTER if waits else 0):
            if not waits:
                return False
            table.check_watch()
        try:
            return self._load_missing(table, columns)
        except ResourceLimitError:
            return False
        finally:
            loading.release()

    def _load_missing(self, table: StoredTable, columns: Sequence[str]) -> bool:
        missing: dict[FragmentRows, list[str]] = {}
        for fragment, name in self._missing(table, columns):
            missing.setdefault(fragment, []).append(name)
        names = {name for own in missing.values() for name in own}
        if any(self._is_too_large(table, name) for name in names):
            return False
        room = self._most * len(names) - self._held_of(table, names)
        for own, fragments in _together(missing):
            nbytes = self._read(table, fragments, own, room)
            if nbytes is None:
                self._give_up(table, names)
                return False
            room -= nbytes
        return True

    def _read(
        self, table: StoredTable, fragments: Sequence[FragmentRows], columns: Sequence[str], room: int
    ) -> int | None:
        """Read columns of some fragments and keep them; the bytes that they take, None when these are too many."""
        batches = []
        nbytes = 0
        for batch in table.physical_batches(columns, [fragment.id for fragment in fragments]):
            nbytes += batch.nbytes
            if nbytes > self._most * len(columns):
                return None
            batches.append(batch)
        read = pa.Table.from_batches(batches)
        rows = sum(fragment.physical_rows for fragment in fragments)
        if read.num_rows != rows:
            raise IntegrityError(table.state.path, f"some fragments have {read.num_rows} rows, not {rows}")
        for name in columns:
            self._used[table.uri, table.field_ids[name]] = True
        start = kept = 0
        for fragment in fragments:
            for name in columns:
                part = read.column(name).slice(start, fragment.physical_rows)
                column = encode(part.combine_chunks() if len(fragments) == 1 else one_piece(part))
                self._keep_column(column_key(table, fragment, name), column)
                kept += column.nbytes
            start += fragment.physical_rows
        return kept if kept <= room else None

    def _held_of(self, table: StoredTable, columns: Collection[str]) -> int:
        keys = (column_key(table, fragment, name) for fragment in table.addresses.fragments for name in columns)
        return sum(column.nbytes for key in keys if key in self and (column := self.get(key)) is not None)

    # Columns that do not fit

    def _is_too_large(self, table: StoredTable, name: str) -> bool:
        """Whether a column would take more than its share, by its type or as it turned out before: for the table as it
        was then, or not much smaller."""
        rows = self._too_large.get((table.uri, table.field_ids[name]))
        return table.state.rows * value_bytes(table, name) > self._most or (
            rows is not None and table.state.rows * _SHRUNK > rows
        )

    def _give_up(self, table: StoredTable, columns: Iterable[str]) -> None:
        for name in columns:
            self._too_large[table.uri, table.field_ids[name]] = table.state.rows

    def _note_loss(self, table: StoredTable, columns: Sequence[str]) -> None:
        """Columns were evicted between loading and use. What happens to them again and again does not fit."""
        for name in columns:
            key = table.uri, table.field_ids[name]
            losses = self._losses[key] = (self._losses.get(key) or 0) + 1
            if losses >= _MOST_LOSSES:
                self._give_up(table, [name])

    @property
    def _most(self) -> int:
        """The bytes that a column may take."""
        return self.limit // _SHARE_OF_ONE

    def clear(self) -> None:
        super().clear()
        for noted in (self._credit, self._used, self._too_large, self._losses):
            noted.clear()


COLUMNS: Final = SHARED_MEMORY.add("columns", ColumnMemory())


def column_key(table: StoredTable, fragment: FragmentRows, name: str) -> ColumnKey:
    return (table.uri, *fragment.files, str(table.field_ids[name]))


def is_kept(table: StoredTable, name: str) -> bool:
    """Whether a column is of a type that is kept in memory: content of blobs is not."""
    if name not in table.columns:
        return False
    type_ = table.schema.field(name).type
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        type_ = type_.value_type
    return bool(pa.types.is_primitive(type_) or pa.types.is_string(type_))


def value_bytes(table: StoredTable, name: str) -> int:
    """What a value of a column takes, about."""
    type_ = table.schema.field(name).type
    if pa.types.is_string(type_):
        return _TEXT_BYTES
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * _VECTOR_ITEM_BYTES
    return _LIST_BYTES if pa.types.is_nested(type_) else max(1, type_.bit_width // 8)


def encode(array: pa.Array) -> StoredColumn:
    """A column as it is kept: texts that repeat become codes."""
    if not pa.types.is_string(array.type) or len(array) < _FEWEST_CODED:
        return StoredColumn(array)
    sample = array.slice(len(array) // 2, _SAMPLE) if len(array) > 2 * _SAMPLE else array
    if pc.count_distinct(sample).as_py() * _REPEATS > len(sample):
        return StoredColumn(array)
    encoded = array.dictionary_encode()
    if len(encoded.dictionary) * _REPEATS > len(array):
        return StoredColumn(array)
    return StoredColumn(encoded.dictionary, _codes(encoded.indices))


def _codes(indices: pa.Array) -> Codes:
    filled = pc.fill_null(indices, -1) if indices.null_count else indices
    codes: Codes = filled.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return codes


def _concatenate(parts: Sequence[StoredColumn], type_: pa.DataType) -> StoredColumn:
    """The columns of fragments one after the other. The codes of the largest stay as they are."""
    coded = [part for part in parts if part.codes is not None]
    plain = sum(len(part) for part in parts if part.codes is None)
    if not coded or plain * _REPEATS > sum(map(len, coded)):
        arrays = [part.values if part.codes is None else part.take(np.arange(len(part))) for part in parts]
        if sum(array.nbytes for array in arrays) >= _INT32_OFFSETS:
            arrays = [array.cast(wide_type(type_)) for array in arrays]
        return StoredColumn(pa.concat_arrays(arrays) if arrays else pa.array([], type_))
    largest = max(coded, key=len)
    values = largest.values
    codes = []
    for part in parts:
        if part is largest and part.codes is not None:
            codes.append(part.codes)
            continue
        own = pc.index_in(part.values, value_set=values)
        fresh = part.values.filter(pc.and_(own.is_null(), part.values.is_valid())).unique()
        if len(fresh):
            values = pa.concat_arrays([values, fresh])
            own = pc.index_in(part.values, value_set=values)
        numbers = _codes(own)
        codes.append(numbers if part.codes is None else np.where(part.codes < 0, -1, numbers[part.codes]))
    return StoredColumn(values, np.concatenate(codes).astype(np.int32, copy=False))


def _together(missing: Mapping[FragmentRows, list[str]]) -> Iterator[tuple[list[str], list[FragmentRows]]]:
    """What is read in one scan: a large fragment by itself, small ones that lack the same columns together."""
    small: dict[tuple[str, ...], list[FragmentRows]] = {}
    for fragment, names in missing.items():
        if fragment.physical_rows > _READ_TOGETHER:
            yield names, [fragment]
        else:
            small.setdefault(tuple(names), []).append(fragment)
    for columns, fragments in small.items():
        yield list(columns), fragments


def one_piece(part: pa.ChunkedArray) -> pa.Array:
    """An array of its own: it shares no memory with larger ones, so an eviction frees it."""
    return part.take(pa.array(np.arange(len(part)))).combine_chunks()


def wide_type(type_: pa.DataType) -> pa.DataType:
    """The type whose arrays hold any number of bytes: texts, and lists of them, end at 2 GiB otherwise."""
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_list(type_):
        return pa.large_list(type_.value_field.with_type(wide_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(wide_type(field.type)) for field in type_])
    return type_
