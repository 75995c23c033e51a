"""Types of expressions: variables, properties, literals, search and ranking calls, aggregates.

Filters, projections, sort keys, bindings and assignments are checked here, so that an insert and a `where` agree on
the values that fit a property. Each function returns the resolved value, or None after it has reported why there is
none. An expression that typechecks but can't run comes back as `Refused`.
"""

from __future__ import annotations

from typing import Final

from omnigraph.language.catalog import Property
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.scope import UNCODED, Scope, spelled_variables
from omnigraph.language.query.resolved import Refused, Typed, TypedProjection
from omnigraph.language.query.syntax import AggregateFunction, TextFunction
from omnigraph.language.source import TextSpan, quote
from omnigraph.language.types import INTEGERS, NUMERIC, PropertyType, Scalar

_LITERAL_TYPES: Final[dict[type[ast.Literal], PropertyType]] = {
    ast.StringLiteral: ir.STRING,
    ast.IntegerLiteral: ir.I64,
    ast.FloatLiteral: ir.F64,
    ast.BooleanLiteral: ir.BOOL,
    ast.DateLiteral: PropertyType(Scalar.DATE),
    ast.DateTimeLiteral: ir.DATETIME,
}


def literal_constant(scope: Scope, literal: ast.Literal) -> ir.Constant | None:
    """The constant of a literal; None, with a finding, for a list that nests or mixes."""
    if isinstance(literal, ast.ListLiteral):
        return _list_constant(scope, literal)
    value = literal.text if isinstance(literal, ast.DateLiteral | ast.DateTimeLiteral) else literal.value
    return ir.Constant(value, _LITERAL_TYPES[type(literal)])


def _list_constant(scope: Scope, literal: ast.ListLiteral) -> ir.Constant | None:
    items: list[ir.ConstantItem] = []
    item_type: PropertyType | None = None
    for item in literal.items:
        if isinstance(item, ast.ListLiteral):
            scope.report(UNCODED, "a list literal can't hold another list", item.at)
            return None
        constant = literal_constant(scope, item)
        if constant is None or isinstance(constant.value, tuple):
            return None
        item_type = item_type or constant.type
        if not item_type.compatible_with(constant.type):
            scope.report(UNCODED, f"list literal mixes {item_type} and {constant.type}", item.at)
            return None
        items.append(constant.value)
    scalar = Scalar.STRING if item_type is None else item_type.scalar
    return ir.Constant(tuple(items), PropertyType(scalar, list=True))


def is_numeric_list(constant: ir.Constant) -> bool:
    """A list of at least one number: what may stand for a vector."""
    return constant.type.list and constant.type.scalar in NUMERIC and bool(constant.value)


def misfit(owner: str, prop: Property, constant: ir.Constant, expected: PropertyType) -> str | None:
    """Why a literal can't be a value of a property, or None. `expected` is its type, or that of one item."""
    named = f"property '{owner}.{prop.name}'"
    value = constant.value
    if prop.type.is_blob:
        return f"{named} has type Blob, which takes a Blob or String parameter and no literal"
    if expected.is_vector and isinstance(value, tuple) and is_numeric_list(constant):
        if len(value) == expected.dimension:
            return None
        return f"{named} has type {prop.type} but got a list of {len(value)} numbers"
    if not expected.compatible_with(constant.type):
        return f"{named} has type {prop.type} but got {constant.type}"
    if expected.enum_values is not None and value not in expected.enum_values:
        return f"{named} expects one of [{', '.join(expected.enum_values)}] but got '{value}'"
    if isinstance(value, tuple) and expected.scalar in INTEGERS and any(isinstance(item, float) for item in value):
        return f"{named} has type {prop.type} but the list holds a number with a fraction"
    return None


