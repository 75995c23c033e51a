"""The source of neighbours for a traversal: edges looked up, or a topology, whichever is cheaper.

Called by `expand` alone. Lookups cost per node and return a small adjacency of what they met; a topology costs once.
What lookups have cost at a version counts towards building.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Indices, RowSpace
from omnigraph.engine.query.context import ReadContext, TraversalMode
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.traversal.adjacency import Adjacency, Neighbours, join_row_ids, of_edges, of_pairs
from omnigraph.engine.query.traversal.edge_visibility import visible_adjacency
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction
from omnigraph.storage.integer_sets import union
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of

_ENDS = {
    Direction.OUT: (("src", "dst"),),
    Direction.IN: (("dst", "src"),),
    Direction.BOTH: (("src", "dst"), ("dst", "src")),
}


def explore(
    nodes: RowIds,
    edge: EdgeType,
    direction: Direction,
    node_type: NodeType,
    end_type: NodeType,
    hops: int,
    variable: str,
    context: ReadContext,
    *,
    with_edges: bool = False,
) -> Adjacency:
    """Everything within `hops` of the nodes. `variable` is whose ids have perhaps been read already."""
    walk = _Walk(context.table(edge), context.table(end_type), with_edges)
    frontier = RowSpace.of(nodes)
    visited = frontier
    for _ in range(hops):
        if not len(frontier):
            break
        context.cancellation.check()
        ids = context.properties.locate(context.table(node_type), variable, "id", frontier.rows).gather()
        reached = walk.step(frontier, ids, direction)
        fresh = reached[~visited.contains(reached)]
        frontier, variable = RowSpace.of(fresh), f"{variable}+"
        visited = RowSpace(union(visited.rows, frontier.rows))
    return walk.adjacency(nodes, one_type=edge.is_symmetric)


class _Walk:
    """The edges met so far: one source and end per edge, by row id."""

    def __init__(self, edges: Table, ends: Table, with_edges: bool) -> None:
        self._edges = edges
        self._ends = ends
        self._with_edges = with_edges
        self._source: list[RowIds] = []
        self._end: list[RowIds] = []
        self._row: list[RowIds] = []
        self._id: list[pa.Array] = []

    def step(self, frontier: RowSpace, ids: pa.Array, direction: Direction) -> RowIds:
        """Look up the edges of the frontier; the row ids at their other ends."""
        reached = []
        columns = ["src", "dst", "id"] if self._with_edges else ["src", "dst"]
        for near, far in _ENDS[direction]:
            edges = by_row_id(self._edges.rows_among(near, ids.to_pylist(), columns, row_ids=True))
            if near == "dst" and direction is Direction.BOTH:
                edges = edges.filter(pc.not_equal(edges.column("src"), edges.column("dst")))
            source = frontier.rows[pc.index_in(edges.column(near), value_set=ids).to_numpy()]
            end = self._rows_of(edges.column(far))
            whole = end >= 0
            self._source.append(source[whole])
            self._end.append(end[whole])
            if self._with_edges:
                self._row.append(row_ids_of(edges)[whole])
                self._id.append(one_array(edges.column("id")).filter(pa.array(whole)))
            reached.append(end[whole])
        return np.concatenate(reached)

    def _rows_of(self, ids: pa.ChunkedArray) -> RowIds:
        """The node of each id, -1 for a dangling one."""
        nodes = self._ends.rows_among("id", pc.unique(ids).to_pylist(), ["id"], row_ids=True)
        if not len(nodes):
            return np.full(len(ids), -1, np.int64)
        index = pc.fill_null(pc.index_in(ids, value_set=one_array(nodes.column("id"))), -1).to_numpy()
        return np.where(index < 0, -1, row_ids_of(nodes)[index])

    def adjacency(self, nodes: RowIds, *, one_type: bool) -> Adjacency:
        source, end = join_row_ids(self._source), join_row_ids(self._end)
        sources = RowSpace.of(np.concatenate((nodes, source, end) if one_type else (nodes, source)))
        ends = sources if one_type else RowSpace.of(end)
        at, to = sources.positions(source), ends.positions(end)
        if not self._with_edges:
            return of_pairs(sources, ends, at, to)
        ids = pa.concat_arrays(self._id) if self._id else pa.array([], pa.string())
        # An undirected edge was met from both sides and is one edge with one rank.
        order = pc.array_sort_indices(ids).to_numpy()
        ordered = join_row_ids(self._row)[order]
        starts = np.ones(len(order), dtype=bool)
        starts[1:] = ordered[1:] != ordered[:-1]
        ranks: Indices = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(starts) - 1
        return of_edges(sources, ends, at, to, ranks, ordered[starts])


# Seconds, measured on a local disk with two cores. Only their proportions matter, and only for speed.
_LOOKUP = 2.5e-3
_LOOKUP_PER_VALUE = 6e-5
_LOOKUP_PER_EDGE = 1e-6
_SCAN_PER_ROW = 3e-8
_MAP = 3e-3
_DERIVE = 5e-3
_DERIVE_PER_ROW = 2e-6
_DERIVED_AT_ONCE = 2e-2
_BUILD = 5e-3
_BUILD_PER_EDGE = 6e-7
_BUILD_PER_EDGE_WITH_ROWS = 1.2e-6
_BUILD_PER_NODE = 2e-7
# A frontier that changes by less than this share from hop to hop is taken to stay as it is; one of less than so many
# nodes, expected, is taken to be empty. So an estimate costs a bounded number of steps for any number of hops.
_STEADY = 0.01
_FADED = 1e-3


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to find neighbours and why."""

    mode: TraversalMode
    reason: str


