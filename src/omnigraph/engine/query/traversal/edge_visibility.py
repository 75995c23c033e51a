"""Traversal for a restricted reader: an edge exists only if it and both of its ends are visible.

`neighbours` walks what a topology or a lookup found from the start nodes and keeps the visible part as a small
adjacency, so the operators need not know about it. Rows are tested once per query. All visible rows of a table version
are remembered when they are asked for often, by the version and by the digest of the visibility; a visibility that
reads the clock is never remembered.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from omnigraph.engine.query.bindings import Bindings, Mask
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.row_filters import holds, unbound_variable, visible_text
from omnigraph.engine.query.traversal.adjacency import Adjacency, Neighbours, of_edges, of_pairs, walk
from omnigraph.engine.query.values.stored import load_together
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache, RecentlyUsed
from omnigraph.storage.integer_sets import find_positions, is_member, union
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds, row_ids_of

_BYTES: Final = 64 << 20
_REMEMBERED_COSTS: Final = 4_096

# Seconds: the cost of testing rows, and of finding all visible ones.
_LOOK, _LOOK_PER_ROW = 5e-4, 2e-6
_FIND, _FIND_PER_ROW = 2e-3, 1.5e-7

_Key: TypeAlias = tuple[str, str, str]


_VISIBLE: Final[ByteBoundCache[RowIds]] = SHARED_MEMORY.add("visible rows", ByteBoundCache(_BYTES))
_SPENT: Final[RecentlyUsed[_Key, float]] = RecentlyUsed(_REMEMBERED_COSTS)


def at_hand(type_: NodeType | EdgeType, context: ReadContext) -> RowIds | None:
    """The visible rows of a type, ascending, if they have been found before."""
    return None if context.visibility.reads_the_clock else _VISIBLE.get(_key(type_, context))


def pays(type_: NodeType | EdgeType, looks: int, context: ReadContext) -> bool:
    """Whether so many rows were tested one by one that finding all visible rows would have been cheaper. `looks` is the
    number of rows to test next."""
    stored = context.table(type_).state.rows
    if context.visibility.reads_the_clock or stored * 8 > _BYTES // 4:
        return False
    key = _key(type_, context)
    spent = (_SPENT.get(key) or 0.0) + _LOOK + looks * _LOOK_PER_ROW
    _SPENT[key] = spent
    return spent > _FIND + stored * _FIND_PER_ROW


def _key(type_: NodeType | EdgeType, context: ReadContext) -> _Key:
    return context.snapshot.resources.graph_id, context.table(type_).key, context.visibility.digest


_FEW: Final = 1_024
_LOOKUPS_OF_A_TABLE: Final = 16
"""How much dearer it is to look a row up in sorted ones than in a table, which has to be made first."""


def visible_mask(type_: NodeType | EdgeType, rows: RowIds, context: ReadContext, variable: str | None = None) -> Mask:
    """Which of these rows of a type are visible, by their own properties.

    A reader that often tests rows of a table gets all visible rows of it, which are then looked up. Until then rows are
    read; where they are about to be bound to a variable, the values that the plan needs are read along, in one
    request: for few rows a second request costs more than values of rows that turn out to be invisible.
    """
    if not context.is_restricted(type_):
        return np.ones(len(rows), dtype=bool)
    all_visible = at_hand(type_, context)
    if all_visible is None and pays(type_, len(rows), context):
        all_visible = _all_visible(type_, context)
    if all_visible is not None:
        few = len(rows) * _LOOKUPS_OF_A_TABLE < len(all_visible)
        return find_positions(all_visible, rows)[1] if few else is_member(rows, all_visible)
    return _looked_at(type_, rows, context, variable)


def _looked_at(type_: NodeType | EdgeType, rows: RowIds, context: ReadContext, variable: str | None = None) -> Mask:
    tested = context.visibility_checks.get(type_.id)
    space, mask = tested if tested is not None else (RowSpace(np.empty(0, np.int64)), np.zeros(0, dtype=bool))
    fresh = RowSpace.of(rows if not len(space) else rows[~space.contains(rows)])
    if len(fresh):
        variable = variable or unbound_variable(type_)
        test, looked_at = context.visibility.of(type_).rows_of(variable), Bindings({variable: fresh.rows}, len(fresh))
        if len(fresh) <= _FEW:
            named = [v for v in context.named if v.variable == variable and v.owner.type_key == type_.type_key]
            small = [value for value in named if not (value.type.list or value.type.is_vector or value.type.is_blob)]
            load_together([test, *small], looked_at, context)
        holding = holds(test, looked_at, context)
        both = RowSpace(union(space.rows, fresh.rows))
        joined = np.zeros(len(both), dtype=bool)
        joined[both.positions(space.rows)] = mask
        joined[both.positions(fresh.rows)] = holding
        space, mask = both, joined
        context.visibility_checks[type_.id] = space, mask
    return mask[space.positions(rows)]


def visible_rows(type_: NodeType | EdgeType, context: ReadContext) -> RowIds | None:
    """All rows of a type that are visible by their own properties, ascending; None for all rows."""
    if not context.is_restricted(type_):
        return None
    cached = at_hand(type_, context)
    return _all_visible(type_, context) if cached is None else cached


def _all_visible(type_: NodeType | EdgeType, context: ReadContext) -> RowIds:
    """Find them, and remember them for the next reader with an equal visibility."""
    text = visible_text(type_, context)
    rows = np.sort(row_ids_of(context.table(type_).read([], filter=text, row_ids=True)))
    if text is None:
        rows = rows[_looked_at(type_, rows, context)]
    if not context.visibility.reads_the_clock:
        _VISIBLE.keep(_key(type_, context), rows, rows.nbytes)
    return rows


def visible_adjacency(
    neighbours: Neighbours, plan: ir.Expand, nodes: RowIds, *, with_edges: bool, context: ReadContext
) -> Adjacency:
    """The visible part of an adjacency within reach of `nodes`, which are visible themselves. `with_edges` says whether
    entries are single edges: those are needed to look at edges, and are not kept when the plan does not bind them."""
    ranks = [np.empty(0, np.int64)]

    def step(frontier: RowIds) -> tuple[RowIds, RowIds]:
        context.cancellation.check()
        entries = neighbours.entries(neighbours.sources.positions(frontier))
        source = np.repeat(frontier, entries.counts)
        end = neighbours.ends.rows_at(neighbours.targets_at(entries.at))
        context.budget.step(source.nbytes + end.nbytes)
        mask = visible_mask(plan.destination_type, end, context, plan.destination)
        if with_edges:
            assert isinstance(neighbours, Adjacency)
            assert neighbours.ranks is not None
            mask &= visible_mask(plan.edge, neighbours.edges_at(entries.at), context)
            ranks.append(np.asarray(neighbours.ranks[entries.at], np.int64)[mask])
        return source[mask], end[mask]

    near, far, at, to = walk(nodes, plan.max_hops, step, one_type=plan.edge.is_symmetric)
    if plan.edge_variable is None:
        return of_pairs(near, far, at, to)
    assert isinstance(neighbours, Adjacency)
    assert neighbours.edges is not None
    return of_edges(near, far, at, to, np.concatenate(ranks), neighbours.edges)
