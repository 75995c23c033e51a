"""Queries that are kept by name: what their text declares, and whether they fit a schema.

Every query of a text is told for itself: one that is broken says nothing about its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.query.spelling import spell_parameter_type


@dataclass(frozen=True, slots=True)
class Declaration:
    """One query of a text. Parameters are a name, the type as it is written without `?`, and whether it may be null."""

    is_mutation: bool
    description: str | None
    instruction: str | None
    parameters: tuple[tuple[str, str, bool], ...]


def declaration(source: str, name: str, path: str | None = None) -> Declaration:
    """What a text declares under a name, whatever schema it is for. Raises `CompileError` when the text does not
    parse, `BadRequestError` when it declares no such query; `path` only shows in messages."""
    found = next((query for query in parse_queries(source, path).queries if query.name.text == name), None)
    if found is None:
        raise BadRequestError(f"query '{name}' not found")
    return Declaration(
        found.is_mutation,
        found.description,
        found.instruction,
        tuple((p.name, spell_parameter_type(p).removesuffix("?"), p.nullable) for p in found.parameters),
    )


def declared_types(source: str, name: str | None) -> dict[str, str]:
    """The types that a query of a text declares for its parameters, as they are written there without `?`. Nothing for
    a text that does not parse, or does not have such a query: running it says why."""
    try:
        queries = parse_queries(source).queries
    except CompileError:
        return {}
    chosen = [query for query in queries if name is None or query.name.text == name]
    if len(chosen) != 1:
        return {}
    return {p.name: spell_parameter_type(p).removesuffix("?") for p in chosen[0].parameters}


def check(snapshot: Snapshot, source: str, name: str, path: str) -> tuple[str, ...]:
    """What is odd about a query that fits the schema of a state. Raises `BadRequestError` when it does not fit."""
    report = lint_queries(snapshot.catalog, source, query_path=path, schema_source=SchemaSource.graph(path))
    if not report.results and report.findings:
        raise BadRequestError("\n".join(finding.message for finding in report.findings))
    found = next((result for result in report.results if result.name == name), None)
    if found is None:
        raise BadRequestError(f"query '{name}' not found")
    if found.error is not None:
        raise BadRequestError(found.error)
    return found.warnings
