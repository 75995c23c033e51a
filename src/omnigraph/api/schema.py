"""Schemas: the accepted source, the steps from one schema to another, and the result of applying them.

`omnigraph.language` plans in these structs, the engine applies the plan, and the command line prints it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from omnigraph.api.history import CommitReceipt
from omnigraph.api.maintenance import CleanupReport
from omnigraph.api.values import count_noun
from omnigraph.api.wire import LOCAL
from omnigraph.errors import Diagnostic

TypeKind: TypeAlias = Literal["interface", "node", "edge"]
DropMode: TypeAlias = Literal["soft", "hard"]


class SchemaSource(Struct, frozen=True):
    """The accepted schema, word for word."""

    schema_source: str

    WIRE_NAME: ClassVar[str] = "SchemaOutput"


class SchemaApplyRequest(Struct, frozen=True, omit_defaults=True):
    """The schema that a branch (main when not said) is to have."""

    schema_source: str
    allow_data_loss: bool = False
    branch: str | None = None


class SchemaPlanRequest(Struct, frozen=True, omit_defaults=True):
    """The schema that a branch (main when not said) might have."""

    schema_source: str
    allow_data_loss: bool = False
    branch: str | None = None


class VectorScalar(Struct, frozen=True):
    """`{"Vector": 3}`: a vector of so many numbers."""

    dimension: int = field(name="Vector")


class PropertyTypeOutput(Struct, frozen=True):
    """The type of a property; `scalar` is its name in the schema language."""

    scalar: str | VectorScalar
    nullable: bool
    list: bool
    enum_values: tuple[str, ...] | None

    def __str__(self) -> str:
        """As it is written in a schema: `I32?`, `[String]`, `Vector(4)`, `enum(a, b)`."""
        if self.enum_values is not None:
            name = f"enum({', '.join(self.enum_values)})"
        else:
            name = self.scalar if isinstance(self.scalar, str) else f"Vector({self.scalar.dimension})"
        return (f"[{name}]" if self.list else name) + ("?" if self.nullable else "")


class AnnotationOutput(Struct, frozen=True, omit_defaults=True):
    name: str
    value: str | None
    kwargs: dict[str, str] = {}


class IndexConstraint(Struct, frozen=True):
    """`{"Index": ["name"]}`: the one constraint that can join a type which may hold rows."""

    columns: tuple[str, ...] = field(name="Index")


class _Step(Struct, frozen=True):
    """What all steps have: `kind` is the tag that tells them apart on the wire."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class AddType(_Step, frozen=True, tag_field="kind", tag="add_type"):
    type_kind: TypeKind
    name: str

    def line(self) -> str:
        return f"add {self.type_kind} type '{self.name}'"


class RenameType(_Step, frozen=True, tag_field="kind", tag="rename_type"):
    type_kind: TypeKind
    from_name: str = field(name="from")
    to_name: str = field(name="to")

    def line(self) -> str:
        return f"rename {self.type_kind} type '{self.from_name}' -> '{self.to_name}'"


class DropType(_Step, frozen=True, tag_field="kind", tag="drop_type"):
    type_kind: TypeKind
    name: str
    mode: DropMode

    def line(self) -> str:
        return f"drop {self.type_kind} type '{self.name}' ({self.mode} mode)"


class UpdateTypeMetadata(_Step, frozen=True, tag_field="kind", tag="update_type_metadata"):
    type_kind: TypeKind
    name: str
    annotations: tuple[AnnotationOutput, ...]

    def line(self) -> str:
        return f"update metadata of {self.type_kind} type '{self.name}' ({_annotation_names(self.annotations)})"


class AddProperty(_Step, frozen=True, tag_field="kind", tag="add_property"):
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropertyTypeOutput

    def line(self) -> str:
        return f"add property {_quote(self)} ({self.property_type}) on {_owner(self)}"


class RenameProperty(_Step, frozen=True, tag_field="kind", tag="rename_property"):
    """`type_name` is the owner's new name."""

    type_kind: TypeKind
    type_name: str
    from_name: str = field(name="from")
    to_name: str = field(name="to")

    def line(self) -> str:
        old, new = f"{self.type_name}.{self.from_name}", f"{self.type_name}.{self.to_name}"
        return f"rename property '{old}' -> '{new}' on {_owner(self)}"


class ExtendEnum(_Step, frozen=True, tag_field="kind", tag="extend_enum"):
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def line(self) -> str:
        added = ", ".join(f"+{value}" for value in self.added_values)
        return f"extend enum {_quote(self)} ({added}) on {_owner(self)}"


class UpdatePropertyMetadata(_Step, frozen=True, tag_field="kind", tag="update_property_metadata"):
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[AnnotationOutput, ...]

    def line(self) -> str:
        return f"update metadata of property {_quote(self)} ({_annotation_names(self.annotations)}) on {_owner(self)}"


