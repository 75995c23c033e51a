"""Plans as lines of text, and what holds for every plan whatever the query."""

from __future__ import annotations

from textwrap import dedent

from omnigraph.language.query import ir

from .query_archive import compiled


def lines(text: str) -> list[str]:
    """The operators of a query, from the top down, each below and right of the one that reads it; of a mutation, those
    of its feeds."""
    plan = compiled(text).plan
    roots = [plan.root] if isinstance(plan, ir.ReadPlan) else [feed.rows for feed in feeds(plan)]
    for root in roots:
        check_plan(root)
    return ["  " * depth + ir.operator_text(op) for root in roots for op, depth in ir.plan_levels(root)]


def expected(text: str) -> list[str]:
    return dedent(text).strip("\n").split("\n")


def feeds(plan: ir.WritePlan) -> list[ir.ForEachRow]:
    return [statement for statement in plan.statements if isinstance(statement, ir.ForEachRow)]


def check_plan(root: ir.ReadOperator) -> None:
    """Everything an operator reads is bound below it, and nothing is bound twice."""
    _bound(root)


def _bound(op: ir.ReadOperator) -> set[str]:
    """The variables that the rows of an operator bind. Columns of an `Aggregate` have the names of their numbers."""
    match op:
        case ir.Scan():
            _reads({op.variable}, *op.predicates)
            return {op.variable}
        case ir.TypeUnionScan():
            assert {scan.variable for scan in op.scans} <= {op.variable}
            assert {scan.type.name for scan in op.scans} <= {member.name for member in op.members}
            assert all(_bound(scan) for scan in op.scans)
            return {op.variable}
        case ir.Outer():
            return set(op.variables)
        case ir.Expand() | ir.ExpandWalk() | ir.PathExpand():
            return _expanded(op)
        case ir.CrossJoin():
            left, right = _bound(op.left), _bound(op.right)
            assert left.isdisjoint(right)
            return left | right
        case ir.AntiJoin() | ir.SemiJoin() | ir.BlockJoin() | ir.OptionalJoin():
            return _joined(op)
        case ir.Unwind():
            bound = _bound(op.input)
            _reads(bound, op.items)
            assert op.variable not in bound
            return bound | {op.variable}
        case ir.UnionAll():
            first, *rest = map(_bound, op.inputs)
            assert all(other == first for other in rest)
            return first
        case ir.Fuse():
            first, second = _bound(op.first), _bound(op.second)
            assert op.variable in first & second
            return first
        case _:
            return _staged(op)


def _staged(
    op: ir.Filter
    | ir.Bind
    | ir.Distinct
    | ir.Rank
    | ir.BestNodes
    | ir.Sort
    | ir.Limit
    | ir.Project
    | ir.Aggregate
    | ir.ReadOperator,
) -> set[str]:
    assert not isinstance(op, ir.Scan)
    bound = _bound(op.input)  # type: ignore[union-attr]
    match op:
        case ir.Filter():
            assert op.predicates
            _reads(bound, *op.predicates)
        case ir.Bind():
            _reads(bound, *(column.value for column in op.columns))
            return {column.variable for column in op.columns}
        case ir.Distinct():
            assert {name for name, _ in op.variables} == bound
        case ir.Rank():
            assert op.rank.field.variable in bound
            assert all(op.rank.field.variable in _bound(start) for start in op.starts)
        case ir.BestNodes():
            assert op.variable in bound
        case ir.Sort():
            _reads(bound, *(key.value for key in op.keys))
            assert {tie.variable for tie in op.tie_break} <= bound
        case ir.Project():
            _reads(bound, *(column.value for column in op.columns))
            return set()
        case ir.Aggregate():
            _reads(bound, *(column.value for column in op.columns))
            return {f"column {i}" for i in range(len(op.columns))}
    return bound


def _expanded(op: ir.Expand | ir.ExpandWalk | ir.PathExpand) -> set[str]:
    bound = _bound(op.input)
    ends = op if isinstance(op, ir.Expand) else op.walk
    assert ends.source in bound
    assert op.closing is (ends.destination in bound)
    fresh = {ends.destination}
    if not isinstance(op, ir.Expand) and op.walk.each is not None:
        _reads(bound | {op.walk.each.edge, op.walk.each.node}, *op.walk.each.conditions)
    extra = op.path if isinstance(op, ir.PathExpand) else op.edge_variable
    if extra is not None:
        assert extra not in bound
        fresh.add(extra)
    _reads(fresh, *op.predicates)
    return bound | fresh


def _joined(op: ir.AntiJoin | ir.SemiJoin | ir.BlockJoin | ir.OptionalJoin) -> set[str]:
    bound, inner = _bound(op.input), _bound(op.inner)
    assert set(op.correlated) <= bound
    leaf: ir.ReadOperator = op.inner
    while below := ir.inputs_of(leaf):
        leaf = below[0]
    assert leaf == ir.Outer(op.correlated)
    if isinstance(op, ir.BlockJoin):
        if op.aggregate is not None:
            _reads(inner, op.aggregate)
        return bound | {op.output}
    if isinstance(op, ir.OptionalJoin):
        introduced = {name for name, _ in op.introduced}
        assert introduced <= inner
        assert introduced.isdisjoint(bound)
        return bound | introduced
    return bound


def _reads(bound: set[str], *values: ir.Value) -> None:
    for value in values:
        assert set(ir.variables_of(value)) <= bound, ir.value_text(value)
        for part in ir.walk(value):
            assert not isinstance(part, ir.OutputValue) or f"column {part.index}" in bound
