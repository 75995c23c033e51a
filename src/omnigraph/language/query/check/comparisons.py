"""Types of tests: `and`, `or`, `not`, comparisons, `in`, `is null`, and what a filter, `where` or row filter demands.

Operand types are resolved first, the left one before the right; only then are they compared. Truth has three values:
the type of a test is nullable if an operand is, and a row stays only where a test is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from omnigraph.language.catalog import EdgeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.assignments import (
    END_NAMES,
    conversion,
    end_property,
    end_types,
    literal_problem,
    report_literal,
)
from omnigraph.language.query.check.expressions import is_blob, property_of, read_value, refuse_blob, type_text
from omnigraph.language.query.check.scope import FILTER, Place, Scope
from omnigraph.language.query.syntax import Comparison
from omnigraph.language.query.value_types import (
    BOOL,
    EntityType,
    NullType,
    PathType,
    RecordType,
    ValueType,
    is_bool,
    is_list,
    is_text,
    item_of,
    overlaps,
    unify,
)
from omnigraph.language.types import PropertyType

_TEXT_OPERATORS: Final = {
    Comparison.CONTAINS: ir.Operator.SUBSTRING,
    Comparison.STARTS_WITH: ir.Operator.PREFIX,
}
_EQUALITY: Final = frozenset({Comparison.EQUAL, Comparison.NOT_EQUAL})
_TRUE: Final = ir.Constant(True, BOOL)


# ---- conditions -----------------------------------------------------------------------------------------


def check_filter(scope: Scope, clause: ast.Filter) -> resolved.Filter | None:
    condition = check_condition(scope, clause.condition, FILTER)
    return None if condition is None else resolved.Filter(condition, clause.at)


def check_condition(scope: Scope, expression: ast.Expression, place: Place) -> ir.Value | None:
    """The Bool that decides about a row at this place."""
    outside = scope.place
    scope.place = place
    condition = _truth(scope, expression, place.name)
    scope.place = outside
    return condition


def _truth(scope: Scope, expression: ast.Expression, asked_by: str) -> ir.Value | None:
    """A Bool, or None after T41 and its kin. `null` fits everything."""
    value = read_value(scope, expression)
    if value is None or is_bool(value.type) or isinstance(value.type, NullType):
        return value
    help = "compare it with a value, as in $x.p = 3"
    if isinstance(value.type, EntityType | PathType):
        help = "'is not null' tests whether it is bound"
    scope.report("T41", f"{asked_by} needs a Bool but got {type_text(value)}", expression.at, help=help)
    return None


def check_and(scope: Scope, conjunction: ast.And) -> ir.And | None:
    operands = _truths(scope, conjunction.operands, "'and'")
    return None if operands is None else ir.And(operands)


def check_or(scope: Scope, disjunction: ast.Or) -> ir.Or | None:
    operands = _truths(scope, disjunction.operands, "'or'")
    return None if operands is None else ir.Or(operands)


def _truths(scope: Scope, operands: Sequence[ast.Expression], asked_by: str) -> tuple[ir.Value, ...] | None:
    values = [_truth(scope, operand, asked_by) for operand in operands]
    truths = tuple(value for value in values if value is not None)
    return truths if len(truths) == len(values) else None


def check_not(scope: Scope, negation: ast.Not) -> ir.Not | None:
    operand = _truth(scope, negation.operand, "'not'")
    return None if operand is None else ir.Not(operand)


def check_is_null(scope: Scope, test: ast.IsNull) -> ir.IsNull | None:
    operand = scope.check(test.operand)
    if operand is None:
        return None
    if is_blob(operand.type):
        words = "is not null" if test.negated else "is null"
        message = f"'{words}' takes no Blob: whether one is stored is not part of a read"
        scope.report("T7", message, test.operand.at, help="keep another property that says whether there is one")
        return None
    return ir.IsNull(operand, test.negated)


# ---- comparisons ----------------------------------------------------------------------------------------


def check_compare(scope: Scope, written: ast.Compare) -> ir.Value | None:
    if _compares_null(scope, written.left, written.right):
        return None
    left = compared_value(scope, written.left)
    right = compared_value(scope, written.right)
    if left is None or right is None:
        return None
    if scope.row is not None:
        return _compare_in_row(scope, written, left, right)
    operator = _operator(scope, written, left, right)
    if operator is None:
        return None
    if isinstance(left, ir.TextMatch) and operator is ir.Operator.EQUAL and right == _TRUE:
        return left
    return ir.Compare(left, operator, right)


def _compares_null(scope: Scope, left: ast.Expression, right: ast.Expression) -> bool:
    """`$x.p = null`: report it, because it would never be true, and what to write instead."""
    sides = (left, right)
    null = next((side for side in sides if isinstance(ast.bare(side), ast.NullLiteral)), None)
    if null is None:
        return False
    other = left if null is right else right
    named = "x" if isinstance(ast.bare(other), ast.NullLiteral) else scope.text_at(other.at)
    help = f"write `{named} is null` or `{named} is not null`"
    scope.report("T101", "a comparison with null is never true: use 'is null'", null.at, help=help)
    return True


def compared_value(scope: Scope, expression: ast.Expression) -> ir.Value | None:
    """A value that can be compared in some way."""
    value = scope.check(expression)
    if value is None:
        return None
    type_ = value.type
    if isinstance(type_, PropertyType):
        if type_.is_blob and property_of(value) is not None and refuse_blob(scope, value, expression.at):
            return None
        if not (type_.is_blob or type_.is_vector):
            return value
        message = f"a comparison needs scalar operands but got {type_}"
        help = "rank by nearest(…) instead" if type_.is_vector else "compare another property"
        scope.report("T7", message, expression.at, help=help)
        return None
    if isinstance(type_, PathType):
        help = "compare length(p), start(p) or end(p)"
        scope.report("T108", "a path can't be compared", expression.at, help=help)
        return None
    if isinstance(type_, RecordType):
        scope.report("T7", f"a {type_} can't be compared", expression.at, help="compare its fields")
        return None
    return value


def _operator(scope: Scope, written: ast.Compare, left: ir.Value, right: ir.Value) -> ir.Operator | None:
    """The resolved operator, or None after T7."""
    a, b = left.type, right.type
    if written.operator in _TEXT_OPERATORS:
        return _text_operator(scope, written, left, right)
    if isinstance(a, PropertyType) and isinstance(b, PropertyType) and a.compatible_with(b) and not a.list:
        return ir.Operator(written.operator.value)
    if isinstance(a, NullType) or isinstance(b, NullType):
        return ir.Operator(written.operator.value)
    if isinstance(a, EntityType) or isinstance(b, EntityType) or is_list(a) or is_list(b):
        if not can_be_equal(a, b):
            _report_incomparable(scope, written, left, right)
            return None
        if written.operator not in _EQUALITY:
            what = "nodes and edges" if isinstance(a, EntityType) else "lists"
            help = "compare a property or @id" if isinstance(a, EntityType) else "compare size(list) or an item"
            scope.report("T7", f"{what} compare with = and != only: they have no order", written.at, help=help)
            return None
        return ir.Operator(written.operator.value)
    _report_incomparable(scope, written, left, right)
    return None


def can_be_equal(a: ValueType, b: ValueType) -> bool:
    """Whether a value of one type can equal one of the other."""
    if isinstance(a, EntityType) and isinstance(b, EntityType):
        return overlaps(a, b)
    if isinstance(a, EntityType) or isinstance(b, EntityType):
        return isinstance(a, NullType) or isinstance(b, NullType)
    if is_list(a) and is_list(b):
        return can_be_equal(item_of(a), item_of(b))
    return unify(a, b) is not None


def _report_incomparable(scope: Scope, written: ast.Compare, left: ir.Value, right: ir.Value) -> None:
    a, b = left.type, right.type
    message = f"cannot compare {type_text(left)} with {type_text(right)}"
    scope.report("T7", message, written.at, help=_remedy(a, b, written.left, written.right))


def _remedy(a: ValueType, b: ValueType, left: ast.Expression, right: ast.Expression) -> str:
    """What to write for two sides that can't meet."""
    if isinstance(a, PropertyType) and isinstance(b, PropertyType):
        way = conversion(a, b, right) or conversion(b, a, left)
        if way is not None:
            return way
    if isinstance(a, EntityType) and isinstance(b, EntityType):
        return "no entity can be of both types; compare properties"
    if isinstance(a, EntityType) or isinstance(b, EntityType):
        return "compare its id, as in $x.@id = …"
    if is_list(a) != is_list(b):
        return "write `value in list`"
    return "bring both sides to one type, as to_string(…) or to_int(…) do"