class DropProperty(_Step, frozen=True, tag_field="kind", tag="drop_property"):
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def line(self) -> str:
        return f"drop property {_quote(self)} of {_owner(self)} ({self.mode} mode)"


class AddConstraint(_Step, frozen=True, tag_field="kind", tag="add_constraint"):
    type_kind: TypeKind
    type_name: str
    constraint: IndexConstraint

    def line(self) -> str:
        return f"add constraint @index({', '.join(self.constraint.columns)}) on {_owner(self)}"


class UnsupportedChange(_Step, frozen=True, tag_field="kind", tag="unsupported_change", omit_defaults=True):
    """Blocks the whole plan. `entity` is `node:Book`, `node:Book.pages` or `schema`; `tier` says what it endangers."""

    entity: str
    reason: str
    code: str | None = None
    tier: Annotated[str | None, LOCAL] = None

    @property
    def blocking_reason(self) -> str:
        """The message with which applying the plan fails."""
        return f"[{self.code}] {self.reason}" if self.code is not None else self.reason

    def line(self) -> str:
        code = f" [{', '.join(part for part in (self.code, self.tier) if part)}]" if self.code is not None else ""
        return f"unsupported change on {self.entity}{code}: {self.reason}"


SchemaStep: TypeAlias = (
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


class SchemaPlan(Struct, frozen=True):
    """The steps in their order, and notes about hints that were not needed. Also when some step is not possible."""

    supported: bool
    steps: tuple[SchemaStep, ...]
    notes: Annotated[tuple[Diagnostic, ...], LOCAL] = ()

    def __repr__(self) -> str:
        head = f"<{count_noun(len(self.steps), 'step')}{'' if self.supported else ', not possible'}>"
        return "\n".join([head, *(f"  {step.line()}" for step in self.steps)])

    @property
    def first_blocker(self) -> UnsupportedChange | None:
        return next((step for step in self.steps if isinstance(step, UnsupportedChange)), None)


class SchemaPlanOutput(Struct, frozen=True):
    """What `omnigraph schema plan` prints."""

    uri: str
    supported: bool
    step_count: int
    steps: tuple[SchemaStep, ...]

    @classmethod
    def of(cls, uri: str, plan: SchemaPlan) -> SchemaPlanOutput:
        return cls(uri, plan.supported, len(plan.steps), plan.steps)


class SchemaApplied(Struct, frozen=True, omit_defaults=True):
    """What an apply did. `commit` is None when there was nothing to change; `purged` reports what hard drops freed.

    `replayed` says that an earlier request with the same idempotency key applied it, and this one nothing.
    """

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: tuple[SchemaStep, ...]
    notes: Annotated[tuple[Diagnostic, ...], LOCAL] = ()
    commit: Annotated[CommitReceipt | None, LOCAL] = None
    purged: Annotated[CleanupReport | None, LOCAL] = None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "SchemaApplyOutput"

    def __repr__(self) -> str:
        done = f"applied {count_noun(self.step_count, 'step')}" if self.applied else "nothing to change"
        again = ", replayed" if self.replayed else ""
        return f"<schema: {done}, version {self.graph_manifest_version}{again}>"

    @classmethod
    def of(
        cls,
        uri: str,
        plan: SchemaPlan,
        graph_manifest_version: int,
        commit: CommitReceipt | None,
        purged: CleanupReport | None = None,
        *,
        replayed: bool = False,
    ) -> SchemaApplied:
        version, applied, steps = graph_manifest_version, commit is not None, plan.steps
        return cls(
            uri, plan.supported, applied, len(steps), version, steps, plan.notes, commit, purged, replayed=replayed
        )

    @property
    def plan(self) -> SchemaPlan:
        return SchemaPlan(self.supported, self.steps, self.notes)


_PropertyStep: TypeAlias = AddProperty | ExtendEnum | UpdatePropertyMetadata | DropProperty


def _quote(step: _PropertyStep) -> str:
    return f"'{step.type_name}.{step.property_name}'"


def _owner(step: _PropertyStep | RenameProperty | AddConstraint) -> str:
    return f"{step.type_kind} '{step.type_name}'"


def _annotation_names(annotations: tuple[AnnotationOutput, ...]) -> str:
    return ", ".join(f"@{annotation.name}" for annotation in annotations) or "removed"


class ProposedType(Struct, frozen=True):
    """A type of a proposed schema: what it was read from, and the property that each column became. Columns that no
    property can hold, and the ends of edges, are not among them."""

    name: str
    kind: Literal["node", "edge"]
    files: tuple[str, ...]
    rows: int
    key: str | None
    columns: dict[str, str]


class SchemaProposal(Struct, frozen=True):
    """A schema that fits some files or frames; `schema` is its text."""

    schema: str
    types: tuple[ProposedType, ...]

    def __str__(self) -> str:
        return self.schema
