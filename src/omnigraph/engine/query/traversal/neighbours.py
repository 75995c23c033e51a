"""The source of neighbours for a traversal: edges looked up, or a topology, whichever is cheaper.

Called by `expand` alone. Lookups cost per node and return a small adjacency of what they met; a topology costs once.
What lookups have cost at a version counts towards building.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.context import ReadContext, TraversalMode
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.traversal.adjacency import Adjacency, Neighbours, of_edges, of_pairs, walk
from omnigraph.engine.query.traversal.edge_visibility import visible_adjacency
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey
from omnigraph.engine.query.traversal.topology_build import rows_by_id
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of

_ENDS = {
    Direction.OUT: (("src", "dst"),),
    Direction.IN: (("dst", "src"),),
    Direction.BOTH: (("src", "dst"), ("dst", "src")),
}


def explore(plan: ir.Expand, nodes: RowIds, context: ReadContext, *, with_edges: bool) -> Adjacency:
    """Everything within reach of the nodes, by looking up edges and their other ends."""
    near_nodes, far_nodes = context.table(source_type(plan, context)), context.table(plan.destination_type)
    edge_table = context.table(plan.edge)
    columns = ["src", "dst", "id"] if with_edges else ["src", "dst"]
    variable = plan.source  # whose ids have perhaps been read already
    edge_rows, edge_ids = [np.empty(0, np.int64)], [pa.array([], pa.string())]

    def step(frontier: RowIds) -> tuple[RowIds, RowIds]:
        nonlocal variable
        context.cancellation.check()
        ids = context.properties.locate(near_nodes, variable, "id", frontier).gather()
        variable += "+"
        sources, ends = [], []
        for near, far in _ENDS[plan.direction]:
            edges = by_row_id(edge_table.rows_among(near, ids.to_pylist(), columns, row_ids=True))
            if near == "dst" and plan.direction is Direction.BOTH:
                edges = edges.filter(pc.not_equal(edges.column("src"), edges.column("dst")))
            (end,) = rows_by_id(far_nodes, [edges.column(far)])
            whole = end >= 0
            sources.append(frontier[pc.index_in(edges.column(near), value_set=ids).to_numpy()][whole])
            ends.append(end[whole])
            if with_edges:
                edge_rows.append(row_ids_of(edges)[whole])
                edge_ids.append(one_array(edges.column("id")).filter(pa.array(whole)))
        return np.concatenate(sources), np.concatenate(ends)

    near, far, at, to = walk(nodes, plan.max_hops, step, one_type=plan.edge.is_symmetric)
    if not with_edges:
        return of_pairs(near, far, at, to)
    # An undirected edge was met from both sides and is one edge with one rank.
    order = pc.array_sort_indices(pa.concat_arrays(edge_ids)).to_numpy()
    ordered = np.concatenate(edge_rows)[order]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    ranks: Indices = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(starts) - 1
    return of_edges(near, far, at, to, ranks, ordered[starts])


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


def neighbours_of(plan: ir.Expand, nodes: RowIds, context: ReadContext) -> Neighbours:
    """An adjacency with at least everything within reach of `nodes`, and nothing invisible."""
    looks_at_edges = context.is_restricted(plan.edge)
    with_edges = plan.edge_variable is not None or looks_at_edges
    neighbours = _find(plan, nodes, Shape.EDGES if with_edges else Shape.NEIGHBOURS, context)
    if not looks_at_edges and not context.is_restricted(plan.destination_type):
        return neighbours
    return visible_adjacency(neighbours, plan, nodes, with_edges=with_edges, context=context)


def _find(plan: ir.Expand, nodes: RowIds, shape: Shape, context: ReadContext) -> Neighbours:
    near, far = context.table(source_type(plan, context)), context.table(plan.destination_type)
    sources, targets = (far, near) if plan.direction is Direction.IN else (near, far)
    snapshot, edges = context.snapshot, context.table(plan.edge)
    key = TopologyKey(snapshot.entry.graph_id, shape, edges.state, sources.state, targets.state)
    mode, reason = choose(plan, math.ceil(len(nodes) / context.share), key, context)
    if mode is TraversalMode.INDEXED:
        context.profiler.note(f"lookups on {plan.edge.name}: {reason}")
        return explore(plan, nodes, context, with_edges=shape is Shape.EDGES)
    # Once begun it is finished, however soon the query's time is up: all later ones use it.
    topology, origin = PROCESS_TOPOLOGIES.get(snapshot.root, key, context.cancellation.check_at_exit)
    context.profiler.note(f"topology of {plan.edge.name} ({origin}): {reason}")
    return topology.towards(plan.direction)


def source_type(plan: ir.Expand, context: ReadContext) -> NodeType:
    """The node type that the traversal starts from."""
    if plan.edge.is_symmetric:
        return plan.destination_type
    return context.catalog.nodes[plan.edge.to_type if plan.direction is Direction.IN else plan.edge.from_type]


def choose(plan: ir.Expand, nodes: int, key: TopologyKey, context: ReadContext) -> tuple[TraversalMode, str]:
    """A way to find neighbours, and why."""
    if context.mode is not TraversalMode.AUTO:
        return context.mode, "forced by the traversal mode"
    if PROCESS_TOPOLOGIES.peek(key) is not None:
        return TraversalMode.CSR, "at hand"
    edges = context.table(plan.edge)
    lookups = _lookup_cost(plan, nodes, edges, key)
    topology = _topology_cost(edges, key, context)
    spent = PROCESS_TOPOLOGIES.spend(key, lookups)
    estimate = f"about {lookups * 1000:.1f} ms by lookup, {topology * 1000:.1f} ms by topology"
    if spent <= topology:
        return TraversalMode.INDEXED, estimate
    return TraversalMode.CSR, estimate if lookups > topology else f"{estimate}, asked for repeatedly"


def _topology_cost(edges: Table, key: TopologyKey, context: ReadContext) -> float:
    """By the cheapest way to come by it. The store is asked only where memory has nothing near."""
    root = context.snapshot.root
    nearest = PROCESS_TOPOLOGIES.nearest(root, key)
    derive = math.inf if nearest is None else _DERIVE + nearest[1] * _DERIVE_PER_ROW
    if derive <= _DERIVED_AT_ONCE:
        return derive
    if PROCESS_TOPOLOGIES.is_stored(root, key):
        return min(derive, _MAP)
    per_edge = _BUILD_PER_EDGE if key.shape is Shape.NEIGHBOURS else _BUILD_PER_EDGE_WITH_ROWS
    build = _BUILD + edges.state.rows * per_edge + (key.sources.rows + key.targets.rows) * _BUILD_PER_NODE
    return min(derive, build)


def _lookup_cost(plan: ir.Expand, nodes: int, edges: Table, key: TopologyKey) -> float:
    near = key.targets.rows if plan.direction is Direction.IN else key.sources.rows
    degree, ends = edges.state.rows / max(1, near), _ENDS[plan.direction]
    unindexed = sum(index_coverage(edges, column, "BTREE").unindexed_rows for column, _ in ends)
    cost, frontier = 0.0, float(min(nodes, near))
    # A search ends when it has met every node, however many hops it may take.
    hops = min(plan.max_hops, near + 1)
    while hops > 0 and frontier >= _FADED:
        reached = min(frontier * degree * len(ends), float(edges.state.rows))
        hop = 3 * _LOOKUP + frontier * _LOOKUP_PER_VALUE + reached * (_LOOKUP_PER_VALUE + _LOOKUP_PER_EDGE)
        hop += unindexed * _SCAN_PER_ROW
        following = min(reached, float(near))
        if abs(following - frontier) < _STEADY * frontier:
            return cost + hops * hop
        cost, frontier, hops = cost + hop, following, hops - 1
    return cost
