"""The graph of one walk for one reader: where its neighbours come from, what of it is visible, and which hops satisfy
its conditions.

`walks` builds one per run of an operator. It numbers nodes and edges, and turns these numbers into bindings. A hop
exists if its edge and both ends are visible and all conditions of `each` are true. Conditions that mention no other
variable are tested once for each hop, the others once for each hop and start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices, Mask, member_column
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.traversal.adjacency import Adjacency
from omnigraph.engine.query.traversal.edge_visibility import visible_mask
from omnigraph.engine.query.traversal.hop_graph import (
    EdgeNumbers,
    HopGraph,
    HopTest,
    MetHops,
    NodeNumbers,
    Step,
    join_spaces,
)
from omnigraph.engine.query.traversal.neighbours import StepNeighbours, walk_neighbours
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

_ROW = "#hop"
"""The column that numbers the hops which are tested."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of a walk: the distinct combinations of its start and of what its conditions read beside it.

    `outer` has a row of these other variables for each origin, `of_row` the origin of each row of the bindings.
    """

    nodes: Indices
    outer: Bindings
    of_row: Indices

    @classmethod
    def of(cls, nodes: Indices, outer: Bindings) -> Origins:
        codes = nodes
        for column in outer.rows.values():
            both = factorize(codes).of_input, factorize(column)
            codes = both[0] * len(both[1].values) + both[1].of_input
        _, first, of_row = factorize(codes)
        return cls(nodes[first], outer.take(first), of_row)

    def __len__(self) -> int:
        return len(self.nodes)


def with_start(plan: ir.Walk, rows: Bindings) -> Bindings:
    """The rows whose source is not null, and of a type that the walk can begin at."""
    mask = rows.rows[plan.source] >= 0
    can_begin = _renumber(plan.source_members, plan.node_members) >= 0
    if not can_begin.all():
        members = rows.rows[member_column(plan.source)] if len(plan.source_members) > 1 else 0
        mask &= can_begin[members]
    return rows.where(mask)


class WalkGraph:
    """The graph of a walk within reach of the nodes that its source is bound to in some rows, which are `with_start`.
    `with_edges`: its edges are wanted, and not only what they lead to."""

    def __init__(self, plan: ir.Walk, rows: Bindings, context: ReadContext, *, with_edges: bool) -> None:
        self.plan = plan
        self._context = context
        self._types = {type_.type_key: number for number, type_ in enumerate(plan.node_members)}
        self._edge_types = {type_.type_key: number for number, type_ in enumerate(plan.edge_members)}
        self._shared, self._own = _split_conditions(plan)
        types: tuple[TableType, ...] = (*plan.node_members, *plan.edge_members)
        self._restricted = any(map(context.is_restricted, types))
        of_hop = {plan.each.edge, plan.each.node} if plan.each is not None else set()
        looks_at_edges = any(map(context.is_restricted, plan.edge_members)) or (
            plan.each is not None and plan.each.edge in _variables(plan.each.conditions)
        )
        starts = _rows_by_type(plan.source, plan.source_members, rows)
        self._neighbours = walk_neighbours(plan, starts, context, with_edges=with_edges or looks_at_edges)
        self.nodes = NodeNumbers(self._spaces(starts))
        self.edges = self._number_edges() if with_edges or looks_at_edges else None
        outer = rows.only(_variables(self._own) - of_hop)
        sources = self.positions(plan.source, plan.source_members, rows)
        self.origins = Origins.of(sources, Bindings(outer.rows, outer.length))

    @cached_property
    def hops(self) -> HopGraph:
        """The hops as they are walked."""
        return self._graph(back=False)

    @cached_property
    def back(self) -> HopGraph:
        """The same hops, from where they arrive."""
        return self._graph(back=True)

    def release(self) -> None:
        """Nobody searches it any more. Its graphs refer back to it: what they hold would wait for the collector."""
        for name in ("hops", "back"):
            graph: HopGraph | None = self.__dict__.pop(name, None)
            if graph is not None:
                graph.release()

    def positions(self, variable: str, members: Sequence[NodeType], rows: Bindings) -> Indices:
        """The numbers of the nodes that a variable is bound to; -1 for null and for nodes that are out of reach."""
        of_member = np.array([self._types.get(type_.type_key, -1) for type_ in members], np.int64)
        if len(members) == 1:
            return self.nodes.positions(int(of_member[0]), rows.rows[variable])
        return self.nodes.positions(of_member[rows.rows[member_column(variable)]], rows.rows[variable])

    def accepts(self, nodes: Indices) -> Mask:
        """Which nodes have a type that the destination may have."""
        wanted = {type_.type_key for type_ in self.plan.destination_members}
        allowed = np.array([type_.type_key in wanted for type_ in self.plan.node_members], np.bool_)
        if allowed.all():
            return np.ones(len(nodes), np.bool_)
        return allowed[self.nodes.members_of(nodes)]

    def bind_nodes(self, variable: str, members: Sequence[NodeType], positions: NDArray[Any]) -> dict[str, RowIds]:
        """The columns of a variable that is bound to these nodes."""
        columns = {variable: self.nodes.rows_at(positions)}
        if len(members) > 1:
            columns[member_column(variable)] = self.node_members(members, positions)
        return columns

    def node_members(self, members: Sequence[TableType], positions: NDArray[Any]) -> Indices:
        """The types of some nodes, by their positions among these members."""
        return _renumber(self.plan.node_members, members)[self.nodes.members_of(positions)]

    def bind_edges(self, variable: str, numbers: NDArray[Any]) -> dict[str, RowIds]:
        """The columns of a variable that is bound to these edges."""
        assert self.edges is not None
        columns = {variable: self.edges.rows_at(numbers)}
        if len(self.plan.edge_members) > 1:
            columns[member_column(variable)] = self.edges.members_at(numbers)
        return columns

    def edge_members(self, members: Sequence[TableType], numbers: NDArray[Any]) -> Indices:
        """The types of some edges, by their positions among these members."""
        assert self.edges is not None
        return _renumber(self.plan.edge_members, members)[self.edges.members_at(numbers)]

    # ---- building ---------------------------------------------------------------------------------------

    def _spaces(self, starts: dict[str, RowIds]) -> list[RowSpace]:
        """Of each type, the nodes that adjacencies number, and those that the walk begins at."""
        spaces: dict[str, list[RowSpace]] = {type_key: [] for type_key in self._types}
        for step, neighbours in zip(self.plan.steps, self._neighbours, strict=True):
            spaces[step.start.type_key].append(neighbours.out.sources)
            spaces[step.end.type_key].append(neighbours.out.ends)
        for type_key, rows in starts.items():
            if type_key in spaces:
                spaces[type_key].append(RowSpace.of(rows))
        return [join_spaces(of_type) for of_type in spaces.values()]

    def _number_edges(self) -> EdgeNumbers:
        edges: dict[str, tuple[EdgeType, RowIds]] = {}
        for step, neighbours in zip(self.plan.steps, self._neighbours, strict=True):
            assert isinstance(neighbours.out, Adjacency)
            assert neighbours.out.edges is not None
            edges[step.edge.type_key] = step.edge, neighbours.out.edges
        ordered = sorted(edges.values(), key=lambda pair: pair[0].name)
        members = [self._edge_types[type_.type_key] for type_, _ in ordered]
        return EdgeNumbers(members, [rows for _, rows in ordered])

    def _graph(self, *, back: bool) -> HopGraph:
        steps = [
            self._step(step, neighbours, back=back)
            for step, neighbours in zip(self.plan.steps, self._neighbours, strict=True)
        ]
        exists: HopTest | None = partial(self._exists, back=back) if self._restricted or self._shared else None
        allows: HopTest | None = partial(self._allows, back=back) if self._own else None
        return HopGraph(self.nodes, steps, self.edges, self._context, exists=exists, allows=allows)

    def _step(self, step: ir.EdgeStep, neighbours: StepNeighbours, *, back: bool) -> Step:
        start, end = self._types[step.start.type_key], self._types[step.end.type_key]
        edge = self._edge_types[step.edge.type_key]
        return Step(end, start, edge, neighbours.back) if back else Step(start, end, edge, neighbours.out)

    # ---- which hops there are ---------------------------------------------------------------------------

    def _exists(self, hops: MetHops, *, back: bool) -> Mask:
        """A condition never sees an invisible hop: its error would reveal it."""
        at = np.flatnonzero(self._visible(hops)) if self._restricted else np.arange(len(hops.ends))
        mask = np.zeros(len(hops.ends), np.bool_)
        if self._shared:
            visible = MetHops(hops.starts[at], hops.ends[at], None if hops.edges is None else hops.edges[at])
            at = at[self._satisfy(self._shared, visible, Bindings({}, len(at)), back=back)]
        mask[at] = True
        return mask

    def _visible(self, hops: MetHops) -> Mask:
        """Where a hop begins is visible: it is a start, or another hop led there."""
        mask = self._visible_rows(
            self.plan.node_members, self.nodes.members_of(hops.ends), self.nodes.rows_at(hops.ends)
        )
        if self.edges is not None and hops.edges is not None:
            members, rows = self.edges.members_at(hops.edges), self.edges.rows_at(hops.edges)
            mask &= self._visible_rows(self.plan.edge_members, members, rows)
        return mask

    def _visible_rows(self, types: Sequence[TableType], members: Indices, rows: RowIds) -> Mask:
        mask = np.ones(len(rows), np.bool_)
        for member, type_ in enumerate(types):
            if self._context.is_restricted(type_):
                of_type = np.flatnonzero(members == member)
                mask[of_type] = visible_mask(type_, rows[of_type], self._context)
        return mask

    def _allows(self, hops: MetHops, *, back: bool) -> Mask:
        assert hops.owners is not None
        return self._satisfy(self._own, hops, self.origins.outer.take(hops.owners), back=back)

    def _satisfy(self, conditions: Sequence[ir.Predicate], hops: MetHops, outer: Bindings, *, back: bool) -> Mask:
        """Which hops satisfy conditions. `outer` has the other variables of the row that each hop is walked for."""
        each = self.plan.each
        assert each is not None
        read = _variables(conditions)
        columns: dict[str, RowIds] = {_ROW: np.arange(outer.length)}
        if each.node in read:
            columns |= self.bind_nodes(each.node, self.plan.arrivals, hops.starts if back else hops.ends)
        if each.edge in read:
            assert hops.edges is not None
            columns |= self.bind_edges(each.edge, hops.edges)
        satisfied = filter_rows(outer.binding(columns), conditions, self._context).rows[_ROW]
        mask = np.zeros(outer.length, np.bool_)
        mask[satisfied] = True
        return mask


def _split_conditions(plan: ir.Walk) -> tuple[tuple[ir.Predicate, ...], tuple[ir.Predicate, ...]]:
    """The conditions that only depend on the hop, and those that depend on the row too."""
    if plan.each is None:
        return (), ()
    of_hop = {plan.each.edge, plan.each.node}
    shared: list[ir.Predicate] = []
    own: list[ir.Predicate] = []
    for condition in plan.each.conditions:
        (shared if ir.predicate_variables(condition) <= of_hop else own).append(condition)
    return tuple(shared), tuple(own)


def _variables(conditions: Sequence[ir.Predicate]) -> set[str]:
    return {name for condition in conditions for name in ir.predicate_variables(condition)}


def _rows_by_type(variable: str, members: Sequence[NodeType], rows: Bindings) -> dict[str, RowIds]:
    """The nodes that a variable is bound to, by their type keys. None of them is null."""
    bound = rows.rows[variable]
    if len(members) == 1:
        return {members[0].type_key: bound}
    codes = rows.rows[member_column(variable)]
    return {type_.type_key: bound[codes == member] for member, type_ in enumerate(members)}


def _renumber(own: Sequence[TableType], other: Sequence[TableType]) -> Indices:
    """The position of each of some types among others; -1 where it is not there."""
    positions = {type_.type_key: position for position, type_ in enumerate(other)}
    return np.array([positions.get(type_.type_key, -1) for type_ in own], np.int64)