def _text_operator(scope: Scope, written: ast.Compare, left: ir.Value, right: ir.Value) -> ir.Operator | None:
    a, b, operator = left.type, right.type, written.operator
    if operator is Comparison.CONTAINS and is_list(a):
        if is_list(b) and not isinstance(item_of(a), NullType) and not is_list(item_of(a)):
            help = "test each item: all($x in … : $x in …)"
            scope.report("T7", f"contains requires a scalar right operand but got {b}", written.right.at, help=help)
            return None
        if can_be_equal(item_of(a), b):
            return ir.Operator.MEMBER
        message = f"cannot compare the items of {a} with {type_text(right)}"
        scope.report("T7", message, written.at, help=_remedy(item_of(a), b, written.left, written.right))
        return None
    for type_, side, value in ((a, written.left, left), (b, written.right, right)):
        if is_text(type_) or isinstance(type_, NullType):
            continue
        wanted = "a String or list" if operator is Comparison.CONTAINS and value is left else "a String"
        where = "left" if value is left else "right"
        message = f"{operator} requires {wanted} {where} operand but got {type_text(value)}"
        help = "write `value in list`" if is_list(type_) else "turn it into a text with to_string(…)"
        scope.report("T7", message, side.at, help=help)
        return None
    return _TEXT_OPERATORS[operator]


