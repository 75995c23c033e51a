"""Types of reads: unions, chains of stages, and what a stage returns.

Each stage has a scope of its own: the columns of the stage before are its variables, nothing else is left of it. Within
a stage projections and sort keys are checked one by one first; then whether two columns share a name (T25), then what
ordering demands of `limit` (T21, T17, T18); what aggregation demands of the other projections (T9) comes last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import read_value, refuse_blob, type_text
from omnigraph.language.query.check.rankings import ReturnedColumn, check_order, rank_name
from omnigraph.language.query.check.scope import RETURN, UNWIND, Gone, Scope
from omnigraph.language.query.value_types import (
    NullType,
    ValueType,
    as_column,
    display,
    is_integer,
    is_list,
    item_of,
    unify,
)

_IDENTIFIER: Final = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)


class Rows(Struct):
    """The columns of the stage before: variables by name, those that failed, and what can't be used any more."""

    variables: dict[str, ValueType]
    broken: set[str]
    gone: dict[str, Gone]


def no_rows() -> Rows:
    return Rows({}, set(), {})


class _Column(Struct):
    """A column of a stage. `type` is None when its projection failed."""

    name: str
    described_name: str
    variable: str | None
    type: ValueType | None


# ---- unions and chains ----------------------------------------------------------------------------------


def check_read(scope: Scope, read: ast.Read) -> resolved.Read:
    """The read with its columns; `scope` is that of the query."""
    return _read(scope, read, is_last=True)[0]


def _read(scope: Scope, read: ast.Read, *, is_last: bool) -> tuple[resolved.Read, list[_Column], Rows]:
    parts = [_chain(scope, chain, is_last=is_last) for chain in read.chains]
    chains = tuple(chain for chain, _, _ in parts)
    columns, rows = parts[0][1], parts[0][2]
    if len(parts) > 1:
        for written, (_, other, handed_on) in zip(read.chains[1:], parts[1:], strict=True):
            columns = _unite(scope, written, columns, other)
            rows = Rows(rows.variables, rows.broken | handed_on.broken, rows.gone)
        rows = Rows(_variables(columns), rows.broken, rows.gone)
    typed = [(column, as_column(column.type)) for column in columns if column.type is not None]
    executed = tuple(ir.OutputColumn(column.name, type_) for column, type_ in typed)
    described = tuple(ir.OutputColumn(column.described_name, type_) for column, type_ in typed)
    return resolved.Read(chains, read.keeps_all, executed, described), columns, rows


def _unite(scope: Scope, chain: ast.Chain, columns: Sequence[_Column], others: Sequence[_Column]) -> list[_Column]:
    """The columns that hold the rows of both parts; T106 for those that disagree."""
    at = chain.stages[-1].returns.at if chain.stages else chain.at
    names, other_names = [column.name for column in columns], [column.name for column in others]
    if names != other_names:
        message = f"the parts of a union return different columns: {', '.join(names)} and {', '.join(other_names)}"
        scope.report("T106", message, at, help="name the columns alike, in one order, with `as`")
        return list(columns)
    united = []
    for column, other in zip(columns, others, strict=True):
        type_ = None if column.type is None or other.type is None else unify(column.type, other.type)
        if type_ is None and column.type is not None and other.type is not None:
            message = (
                f"column '{column.name}' is {display(column.type)} in one part and {display(other.type)} in another"
            )
            scope.report("T106", message, at, help="bring both to one type, as to_string(…) does")
        variable = column.variable if column.variable == other.variable else None
        united.append(_Column(column.name, column.described_name, variable, type_))
    return united


def _variables(columns: Iterable[_Column]) -> dict[str, ValueType]:
    return {
        column.variable: as_column(column.type)
        for column in columns
        if column.variable is not None and column.type is not None
    }


