"""Who is next to whom: compressed sparse rows over the row ids of two node tables.

Made from endpoint pairs, whether those come from a whole edge table or from a few lookups, so both ways of
traversing run on the same structure and can't disagree. Immutable; knows no table and no query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.values.bindings import Indices, Mask, RowSpace
from omnigraph.engine.query.values.counting import Counts, added_up
from omnigraph.storage.ordered import is_ascending
from omnigraph.storage.tables.rows import RowIds

Positions: TypeAlias = NDArray[Any]
"""Indices, 32 bits wide wherever they fit: these arrays are most of a topology."""


def joined(parts: Sequence[RowIds]) -> RowIds:
    """Row ids that were found piece by piece."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class Entries(NamedTuple):
    """Which entries belong to some nodes: how many each has, and where they stand, node after node."""

    counts: NDArray[np.int64]
    at: Indices | slice


class Counting(Protocol):
    """What an adjacency asks of its reverse."""

    def all_counts(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of node i of `sources` are `targets[offsets[i]:offsets[i + 1]]`, positions in `ends`.

    Without `ranks` each neighbour stands once, ascending. With `ranks` there is one entry per stored edge in edge id
    order: `edges[rank]` is the row id of the edge that has this place among all edge ids.
    """

    sources: RowSpace
    ends: RowSpace
    offsets: NDArray[np.int64]
    targets: Positions
    ranks: Positions | None = None
    edges: RowIds | None = None
    reverse: Counting | None = None
    """The same pairs seen from the other end, where somebody has it."""

    @property
    def nbytes(self) -> int:
        arrays = (self.offsets, self.targets, self.ranks, self.edges)
        return sum(array.nbytes for array in arrays if array is not None) + self.sources.nbytes + self.ends.nbytes

    def all_counts(self) -> NDArray[np.int64]:
        """How many neighbours each node of `sources` has."""
        return np.diff(self.offsets)

    def counts(self, nodes: RowIds) -> NDArray[np.int64]:
        return self.counts_of(self.sources.positions(nodes))

    def entries(self, nodes: RowIds) -> Entries:
        return self.entries_of(self.sources.positions(nodes))

    def entries_of(self, positions: Indices) -> Entries:
        """The same by position."""
        if not len(self.sources) or not len(positions):
            return Entries(np.zeros(len(positions), np.int64), np.empty(0, np.int64))
        counts = self.counts_of(positions)
        if is_ascending(positions):
            if int(counts.sum()) == len(self.targets):
                return Entries(counts, slice(0, len(self.targets)))
            if side_by_side(positions):
                return Entries(counts, slice(int(self.offsets[positions[0]]), int(self.offsets[positions[-1] + 1])))
        return Entries(counts, spread(self.offsets[positions], counts))

    def counts_of(self, positions: Indices) -> NDArray[np.int64]:
        """How many neighbours the nodes at these positions have."""
        if not len(self.sources) or not len(positions):
            return np.zeros(len(positions), np.int64)
        if side_by_side(positions):
            return np.diff(self.offsets[positions[0] : positions[-1] + 2])
        counts = self.offsets[positions + 1] - self.offsets[positions]
        return np.where(positions < 0, 0, counts)

    def targets_at(self, at: Indices | slice) -> Positions:
        """The neighbours in these entries by position."""
        return self.targets[at]

    def rows_at(self, at: Indices | slice) -> RowIds:
        """The neighbours in these entries by row id."""
        return self.ends.rows_at(self.targets[at])

    def edges_at(self, at: Indices | slice) -> RowIds:
        assert self.ranks is not None
        assert self.edges is not None
        rows: RowIds = self.edges[self.ranks[at]]
        return rows

    def times_met(self, at: Indices | slice, weights: Counts | None) -> Counts:
        """How often each end stands in these entries, counting an entry as often as its weight says."""
        everything = isinstance(at, slice) and (at.start, at.stop) == (0, len(self.targets))
        if everything and weights is None and self.reverse is not None:
            return self.reverse.all_counts()
        return added_up(self.targets[at], weights, len(self.ends))

    def joined(self, nodes: RowIds, others: RowIds) -> Mask:
        """Whether each node has the one beside it as a neighbour."""
        sources, targets = self.sources.positions(nodes), self.ends.positions(others)
        if not len(self.sources) or not len(self.targets):
            return np.zeros(len(sources), dtype=bool)
        possible = (sources >= 0) & (targets >= 0)
        low, high = np.where(possible, self.offsets[sources], 0), np.where(possible, self.offsets[sources + 1], 0)
        return stands_between(low, high, targets, self.targets_at)


def of_pairs(sources: RowSpace, ends: RowSpace, source: Positions, target: Positions) -> Adjacency:
    """Distinct neighbours, from one pair of positions per edge; parallel edges collapse."""
    bits = max(1, len(ends)).bit_length()
    keys = (source.astype(np.int64) << bits) | target
    keys.sort()
    if len(keys):
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    neighbours = (keys & ((1 << bits) - 1)).astype(position_type(ends))
    return Adjacency(sources, ends, _offsets(keys >> bits, len(sources)), neighbours)


def of_edges(
    sources: RowSpace, ends: RowSpace, source: Positions, target: Positions, ranks: Positions, edges: RowIds
) -> Adjacency:
    """One entry per stored edge. `ranks` says where each entry's edge stands in the order of edge ids."""
    order = np.lexsort((ranks, source))
    return Adjacency(
        sources,
        ends,
        _offsets(source, len(sources)),
        target[order].astype(position_type(ends)),
        ranks[order].astype(np.int32 if len(edges) < 2**31 else np.int64),
        edges,
    )


def either_way(out: Adjacency, back: Adjacency) -> Adjacency:
    """Neighbours along or against the edges of a type whose ends are one node type; a self loop is one edge."""
    size = len(out.sources)
    leaving, arriving = owners(out), owners(back)
    if out.ranks is None or back.ranks is None:
        return of_pairs(
            out.sources,
            out.ends,
            np.concatenate((leaving, arriving)),
            np.concatenate((out.targets, back.targets)).astype(np.int64),
        )
    assert out.edges is not None
    proper = back.targets != arriving
    source = np.concatenate((leaving, arriving[proper]))
    target = np.concatenate((out.targets, back.targets[proper]))
    ranks = np.concatenate((out.ranks, back.ranks[proper]))
    assert size == len(back.sources)
    return of_edges(out.sources, out.ends, source, target, ranks, out.edges)


def position_type(space: RowSpace) -> type[np.integer]:
    return np.int32 if len(space) < 2**31 else np.int64


def side_by_side(positions: Indices) -> bool:
    """Whether nodes lie next to each other, as those of a whole type do: they need no gathering at all."""
    spans = positions[0] >= 0 and positions[-1] - positions[0] == len(positions) - 1
    return bool(spans and is_ascending(positions))


def spread(starts: Indices, counts: NDArray[np.int64]) -> Indices:
    """The entries of lists that begin at `starts` and are `counts` long, list after list."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def stands_between(low: Indices, high: Indices, wanted: Indices, targets_at: Callable[[Indices], Positions]) -> Mask:
    """Whether each wanted target stands among the ascending entries from `low` to before `high`, by halving."""
    end, last = high, max(0, int(high.max(initial=0)) - 1)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        less = open_ & (targets_at(np.minimum(middle, last)) < wanted)
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    found: Mask = (low < end) & (targets_at(np.minimum(low, last)) == wanted)
    return found


def owners(adjacency: Adjacency) -> Indices:
    return np.repeat(np.arange(len(adjacency.sources)), np.diff(adjacency.offsets))


def _offsets(owner: Indices, size: int) -> NDArray[np.int64]:
    return cumulated(np.bincount(owner, minlength=size))


def cumulated(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where lists of these lengths begin, and behind them where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))