# ---- in -------------------------------------------------------------------------------------------------


def check_in(scope: Scope, written: ast.In) -> ir.In | None:
    if _compares_null(scope, written.item, written.items):
        return None
    item = compared_value(scope, written.item)
    if item is not None and _is_walked(scope, item, written):
        return None
    items = scope.check(written.items)
    if item is None or items is None or refuse_blob(scope, items, written.items.at):
        return None
    if not is_list(items.type) and not isinstance(items.type, NullType):
        way = "for a part of a text write `text contains part`"
        help = way if is_text(items.type) else "write a list, as in $x.p in [1, 2]"
        scope.report("T7", "`in` needs a list on the right", written.items.at, help=help)
        return None
    if isinstance(items.type, NullType) or can_be_equal(item.type, item_of(items.type)):
        return ir.In(item, items) if _are_values_of(scope, item, items, written.items) else None
    message = f"cannot compare {type_text(item)} with the items of {items.type}"
    help = _remedy(item.type, item_of(items.type), written.item, written.items)
    scope.report("T7", message, written.at, help=help)
    return None


def _is_walked(scope: Scope, item: ir.Value, written: ast.In) -> bool:
    """`$a in $b` between nodes: T7, with the edge of this name, which has to be written in quotes."""
    right = ast.bare(written.items)
    if not isinstance(item.type, EntityType) or not isinstance(right, ast.Variable) or right.name in scope.parameters:
        return False
    bound = scope.variables.get(right.name)
    edge = scope.catalog.edge_named("in")
    if not isinstance(bound, EntityType) and (bound is not None or edge is None):
        return False
    help = "write a list of nodes, or compare with ="
    if edge is not None:
        help = f'the edge {edge.name} is written with quotes: {scope.text_at(written.item.at)} "in" ${right.name}'
        scope.broken |= {right.name} - scope.variables.keys()
    scope.report("T7", "`in` needs a list on the right", written.items.at, help=help)
    return True


