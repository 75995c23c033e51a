"""Turns reductions of the query grammar into syntax nodes.

The parser hands an instance to lark as its inline transformer: each method is named after a grammar rule and
receives the rule's children. It must stay stateless, because one parser serves every thread.
"""

from __future__ import annotations

from typing import Any

from omnigraph.language.query import syntax as ast
from omnigraph.language.query.syntax import AllOf, AnyOf, Name, RowTest, TextSpan
from omnigraph.language.query.tokens import Lexeme
from omnigraph.language.source import UnsupportedEscape, unquote

_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 19


class MalformedTokenError(Exception):
    """A token that the grammar accepts and the language does not, such as an integer beyond 64 bits."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


def _name(token: Lexeme) -> Name:
    return Name(str(token), TextSpan(token.start_pos, token.end_pos))


def _variable(token: Lexeme) -> ast.Variable:
    return ast.Variable(token[1:], TextSpan(token.start_pos, token.end_pos))


def _between(first: Lexeme, last: Lexeme) -> TextSpan:
    return TextSpan(first.start_pos, last.end_pos)


def _integer(token: Lexeme) -> int:
    digits = token.lstrip("0")
    # The length is checked first: Python refuses to convert texts of many thousand digits.
    if len(digits) > _INT64_DIGITS or int(digits or "0") > _INT64_MAX:
        raise MalformedTokenError(
            "integer literal does not fit a signed 64-bit integer", token.start_pos, token.end_pos
        )
    return int(digits or "0")


def _text(token: Lexeme) -> str:
    value = unquote(token)
    if isinstance(value, UnsupportedEscape):
        start = token.start_pos + value.offset
        raise MalformedTokenError(value.message, start, start + len(value.sequence))
    return value


def _edge_name(token: Lexeme) -> Name:
    # `not` would make `$a not { … }` and `$a not $b` differ by one brace, so the language keeps the prefix out.
    if token == "not" or token.startswith("not_"):
        raise MalformedTokenError(
            f"an edge can't be called '{token}' here: 'not' and names beginning with 'not_' belong to negation",
            token.start_pos,
            token.end_pos,
        )
    return _name(token)


class TreeBuilder:
    """One method per grammar rule."""

    def file(self, queries: list[ast.Query]) -> ast.QueryFile:
        return ast.QueryFile(tuple(queries))

    def query(self, parts: list[Any]) -> ast.Query:
        keyword, name, _, parameters, _, metas, _, body, close = parts
        return ast.Query(_name(name), parameters or (), metas, body, _between(keyword, close))

    def metas(self, parts: list[Lexeme]) -> tuple[ast.Meta, ...]:
        metas: list[ast.Meta] = []
        for keyword, text, close in zip(parts[::4], parts[2::4], parts[3::4], strict=True):
            if any(meta.name == keyword for meta in metas):
                raise MalformedTokenError(f"duplicate {keyword}", keyword.start_pos, keyword.end_pos)
            metas.append(ast.Meta(str(keyword), _text(text), _between(keyword, close)))
        return tuple(metas)

    # ---- parameters -------------------------------------------------------------------------------------

    def parameters(self, parameters: list[ast.Parameter]) -> tuple[ast.Parameter, ...]:
        return tuple(parameters)

    def scalar_parameter(self, parts: list[Any]) -> ast.Parameter:
        variable, _, type_name, optional = parts
        at = _between(variable, optional or type_name)
        return ast.Parameter(variable[1:], _name(type_name), False, None, optional is not None, at)

    def list_parameter(self, parts: list[Any]) -> ast.Parameter:
        variable, _, _, type_name, close, optional = parts
        at = _between(variable, optional or close)
        return ast.Parameter(variable[1:], _name(type_name), True, None, optional is not None, at)

    def vector_parameter(self, parts: list[Any]) -> ast.Parameter:
        variable, _, type_name, _, dimension, close, optional = parts
        at = _between(variable, optional or close)
        return ast.Parameter(variable[1:], _name(type_name), False, _integer(dimension), optional is not None, at)

    # ---- reads ------------------------------------------------------------------------------------------

    def read(self, parts: list[Any]) -> ast.Read:
        match, returns, order, limit = parts
        last = limit or order or returns
        return ast.Read(match, returns, order, limit, TextSpan(match.at.start, last.at.end))

    def match_block(self, parts: list[Any]) -> ast.Match:
        return ast.Match(tuple(parts[2:-1]), _between(parts[0], parts[-1]))

    def return_block(self, parts: list[Any]) -> ast.Return:
        return ast.Return(tuple(parts[2:-1]), _between(parts[0], parts[-1]))

    def order_block(self, parts: list[Any]) -> ast.Order:
        return ast.Order(tuple(parts[2:-1:2]), _between(parts[0], parts[-1]))

    def limit(self, parts: list[Lexeme]) -> ast.Limit:
        keyword, count = parts
        return ast.Limit(_integer(count), _between(keyword, count))

    def negation(self, parts: list[Any]) -> ast.Negation:
        return ast.Negation(tuple(parts[2:-1]), _between(parts[0], parts[-1]))

    def binding(self, parts: list[Any]) -> ast.Binding:
        variable, _, type_name, *rest = parts
        pins = tuple(part for part in rest if isinstance(part, ast.Pin))
        return ast.Binding(_variable(variable), _name(type_name), pins, _between(variable, parts[-1]))

    def pin(self, parts: list[Any]) -> ast.Pin:
        name, value = parts
        return ast.Pin(_name(name), value, TextSpan(name.start_pos, value.at.end))

    def traversal(self, parts: list[Any]) -> ast.Traversal:
        source, edge_variable, (edge, undirected), hops, destination = parts
        return ast.Traversal(
            _variable(source),
            edge,
            undirected,
            edge_variable,
            hops,
            _variable(destination),
            _between(source, destination),
        )

    def edge_binding(self, parts: list[Lexeme]) -> ast.Variable:
        return _variable(parts[0])

    def directed(self, parts: list[Lexeme]) -> tuple[Name, bool]:
        return _edge_name(parts[0]), False

    def undirected(self, parts: list[Lexeme]) -> tuple[Name, bool]:
        return _edge_name(parts[1]), True

    def hops(self, parts: list[Any]) -> ast.Hops:
        minimum, maximum = parts
        return ast.Hops(
            _integer(minimum),
            None if maximum is None else _integer(maximum),
            _between(minimum, maximum or minimum),
        )

    def filter(self, parts: list[Any]) -> ast.Filter:
        left, operator, right = parts
        if isinstance(left, Lexeme):
            left = _variable(left)
        return ast.Filter(left, ast.Comparison(operator), right, TextSpan(left.at.start, right.at.end))

    def text_clause(self, parts: list[ast.TextCall]) -> ast.TextClause:
        return ast.TextClause(parts[0], parts[0].at)

    def projection(self, parts: list[Any]) -> ast.Projection:
        expression, alias = parts
        name = None if alias is None else _name(alias)
        end = expression.at.end if name is None else name.at.end
        return ast.Projection(expression, name, TextSpan(expression.at.start, end))

    def sort_key(self, parts: list[Any]) -> ast.SortKey:
        expression = parts[0]
        direction: Lexeme | None = parts[1] if len(parts) > 1 else None
        end = expression.at.end if direction is None else direction.end_pos
        return ast.SortKey(
            expression, None if direction is None else str(direction), TextSpan(expression.at.start, end)
        )

    # ---- expressions ------------------------------------------------------------------------------------

    def variable(self, parts: list[Lexeme]) -> ast.Variable:
        return _variable(parts[0])

    def property_access(self, parts: list[Lexeme]) -> ast.PropertyAccess:
        variable, name = parts
        return ast.PropertyAccess(_variable(variable), _name(name), _between(variable, name))

    def now(self, parts: list[Lexeme]) -> ast.Now:
        return ast.Now(_between(parts[0], parts[-1]))

    def nearest(self, parts: list[Any]) -> ast.NearestCall:
        keyword, _, target, _, query, close = parts
        return ast.NearestCall(target, query, _between(keyword, close))

    def text_call(self, parts: list[Any]) -> ast.TextCall:
        keyword, _, field, _, query, *rest = parts
        max_edits = rest[1] if len(rest) == 3 else None
        return ast.TextCall(ast.TextFunction(keyword), field, query, max_edits, _between(keyword, parts[-1]))

    def bm25(self, parts: list[Any]) -> ast.Bm25Call:
        keyword, _, field, _, query, close = parts
        return ast.Bm25Call(field, query, _between(keyword, close))

    def rrf(self, parts: list[Any]) -> ast.RrfCall:
        keyword, _, first, _, second, *rest = parts
        k = rest[1] if len(rest) == 3 else None
        return ast.RrfCall(first, second, k, _between(keyword, parts[-1]))

    def aggregate(self, parts: list[Any]) -> ast.AggregateCall:
        keyword, _, argument, close = parts
        return ast.AggregateCall(ast.AggregateFunction(keyword), argument, _between(keyword, close))

    def alias(self, parts: list[Lexeme]) -> ast.Alias:
        return ast.Alias(str(parts[0]), _between(parts[0], parts[0]))

    def string_literal(self, parts: list[Lexeme]) -> ast.StringLiteral:
        return ast.StringLiteral(_text(parts[0]), _between(parts[0], parts[0]))

    def integer_literal(self, parts: list[Lexeme]) -> ast.IntegerLiteral:
        return ast.IntegerLiteral(_integer(parts[0]), _between(parts[0], parts[0]))

    def float_literal(self, parts: list[Lexeme]) -> ast.FloatLiteral:
        return ast.FloatLiteral(str(parts[0]), _between(parts[0], parts[0]))

    def boolean_literal(self, parts: list[Lexeme]) -> ast.BooleanLiteral:
        return ast.BooleanLiteral(parts[0] == "true", _between(parts[0], parts[0]))

    def date_literal(self, parts: list[Lexeme]) -> ast.DateLiteral:
        return ast.DateLiteral(_text(parts[2]), _between(parts[0], parts[-1]))

    def datetime_literal(self, parts: list[Lexeme]) -> ast.DateTimeLiteral:
        return ast.DateTimeLiteral(_text(parts[2]), _between(parts[0], parts[-1]))

    def list_literal(self, parts: list[Any]) -> ast.ListLiteral:
        return ast.ListLiteral(
            tuple(part for part in parts if not isinstance(part, Lexeme | None)), _between(parts[0], parts[-1])
        )

    # ---- writes -----------------------------------------------------------------------------------------

    def writes(self, statements: list[Any]) -> ast.Writes:
        return ast.Writes(tuple(statements), TextSpan(statements[0].at.start, statements[-1].at.end))

    def insert(self, parts: list[Any]) -> ast.Insert:
        keyword, type_name, _, *assignments, close = parts
        return ast.Insert(_name(type_name), tuple(assignments), _between(keyword, close))

    def update(self, parts: list[Any]) -> ast.Update:
        keyword, type_name, _, _, *assignments, _, _, predicate = parts
        return ast.Update(
            _name(type_name), tuple(assignments), predicate, TextSpan(keyword.start_pos, predicate.at.end)
        )

    def delete(self, parts: list[Any]) -> ast.Delete:
        keyword, type_name, _, predicate = parts
        return ast.Delete(_name(type_name), predicate, TextSpan(keyword.start_pos, predicate.at.end))

    def assignment(self, parts: list[Any]) -> ast.Assignment:
        name, value = parts
        return ast.Assignment(_name(name), value, TextSpan(name.start_pos, value.at.end))

    def predicate(self, parts: list[Any]) -> ast.Predicate:
        name, operator, value = parts
        return ast.Predicate(_name(name), ast.Comparison(operator), value, TextSpan(name.start_pos, value.at.end))

    # ---- row filters ------------------------------------------------------------------------------------

    def row_filter(self, parts: list[RowTest]) -> RowTest:
        return parts[0]

    def any_of(self, parts: list[RowTest]) -> RowTest:
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts), TextSpan(parts[0].at.start, parts[-1].at.end))

    def all_of(self, parts: list[RowTest]) -> RowTest:
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts), TextSpan(parts[0].at.start, parts[-1].at.end))
