"""Adjacency: compressed sparse rows over the row ids of two node tables, with small changes layered over a shared base.

Built from endpoint pairs, whether they come from a whole edge table or from a few lookups, so both ways of traversing
run on the same structure. A layer holds the neighbour lists that differ from the base; it stays small
(`is_due_for_merge`) and gives the same entries as the merged adjacency. Immutable; knows neither tables nor queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Counts, Indices, Mask, added_up
from omnigraph.storage.integer_sets import distinct, find_positions, is_ascending, is_member, union
from omnigraph.storage.tables.memory.row_space import GrownRowSpace, RowSpace
from omnigraph.storage.tables.rows import RowIds

Positions: TypeAlias = NDArray[Any]
"""Indices, 32 bits wide wherever they fit: these arrays are most of a topology."""


class Entries(NamedTuple):
    """Which entries belong to some nodes: how many each has, and where they are, node after node."""

    counts: NDArray[np.int64]
    at: Indices | slice


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of node i of `sources` are `targets[offsets[i]:offsets[i + 1]]`, positions in `ends`. Without
    `ranks` each neighbour occurs once, ascending. With `ranks` there is one entry per stored edge in edge id order:
    `edges[rank]` is the row id of the edge that has this rank among all edge ids."""

    sources: RowSpace
    ends: RowSpace
    offsets: NDArray[np.int64]
    targets: Positions
    ranks: Positions | None = None
    edges: RowIds | None = None
    reverse: Neighbours | None = None
    """The same pairs from the other end, if known."""

    @property
    def nbytes(self) -> int:
        arrays = (self.offsets, self.targets, self.ranks, self.edges)
        return sum(array.nbytes for array in arrays if array is not None) + self.sources.nbytes + self.ends.nbytes

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self.targets)

    def all_counts(self) -> NDArray[np.int64]:
        """How many neighbours each node of `sources` has."""
        return np.diff(self.offsets)

    def counts(self, positions: Indices) -> NDArray[np.int64]:
        """How many neighbours the nodes at these positions have; none at -1."""
        if not len(self.sources) or not len(positions):
            return np.zeros(len(positions), np.int64)
        if side_by_side(positions):
            return np.diff(self.offsets[positions[0] : positions[-1] + 2])
        counts = self.offsets[positions + 1] - self.offsets[positions]
        return np.where(positions < 0, 0, counts)

    def entries(self, positions: Indices) -> Entries:
        counts = self.counts(positions)
        if len(positions) and is_ascending(positions):
            if int(counts.sum()) == self.size:
                return Entries(counts, slice(0, self.size))
            if side_by_side(positions):
                return Entries(counts, slice(int(self.offsets[positions[0]]), int(self.offsets[positions[-1] + 1])))
        return Entries(counts, spread(self.offsets[positions], counts))

    def targets_at(self, at: Indices | slice) -> Positions:
        """The neighbours in these entries by position."""
        return self.targets[at] if isinstance(at, slice) else self.targets.take(at)

    def spans(self, positions: Indices) -> tuple[Indices, NDArray[np.int64]]:
        """Where the lists of these nodes begin and how long they are."""
        return self.offsets[positions], self.counts(positions)

    def edges_at(self, at: Indices | slice) -> RowIds:
        """The edges of these entries by row id."""
        assert self.ranks is not None
        assert self.edges is not None
        rows: RowIds = self.edges[self.ranks[at]]
        return rows


def of_pairs(sources: RowSpace, ends: RowSpace, source: Positions, target: Positions) -> Adjacency:
    """Distinct neighbours, from one pair of positions per edge; parallel edges collapse."""
    bits = max(1, len(ends)).bit_length()
    keys = (source.astype(np.int64) << bits) | target
    keys.sort()
    if len(keys):
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    neighbours = (keys & ((1 << bits) - 1)).astype(position_type(ends))
    return Adjacency(sources, ends, list_bounds(np.bincount(keys >> bits, minlength=len(sources))), neighbours)


def of_edges(
    sources: RowSpace, ends: RowSpace, source: Positions, target: Positions, ranks: Positions, edges: RowIds
) -> Adjacency:
    """One entry per stored edge. `ranks` is the position of each entry's edge in the order of edge ids."""
    order = np.lexsort((ranks, source))
    targets = target[order].astype(position_type(ends))
    ranks = ranks[order].astype(np.int32 if len(edges) < 2**31 else np.int64)
    return Adjacency(sources, ends, list_bounds(np.bincount(source, minlength=len(sources))), targets, ranks, edges)


