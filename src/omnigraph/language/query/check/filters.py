"""Types of filters: which operands each operator accepts, and which test the operator then is.

Operand types are resolved first, the left one before the right; only then are they compared. Row filters of policies
are checked by the same rules against one type, for an actor that is not known yet. They exclude search, ranking and
aggregates, because the visibility of a row depends on the row and the actor alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import check_value, conversion, refuse_blob
from omnigraph.language.query.check.scope import UNCODED, Scope
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.query.resolved import Refused, Typed
from omnigraph.language.query.row_filter import EVERY_ROW, NO_ROW, ROW, RowFilter, all_of, any_of, map_comparisons
from omnigraph.language.query.syntax import Comparison
from omnigraph.language.query.syntax_errors import null_tests
from omnigraph.language.source import DiagnosticSink, Name, SourceText, TextSpan
from omnigraph.language.types import Scalar
from omnigraph.language.values import parse_date, parse_datetime

# How texts compare; the actor is one.
_TEXT_TESTS: Final[dict[ir.Operator, Callable[[str, str], bool]]] = {
    ir.Operator.EQUAL: operator.eq,
    ir.Operator.NOT_EQUAL: operator.ne,
    ir.Operator.LESS: operator.lt,
    ir.Operator.LESS_OR_EQUAL: operator.le,
    ir.Operator.GREATER: operator.gt,
    ir.Operator.GREATER_OR_EQUAL: operator.ge,
    ir.Operator.SUBSTRING: operator.contains,
    ir.Operator.PREFIX: str.startswith,
}


def comparison_operator(comparison: Comparison) -> ir.Operator:
    """The operator of a plain comparison; the string predicates depend on their operands."""
    return ir.Operator(comparison.value)


def check_filter(scope: Scope, clause: ast.Filter) -> resolved.Filter | None:
    if _tests_for_null(scope, clause):
        return None
    left = _filter_operand(scope, clause.left)
    right = _filter_operand(scope, clause.right)
    if left is None or right is None:
        return None
    compared_by = _filter_operator(scope, clause, left, right)
    if compared_by is None:
        return None
    if isinstance(left, Refused):
        return resolved.Filter(left)
    if isinstance(right, Refused):
        return resolved.Filter(right)
    for side, expression in ((left, clause.left), (right, clause.right)):
        if isinstance(side, ir.Score):
            reason = "a ranking orders rows and can't be compared with anything"
            return resolved.Filter(Refused(ir.F64, reason, expression.at))
    if isinstance(left, ir.TextMatch) and compared_by is ir.Operator.EQUAL and right == ir.Constant(True, ir.BOOL):
        return resolved.Filter(left)
    return resolved.Filter(ir.Compare(left, compared_by, right))


def _tests_for_null(scope: Scope, clause: ast.Filter) -> bool:
    """`$x.p = null`: report it, because it would never be true, and what to write instead."""
    sides = (clause.left, clause.right)
    nulls = [side for side in sides if isinstance(side, ast.Alias) and side.name == "null"]
    if not nulls:
        return False
    other = next((side for side in sides if isinstance(side, ast.PropertyAccess)), None)
    named = "$x.p" if other is None else f"${other.variable.name}.{other.property.text}"
    scope.report("T7", "a comparison with null is never true", nulls[0].at, help=null_tests(named))
    return True


def _filter_operand(scope: Scope, expression: ast.Expression) -> Typed | None:
    if isinstance(expression, ast.Alias | ast.AggregateCall):
        kind = "an output column" if isinstance(expression, ast.Alias) else "an aggregate"
        scope.report("T7", f"a filter needs scalar operands, and this is {kind}", expression.at)
        return None
    value = check_value(scope, expression)
    if value is None:
        return None
    if isinstance(value, ir.NodeId):
        scope.report("T7", f"a filter needs scalar operands, and '${value.variable}' is a node", expression.at)
        return None
    if isinstance(value, ir.PropertyValue) and refuse_blob(scope, value, expression.at):
        return None
    if value.type.is_vector or value.type.is_blob:
        scope.report("T7", f"a filter needs scalar operands but got {value.type}", expression.at)
        return None
    return value


def _filter_operator(scope: Scope, clause: ast.Filter, left: Typed, right: Typed) -> ir.Operator | None:
    """The resolved operator, or None after T7."""
    a, b = left.type, right.type
    if clause.operator is Comparison.CONTAINS and a.list:
        if b.list:
            scope.report("T7", f"contains requires a scalar right operand but got {b}", clause.right.at)
            return None
        if not a.item.compatible_with(b):
            help = conversion(a.item, b, clause.right) or conversion(b, a.item, clause.left)
            scope.report("T7", f"cannot compare the items of {a} with {b}", clause.at, help=help)
            return None
        return ir.Operator.MEMBER
    if a.list or b.list:
        side = clause.left if a.list else clause.right
        message = f"list operands stand only on the left of contains: {clause.operator} needs scalar operands"
        scope.report("T7", message, side.at)
        return None
    if clause.operator in (Comparison.CONTAINS, Comparison.STARTS_WITH):
        if not a.is_text:
            wanted = "a String or list" if clause.operator is Comparison.CONTAINS else "a String"
            scope.report("T7", f"{clause.operator} requires {wanted} left operand but got {a}", clause.left.at)
            return None
        if not b.is_text:
            scope.report("T7", f"{clause.operator} requires a String right operand but got {b}", clause.right.at)
            return None
        return ir.Operator.SUBSTRING if clause.operator is Comparison.CONTAINS else ir.Operator.PREFIX
    if not a.compatible_with(b):
        help = conversion(a, b, clause.right) or conversion(b, a, clause.left)
        scope.report("T7", f"cannot compare {a} with {b}", clause.at, help=help)
        return None
    return comparison_operator(clause.operator)


ACTOR: Final = "actor"
"""The one parameter of a row filter: the actor whose visibility it decides."""


def check_row_filter(text: str, type_: NodeType | EdgeType, catalog: Catalog) -> RowFilter:
    """The filter that a text means for a type. Raises `CompileError` with every finding."""
    findings = DiagnosticSink(SourceText(text))
    scope = Scope(catalog, findings)
    scope.parameters[ACTOR] = ir.STRING
    if isinstance(type_, NodeType):
        scope.nodes[ROW] = type_
    else:
        scope.edges[ROW] = type_
    checked = _test(scope, parse_row_filter(text))
    if findings.diagnostics:
        raise CompileError(findings.diagnostics)
    return checked


def for_actor(test: RowFilter, actor: str) -> RowFilter:
    """Bind the filter to an actor, and evaluate the tests that no longer depend on a row."""

    def bind(value: ir.Value) -> ir.Value:
        return ir.Constant(actor, ir.STRING) if isinstance(value, ir.ParameterValue) else value

    def change(comparison: ir.Compare) -> RowFilter:
        left, right = bind(comparison.left), bind(comparison.right)
        if isinstance(left, ir.Constant) and isinstance(right, ir.Constant):
            return EVERY_ROW if _holds(left, comparison.operator, right) else NO_ROW
        return ir.Compare(left, comparison.operator, right)

    return map_comparisons(test, change)


def _test(scope: Scope, test: ast.RowTest) -> RowFilter:
    match test:
        case ast.AllOf():
            return all_of([_test(scope, part) for part in test.tests])
        case ast.AnyOf():
            return any_of([_test(scope, part) for part in test.tests])
        case ast.BooleanLiteral():
            return EVERY_ROW if test.value else NO_ROW
        case ast.Filter():
            return _comparison(scope, test)


def _comparison(scope: Scope, written: ast.Filter) -> RowFilter:
    """The comparison; `NO_ROW` after a finding, which nobody gets to see."""
    left, right = _operand(scope, written.left, written.right), _operand(scope, written.right, written.left)
    if left is None or right is None:
        return NO_ROW
    checked = check_filter(scope, ast.Filter(left, written.operator, right, at=written.at))
    if checked is None:
        return NO_ROW
    comparison = checked.predicate
    assert isinstance(comparison, ir.Compare), "only properties, the actor, literals and now() get here"
    sides = (comparison.left, comparison.right)
    if not any(isinstance(side, ir.PropertyValue | ir.ParameterValue) for side in sides):
        scope.report(UNCODED, "a row filter compares a property of the type, or $actor", written.at)
    for side, other, operand in zip(sides, reversed(sides), (written.left, written.right), strict=True):
        if isinstance(side, ir.Constant):
            _check_constant(scope, side, other, comparison.operator, operand.at)
    return comparison


def _operand(scope: Scope, operand: ast.Expression, other: ast.Expression) -> ast.Expression | None:
    match operand:
        case ast.Alias(name="null"):
            named = other.name if isinstance(other, ast.Alias) and other.name != "null" else "p"
            scope.report("T7", "a comparison with null is never true", operand.at, help=null_tests(named))
            return None
        case ast.Alias():
            row = ast.Variable(ROW, at=operand.at)
            return ast.PropertyAccess(row, Name(operand.name, at=operand.at), at=operand.at)
        case ast.PropertyAccess():
            scope.report(UNCODED, f"a row filter names properties alone: write '{operand.property.text}'", operand.at)
            return None
        case ast.NearestCall() | ast.TextCall() | ast.Bm25Call() | ast.RrfCall() | ast.AggregateCall():
            scope.report(UNCODED, "a row filter takes no search, ranking or aggregate", operand.at)
            return None
        case _:
            return operand


def _check_constant(scope: Scope, constant: ir.Constant, other: ir.Value, test: ir.Operator, at: TextSpan) -> None:
    """A query reads its dates when it runs; a policy that can't be evaluated must be found out before. A misspelt enum
    value is harmless after `=`, which then shows nothing; after `!=` it would show everything."""
    parse = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}.get(constant.type.scalar)
    tests_for_a_value = test in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL, ir.Operator.MEMBER)
    values = other.type.enum_values if isinstance(other, ir.PropertyValue) and tests_for_a_value else None
    for item in constant.value if isinstance(constant.value, tuple) else (constant.value,):
        try:
            if parse is not None:
                parse(str(item))
        except BadRequestError as error:
            scope.report(UNCODED, str(error), at)
        if values is not None and item not in values:
            message = f"'{item}' is none of the values of the property: {', '.join(values)}"
            scope.report(UNCODED, message, at, near=str(item), among=values)


def _holds(left: ir.Constant, test: ir.Operator, right: ir.Constant) -> bool:
    """A comparison of texts, which the actor and what it is compared with always are."""
    value = right.value
    assert isinstance(value, str), "the checker compares texts with texts"
    if test is ir.Operator.MEMBER:
        return isinstance(left.value, tuple) and value in left.value
    assert isinstance(left.value, str), "the checker compares texts with texts"
    return _TEXT_TESTS[test](left.value, value)
