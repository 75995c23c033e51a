"""The syntax tree of a schema file, as written: nothing is resolved, merged or checked here.

Made by the parser; read by the checks and the formatter. Positions are character ranges and take no part in
equality, so that two trees are equal exactly when they say the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

At: TypeAlias = tuple[int, int]
NOWHERE: At = (0, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """A declared or referenced name and its position."""

    text: str
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Value:
    """An annotation argument. `text` is the value of a string, and the spelling of everything else."""

    kind: Literal["string", "number", "bool", "name"]
    text: str
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AnnotationSyntax:
    name: str
    value: Value | None = None
    kwargs: tuple[tuple[str, Value], ...] = ()
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TypeSyntax:
    """`name` is `String`, `Vector`, `enum`, …; `arguments` a dimension or enum values. A list has an `item`."""

    name: str
    arguments: tuple[Name, ...] | None = None
    item: TypeSyntax | None = None
    nullable: bool = False
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PropertySyntax:
    name: Name
    type: TypeSyntax
    annotations: tuple[AnnotationSyntax, ...] = ()
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnsRule:
    """`@key(…)`, `@unique(…)` or `@index(…)` in a body."""

    rule: Literal["key", "unique", "index"]
    columns: tuple[Name, ...]
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RangeSyntax:
    """Bounds keep their spelling; None is open."""

    column: Name
    low: str | None
    high: str | None
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CheckSyntax:
    column: Name
    pattern: str
    at: At = field(default=NOWHERE, compare=False)


RuleSyntax: TypeAlias = ColumnsRule | RangeSyntax | CheckSyntax
Member: TypeAlias = PropertySyntax | RuleSyntax


@dataclass(frozen=True, slots=True)
class InterfaceSyntax:
    name: Name
    members: tuple[Member, ...] = ()
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class NodeSyntax:
    name: Name
    annotations: tuple[AnnotationSyntax, ...] = ()
    implements: tuple[Name, ...] = ()
    members: tuple[Member, ...] = ()
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CardSyntax:
    minimum: int
    maximum: int | None
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class EdgeSyntax:
    """`members` is None when the edge was written without a body."""

    name: Name
    source: Name
    target: Name
    card: CardSyntax | None = None
    annotations: tuple[AnnotationSyntax, ...] = ()
    members: tuple[Member, ...] | None = None
    at: At = field(default=NOWHERE, compare=False)


Declaration: TypeAlias = InterfaceSyntax | NodeSyntax | EdgeSyntax


@dataclass(frozen=True, slots=True)
class SchemaSyntax:
    declarations: tuple[Declaration, ...] = ()
