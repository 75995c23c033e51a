"""Builds the syntax tree while the parser reduces: one method per grammar rule, no intermediate parse tree.

Only the parser uses it. It reads literals and nothing else; the meaning of names is for the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, cast

from lark import Token
from msgspec.structs import replace

from omnigraph.language.catalog import ENDPOINTS
from omnigraph.language.schema import syntax as ast
from omnigraph.language.source import MalformedTokenError, Name, TextSpan, between, name_of, text_of

# More digits than any bound in a schema can have; also keeps int() away from its own digit limit.
_MOST_DIGITS = 18

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def _int(token: Token) -> int:
    if len(token) > _MOST_DIGITS:
        raise MalformedTokenError("the number is too large", between(token, token))
    return int(token)


def _name_ends(members: tuple[ast.Member, ...]) -> tuple[ast.Member, ...]:
    """The body of an edge with `src` and `dst` in its rules as `@src` and `@dst`, unless a property is called so."""
    properties = {member.name.text for member in members if isinstance(member, ast.Property)}
    ends = {end.removeprefix("@"): end for end in ENDPOINTS if end.removeprefix("@") not in properties}

    def name_ends(rule: ast.ColumnsRule) -> ast.ColumnsRule:
        columns = (Name(ends.get(column.text, column.text), at=column.at) for column in rule.columns)
        return replace(rule, columns=tuple(columns))

    return tuple(name_ends(member) if isinstance(member, ast.ColumnsRule) else member for member in members)


def _value(
    kind: Literal["string", "number", "bool", "name"], read: Callable[[Token], str]
) -> Callable[[TreeBuilder, list[Token]], ast.Value]:
    """The builder of an argument that is one token."""
    return lambda _, children: ast.Value(kind, read(children[0]), at=between(children[0], children[0]))


class TreeBuilder:
    """Every method takes the children of one rule; filtered tokens (braces, commas) never arrive."""

    def interface(self, children: list[Any]) -> ast.Interface:
        head, name, *members, close = children
        return ast.Interface(name_of(name), tuple(members), at=between(head, close))

    def node(self, children: list[Any]) -> ast.Node:
        head, name, annotations, *members, close = children
        implements = members.pop(0) if members and isinstance(members[0], tuple) else ()
        return ast.Node(name_of(name), annotations, implements, tuple(members), at=between(head, close))

    def implements(self, children: list[Token]) -> tuple[Name, ...]:
        return tuple(map(name_of, children[1:]))

    def edge(self, children: list[Any]) -> ast.Edge:
        head, name, source, target, *rest = children
        card = rest.pop(0) if isinstance(rest[0], ast.Cardinality) else None
        annotations: tuple[ast.Annotation, ...] = rest[0]
        members, end = None, target.end_pos
        if len(rest) > 1:
            members, end = _name_ends(rest[1][0]), rest[1][1]
        elif annotations:
            end = annotations[-1].at.end
        elif card is not None:
            end = card.at.end
        ends = name_of(source), name_of(target)
        return ast.Edge(name_of(name), *ends, card, annotations, members, at=TextSpan(head.start_pos, end))

    def body(self, children: list[Any]) -> tuple[tuple[ast.Member, ...], int]:
        *members, close = children
        return tuple(members), close.end_pos

    def card(self, children: list[Token]) -> ast.Cardinality:
        head, minimum, *maximum, close = children
        return ast.Cardinality(_int(minimum), _int(maximum[0]) if maximum else None, at=between(head, close))

    def property(self, children: list[Any]) -> ast.Property:
        name, type_, *default, annotations = children
        end = (annotations[-1] if annotations else (default or [type_])[0]).at.end
        return ast.Property(
            name_of(name), type_, default[0] if default else None, annotations, at=TextSpan(name.start_pos, end)
        )

    def default(self, children: list[Any]) -> ast.Default:
        (value,) = children
        return value if isinstance(value, ast.Default) else ast.Default((value,), at=value.at)

    def default_list(self, children: list[Any]) -> ast.Default:
        head, *values, close = children
        return ast.Default(tuple(values), is_list=True, at=between(head, close))

    def type(self, children: list[Any]) -> ast.Type:
        core: ast.Type = children[0]
        if len(children) == 1:
            return core
        return ast.Type(core.name, core.arguments, core.item, True, at=TextSpan(core.at.start, children[1].end_pos))

    def plain_type(self, children: list[Token]) -> ast.Type:
        name, *arguments = children
        dimension = (name_of(arguments[0]),) if arguments else None
        return ast.Type(str(name), dimension, at=between(name, children[-1]))

    def list_type(self, children: list[Any]) -> ast.Type:
        head, item, close = children
        if item.item is not None:
            # Refused while parsing, so that no later phase meets a tree of arbitrary depth.
            raise MalformedTokenError("a list holds scalars only: no lists, enums or vectors", item.at)
        return ast.Type("list", item=item, at=between(head, close))

    def enum_type(self, children: list[Token]) -> ast.Type:
        head, *values, close = children
        return ast.Type("enum", tuple(map(name_of, values)), at=between(head, close))

    def annotations(self, children: list[ast.Annotation]) -> tuple[ast.Annotation, ...]:
        return tuple(children)

    def annotation(self, children: list[Any]) -> ast.Annotation:
        name, *arguments = children
        value = arguments.pop(0) if arguments and isinstance(arguments[0], ast.Value) else None
        return ast.Annotation(name[1:], value, tuple(arguments[:-1]), at=between(name, children[-1]))

    def kwarg(self, children: list[Any]) -> tuple[str, ast.Value]:
        name, value = children
        return str(name), value

    string = _value("string", text_of)
    number = _value("number", str)
    boolean = _value("bool", str)
    name_value = _value("name", str)

    def default_word(self, children: list[Token]) -> ast.Value:
        word = str(children[0])
        kind: Literal["number", "bool", "name"] = "bool" if word in ("true", "false") else "name"
        return ast.Value("number" if _NUMBER.fullmatch(word) else kind, word, at=between(children[0], children[0]))

    def columns_rule(self, children: list[Token]) -> ast.ColumnsRule:
        head, *columns, close = children
        rule = cast(Literal["key", "unique", "index"], head[1:])
        return ast.ColumnsRule(rule, tuple(map(name_of, columns)), at=between(head, close))

    def bounds_from(self, children: list[Token]) -> tuple[str | None, str | None]:
        return str(children[0]), str(children[1]) if len(children) > 1 else None

    def bounds_to(self, children: list[Token]) -> tuple[str | None, str | None]:
        return None, str(children[0])

    def range_rule(self, children: list[Any]) -> ast.RangeRule:
        head, column, (low, high), close = children
        return ast.RangeRule(name_of(column), low, high, at=between(head, close))

    def check_rule(self, children: list[Token]) -> ast.CheckRule:
        head, column, pattern, close = children
        return ast.CheckRule(name_of(column), text_of(pattern), at=between(head, close))
