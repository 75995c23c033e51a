"""The steps a schema change is made of. The planner makes them, the engine executes them.

A step says what changes and never how the data gets there. What users see of a step, as a line or on the wire, is the
struct of the same name and fields in `omnigraph.api.schema`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import Annotation, TypeKind
from omnigraph.language.types import PropertyType

DropMode: TypeAlias = Literal["soft", "hard"]


class Tier(StrEnum):
    DESTRUCTIVE = "destructive"
    VALIDATED = "validated"


class MigrationCode(StrEnum):
    """`OG-<family>-<number>`. Only the two `MF` codes marked below are emitted; the others are reserved names."""

    LOSE_GRAPH_TYPE = "OG-DS-101"
    LOSE_NODE_TYPE = "OG-DS-102"
    LOSE_EDGE_TYPE = "OG-DS-103"
    LOSE_PROPERTY = "OG-DS-104"
    LOSE_VECTOR_PROPERTY = "OG-DS-105"
    ADD_REQUIRED_PROPERTY = "OG-MF-103"  # emitted
    MAKE_REQUIRED = "OG-MF-104"
    CHANGE_PROPERTY_TYPE = "OG-MF-106"  # emitted

    @property
    def tier(self) -> Tier:
        validated = (MigrationCode.ADD_REQUIRED_PROPERTY, MigrationCode.MAKE_REQUIRED)
        return Tier.VALIDATED if self in validated else Tier.DESTRUCTIVE


class AddType(Struct, frozen=True):
    type_kind: TypeKind
    name: str


class RenameType(Struct, frozen=True):
    type_kind: TypeKind
    from_name: str
    to_name: str


class DropType(Struct, frozen=True):
    type_kind: TypeKind
    name: str
    mode: DropMode


class UpdateTypeMetadata(Struct, frozen=True):
    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]


class AddProperty(Struct, frozen=True):
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropertyType


class RenameProperty(Struct, frozen=True):
    """`type_name` is the owner's new name."""

    type_kind: TypeKind
    type_name: str
    from_name: str
    to_name: str


class ExtendEnum(Struct, frozen=True):
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]


class UpdatePropertyMetadata(Struct, frozen=True):
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]


class DropProperty(Struct, frozen=True):
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode


class AddConstraint(Struct, frozen=True):
    """Always an `@index`: no other constraint can join a type that may hold rows."""

    type_kind: TypeKind
    type_name: str
    index_columns: tuple[str, ...]


class UnsupportedChange(Struct, frozen=True):
    """Blocks the whole plan. `entity` is `node:Book`, `node:Book.pages` or `schema`."""

    entity: str
    reason: str
    code: MigrationCode | None = None

    @property
    def blocking_reason(self) -> str:
        """What an attempt to apply the plan fails with."""
        return f"[{self.code.value}] {self.reason}" if self.code is not None else self.reason


MigrationStep: TypeAlias = (
    AddType
    | RenameType
    | DropType
    | UpdateTypeMetadata
    | AddProperty
    | RenameProperty
    | ExtendEnum
    | UpdatePropertyMetadata
    | DropProperty
    | AddConstraint
    | UnsupportedChange
)
