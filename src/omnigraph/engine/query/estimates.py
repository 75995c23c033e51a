"""How many rows each operator of a plan may give: estimates from the sizes of tables, for people who read a plan.

No statistics of values are kept, so conditions count by what they are and not by what they find. The engine chooses
between ways by costs of its own (`traversal.neighbours`), and no answer depends on what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import PathMode

Size: TypeAlias = Callable[[NodeType | EdgeType], int]
"""The number of rows of a table."""

# The share of rows that is null or equal to something, or is a group, and that satisfies another condition.
_FEW: Final = 0.1
_SOME: Final = 0.3
_ITEMS: Final = 10
"""Of a list whose length is not written."""
_FARTHEST: Final = 6
"""Hops that an unbounded search is taken to make."""
_MOST: Final = 1e18


def estimate_rows(plan: ir.ReadOperator, catalog: Catalog, size: Size) -> dict[int, int]:
    """The estimated rows of each operator, by its `id`. An inner plan is estimated for one row of its outer one."""
    estimates = _Estimates(catalog, size)
    # Plans may be deep.
    waiting = [plan]
    while waiting:
        below = [each for each in ir.inputs_of(waiting[-1]) if id(each) not in estimates.rows]
        if below:
            waiting += below
        else:
            operator = waiting.pop()
            estimates.rows[id(operator)] = min(estimates.of_operator(operator), _MOST)
    return {key: round(rows) if rows > 1 else int(rows > 0) for key, rows in estimates.rows.items()}


class _Estimates:
    """The rows of the operators that have been estimated."""

    def __init__(self, catalog: Catalog, size: Size) -> None:
        self._catalog = catalog
        self._size = size
        self.rows: dict[int, float] = {}

    def of_operator(self, op: ir.ReadOperator) -> float:
        match op:
            case ir.Scan():
                return self._of_scan(op)
            case ir.TypeUnionScan():
                return sum(map(self._of_scan, op.scans))
            case ir.Outer():
                return 1
            case ir.Expand():
                (start,) = op.edge.source_types if op.direction is not ir.Direction.IN else op.edge.target_types
                degree = self._degree(op.edge, op.direction, self._catalog.nodes[start])
                ends = self._size(op.destination_type)
                is_bounded = op.edge_variable is None
                met = _ends_met(degree, op.min_hops, op.max_hops, ends, once=is_bounded, closing=op.closing)
                return self.rows[id(op.input)] * met * _share(op.predicates)
            case ir.ExpandWalk() | ir.PathExpand():
                return self.rows[id(op.input)] * self._of_walk(op) * _share(op.predicates)
            case ir.CrossJoin():
                return self.rows[id(op.left)] * self.rows[id(op.right)]
            case ir.SemiJoin():
                return self.rows[id(op.input)] * min(1.0, self.rows[id(op.inner)])
            case ir.AntiJoin():
                return self.rows[id(op.input)] * max(_FEW, 1 - self.rows[id(op.inner)])
            case ir.OptionalJoin():
                return self.rows[id(op.input)] * max(1.0, self.rows[id(op.inner)])
            case ir.UnionAll():
                return sum(self.rows[id(each)] for each in op.inputs)
            case ir.Fuse():
                return _at_most(max(self.rows[id(op.first)], self.rows[id(op.second)]), op.limit)
        return self._of_input(op, self.rows[id(op.input)])

    def _of_input(
        self,
        op: ir.Filter
        | ir.BlockJoin
        | ir.Unwind
        | ir.Bind
        | ir.Distinct
        | ir.Rank
        | ir.BestNodes
        | ir.Sort
        | ir.Limit
        | ir.Project
        | ir.Aggregate,
        rows: float,
    ) -> float:
        match op:
            case ir.Filter():
                return rows * _share(op.predicates)
            case ir.Unwind():
                items = op.items.value if isinstance(op.items, ir.Constant) else None
                return rows * (len(items) if isinstance(items, tuple) else _ITEMS)
            case ir.Limit() | ir.BestNodes():
                return _at_most(rows, op.count)
            case ir.Aggregate() if not op.keys:
                return 1
            case ir.Aggregate() | ir.Distinct():
                return min(rows, max(1.0, rows * _FEW))
        return rows

    def _of_scan(self, scan: ir.Scan) -> float:
        """A key is equal to a constant once."""
        tests = [part for predicate in scan.predicates for part in ir.conjuncts(predicate)]
        if any(_names_key(test, scan.type) for test in tests):
            return min(1, self._size(scan.type))
        return self._size(scan.type) * _share(scan.predicates)

    def _of_walk(self, op: ir.ExpandWalk | ir.PathExpand) -> float:
        """How many ends a row meets. A node has edges of every step that begins at its type."""
        walk = op.walk
        starts = {step.start.name for step in walk.steps}
        degree = sum(self._degree(step.edge, step.direction, step.start) for step in walk.steps) / max(1, len(starts))
        degree *= 1 if walk.each is None else _share(walk.each.conditions)
        ends = sum(map(self._size, walk.destination_members))
        once = op.edge_variable is None if isinstance(op, ir.ExpandWalk) else op.mode is not PathMode.TRAILS
        return _ends_met(degree, walk.min_hops, walk.max_hops, ends, once=once, closing=op.closing)

    def _degree(self, edge: EdgeType, direction: ir.Direction, start: NodeType) -> float:
        both = 2 if direction is ir.Direction.BOTH else 1
        # The edges of a type with an interface at an end are taken to be spread over its pairs of node types.
        pairs = len(edge.source_types) * len(edge.target_types)
        return self._size(edge) / pairs * both / max(1, self._size(start))


def _ends_met(degree: float, least: int, most: int, ends: int, *, once: bool, closing: bool) -> float:
    """How many ends a row meets, or how likely the end of a closing traversal is among them. `once`: each counts
    once."""
    met = sum(degree**hops for hops in range(least, min(most, max(least, _FARTHEST)) + 1))
    met = min(met, ends) if once else met
    return met / max(1, ends) if closing else met


def _at_most(rows: float, count: ir.Count | None) -> float:
    return min(rows, count) if isinstance(count, int) else rows


# ---- conditions -----------------------------------------------------------------------------------------


def _names_key(predicate: ir.Predicate, type_: NodeType) -> bool:
    if not isinstance(predicate, ir.Compare) or predicate.operator is not ir.Operator.EQUAL:
        return False
    names = [side.prop.name for side in (predicate.left, predicate.right) if isinstance(side, ir.PropertyValue)]
    return len(names) == 1 and type_.key == (names[0],)


def _share(predicates: tuple[ir.Predicate, ...]) -> float:
    share = 1.0
    for predicate in predicates:
        share *= _share_of(predicate)
    return share


def _share_of(predicate: ir.Predicate) -> float:
    match predicate:
        case ir.And():
            return _share(predicate.operands)
        case ir.Or():
            return min(1.0, sum(map(_share_of, predicate.operands)))
        case ir.Not():
            return 1 - _share_of(predicate.operand)
        case ir.IsNull():
            return 1 - _FEW if predicate.negated else _FEW
        case ir.Compare(operator=ir.Operator.EQUAL):
            return _FEW
    return _SOME
