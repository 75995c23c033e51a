"""The source of neighbours for a traversal: edges looked up, or topologies, whichever is cheaper.

Called by `expand` and `walks`. Lookups cost per node and return small adjacencies of what they met; a topology costs
once. What lookups have cost at a version counts towards building. All steps of a walk come from the same source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.context import ReadContext, TraversalMode
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.traversal.adjacency import Adjacency, Neighbours, of_edges, of_pairs, walk
from omnigraph.engine.query.traversal.edge_visibility import visible_adjacency
from omnigraph.engine.query.traversal.topology import (
    MOST_HOPS,
    MOST_NODES,
    PROCESS_TOPOLOGIES,
    Shape,
    StoredRanges,
    TopologyKey,
)
from omnigraph.engine.query.traversal.topology_build import Forms, rows_by_id
from omnigraph.engine.rows.end_ids import IdForm
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction, EdgeStep
from omnigraph.storage.integer_sets import distinct, union
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of
from omnigraph.storage.topology import TopologyFiles

_ENDS = {
    Direction.OUT: (("src", "dst"),),
    Direction.IN: (("dst", "src"),),
    Direction.BOTH: (("src", "dst"), ("dst", "src")),
}


class _LookedUp(NamedTuple):
    """Edges whose both ends exist: the nodes where they begin and end as they are walked, and, if they are asked for,
    the edges themselves."""

    sources: RowIds
    ends: RowIds
    edges: RowIds
    edge_ids: pa.Array


def _look_up(step: EdgeStep, nodes: RowIds, ids: pa.Array, context: ReadContext, *, with_edges: bool) -> _LookedUp:
    """The edges by which a step leads on from some nodes, by the ids of these."""
    edge_table, far_nodes = context.table(step.edge), context.table(step.end)
    columns = ["src", "dst", "id"] if with_edges else ["src", "dst"]
    forms = dict(zip(("src", "dst"), _forms(step), strict=True))
    parts = []
    for near, far in _ENDS[step.direction]:
        stored = forms[near].store(ids)
        edges = by_row_id(edge_table.rows_among(near, stored.to_pylist(), columns, row_ids=True))
        if near == "dst" and step.direction is Direction.BOTH:
            left, right = (form.read(edges.column(column)) for column, form in forms.items())
            edges = edges.filter(pc.not_equal(left, right))
        (end,) = rows_by_id(far_nodes, [forms[far].read(edges.column(far))])
        whole = end >= 0
        sources = nodes[pc.index_in(edges.column(near), value_set=stored).to_numpy()][whole]
        edge_ids = one_array(edges.column("id")).filter(pa.array(whole)) if with_edges else _NO_IDS
        parts.append(_LookedUp(sources, end[whole], row_ids_of(edges)[whole], edge_ids))
    return _join(parts)


_NO_ROWS: RowIds = np.empty(0, np.int64)
_NO_IDS = pa.array([], pa.string())
_NO_EDGES = _LookedUp(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_IDS)


def _join(parts: Sequence[_LookedUp]) -> _LookedUp:
    sources, ends, edges, ids = zip(*parts, strict=True)
    return _LookedUp(np.concatenate(sources), np.concatenate(ends), np.concatenate(edges), pa.concat_arrays(ids))


class _Ranks(NamedTuple):
    """The position of each of some edges in the order of their ids, and the edges in that order. An undirected edge
    may have been met from both sides and is one edge with one rank."""

    of_input: Indices
    edges: RowIds

    @classmethod
    def of(cls, edges: RowIds, ids: pa.Array) -> _Ranks:
        order = pc.array_sort_indices(ids).to_numpy()
        ordered = edges[order]
        starts = np.ones(len(order), dtype=bool)
        starts[1:] = ordered[1:] != ordered[:-1]
        ranks: Indices = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(starts) - 1
        return cls(ranks, ordered[starts])


def explore(plan: ir.Expand, nodes: RowIds, context: ReadContext, *, with_edges: bool) -> Adjacency:
    """Everything within reach of the nodes, by looking up edges and their other ends."""
    step_, variable = _step_of(plan, context), plan.source  # whose ids have perhaps been read already
    met = [_NO_EDGES]

    def step(frontier: RowIds) -> tuple[RowIds, RowIds]:
        nonlocal variable
        context.cancellation.check()
        ids = context.properties.locate(context.table(step_.start), variable, "id", frontier).gather()
        variable += "+"
        met.append(_look_up(step_, frontier, ids, context, with_edges=with_edges))
        return met[-1].sources, met[-1].ends

    near, far, at, to = walk(nodes, plan.max_hops, step, one_type=plan.edge.is_symmetric)
    if not with_edges:
        return of_pairs(near, far, at, to)
    edges = _join(met)
    return of_edges(near, far, at, to, *_Ranks.of(edges.edges, edges.edge_ids))


class StepNeighbours(NamedTuple):
    """The neighbours of the nodes where a step of a walk begins, and of those where it ends."""

    out: Neighbours
    back: Neighbours


def walk_neighbours(
    plan: ir.Walk, starts: Mapping[str, RowIds], context: ReadContext, *, with_edges: bool
) -> list[StepNeighbours]:
    """The neighbours of each step of a walk: at least everything within reach of the `starts`, which are nodes by their
    type keys, invisible ones included. `with_edges`: entries are single edges, ranked by id over all steps of their
    type."""
    shape = Shape.EDGES if with_edges else Shape.NEIGHBOURS
    keys = [_topology_key(step, shape, context) for step in plan.steps]
    counts = {type_key: math.ceil(len(rows) / context.share) for type_key, rows in starts.items()}
    mode, reason = choose(plan.steps, counts, plan.max_hops, keys, context)
    if mode is TraversalMode.INDEXED:
        names = ", ".join(dict.fromkeys(step.edge.name for step in plan.steps))
        context.profiler.note(f"lookups on {names}: {reason}")
        return _explore_walk(plan, starts, context, with_edges=with_edges)
    neighbours = []
    for step, key in zip(plan.steps, keys, strict=True):
        topology, origin = PROCESS_TOPOLOGIES.get(context.snapshot.root, key, context.cancellation.check_at_exit)
        context.profiler.note(f"topology of {step.edge.name} ({origin}): {reason}")
        ways = topology.towards(step.direction), topology.towards(step.direction.flipped)
        neighbours.append(StepNeighbours(*ways))
    return neighbours


def _explore_walk(
    plan: ir.Walk, starts: Mapping[str, RowIds], context: ReadContext, *, with_edges: bool
) -> list[StepNeighbours]:
    """Everything within reach of some nodes, by looking up the edges of all steps and their other ends."""
    frontier = {type_.type_key: distinct(starts.get(type_.type_key, _NO_ROWS)) for type_ in plan.node_members}
    visited = {type_key: RowSpace(rows) for type_key, rows in frontier.items()}
    met = [[_NO_EDGES] for _ in plan.steps]
    variable = plan.source  # whose ids have perhaps been read already
    for _ in range(plan.max_hops):
        if not any(map(len, frontier.values())):
            break
        context.cancellation.check()
        reached: dict[str, list[RowIds]] = {type_key: [_NO_ROWS] for type_key in frontier}
        for step, edges in zip(plan.steps, met, strict=True):
            nodes = frontier[step.start.type_key]
            if len(nodes):
                ids = context.properties.locate(context.table(step.start), variable, "id", nodes).gather()
                edges.append(_look_up(step, nodes, ids, context, with_edges=with_edges))
                reached[step.end.type_key].append(edges[-1].ends)
        variable = f"{plan.source}+"
        for type_key, rows in reached.items():
            fresh = distinct(np.concatenate(rows))
            frontier[type_key] = fresh[~visited[type_key].contains(fresh)]
            visited[type_key] = RowSpace(union(visited[type_key].rows, frontier[type_key]))
    return _adjacencies(plan, [_join(parts) for parts in met], visited, with_edges=with_edges)


def _adjacencies(
    plan: ir.Walk, met: Sequence[_LookedUp], spaces: Mapping[str, RowSpace], *, with_edges: bool
) -> list[StepNeighbours]:
    """The edges of each step as adjacencies between all nodes that were met."""
    by_type: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        by_type.setdefault(step.edge.type_key, []).append(number)
    neighbours: dict[int, StepNeighbours] = {}
    for numbers in by_type.values():
        edges = _join([met[number] for number in numbers])
        ranks, rows = _Ranks.of(edges.edges, edges.edge_ids) if with_edges else (_NO_ROWS, _NO_ROWS)
        first = 0
        for number in numbers:
            step, own = plan.steps[number], met[number]
            near, far = spaces[step.start.type_key], spaces[step.end.type_key]
            source, end = near.positions(own.sources), far.positions(own.ends)
            if with_edges:
                own_ranks = ranks[first : first + len(source)]
                out = of_edges(near, far, source, end, own_ranks, rows)
                back = of_edges(far, near, end, source, own_ranks, rows)
            else:
                out, back = of_pairs(near, far, source, end), of_pairs(far, near, end, source)
            neighbours[number] = StepNeighbours(out, back)
            first += len(source)
    return [neighbours[number] for number in range(len(plan.steps))]


# Seconds, measured on a local disk with two cores. Only their proportions matter, and only for speed.
_LEAST_LOOKUPS = 7.5e-3
_LOOKUP_PER_VALUE = 6e-5
_LOOKUP_PER_EDGE = 1e-6
_SCAN_PER_ROW = 3e-8
_MAP = 3e-3
_DERIVE = 3e-3
# To an object store: a request and its response, of which a lookup needs several, and bytes.
_ROUND = 2e-2
_ROUNDS_PER_LOOKUP = 3
_ROUNDS_PER_BUILD = 8
_FETCH_PER_BYTE = 1e-8
_BYTES_PER_EDGE = 60
_BYTES_PER_NODE = 30
_DERIVE_PER_ROW = 2e-6
_DERIVED_AT_ONCE = 2e-2
_BUILD = 5e-3
_BUILD_PER_EDGE = 3.5e-7
_BUILD_PER_EDGE_WITH_ROWS = 9e-7
_BUILD_PER_NODE = 2e-7
# A frontier that changes by less than this share from hop to hop is taken to stay as it is; one of less than so many
# nodes, expected, is taken to be empty. So an estimate costs a bounded number of steps for any number of hops.
_STEADY = 0.01
_FADED = 1e-3


def neighbours_of(plan: ir.Expand, nodes: RowIds, context: ReadContext) -> Neighbours:
    """An adjacency with at least everything within reach of `nodes`, and nothing invisible."""
    looks_at_edges = context.is_restricted(plan.edge)
    with_edges = _looks_at_edges(plan, context)
    neighbours = _find(plan, nodes, Shape.EDGES if with_edges else Shape.NEIGHBOURS, context)
    if not looks_at_edges and not context.is_restricted(plan.destination_type):
        return neighbours
    return visible_adjacency(neighbours, plan, nodes, with_edges=with_edges, context=context)


def _find(plan: ir.Expand, nodes: RowIds, shape: Shape, context: ReadContext) -> Neighbours:
    step = _step_of(plan, context)
    key = _topology_key(step, shape, context)
    if (near := _explore_ranges(plan, step, key, nodes, context)) is not None:
        return near
    counts = {step.start.type_key: math.ceil(len(nodes) / context.share)}
    mode, reason = choose([step], counts, plan.max_hops, [key], context)
    if mode is TraversalMode.INDEXED:
        context.profiler.note(f"lookups on {plan.edge.name}: {reason}")
        return explore(plan, nodes, context, with_edges=shape is Shape.EDGES)
    # Once begun it is finished, however soon the query's time is up: all later ones use it.
    topology, origin = PROCESS_TOPOLOGIES.get(context.snapshot.root, key, context.cancellation.check_at_exit)
    context.profiler.note(f"topology of {plan.edge.name} ({origin}): {reason}")
    return topology.towards(plan.direction)


def _explore_ranges(
    plan: ir.Expand, step: EdgeStep, key: TopologyKey, nodes: RowIds, context: ReadContext
) -> Adjacency | None:
    """Everything within reach of a few nodes, by ranges of a stored topology, as long as that is the cheapest way."""
    if context.mode is not TraversalMode.AUTO or plan.max_hops > MOST_HOPS:
        return None
    root = context.snapshot.root
    degree = len(_ENDS[step.direction]) * key.edges.rows / max(1, context.snapshot.state_of(step.start).rows)
    reached = math.ceil(len(nodes) / context.share) * max(1.0, degree) ** (plan.max_hops - 1)
    if reached > MOST_NODES or (stored := StoredRanges.of(root, key)) is None:
        return None
    cost = 2 * _ROUND * plan.max_hops
    if PROCESS_TOPOLOGIES.spend(key, cost) > _topology_cost(key, context):
        return None
    near = stored.explore(plan, nodes, context.cancellation.check)
    if near is not None:
        context.profiler.note(f"ranges of the stored topology of {plan.edge.name}: about {cost * 1000:.1f} ms")
    return near


def fetch_topologies(root: ir.ReadOperator, context: ReadContext) -> None:
    """Begin to read the stored topologies of a plan. For a store behind a network: the query does not wait for them
    when it has found the nodes to begin at."""
    graph = context.snapshot.root
    if graph.location.is_local or context.mode is TraversalMode.INDEXED:
        return
    for operator, _ in ir.plan_levels(root):
        if isinstance(operator, ir.Expand):
            shape = Shape.EDGES if _looks_at_edges(operator, context) else Shape.NEIGHBOURS
            key = _topology_key(_step_of(operator, context), shape, context)
            graph.in_background(partial(PROCESS_TOPOLOGIES.fetch, graph, key))


def _looks_at_edges(plan: ir.Expand, context: ReadContext) -> bool:
    return plan.edge_variable is not None or context.is_restricted(plan.edge)


def _topology_key(step: EdgeStep, shape: Shape, context: ReadContext) -> TopologyKey:
    state_of = context.snapshot.state_of
    near, far = state_of(step.start), state_of(step.end)
    sources, targets = (far, near) if step.direction is Direction.IN else (near, far)
    states = state_of(step.edge), sources, targets
    return TopologyKey.of(context.snapshot.entry.graph_id, shape, step.edge, _node_names(step), states)


def _node_names(step: EdgeStep) -> tuple[str, str]:
    """The node types of the sources and the targets of the edges that a step takes."""
    names = step.start.name, step.end.name
    return names[::-1] if step.direction is Direction.IN else names


def _forms(step: EdgeStep) -> Forms:
    """How these edges hold the ids of their sources and targets."""
    source, target = (IdForm.of(end, node) for end, node in zip(step.edge.ends, _node_names(step), strict=True))
    return source, target


def _step_of(plan: ir.Expand, context: ReadContext) -> EdgeStep:
    return EdgeStep(plan.edge, plan.direction, source_type(plan, context), plan.destination_type)


def source_type(plan: ir.Expand, context: ReadContext) -> NodeType:
    """The node type that the traversal starts from."""
    if plan.edge.is_symmetric:
        return plan.destination_type
    (name,) = plan.edge.target_types if plan.direction is Direction.IN else plan.edge.source_types
    return context.catalog.nodes[name]


def choose(
    steps: Sequence[EdgeStep],
    starts: Mapping[str, int],
    most_hops: int,
    keys: Sequence[TopologyKey],
    context: ReadContext,
) -> tuple[TraversalMode, str]:
    """A way to find neighbours, and why. `starts` are the numbers of nodes to begin at, by type key, `keys` the
    topologies of the steps."""
    if context.mode is not TraversalMode.AUTO:
        return context.mode, "forced by the traversal mode"
    absent = [key for key in dict.fromkeys(keys) if PROCESS_TOPOLOGIES.peek(key) is None]
    if not absent:
        return TraversalMode.CSR, "at hand"
    topology = sum(_topology_cost(key, context) for key in absent)
    if any(starts.values()) and topology <= len(steps) * _least_lookup_cost(context):
        # Found without the tables of the edges, which are then not opened.
        return TraversalMode.CSR, f"about {topology * 1000:.1f} ms by topology, and more by lookup"
    lookups = _lookup_cost(steps, starts, most_hops, context)
    spent = sum(PROCESS_TOPOLOGIES.spend(key, lookups / len(absent)) for key in absent)
    if spent <= topology:
        return TraversalMode.INDEXED, _weigh(lookups, topology, spent)
    estimate = f"about {lookups * 1000:.1f} ms by lookup, {topology * 1000:.1f} ms by topology"
    return TraversalMode.CSR, estimate if lookups > topology else f"{estimate}, asked for repeatedly"


def describe_neighbours(plan: ir.Expand, starts: int, context: ReadContext) -> str:
    """What would be weighed for a traversal from so many nodes, without doing either."""
    if context.mode is not TraversalMode.AUTO:
        return str(context.mode)
    step = _step_of(plan, context)
    key = _topology_key(step, Shape.NEIGHBOURS if plan.edge_variable is None else Shape.EDGES, context)
    if PROCESS_TOPOLOGIES.peek(key) is not None:
        return "topology in memory"
    lookups = _lookup_cost([step], {step.start.type_key: starts}, plan.max_hops, context)
    return _weigh(lookups, _topology_cost(key, context), PROCESS_TOPOLOGIES.spend(key, 0.0))


def _weigh(lookups: float, topology: float, spent: float) -> str:
    """The costs of both ways, and what lookups have cost so far."""
    estimate = f"about {lookups * 1000:.1f} ms by lookup, {topology * 1000:.1f} ms by topology"
    return f"{estimate}, made once lookups have cost as much, {spent * 1000:.1f} ms so far"


def _topology_cost(key: TopologyKey, context: ReadContext) -> float:
    """By the cheapest way to come by it. The store is asked only where memory has nothing near."""
    root = context.snapshot.root
    nearest = PROCESS_TOPOLOGIES.nearest(root, key)
    derive = math.inf if nearest is None else _DERIVE + nearest[1] * _DERIVE_PER_ROW
    if derive <= _DERIVED_AT_ONCE:
        return derive
    if (stored := PROCESS_TOPOLOGIES.find_stored(root, key)) is not None:
        is_near = root.location.is_local or TopologyFiles(root.objects).are_at_hand(key.folder, stored)
        fetch = 0.0 if is_near else 2 * _ROUND + stored.nbytes * _FETCH_PER_BYTE
        return min(derive, _MAP + fetch)
    per_edge = _BUILD_PER_EDGE if key.shape is Shape.NEIGHBOURS else _BUILD_PER_EDGE_WITH_ROWS
    nodes = key.sources.rows + key.targets.rows
    build = _BUILD + key.edges.rows * per_edge + nodes * _BUILD_PER_NODE
    if not root.location.is_local:
        read = key.edges.rows * _BYTES_PER_EDGE + nodes * _BYTES_PER_NODE
        build += _ROUNDS_PER_BUILD * _ROUND + read * _FETCH_PER_BYTE
    return min(derive, build)


def _lookup_cost(steps: Sequence[EdgeStep], starts: Mapping[str, int], most_hops: int, context: ReadContext) -> float:
    estimates = [_StepEstimate.of(step, context) for step in steps]
    sizes = {
        type_.type_key: float(context.table(type_).state.rows) for step in steps for type_ in (step.start, step.end)
    }
    least = _least_lookup_cost(context)
    frontier = {type_key: min(float(starts.get(type_key, 0)), size) for type_key, size in sizes.items()}
    cost = 0.0
    # A search ends when it has met every node, however many hops it may take.
    hops = min(most_hops, int(sum(sizes.values())) + 1)
    while hops > 0 and sum(frontier.values()) >= _FADED:
        hop, following = 0.0, dict.fromkeys(sizes, 0.0)
        for step in estimates:
            nodes = frontier[step.start]
            reached = min(nodes * step.degree, step.edges)
            hop += 0.0 if nodes < _FADED else least + step.cost(nodes, reached)
            following[step.end] = min(following[step.end] + reached, sizes[step.end])
        if all(abs(following[key] - size) <= _STEADY * size for key, size in frontier.items()):
            return cost + hops * hop
        cost, frontier, hops = cost + hop, following, hops - 1
    return cost


def _least_lookup_cost(context: ReadContext) -> float:
    """The cost of the lookups of a step, however few nodes there are."""
    is_local = context.snapshot.root.location.is_local
    return _LEAST_LOOKUPS if is_local else _LEAST_LOOKUPS + 3 * _ROUNDS_PER_LOOKUP * _ROUND


class _StepEstimate(NamedTuple):
    """The expected size of a step: where it leads, how many edges a node has on it, how many edges there are, and how
    many rows no index covers."""

    start: str
    end: str
    degree: float
    edges: float
    unindexed: int

    @classmethod
    def of(cls, step: EdgeStep, context: ReadContext) -> _StepEstimate:
        edges, ends = context.table(step.edge), _ENDS[step.direction]
        degree = len(ends) * edges.state.rows / max(1, context.table(step.start).state.rows)
        unindexed = sum(index_coverage(edges, column, "BTREE").unindexed_rows for column, _ in ends)
        return cls(step.start.type_key, step.end.type_key, degree, float(edges.state.rows), unindexed)

    def cost(self, nodes: float, reached: float) -> float:
        lookups = nodes * _LOOKUP_PER_VALUE + reached * (_LOOKUP_PER_VALUE + _LOOKUP_PER_EDGE)
        return lookups + self.unindexed * _SCAN_PER_ROW
