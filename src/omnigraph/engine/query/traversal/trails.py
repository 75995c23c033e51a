"""Trails: all walks without a repeated edge, depth first, a bounded number of them at a time.

A frame of the search holds trails of one length and the hops that lead on from some of them. The longer trails are, the
fewer are taken from a frame at a time, so what waits hardly grows with their length and not with their number. A loop:
trails may be as long as there are edges. `walks` calls it and binds what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, Mask
from omnigraph.engine.query.traversal.search import Accept, HopRange, HopSource, SearchContext

# So many trails of no edge go on together; of n edges, one by the square of n + 1.
TRAILS_AT_ONCE = 1 << 17
# What a query has is shared by so many trails: frames of all lengths, and copies of the last one.
_BYTES_PER_TRAIL: Final = 128
# Edges of trails that are compared with new ones between two looks at the clock.
_NUMBERS_COMPARED: Final = 1 << 20


class Trails(NamedTuple):
    """Trails of one length: the start that owns each, its nodes and its edges, one trail per line."""

    owners: Indices
    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]

    @property
    def ends(self) -> Indices:
        ends: Indices = self.nodes[:, -1]
        return ends

    @property
    def length(self) -> int:
        return int(self.edges.shape[1])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)

    def take(self, chosen: Indices) -> Trails:
        return Trails(self.owners[chosen], self.nodes[chosen], self.edges[chosen])

    def append(self, origins: Indices, targets: Indices, edges: Indices) -> Trails:
        """Longer trails: which of these each continues, where it leads, and over which edge."""
        nodes = np.concatenate((self.nodes[origins], targets[:, None]), axis=1)
        return Trails(self.owners[origins], nodes, np.concatenate((self.edges[origins], edges[:, None]), axis=1))


def find_trails(
    graph: HopSource, starts: Indices, hops: HopRange, accept: Accept, context: SearchContext
) -> Iterator[Trails]:
    """The trails from some starts that have a length within the hops and an end that `accept` keeps."""
    roots = Trails(np.arange(len(starts)), starts[:, None], np.empty((len(starts), 0), np.int64))
    if hops.least == 0:
        yield from _accept_ends(roots, accept)
    frames = [_Frame(graph, roots, context)] if hops.most else []
    try:
        while frames:
            context.cancellation.check()
            longer = frames[-1].advance()
            if longer is None:
                frames.pop().release()
                continue
            if longer.length >= hops.least:
                yield from _accept_ends(longer, accept)
            if longer.length < hops.most:
                frames.append(_Frame(graph, longer, context))
    finally:
        for frame in frames:
            frame.release()


def _accept_ends(trails: Trails, accept: Accept) -> Iterator[Trails]:
    kept = accept(trails.owners, trails.ends)
    if kept.any():
        yield trails.take(np.flatnonzero(kept))


class _Frame:
    """Trails of one length. Those before `_next` go on by the waiting hops, or have gone on."""

    def __init__(self, graph: HopSource, trails: Trails, context: SearchContext) -> None:
        self._graph = graph
        self._trails = trails
        self._context = context
        self._next = 0
        self._waiting = _NO_HOPS
        room = min(TRAILS_AT_ONCE, context.budget.available // _BYTES_PER_TRAIL)
        self._at_once = max(1, room // (trails.length + 1) ** 2)
        self._held = 0
        self._hold(trails.nbytes)

    def advance(self) -> Trails | None:
        """Some trails that are one hop longer, perhaps none of them; None when all have been given."""
        if not len(self._waiting.origins):
            if self._next >= len(self._trails.owners):
                return None
            self._load()
        origins, targets, edges = (array[: self._at_once] for array in self._waiting)
        self._waiting = _Waiting(*(array[self._at_once :] for array in self._waiting))
        self._context.budget.step(2 * len(origins) * (2 * self._trails.length + 4) * 8)
        return self._trails.append(origins, targets, edges)

    def _load(self) -> None:
        """The hops by which the next trails go on: those over edges that they do not have."""
        ends = self._trails.ends[self._next : self._next + self._at_once]
        together = np.cumsum(self._graph.count_hops(ends))
        first, count = self._next, max(1, int(np.searchsorted(together, self._at_once, side="right")))
        self._next += count
        parts = [_NO_HOPS]
        for hops in self._graph.follow(self._trails.owners[first : self._next], ends[:count]):
            assert hops.edges is not None
            origins, edges = hops.origins + first, hops.edges.astype(np.int64)
            fresh = self._are_fresh(origins, edges)
            parts.append(_Waiting(origins[fresh], hops.targets[fresh].astype(np.int64), edges[fresh]))
        self._waiting = _Waiting(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        self._hold(self._trails.nbytes + sum(array.nbytes for array in self._waiting))

    def _are_fresh(self, origins: Indices, edges: Indices) -> Mask:
        """Whether trails do not have the edges beside them."""
        fresh = np.ones(len(origins), np.bool_)
        at_once = max(1, _NUMBERS_COMPARED // max(1, self._trails.length))
        for start in range(0, len(origins), at_once):
            self._context.cancellation.check()
            part = slice(start, start + at_once)
            fresh[part] = (self._trails.edges[origins[part]] != edges[part, None]).all(axis=1)
        return fresh

    def _hold(self, nbytes: int) -> None:
        """Hold so many bytes instead of those held before."""
        self.release()
        self._context.budget.hold(nbytes)
        self._held = nbytes

    def release(self) -> None:
        self._context.budget.release(self._held)
        self._held = 0


class _Waiting(NamedTuple):
    """Hops that trails can go on by: which of them, where to, and over which edge."""

    origins: Indices
    targets: Indices
    edges: Indices


_NO_HOPS: Final = _Waiting(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