def conversion(expected: PropertyType, type_: PropertyType, written: ast.Expression) -> str | None:
    """How a text that stands for a day or an instant is written, or None when that is not what is wrong."""
    if expected.list or type_.list or not type_.is_text or expected.scalar not in (Scalar.DATE, Scalar.DATETIME):
        return None
    if isinstance(written, ast.Variable):
        return f"declare the parameter as ${written.name}: {expected.scalar.value}"
    example = written.value if isinstance(written, ast.StringLiteral) else "2024-01-31"
    return f"write {expected.scalar.value.lower()}({quote(example)})"


def cell_value(
    scope: Scope, owner: str, prop: Property, cell: ast.Cell, *, expected: PropertyType, not_a_parameter: str
) -> ir.Value | None:
    """The value of a cell that meets a property: T3 for a literal that does not fit, T7 for a parameter or now().

    `not_a_parameter` is the code for a variable that no parameter declares.
    """
    if isinstance(cell, ast.Variable):
        type_ = scope.parameters.get(cell.name)
        if type_ is None:
            if cell.name not in scope.broken:
                name, variables = f"${cell.name}", spelled_variables(scope.parameters)
                message = f"'{name}' must be a declared query parameter"
                scope.report(not_a_parameter, message, cell.at, near=name, among=variables)
            return None
        takes_text = prop.type.is_blob and type_.is_text
        if not takes_text and not expected.compatible_with(type_):
            message = f"cannot assign/compare {type_} with {prop.type} ({owner}.{prop.name}): ${cell.name}"
            scope.report("T7", message, cell.at, help=conversion(expected, type_, cell))
            return None
        return ir.ParameterValue(cell.name, type_)
    if isinstance(cell, ast.Now):
        if expected.scalar is not Scalar.DATETIME or expected.list:
            scope.report("T7", f"cannot assign/compare DateTime with {prop.type} ({owner}.{prop.name}): now()", cell.at)
            return None
        return ir.Now()
    constant = literal_constant(scope, cell)
    if constant is None:
        return None
    problem = misfit(owner, prop, constant, expected)
    if problem is not None:
        values = expected.enum_values or ()
        near = constant.value if isinstance(constant.value, str) and values else None
        scope.report("T3", problem, cell.at, near=near, among=values, help=conversion(expected, constant.type, cell))
        return None
    return constant


_FIXED_INPUT = "its text or vector must be a literal or a parameter"
# An alias has no type before the projections are known; descriptors show it as a nullable bigint.
_ALIAS_TYPE = ir.I64.as_nullable()


def check_expression(scope: Scope, expression: ast.Expression) -> TypedProjection | None:
    """The value of any expression. Blobs pass here: whether one may be read depends on the caller."""
    match expression:
        case ast.Variable():
            return _bare_variable(scope, expression)
        case ast.PropertyAccess():
            return property_value(scope, expression, "T6")
        case ast.Now():
            return ir.Now()
        case ast.Alias():
            return Refused(_ALIAS_TYPE, f"'{expression.name}' names an output column", expression.at)
        case ast.NearestCall() | ast.Bm25Call() | ast.RrfCall():
            rank = _rrf(scope, expression) if isinstance(expression, ast.RrfCall) else _arm(scope, expression)
            return ir.Score(rank) if rank is not None and not isinstance(rank, Refused) else rank
        case ast.TextCall():
            return check_text_call(scope, expression)
        case ast.AggregateCall():
            return _aggregate(scope, expression)
        case _:
            return literal_constant(scope, expression)


def check_value(scope: Scope, expression: ast.Expression) -> Typed | None:
    """As `check_expression`, for places where an aggregate is out of place."""
    value = check_expression(scope, expression)
    if isinstance(value, ir.AggregateValue):
        return Refused(value.type, "an aggregate is a column of its own", expression.at)
    return value


def _bare_variable(scope: Scope, variable: ast.Variable) -> Typed | None:
    name = variable.name
    if name in scope.parameters:
        return ir.ParameterValue(name, scope.parameters[name])
    if name in scope.nodes:
        return ir.NodeId(name, scope.nodes[name])
    if name in scope.edges:
        scope.report("T23", f"'${name}' is an edge and can't stand alone; name one of its properties", variable.at)
    elif name not in scope.broken:
        variables = spelled_variables((*scope.parameters, *scope.variables()))
        scope.report(UNCODED, f"variable '${name}' is not bound", variable.at, near=f"${name}", among=variables)
    return None


