"""Row ids to row addresses, and which rows of a fragment were deleted: from the manifest, without reading any column.

Reads and writes of single rows go through `Table.addresses`. Lance builds an index of all row ids for each version that
has updates or deletes, and keeps none for a detached version; here the rows of a fragment are derived once in a
process, whatever versions it is part of, so the next version costs its changed fragments. A row has a place in every
fragment that ever held it, and lives in at most one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from lance.fragment import RowIdSequence
from numpy.typing import NDArray

from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache
from omnigraph.storage.integer_sets import find_positions, is_ascending
from omnigraph.storage.location import Location
from omnigraph.storage.tables.disk.copied_dataset import CopiedDataset
from omnigraph.storage.tables.memory.deletions import Offsets, read_deletions

OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
NOWHERE: Final = -1
"""The address of a row that a version does not have."""

_NO_OFFSETS: Final = np.empty(0, np.uint32)
_BYTES: Final = 256 << 20
_BYTES_PER_FRAGMENT: Final = 512
_BYTES_PER_LISTED_ROW: Final = 20
_BYTES_PER_DELETED_ROW: Final = 4


class FragmentRows:
    """The rows of one fragment, those that were deleted included. Immutable: deleting more makes another object."""

    def __init__(
        self,
        fragment_id: int,
        row_ids: range | NDArray[np.int64],
        deletion_count: int = 0,
        read: Callable[[], Offsets] | None = None,
        files: tuple[str, ...] = (),
    ) -> None:
        self.id = fragment_id
        self.files = files
        """The names of its data files, which hold the columns of no other fragment."""
        self.row_ids = row_ids
        """The row id at every offset; a range when they follow each other."""
        self.deletion_count = deletion_count
        self._read = read
        self._before: FragmentRows | None = None

    def with_deletions(self, count: int, read: Callable[[], Offsets]) -> FragmentRows:
        """The fragment with the deletions of another version."""
        rows = FragmentRows(self.id, self.row_ids, count, read, self.files)
        rows._before = self
        return rows

    @property
    def physical_rows(self) -> int:
        return len(self.row_ids)

    @property
    def live_rows(self) -> int:
        return len(self.row_ids) - self.deletion_count

    @property
    def nbytes(self) -> int:
        listed = 0 if self._before is not None or isinstance(self.row_ids, range) else len(self.row_ids)
        return _BYTES_PER_FRAGMENT + _BYTES_PER_LISTED_ROW * listed + _BYTES_PER_DELETED_ROW * self.deletion_count

    @cached_property
    def deleted(self) -> Offsets:
        """The offsets of deleted rows, ascending. The deletion file is read when they are asked for first."""
        return self._read() if self._read is not None else _NO_OFFSETS

    def live_offsets(self) -> NDArray[np.int64]:
        """The offsets of the rows that were not deleted, ascending."""
        lives = np.ones(self.physical_rows, np.bool_)
        lives[self.deleted] = False
        return np.flatnonzero(lives)

    def live_row_ids(self) -> NDArray[np.int64]:
        """The row ids of the rows that were not deleted, in the order of a scan."""
        return self.ids_at(self.live_offsets())

    def ids_at(self, offsets: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        if isinstance(self.row_ids, range):
            return offsets.astype(np.int64) + self.row_ids.start
        ids: NDArray[np.int64] = self.row_ids[offsets]
        return ids

    def is_deleted(self, offsets: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        return find_positions(self.deleted, offsets.astype(np.uint32))[1]

    def ranks(self, offsets: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The position of each of these rows, which live here, among the rows that do: Lance's API counts them so."""
        return offsets.astype(np.int64) - np.searchsorted(self.deleted, offsets.astype(np.uint32))

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least row id and the greatest."""
        if self._before is not None:
            return self._before.span
        if isinstance(self.row_ids, range):
            return self.row_ids.start, self.row_ids.stop - 1
        return (int(self.row_ids.min()), int(self.row_ids.max())) if len(self.row_ids) else (0, -1)

    def places(self, row_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The offset of each row, deleted or not; `NOWHERE` for rows that this fragment never held."""
        if isinstance(self.row_ids, range):
            offsets = row_ids - self.row_ids.start
            return np.where((offsets >= 0) & (offsets < len(self.row_ids)), offsets, NOWHERE)
        ordered, offsets_of = self._by_row_id
        positions, is_here = find_positions(ordered, row_ids)
        return np.where(is_here, positions if offsets_of is None else offsets_of[positions].astype(np.int64), NOWHERE)

    @cached_property
    def _by_row_id(self) -> tuple[NDArray[np.int64], NDArray[np.uint32] | None]:
        """The row ids, ascending, and the offset of each; no offsets when they ascend as they are."""
        if self._before is not None:
            return self._before._by_row_id
        ids = np.asarray(self.row_ids, np.int64)
        if is_ascending(ids):
            return ids, None
        order = np.argsort(ids, kind="stable")
        return ids[order], order.astype(np.uint32)


_FRAGMENTS: Final[ByteBoundCache[FragmentRows]] = SHARED_MEMORY.add("row addresses", ByteBoundCache(_BYTES))


