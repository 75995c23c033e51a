"""Schemas and queries as texts, checked before any graph has them: for whoever keeps them in files.

Nothing is read or written here. Every failure is a `CompileError` that carries all findings of its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.query.syntax import Query
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.source import DiagnosticSink, SourceText


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
