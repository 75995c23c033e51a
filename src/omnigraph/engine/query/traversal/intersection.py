"""Common neighbours: for each pair of nodes, the neighbours that one has in one adjacency and the other in another.

`expand` closes patterns with it, so that a triangle costs the shorter of two neighbour lists for each pair and no row
for each path. Pairs are taken a bounded number of neighbours at a time. The neighbours of one node of a pair are looked
up among those of the other: in a small table of marks, which may err for numbers that are marked alike, and then by
halving, which does not. Where one list is much the longer, the shorter is looked up in it by halving alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, Mask
from omnigraph.engine.query.traversal.adjacency import (
    Neighbours,
    Positions,
    for_reading,
    list_bounds,
    stands_between,
)
from omnigraph.engine.query.traversal.search import SearchContext, bounded_parts
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

# Pairs whose lists are measured together.
_PAIRS_PER_CHECK: Final = 1 << 18
# A list so many times longer than the other is not read: the other one's neighbours are looked up in it.
_LONGER: Final = 8
# Marks fit the cache of a core, and of the marked lists at most so large a share of the table is taken.
_MARKS: Final = 1 << 20
_MARKED_SHARE: Final = 8
# Marking reads a list once for each run of pairs: at most so many entries for each one that is looked up.
_MARKED_PER_LOOKUP: Final = 2
_SPREAD: Final = 2_654_435_769
"""Odd, and far from any regularity of node numbers: lists of different nodes are marked in different places."""
# Numbers of 64 bits that are made of each neighbour that is looked at, and of each pair.
_NUMBERS_PER_HOP: Final = 6
_NUMBERS_PER_PAIR: Final = 12


class Side(NamedTuple):
    """One node of each pair, by position, and where its neighbours come from."""

    neighbours: Neighbours
    nodes: Indices

    def part(self, rows: slice | Indices | Mask) -> Side:
        return Side(self.neighbours, self.nodes[rows])

    @property
    def begins(self) -> Mask:
        """Where the node changes from pair to pair."""
        begins = np.ones(len(self.nodes), np.bool_)
        np.not_equal(self.nodes[1:], self.nodes[:-1], out=begins[1:])
        return begins


class Common(NamedTuple):
    """Common neighbours of some pairs: the pair of each, ascending, and the neighbour, ascending for each pair."""

    pairs: slice
    of_pair: Indices
    """Counted from the first of `pairs`."""
    ends: RowIds


def common_neighbours(left: Side, right: Side, context: SearchContext) -> Iterator[Common]:
    """The common neighbours of all pairs, some pairs at a time. The ends of both adjacencies are nodes of one type."""
    # Each pair reads at least an entry of the longer list, and usually many.
    left, right = (Side(for_reading(side.neighbours, len(side.nodes)), side.nodes) for side in (left, right))
    marks = np.zeros(_MARKS, np.bool_)
    for first in range(0, len(left.nodes), _PAIRS_PER_CHECK):
        block = slice(first, min(first + _PAIRS_PER_CHECK, len(left.nodes)))
        context.budget.step(_NUMBERS_PER_PAIR * 8 * (block.stop - block.start))
        one, other = left.part(block), right.part(block)
        # Marked are the lists of the node that stays while the other one changes.
        marked, looked_up = (one, other) if one.begins.sum() <= other.begins.sum() else (other, one)
        for common in _common_in_block(marked, looked_up, marks, context):
            yield common._replace(pairs=slice(first + common.pairs.start, first + common.pairs.stop))


def _common_in_block(
    marked: Side, looked_up: Side, marks: NDArray[np.bool_], context: SearchContext
) -> Iterator[Common]:
    own, other = marked.neighbours.counts(marked.nodes), looked_up.neighbours.counts(looked_up.nodes)
    is_long = other > _LONGER * own
    hops = np.where((own == 0) | (other == 0), 0, np.where(is_long, own, other))
    for part in bounded_parts(hops):
        count = int(hops[part].sum())
        context.cancellation.check()
        context.work.spend(count)
        context.budget.step(8 * _NUMBERS_PER_HOP * count + marks.nbytes)
        rows, long = hops[part] > 0, is_long[part]
        forth, back = np.flatnonzero(rows & ~long), np.flatnonzero(rows & long)
        near, far = marked.part(part), looked_up.part(part)
        met = _look_up(near, far, forth, marks)
        if len(back):
            turned = _search(far, near, back)
            of_pair, ends = np.concatenate((met[0], turned[0])), np.concatenate((met[1], turned[1]))
            order = np.argsort(of_pair, kind="stable")
            met = of_pair[order], ends[order]
        yield Common(part, *met)


def _look_up(near: Side, far: Side, rows: Indices, marks: NDArray[np.bool_]) -> tuple[Indices, RowIds]:
    """The neighbours of the far nodes of these pairs that the near nodes have too."""
    candidates = _Candidates.of(far.part(rows))
    own = near.part(rows)
    begins = own.begins
    entries = int(own.neighbours.counts(own.nodes[begins]).sum())
    if entries > min(len(marks) // _MARKED_SHARE, _MARKED_PER_LOOKUP * len(candidates.ends)):
        return _verify(near, rows, candidates, None)
    by_position = near.neighbours.ends is far.neighbours.ends
    salts = own.nodes.astype(np.uint32) * np.uint32(_SPREAD)
    marked = _Candidates.of(own.part(begins)).places(salts[begins], by_position=by_position)
    places = candidates.places(salts, by_position=by_position)
    marks[marked] = True
    hits = np.flatnonzero(marks.take(places))
    marks[marked] = False
    return _verify(near, rows, candidates, hits)


def _search(near: Side, far: Side, rows: Indices) -> tuple[Indices, RowIds]:
    """The same, by halving the lists of the near nodes."""
    return _verify(near, rows, _Candidates.of(far.part(rows)), None)


class _Candidates(NamedTuple):
    """All neighbours of some nodes: the number of the node of each, and the neighbour by position."""

    space: RowSpace
    owners: NDArray[np.int32]
    ends: Positions

    @classmethod
    def of(cls, side: Side) -> _Candidates:
        starts, counts = side.neighbours.spans(side.nodes)
        bounds = list_bounds(counts)
        owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        at = (starts - bounds[:-1]).take(owners)
        at += np.arange(len(at))
        return cls(side.neighbours.ends, owners, side.neighbours.targets_at(at))

    def places(self, salts: NDArray[np.uint32], *, by_position: bool) -> NDArray[np.uint32]:
        """Where they are marked, those of each node by its salt. Without `by_position`, ends go by their row ids: the
        two sides number them differently."""
        ends = self.ends if by_position else self.space.rows_at(self.ends)
        places = salts.take(self.owners)
        places += ends.astype(np.uint32)
        places &= np.uint32(_MARKS - 1)
        return places


def _verify(near: Side, rows: Indices, candidates: _Candidates, hits: Indices | None) -> tuple[Indices, RowIds]:
    """Those of the candidates, or of the hits among them, that are neighbours of the near node of their pair."""
    owners, ends, own = candidates.owners, candidates.ends, near.neighbours
    if hits is not None:
        owners, ends = owners[hits], ends[hits]
    starts, counts = own.spans(near.nodes[rows])
    low = starts[owners]
    wanted = ends if own.ends is candidates.space else own.ends.positions(candidates.space.rows_at(ends))
    kept = np.flatnonzero(stands_between(low, low + counts[owners], wanted, own.targets_at))
    return rows[owners[kept]], candidates.space.rows_at(ends[kept])
