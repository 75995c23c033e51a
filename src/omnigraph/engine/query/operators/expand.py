"""The expand operator: from the nodes of one variable to their neighbours over an edge type.

Neighbours come from the topology or from lookups, whichever is cheaper; everything after that is the same code on
the same structure. Follows the breadth-first definition of the language exactly, a whole frontier at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from omnigraph.engine.query.bindings import Bindings, Counts, Indices, added_up
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.grouping import Groups, group_stored
from omnigraph.engine.query.plans import first_of_intersection, stored_values
from omnigraph.engine.query.traversal.adjacency import (
    Adjacency,
    Neighbours,
    are_all,
    end_counts,
    for_reading,
    has_pairs,
    list_bounds,
)
from omnigraph.engine.query.traversal.intersection import Side, common_neighbours
from omnigraph.engine.query.traversal.neighbours import neighbours_of
from omnigraph.engine.query.traversal.search import (
    HOPS_AT_ONCE,
    AdjacencyHops,
    HopRange,
    bounded_parts,
    search,
    starts_at_once,
)
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.engine.query.values.stored import load_together
from omnigraph.errors import ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

# Rows that are tested one by one between two looks at the clock.
_ROWS_PER_CHECK = 1 << 18
# Rows are merged by what is read of them when there are so many of them at least, and on average so many for each
# combination of values.
_MERGED_AT_LEAST = 1 << 12
_ALIKE = 4
_MOST_KINDS = 1 << 22
# Whether values are worth comparing shows in so many of them: not if so large a share of them differs.
_SAMPLED = 1 << 12
_UNIQUE_SHARE = 0.9
# Counting into one slot per node pays unless there are this many times more nodes than ends.
_SPARSE_ENDS = 16


def expand(
    plan: ir.Expand,
    rows: Bindings,
    needed: AbstractSet[str],
    counts_only: bool,
    context: ReadContext,
    values: Sequence[ir.Value] | None = None,
) -> Bindings:
    """The rows of `plan` over `rows`, binding at least the `needed` variables. With `counts_only` the result is only
    counted, so an end that no later operator reads may become a weight. `values` are all that is read of the rows, if
    that is known: rows that are only counted and agree in them may become one."""
    if (first := first_of_intersection(plan)) is not None:
        return _meet(first, plan, rows, needed, counts_only, context)
    nodes = rows.rows[plan.source]
    if (nodes < 0).any():  # null has no neighbour
        rows = rows.where(nodes >= 0)
        nodes = rows.rows[plan.source]
    hops = _hops(plan)
    if not rows.length or hops.least > hops.most:
        own = [plan.destination, *([plan.edge_variable] if plan.edge_variable else [])]
        return rows.slice(0, 0).binding({variable: np.empty(0, np.int64) for variable in own})
    looked_at = set(needed) | {name for p in plan.predicates for name in ir.predicate_variables(p)}
    reads_end = plan.destination in looked_at
    adjacency = neighbours_of(plan, nodes, context)
    kept = rows.only(looked_at | ({plan.destination} if plan.closing else set()))
    is_search = hops != (1, 1)
    if is_search and plan.closing:
        tagged = Bindings({"row": np.arange(rows.length)}, rows.length)
        reached = _within_hops(plan, tagged, nodes, adjacency, context)
        tags = reached.rows["row"]
        hits = reached.rows[plan.destination] == kept.rows[plan.destination][tags]
        return filter_rows(kept.take(tags[hits]), plan.predicates, context)
    if is_search and counts_only and not reads_end:
        starts = RowSpace.of(nodes)
        counts = np.concatenate([counts for counts, _ in _searches(hops, starts, adjacency, context)])
        return kept.with_weights(counts[starts.positions(nodes)])
    if is_search:
        return filter_rows(_within_hops(plan, kept, nodes, adjacency, context), plan.predicates, context)
    positions = adjacency.sources.positions(nodes)
    if plan.edge_variable is not None:
        expanded = _one_hop(plan, kept, positions, adjacency, context)
    elif plan.closing:
        expanded = _close(plan, kept, positions, adjacency, context)
    elif counts_only and not reads_end:
        return kept.with_weights(adjacency.counts(positions))
    elif counts_only and not kept.rows:
        expanded = _merge_ends(plan, kept, positions, adjacency, context)
    else:
        stored = stored_values((*values, *plan.predicates)) if counts_only and values is not None else None
        alike = None if stored is None else _merge_alike(plan, kept, positions, adjacency, stored, context)
        if alike is None:
            alike = _one_hop(plan, kept, positions, adjacency, context, bind=reads_end)
        expanded = alike
    return filter_rows(expanded, plan.predicates, context)


def _hops(plan: ir.Expand) -> HopRange:
    """An edge between two types can be walked once, and leads from no node to itself."""
    if plan.edge.is_symmetric:
        return HopRange(plan.min_hops, plan.max_hops)
    return HopRange(max(plan.min_hops, 1), min(plan.max_hops, 1))


def _one_hop(
    plan: ir.Expand, rows: Bindings, nodes: Indices, adjacency: Neighbours, context: ReadContext, *, bind: bool = True
) -> Bindings:
    """A row per neighbour, a self loop being one like any other; with an edge variable a row per stored edge."""
    counts = adjacency.counts(nodes)
    if bind:
        context.work.spend(int(counts.sum()))
        return _bind_ends(plan, rows, nodes, adjacency, context)
    return _repeat(rows, counts, context)


def _repeat(rows: Bindings, counts: Counts, context: ReadContext) -> Bindings:
    """Each row once for each of its ends."""
    total = int(counts.sum())
    context.budget.step(rows.nbytes + total * 8 * (len(rows.rows) + 3 + (rows.weights is not None)))
    each_once = total == rows.length and bool((counts == 1).all())
    return rows if each_once else rows.each(counts, context.cancellation.check)


def _bind_ends(
    plan: ir.Expand, rows: Bindings, nodes: Indices, adjacency: Neighbours, context: ReadContext
) -> Bindings:
    """A row per entry of its node."""
    expanded = _repeat(rows, adjacency.counts(nodes), context)
    _, at = adjacency.entries(nodes)
    ends = adjacency.ends.rows_at(adjacency.targets_at(at))
    if plan.edge_variable is not None:
        assert isinstance(adjacency, Adjacency)
        expanded = expanded.binding({plan.edge_variable: adjacency.edges_at(at)})
        if plan.closing:
            return expanded.where(expanded.rows[plan.destination] == ends)
    return expanded.binding({plan.destination: ends})


def _merge_ends(
    plan: ir.Expand, rows: Bindings, nodes: Indices, adjacency: Neighbours, context: ReadContext
) -> Bindings:
    """One hop where nothing but the end is read: rows that end at one node become one, ascending by row id."""
    total = int(adjacency.counts(nodes).sum())
    context.budget.step(total * 8 * (1 if rows.weights is None else 2))
    counts, at = adjacency.entries(nodes)
    if rows.weights is not None or not are_all(adjacency, at):
        context.work.spend(total)
    weights = None if rows.weights is None else np.repeat(rows.weights, counts)
    if total * _SPARSE_ENDS < len(adjacency.ends):
        ends, _, positions = factorize(adjacency.targets_at(at))
        met = added_up(positions, weights, len(ends))
    else:
        met = end_counts(adjacency, at, weights)
        ends = np.flatnonzero(met)
        met = met[ends]
    return Bindings({plan.destination: adjacency.ends.rows_at(ends)}, len(ends), met)


def _merge_alike(
    plan: ir.Expand,
    rows: Bindings,
    nodes: Indices,
    adjacency: Neighbours,
    stored: Mapping[str, Sequence[ir.PropertyValue]],
    context: ReadContext,
) -> Bindings | None:
    """One hop of which some stored values are read and nothing else: rows that agree in these become one. Neighbours
    are counted by what both ends hold, and no row is made for each. None when that would be about as many rows."""
    counts = adjacency.counts(nodes)
    total = int(counts.sum())
    is_known = stored.keys() <= rows.rows.keys() | {plan.destination}
    if rows.weights is not None or total < _MERGED_AT_LEAST or not is_known:
        return None
    ends = _ends_reached(nodes, adjacency, context)
    end_rows = Bindings({plan.destination: adjacency.ends.rows_at(ends)}, len(ends))
    near_values = [value for variable in rows.rows for value in stored.get(variable, ())]
    kinds = _kinds(
        (near_values, rows), (stored.get(plan.destination, ()), end_rows), min(total // _ALIKE, _MOST_KINDS), context
    )
    if kinds is None:
        return None
    near, far = kinds
    size = len(near) * len(far)
    context.work.spend(total)
    adjacency = for_reading(adjacency, total)
    near_kinds = (near.of_row * len(far)).astype(np.int32)
    end_kinds = np.zeros(len(adjacency.ends), np.int32)
    end_kinds[ends] = far.of_row
    met: Counts = np.zeros(size, np.int64)
    for part in bounded_parts(counts, max(HOPS_AT_ONCE, size)):
        context.budget.step(8 * (4 * int(counts[part].sum()) + 2 * size))
        part_counts, at = adjacency.entries(nodes[part])
        codes = end_kinds.take(adjacency.targets_at(at))
        codes += np.repeat(near_kinds[part], part_counts)
        met += np.bincount(codes, minlength=size)
    present = np.flatnonzero(met)
    near_kind, far_kind = np.divmod(present, len(far))
    merged = rows.take(near.first[near_kind]).binding(end_rows.take(far.first[far_kind]).rows)
    return Bindings(merged.rows, len(present), met[present])


_Held: TypeAlias = tuple[Sequence[ir.PropertyValue], Bindings]
"""Stored values, and the rows that hold them."""


def _kinds(near: _Held, far: _Held, most: int, context: ReadContext) -> tuple[Groups, Groups] | None:
    """The nodes at either end of a hop by what they hold; None for more than so many pairs of kinds, and for values too
    large to be compared: a query that only counts them may have room all the same."""
    try:
        for values, rows in (near, far):
            load_together(values, rows, context)
        if math.prod(_fewest_kinds(*held, context) for held in (near, far)) > most:
            return None
        kinds = group_stored(*near, context), group_stored(*far, context)
    except ResourceLimitError as error:
        if error.resource != "query_memory_bytes":
            raise
        return None
    return kinds if len(kinds[0]) * len(kinds[1]) <= most else None


def _fewest_kinds(values: Sequence[ir.PropertyValue], rows: Bindings, context: ReadContext) -> int:
    """About how many kinds of rows there are at least, by the first of them: as names do, most may differ."""
    some = rows.slice(0, _SAMPLED)
    kinds = len(group_stored(values, some, context))
    return kinds if kinds < some.length * _UNIQUE_SHARE else int(rows.length * _UNIQUE_SHARE)


def _ends_reached(nodes: Indices, adjacency: Neighbours, context: ReadContext) -> Indices:
    """The ends that some of the nodes have as a neighbour, ascending."""
    counts = adjacency.counts(nodes)
    if adjacency.reverse is not None and int(counts.sum()) == adjacency.size:
        return np.flatnonzero(adjacency.reverse.all_counts())
    reached = np.zeros(len(adjacency.ends), np.bool_)
    for part in bounded_parts(counts):
        context.budget.step(8 * 2 * int(counts[part].sum()))
        reached[adjacency.targets_at(adjacency.entries(nodes[part]).at)] = True
    return np.flatnonzero(reached)


def _close(plan: ir.Expand, rows: Bindings, nodes: Indices, adjacency: Neighbours, context: ReadContext) -> Bindings:
    """The rows whose destination, bound already, is next to their node."""
    ends = adjacency.ends.positions(rows.rows[plan.destination])
    parts = []
    for first in range(0, rows.length, _ROWS_PER_CHECK):
        context.cancellation.check()
        part = slice(first, first + _ROWS_PER_CHECK)
        context.work.spend(len(nodes[part]))
        parts.append(has_pairs(adjacency, nodes[part], ends[part]))
    return rows.where(np.concatenate(parts))


def _meet(
    first: ir.Expand,
    closing: ir.Expand,
    rows: Bindings,
    needed: AbstractSet[str],
    counts_only: bool,
    context: ReadContext,
) -> Bindings:
    """The rows of a traversal and of the one that closes a pattern over its end: those with a common neighbour of two
    nodes, which is bound."""
    second = _towards_end(first, closing)
    rows = rows.where((rows.rows[first.source] >= 0) & (rows.rows[second.source] >= 0))
    predicates = (*first.predicates, *closing.predicates)
    looked_at = set(needed) | {name for p in predicates for name in ir.predicate_variables(p)}
    if not rows.length:
        return rows.binding({first.destination: np.empty(0, np.int64)})
    context.profiler.note(f"common neighbours of ${first.source} and ${second.source}")
    near, far = _side(first, rows, context), _side(second, rows, context)
    kept = rows.only(looked_at)
    if counts_only and first.destination not in looked_at:
        weights: Counts = np.empty(rows.length, np.int64)
        for common in common_neighbours(near, far, context):
            size = common.pairs.stop - common.pairs.start
            weights[common.pairs] = np.bincount(common.of_pair, minlength=size)
        return filter_rows(kept.with_weights(weights), predicates, context)
    of_row, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    held = 0
    for common in common_neighbours(near, far, context):
        of_row.append(common.of_pair + common.pairs.start)
        ends.append(common.ends)
        held += 2 * common.ends.nbytes
        context.budget.step(rows.nbytes + held)
    at = np.concatenate(of_row)
    context.budget.step(rows.nbytes + 2 * held + len(at) * 8 * (len(kept.rows) + 2))
    met = kept.take(at).binding({first.destination: np.concatenate(ends)})
    return filter_rows(met, predicates, context)


def _side(plan: ir.Expand, rows: Bindings, context: ReadContext) -> Side:
    """The node of each row that a traversal begins at, among its neighbours."""
    nodes = rows.rows[plan.source]
    neighbours = neighbours_of(plan, nodes, context)
    return Side(neighbours, neighbours.sources.positions(nodes))


def _towards_end(first: ir.Expand, closing: ir.Expand) -> ir.Expand:
    """The traversal that closes a pattern, as one towards the end of the first."""
    if closing.destination == first.destination:
        return closing
    return replace(
        closing,
        source=closing.destination,
        direction=closing.direction.flipped,
        destination=first.destination,
        destination_type=first.destination_type,
    )


def _within_hops(
    plan: ir.Expand, rows: Bindings, nodes: RowIds, adjacency: Neighbours, context: ReadContext
) -> Bindings:
    """Several hops: one search per distinct node, its result shared by the rows that start there."""
    starts = RowSpace.of(nodes)
    counts: list[Counts] = []
    ends: list[Indices] = []
    held = 0
    for reached_counts, reached in _searches(_hops(plan), starts, adjacency, context):
        counts.append(reached_counts)
        ends.append(reached)
        held += reached.nbytes
        context.budget.step(rows.nbytes + held)
    context.budget.step(rows.nbytes + 2 * held)
    searched = Adjacency(starts, adjacency.ends, list_bounds(np.concatenate(counts)), np.concatenate(ends))
    return _bind_ends(plan, rows, starts.positions(nodes), searched, context)


def _searches(
    hops: HopRange, starts: RowSpace, adjacency: Neighbours, context: ReadContext
) -> Iterator[tuple[Counts, Indices]]:
    """Breadth-first from every start, as many at a time as there is room for: how many nodes each of them reached, and
    the nodes, start after start."""
    source = AdjacencyHops(adjacency, context)
    positions = adjacency.sources.positions(starts.rows)
    batch = starts_at_once(source.size, context)
    for first in range(0, len(starts), batch):
        context.cancellation.check()
        part = positions[first : first + batch]
        owner, reached = search(source, part, hops, context)
        yield np.bincount(owner, minlength=len(part)), reached