def _chain(scope: Scope, chain: ast.Chain, *, is_last: bool) -> tuple[resolved.Chain, list[_Column], Rows]:
    head: resolved.Read | None = None
    columns: list[_Column] = []
    rows = no_rows()
    if chain.head is not None:
        head, columns, rows = _read(scope, chain.head, is_last=is_last and not chain.stages)
    stages = []
    for i, written in enumerate(chain.stages):
        stage, columns, rows = _stage(scope, written, rows, is_last=is_last and i == len(chain.stages) - 1)
        stages.append(stage)
    return resolved.Chain(head, tuple(stages)), columns, rows


def check_feed_chain(scope: Scope, chain: ast.Chain) -> tuple[resolved.Chain, Rows]:
    """The stages before the statements of a mutation."""
    resolved_chain, _, rows = _chain(scope, chain, is_last=False)
    return resolved_chain, rows


# ---- stages ---------------------------------------------------------------------------------------------


def open_stage(
    scope: Scope, rows: Rows, unwinds: Sequence[ast.Unwind], match: ast.Match | None
) -> tuple[Scope, tuple[resolved.Unwind, ...], tuple[resolved.Clause, ...]]:
    """The scope after `unwind` and `match`, with what they became."""
    stage = scope.stage(rows.variables, rows.broken, rows.gone)
    clauses = () if match is None else match.clauses
    stage.clauses = clauses
    unwound = [_unwind(stage, unwind) for unwind in unwinds]
    return stage, tuple(each for each in unwound if each is not None), stage.check_clauses(clauses)


def _unwind(scope: Scope, unwind: ast.Unwind) -> resolved.Unwind | None:
    scope.place = UNWIND
    items = read_value(scope, unwind.items)
    if items is not None and not is_list(items.type) and not isinstance(items.type, NullType):
        message = f"unwind takes a list but got {type_text(items)}"
        scope.report("T111", message, unwind.items.at, help="write a list: unwind [1, 2] as $x, or a list parameter")
        items = None
    variable = unwind.variable
    if variable.is_anonymous:
        scope.report("T100", "'$_' never binds and can't be unwound to", variable.at, help="name the variable")
        return None
    is_new = scope.is_free(variable, "an item")
    if items is None or not is_new:
        if variable.name not in scope.variables:
            scope.broken.add(variable.name)
        return None
    type_ = as_column(items.type if isinstance(items.type, NullType) else item_of(items.type))
    scope.bind(variable.name, type_)
    return resolved.Unwind(items, scope.slot(variable), type_)


def _stage(
    scope: Scope, written: ast.Stage, rows: Rows, *, is_last: bool
) -> tuple[resolved.Stage, list[_Column], Rows]:
    stage, unwinds, clauses = open_stage(scope, rows, written.unwinds, written.match)
    stage.clauses = ()
    returned: list[ReturnedColumn] = []
    projections: list[resolved.Projection] = []
    columns: list[_Column] = []
    for projection in written.returns.projections:
        checked, column, seen = _projection(stage, projection, is_last=is_last)
        returned.append(seen)
        columns.append(column)
        if checked is not None:
            projections.append(checked)
    _check_names(stage, written.returns)
    sort, ranking = check_order(stage, written, returned)
    _check_grouping(stage, returned)
    limit = None if written.limit is None else _row_count(stage, written.limit, "limit")
    offset = None if written.offset is None else _row_count(stage, written.offset, "offset")
    resolved_stage = resolved.Stage(
        imported=dict(rows.variables),
        unwinds=unwinds,
        clauses=clauses,
        variables=stage.bound,
        projections=tuple(projections),
        distinct=written.returns.distinct,
        sort=sort,
        ranking=ranking,
        limit=limit,
        offset=0 if offset is None else offset,
        offset_at=written.returns.at if written.offset is None else written.offset.at,
    )
    return resolved_stage, columns, rows if is_last else _hand_on(stage, columns)