def property_value(scope: Scope, access: ast.PropertyAccess, code: str) -> ir.PropertyValue | None:
    """`$x.p`, where an unbound variable or an unknown property is reported under `code`."""
    name = access.variable.name
    owner = scope.nodes.get(name) or scope.edges.get(name)
    if owner is None:
        if name not in scope.broken:
            variables = spelled_variables(scope.variables())
            scope.report(code, f"variable '${name}' is not bound", access.variable.at, near=f"${name}", among=variables)
        return None
    prop = scope.property_of(owner, access.property, code)
    return None if prop is None else ir.PropertyValue(name, owner, prop)


def refuse_blob(scope: Scope, value: TypedProjection, at: TextSpan) -> bool:
    """Report T24 when a Blob is about to be read; the answer says whether it was."""
    if not value.type.is_blob:
        return False
    named = f"property '{value.prop.name}'" if isinstance(value, ir.PropertyValue) else "a Blob parameter"
    scope.report("T24", f"{named} is a Blob and not available as a .gq read value", at)
    return True


def _aggregate(scope: Scope, call: ast.AggregateCall) -> ir.AggregateValue | Refused | None:
    argument = check_value(scope, call.argument)
    if argument is None or refuse_blob(scope, argument, call.argument.at):
        return None
    function = call.function
    adds = function in (AggregateFunction.SUM, AggregateFunction.AVG)
    if function is not AggregateFunction.COUNT and not isinstance(argument, ir.NodeId):
        fits = argument.type.is_numeric or (argument.type.is_text and not adds)
        if not fits:
            wanted = "numeric" if adds else "numeric or string"
            scope.report("T8", f"{function}() requires a {wanted} type but got {argument.type}", call.argument.at)
            return None
    if isinstance(argument, Refused):
        if function is AggregateFunction.SUM:
            return argument.with_type(ir.type_of_sum(argument.type))
        return argument.with_type(ir.F64.as_nullable()) if adds else argument
    if adds and isinstance(argument, ir.NodeId):
        return Refused(ir.F64.as_nullable(), f"{function}() can't add up nodes", call.argument.at)
    return ir.AggregateValue(function, argument)


def check_text_call(scope: Scope, call: ast.TextCall) -> ir.TextMatch | Refused | None:
    code = "T20" if call.function is TextFunction.MATCH_TEXT else "T19"
    field = _text_field(scope, call.field, call.function, code)
    query = _fixed_input(scope, call.query, f"{call.function}() query", code)
    max_edits: ir.Operand | Refused | None = None
    if call.max_edits is not None:
        max_edits = _fixed_input(scope, call.max_edits, f"{call.function}() max_edits", code, integer=True)
        if max_edits is None:
            return None
    if field is None or query is None:
        return None
    if isinstance(field, Refused):
        return field.with_type(ir.BOOL)
    if isinstance(query, Refused):
        return query.with_type(ir.BOOL)
    if isinstance(max_edits, Refused):
        return max_edits.with_type(ir.BOOL)
    return ir.TextMatch(call.function, field, query, max_edits)


def _arm(scope: Scope, call: ast.NearestCall | ast.Bm25Call) -> ir.NearestRank | ir.Bm25Rank | Refused | None:
    return _nearest(scope, call) if isinstance(call, ast.NearestCall) else _bm25(scope, call)


def _nearest(scope: Scope, call: ast.NearestCall) -> ir.NearestRank | Refused | None:
    if _is_edge_property(scope, call.target, "nearest"):
        return None
    field = property_value(scope, call.target, "T15")
    if field is not None and not field.type.is_vector:
        message = f"nearest() requires a Vector property but '{field.prop.name}' has type {field.type}"
        scope.report("T15", message, call.target.at)
        field = None
    query = check_value(scope, call.query)
    if field is None or query is None:
        return None
    problem = _vector_problem(field, query)
    if problem is not None:
        scope.report("T15", problem, call.query.at)
        return None
    if not isinstance(query, ir.ParameterValue | ir.Constant):
        return Refused(ir.F64, _FIXED_INPUT, call.query.at)
    return ir.NearestRank(field, query)


