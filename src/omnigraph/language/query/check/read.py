"""Types of `return`, `order` and `limit`, with the rules that tie them together.

Projections and sort keys are checked one by one first; then whether two columns share a name (T25), then what ordering
demands of `limit` (T21, T17, T18); what aggregation demands of the other projections (T9) comes last.
"""

from __future__ import annotations

from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import check_expression, check_value, refuse_blob
from omnigraph.language.query.check.match import check_clauses
from omnigraph.language.query.check.scope import Scope
from omnigraph.language.query.resolved import OutputName
from omnigraph.language.query.syntax_errors import DISTINCT, NO_NULL

# Words that begin a projection elsewhere, and would be the name of an output column here.
_NOT_VALUES = {"distinct": DISTINCT, "null": NO_NULL}


_CALL_NAMES: dict[type, str] = {ast.NearestCall: "nearest", ast.Bm25Call: "bm25", ast.RrfCall: "rrf"}


def check_read(scope: Scope, read: ast.Read) -> resolved.Read:
    clauses = check_clauses(scope, read.match.clauses)
    projections = [_projection(scope, projection) for projection in read.returns.projections]
    sort = [] if read.order is None else [_sort_key(scope, key) for key in read.order.keys]
    _check_names(scope, read)
    _check_ranked_order(scope, read)
    _check_grouping(scope, read)
    return resolved.Read(
        clauses=clauses,
        nodes=scope.nodes,
        edges=scope.edges,
        projections=tuple(p for p in projections if p is not None),
        sort=tuple(key for key in sort if key is not None),
        limit=None if read.limit is None else read.limit.count,
    )


def _projection(scope: Scope, projection: ast.Projection) -> resolved.Projection | None:
    written = projection.expression
    if isinstance(written, ast.Alias) and written.name in _NOT_VALUES:
        scope.report("T36", f"'{written.name}' is not a value", written.at, help=_NOT_VALUES[written.name])
        return None
    value = check_expression(scope, projection.expression)
    if value is None or refuse_blob(scope, value, projection.expression.at):
        return None
    alias = None if projection.alias is None else projection.alias.text
    return resolved.Projection(
        value=value,
        name=alias or executed_name(projection.expression),
        described_name=alias or _described_name(projection.expression),
        alias=alias,
        at=projection.expression.at,
    )


def _check_names(scope: Scope, read: ast.Read) -> None:
    """A row has one value by each name: of two columns with one name, a value would be lost."""
    columns: dict[str, ast.Projection] = {}
    for projection in read.returns.projections:
        if projection.alias is None and isinstance(projection.expression, ast.Alias):
            continue  # the name of another column is not a value, and refused as such
        name = executed_name(projection.expression) if projection.alias is None else projection.alias.text
        if columns.setdefault(name, projection) is not projection:
            written = ", because an aggregate without a name has that of its argument"
            unnamed = projection.alias is None and isinstance(projection.expression, ast.AggregateCall)
            message = f"two columns are called '{name}'{written if unnamed else ''}"
            taken = {p.alias.text for p in read.returns.projections if p.alias is not None}
            base = name.rpartition(".")[2].lstrip("_") or "column"
            free = next(new for number in range(2, 3 + len(taken)) if (new := f"{base}_{number}") not in taken)
            scope.report("T25", message, projection.at, help=f"give one of them another name: `as {free}`")


def executed_name(expression: ast.Expression) -> str:
    """The name of an unaliased column in results. An aggregate is named after its argument."""
    match expression:
        case ast.PropertyAccess():
            return f"{expression.variable.name}.{expression.property.text}"
        case ast.Now():
            return ir.NOW_PARAMETER
        case ast.AggregateCall():
            return executed_name(expression.argument)
        case _:
            return _described_name(expression)


def _described_name(expression: ast.Expression) -> str:
    """The name of an unaliased column in operation descriptors."""
    match expression:
        case ast.PropertyAccess():
            return expression.property.text
        case ast.Variable() | ast.Alias():
            return expression.name
        case ast.Now():
            return "now"
        case ast.AggregateCall() | ast.TextCall():
            return expression.function.value
        case _:
            return _CALL_NAMES.get(type(expression), "literal")


def _sort_key(scope: Scope, key: ast.SortKey) -> resolved.Sort | None:
    descending = key.direction == "desc"
    if isinstance(key.expression, ast.Alias):
        return resolved.Sort(OutputName(key.expression.name, key.expression.at), descending, key.at)
    value = check_value(scope, key.expression)
    if value is None or refuse_blob(scope, value, key.expression.at):
        return None
    return resolved.Sort(value, descending, key.at)


def _check_ranked_order(scope: Scope, read: ast.Read) -> None:
    if read.order is None:
        return
    aliased = {p.alias.text: p.expression for p in read.returns.projections if p.alias is not None}
    direct = [key.expression for key in read.order.keys]
    aliases = [e for e in direct if isinstance(e, ast.Alias)]
    reached = [(e, aliased.get(e.name, e) if isinstance(e, ast.Alias) else e) for e in direct]
    if read.limit is None:
        for code, call, name in (("T21", ast.RrfCall, "rrf"), ("T17", ast.NearestCall, "nearest")):
            for written, meant in reached:
                if isinstance(meant, call):
                    scope.report(code, f"ordering by {name}() requires a limit clause", written.at)
                    break
    nearest = next((e for e in direct if isinstance(e, ast.NearestCall)), None)
    if nearest is not None and aliases:
        message = f"nearest() and the output column '{aliases[0].name}' as sort keys are not supported together"
        scope.report("T18", message, aliases[0].at)


def _check_grouping(scope: Scope, read: ast.Read) -> None:
    expressions = [p.expression for p in read.returns.projections]
    is_aggregate = any(isinstance(e, ast.AggregateCall) for e in expressions)
    for expression in expressions:
        if is_aggregate and not isinstance(expression, ast.AggregateCall | ast.PropertyAccess | ast.Variable):
            message = "the projections beside an aggregate group its rows and must be property accesses or variables"
            scope.report("T9", message, expression.at)
