"""Lints one `.gq` file against a catalog and reports in the wire form that editors and CI read.

The CLI and the server call `lint_queries`. It parses and typechecks and never lowers: what only execution refuses
is no lint error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.catalog import Catalog, NodeType
from omnigraph.language.query.compile import CompiledQuery, compile_queries
from omnigraph.language.query.operation import Operation
from omnigraph.language.query.resolved import ResolvedUpdate, ResolvedWrites

Severity: TypeAlias = Literal["error", "warning", "info"]
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

UNPARSABLE = "Q000"
NEVER_UPDATED = "L201"
HARD_CODED = "hard-coded mutation: the query declares no parameters, so it always writes the same values"


class SchemaSource(Struct, frozen=True):
    """Where the catalog came from: a schema file, or a live graph."""

    kind: Literal["file", "graph"]
    location: str

    def to_json_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "path" if self.kind == "file" else "uri": self.location}


class QueryResult(Struct, frozen=True):
    """What lint found out about one query. A query that compiles has an `operation`, another one an `error`."""

    name: str
    is_mutation: bool
    warnings: tuple[str, ...] = ()
    error: str | None = None
    operation: Operation | None = None

    @property
    def kind(self) -> str:
        return "mutation" if self.is_mutation else "read"

    def to_json_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "status": "ok" if self.error is None else "error",
        }
        if self.warnings:
            wire["warnings"] = list(self.warnings)
        if self.error is not None:
            wire["error"] = self.error
        if self.operation is not None:
            wire["operation"] = self.operation.to_json_dict()
        return wire


class Finding(Struct, frozen=True):
    """A finding about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property_name: str | None = None
    query_names: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[int, str, str, str]:
        return _SEVERITIES.index(self.severity), self.type_name or "", self.property_name or "", self.message

    def to_json_dict(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"severity": self.severity, "code": self.code, "message": self.message}
        if self.type_name is not None:
            wire["type_name"] = self.type_name
        if self.property_name is not None:
            wire["property"] = self.property_name
        if self.query_names:
            wire["query_names"] = list(self.query_names)
        return wire


class LintReport(Struct, frozen=True):
    """The outcome for one file. Only errors fail it."""

    schema_source: SchemaSource
    query_path: str
    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        return sum(result.error is not None for result in self.results) + self._findings_of("error")

    @property
    def warnings(self) -> int:
        return sum(len(result.warnings) for result in self.results) + self._findings_of("warning")

    @property
    def infos(self) -> int:
        return self._findings_of("info")

    def _findings_of(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def status(self) -> str:
        return "error" if self.errors else "ok"

    @property
    def exit_code(self) -> int:
        return 1 if self.errors else 0

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "schema_source": self.schema_source.to_json_dict(),
            "query_path": self.query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.to_json_dict() for result in self.results],
            "findings": [finding.to_json_dict() for finding in self.findings],
        }

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        for result in self.results:
            if result.error is None:
                yield f"OK    query `{result.name}` ({result.kind})"
            else:
                yield f"ERROR query `{result.name}`: {_indented(result.error)}"
            for warning in result.warnings:
                yield f"WARN  query `{result.name}`: {warning}"
        for finding in self.findings:
            label = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}[finding.severity]
            yield f"{label} {finding.code}: {_indented(finding.message)}"
        yield (
            f"INFO  Lint complete: {len(self.results)} queries processed ({self.errors} error(s), "
            f"{self.warnings} warning(s), {self.infos} info item(s))"
        )


def _indented(text: str) -> str:
    return text.replace("\n", "\n      ")


def lint_queries(catalog: Catalog, query_text: str, *, query_path: str, schema_source: SchemaSource) -> LintReport:
    """The report on one file. Never raises for anything that the file holds."""
    try:
        queries = compile_queries(query_text, catalog, query_path).queries
    except CompileError as error:
        finding = Finding("error", UNPARSABLE, _spelled(error.diagnostics))
        return LintReport(schema_source, query_path, (), (finding,))
    results = tuple(_result(query) for query in queries)
    valid = [query for query, result in zip(queries, results, strict=True) if result.error is None]
    findings = sorted(_never_updated(valid), key=lambda finding: finding.rank)
    return LintReport(schema_source, query_path, results, tuple(findings))


def _result(query: CompiledQuery) -> QueryResult:
    warnings = (HARD_CODED,) if query.is_mutation and not query.syntax.parameters else ()
    try:
        operation = query.operation
    except CompileError as error:
        return QueryResult(query.name, query.is_mutation, warnings, error=_spelled(error.diagnostics))
    return QueryResult(query.name, query.is_mutation, warnings, operation=operation)


def _spelled(diagnostics: Iterable[Diagnostic]) -> str:
    """One line per finding: its class, its code where it has one, what is wrong, and where."""
    return "\n".join(_spell(diagnostic) for diagnostic in diagnostics)


def _spell(diagnostic: Diagnostic) -> str:
    coded = diagnostic.code if diagnostic.code.endswith("error") else f"type error: {diagnostic.code}"
    where = "" if diagnostic.span is None else f" (line {diagnostic.span.line}, column {diagnostic.span.column})"
    hint = "" if diagnostic.suggestion is None else f"; {diagnostic.suggestion}"
    return f"{coded}: {diagnostic.message}{where}{hint}"


def _never_updated(queries: Iterable[CompiledQuery]) -> Iterator[Finding]:
    """For each type that is updated at all: the nullable properties that no update ever sets."""
    updated: dict[str, NodeType] = {}
    assigned: dict[str, set[str]] = {}
    updaters: dict[str, set[str]] = {}
    for query in queries:
        body = query.resolved.body
        for statement in body.statements if isinstance(body, ResolvedWrites) else ():
            if isinstance(statement, ResolvedUpdate):
                name = statement.type.name
                updated[name] = statement.type
                assigned.setdefault(name, set()).update(a.property.name for a in statement.assignments)
                updaters.setdefault(name, set()).add(query.name)
    for name, node in updated.items():
        for prop in node.properties.values():
            skipped = not prop.type.nullable or prop.name in node.key or prop.embed is not None
            if not skipped and prop.name not in assigned[name]:
                message = f"{name}.{prop.name} exists in schema but no update query sets it"
                names = tuple(sorted(updaters[name]))
                yield Finding("warning", NEVER_UPDATED, message, name, prop.name, names)
