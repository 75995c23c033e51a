"""What a schema declares once it is understood: types resolved, annotations read, interfaces merged in.

Produced by the checks, consumed by identity allocation and the catalog builder. It has no identities yet:
the same declaration may become a new type, a renamed one or an unchanged one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from omnigraph.language.catalog import (
    Annotation,
    Cardinality,
    CheckRule,
    EmbedSource,
    InlineRule,
    Metric,
    RangeRule,
    TypeKind,
)
from omnigraph.language.schema.syntax import NOWHERE, At, Name
from omnigraph.language.source import SourceText
from omnigraph.language.types import PropertyType


@dataclass(frozen=True, slots=True)
class DeclaredProperty:
    """A property with its annotations read. `interfaces` are the contracts it fulfils, in the order implemented."""

    name: Name
    type: PropertyType
    inline: tuple[InlineRule, ...] = ()
    embed: EmbedSource | None = None
    embed_at: At = NOWHERE
    metric: Metric | None = None
    description: str | None = None
    annotations: tuple[Annotation, ...] = ()
    rename_from: Name | None = None
    interfaces: tuple[str, ...] = ()
    injected: bool = False

    def agrees_with(self, other: DeclaredProperty) -> bool:
        """Whether two interfaces that inject this property mean the same; rename hints carry no meaning."""
        return self._meaning() == other._meaning()

    def _meaning(self) -> tuple[object, ...]:
        annotations = sorted(self.annotations, key=repr)
        return (self.type, sorted(self.inline), self.embed, self.metric, self.description, annotations)

    def linked(self, interfaces: tuple[str, ...], *, injected: bool) -> DeclaredProperty:
        return replace(self, interfaces=interfaces, injected=injected)


@dataclass(frozen=True, slots=True)
class DeclaredInterface:
    name: Name
    properties: dict[str, DeclaredProperty]
    rename_from: Name | None = field(default=None, init=False)
    kind: TypeKind = field(default="interface", init=False)


@dataclass(frozen=True, slots=True)
class DeclaredNode:
    """`key`, `uniques` and `indexes` unite the inline and the body spelling, in source order."""

    name: Name
    properties: dict[str, DeclaredProperty]
    implements: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()
    rename_from: Name | None = None
    kind: TypeKind = field(default="node", init=False)


@dataclass(frozen=True, slots=True)
class DeclaredEdge:
    name: Name
    properties: dict[str, DeclaredProperty]
    source: Name
    target: Name
    cardinality: Cardinality
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()
    rename_from: Name | None = None
    kind: TypeKind = field(default="edge", init=False)


DeclaredType: TypeAlias = DeclaredInterface | DeclaredNode | DeclaredEdge


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema that passed every check, in source order."""

    source: SourceText
    interfaces: dict[str, DeclaredInterface]
    nodes: dict[str, DeclaredNode]
    edges: dict[str, DeclaredEdge]

    def types(self) -> list[DeclaredType]:
        """Interfaces, then nodes, then edges."""
        return [*self.interfaces.values(), *self.nodes.values(), *self.edges.values()]
