"""Looking at a plan without running it: its values, its variables, and a line of text for each operator."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir


def inputs_of(plan: ir.ReadOperator) -> tuple[ir.ReadOperator, ...]:
    match plan:
        case ir.Scan() | ir.Outer():
            return ()
        case ir.CrossJoin():
            return (plan.left, plan.right)
        case ir.AntiJoin():
            return (plan.input, plan.inner)
        case ir.Fuse():
            return (plan.first, plan.second)
        case _:
            return (plan.input,)


def operators_in(plan: ir.ReadOperator) -> Iterator[ir.ReadOperator]:
    """Every operator, each before its inputs."""
    return (operator for operator, _ in leveled(plan))


def leveled(plan: ir.ReadOperator) -> Iterator[tuple[ir.ReadOperator, int]]:
    """The same, each with how many operators are above it. A loop, because a plan may be as deep as a query is long."""
    waiting = [(plan, 0)]
    while waiting:
        operator, depth = waiting.pop()
        yield operator, depth
        waiting += [(below, depth + 1) for below in reversed(inputs_of(operator))]


def binders(plan: ir.ReadOperator) -> Iterator[tuple[str, NodeType | EdgeType]]:
    """Every variable with the type of what it is bound to."""
    for operator in operators_in(plan):
        match operator:
            case ir.Scan():
                yield operator.variable, operator.type
            case ir.Expand():
                yield operator.destination, operator.destination_type
                if operator.edge_variable is not None:
                    yield operator.edge_variable, operator.edge


def values_in(plan: ir.ReadOperator) -> Iterator[ir.Value]:
    """Every value that some operator reads."""
    for operator in operators_in(plan):
        match operator:
            case ir.Scan() | ir.Expand() | ir.Filter():
                for predicate in operator.predicates:
                    if isinstance(predicate, ir.Compare):
                        yield from (predicate.left, predicate.right)
                    else:
                        yield predicate.field
            case ir.Sort():
                yield from (key.value for key in operator.keys)
            case ir.Project():
                yield from (column.value for column in operator.columns)
            case ir.Aggregate():
                for column in operator.columns:
                    yield column.value.argument if isinstance(column.value, ir.AggregateValue) else column.value


def property_values(part: object) -> Iterator[ir.PropertyValue]:
    """Every property that a plan names, wherever it stands: in values, predicates, rankings, sort keys."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ir.PropertyValue):
            yield part
        elif isinstance(part, tuple):
            waiting += reversed(part)
        elif isinstance(part, Struct) and type(part).__module__ == ir.__name__:
            waiting += [getattr(part, name) for name in reversed(part.__struct_fields__)]


def label(plan: ir.ReadOperator) -> str:
    """What an operator does, in a few words."""
    match plan:
        case ir.Scan():
            return f"Scan ${plan.variable}: {plan.type.name}" + _tests(plan.predicates)
        case ir.Outer():
            return "Outer " + ", ".join(f"${v}" for v in plan.variables)
        case ir.Expand():
            return _expand_label(plan)
        case ir.CrossJoin():
            return "CrossJoin"
        case ir.Filter():
            return "Filter" + _tests(plan.predicates)
        case ir.AntiJoin():
            return "AntiJoin on " + ", ".join(f"${v}" for v in plan.correlated)
        case ir.Rank():
            return f"Rank by {_rank(plan.rank)}"
        case ir.BestNodes():
            return f"BestNodes {plan.count} of ${plan.variable}"
        case ir.Fuse():
            return f"Fuse {_rank(plan.rank.first)} and {_rank(plan.rank.second)}, best {plan.limit}"
        case ir.Sort():
            keys = [f"{_value(key.value)}{' desc' if key.descending else ''}" for key in plan.keys]
            return "Sort by " + ", ".join((*keys, *(f"${v}.id" for v in plan.tie_break)))
        case ir.Limit():
            return f"Limit {plan.count}"
        case ir.Project():
            return "Project " + ", ".join(column.name for column in plan.columns)
        case ir.Aggregate():
            return "Aggregate " + ", ".join(column.name for column in plan.columns)


def _expand_label(plan: ir.Expand) -> str:
    arrow = {ir.Direction.OUT: "-[{}]->", ir.Direction.IN: "<-[{}]-", ir.Direction.BOTH: "-[{}]-"}[plan.direction]
    edge = (f"${plan.edge_variable}:" if plan.edge_variable else "") + plan.edge.name
    hops = "" if (plan.min_hops, plan.max_hops) == (1, 1) else f"{{{plan.min_hops},{plan.max_hops}}}"
    kind = "Close" if plan.closing else "Expand"
    return f"{kind} ${plan.source} {arrow.format(edge + hops)} ${plan.destination}" + _tests(plan.predicates)


def _tests(predicates: tuple[ir.Predicate, ...]) -> str:
    return " where " + " and ".join(_predicate(p) for p in predicates) if predicates else ""


def _predicate(predicate: ir.Predicate) -> str:
    if isinstance(predicate, ir.TextMatch):
        return _value(predicate)
    return f"{_value(predicate.left)} {predicate.operator.value} {_value(predicate.right)}"


def _value(value: ir.Value) -> str:
    match value:
        case ir.PropertyValue():
            return f"${value.variable}.{value.prop.name}"
        case ir.NodeId():
            return f"${value.variable}"
        case ir.ParameterValue():
            return f"${value.name}"
        case ir.Constant():
            return repr(value.value)
        case ir.Now():
            return "now()"
        case ir.TextMatch():
            return f"{value.function.value}({_value(value.field)}, {_value(value.query)})"
        case ir.Score():
            return _rank(value.rank)
        case ir.OutputValue():
            return f"column {value.index + 1}"


def _rank(rank: ir.Ranking) -> str:
    match rank:
        case ir.NearestRank():
            return f"nearest({_value(rank.field)}, {_value(rank.query)})"
        case ir.Bm25Rank():
            return f"bm25({_value(rank.field)}, {_value(rank.query)})"
        case ir.FusedRank():
            return f"rrf({_rank(rank.first)}, {_rank(rank.second)})"
