"""Types of filters: which operands may meet under which operator, and what the operator then is.

Operand types resolve first, the left one before the right; only then are they compared.
"""

from __future__ import annotations

from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import check_value, refuse_blob
from omnigraph.language.query.check.literals import conversion
from omnigraph.language.query.check.scope import Scope
from omnigraph.language.query.complaint import null_tests
from omnigraph.language.query.resolved import Refused, ResolvedFilter, Typed
from omnigraph.language.query.syntax import Comparison

_OPERATORS = {
    Comparison.EQUAL: ir.Operator.EQUAL,
    Comparison.NOT_EQUAL: ir.Operator.NOT_EQUAL,
    Comparison.LESS: ir.Operator.LESS,
    Comparison.LESS_OR_EQUAL: ir.Operator.LESS_OR_EQUAL,
    Comparison.GREATER: ir.Operator.GREATER,
    Comparison.GREATER_OR_EQUAL: ir.Operator.GREATER_OR_EQUAL,
}


def comparison_operator(comparison: Comparison) -> ir.Operator:
    """The operator of a plain comparison; the string predicates depend on their operands."""
    return _OPERATORS[comparison]


def check_filter(scope: Scope, clause: ast.Filter) -> ResolvedFilter | None:
    if _tests_for_null(scope, clause):
        return None
    left = _filter_operand(scope, clause.left)
    right = _filter_operand(scope, clause.right)
    if left is None or right is None:
        return None
    operator = _filter_operator(scope, clause, left, right)
    if operator is None:
        return None
    if isinstance(left, Refused):
        return ResolvedFilter(left)
    if isinstance(right, Refused):
        return ResolvedFilter(right)
    for side, expression in ((left, clause.left), (right, clause.right)):
        if isinstance(side, ir.Score):
            reason = "a ranking orders rows and can't be compared with anything"
            return ResolvedFilter(Refused(ir.F64, reason, expression.at))
    if isinstance(left, ir.TextMatch) and operator is ir.Operator.EQUAL and right == ir.Constant(True, ir.BOOL):
        return ResolvedFilter(left)
    return ResolvedFilter(ir.Compare(left, operator, right))


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