def either_way(out: Neighbours, back: Neighbours, base: Neighbours | None = None) -> Neighbours:
    """Neighbours along or against the edges of a type whose ends are one node type; a self loop is one edge. Of two
    layered adjacencies, `base` is what this gives for their bases."""
    if isinstance(out, LayeredAdjacency) or isinstance(back, LayeredAdjacency):
        return _either_way_layered(base, out, back)
    leaving, arriving = (np.repeat(np.arange(len(way.sources)), way.all_counts()) for way in (out, back))
    if out.ranks is None or back.ranks is None:
        targets = np.concatenate((out.targets, back.targets)).astype(np.int64)
        return of_pairs(out.sources, out.ends, np.concatenate((leaving, arriving)), targets)
    assert out.edges is not None
    proper = back.targets != arriving
    source = np.concatenate((leaving, arriving[proper]))
    target = np.concatenate((out.targets, back.targets[proper]))
    ranks = np.concatenate((out.ranks, back.ranks[proper]))
    return of_edges(out.sources, out.ends, source, target, ranks, out.edges)


def walk(
    nodes: RowIds, hops: int, step: Callable[[RowIds], tuple[RowIds, RowIds]], *, one_type: bool
) -> tuple[RowSpace, RowSpace, Indices, Indices]:
    """All edges within some hops of the nodes, as the nodes at either end and the positions of each edge in them.
    `step` finds the edges that begin at some nodes: their sources and their ends, by row id."""
    frontier = visited = RowSpace.of(nodes)
    met = [(nodes[:0], nodes[:0])]
    for _ in range(hops):
        if not len(frontier):
            break
        met.append(step(frontier.rows))
        fresh = distinct(met[-1][1])
        frontier = RowSpace(fresh[~visited.contains(fresh)])
        visited = RowSpace(union(visited.rows, frontier.rows))
    source, end = (np.concatenate(parts) for parts in zip(*met, strict=True))
    sources = RowSpace.of(np.concatenate((nodes, source, end) if one_type else (nodes, source)))
    ends = sources if one_type else RowSpace.of(end)
    return sources, ends, sources.positions(source), ends.positions(end)


def end_counts(adjacency: Neighbours, at: Indices | slice, weights: Counts | None) -> Counts:
    """How often each end occurs in these entries, each entry counted by its weight."""
    if weights is None and adjacency.reverse is not None and are_all(adjacency, at):
        return adjacency.reverse.all_counts()
    return added_up(adjacency.targets_at(at), weights, len(adjacency.ends))


def are_all(adjacency: Neighbours, at: Indices | slice) -> bool:
    """Whether these are all entries."""
    return isinstance(at, slice) and (at.start, at.stop) == (0, adjacency.size)


def has_pairs(adjacency: Neighbours, sources: Indices, targets: Indices) -> Mask:
    """Whether each node has the one beside it as a neighbour; not at -1."""
    if not adjacency.size:
        return np.zeros(len(sources), dtype=bool)
    starts, counts = adjacency.spans(sources)
    return stands_between(starts, starts + counts, targets, adjacency.targets_at)


def pairs_of(adjacency: Neighbours, nodes: Indices) -> Pairs:
    """All pairs that begin at these nodes."""
    starts, counts = adjacency.spans(nodes)
    return Pairs(np.repeat(nodes, counts), adjacency.targets_at(spread(starts, counts)).astype(np.int64))


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
    """Whether each wanted target is among the ascending entries from `low` to before `high`, by halving."""
    end, last = high, max(0, int(high.max(initial=0)) - 1)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        less = open_ & (targets_at(np.minimum(middle, last)) < wanted)
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    mask: Mask = (low < end) & (targets_at(np.minimum(low, last)) == wanted)
    return mask


