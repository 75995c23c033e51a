"""Lints one `.gq` file against a catalog, or a schema alone. Editors and CI read the fields of its report.

The CLI and the server call `lint_queries`. It parses and typechecks but never lowers, so a query that only execution
refuses is not a lint error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from msgspec import Struct

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.catalog import Catalog
from omnigraph.language.lint_rules import Finding, never_updated, query_findings
from omnigraph.language.query.compile import CompiledQuery, Operation, compile_queries
from omnigraph.language.schema.compile import compile_schema

UNPARSABLE = "Q000"
HARD_CODED = "hard-coded mutation: the query declares no parameters, so it always writes the same values"


class SchemaSource(Struct, frozen=True, omit_defaults=True):
    """Where the catalog came from: a schema file, or a live graph."""

    kind: Literal["file", "graph"]
    path: str | None = None
    uri: str | None = None

    @classmethod
    def file(cls, path: str) -> SchemaSource:
        return cls("file", path=path)

    @classmethod
    def graph(cls, uri: str) -> SchemaSource:
        return cls("graph", uri=uri)


class QueryResult(Struct, frozen=True, omit_defaults=True):
    """What lint found out about one query. A query that compiles has an `operation`, another one an `error`."""

    name: str
    kind: Literal["read", "mutation"]
    status: Literal["ok", "error"]
    warnings: tuple[str, ...] = ()
    error: str | None = None
    operation: Operation | None = None


class LintReport(Struct, frozen=True):
    """The outcome for one file. Only errors fail it."""

    status: Literal["ok", "error"]
    schema_source: SchemaSource
    query_path: str
    queries_processed: int
    errors: int
    warnings: int
    infos: int
    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls,
        schema_source: SchemaSource,
        query_path: str,
        results: tuple[QueryResult, ...],
        findings: tuple[Finding, ...],
    ) -> LintReport:
        counts = Counter(finding.severity for finding in findings)
        errors = sum(result.error is not None for result in results) + counts["error"]
        return cls(
            status="error" if errors else "ok",
            schema_source=schema_source,
            query_path=query_path,
            queries_processed=len(results),
            errors=errors,
            warnings=sum(len(result.warnings) for result in results) + counts["warning"],
            infos=counts["info"],
            results=results,
            findings=findings,
        )

    @property
    def exit_code(self) -> int:
        return 1 if self.errors else 0

    def lines(self, diagnostics: Mapping[str, Sequence[Diagnostic]] | None = None) -> Iterator[str]:
        """The report for a person; with the diagnostics of the same file, every error comes with its line of source."""
        shown = diagnostics or {}
        if not self.query_path and not self.errors:
            yield f"OK    schema {self.schema_source.path}"
        for result in self.results:
            if result.error is None:
                yield f"OK    query `{result.name}` ({result.kind})"
            else:
                yield f"ERROR query `{result.name}`: {_indent(_render(shown.get(result.error, ())) or result.error)}"
            for warning in result.warnings:
                yield f"WARN  query `{result.name}`: {warning}"
        for finding in self.findings:
            label = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}[finding.severity]
            yield f"{label} {finding.code}: {_indent(_render(shown.get(finding.message, ())) or finding.message)}"
        counted = "1 query" if len(self.results) == 1 else f"{len(self.results)} queries"
        yield (
            f"INFO  Lint complete: {counted} processed ({self.errors} error(s), "
            f"{self.warnings} warning(s), {self.infos} info item(s))"
        )


def _indent(text: str) -> str:
    return text.replace("\n", "\n      ")


def lint_queries(
    catalog: Catalog, query_text: str, *, query_path: str, schema_source: SchemaSource, pedantic: bool = False
) -> LintReport:
    """The report on one file. Never raises for anything that the file holds. Findings that are a matter of taste (L201)
    are only made when `pedantic` asks for them."""
    try:
        queries = compile_queries(query_text, catalog, query_path).queries
    except CompileError as error:
        finding = Finding("error", UNPARSABLE, _summarize(error.diagnostics))
        return LintReport.of(schema_source, query_path, (), (finding,))
    results = tuple(_result(query) for query in queries)
    valid = [query for query, result in zip(queries, results, strict=True) if result.error is None]
    findings = (
        *(never_updated(valid) if pedantic else ()),
        *(each.finding for query in valid for each in query_findings(query)),
    )
    return LintReport.of(schema_source, query_path, results, findings)


def lint_schema(text: str, path: str) -> tuple[LintReport, dict[str, tuple[Diagnostic, ...]]]:
    """The report on a schema alone, and its diagnostics by the finding that each became."""
    try:
        compile_schema(text, path)
    except CompileError as error:
        by_message: dict[str, tuple[Diagnostic, ...]] = {_spell(d): (d,) for d in error.diagnostics}
        codes = [(UNPARSABLE if d.code.endswith("error") else d.code) for (d,) in by_message.values()]
        findings = tuple(Finding("error", code, message) for code, message in zip(codes, by_message, strict=True))
        return LintReport.of(SchemaSource.file(path), "", (), findings), by_message
    return LintReport.of(SchemaSource.file(path), "", (), ()), {}


def diagnostics_of(catalog: Catalog, query_text: str, query_path: str) -> dict[str, tuple[Diagnostic, ...]]:
    """What is wrong with the queries of a file, by the error that the report has of each, because a name may be there
    twice; of a file that does not parse, by its finding."""
    try:
        queries = compile_queries(query_text, catalog, query_path).queries
    except CompileError as error:
        return {_summarize(error.diagnostics): error.diagnostics}
    by_message = {}
    for query in queries:
        try:
            _ = query.operation
        except CompileError as error:
            by_message[_summarize(error.diagnostics)] = error.diagnostics
    return by_message


def _result(query: CompiledQuery) -> QueryResult:
    warnings = (HARD_CODED,) if query.is_mutation and not query.syntax.parameters else ()
    kind: Literal["read", "mutation"] = "mutation" if query.is_mutation else "read"
    try:
        operation = query.operation
    except CompileError as error:
        return QueryResult(query.name, kind, "error", warnings, error=_summarize(error.diagnostics))
    return QueryResult(query.name, kind, "ok", warnings, operation=operation)


def _summarize(diagnostics: Iterable[Diagnostic]) -> str:
    """One line per finding: its class, its code where it has one, what is wrong, and where."""
    return "\n".join(_spell(diagnostic) for diagnostic in diagnostics)


def _spell(diagnostic: Diagnostic) -> str:
    coded = diagnostic.code
    if not coded.endswith("error"):
        coded = f"{'parse' if coded.startswith('Q') else 'type'} error: {coded}"
    where = "" if diagnostic.span is None else f" (line {diagnostic.span.line}, column {diagnostic.span.column})"
    hint = "" if diagnostic.suggestion is None else f"; {diagnostic.suggestion}"
    return f"{coded}: {diagnostic.message}{where}{hint}"


def _render(diagnostics: Iterable[Diagnostic]) -> str:
    """The same with the line of source and a caret below each."""
    lines: list[str] = []
    for diagnostic in diagnostics:
        excerpt = diagnostic.render().split("\n")[1:]
        lines += [_spell(replace(diagnostic, suggestion=None) if excerpt else diagnostic), *excerpt]
    return "\n".join(lines)
