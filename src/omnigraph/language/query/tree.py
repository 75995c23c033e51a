"""Turns reductions of the query grammar into syntax nodes.

The parser hands an instance to lark as its inline transformer: each method is named after a grammar rule and
receives the rule's children. It must stay stateless, because one parser serves every thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from omnigraph.language.query import syntax as ast
from omnigraph.language.query.tokens import Lexeme
from omnigraph.language.source import MalformedTokenError, Name, TextSpan, between, name_of, text_of

_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 19

Built = TypeVar("Built")
Builder = Callable[["TreeBuilder", list[Any]], Built]


def _variable(token: Lexeme) -> ast.Variable:
    return ast.Variable(token[1:], at=between(token, token))


def _integer(token: Lexeme) -> int:
    digits = token.lstrip("0")
    # The length is checked first: Python refuses to convert texts of many thousand digits.
    if len(digits) > _INT64_DIGITS or int(digits or "0") > _INT64_MAX:
        raise MalformedTokenError("integer literal does not fit a signed 64-bit integer", between(token, token))
    return int(digits or "0")


def _edge_name(token: Lexeme) -> Name:
    # `not` would make `$a not { … }` and `$a not $b` differ by one brace, so the language keeps the prefix out.
    if token == "not" or token.startswith("not_"):
        message = f"an edge can't be called '{token}' here: 'not' and names beginning with 'not_' belong to negation"
        raise MalformedTokenError(message, between(token, token))
    return name_of(token)


def _token(node: Callable[..., Built], read: Callable[[Lexeme], object], position: int = 0) -> Builder[Built]:
    """The builder of a rule whose value is that of one token."""
    return lambda _, parts: node(read(parts[position]), at=between(parts[0], parts[-1]))


def _block(node: Callable[..., Built], step: int = 1) -> Builder[Built]:
    """The builder of a rule whose parts are in braces behind a keyword, with `step - 1` commas between them."""
    return lambda _, parts: node(tuple(parts[2:-1:step]), at=between(parts[0], parts[-1]))


def _pair(node: Callable[..., Built]) -> Builder[Built]:
    """The builder of `name: value`."""
    return lambda _, parts: node(name_of(parts[0]), parts[1], at=TextSpan(parts[0].start_pos, parts[1].at.end))


def _search(node: Callable[..., Built]) -> Builder[Built]:
    """The builder of `keyword(property, query)`."""
    return lambda _, parts: node(parts[2], parts[4], at=between(parts[0], parts[-1]))


def _all(node: Callable[..., Built]) -> Builder[Built]:
    """The builder of a rule that repeats one other."""
    return lambda _, parts: node(tuple(parts), at=TextSpan(parts[0].at.start, parts[-1].at.end))


class TreeBuilder:
    """One method per grammar rule."""

    def file(self, queries: list[ast.Query]) -> ast.QueryFile:
        return ast.QueryFile(tuple(queries))

    def query(self, parts: list[Any]) -> ast.Query:
        keyword, name, _, parameters, _, metas, _, body, close = parts
        return ast.Query(name_of(name), parameters or (), metas, body, at=between(keyword, close))

    def metas(self, parts: list[Lexeme]) -> tuple[ast.Meta, ...]:
        metas: list[ast.Meta] = []
        for keyword, text, close in zip(parts[::4], parts[2::4], parts[3::4], strict=True):
            if any(meta.name == keyword for meta in metas):
                raise MalformedTokenError(f"duplicate {keyword}", between(keyword, keyword))
            metas.append(ast.Meta(str(keyword), text_of(text), at=between(keyword, close)))
        return tuple(metas)

    def parameters(self, parameters: list[ast.Parameter]) -> tuple[ast.Parameter, ...]:
        return tuple(parameters)

    def parameter(self, parts: list[Any]) -> ast.Parameter:
        variable, _, *written, optional = parts
        is_list = written[0] == "["
        dimension = _integer(written[2]) if len(written) == 4 else None
        type_name = name_of(written[1] if is_list else written[0])
        at = between(variable, optional or written[-1])
        return ast.Parameter(variable[1:], type_name, is_list, dimension, optional is not None, at=at)

    def read(self, parts: list[Any]) -> ast.Read:
        match, returns, order, limit = parts
        last = limit or order or returns
        return ast.Read(match, returns, order, limit, at=TextSpan(match.at.start, last.at.end))

    match_block = _block(ast.Match)
    return_block = _block(ast.Return)
    order_block = _block(ast.Order, step=2)
    limit = _token(ast.Limit, _integer, 1)
    negation = _block(ast.Negation)
    pin = _pair(ast.Pin)

    def binding(self, parts: list[Any]) -> ast.Binding:
        variable, _, type_name, *rest = parts
        pins = tuple(part for part in rest if isinstance(part, ast.Pin))
        return ast.Binding(_variable(variable), name_of(type_name), pins, at=between(variable, parts[-1]))

    def traversal(self, parts: list[Any]) -> ast.Traversal:
        source, named, (edge, undirected), hops, destination = parts
        ends = _variable(source), _variable(destination)
        return ast.Traversal(ends[0], edge, undirected, named, hops, ends[1], at=between(source, destination))

    def directed(self, parts: list[Lexeme]) -> tuple[Name, bool]:
        return _edge_name(parts[0]), False

    def undirected(self, parts: list[Lexeme]) -> tuple[Name, bool]:
        return _edge_name(parts[1]), True

    def hops(self, parts: list[Any]) -> ast.Hops:
        minimum, maximum = parts
        most = None if maximum is None else _integer(maximum)
        return ast.Hops(_integer(minimum), most, at=between(minimum, maximum or minimum))

    def filter(self, parts: list[Any]) -> ast.Filter:
        left, operator, right = parts
        if isinstance(left, Lexeme):
            left = _variable(left)
        return ast.Filter(left, ast.Comparison(operator), right, at=TextSpan(left.at.start, right.at.end))

    def text_clause(self, parts: list[ast.TextCall]) -> ast.TextClause:
        return ast.TextClause(parts[0], at=parts[0].at)

    def projection(self, parts: list[Any]) -> ast.Projection:
        expression, alias = parts
        name = None if alias is None else name_of(alias)
        return ast.Projection(expression, name, at=TextSpan(expression.at.start, (name or expression).at.end))

    def sort_key(self, parts: list[Any]) -> ast.SortKey:
        expression = parts[0]
        direction: Lexeme | None = parts[1] if len(parts) > 1 else None
        if direction is None:
            return ast.SortKey(expression, None, at=expression.at)
        return ast.SortKey(expression, str(direction), at=TextSpan(expression.at.start, direction.end_pos))

    def variable(self, parts: list[Lexeme]) -> ast.Variable:
        return _variable(parts[0])

    edge_binding = variable

    def property_access(self, parts: list[Lexeme]) -> ast.PropertyAccess:
        variable, name = parts
        return ast.PropertyAccess(_variable(variable), name_of(name), at=between(variable, name))

    def now(self, parts: list[Lexeme]) -> ast.Now:
        return ast.Now(at=between(parts[0], parts[-1]))

    nearest = _search(ast.NearestCall)
    bm25 = _search(ast.Bm25Call)

    def text_call(self, parts: list[Any]) -> ast.TextCall:
        keyword, _, field, _, query, *rest = parts
        max_edits = rest[1] if len(rest) == 3 else None
        return ast.TextCall(ast.TextFunction(keyword), field, query, max_edits, at=between(keyword, parts[-1]))

    def rrf(self, parts: list[Any]) -> ast.RrfCall:
        keyword, _, first, _, second, *rest = parts
        k = rest[1] if len(rest) == 3 else None
        return ast.RrfCall(first, second, k, at=between(keyword, parts[-1]))

    def aggregate(self, parts: list[Any]) -> ast.AggregateCall:
        keyword, _, argument, close = parts
        return ast.AggregateCall(ast.AggregateFunction(keyword), argument, at=between(keyword, close))

    alias = _token(ast.Alias, str)
    string_literal = _token(ast.StringLiteral, text_of)
    integer_literal = _token(ast.IntegerLiteral, _integer)
    float_literal = _token(ast.FloatLiteral, str)
    boolean_literal = _token(ast.BooleanLiteral, lambda token: token == "true")
    date_literal = _token(ast.DateLiteral, text_of, 2)
    datetime_literal = _token(ast.DateTimeLiteral, text_of, 2)

    def list_literal(self, parts: list[Any]) -> ast.ListLiteral:
        items = tuple(part for part in parts if not isinstance(part, Lexeme | None))
        return ast.ListLiteral(items, at=between(parts[0], parts[-1]))

    writes = _all(ast.Writes)
    assignment = _pair(ast.Assignment)

    def insert(self, parts: list[Any]) -> ast.Insert:
        keyword, type_name, _, *assignments, close = parts
        return ast.Insert(name_of(type_name), tuple(assignments), at=between(keyword, close))

    def update(self, parts: list[Any]) -> ast.Update:
        keyword, type_name, _, _, *assignments, _, _, predicate = parts
        at = TextSpan(keyword.start_pos, predicate.at.end)
        return ast.Update(name_of(type_name), tuple(assignments), predicate, at=at)

    def delete(self, parts: list[Any]) -> ast.Delete:
        keyword, type_name, _, predicate = parts
        return ast.Delete(name_of(type_name), predicate, at=TextSpan(keyword.start_pos, predicate.at.end))

    def predicate(self, parts: list[Any]) -> ast.Predicate:
        name, operator, value = parts
        return ast.Predicate(name_of(name), ast.Comparison(operator), value, at=TextSpan(name.start_pos, value.at.end))

    any_of = _all(ast.AnyOf)
    all_of = _all(ast.AllOf)
