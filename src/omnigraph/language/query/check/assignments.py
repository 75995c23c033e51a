"""Types of values that meet a property: pins, assignments of mutations, ends of edges.

All of them are expressions that are the same for every row, except after a feed and in an update. An insert, a pin and
a `where` agree on the values that fit a property: T3 is for a literal that does not, T7 for everything else.
"""

from __future__ import annotations

from typing import Final

from omnigraph.language.catalog import EdgeType, NodeType, Property
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import read_value, type_text
from omnigraph.language.query.check.scope import Place, Scope
from omnigraph.language.query.value_types import STRING, NullType, ValueType, is_list, is_text, item_of
from omnigraph.language.source import quote
from omnigraph.language.types import INTEGERS, NUMERIC, PropertyType, Scalar


def is_numeric_list(constant: ir.Constant) -> bool:
    """A list of at least one number: what may stand for a vector."""
    type_ = constant.type
    is_numbers = isinstance(type_, PropertyType) and type_.list and type_.scalar in NUMERIC
    return is_numbers and bool(constant.value) and None not in _items(constant)


def _items(constant: ir.Constant) -> tuple[ir.ConstantItem, ...]:
    return constant.value if isinstance(constant.value, tuple) else (constant.value,)


def is_nothing(type_: ValueType) -> bool:
    """The type of `[]` and of lists of nothing but nulls, which fit every list."""
    return is_list(type_) and isinstance(item_of(type_), NullType)


def literal_problem(owner: str, prop: Property, constant: ir.Constant, expected: PropertyType) -> str | None:
    """Why a literal can't be a value of a property, or None. `expected` is its type, or that of one item."""
    named = f"property '{owner}.{prop.name}'"
    value, type_ = constant.value, constant.type
    if prop.type.is_blob:
        return f"{named} has type Blob, which takes a Blob or String parameter and no literal"
    if expected.is_vector and isinstance(value, tuple) and is_numeric_list(constant):
        if len(value) == expected.dimension:
            return None
        return f"{named} has type {prop.type} but got a list of {len(value)} numbers"
    if expected.list and is_nothing(type_):
        return None
    if not isinstance(type_, PropertyType) or not expected.compatible_with(type_):
        return f"{named} has type {prop.type} but got {type_}"
    if expected.enum_values is not None and value not in expected.enum_values:
        return f"{named} expects one of [{', '.join(expected.enum_values)}] but got '{value}'"
    if isinstance(value, tuple) and expected.scalar in INTEGERS and any(isinstance(item, float) for item in value):
        return f"{named} has type {prop.type} but the list holds a number with a fraction"
    return None


def conversion(expected: ValueType, type_: ValueType, written: ast.Expression) -> str | None:
    """How a text that stands for a day or an instant is written, or None when that is not what is wrong."""
    if not isinstance(expected, PropertyType) or expected.list or not is_text(type_):
        return None
    if expected.scalar not in (Scalar.DATE, Scalar.DATETIME):
        return None
    written = ast.bare(written)
    if isinstance(written, ast.Variable):
        return f"declare the parameter as ${written.name}: {expected.scalar.value}"
    example = written.value if isinstance(written, ast.StringLiteral) else "2024-01-31"
    return f"write {expected.scalar.value.lower()}({quote(example)})"


def report_literal(
    scope: Scope, problem: str, constant: ir.Constant, expected: PropertyType, written: ast.Expression
) -> None:
    """T3, with the value of an enum or the date that was meant."""
    values = expected.enum_values or ()
    near = constant.value if isinstance(constant.value, str) and values else None
    help = conversion(expected, constant.type, written)
    if help is None:
        help = f"one of {', '.join(values)}" if values else f"write a value of type {expected.as_nullable(False)}"
    scope.report("T3", problem, written.at, near=near, among=values, help=help)


