"""Expressions and types of the query language back into text.

The formatter and the stored-query listings use it; `parse(spell(x))` is `x`.
"""

from __future__ import annotations

from omnigraph.language.lexical import quote
from omnigraph.language.query import syntax as ast


def spell(expression: ast.Expression) -> str:
    """The canonical text of an expression."""
    match expression:
        case ast.Variable():
            return f"${expression.name}"
        case ast.PropertyAccess():
            return f"${expression.variable.name}.{expression.property.text}"
        case ast.StringLiteral():
            return quote(expression.value)
        case ast.IntegerLiteral():
            return str(expression.value)
        case ast.FloatLiteral():
            return expression.text
        case ast.BooleanLiteral():
            return "true" if expression.value else "false"
        case ast.DateLiteral():
            return f"date({quote(expression.text)})"
        case ast.DateTimeLiteral():
            return f"datetime({quote(expression.text)})"
        case ast.ListLiteral():
            return f"[{', '.join(spell(item) for item in expression.items)}]"
        case ast.Now():
            return "now()"
        case ast.Alias():
            return expression.name
        case ast.NearestCall():
            return _call("nearest", expression.target, expression.query)
        case ast.TextCall():
            return _call(expression.function.value, expression.field, expression.query, expression.max_edits)
        case ast.Bm25Call():
            return _call("bm25", expression.field, expression.query)
        case ast.RrfCall():
            return _call("rrf", expression.first, expression.second, expression.k)
        case ast.AggregateCall():
            return _call(expression.function.value, expression.argument)


def _call(function: str, *arguments: ast.Expression | None) -> str:
    return f"{function}({', '.join(spell(argument) for argument in arguments if argument is not None)})"


def spell_parameter_type(parameter: ast.Parameter) -> str:
    """The declared type as written: `String`, `[I64]?`, `Vector(4)`."""
    name = parameter.type_name.text
    if parameter.dimension is not None:
        name = f"{name}({parameter.dimension})"
    if parameter.is_list:
        name = f"[{name}]"
    return name + ("?" if parameter.nullable else "")