def list_bounds(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where lists of these lengths begin, and behind them where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


# A layer is copied by every commit and searched by every hop; merging it copies the base. So it may hold a share of
# the entries of the base, more of a small one than of a large one.
_SMALLEST_FOLDED: Final = 1 << 10
_LARGEST_LAYER: Final = 1 << 16
_LARGEST_SHARE: Final = 64
_SMALL_BASE_SHARE: Final = 4
# Reading this share of all entries in sequence, merging first costs less than gathering them.
_SEQUENTIAL_SHARE: Final = 4


class Pairs(NamedTuple):
    """Sources and ends of edges by position, one beside the other."""

    sources: Indices
    ends: Indices

    def reverse(self) -> Pairs:
        return Pairs(self.ends, self.sources)

    def join(self, *others: Pairs) -> Pairs:
        parts = (self, *others)
        return Pairs(np.concatenate([part.sources for part in parts]), np.concatenate([part.ends for part in parts]))


class Lists(NamedTuple):
    """Neighbour lists of a few nodes, ascending: that of `nodes[i]` is `targets[offsets[i]:offsets[i + 1]]`."""

    nodes: Indices
    offsets: NDArray[np.int64]
    targets: Positions

    @property
    def nbytes(self) -> int:
        return self.nodes.nbytes + self.offsets.nbytes + self.targets.nbytes


@dataclass(frozen=True)
class LayeredAdjacency:
    """`base` with the lists of some nodes replaced. Its nodes keep their numbers; later ones follow them."""

    sources: RowSpace
    ends: RowSpace
    base: Adjacency
    layer: Lists
    reverse: Neighbours | None = None

    @property
    def nbytes(self) -> int:
        """Of its own, without what it shares with the base."""
        merged = self.__dict__.get("merged")  # only if it has been made
        own = self.layer.nbytes + 8 * (_late(self.sources) + _late(self.ends))
        return own + (0 if merged is None else merged.offsets.nbytes + merged.targets.nbytes)

    @property
    def is_due_for_merge(self) -> bool:
        size = len(self.base.targets)
        most = max(_SMALLEST_FOLDED, min(size // _SMALL_BASE_SHARE, max(_LARGEST_LAYER, size // _LARGEST_SHARE)))
        held = len(self.layer.targets) + len(self.layer.nodes)
        return max(held, _late(self.sources), _late(self.ends)) > most

    @cached_property
    def merged(self) -> Adjacency:
        """The same as one adjacency. Copies the base, so it is made only for reading most of it."""
        base, layer = self.base, self.layer
        at = np.minimum(layer.nodes, len(base.offsets) - 1)
        starts, stops = base.offsets[at], base.offsets[np.minimum(at + 1, len(base.offsets) - 1)]
        pieces, copied = [], 0
        own = zip(layer.offsets[:-1].tolist(), layer.offsets[1:].tolist(), strict=True)
        for start, stop, (first, end) in zip(starts.tolist(), stops.tolist(), own, strict=True):
            pieces += [base.targets[copied:start], layer.targets[first:end]]
            copied = stop
        targets = np.concatenate([*pieces, base.targets[copied:]]).astype(position_type(self.ends), copy=False)
        return Adjacency(self.sources, self.ends, list_bounds(self.all_counts()), targets, reverse=self.reverse)

    @cached_property
    def size(self) -> int:
        replaced = self.layer.nodes[self.layer.nodes < len(self.base.sources)]
        return len(self.base.targets) - int(self.base.counts(replaced).sum()) + len(self.layer.targets)

    def all_counts(self) -> NDArray[np.int64]:
        return self._counts_between(0, len(self.sources))

    def counts(self, positions: Indices) -> NDArray[np.int64]:
        if len(positions) and side_by_side(positions):
            return self._counts_between(int(positions[0]), int(positions[-1]) + 1)
        return self.spans(positions)[1]

    def entries(self, positions: Indices) -> Entries:
        """Slices are of the merged adjacency: they cover many entries, which often are never read."""
        if len(positions) and is_ascending(positions):
            counts = self.counts(positions)
            total = int(counts.sum())
            if total == self.size:
                return Entries(counts, slice(0, total))
            if side_by_side(positions) and total * _SEQUENTIAL_SHARE > self.size:
                return self.merged.entries(positions)
        starts, counts = self.spans(positions)
        return Entries(counts, spread(starts, counts))

    def _counts_between(self, first: int, stop: int) -> NDArray[np.int64]:
        counts = np.diff(self.base.offsets[first : stop + 1])
        if len(counts) < stop - first:
            counts = np.append(counts, np.zeros(stop - first - len(counts), np.int64))
        low, high = np.searchsorted(self.layer.nodes, (first, stop))
        counts[self.layer.nodes[low:high] - first] = np.diff(self.layer.offsets[low : high + 1])
        return counts

    def spans(self, positions: Indices) -> tuple[Indices, NDArray[np.int64]]:
        """Entries of the layer are numbered on behind those of the base."""
        base, layer = self.base, self.layer
        early = (positions >= 0) & (positions < len(base.sources))
        at = np.where(early, positions, 0)
        starts = base.offsets[at]
        counts = np.where(early, base.offsets[np.minimum(at + 1, len(base.offsets) - 1)] - starts, 0)
        slots, changed = find_positions(layer.nodes, positions)
        if changed.any():
            slots = slots[changed]
            starts[changed] = len(base.targets) + layer.offsets[slots]
            counts[changed] = layer.offsets[slots + 1] - layer.offsets[slots]
        return starts, counts

    def targets_at(self, at: Indices | slice) -> Positions:
        if isinstance(at, slice):
            return self.merged.targets[at]
        beyond = at >= len(self.base.targets)
        if not beyond.any():
            return self.base.targets[at]
        targets = np.empty(len(at), self.layer.targets.dtype)
        targets[~beyond] = self.base.targets[at[~beyond]]
        targets[beyond] = self.layer.targets[at[beyond] - len(self.base.targets)]
        return targets


Neighbours: TypeAlias = Adjacency | LayeredAdjacency


def for_reading(neighbours: Neighbours, entries: int) -> Neighbours:
    """The same adjacency, for a reader of so many entries: of a layered one the merged form, if that is most of it."""
    is_most = isinstance(neighbours, LayeredAdjacency) and entries * _SEQUENTIAL_SHARE > neighbours.size
    return neighbours.merged if isinstance(neighbours, LayeredAdjacency) and is_most else neighbours


def change_layer(older: Neighbours, sources: RowSpace, ends: RowSpace, lost: Pairs, added: Pairs) -> LayeredAdjacency:
    """The adjacency without the lost pairs and with the added ones, some of which it may have. `sources` and `ends`
    hold the nodes of the older one under their numbers and perhaps later ones."""
    base, layer = (older, _NO_LISTS) if isinstance(older, Adjacency) else (older.base, older.layer)
    nodes = distinct(np.concatenate((lost.sources, added.sources)))
    before = LayeredAdjacency(sources, ends, base, layer)
    starts, counts = before.spans(nodes)
    bits = max(1, len(ends)).bit_length()

    def keys(pairs: Pairs) -> Indices:
        return distinct((find_positions(nodes, pairs.sources)[0] << bits) | pairs.ends)

    held = (np.repeat(np.arange(len(nodes)), counts) << bits) | before.targets_at(spread(starts, counts))
    held = union(held[~is_member(held, keys(lost))], keys(added))
    targets = (held & ((1 << bits) - 1)).astype(position_type(ends))
    newer = Lists(nodes, list_bounds(np.bincount(held >> bits, minlength=len(nodes))), targets)
    return LayeredAdjacency(sources, ends, base, _replace(layer, newer))


def _either_way_layered(base: Neighbours | None, out: Neighbours, back: Neighbours) -> LayeredAdjacency:
    assert isinstance(base, Adjacency)
    assert isinstance(out, LayeredAdjacency)
    assert isinstance(back, LayeredAdjacency)
    nodes = union(out.layer.nodes, back.layer.nodes)
    plain = LayeredAdjacency(out.sources, out.ends, base, Lists(nodes, np.zeros(len(nodes) + 1, np.int64), _NO_TARGETS))
    both = pairs_of(out, nodes).join(pairs_of(back, nodes))
    return change_layer(plain, out.sources, out.ends, Pairs(nodes[:0], nodes[:0]), both)


def _replace(layer: Lists, newer: Lists) -> Lists:
    """The lists of both, the newer one's where both have them."""
    keep = ~is_member(layer.nodes, newer.nodes)
    nodes = np.concatenate((layer.nodes[keep], newer.nodes))
    starts = np.concatenate((layer.offsets[:-1][keep], newer.offsets[:-1] + len(layer.targets)))
    counts = np.concatenate((np.diff(layer.offsets)[keep], np.diff(newer.offsets)))
    order = np.argsort(nodes)
    targets = np.concatenate((layer.targets, newer.targets))[spread(starts[order], counts[order])]
    return Lists(nodes[order], list_bounds(counts[order]), targets.astype(newer.targets.dtype, copy=False))


def _late(space: RowSpace) -> int:
    return len(space.late) if isinstance(space, GrownRowSpace) else 0


_NO_TARGETS: Final = np.empty(0, np.int32)
_NO_LISTS: Final = Lists(np.empty(0, np.int64), np.zeros(1, np.int64), _NO_TARGETS)
