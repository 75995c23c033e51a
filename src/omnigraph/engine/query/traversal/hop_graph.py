"""The graph that a walk searches: nodes of several types numbered together, and hops over several edge types.

Adjacencies of single edge types stay as they are. Only the hops from nodes that a search gets to are put together, once
each, without those that its reader may not see or that do not satisfy the conditions of the walk. `walk_graph` builds
it; `search`, `paths` and `trails` follow it. Numbers of nodes ascend by type and row id, those of edges by type name
and id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, Mask
from omnigraph.engine.query.traversal.adjacency import Adjacency, Neighbours, Positions, list_bounds, spread
from omnigraph.engine.query.traversal.search import Hops, SearchContext, ask_for_hops, bounded_parts
from omnigraph.storage.integer_sets import distinct, union
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

# Nodes whose hops are counted at a time before any is put together.
_NODES_AT_ONCE = 1 << 18
_LARGEST_NARROW: Final = 2**31


class Numbering:
    """Rows of several tables numbered together, table after table."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.bounds = list_bounds(np.array(sizes, np.int64))

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def number_type(self) -> type[np.integer[Any]]:
        return np.int32 if len(self) < _LARGEST_NARROW else np.int64

    def members_of(self, numbers: NDArray[Any]) -> Indices:
        """The table of each number."""
        if len(self.bounds) == 2:
            return np.zeros(len(numbers), np.int64)
        return np.searchsorted(self.bounds, numbers, side="right") - 1


class NodeNumbers(Numbering):
    """The nodes of all types that a walk may pass through. `spaces` are those of its `node_members`."""

    def __init__(self, spaces: Sequence[RowSpace]) -> None:
        super().__init__([len(space) for space in spaces])
        self.spaces = tuple(spaces)

    def positions(self, members: Indices | int, rows: RowIds) -> Indices:
        """The numbers of nodes; -1 for null, for what is not a node of the walk, and for a negative member."""
        if isinstance(members, int):
            return self._of_member(members, rows)
        positions = np.full(len(rows), -1, np.int64)
        for member in range(len(self.spaces)):
            of_member = np.flatnonzero(members == member)
            positions[of_member] = self._of_member(member, rows[of_member])
        return positions

    def _of_member(self, member: int, rows: RowIds) -> Indices:
        if member < 0:
            return np.full(len(rows), -1, np.int64)
        positions = self.spaces[member].positions(rows)
        return np.where(positions < 0, -1, positions + self.bounds[member])

    def rows_at(self, numbers: NDArray[Any]) -> RowIds:
        if len(self.spaces) == 1:
            return self.spaces[0].rows_at(numbers)
        rows = np.empty(len(numbers), np.int64)
        members = self.members_of(numbers)
        for member, space in enumerate(self.spaces):
            of_member = np.flatnonzero(members == member)
            rows[of_member] = space.rows_at(numbers[of_member] - self.bounds[member])
        return rows


class EdgeNumbers(Numbering):
    """The edges of all types that a walk takes, in the order of type names and ids.

    `edges[i]` are the row ids of member `members[i]` in the order of edge ids.
    """

    def __init__(self, members: Sequence[int], edges: Sequence[RowIds]) -> None:
        super().__init__([len(rows) for rows in edges])
        self._members = np.array(members, np.int64)
        self._edges = tuple(edges)

    def first_of(self, member: int) -> int:
        """The number of the first edge of a member."""
        return int(self.bounds[np.flatnonzero(self._members == member)[0]])

    def members_at(self, numbers: NDArray[Any]) -> Indices:
        """The edge type of each edge, by its position among the members."""
        members: Indices = self._members[self.members_of(numbers)]
        return members

    def rows_at(self, numbers: NDArray[Any]) -> RowIds:
        rows: RowIds
        if len(self._edges) == 1:
            rows = self._edges[0][numbers]
            return rows
        rows = np.empty(len(numbers), np.int64)
        tables = self.members_of(numbers)
        for table, edges in enumerate(self._edges):
            of_table = np.flatnonzero(tables == table)
            rows[of_table] = edges[numbers[of_table] - self.bounds[table]]
        return rows


