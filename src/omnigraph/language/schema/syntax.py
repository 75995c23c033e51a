"""The syntax tree of a schema file, as written: nothing is resolved, merged or checked here.

Made by the parser; read by the checks and the formatter. Positions take no part in equality, so that two trees are
equal exactly when they say the same thing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from omnigraph.language.source import Name, SyntaxNode


class Value(SyntaxNode, frozen=True):
    """An annotation argument. `text` is the value of a string, and the spelling of everything else."""

    kind: Literal["string", "number", "bool", "name"]
    text: str


class Annotation(SyntaxNode, frozen=True):
    name: str
    value: Value | None = None
    kwargs: tuple[tuple[str, Value], ...] = ()


class Type(SyntaxNode, frozen=True):
    """`name` is `String`, `Vector`, `enum`, …; `arguments` a dimension or enum values. A list has an `item`."""

    name: str
    arguments: tuple[Name, ...] | None = None
    item: Type | None = None
    nullable: bool = False


class Default(SyntaxNode, frozen=True):
    """The value of a property where a write gives none: one value, or a list of them."""

    values: tuple[Value, ...]
    is_list: bool = False


class Property(SyntaxNode, frozen=True):
    name: Name
    type: Type
    default: Default | None = None
    annotations: tuple[Annotation, ...] = ()


class ColumnsRule(SyntaxNode, frozen=True):
    """`@key(…)`, `@unique(…)` or `@index(…)` in a body."""

    rule: Literal["key", "unique", "index"]
    columns: tuple[Name, ...]


class RangeRule(SyntaxNode, frozen=True):
    """Bounds keep their spelling; None is open."""

    column: Name
    low: str | None
    high: str | None


class CheckRule(SyntaxNode, frozen=True):
    column: Name
    pattern: str


Rule: TypeAlias = ColumnsRule | RangeRule | CheckRule
Member: TypeAlias = Property | Rule


class Interface(SyntaxNode, frozen=True):
    name: Name
    members: tuple[Member, ...] = ()


class Node(SyntaxNode, frozen=True):
    name: Name
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[Name, ...] = ()
    members: tuple[Member, ...] = ()


class Cardinality(SyntaxNode, frozen=True):
    minimum: int
    maximum: int | None


class Edge(SyntaxNode, frozen=True):
    """`members` is None when the edge was written without a body."""

    name: Name
    source: Name
    target: Name
    card: Cardinality | None = None
    annotations: tuple[Annotation, ...] = ()
    members: tuple[Member, ...] | None = None


Declaration: TypeAlias = Interface | Node | Edge


class Schema(Struct, frozen=True):
    declarations: tuple[Declaration, ...] = ()
