"""Schemas: the accepted source, the steps from one schema to another, and the result of applying them.

`omnigraph.language` plans in these structs, the engine applies the plan, and the command line prints it.
"""

from __future__ import annotations

import json
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.maintenance import CleanupReport
from omnigraph.api.values import count_noun
from omnigraph.api.wire import LOCAL
from omnigraph.errors import Diagnostic

TypeKind: TypeAlias = Literal["interface", "node", "edge"]
DependentKind: TypeAlias = Literal["stored_query", "policy", "pipeline"]
DropMode: TypeAlias = Literal["soft", "hard"]
Dedupe: TypeAlias = Literal["first", "last"]
DefaultOutput: TypeAlias = str | bool | int | float | tuple[str | bool | int | float, ...]


class SchemaSource(Struct, frozen=True):
    """The accepted schema, word for word."""

    schema_source: str

    WIRE_NAME: ClassVar[str] = "SchemaOutput"


class SchemaApplyRequest(Struct, frozen=True, omit_defaults=True):
    """The schema that a branch (main when not said) is to have.

    `dedupe` says which of several edges with equal keys stays where an edge type gets a key: without it, they block it.
    """

    schema_source: str
    allow_data_loss: bool = False
    branch: str | None = None
    dedupe: Dedupe | None = None


class SchemaPlanRequest(SchemaApplyRequest, frozen=True, omit_defaults=True):
    """The schema that a branch (main when not said) might have."""


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


class RangeOutput(Struct, frozen=True):
    """The bounds of a number; None is open."""

    property: str
    low: int | float | None
    high: int | float | None

    def __str__(self) -> str:
        low, high = ("" if bound is None else str(bound) for bound in (self.low, self.high))
        return f"@range({self.property}, {low}..{high})"


class CheckOutput(Struct, frozen=True):
    """The pattern of a text."""

    property: str
    pattern: str

    def __str__(self) -> str:
        return f"@check({self.property}, {json.dumps(self.pattern, ensure_ascii=False)})"