class Step(NamedTuple):
    """The hops over one edge type in one direction: from nodes of a member to nodes of a member, each the position of
    a node type in the walk. `edge` is the position of the edge type."""

    start: int
    end: int
    edge: int
    neighbours: Neighbours


class MetHops(NamedTuple):
    """Hops that somebody decides about: where each begins and ends, and its edge, all by number. `owners` are the
    starts that search there, where that matters."""

    starts: NDArray[Any]
    ends: NDArray[Any]
    edges: NDArray[Any] | None
    owners: Indices | None = None


HopTest = Callable[[MetHops], Mask]


class HopGraph:
    """The hops of a walk. Those of a node are put together when a search first gets there, and kept.

    `exists` decides about a hop once for all searches, `allows` again for each start. Edges are numbered if `edges` is
    given, and then the hops of each node come in the order of these numbers.
    """

    def __init__(
        self,
        nodes: NodeNumbers,
        steps: Sequence[Step],
        edges: EdgeNumbers | None,
        context: SearchContext,
        *,
        exists: HopTest | None = None,
        allows: HopTest | None = None,
    ) -> None:
        self.nodes = nodes
        self.edges = edges
        self._steps = [_MappedStep(step, nodes, edges) for step in steps]
        self._context = context
        self._exists = exists
        self._allows = allows
        self._begins: Indices = np.zeros(len(nodes), np.int64)
        # One more than the number of hops; 0 for a node that no search got to. Untouched zeros take no memory.
        self._sizes: NDArray[np.int32] = np.zeros(len(nodes), np.int32)
        self._used = 0
        self._targets: Positions = np.empty(0, nodes.number_type)
        self._numbers: Positions | None = None if edges is None else np.empty(0, edges.number_type)
        self._held = 0
        self._hold(self._begins.nbytes + self._sizes.nbytes)

    @property
    def size(self) -> int:
        return len(self.nodes)

    def follow(self, owners: Indices, nodes: Indices) -> Iterator[Hops]:
        """The hops from these nodes, in parts, node after node. `owners` are the starts that search there."""
        for first in range(0, len(nodes), _NODES_AT_ONCE):
            some = nodes[first : first + _NODES_AT_ONCE]
            counts = self.count_hops(some)
            for part in bounded_parts(counts):
                ask_for_hops(int(counts[part].sum()), self._context)
                at = spread(self._begins[some[part]], counts[part])
                origins = np.repeat(np.arange(first + part.start, first + part.stop), counts[part])
                hops = Hops(origins, self._targets[at], None if self._numbers is None else self._numbers[at])
                yield hops if self._allows is None else self._keep_allowed(hops, owners, nodes)

    def count_hops(self, nodes: Indices) -> Indices:
        """How many hops each of these nodes has, those that some start may not take included."""
        self._open(nodes)
        return self._sizes[nodes] - np.int64(1)

    def _keep_allowed(self, hops: Hops, owners: Indices, nodes: Indices) -> Hops:
        assert self._allows is not None
        origins, targets, edges = hops
        mask = self._allows(MetHops(nodes[origins], targets, edges, owners[origins]))
        return Hops(origins[mask], targets[mask], None if edges is None else edges[mask])

    def _open(self, nodes: Indices) -> None:
        """Put the hops together of those nodes whose hops are not."""
        fresh = nodes[self._sizes[nodes] == 0]
        if not len(fresh):
            return
        fresh = distinct(fresh)
        counts = sum((step.counts(fresh) for step in self._steps), np.zeros(len(fresh), np.int64))
        for part in bounded_parts(counts):
            self._append(fresh[part], int(counts[part].sum()))

    def _append(self, nodes: Indices, count: int) -> None:
        self._context.cancellation.check()
        self._context.budget.step(count * 6 * 8)
        origins, targets, edges = self._join([step.hops(nodes) for step in self._steps])
        if self._exists is not None and len(origins):
            mask = self._exists(MetHops(nodes[origins], targets, edges))
            # The others are never looked at again.
            self._context.work.spend(len(mask) - int(mask.sum()))
            origins, targets, edges = origins[mask], targets[mask], None if edges is None else edges[mask]
        counts = np.bincount(origins, minlength=len(nodes))
        self._sizes[nodes] = counts + 1
        self._begins[nodes] = self._used + np.cumsum(counts) - counts
        stop = self._used + len(origins)
        self._reserve(stop)
        self._targets[self._used : stop] = targets
        if self._numbers is not None:
            self._numbers[self._used : stop] = edges
        self._used = stop

    def _join(self, parts: Sequence[Hops]) -> Hops:
        """The hops of all steps, node after node."""
        parts = [part for part in parts if len(part.origins)]
        if not parts:
            none = np.empty(0, np.int64)
            return Hops(none, none, None if self.edges is None else none)
        if len(parts) == 1:
            return parts[0]
        origins, targets = (np.concatenate(arrays) for arrays in zip(*(part[:2] for part in parts), strict=True))
        if self.edges is None:
            order = np.argsort(origins, kind="stable")
            return Hops(origins[order], targets[order], None)
        edges = np.concatenate([part.edges for part in parts if part.edges is not None])
        order = np.lexsort((edges, origins))
        return Hops(origins[order], targets[order], edges[order])

    def _reserve(self, size: int) -> None:
        """Room for so many hops, at least twice as much as before."""
        if size <= len(self._targets):
            return
        larger = max(size, 2 * len(self._targets))
        self._targets = self._grow(self._targets, larger)
        if self._numbers is not None:
            self._numbers = self._grow(self._numbers, larger)

    def _grow(self, array: Positions, size: int) -> Positions:
        self._hold((size - len(array)) * array.itemsize)
        grown = np.empty(size, array.dtype)
        grown[: self._used] = array[: self._used]
        return grown

    def _hold(self, nbytes: int) -> None:
        self._context.budget.hold(nbytes)
        self._held += nbytes

    def release(self) -> None:
        """Nobody searches it any more."""
        self._context.budget.release(self._held)
        self._held = 0