def neighbours_of(plan: ir.Expand, nodes: RowIds, context: ReadContext) -> Neighbours:
    """An adjacency with at least everything within reach of `nodes`, and nothing invisible."""
    looks_at_edges = context.is_restricted(plan.edge)
    shape = Shape.EDGES if plan.edge_variable is not None or looks_at_edges else Shape.NEIGHBOURS
    neighbours = _find(plan, nodes, shape, context)
    if not looks_at_edges and not context.is_restricted(plan.destination_type):
        return neighbours
    return visible_adjacency(neighbours, plan, nodes, with_edges=shape is Shape.EDGES, context=context)


def _find(plan: ir.Expand, nodes: RowIds, shape: Shape, context: ReadContext) -> Neighbours:
    key = topology_key(plan, shape, context)
    choice = choose(plan, math.ceil(len(nodes) / context.share), key, context)
    if choice.mode is TraversalMode.INDEXED:
        context.profiler.note(f"lookups on {plan.edge.name}: {choice.reason}")
        return explore(
            nodes,
            plan.edge,
            plan.direction,
            source_type(plan, context),
            plan.destination_type,
            plan.max_hops,
            plan.source,
            context,
            with_edges=shape is Shape.EDGES,
        )
    # Once begun it is finished, however soon the query's time is up: all later ones use it.
    topology, origin = PROCESS_TOPOLOGIES.get(context.snapshot.root, key, context.cancellation.check_at_exit)
    context.profiler.note(f"topology of {plan.edge.name} ({origin}): {choice.reason}")
    return topology.towards(plan.direction)


def topology_key(plan: ir.Expand, shape: Shape, context: ReadContext) -> TopologyKey:
    near, far = context.table(source_type(plan, context)), context.table(plan.destination_type)
    sources, targets = (far, near) if plan.direction is ir.Direction.IN else (near, far)
    snapshot = context.snapshot
    return TopologyKey(snapshot.entry.graph_id, shape, context.table(plan.edge).state, sources.state, targets.state)


def source_type(plan: ir.Expand, context: ReadContext) -> NodeType:
    """The node type that the traversal starts from."""
    if plan.edge.is_symmetric:
        return plan.destination_type
    name = plan.edge.to_type if plan.direction is ir.Direction.IN else plan.edge.from_type
    return context.catalog.nodes[name]


def choose(plan: ir.Expand, nodes: int, key: TopologyKey, context: ReadContext) -> Choice:
    if context.mode is not TraversalMode.AUTO:
        return Choice(context.mode, "forced by the traversal mode")
    if PROCESS_TOPOLOGIES.peek(key) is not None:
        return Choice(TraversalMode.CSR, "at hand")
    edges = context.table(plan.edge)
    lookups = _lookup_cost(plan, nodes, edges, key)
    topology = _topology_cost(edges, key, context)
    spent = PROCESS_TOPOLOGIES.spend(key, lookups)
    estimate = f"about {lookups * 1000:.1f} ms by lookup, {topology * 1000:.1f} ms by topology"
    if spent <= topology:
        return Choice(TraversalMode.INDEXED, estimate)
    return Choice(TraversalMode.CSR, estimate if lookups > topology else f"{estimate}, asked for repeatedly")


def _topology_cost(edges: Table, key: TopologyKey, context: ReadContext) -> float:
    """By the cheapest way to come by it. The store is asked only where memory has nothing near."""
    root = context.snapshot.root
    nearest = PROCESS_TOPOLOGIES.nearest(root, key)
    derive = math.inf if nearest is None else _DERIVE + nearest.rows * _DERIVE_PER_ROW
    if derive <= _DERIVED_AT_ONCE:
        return derive
    if PROCESS_TOPOLOGIES.is_stored(root, key):
        return min(derive, _MAP)
    per_edge = _BUILD_PER_EDGE if key.shape is Shape.NEIGHBOURS else _BUILD_PER_EDGE_WITH_ROWS
    build = _BUILD + edges.state.rows * per_edge + (key.sources.rows + key.targets.rows) * _BUILD_PER_NODE
    return min(derive, build)


def _lookup_cost(plan: ir.Expand, nodes: int, edges: Table, key: TopologyKey) -> float:
    near = key.targets.rows if plan.direction is ir.Direction.IN else key.sources.rows
    degree = edges.state.rows / max(1, near)
    columns = {ir.Direction.OUT: ("src",), ir.Direction.IN: ("dst",), ir.Direction.BOTH: ("src", "dst")}
    unindexed = sum(index_coverage(edges, column, "BTREE").unindexed_rows for column in columns[plan.direction])
    cost, frontier = 0.0, float(min(nodes, near))
    # A search ends when it has met every node, however many hops it may take.
    hops = min(plan.max_hops, near + 1)
    while hops > 0 and frontier >= _FADED:
        reached = min(frontier * degree * len(columns[plan.direction]), float(edges.state.rows))
        hop = 3 * _LOOKUP + frontier * _LOOKUP_PER_VALUE + reached * (_LOOKUP_PER_VALUE + _LOOKUP_PER_EDGE)
        hop += unindexed * _SCAN_PER_ROW
        following = min(reached, float(near))
        if abs(following - frontier) < _STEADY * frontier:
            return cost + hops * hop
        cost, frontier, hops = cost + hop, following, hops - 1
    return cost