def _row_count(scope: Scope, count: ast.RowCount, name: str) -> ir.Count | None:
    """A number of rows: a literal or a parameter; T110 for anything else."""
    value = count.value
    if isinstance(value, ast.IntegerLiteral):
        constant = scope.check(value)
        return value.value if constant is not None else None
    type_ = scope.parameters.get(value.name)
    if type_ is not None and is_integer(type_) and not type_.nullable:
        return ir.ParameterValue(value.name, type_)
    if type_ is not None:
        message = f"{name} takes an integer that is not null, but ${value.name} has type {type_}"
        scope.report("T110", message, value.at, help=f"declare ${value.name}: I64")
    elif value.name not in scope.broken or value.name in scope.variables:
        message = f"{name} takes a literal or a declared parameter, and '${value.name}' is neither"
        scope.report(
            "T110",
            message,
            value.at,
            near=f"${value.name}",
            among=[f"${parameter}" for parameter in scope.parameters],
            help=f"declare the parameter ${value.name}: I64",
        )
    return None


# ---- projections ----------------------------------------------------------------------------------------


def _projection(
    scope: Scope, projection: ast.Projection, *, is_last: bool
) -> tuple[resolved.Projection | None, _Column, ReturnedColumn]:
    written = ast.bare(projection.expression)
    alias = None if projection.alias is None else projection.alias.text
    name = alias or executed_name(written) or "?"
    described_name = alias or _described_name(written) or "?"
    aggregates = scope.aggregates
    value = _returned_value(scope, projection, written)
    seen = ReturnedColumn(name, written, value, scope.aggregates > aggregates)
    variable = alias if alias is not None else written.name if isinstance(written, ast.Variable) else None
    if variable is not None and not _IDENTIFIER.fullmatch(variable):
        variable = None
    if not is_last and variable is not None and variable in scope.parameters:
        variable = _no_parameter(scope, projection, variable, value)
    column = _Column(name, described_name, variable, None if value is None else value.type)
    if value is None:
        return None, column, seen
    resolved_projection = resolved.Projection(value, name, described_name, alias, projection.expression.at, variable)
    return resolved_projection, column, seen


def _no_parameter(scope: Scope, projection: ast.Projection, variable: str, value: ir.Value | None) -> str | None:
    """A column that is called like a parameter is not a variable of the next stage. That of the parameter itself needs
    to be none: the parameter goes on meaning the same."""
    if not isinstance(value, ir.ParameterValue) or value.name != variable:
        at = projection.alias.at if projection.alias is not None else projection.at
        message = f"'${variable}' is a parameter and can't be a variable of the next stage as well"
        scope.report("T50", message, at, help=f"choose another name: as {variable}_2")
    return None


def _returned_value(scope: Scope, projection: ast.Projection, written: ast.Expression) -> ir.Value | None:
    scope.place = RETURN
    value = scope.check(written)
    if value is None or refuse_blob(scope, value, projection.expression.at):
        return None
    if projection.alias is None and executed_name(written) is None:
        message = f"the column '{scope.text_at(projection.expression.at)}' is computed and needs a name"
        scope.report("T43", message, projection.expression.at, help="give it one: `as name`")
    return value


def executed_name(expression: ast.Expression) -> str | None:
    """The name of an unaliased column in results, or None for one that needs an alias. An aggregate is named after its
    argument."""
    match expression:
        case ast.PropertyAccess():
            return f"{expression.variable.name}.{expression.property.text}"
        case ast.MetaAccess(variable=ast.Variable(name=name)):
            return f"{name}.{expression.field}"
        case ast.Now():
            return ir.NOW_PARAMETER
        case ast.AggregateCall(argument=None):
            return expression.function.value
        case ast.AggregateCall(argument=argument) if argument is not None:
            return executed_name(ast.bare(argument))
    return _described_name(expression)