class Constraint(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rule of a type, under its name: `{"Index": ["name"]}`, `{"Range": {"property": "pages", "low": 1, ...}}`."""

    index: tuple[str, ...] | None = field(name="Index", default=None)
    unique: tuple[str, ...] | None = field(name="Unique", default=None)
    key: tuple[str, ...] | None = field(name="Key", default=None)
    range: RangeOutput | None = field(name="Range", default=None)
    check: CheckOutput | None = field(name="Check", default=None)

    def __str__(self) -> str:
        for name, columns in (("index", self.index), ("unique", self.unique), ("key", self.key)):
            if columns is not None:
                return f"@{name}({', '.join(columns)})"
        return str(self.range or self.check)


class EmbedOutput(Struct, frozen=True):
    """Where a vector comes from."""

    property: str
    model: str | None

    def __str__(self) -> str:
        model = "" if self.model is None else f", model={json.dumps(self.model)}"
        return f"@embed({json.dumps(self.property)}{model})"


class StepEffect(Struct, frozen=True, omit_defaults=True):
    """What a step does to the tables and to those who use them.

    `rows`, `bytes` and `files` count what is written again, unless the step changes metadata only. `bytes` is an
    estimate. `checks` say what must hold for the stored rows, `offences` name the first rows for which it
    does not: the plan can't be applied then. `needs_format` is set where older releases refuse the graph afterwards.
    """

    metadata_only: bool = field(default_factory=lambda: True)  # a factory, so that it is always on the wire
    rows: int = 0
    bytes: int = 0
    files: int = 0
    checks: tuple[str, ...] = ()
    offences: tuple[str, ...] = ()
    needs_format: int | None = None

    @classmethod
    def of_rewrite(cls, rows: int, nbytes: float, files: int) -> StepEffect:
        """The effect of writing rows again."""
        return cls(False, rows, int(nbytes), files) if files else cls()

    def lines(self) -> list[str]:
        """As text, below the line of the step."""
        work = "metadata only"
        if not self.metadata_only:
            size = f"{self.bytes} bytes" if self.bytes < 10_000 else f"{self.bytes / 2**20:,.1f} MiB"
            work = f"rewrites {count_noun(self.rows, 'row')} in {count_noun(self.files, 'file')}, about {size}"
        lines = [work, *(f"checks that {check}" for check in self.checks), *(f"fails: {o}" for o in self.offences)]
        if self.needs_format is not None:
            lines.append(f"older releases can't open the graph afterwards (catalog format {self.needs_format})")
        return lines


class Breakage(Struct, frozen=True):
    """A stored query, policy or pipeline that works with the accepted schema and not with the desired one."""

    kind: DependentKind
    name: str
    reason: str

    def line(self) -> str:
        return f"breaks {self.kind.replace('_', ' ')} '{self.name}': {self.reason}"


class _Step(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all steps have: `kind` is the tag that tells them apart on the wire. A plan that was made without a look at
    a graph knows no effects."""

    effect: StepEffect | None = None

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class _PropertyStep(_Step, frozen=True):
    """A step that is about one property; names are those of the desired schema."""

    type_kind: TypeKind
    type_name: str
    property_name: str


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


class AddProperty(_PropertyStep, frozen=True, tag_field="kind", tag="add_property"):
    """A required property has a default, which existing rows get. A nullable one is null in them."""

    property_type: PropertyTypeOutput
    default: DefaultOutput | None = None

    def line(self) -> str:
        default = "" if self.default is None else f" = {json.dumps(self.default, ensure_ascii=False)}"
        return f"add property {_quote(self)} ({self.property_type}{default}) on {_owner(self)}"


class RenameProperty(_Step, frozen=True, tag_field="kind", tag="rename_property"):
    """`type_name` is the owner's new name."""

    type_kind: TypeKind
    type_name: str
    from_name: str = field(name="from")
    to_name: str = field(name="to")

    def line(self) -> str:
        old, new = f"{self.type_name}.{self.from_name}", f"{self.type_name}.{self.to_name}"
        return f"rename property '{old}' -> '{new}' on {_owner(self)}"


class ExtendEnum(_PropertyStep, frozen=True, tag_field="kind", tag="extend_enum"):
    added_values: tuple[str, ...]

    def line(self) -> str:
        added = ", ".join(f"+{value}" for value in self.added_values)
        return f"extend enum {_quote(self)} ({added}) on {_owner(self)}"


class UpdatePropertyMetadata(_PropertyStep, frozen=True, tag_field="kind", tag="update_property_metadata"):
    annotations: tuple[AnnotationOutput, ...]

    def line(self) -> str:
        return f"update metadata of property {_quote(self)} ({_annotation_names(self.annotations)}) on {_owner(self)}"


class DropProperty(_PropertyStep, frozen=True, tag_field="kind", tag="drop_property"):
    mode: DropMode

    def line(self) -> str:
        return f"drop property {_quote(self)} of {_owner(self)} ({self.mode} mode)"


class AddConstraint(_Step, frozen=True, tag_field="kind", tag="add_constraint"):
    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def line(self) -> str:
        return f"add constraint {self.constraint} on {_owner(self)}"


class DropConstraint(_Step, frozen=True, tag_field="kind", tag="drop_constraint"):
    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def line(self) -> str:
        return f"drop constraint {self.constraint} on {_owner(self)}"


class ChangeCardinality(_Step, frozen=True, tag_field="kind", tag="change_cardinality"):
    """Bounds are written as in the schema: `0..5`, `1..`."""

    type_kind: TypeKind
    name: str
    from_bounds: str = field(name="from")
    to_bounds: str = field(name="to")

    def line(self) -> str:
        return f"change @card of edge '{self.name}' ({self.from_bounds} -> {self.to_bounds})"


class ChangeInterfaces(_Step, frozen=True, tag_field="kind", tag="change_interfaces"):
    type_kind: TypeKind
    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]

    def line(self) -> str:
        changed = ", ".join([*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.removed)])
        return f"change the interfaces of {self.type_kind} type '{self.name}' ({changed})"


class ChangePropertyType(_PropertyStep, frozen=True, tag_field="kind", tag="change_property_type"):
    """A wider number, a null allowed or forbidden, or a text that becomes an enum or ceases to be one."""

    from_type: PropertyTypeOutput = field(name="from")
    to_type: PropertyTypeOutput = field(name="to")

    def line(self) -> str:
        return f"change the type of property {_quote(self)} ({self.from_type} -> {self.to_type}) on {_owner(self)}"


class NarrowEnum(_PropertyStep, frozen=True, tag_field="kind", tag="narrow_enum"):
    removed_values: tuple[str, ...]

    def line(self) -> str:
        removed = ", ".join(f"-{value}" for value in self.removed_values)
        return f"narrow enum {_quote(self)} ({removed}) on {_owner(self)}"


