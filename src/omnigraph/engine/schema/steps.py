"""Migration plans as callers see them, made from what the planner of the language found."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from omnigraph.api import schema as contract
from omnigraph.api.schema import AnnotationOutput, IndexConstraint, PropertyTypeOutput, SchemaPlan, SchemaStep
from omnigraph.language.catalog import Annotation
from omnigraph.language.schema.migration import MigrationPlan
from omnigraph.language.schema.migration_steps import MigrationStep, UnsupportedChange
from omnigraph.language.types import PropertyType


def told_plan(plan: MigrationPlan) -> SchemaPlan:
    return SchemaPlan(plan.supported, tuple(told_step(step) for step in plan.steps), plan.notes)


def told_step(step: MigrationStep) -> SchemaStep:
    """The step of the contract that has the planner's name and fields."""
    shape = getattr(contract, type(step).__name__)
    told = dict(_told(name, value) for name, value in structs.asdict(step).items())
    if isinstance(step, UnsupportedChange) and step.code is not None:
        told["tier"] = step.code.tier.value
    made: SchemaStep = shape(**told)
    return made


def told_type(type_: PropertyType) -> PropertyTypeOutput:
    scalar = type_.scalar.value if type_.dimension is None else contract.VectorScalar(type_.dimension)
    return PropertyTypeOutput(scalar, type_.nullable, type_.list, type_.enum_values)


def told_annotation(note: Annotation) -> AnnotationOutput:
    return AnnotationOutput(note.name, note.value, dict(note.kwargs))


def _told(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, PropertyType):
        return name, told_type(value)
    if name == "annotations":
        return name, tuple(told_annotation(note) for note in value)
    if name == "index_columns":
        return "constraint", IndexConstraint(value)
    return name, value