# ---- tests of one row -----------------------------------------------------------------------------------


def _compare_in_row(scope: Scope, written: ast.Compare, left: ir.Value, right: ir.Value) -> ir.Value | None:
    """A comparison in `where` or in a row filter, where a literal is held against the property that it meets."""
    for end, other, side in ((left, right, written.right), (right, left, written.left)):
        is_end = isinstance(end, ir.MetaValue) and end.field in END_NAMES
        if is_end and not scope.place.is_row_filter and not is_text(other.type):
            return _compare_end(scope, written, end, other, side)
    is_value = _fits_literal(scope, written, left, right, written.right)
    if not (is_value and _fits_literal(scope, written, right, left, written.left)):
        return None
    if written.operator is Comparison.CONTAINS and not _are_values_of(scope, right, left, written.left):
        return None
    operator = _operator(scope, written, left, right)
    return None if operator is None else ir.Compare(left, operator, right)


def _compare_end(
    scope: Scope, written: ast.Compare, end: ir.Value, other: ir.Value, side: ast.Expression
) -> ir.Value | None:
    """An end of an edge with a key that is not a text. Its id is made when the query runs, and an id has no order."""
    assert isinstance(end, ir.MetaValue)
    edge = end.members[0]
    assert isinstance(edge, EdgeType)
    prop = end_property(scope, edge, end.field, other.type)
    named = f"{edge.name}.{prop.name}"
    if isinstance(other, ir.Constant) and (problem := literal_problem(edge.name, prop, other, prop.type)) is not None:
        report_literal(scope, problem, other, prop.type, side)
        return None
    if not isinstance(other.type, PropertyType) or not prop.type.compatible_with(other.type):
        message = f"cannot assign/compare {type_text(other)} with {prop.type} ({named}): {scope.text_at(side.at)}"
        scope.report("T7", message, side.at, help=f"give the id or key of a node: a value of type {prop.type}")
        return None
    if written.operator not in _EQUALITY:
        message = f"'{named}' is the id of a node and has no order; compare it with = or !="
        scope.report("T7", message, written.at, help="use = or !=")
        return None
    key = ir.NodeKey(end_types(scope, edge, end.field)[0], other)
    operator = ir.Operator(written.operator.value)
    return ir.Compare(key, operator, end) if side is written.left else ir.Compare(end, operator, key)


def _are_values_of(scope: Scope, item: ir.Value, items: ir.Value, written: ast.Expression) -> bool:
    """The same for the literals of a list."""
    listed = ast.bare(written)
    if scope.row is None or not isinstance(item, ir.PropertyValue) or not isinstance(listed, ast.ListLiteral):
        return True
    if not isinstance(items, ir.Constant) or not isinstance(items.value, tuple):
        return True
    item_type = item_of(items.type)
    return all(
        value is None or _is_value_of(scope, item, ir.Constant(value, item_type), item.type, literal)
        for value, literal in zip(items.value, listed.items, strict=True)
    )


def _fits_literal(
    scope: Scope, written: ast.Compare, value: ir.Value, constant: ir.Value, side: ast.Expression
) -> bool:
    """T3 for a literal that is none of the values of the property. Only equality asks for one of an enum."""
    if not isinstance(constant, ir.Constant) or not isinstance(value, ir.PropertyValue):
        return True
    expected = value.type
    if written.operator is Comparison.CONTAINS and expected.list:
        expected = expected.item
    elif written.operator not in _EQUALITY and isinstance(constant.type, PropertyType):
        return True
    return _is_value_of(scope, value, constant, expected, side)


def _is_value_of(
    scope: Scope, value: ir.PropertyValue, constant: ir.Constant, expected: PropertyType, written: ast.Expression
) -> bool:
    problem = literal_problem(value.owner.name, value.prop, constant, expected)
    if problem is not None:
        report_literal(scope, problem, constant, expected, written)
    return problem is None
