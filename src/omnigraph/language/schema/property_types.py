"""Resolves a written type to a `PropertyType`, or says why there is no such type."""

from __future__ import annotations

from omnigraph.language.schema.annotations import Report
from omnigraph.language.schema.syntax import TypeSyntax
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem

# One digit more than the largest dimension has: enough to know that a longer number is too large.
_DIMENSION_DIGITS = 11


def resolve_type(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    """None after a report."""
    if syntax.item is not None:
        return _resolve_list(syntax, syntax.item, report)
    if syntax.name == "enum":
        return _resolve_enum(syntax, report)
    if syntax.name == "Vector":
        return _resolve_vector(syntax, report)
    scalar = SCALAR_NAMES.get(syntax.name)
    if scalar is None:
        known = [*SCALAR_NAMES, "Vector", "enum"]
        report(f"unknown type '{syntax.name}'", syntax.at, did_you_mean(syntax.name, known))
        return None
    if syntax.arguments is not None:
        report(f"type '{syntax.name}' takes no argument", syntax.at, None)
        return None
    return PropertyType(scalar, nullable=syntax.nullable)


def _resolve_list(syntax: TypeSyntax, item: TypeSyntax, report: Report) -> PropertyType | None:
    if item.name in ("enum", "Vector"):
        report("a list holds scalars only: no lists, enums or vectors", item.at, None)
        return None
    if item.nullable:
        report("the items of a list can't be marked nullable; [T]? makes the list itself nullable", item.at, None)
        return None
    resolved = resolve_type(item, report)
    if resolved is None:
        return None
    if resolved.scalar is Scalar.BLOB:
        report("a list of Blob is not supported", syntax.at, None)
        return None
    return PropertyType(resolved.scalar, nullable=syntax.nullable, list=True)


def _resolve_enum(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    seen: set[str] = set()
    repeated = False
    for value in syntax.arguments or ():
        if value.text in seen:
            report(f"enum has duplicate values: '{value.text}'", value.at, None)
            repeated = True
        seen.add(value.text)
    return None if repeated else PropertyType.enum(tuple(seen), nullable=syntax.nullable)


def _resolve_vector(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    if syntax.arguments is None:
        report("Vector requires a dimension, as in Vector(768)", syntax.at, None)
        return None
    written = syntax.arguments[0]
    dimension = int(written.text[:_DIMENSION_DIGITS])
    problem = vector_dimension_problem(dimension)
    if problem is not None:
        report(problem, written.at, None)
        return None
    return PropertyType.vector(dimension, nullable=syntax.nullable)