def _vector_problem(field: ir.PropertyValue, query: Typed) -> str | None:
    dimension = field.type.dimension
    if isinstance(query, ir.Constant) and isinstance(query.value, tuple) and is_numeric_list(query):
        count = len(query.value)
        return None if count == dimension else f"nearest() needs a vector of {dimension} numbers but got {count}"
    if query.type.is_vector:
        fits = query.type.dimension == dimension
        return None if fits else f"nearest() needs Vector({dimension}) but got {query.type}"
    if query.type.is_text:
        return None
    return f"nearest() needs a vector of {dimension} numbers or a String but got {query.type}"


def _bm25(scope: Scope, call: ast.Bm25Call) -> ir.Bm25Rank | Refused | None:
    field = _text_field(scope, call.field, "bm25", "T20")
    query = _fixed_input(scope, call.query, "bm25() query", "T20")
    if field is None or query is None:
        return None
    if isinstance(field, Refused):
        return field.with_type(ir.F64)
    if isinstance(query, Refused):
        return query.with_type(ir.F64)
    return ir.Bm25Rank(field, query)


def _rrf(scope: Scope, call: ast.RrfCall) -> ir.FusedRank | Refused | None:
    first = _arm(scope, call.first)
    second = _arm(scope, call.second)
    k: ir.Operand | Refused | None = None
    if call.k is not None:
        k = _fixed_input(scope, call.k, "rrf() k", "T21", integer=True)
        if k is None:
            return None
        if isinstance(k, ir.Constant) and k.value == 0:
            scope.report("T21", "rrf() k must be greater than 0", call.k.at)
            return None
    if first is None or second is None:
        return None
    if isinstance(first, Refused):
        return first
    if isinstance(second, Refused):
        return second
    if isinstance(k, Refused):
        return k.with_type(ir.F64)
    return ir.FusedRank(first, second, k)


def _text_field(scope: Scope, field: ast.Expression, function: str, code: str) -> ir.PropertyValue | Refused | None:
    if isinstance(field, ast.PropertyAccess) and _is_edge_property(scope, field, function):
        return None
    value = check_value(scope, field)
    if value is None:
        return None
    if not value.type.is_text or isinstance(value, ir.NodeId):
        scope.report(code, f"{function}() field must be String but got {_type_name(value)}", field.at)
        return None
    if isinstance(value, ir.PropertyValue | Refused):
        return value
    return Refused(value.type, f"{function}() searches a property of a node", field.at)


def _fixed_input(
    scope: Scope, written: ast.Expression, what: str, code: str, *, integer: bool = False
) -> ir.Operand | Refused | None:
    """What a search takes beside its property: a text or a whole number that is the same for every row."""
    value = check_value(scope, written)
    if value is None:
        return None
    fits = value.type.is_integer if integer else value.type.is_text and not isinstance(value, ir.NodeId)
    if not fits:
        wanted = "an integer scalar" if integer else "String"
        scope.report(code, f"{what} must be {wanted} but got {_type_name(value)}", written.at)
        return None
    if isinstance(value, ir.ParameterValue | ir.Constant | Refused):
        return value
    return Refused(value.type, f"{what} must be a literal or a parameter" if integer else _FIXED_INPUT, written.at)


def _is_edge_property(scope: Scope, access: ast.PropertyAccess, function: str) -> bool:
    name = access.variable.name
    if name not in scope.edges:
        return False
    scope.report("T23", f"{function}() searches node properties, but '${name}' is an edge", access.at)
    return True


def _type_name(value: Typed) -> str:
    return f"node '{value.owner.name}'" if isinstance(value, ir.NodeId) else str(value.type)
