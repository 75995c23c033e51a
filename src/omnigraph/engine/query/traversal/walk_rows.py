"""Rows that search a walk together, and what each of them has of the results.

Rows with the same start, and the same values of what conditions read, have one origin and share its search. `walks`
makes parts of its rows, hands their origins to the searches, and asks here what every row gets of what came out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from omnigraph.engine.query.bindings import Counts, Indices, Mask
from omnigraph.engine.query.traversal.adjacency import list_bounds, spread
from omnigraph.engine.query.traversal.search import HopRange, OwnedHops, SearchContext, search, starts_at_once
from omnigraph.engine.query.traversal.walk_graph import WalkGraph
from omnigraph.storage.integer_sets import distinct, factorize, find_positions


class Reached(NamedTuple):
    """The results of origins: the origin, the node, and the edge where single edges are wanted."""

    owners: Indices
    ends: Indices
    edges: Indices


_NOTHING = Reached(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


class Matches(NamedTuple):
    """The number of results of each row. `at` gives the results, row after row."""

    counts: Counts
    starts: Indices
    order: Indices

    @property
    def at(self) -> Indices:
        return self.order[spread(self.starts, self.counts)]


class WalkPart:
    """Some rows of a walk and their distinct origins. In a closing walk each row wants one end, `wanted`, which is -1
    if it can't be reached."""

    def __init__(self, graph: WalkGraph, rows: slice, wanted: Indices | None) -> None:
        self.graph = graph
        self.rows = rows
        self.hop_range = HopRange(graph.plan.min_hops, graph.plan.max_hops)
        self._origins, _, self._of_row = factorize(graph.origins.of_row[rows])
        self._wanted = None if wanted is None else wanted[rows]
        self.starts = graph.origins.nodes[self._origins]

    def hops(self, origins: Indices | slice = slice(None)) -> OwnedHops:
        """The hops for a search by some of the origins."""
        return OwnedHops(self.graph.hops, self._origins[origins])

    def hops_back(self, origins: Indices) -> OwnedHops:
        """The same hops from where they arrive."""
        return OwnedHops(self.graph.back, self._origins[origins])

    @cached_property
    def _wanted_keys(self) -> Indices:
        """The states that a closing walk has to reach, ascending."""
        assert self._wanted is not None
        return distinct(self._keys_of_rows[self._wanted >= 0])

    @cached_property
    def _keys_of_rows(self) -> Indices:
        assert self._wanted is not None
        return self._of_row * len(self.graph.nodes) + self._wanted

    @property
    def pairs(self) -> tuple[Indices, Indices]:
        """The origins of a closing walk and the ends that each is wanted to reach, every pair once."""
        origins, ends = np.divmod(self._wanted_keys, max(1, len(self.graph.nodes)))
        return origins, ends

    def accept(self, owners: Indices, nodes: Indices) -> Mask:
        """Which nodes are reported for their origins."""
        if self._wanted is None:
            return self.graph.accepts(nodes)
        return find_positions(self._wanted_keys, owners * len(self.graph.nodes) + nodes)[1]

    def match(self, owners: Indices, ends: Indices) -> Matches:
        """The results of each row, which are those of its own origin, and in a closing walk only those that end where
        the row wants them to."""
        if self._wanted is None:
            bounds = list_bounds(np.bincount(owners, minlength=len(self.starts)))
            return Matches(np.diff(bounds)[self._of_row], bounds[self._of_row], np.argsort(owners, kind="stable"))
        keys = owners * len(self.graph.nodes) + ends
        order = np.argsort(keys, kind="stable")
        low, high = (np.searchsorted(keys[order], self._keys_of_rows, side=side) for side in ("left", "right"))
        return Matches(np.where(self._wanted < 0, 0, high - low), low, order)

    def reach(self, context: SearchContext, *, with_edges: bool) -> Reached:
        """Everything within the hops, each node once, or, of a single hop, once for each edge that leads there."""
        parts = self._one_hop(with_edges=with_edges) if self.hop_range == (1, 1) else self._searches(context)
        reached, held = [_NOTHING], 0
        for part in parts:
            reached.append(part)
            held += sum(array.nbytes for array in part)
            context.budget.step(2 * held)
        return Reached(*(np.concatenate(arrays) for arrays in zip(*reached, strict=True)))

    def _one_hop(self, *, with_edges: bool) -> Iterator[Reached]:
        size = len(self.graph.nodes)
        for origins, targets, edges in self.hops().follow(np.arange(len(self.starts)), self.starts):
            if with_edges:
                assert edges is not None
                kept = self.accept(origins, targets)
                yield Reached(origins[kept], targets[kept].astype(np.int64), edges[kept].astype(np.int64))
            else:
                # All hops of an origin come in one part.
                owners, ends = np.divmod(distinct(origins * size + targets), max(1, size))
                kept = self.accept(owners, ends)
                yield Reached(owners[kept], ends[kept], _NOTHING.edges)

    def _searches(self, context: SearchContext) -> Iterator[Reached]:
        """Breadth-first from as many origins at a time as there is room for."""
        at_once = starts_at_once(len(self.graph.nodes), context)
        for first in range(0, len(self.starts), at_once):
            some = slice(first, first + at_once)

            def accept(owners: Indices, nodes: Indices, first: int = first) -> Mask:
                return self.accept(owners + first, nodes)

            owners, ends = search(self.hops(some), self.starts[some], self.hop_range, context, accept)
            yield Reached(owners + first, ends, _NOTHING.edges)