class _MappedStep:
    """A step in the numbers of the graph."""

    def __init__(self, step: Step, nodes: NodeNumbers, edges: EdgeNumbers | None) -> None:
        self._near, self._far = nodes.spaces[step.start], nodes.spaces[step.end]
        self._first_near, self._stop_near = (int(bound) for bound in nodes.bounds[step.start : step.start + 2])
        self._first_far = int(nodes.bounds[step.end])
        self._neighbours = step.neighbours
        self._first_edge = None if edges is None else edges.first_of(step.edge)

    def counts(self, nodes: Indices) -> Indices:
        """How many hops each of some ascending nodes has."""
        counts = np.zeros(len(nodes), np.int64)
        own, positions = self._own(nodes)
        counts[own] = self._neighbours.counts(positions)
        return counts

    def hops(self, nodes: Indices) -> Hops:
        """The hops of some ascending nodes."""
        neighbours = self._neighbours
        own, positions = self._own(nodes)
        counts, at = neighbours.entries(positions)
        origins = np.repeat(np.arange(own.start, own.stop), counts)
        targets: NDArray[Any] = neighbours.targets_at(at)
        if neighbours.ends is not self._far:
            targets = self._far.positions(neighbours.ends.rows_at(targets))
        if self._first_edge is None:
            return Hops(origins, targets + np.int64(self._first_far), None)
        assert isinstance(neighbours, Adjacency)
        assert neighbours.ranks is not None
        return Hops(origins, targets + np.int64(self._first_far), neighbours.ranks[at] + np.int64(self._first_edge))

    def _own(self, nodes: Indices) -> tuple[slice, Indices]:
        """Which of the nodes the step begins at, and their positions in its adjacency."""
        low, high = np.searchsorted(nodes, (self._first_near, self._stop_near))
        positions = nodes[low:high] - self._first_near
        if self._neighbours.sources is not self._near:
            positions = self._neighbours.sources.positions(self._near.rows_at(positions))
        return slice(int(low), int(high)), positions


def join_spaces(spaces: Sequence[RowSpace]) -> RowSpace:
    """A set of all rows of these sets. It is one of them where that one holds the others."""
    ordered = sorted({id(space): space for space in spaces}.values(), key=len)
    if not ordered:
        return RowSpace(np.empty(0, np.int64))
    whole = ordered.pop()
    for space in ordered:
        if not whole.contains(space.rows).all():
            whole = RowSpace(union(whole.rows, space.rows))
    return whole