def _described_name(expression: ast.Expression) -> str | None:
    """The name of an unaliased column in operation descriptors."""
    match expression:
        case ast.PropertyAccess():
            return expression.property.text
        case ast.MetaAccess():
            return expression.field.value
        case ast.Variable() | ast.Alias():
            return expression.name
        case ast.Now():
            return "now"
        case ast.AggregateCall() | ast.TextCall():
            return expression.function.value
        case ast.NearestCall() | ast.Bm25Call() | ast.RrfCall():
            return rank_name(expression)
        case ast.ListLiteral():
            return "literal"
        case ast.Negative():
            return "literal" if isinstance(expression.operand, ast.IntegerLiteral | ast.FloatLiteral) else None
    return "literal" if isinstance(expression, ast.Literal) else None


def _check_names(scope: Scope, returns: ast.Return) -> None:
    """A row has one value by each name: of two columns with one name, a value would be lost."""
    columns: dict[str, ast.Projection] = {}
    for projection in returns.projections:
        written = ast.bare(projection.expression)
        if projection.alias is None and isinstance(written, ast.Alias):
            continue  # the name of another column is not a value, and refused as such
        name = executed_name(written) if projection.alias is None else projection.alias.text
        if name is not None and columns.setdefault(name, projection) is not projection:
            why = ", because an aggregate without a name has that of its argument"
            is_unnamed = projection.alias is None and isinstance(written, ast.AggregateCall)
            message = f"two columns are called '{name}'{why if is_unnamed else ''}"
            taken = {p.alias.text for p in returns.projections if p.alias is not None}
            base = name.rpartition(".")[2].lstrip("_@") or "column"
            free = next(new for number in range(2, 3 + len(taken)) if (new := f"{base}_{number}") not in taken)
            scope.report("T25", message, projection.at, help=f"give one of them another name: `as {free}`")


def _check_grouping(scope: Scope, columns: Sequence[ReturnedColumn]) -> None:
    """Beside aggregates an expression is made of constants and grouping keys, which are the columns without any."""
    mixed = [c for c in columns if c.has_aggregate and not isinstance(c.written, ast.AggregateCall)]
    if not mixed:
        return
    keys = {ir.value_text(c.value) for c in columns if not c.has_aggregate and c.value is not None}
    for column in mixed:
        if column.value is not None and _reads_more_than(column.value, keys):
            message = (
                "beside an aggregate an expression takes constants and grouping keys: columns without an aggregate"
            )
            scope.report("T9", message, column.written.at, help="return the rest of it as a column of its own")


_LEAVES: Final = (
    ir.PropertyValue,
    ir.UnionProperty,
    ir.MetaValue,
    ir.EntityValue,
    ir.VariableValue,
    ir.TextMatch,
    ir.Score,
)


def _reads_more_than(value: ir.Value, keys: AbstractSet[str]) -> bool:
    """Whether a value depends on the row otherwise than through aggregates and these keys, by their texts."""
    own: set[str] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ir.AggregateValue) or ir.value_text(part) in keys:
            continue
        if isinstance(part, ir.ListForm):
            own.add(part.variable)
        elif isinstance(part, ir.Reduce):
            own |= {part.variable, part.accumulator}
        elif isinstance(part, _LEAVES):
            if isinstance(part, ir.TextMatch | ir.Score) or part.variable not in own:
                return True
            continue
        waiting += ir.operands_of(part)
    return False


# ---- what the next stage gets ---------------------------------------------------------------------------


def _hand_on(scope: Scope, columns: Sequence[_Column]) -> Rows:
    """The variables of the next stage, and the names that it can't use any more."""
    variables = _variables(columns)
    broken = {column.variable for column in columns if column.variable is not None and column.type is None}
    gone: dict[str, Gone] = {}
    for name in scope.variables:
        if name not in variables:
            help = f"return it there: return {{ …, ${name} }}"
            gone[name] = Gone("T104", f"the stage before does not return '${name}'", help)
    for column in columns:
        if column.variable is not None:
            continue
        help = "name it there: `as name`"
        problem = Gone("T103", f"column '{column.name}' of the stage before has no name to use it by", help)
        for name in (column.name, column.described_name):
            if name not in variables:
                gone[name] = problem
    return Rows(variables, broken, gone)
