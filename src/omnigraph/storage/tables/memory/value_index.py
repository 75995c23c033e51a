"""Which rows have a text: an index in memory over a column in memory.

Like the columns it is kept by fragment, under the names of immutable files, so a new version of a table needs an index
of its new fragments only. It takes 12 bytes a row: hashes in order, and the row of each. What it finds is compared with
the text itself, and rows that a version no longer has are left out. `rows_with` is the way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.storage.tables.memory.addresses import FragmentRows
from omnigraph.storage.tables.memory.columns import COLUMNS, Codes, StoredColumn, StoredTable, column_key
from omnigraph.storage.tables.memory.key_hashes import Hashes, text_hash, text_hashes
from omnigraph.storage.tables.memory.row_space import RowIds

_INDEX: Final = "index"
# So many texts are looked up at most; for more of them a comparison of the whole column costs less.
MOST_LOOKUPS: Final = 1_000
# The beginning of a text that is hashed, so that a long one does not hold everybody up.
_HASHED_BYTES: Final = 256
# So few are looked up one by one: an array costs more to make.
_FEW_TEXTS: Final = 16
_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ValueIndex:
    """The rows of one fragment by the hash of their text."""

    hashes: Hashes
    offsets: NDArray[np.int32]

    @classmethod
    def of(cls, texts: pa.Array) -> ValueIndex:
        hashes = text_hashes(texts, _HASHED_BYTES)
        offsets = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(hashes[offsets], offsets)

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.offsets.nbytes

    def offsets_of(self, hash: int) -> list[int]:
        """The rows that have this hash."""
        start = end = int(self.hashes.searchsorted(np.uint64(hash)))
        while end < len(self.hashes) and self.hashes[end] == hash:
            end += 1
        offsets: list[int] = self.offsets[start:end].tolist()
        return offsets

    def offsets_of_each(self, hashes: Hashes) -> NDArray[np.int64]:
        """The rows that have one of these hashes."""
        starts = self.hashes.searchsorted(hashes)
        counts = self.hashes.searchsorted(hashes, side="right") - starts
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets: NDArray[np.int64] = self.offsets[np.repeat(starts, counts) + within].astype(np.int64)
        return offsets


def rows_with(table: StoredTable, column: str, texts: Sequence[str]) -> RowIds | None:
    """The row ids of the rows whose text is one of these, ascending. None when the index is not in memory, and has not
    been asked for often enough to be built."""
    if len(texts) > MOST_LOOKUPS or column not in table.columns:
        return None
    if not pa.types.is_string(table.schema.field(column).type) or not COLUMNS.earn(table, [column], len(texts)):
        return None
    if not texts:
        return _NO_ROWS
    wanted = _Wanted(tuple(dict.fromkeys(texts)))
    rows: list[RowIds] = []
    for fragment in table.addresses.fragments:
        stored = COLUMNS.get(column_key(table, fragment, column))
        if stored is None:
            return None
        offsets = _matches(table, fragment, column, stored, wanted)
        if len(offsets):
            live = offsets[~fragment.is_deleted(offsets)] if fragment.deletion_count else offsets
            rows.append(fragment.ids_at(live))
    if not rows:
        return _NO_ROWS
    return rows[0] if len(rows) == 1 and len(rows[0]) < 2 else np.sort(np.concatenate(rows))


class _Wanted:
    """Texts that are looked up in every fragment: what that takes is made once."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.few = [(text, text_hash(text, _HASHED_BYTES)) for text in texts] if len(texts) <= _FEW_TEXTS else None
        self._texts = texts

    @cached_property
    def array(self) -> pa.Array:
        return pa.array(self._texts, pa.string())

    @cached_property
    def hashes(self) -> Hashes:
        return text_hashes(self.array, _HASHED_BYTES)


def _matches(
    table: StoredTable, fragment: FragmentRows, column: str, stored: StoredColumn, wanted: _Wanted
) -> NDArray[np.int64]:
    """The rows of a fragment that have one of the texts, rows that are deleted among them."""
    values = stored.values
    if stored.codes is not None:
        return _coded_matches(values, stored.codes, wanted.array)
    index = _index(table, fragment, column, values)
    if wanted.few is not None:
        each = ((text, offset) for text, hash in wanted.few for offset in index.offsets_of(hash))
        return np.array([offset for text, offset in each if values[offset].as_py() == text], np.int64)
    several = index.offsets_of_each(wanted.hashes)
    same = pc.is_in(values.take(pa.array(several)), value_set=wanted.array)
    return several if same.true_count == len(several) else several[same.to_numpy(zero_copy_only=False)]


def _index(table: StoredTable, fragment: FragmentRows, column: str, texts: pa.Array) -> ValueIndex:
    key = (*column_key(table, fragment, column), _INDEX)
    index: ValueIndex | None = COLUMNS.get(key)
    if index is None:
        index = ValueIndex.of(texts)
        COLUMNS.keep(key, index, index.nbytes)
    return index


def _coded_matches(values: pa.Array, codes: Codes, wanted: pa.Array) -> NDArray[np.int64]:
    chosen = pc.index_in(wanted, value_set=values).drop_null().to_numpy()
    if len(chosen) == 1:
        return np.flatnonzero(codes == chosen[0])
    marks = np.zeros(len(values) + 1, np.bool_)  # the last one is null's
    marks[chosen] = True
    return np.flatnonzero(marks[codes])