def assigned_value(
    scope: Scope,
    place: Place,
    owner: str,
    prop: Property,
    written: ast.Expression,
    *,
    expected: PropertyType,
    is_stored: bool = True,
) -> ir.Value | None:
    """The value of an expression that meets a property. Not `is_stored`: it is only compared with it, as pins are."""
    if not is_stored and isinstance(ast.bare(written), ast.NullLiteral):
        help = f"write a filter: $x.{prop.name} is null"
        scope.report("T101", "a pin of null matches nothing: use 'is null'", written.at, help=help)
        return None
    outside = scope.place
    scope.place = place
    # A Blob variable is not read here: what is wrong with it is the property that it meets.
    is_read = not prop.type.is_blob and not isinstance(ast.bare(written), ast.Variable)
    value = read_value(scope, written) if is_read else scope.check(written)
    scope.place = outside
    return None if value is None else meet(scope, owner, prop, value, written, expected, is_stored=is_stored)


def meet(
    scope: Scope,
    owner: str,
    prop: Property,
    value: ir.Value,
    written: ast.Expression,
    expected: PropertyType,
    *,
    is_stored: bool = True,
) -> ir.Value | None:
    """The value as one of a property, or None after T3 or T7."""
    if isinstance(value, ir.Constant):
        return _assigned_literal(scope, owner, prop, value, written, expected)
    if _fits(prop, expected, value, is_stored=is_stored):
        return value
    help = conversion(expected, value.type, written) or f"give a value of type {expected.as_nullable(False)}"
    message = (
        f"cannot assign/compare {type_text(value)} with {prop.type} ({owner}.{prop.name}): {scope.text_at(written.at)}"
    )
    scope.report("T7", message, written.at, help=help)
    return None


def _assigned_literal(
    scope: Scope,
    owner: str,
    prop: Property,
    constant: ir.Constant,
    written: ast.Expression,
    expected: PropertyType,
) -> ir.Value | None:
    if constant.value is None:
        if prop.type.nullable:
            return ir.Constant(None, prop.type)
        message = f"property '{owner}.{prop.name}' has type {prop.type} and can't be null"
        scope.report("T3", message, written.at, help=f"write a value of type {prop.type}")
        return None
    problem = literal_problem(owner, prop, constant, expected)
    if problem is not None:
        report_literal(scope, problem, constant, expected, written)
        return None
    return constant


def _fits(prop: Property, expected: PropertyType, value: ir.Value, *, is_stored: bool) -> bool:
    type_ = value.type
    if isinstance(type_, NullType):
        return True
    if expected.list and is_nothing(type_):
        return True
    if not isinstance(type_, PropertyType):
        return False
    if isinstance(value, ir.ParameterValue):
        # What a parameter holds is converted, or refused, when it is bound.
        return (prop.type.is_blob and type_.is_text) or expected.compatible_with(type_)
    if prop.type.is_blob or not expected.compatible_with(type_):
        return False
    loses_a_fraction = expected.scalar in INTEGERS and type_.scalar in NUMERIC - INTEGERS
    return not (is_stored and loses_a_fraction)


# ---- ends of edges --------------------------------------------------------------------------------------

END_NAMES: Final = {ast.MetaField.SRC: "from", ast.MetaField.DST: "to"}


def end_types(scope: Scope, edge: EdgeType, field: ast.MetaField) -> tuple[NodeType, ...]:
    """The node types that an end may have."""
    names = edge.source_types if field is ast.MetaField.SRC else edge.target_types
    return tuple(scope.catalog.nodes[name] for name in names)


def end_property(scope: Scope, edge: EdgeType, field: ast.MetaField, type_: ValueType | None) -> Property:
    """An end as a property, for the rules of values: a text, which is the id of the node, or what the node's key is. At
    an interface it is always an id."""
    node, is_interface = end_types(scope, edge, field)[0], edge.ends[field is ast.MetaField.DST].interface is not None
    is_id = type_ is None or is_text(type_) or len(node.key) != 1 or is_interface
    key = STRING if is_id else node.properties[node.key[0]].type
    column = "src" if field is ast.MetaField.SRC else "dst"
    return Property(name=END_NAMES[field], id=0, type=key.as_nullable(False), column=column)
