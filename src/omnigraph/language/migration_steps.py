"""The steps a schema change is made of: their wire form and the line a person reads.

The planner makes them, the engine executes them, the CLI and HTTP faces show them. A step says what changes and
never how the data gets there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias

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
    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str

    def to_json_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "type_kind": self.type_kind, "name": self.name}

    def line(self) -> str:
        return f"add {self.type_kind} type '{self.name}'"


class RenameType(Struct, frozen=True):
    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    from_name: str
    to_name: str

    def to_json_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "type_kind": self.type_kind, "from": self.from_name, "to": self.to_name}

    def line(self) -> str:
        return f"rename {self.type_kind} type '{self.from_name}' -> '{self.to_name}'"


class DropType(Struct, frozen=True):
    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode

    def to_json_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "type_kind": self.type_kind, "name": self.name, "mode": self.mode}

    def line(self) -> str:
        return f"drop {self.type_kind} type '{self.name}' ({self.mode} mode)"


class UpdateTypeMetadata(Struct, frozen=True):
    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def to_json_dict(self) -> dict[str, Any]:
        annotations = [annotation.to_json_dict() for annotation in self.annotations]
        return {"kind": self.kind, "type_kind": self.type_kind, "name": self.name, "annotations": annotations}

    def line(self) -> str:
        return f"update metadata of {self.type_kind} type '{self.name}' ({_named(self.annotations)})"


class AddProperty(Struct, frozen=True):
    kind: ClassVar[str] = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropertyType

    def to_json_dict(self) -> dict[str, Any]:
        return {**_property_wire(self), "property_type": self.property_type.to_json_dict()}

    def line(self) -> str:
        return f"add property {_quoted(self)} ({self.property_type}) on {_owner(self)}"


class RenameProperty(Struct, frozen=True):
    """`type_name` is the owner's new name."""

    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    from_name: str
    to_name: str

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "from": self.from_name,
            "to": self.to_name,
        }

    def line(self) -> str:
        old, new = f"{self.type_name}.{self.from_name}", f"{self.type_name}.{self.to_name}"
        return f"rename property '{old}' -> '{new}' on {self.type_kind} '{self.type_name}'"


class ExtendEnum(Struct, frozen=True):
    kind: ClassVar[str] = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def to_json_dict(self) -> dict[str, Any]:
        return {**_property_wire(self), "added_values": list(self.added_values)}

    def line(self) -> str:
        added = ", ".join(f"+{value}" for value in self.added_values)
        return f"extend enum {_quoted(self)} ({added}) on {_owner(self)}"


class UpdatePropertyMetadata(Struct, frozen=True):
    kind: ClassVar[str] = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]

    def to_json_dict(self) -> dict[str, Any]:
        return {**_property_wire(self), "annotations": [note.to_json_dict() for note in self.annotations]}

    def line(self) -> str:
        return f"update metadata of property {_quoted(self)} ({_named(self.annotations)}) on {_owner(self)}"


class DropProperty(Struct, frozen=True):
    kind: ClassVar[str] = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def to_json_dict(self) -> dict[str, Any]:
        return {**_property_wire(self), "mode": self.mode}

    def line(self) -> str:
        return f"drop property {_quoted(self)} of {_owner(self)} ({self.mode} mode)"


class AddConstraint(Struct, frozen=True):
    """Always an `@index`: no other constraint can join a type that may hold rows."""

    kind: ClassVar[str] = "add_constraint"
    type_kind: TypeKind
    type_name: str
    index_columns: tuple[str, ...]

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "type_kind": self.type_kind,
            "type_name": self.type_name,
            "constraint": {"Index": list(self.index_columns)},
        }

    def line(self) -> str:
        columns = ", ".join(self.index_columns)
        return f"add constraint @index({columns}) on {self.type_kind} '{self.type_name}'"


class UnsupportedChange(Struct, frozen=True):
    """Blocks the whole plan. `entity` is `node:Book`, `node:Book.pages` or `schema`."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: MigrationCode | None = None

    def to_json_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"kind": self.kind, "entity": self.entity, "reason": self.reason}
        return {**wire, "code": self.code.value} if self.code is not None else wire

    def line(self) -> str:
        code = f" [{self.code.value}, {self.code.tier.value}]" if self.code is not None else ""
        return f"unsupported change on {self.entity}{code}: {self.reason}"

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

_PropertyStep: TypeAlias = AddProperty | ExtendEnum | UpdatePropertyMetadata | DropProperty


def _property_wire(step: _PropertyStep) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "type_kind": step.type_kind,
        "type_name": step.type_name,
        "property_name": step.property_name,
    }


def _quoted(step: _PropertyStep) -> str:
    return f"'{step.type_name}.{step.property_name}'"


def _owner(step: _PropertyStep) -> str:
    return f"{step.type_kind} '{step.type_name}'"


def _named(annotations: tuple[Annotation, ...]) -> str:
    return ", ".join(f"@{annotation.name}" for annotation in annotations) or "removed"
