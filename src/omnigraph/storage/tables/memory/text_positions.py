"""Where texts are among many others: an open hash table of positions.

Building an adjacency looks up both ends of every edge among the ids of all nodes. Arrow makes its hash table anew for
each lookup and compares text by text; here the table is made once, hashes are computed and followed for many texts at
a time, and what they find is compared at the end. A table takes 16 bytes or less for each text, beside the texts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.storage.tables.memory.key_hashes import Hashes, key_hashes

_BITS_OF_HASH: Final = 64
_ABSENT: Final = -1
# For fewer texts, one lookup by Arrow costs less than the table.
_TABLE_AT_LEAST: Final = 1 << 12
_LOOKED_UP_AT_ONCE: Final = 1 << 18


class TextPositions:
    """The positions of distinct texts, none of them null."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts
        self._table: NDArray[np.int32] | None = None
        if len(texts) >= max(1, _TABLE_AT_LEAST) and pa.types.is_string(texts.type):
            self._hashes = key_hashes([texts])
            # At most half of the table is taken, so a text is found after a step or two.
            self._bits = (2 * len(texts) - 1).bit_length()
            self._table = self._make_table()

    def find(self, wanted: pa.ChunkedArray) -> NDArray[np.int32]:
        """The position of each text, -1 for one that is not there and for null."""
        parts = [np.empty(0, np.int32)]
        for chunk in wanted.chunks:
            for start in range(0, len(chunk), _LOOKED_UP_AT_ONCE):
                parts.append(self._find(chunk.slice(start, _LOOKED_UP_AT_ONCE)))
        return np.concatenate(parts)

    def _find(self, wanted: pa.Array) -> NDArray[np.int32]:
        if self._table is None or wanted.null_count or not pa.types.is_string(wanted.type):
            return self._compare(wanted)
        positions = self._follow(self._table, key_hashes([wanted]))
        hits = np.flatnonzero(positions >= 0)
        some = wanted if len(hits) == len(wanted) else wanted.take(pa.array(hits))
        same = pc.equal(self._texts.take(pa.array(positions[hits])), some)
        if same.true_count < len(hits):  # unequal texts of one hash
            odd = hits[~same.to_numpy(zero_copy_only=False)]
            positions[odd] = self._compare(wanted.take(pa.array(odd)))
        return positions

    def _compare(self, wanted: pa.Array) -> NDArray[np.int32]:
        positions = pc.fill_null(pc.index_in(wanted, value_set=self._texts), _ABSENT)
        return np.asarray(positions.to_numpy(zero_copy_only=False), np.int32)

    def _follow(self, table: NDArray[np.int32], hashes: Hashes) -> NDArray[np.int32]:
        """The first text with each hash, from its slot on; -1 where an empty slot comes before one."""
        slots = self._slots(hashes)
        positions = table.take(slots)
        waiting = np.flatnonzero((positions >= 0) & (self._hashes.take(positions) != hashes))
        while len(waiting):
            slots[waiting] = self._next(slots[waiting])
            positions[waiting] = table[slots[waiting]]
            held = positions[waiting]
            waiting = waiting[(held >= 0) & (self._hashes[held] != hashes[waiting])]
        return positions

    def _make_table(self) -> NDArray[np.int32]:
        table = np.full(1 << self._bits, _ABSENT, np.int32)
        slots = self._slots(self._hashes)
        waiting = np.arange(len(slots))
        while len(waiting):
            wanted = slots[waiting]
            free = table[wanted] == _ABSENT
            # Of several texts that want one slot, one gets it; the others go on to the next.
            table[wanted[free]] = waiting[free]
            waiting = waiting[table[wanted] != waiting]
            slots[waiting] = self._next(slots[waiting])
        return table

    def _slots(self, hashes: Hashes) -> NDArray[np.int64]:
        return (hashes >> np.uint64(_BITS_OF_HASH - self._bits)).astype(np.int64)

    def _next(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        return (slots + 1) & ((1 << self._bits) - 1)