class RowAddresses:
    """The rows of one table version: every fragment, and the address of every row."""

    def __init__(self, fragments: Sequence[FragmentRows]) -> None:
        self.fragments = tuple(fragments)
        """In the order of a scan."""
        self.by_id = {fragment.id: fragment for fragment in fragments}
        # Most rows are in fragments with ranges of ids that no other one of these holds: they are found by bisection.
        # The others are asked one after the other, those that were written last first.
        self._disjoint, self._others = _split(self.fragments)
        self._starts = np.array([fragment.span[0] for fragment in self._disjoint], np.int64)
        self._ends = np.array([fragment.span[1] for fragment in self._disjoint], np.int64)
        self._bases = np.array([fragment.id << OFFSET_BITS for fragment in self._disjoint], np.int64)
        self._is_whole = np.array([not fragment.deletion_count for fragment in self._disjoint], np.bool_)
        self._other_spans = np.array([fragment.span for fragment in self._others], np.int64).reshape(-1, 2)

    @classmethod
    def of(cls, path: str, fragments: Sequence[Any], location: Location, dataset: Any) -> RowAddresses:
        """Of the fragments of an open version of the table in this folder."""
        folder = location.child(path)
        copy = dataset.folder if isinstance(dataset, CopiedDataset) else None
        return cls([_fragment_rows(path, folder, fragment, location, copy) for fragment in fragments])

    def addresses(self, row_ids: NDArray[np.int64], *, live: bool = False) -> NDArray[np.int64]:
        """The address of each row, its fragment above and its offset below; `NOWHERE` for rows that this version does
        not have. With `live` the caller knows that it has all of them, and deletion files are read only where a row has
        several places."""
        addresses = np.full(len(row_ids), NOWHERE, np.int64)
        thinned = []
        for fragment, at, offsets in self._places(row_ids, addresses):
            if fragment.deletion_count:
                thinned.append((fragment, at, offsets))
            else:
                addresses[at] = (fragment.id << OFFSET_BITS) + offsets
        places = np.zeros(len(row_ids), np.int64)
        for _, at, _ in thinned:
            places[at] += 1
        for fragment, at, offsets in thinned:
            missing = addresses[at] == NOWHERE
            at, offsets = at[missing], offsets[missing]
            if len(at) and not (live and (places[at] == 1).all()):
                lives = ~fragment.is_deleted(offsets)
                at, offsets = at[lives], offsets[lives]
            addresses[at] = (fragment.id << OFFSET_BITS) + offsets
        return addresses

    def _places(
        self, row_ids: NDArray[np.int64], addresses: NDArray[np.int64]
    ) -> Iterator[tuple[FragmentRows, NDArray[np.int64], NDArray[np.int64]]]:
        """Fragments that hold some of the rows, with the positions of those rows and their offsets there. Rows in a
        fragment that lost none are put into `addresses` at once."""
        if not len(row_ids):
            return
        if self._disjoint:
            nearest = np.maximum(np.searchsorted(self._starts, row_ids, side="right") - 1, 0)
            is_here = (row_ids >= self._starts[nearest]) & (row_ids <= self._ends[nearest])
            at = np.flatnonzero(is_here & self._is_whole[nearest])
            addresses[at] = self._bases[nearest[at]] + row_ids[at] - self._starts[nearest[at]]
            at = np.flatnonzero(is_here & ~self._is_whole[nearest])
            order = at[np.argsort(nearest[at], kind="stable")]
            for group in np.split(order, np.flatnonzero(np.diff(nearest[order])) + 1):
                if len(group):
                    fragment = self._disjoint[nearest[group[0]]]
                    yield fragment, group, row_ids[group] - fragment.span[0]
        if self._others:
            near = (self._other_spans[:, 0] <= row_ids.max()) & (self._other_spans[:, 1] >= row_ids.min())
            for number in np.flatnonzero(near).tolist():
                offsets = self._others[number].places(row_ids)
                at = np.flatnonzero(offsets != NOWHERE)
                if len(at):
                    yield self._others[number], at, offsets[at]


def _split(fragments: Sequence[FragmentRows]) -> tuple[list[FragmentRows], list[FragmentRows]]:
    """Fragments with ranges that don't meet, ascending; and the others, newest first."""
    ranges = [fragment for fragment in fragments if isinstance(fragment.row_ids, range) and fragment.physical_rows]
    disjoint: list[FragmentRows] = []
    for fragment in sorted(ranges, key=lambda fragment: (fragment.span[0], -fragment.physical_rows)):
        if not disjoint or fragment.span[0] > disjoint[-1].span[1]:
            disjoint.append(fragment)
    chosen = {fragment.id for fragment in disjoint}
    return disjoint, [fragment for fragment in reversed(fragments) if fragment.id not in chosen]


def _fragment_rows(path: str, folder: str, fragment: Any, location: Location, copy: Path | None) -> FragmentRows:
    metadata = fragment.metadata
    # The same data file may be committed twice with other new row ids, but then on other versions.
    updated = metadata.last_updated_at_version_meta
    files = tuple(file.path for file in metadata.files)
    key = (folder, fragment.fragment_id, files, updated and updated.json())
    whole = _FRAGMENTS.get(key)
    if whole is None:
        whole = FragmentRows(fragment.fragment_id, _row_ids(metadata), files=files)
        _FRAGMENTS.keep(key, whole, whole.nbytes)
    name = fragment.deletion_file()
    if name is None:
        return whole
    rows = _FRAGMENTS.get((*key, name))
    if rows is None:
        count = metadata.num_deletions
        local = None if copy is None else copy / name
        rows = whole.with_deletions(count, partial(read_deletions, location, f"{path}/{name}", count, local))
        _FRAGMENTS.keep((*key, name), rows, rows.nbytes)
    return rows


def _row_ids(metadata: Any) -> range | NDArray[np.int64]:
    sequence = RowIdSequence.from_inline_metadata(metadata.row_id_meta)
    ids: NDArray[np.int64] = sequence.to_pyarrow().to_numpy().view(np.int64)
    if len(ids) and is_ascending(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1:
        return range(int(ids[0]), int(ids[-1]) + 1)
    return ids
