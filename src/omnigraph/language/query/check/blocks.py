"""Types of blocks and aggregates: `exists { … }`, `count { … }`, `each … { … }`, and `sum(…)` of a stage.

A block matches a pattern once per outer row. As a value it is a hidden variable, and `Scope.blocks` has what it stands
for. It sees what is bound so far; what it binds itself stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.comparisons import check_condition
from omnigraph.language.query.check.expressions import read_value, type_text
from omnigraph.language.query.check.scope import EACH, FILTER, Gone, Place, Scope
from omnigraph.language.query.syntax import AggregateFunction
from omnigraph.language.query.value_types import (
    F64,
    I64,
    EntityType,
    NullType,
    PathType,
    ValueType,
    as_nullable,
    is_number,
    is_scalar,
    list_of,
)
from omnigraph.language.source import TextSpan

_ADDS: Final = frozenset(
    {
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.STDEV,
        AggregateFunction.STDEVP,
        AggregateFunction.PERCENTILE_CONT,
        AggregateFunction.PERCENTILE_DISC,
    }
)
_PERCENTILES: Final = frozenset({AggregateFunction.PERCENTILE_CONT, AggregateFunction.PERCENTILE_DISC})
_NEVER_DISTINCT: Final = frozenset({*_PERCENTILES, AggregateFunction.STDEVP})


# ---- aggregates -----------------------------------------------------------------------------------------


def check_aggregate(scope: Scope, call: ast.AggregateCall) -> ir.AggregateValue | None:
    name = call.function.value
    help = f"as a block it is a value: {name}({'' if call.argument is None else '…'}) {{ … }}"
    if scope.place.aggregate == "T7":
        help = f"{help}; or return it and filter in the next stage: then match {{ … }}"
    if scope.refuses(scope.place.aggregate, f"an aggregate, {name}(),", call.at, help):
        return None
    scope.aggregates += 1
    if call.argument is None:
        return ir.AggregateValue(call.function, None, I64)
    outside = scope.place
    scope.place = _argument_place(outside)
    argument = read_value(scope, call.argument)
    scope.place = outside
    if argument is None:
        return None
    problem = _argument_problem(call.function, argument)
    if problem is not None:
        code, help = ("T108", "aggregate length(p)") if isinstance(argument.type, PathType) else ("T8", _remedy(call))
        scope.report(code, problem, call.argument.at, help=help)
        return None
    return _aggregate(scope, call, argument)


def _argument_place(place: Place) -> Place:
    """An aggregate in an aggregate is T8."""
    return replace(place, name="an aggregate", aggregate="T8")


def _argument_problem(function: AggregateFunction, argument: ir.Value) -> str | None:
    """Why a function can't aggregate such values, or None."""
    type_ = argument.type
    if function in (AggregateFunction.COUNT, AggregateFunction.COLLECT) or isinstance(type_, NullType):
        return None
    if is_number(type_) or (function not in _ADDS and is_scalar(type_)):
        return None
    wanted = "a numeric type" if function in _ADDS else "a type that has an order"
    return f"{function}() requires {wanted} but got {type_text(argument)}"


def _remedy(call: ast.AggregateCall) -> str:
    return "aggregate a property, as in " + (f"{call.function}($x.p)" if call.function in _ADDS else "min($x.p)")


def _aggregate(scope: Scope, call: ast.AggregateCall, argument: ir.Value) -> ir.AggregateValue | None:
    function = call.function
    if call.distinct and function in _NEVER_DISTINCT:
        scope.report("T102", f"{function}() takes no distinct", call.at, help=f"write {function}(…)")
        return None
    fraction = None
    if function in _PERCENTILES:
        fraction = _fraction(scope, call)
        if fraction is None:
            return None
    elif call.fraction is not None:
        message = f"{function}() takes one argument: {function}(value)"
        scope.report("T102", message, call.fraction.at, help="leave the second argument out")
        return None
    return ir.AggregateValue(function, argument, _aggregate_type(function, argument.type), call.distinct, fraction)


def _fraction(scope: Scope, call: ast.AggregateCall) -> ir.Operand | None:
    usage = f"{call.function}(value, fraction)"
    if call.fraction is None:
        scope.report("T102", f"{usage} takes two arguments", call.at, help="0.5 is the median")
        return None
    fraction = scope.check(call.fraction)
    if fraction is None:
        return None
    if not isinstance(fraction, ir.Constant | ir.ParameterValue) or not is_number(fraction.type):
        message = f"{usage} needs a fraction that is a number literal or a parameter"
        scope.report("T102", message, call.fraction.at, help="0.5 is the median")
        return None
    value = fraction.value if isinstance(fraction, ir.Constant) else None
    if isinstance(value, int | float) and not 0 <= value <= 1:
        message = f"{usage} needs a fraction in 0..1"
        scope.report("T102", message, call.fraction.at, help="0.5 is the median")
        return None
    return fraction


def _aggregate_type(function: AggregateFunction, type_: ValueType) -> ValueType:
    match function:
        case AggregateFunction.COUNT:
            return I64
        case AggregateFunction.SUM:
            return ir.type_of_sum(type_)
        case AggregateFunction.COLLECT:
            return list_of(as_nullable(type_, False))
        case AggregateFunction.MIN | AggregateFunction.MAX | AggregateFunction.PERCENTILE_DISC:
            return as_nullable(type_)
        case _:
            return F64.as_nullable()


# ---- blocks as values -----------------------------------------------------------------------------------


def check_exists(scope: Scope, block: ast.ExistsBlock) -> ir.VariableValue | None:
    return None if _refuses_block(scope, "exists { … }", block.at) else _block(scope, block.clauses, block.at, "exists")


