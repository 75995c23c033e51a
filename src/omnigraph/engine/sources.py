"""Schemas and queries as texts, checked before any graph has them: for whoever keeps them in files.

Nothing is read or written here. Every failure is a `CompileError` that carries all findings of its text.

Migration plans as callers see them, made from what the planner of the language found.

The lens, through which an actor sees a graph, for packages that may not import the language.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import structs

from omnigraph.api import schema as contract
from omnigraph.api.schema import AnnotationOutput, IndexConstraint, PropertyTypeOutput, SchemaPlan, SchemaStep
from omnigraph.errors import CompileError
from omnigraph.language.catalog import Annotation, Catalog
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.language.query.syntax import Query
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.schema.migration import MigrationPlan, MigrationStep, UnsupportedChange
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.source import DiagnosticSink, SourceText
from omnigraph.language.types import PropertyType


class SchemaFlaw(StrEnum):
    SYNTAX = "syntax"
    MEANING = "meaning"


@dataclass(frozen=True, slots=True)
class BrokenSchema:
    flaw: SchemaFlaw
    problem: CompileError


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema that a new graph could have."""

    catalog: Catalog

    def check_query(self, source: str, name: str, path: str) -> None:
        """Whether a query of a text fits. Raises `CompileError`."""
        _ = compile_queries(source, self.catalog, path).query(name).plan


def check_schema(text: str, path: str) -> CheckedSchema | BrokenSchema:
    sink = DiagnosticSink(SourceText(text, path))
    try:
        parse_recovering(sink)
        sink.raise_if_any()
    except CompileError as error:
        return BrokenSchema(SchemaFlaw.SYNTAX, error)
    try:
        return CheckedSchema(accept_schema(text, path))
    except CompileError as error:
        return BrokenSchema(SchemaFlaw.MEANING, error)


def declared_queries(text: str, path: str) -> tuple[Query, ...]:
    """The queries of a text, in its order; two layouts of one query are equal. Raises `CompileError` when the text
    does not parse."""
    return parse_queries(text, path).queries


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


__all__ = ["UNRESTRICTED", "Visibility"]
