"""Breadth-first search: the nodes at a distance from each of many starts, whole frontiers at a time.

A state of a search is a start and a node, one number for both. The search does not know where hops come from: `expand`
gives it an adjacency, `walks` a `HopGraph`. Looks at hops in parts of bounded size, and asks the limits before each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, Mask
from omnigraph.engine.query.limits import Cancellation, MemoryBudget, TraversalWork
from omnigraph.engine.query.traversal.adjacency import Neighbours, Positions
from omnigraph.storage.integer_sets import distinct

# Visited marks of one batch of starts: one byte per start and node.
VISITED_BYTES = 1 << 26
# Hops that are looked at between two looks at the clock.
HOPS_AT_ONCE = 1 << 18
# Numbers that a search makes of each hop it looks at.
_NUMBERS_PER_HOP: Final = 4


class SearchContext(Protocol):
    """What a search needs of the context of its query."""

    budget: MemoryBudget
    cancellation: Cancellation
    work: TraversalWork

    def marks(self, size: int) -> Mask: ...


class Hops(NamedTuple):
    """Hops from some nodes, node after node: which of the nodes each begins at, where it ends, and the number of its
    edge if edges are known."""

    origins: Indices
    targets: Positions
    edges: Positions | None


class HopSource(Protocol):
    """Nodes that are numbered from 0 to `size`, and the hops between them."""

    @property
    def size(self) -> int: ...

    def count_hops(self, nodes: Indices) -> Indices:
        """How many hops each of these nodes has at most."""
        ...

    def follow(self, owners: Indices, nodes: Indices) -> Iterator[Hops]:
        """The hops from these nodes, node after node, in parts. `owners` are the starts that search there."""
        ...


class HopRange(NamedTuple):
    """How many hops away a node may be."""

    least: int
    most: int


class AdjacencyHops:
    """The hops of one adjacency whose sources are its ends."""

    def __init__(self, adjacency: Neighbours, context: SearchContext) -> None:
        self._adjacency = adjacency
        self._context = context

    @property
    def size(self) -> int:
        return len(self._adjacency.sources)

    def count_hops(self, nodes: Indices) -> Indices:
        return self._adjacency.counts(nodes)

    def follow(self, owners: Indices, nodes: Indices) -> Iterator[Hops]:
        counts = self.count_hops(nodes)
        for part in bounded_parts(counts):
            ask_for_hops(int(counts[part].sum()), self._context)
            entries = self._adjacency.entries(nodes[part])
            origins = np.repeat(np.arange(part.start, part.stop), entries.counts)
            yield Hops(origins, self._adjacency.targets_at(entries.at), None)


@dataclass(frozen=True, slots=True)
class OwnedHops:
    """The same hops for a search by some of the starts, which it numbers anew: `owners` are their numbers outside."""

    source: HopSource
    owners: Indices

    @property
    def size(self) -> int:
        return self.source.size

    def count_hops(self, nodes: Indices) -> Indices:
        return self.source.count_hops(nodes)

    def follow(self, owners: Indices, nodes: Indices) -> Iterator[Hops]:
        return self.source.follow(self.owners[owners], nodes)


def ask_for_hops(count: int, context: SearchContext) -> None:
    """About to look at so many hops."""
    context.cancellation.check()
    context.work.spend(count)
    context.budget.step(count * _NUMBERS_PER_HOP * 8)


def bounded_parts(counts: NDArray[np.int64], most: int | None = None) -> Iterator[slice]:
    """Parts of some lists that have at most so many items together, or are one list; as many as hops are looked at
    together when nothing else is said."""
    ends = np.cumsum(counts)
    start = before = 0
    while start < len(counts):
        room = HOPS_AT_ONCE if most is None else most
        stop = max(start + 1, int(np.searchsorted(ends, before + room, side="right")))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])


def starts_at_once(size: int, context: SearchContext) -> int:
    """How many starts can search a graph of so many nodes together."""
    return max(1, min(VISITED_BYTES, context.budget.available // 4) // max(1, size))


Accept = Callable[[Indices, Indices], Mask]
"""Which of some nodes, each with the start it was reached from, are reported."""


def search(
    source: HopSource, starts: Indices, hops: HopRange, context: SearchContext, accept: Accept | None = None
) -> tuple[Indices, Indices]:
    """Breadth-first from every start at once: which start reached which node, by start, distance and node. A node is
    reported at its shortest distance. The start is at distance zero. It alone can come back to itself, over its own
    self loop, at distance one; a longer cycle and the self loop of any other node report nothing."""
    size = source.size
    context.budget.step(len(starts) * size)
    visited = context.marks(len(starts) * size)
    owner = np.flatnonzero(starts >= 0)
    frontier = owner * size + starts[owner]
    visited[frontier] = True
    marked = [frontier]
    reports = [frontier] if hops.least == 0 else []
    try:
        for hop in range(1, hops.most + 1):
            frontier, loops = next_frontier(source, frontier, visited, with_loops=hop == hops.least == 1)
            if not len(frontier) and not len(loops):
                break
            marked.append(frontier)
            if hop >= hops.least:
                reports.append(np.sort(np.concatenate((frontier, loops))) if len(loops) else frontier)
    finally:
        for keys in marked:
            visited[keys] = False
    owner, node = np.divmod(np.concatenate(reports) if reports else np.empty(0, np.int64), max(1, size))
    if accept is not None:
        kept = accept(owner, node)
        owner, node = owner[kept], node[kept]
    order = np.argsort(owner, kind="stable")
    return owner[order], node[order]


def next_frontier(
    source: HopSource, frontier: Indices, visited: Mask, *, with_loops: bool = False
) -> tuple[Indices, Indices]:
    """The states one hop further that were not visited yet, which are marked, and those with a self loop."""
    size = source.size
    owner, node = np.divmod(frontier, size)
    fresh, loops = [frontier[:0]], [frontier[:0]]
    for hops in source.follow(owner, node):
        keys = (owner * size)[hops.origins] + hops.targets
        if with_loops:
            loops.append(distinct(keys[keys == frontier[hops.origins]]))
        new = distinct(keys[~visited[keys]])
        visited[new] = True
        fresh.append(new)
    # Each part marks what it reaches, so no two parts have a state in common; loops are those of different nodes.
    return distinct(np.concatenate(fresh)), np.concatenate(loops)
