"""Who is next to whom: compressed sparse rows over the row ids of two node tables.

Made from endpoint pairs, whether those come from a whole edge table or from a few lookups, so both ways of
traversing run on the same structure and can't disagree. Immutable; knows no table and no query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, Mask, RowIds, RowSpace
from omnigraph.engine.query.counting import added_up

Positions: TypeAlias = NDArray[Any]
"""Indices, 32 bits wide wherever they fit: these arrays are most of a topology."""


class Entries(NamedTuple):
    """Which entries belong to some nodes: how many each has, and where they stand, node after node."""

    counts: NDArray[np.int64]
    at: Indices | slice


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
    reverse: Adjacency | None = None
    """The same pairs seen from the other end, where somebody has it."""

    @property
    def nbytes(self) -> int:
        arrays = (self.offsets, self.targets, self.ranks, self.edges, self.sources.rows, self.ends.rows)
        return sum(array.nbytes for array in arrays if array is not None)

    def counts(self, nodes: RowIds) -> NDArray[np.int64]:
        if not len(self.sources) or not len(nodes):
            return np.zeros(len(nodes), np.int64)
        return self._counts(self.sources.positions(nodes))

    def entries(self, nodes: RowIds) -> Entries:
        if not len(self.sources) or not len(nodes):
            return Entries(np.zeros(len(nodes), np.int64), np.empty(0, np.int64))
        positions = self.sources.positions(nodes)
        counts = self._counts(positions)
        if _side_by_side(positions):
            return Entries(counts, slice(int(self.offsets[positions[0]]), int(self.offsets[positions[-1] + 1])))
        ends = np.cumsum(counts)
        return Entries(counts, np.repeat(self.offsets[positions] - (ends - counts), counts) + np.arange(ends[-1]))

    def _counts(self, positions: Indices) -> NDArray[np.int64]:
        if _side_by_side(positions):
            return np.diff(self.offsets[positions[0] : positions[-1] + 2])
        counts = self.offsets[positions + 1] - self.offsets[positions]
        return np.where(positions < 0, 0, counts)

    def rows_at(self, at: Indices | slice) -> RowIds:
        """The row ids of the neighbours in these entries."""
        rows: RowIds = self.ends.rows[self.targets[at]]
        return rows

    def edges_at(self, at: Indices | slice) -> RowIds:
        assert self.ranks is not None
        assert self.edges is not None
        rows: RowIds = self.edges[self.ranks[at]]
        return rows

    def times_met(self, at: Indices | slice, weights: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """How often each end stands in these entries, counting an entry as often as its weight says."""
        everything = isinstance(at, slice) and (at.start, at.stop) == (0, len(self.targets))
        if everything and weights is None and self.reverse is not None:
            return np.diff(self.reverse.offsets)
        return added_up(self.targets[at], weights, len(self.ends))

    def joined(self, nodes: RowIds, others: RowIds) -> Mask:
        """Whether each node has the one beside it as a neighbour."""
        _, found = self.find(self.sources.positions(nodes), self.ends.positions(others))
        return found

    def find(self, sources: Indices, targets: Indices) -> tuple[Indices, Mask]:
        """By position: the entry where each target stands or would stand among its source's, and whether it does."""
        if not len(self.sources) or not len(self.targets):
            return np.zeros(len(sources), np.int64), np.zeros(len(sources), dtype=bool)
        possible = (sources >= 0) & (targets >= 0)
        low = np.where(possible, self.offsets[sources], 0)
        end = np.where(possible, self.offsets[sources + 1], 0)
        high = end.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = open_ & (self.targets[np.minimum(middle, len(self.targets) - 1)] < targets)
            low = np.where(less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        found = possible & (low < end) & (self.targets[np.minimum(low, len(self.targets) - 1)] == targets)
        return low, found


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
    leaving, arriving = _owners(out), _owners(back)
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


def patched(
    base: Adjacency,
    sources: RowSpace,
    ends: RowSpace,
    replaced: Indices | None,
    added: tuple[Indices, Indices],
) -> Adjacency:
    """Distinct neighbours after a small change.

    `sources` and `ends` hold all nodes of the base and perhaps more. The lists of the `replaced` nodes are dropped
    first; then the `added` pairs of positions join. Touches whole arrays only by copying them.
    """
    base = _renumbered(base, sources, ends)
    if replaced is not None and len(replaced):
        gone = np.zeros(len(sources), dtype=bool)
        gone[replaced] = True
        keep = ~np.repeat(gone, np.diff(base.offsets))
        counts = np.where(gone, 0, np.diff(base.offsets))
        base = Adjacency(sources, ends, _cumulated(counts), base.targets[keep])
    fresh = of_pairs(sources, ends, *added)
    owner, target = _owners(fresh), fresh.targets.astype(np.int64)
    at, found = base.find(owner, target)
    owner, target, at = owner[~found], target[~found], at[~found]
    counts = np.diff(base.offsets) + np.bincount(owner, minlength=len(sources))
    return Adjacency(sources, ends, _cumulated(counts), np.insert(base.targets, at, target.astype(base.targets.dtype)))


def without_ends(base: Adjacency, sources: Indices, ends: Indices) -> Adjacency:
    """Distinct neighbours after some nodes, given by position, have disappeared; the numbering stays."""
    source_gone, end_gone = np.zeros(len(base.sources), dtype=bool), np.zeros(len(base.ends), dtype=bool)
    source_gone[sources] = True
    end_gone[ends] = True
    owner = _owners(base)
    keep = ~(source_gone[owner] | end_gone[base.targets])
    return Adjacency(base.sources, base.ends, _offsets(owner[keep], len(base.sources)), base.targets[keep])


def position_type(space: RowSpace) -> type[np.integer]:
    return np.int32 if len(space) < 2**31 else np.int64


def _side_by_side(positions: Indices) -> bool:
    """Whether nodes lie next to each other, as those of a whole type do: they need no gathering at all."""
    spans = positions[0] >= 0 and positions[-1] - positions[0] == len(positions) - 1
    return bool(spans and (positions[1:] > positions[:-1]).all())


def _renumbered(base: Adjacency, sources: RowSpace, ends: RowSpace) -> Adjacency:
    offsets, targets = base.offsets, base.targets
    if not _extends(sources, base.sources):
        counts = np.zeros(len(sources), np.int64)
        counts[sources.positions(base.sources.rows)] = np.diff(base.offsets)
        offsets = _cumulated(counts)
    elif len(sources) > len(base.sources):
        offsets = np.append(offsets, np.full(len(sources) - len(base.sources), offsets[-1]))
    if not _extends(ends, base.ends):
        # Both numberings ascend by row id, so the lists stay ascending.
        targets = ends.positions(base.ends.rows)[targets].astype(position_type(ends))
    return Adjacency(sources, ends, offsets, targets)


def _extends(space: RowSpace, base: RowSpace) -> bool:
    """Whether the nodes of `base` keep their numbers in `space`."""
    return not len(base) or bool(space.rows[len(base) - 1] == base.rows[-1])


def _owners(adjacency: Adjacency) -> Indices:
    return np.repeat(np.arange(len(adjacency.sources)), np.diff(adjacency.offsets))


def _offsets(owner: Indices, size: int) -> NDArray[np.int64]:
    return _cumulated(np.bincount(owner, minlength=size))


def _cumulated(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))