class RenameEnumValue(_PropertyStep, frozen=True, tag_field="kind", tag="rename_enum_value"):
    from_value: str = field(name="from")
    to_value: str = field(name="to")

    def line(self) -> str:
        renamed = f"'{self.from_value}' -> '{self.to_value}'"
        return f"rename enum value {renamed} of property {_quote(self)} on {_owner(self)}"


class ChangeDefault(_PropertyStep, frozen=True, tag_field="kind", tag="change_default"):
    """What is written where a write gives nothing; null for none. Stored values stay as they are."""

    from_value: DefaultOutput | None = field(name="from")
    to_value: DefaultOutput | None = field(name="to")

    def line(self) -> str:
        before, after = ("none" if v is None else json.dumps(v) for v in (self.from_value, self.to_value))
        return f"change the default of property {_quote(self)} ({before} -> {after}) on {_owner(self)}"


class ChangeMetric(_PropertyStep, frozen=True, tag_field="kind", tag="change_metric"):
    from_metric: str = field(name="from")
    to_metric: str = field(name="to")

    def line(self) -> str:
        changed = f"{self.from_metric} -> {self.to_metric}"
        return f"change @metric of property {_quote(self)} ({changed}) on {_owner(self)}"


class ChangeEmbed(_PropertyStep, frozen=True, tag_field="kind", tag="change_embed"):
    """Stored vectors stay as they are: `omnigraph embed` computes them anew."""

    from_source: EmbedOutput | None = field(name="from")
    to_source: EmbedOutput | None = field(name="to")

    def line(self) -> str:
        before, after = (str(source or "none") for source in (self.from_source, self.to_source))
        return f"change @embed of property {_quote(self)} ({before} -> {after}) on {_owner(self)}"


class WidenEndpoint(_Step, frozen=True, tag_field="kind", tag="widen_endpoint"):
    """An end of an edge type that was a node type becomes an interface which that type implements. No row changes."""

    type_kind: Literal["edge"]
    name: str
    end: Literal["source", "target"]
    from_type: str = field(name="from")
    to_type: str = field(name="to")

    def line(self) -> str:
        return f"widen the {self.end} of edge type '{self.name}' from '{self.from_type}' to '{self.to_type}'"


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


PossibleStep: TypeAlias = (
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
    | DropConstraint
    | ChangeCardinality
    | ChangeInterfaces
    | ChangePropertyType
    | NarrowEnum
    | RenameEnumValue
    | ChangeDefault
    | ChangeMetric
    | ChangeEmbed
    | WidenEndpoint
)
"""A step that can be taken. A record of a schema change has such steps only."""

SchemaStep: TypeAlias = PossibleStep | UnsupportedChange


class SchemaPlan(Struct, frozen=True, omit_defaults=True):
    """The steps in their order, and notes about hints that were not needed. Also when some step is not possible."""

    supported: bool
    steps: tuple[SchemaStep, ...]
    notes: Annotated[tuple[Diagnostic, ...], LOCAL] = ()
    breaks: tuple[Breakage, ...] = ()

    def __repr__(self) -> str:
        head = f"<{count_noun(len(self.steps), 'step')}{'' if self.supported else ', not possible'}>"
        return "\n".join([head, *(f"  {line}" for line in self.lines())])

    def lines(self) -> list[str]:
        """The plan as text: each step, indented below it what it does, and what it breaks."""
        lines = []
        for step in self.steps:
            lines += [f"- {step.line()}", *(f"    {line}" for line in (step.effect.lines() if step.effect else ()))]
        return [*lines, *(f"! {breakage.line()}" for breakage in self.breaks)]

    @property
    def failing_checks(self) -> int:
        """How many steps stored rows stand against: applying the plan now would fail."""
        effects = (step.effect for step in self.steps if step.effect is not None)
        return sum(bool(effect.offences) for effect in effects)

    @property
    def first_blocker(self) -> UnsupportedChange | None:
        return next((step for step in self.steps if isinstance(step, UnsupportedChange)), None)


class SchemaPlanOutput(Struct, frozen=True, omit_defaults=True):
    """What `omnigraph schema plan` prints."""

    uri: str
    supported: bool
    step_count: int
    steps: tuple[SchemaStep, ...]
    breaks: tuple[Breakage, ...] = ()

    @classmethod
    def of(cls, uri: str, plan: SchemaPlan) -> SchemaPlanOutput:
        return cls(uri, plan.supported, len(plan.steps), plan.steps, plan.breaks)


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


def _quote(step: _PropertyStep) -> str:
    return f"'{step.type_name}.{step.property_name}'"


def _owner(step: _PropertyStep | RenameProperty | AddConstraint | DropConstraint) -> str:
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
