"""Types of literals, and whether a written value fits a declared property.

Bindings, assignments and predicates ask here, so that a pin, an insert and a `where` agree on what fits.
"""

from __future__ import annotations

from omnigraph.language.catalog import Property
from omnigraph.language.lexical import quote
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.scope import UNCODED, Scope, spelled_variables
from omnigraph.language.types import INTEGERS, NUMERIC, PropertyType, Scalar


def literal_constant(scope: Scope, literal: ast.Literal) -> ir.Constant | None:
    """The constant of a literal; None, with a finding, for a list that nests or mixes."""
    match literal:
        case ast.StringLiteral():
            return ir.Constant(literal.value, PropertyType(Scalar.STRING))
        case ast.IntegerLiteral():
            return ir.Constant(literal.value, PropertyType(Scalar.I64))
        case ast.FloatLiteral():
            return ir.Constant(literal.value, PropertyType(Scalar.F64))
        case ast.BooleanLiteral():
            return ir.Constant(literal.value, PropertyType(Scalar.BOOL))
        case ast.DateLiteral():
            return ir.Constant(literal.text, PropertyType(Scalar.DATE))
        case ast.DateTimeLiteral():
            return ir.Constant(literal.text, PropertyType(Scalar.DATETIME))
        case ast.ListLiteral():
            return _list_constant(scope, literal)


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


def conversion(expected: PropertyType, given: PropertyType, written: ast.Expression) -> str | None:
    """How a text that stands for a day or an instant is written, or None when that is not what is wrong."""
    if expected.list or given.list or not given.is_text or expected.scalar not in (Scalar.DATE, Scalar.DATETIME):
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
        return _parameter_cell(scope, owner, prop, cell, expected=expected, code=not_a_parameter)
    if isinstance(cell, ast.Now):
        if expected.scalar is not Scalar.DATETIME or expected.list:
            scope.report("T7", f"cannot assign/compare DateTime with {_typed(owner, prop)}: now()", cell.at)
            return None
        return ir.Now()
    constant = literal_constant(scope, cell)
    if constant is None:
        return None
    problem = misfit(owner, prop, constant, expected)
    if problem is not None:
        values = expected.enum_values or ()
        near = constant.value if isinstance(constant.value, str) and values else None
        help = conversion(expected, constant.type, cell)
        scope.report("T3", problem, cell.at, near=near, among=values, help=help)
        return None
    return constant


def _parameter_cell(
    scope: Scope, owner: str, prop: Property, variable: ast.Variable, *, expected: PropertyType, code: str
) -> ir.Value | None:
    given = scope.parameters.get(variable.name)
    if given is None:
        if variable.name not in scope.broken:
            scope.report(
                code,
                f"'${variable.name}' must be a declared query parameter",
                variable.at,
                near=f"${variable.name}",
                among=spelled_variables(scope.parameters),
            )
        return None
    takes_text = prop.type.is_blob and given.is_text
    if not takes_text and not expected.compatible_with(given):
        message = f"cannot assign/compare {given} with {_typed(owner, prop)}: ${variable.name}"
        scope.report("T7", message, variable.at, help=conversion(expected, given, variable))
        return None
    return ir.ParameterValue(variable.name, given)


def _typed(owner: str, prop: Property) -> str:
    return f"{prop.type} ({owner}.{prop.name})"