def check_not_block(scope: Scope, block: ast.Negation) -> ir.Not | None:
    """`not { … }` inside an expression."""
    if _refuses_block(scope, "not { … }", block.at):
        return None
    value = _block(scope, block.clauses, block.at, "not")
    return None if value is None else ir.Not(value)


def check_aggregate_block(scope: Scope, block: ast.AggregateBlock) -> ir.VariableValue | None:
    name = f"{block.aggregate.function}{'' if block.aggregate.argument is None else '(…)'} {{ … }}"
    if _refuses_block(scope, name, block.at):
        return None
    return _block(scope, block.clauses, block.at, block.aggregate.function.value, block.aggregate)


def _refuses_block(scope: Scope, name: str, at: TextSpan) -> bool:
    return scope.refuses(scope.place.block, name, at, "return it as a column of a stage before, and use the column")


def _block(
    scope: Scope,
    clauses: Sequence[ast.Clause],
    at: TextSpan,
    kind: str,
    aggregate: ast.AggregateCall | None = None,
) -> ir.VariableValue | None:
    inside = scope.inner()
    inside.later = {*scope.later, *_later_names(scope)} - scope.variables.keys()
    checked = inside.check_clauses(clauses)
    value = None if aggregate is None else _block_aggregate(inside, aggregate)
    is_sound = uses_outer_variable(scope, inside, at, "T9" if kind == "not" else "T39")
    if not is_sound or (aggregate is not None and value is None):
        return None
    hidden = scope.hidden("block")
    scope.blocks[hidden] = block = resolved.Block(checked, inside.bound, value)
    return ir.VariableValue(hidden, ir.BOOL if block.aggregate is None else block.aggregate.type)


def _block_aggregate(inside: Scope, call: ast.AggregateCall) -> ir.AggregateValue | None:
    """The aggregate of a block, whose argument is a scalar of a type that the function takes."""
    if call.argument is None:
        return ir.AggregateValue(call.function, None, I64)
    inside.place = replace(FILTER, name="the argument of a block", aggregate="T8")
    argument = read_value(inside, call.argument)
    if argument is None:
        return None
    problem = _argument_problem(call.function, argument)
    if not (is_scalar(argument.type) or isinstance(argument.type, NullType)):
        problem = f"{call.function}(…) {{ }} aggregates a scalar but got {type_text(argument)}"
    if problem is not None:
        inside.report("T40", problem, call.argument.at, help=f"aggregate a property: {call.function}($x.p) {{ … }}")
        return None
    return _aggregate(inside, call, argument)


def uses_outer_variable(scope: Scope, inside: Scope, at: TextSpan, code: str) -> bool:
    """Whether a block speaks of something that is bound outside of it; a finding says so if it does not."""
    outer = {*scope.variables, *scope.broken}
    if not inside.mentioned.isdisjoint(outer):
        return True
    message = "a negation block" if code == "T9" else "a block"
    near = f"one of {', '.join(f'${name}' for name in scope.variables)}" if scope.variables else "one of them"
    scope.report(
        code, f"{message} must reference a variable bound outside of it in one of its clauses", at, help=f"use {near}"
    )
    return False


def _later_names(scope: Scope) -> Iterator[str]:
    """The variables of this level and of those around it. Before one of them is visible, a block may use its name for
    something else."""
    level: Scope | None = scope
    while level is not None:
        yield from _names(level.clauses)
        level = level.outside


def _names(clauses: Sequence[ast.Clause]) -> Iterator[str]:
    """The variables that clauses bind for those that follow them; those of blocks stay inside."""
    for clause in clauses:
        match clause:
            case ast.Binding():
                yield clause.variable.name
            case ast.Path():
                yield clause.variable.name
                yield from _ends(clause.traversal)
            case ast.Traversal():
                yield from _ends(clause)
            case ast.Optional():
                yield from _names(clause.clauses)


def _ends(traversal: ast.Traversal) -> Iterator[str]:
    yield traversal.source.name
    yield traversal.destination.name
    if traversal.edge_variable is not None:
        yield traversal.edge_variable.name


# ---- conditions of a hop --------------------------------------------------------------------------------


def check_each(scope: Scope, each: ast.Each, walk: ir.Walk) -> ir.Each | None:
    """What every hop has to satisfy. Its variables are visible in its conditions alone."""
    inside = scope.inner()
    inside.later = {*scope.later, *_later_names(scope)} - scope.variables.keys()
    bound: tuple[tuple[ast.Variable, ValueType], ...] = (
        (each.edge, EntityType(walk.edge_members)),
        (each.node, EntityType(walk.arrivals)),
    )
    for variable, type_ in bound:
        if variable.is_anonymous:
            continue
        if not inside.is_free(variable, "a part of a hop"):
            return None
        inside.bind(variable.name, type_)
        message = f"'${variable.name}' is a part of a hop, which only the conditions of its each see"
        scope.gone.setdefault(variable.name, Gone("T107", message, "name the destination, or bind a path: path $p: …"))
    conditions: list[ir.Value] = []
    for clause in each.clauses:
        condition = _each_condition(inside, clause)
        if condition is not None:
            conditions.append(condition)
    scope.mentioned |= inside.mentioned
    if len(conditions) < len(each.clauses):
        return None
    return ir.Each(inside.slot(each.edge), inside.slot(each.node), tuple(conditions))


def _each_condition(inside: Scope, clause: ast.Clause) -> ir.Value | None:
    if isinstance(clause, ast.Filter):
        return check_condition(inside, clause.condition, EACH)
    what = type(clause).__name__.lower()
    help = "write it as a clause of the match; only filters decide about a hop"
    inside.report("T107", f"a {what} can't stand in each", clause.at, help=help)
    return None
