"""What a schema declares once it is understood: types resolved, annotations read, interfaces merged in.

Produced by the checks, consumed by identity allocation. Declarations hold the types and properties of a catalog that
have no identities yet: the same declaration may become a new type, a renamed one or an unchanged one.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.language.catalog import AnyType, Property, TypeKind
from omnigraph.language.source import NOWHERE, Name, SourceText, TextSpan

UNIDENTIFIED = 0
"""The id of a type or property before its identity is known."""


class Report(Protocol):
    """Takes a finding: the caller knows the code and the source."""

    def __call__(self, message: str, at: TextSpan, suggestion: str | None = None) -> None: ...


class DeclaredProperty(Struct, frozen=True):
    """A property with its annotations read."""

    name: Name
    meaning: Property
    embed_at: TextSpan = NOWHERE
    rename_from: Name | None = None
    default_at: TextSpan = NOWHERE
    renamed_values: tuple[tuple[Name, str], ...] = ()
    """Hints: enum values of the accepted schema, each with the value that takes its place."""

    def agrees_with(self, other: DeclaredProperty) -> bool:
        """Whether two interfaces that inject this property mean the same; rename hints carry no meaning."""
        return _without_order(self.meaning) == _without_order(other.meaning)

    def join(self, interfaces: tuple[str, ...], *, injected: bool) -> DeclaredProperty:
        """The property of a node, which fulfils the contracts of these interfaces."""
        return replace(self, meaning=replace(self.meaning, interfaces=tuple(sorted(interfaces)), injected=injected))


def _without_order(meaning: Property) -> Property:
    return replace(meaning, annotations=tuple(sorted(meaning.annotations, key=repr)))


class DeclaredType(Struct, frozen=True):
    """A type with its rules read; `properties` are those of `meaning`, by name."""

    name: Name
    meaning: AnyType
    properties: dict[str, DeclaredProperty]
    rename_from: Name | None = None

    @property
    def kind(self) -> TypeKind:
        return self.meaning.kind

    @property
    def key(self) -> tuple[TypeKind, str]:
        return self.meaning.kind, self.meaning.name


class DeclaredSchema(Struct, frozen=True):
    """A schema that passed every check: interfaces, then nodes, then edges, each in source order."""

    source: SourceText
    types: tuple[DeclaredType, ...]
