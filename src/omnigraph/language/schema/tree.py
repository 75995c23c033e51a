"""Builds the syntax tree while the parser reduces: one method per grammar rule, no intermediate parse tree.

Only the parser uses it. It reads literals and nothing else; whatever a name means is for the checks.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from lark import Token, Transformer

from omnigraph.language.schema.syntax import (
    AnnotationSyntax,
    At,
    CardSyntax,
    CheckSyntax,
    ColumnsRule,
    Declaration,
    EdgeSyntax,
    InterfaceSyntax,
    Member,
    Name,
    NodeSyntax,
    PropertySyntax,
    RangeSyntax,
    TypeSyntax,
    Value,
)
from omnigraph.language.source import UnsupportedEscape, unquote

# More digits than any bound in a schema can have; also keeps int() away from its own digit limit.
_MOST_DIGITS = 18


class TreeError(Exception):
    """Something that the grammar admits and that no tree can hold."""

    def __init__(self, message: str, at: At) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def _at(token: Token) -> At:
    return cast(int, token.start_pos), cast(int, token.end_pos)


def _name(token: Token) -> Name:
    return Name(str(token), _at(token))


def _string(token: Token) -> str:
    value = unquote(token)
    if isinstance(value, UnsupportedEscape):
        at = _at(token)[0] + value.offset
        raise TreeError(value.message, (at, at + len(value.sequence)))
    return value


def _int(token: Token) -> int:
    if len(token) > _MOST_DIGITS:
        raise TreeError("the number is too large", _at(token))
    return int(token)


class TreeBuilder(Transformer[Token, Declaration]):
    """Every method takes the children of one rule; filtered tokens (braces, commas) never arrive."""

    def declaration(self, children: list[Declaration]) -> Declaration:
        return children[0]

    def interface(self, children: list[Any]) -> InterfaceSyntax:
        head, name, *members, close = children
        return InterfaceSyntax(_name(name), tuple(members), (head.start_pos, close.end_pos))

    def node(self, children: list[Any]) -> NodeSyntax:
        head, name, annotations, *members, close = children
        implements: tuple[Name, ...] = ()
        if members and isinstance(members[0], tuple):
            implements = members.pop(0)
        return NodeSyntax(_name(name), annotations, implements, tuple(members), (head.start_pos, close.end_pos))

    def implements(self, children: list[Token]) -> tuple[Name, ...]:
        return tuple(_name(token) for token in children[1:])

    def edge(self, children: list[Any]) -> EdgeSyntax:
        head, name, source, target, *rest = children
        card = rest.pop(0) if isinstance(rest[0], CardSyntax) else None
        annotations: tuple[AnnotationSyntax, ...] = rest[0]
        members, end = None, _at(target)[1]
        if len(rest) > 1:
            members, end = rest[1]
        elif annotations:
            end = annotations[-1].at[1]
        elif card is not None:
            end = card.at[1]
        return EdgeSyntax(_name(name), _name(source), _name(target), card, annotations, members, (head.start_pos, end))

    def body(self, children: list[Any]) -> tuple[tuple[Member, ...], int]:
        *members, close = children
        return tuple(members), close.end_pos

    def card(self, children: list[Token]) -> CardSyntax:
        head, minimum, *maximum, close = children
        at = (_at(head)[0], _at(close)[1])
        return CardSyntax(_int(minimum), _int(maximum[0]) if maximum else None, at)

    def property(self, children: list[Any]) -> PropertySyntax:
        name, type_, annotations = children
        end = annotations[-1].at[1] if annotations else type_.at[1]
        return PropertySyntax(_name(name), type_, annotations, (name.start_pos, end))

    def type(self, children: list[Any]) -> TypeSyntax:
        core: TypeSyntax = children[0]
        if len(children) == 1:
            return core
        return TypeSyntax(core.name, core.arguments, core.item, True, (core.at[0], children[1].end_pos))

    def plain_type(self, children: list[Token]) -> TypeSyntax:
        name, *arguments = children
        if not arguments:
            return TypeSyntax(str(name), at=_at(name))
        return TypeSyntax(str(name), (_name(arguments[0]),), at=(_at(name)[0], _at(arguments[1])[1]))

    def list_type(self, children: list[Any]) -> TypeSyntax:
        head, item, close = children
        if item.item is not None:
            # Refused while parsing, so that no later phase meets a tree of arbitrary depth.
            raise TreeError("a list holds scalars only: no lists, enums or vectors", item.at)
        return TypeSyntax("list", item=item, at=(head.start_pos, close.end_pos))

    def enum_type(self, children: list[Token]) -> TypeSyntax:
        head, *values, close = children
        return TypeSyntax("enum", tuple(_name(value) for value in values), at=(_at(head)[0], _at(close)[1]))

    def annotations(self, children: list[AnnotationSyntax]) -> tuple[AnnotationSyntax, ...]:
        return tuple(children)

    def annotation(self, children: list[Any]) -> AnnotationSyntax:
        name, *arguments = children
        if not arguments:
            return AnnotationSyntax(name[1:], at=_at(name))
        value, *kwargs, close = arguments
        return AnnotationSyntax(name[1:], value, tuple(kwargs), (name.start_pos, close.end_pos))

    def kwarg(self, children: list[Any]) -> tuple[str, Value]:
        name, value = children
        return str(name), value

    def string(self, children: list[Token]) -> Value:
        return Value("string", _string(children[0]), _at(children[0]))

    def number(self, children: list[Token]) -> Value:
        return Value("number", str(children[0]), _at(children[0]))

    def boolean(self, children: list[Token]) -> Value:
        return Value("bool", str(children[0]), _at(children[0]))

    def name_value(self, children: list[Token]) -> Value:
        return Value("name", str(children[0]), _at(children[0]))

    def columns_rule(self, children: list[Token]) -> ColumnsRule:
        head, *columns, close = children
        rule = cast(Literal["key", "unique", "index"], head[1:])
        return ColumnsRule(rule, tuple(_name(column) for column in columns), (_at(head)[0], _at(close)[1]))

    def bounds_from(self, children: list[Token]) -> tuple[str | None, str | None]:
        return str(children[0]), str(children[1]) if len(children) > 1 else None

    def bounds_to(self, children: list[Token]) -> tuple[str | None, str | None]:
        return None, str(children[0])

    def range_rule(self, children: list[Any]) -> RangeSyntax:
        head, column, (low, high), close = children
        return RangeSyntax(_name(column), low, high, (head.start_pos, close.end_pos))

    def check_rule(self, children: list[Token]) -> CheckSyntax:
        head, column, pattern, close = children
        return CheckSyntax(_name(column), _string(pattern), (_at(head)[0], _at(close)[1]))
