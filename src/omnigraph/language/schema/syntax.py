"""The syntax tree of a schema file, as written: nothing is resolved, merged or checked here.

Made by the parser; read by the checks and the formatter. Positions take no part in equality, so that two trees are
equal exactly when they say the same thing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from omnigraph.language.source import Name, Node


class Value(Node, frozen=True):
    """An annotation argument. `text` is the value of a string, and the spelling of everything else."""

    kind: Literal["string", "number", "bool", "name"]
    text: str


class AnnotationSyntax(Node, frozen=True):
    name: str
    value: Value | None = None
    kwargs: tuple[tuple[str, Value], ...] = ()


class TypeSyntax(Node, frozen=True):
    """`name` is `String`, `Vector`, `enum`, …; `arguments` a dimension or enum values. A list has an `item`."""

    name: str
    arguments: tuple[Name, ...] | None = None
    item: TypeSyntax | None = None
    nullable: bool = False


class PropertySyntax(Node, frozen=True):
    name: Name
    type: TypeSyntax
    annotations: tuple[AnnotationSyntax, ...] = ()


class ColumnsRule(Node, frozen=True):
    """`@key(…)`, `@unique(…)` or `@index(…)` in a body."""

    rule: Literal["key", "unique", "index"]
    columns: tuple[Name, ...]


class RangeSyntax(Node, frozen=True):
    """Bounds keep their spelling; None is open."""

    column: Name
    low: str | None
    high: str | None


class CheckSyntax(Node, frozen=True):
    column: Name
    pattern: str


RuleSyntax: TypeAlias = ColumnsRule | RangeSyntax | CheckSyntax
Member: TypeAlias = PropertySyntax | RuleSyntax


class InterfaceSyntax(Node, frozen=True):
    name: Name
    members: tuple[Member, ...] = ()


class NodeSyntax(Node, frozen=True):
    name: Name
    annotations: tuple[AnnotationSyntax, ...] = ()
    implements: tuple[Name, ...] = ()
    members: tuple[Member, ...] = ()


class CardSyntax(Node, frozen=True):
    minimum: int
    maximum: int | None


class EdgeSyntax(Node, frozen=True):
    """`members` is None when the edge was written without a body."""

    name: Name
    source: Name
    target: Name
    card: CardSyntax | None = None
    annotations: tuple[AnnotationSyntax, ...] = ()
    members: tuple[Member, ...] | None = None


Declaration: TypeAlias = InterfaceSyntax | NodeSyntax | EdgeSyntax


class SchemaSyntax(Struct, frozen=True):
    declarations: tuple[Declaration, ...] = ()
