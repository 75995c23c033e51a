"""`omnigraph lint`: type-checks the queries of a file against a schema, or a schema alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json, Uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.usage import UsageError

if TYPE_CHECKING:
    from omnigraph.errors import Diagnostic
    from omnigraph.language.lint import LintReport


def lint(
    ctx: typer.Context,
    query: Annotated[Path | None, typer.Option("--query", help="The .gq file to check.", metavar="FILE")] = None,
    uri: Uri = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Check against this .pg file, offline.", metavar="FILE")
    ] = None,
    branch: Annotated[str, typer.Option("--branch", help="The branch whose schema counts.", metavar="NAME")] = "main",
    pedantic: Annotated[
        bool, typer.Option("--pedantic", help="Also warn of nullable properties that no update sets (L201).")
    ] = False,
    json: Json = False,
) -> None:
    """Check the queries of a file against a schema, or with --schema alone that schema (alias: check).

    Reports every error with its code and its place, and what each query reads, writes and returns.
    """
    invocation = Invocation.of(ctx)
    invocation.instead_of_graph("--schema", schema, uri)
    from omnigraph.language.lint import SchemaSource, diagnostics_of, lint_queries, lint_schema
    from omnigraph.language.schema.compile import compile_schema

    if query is None:
        if schema is None:
            raise UsageError("give the file to check: --query <file.gq>, or --schema <file.pg> for a schema alone")
        _tell(*lint_schema(read_source(schema), str(schema)), json=json)
    if schema is not None:
        catalog = compile_schema(read_source(schema), str(schema))
        schema_source = SchemaSource.file(str(schema))
    else:
        target, graph = invocation.open_storage(uri)
        with graph:
            catalog = graph.snapshot(branch).catalog
        schema_source = SchemaSource.graph(target.uri)
    text = read_source(query)
    report = lint_queries(catalog, text, query_path=str(query), schema_source=schema_source, pedantic=pedantic)
    _tell(report, diagnostics_of(catalog, text, str(query)), json=json)


def _tell(report: LintReport, diagnostics: Mapping[str, Sequence[Diagnostic]], *, json: bool) -> NoReturn:
    if json:
        print_json(report)
    else:
        print_lines(report.lines(diagnostics))
    raise typer.Exit(report.exit_code)
