"""`omnigraph lint`: type-checks the queries of a file against a schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json, Uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.usage import at_most_one


def lint(
    ctx: typer.Context,
    query: Annotated[Path, typer.Option("--query", help="The .gq file to check.", metavar="FILE")],
    uri: Uri = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Check against this .pg file, offline.", metavar="FILE")
    ] = None,
    branch: Annotated[str, typer.Option("--branch", help="The branch whose schema counts.", metavar="NAME")] = "main",
    json: Json = False,
) -> None:
    """Check the queries of a file against a schema (alias: check).

    Reports every error with its code, and what each query reads, writes and returns.
    """
    at_most_one(("URI", uri), ("--schema", schema))
    from omnigraph.language.lint import SchemaSource, lint_queries
    from omnigraph.language.schema.compile import compile_schema

    if schema is not None:
        catalog = compile_schema(read_source(schema), str(schema))
        schema_source = SchemaSource.file(str(schema))
    else:
        target, graph = Invocation.of(ctx).open_storage(uri)
        with graph:
            catalog = graph.snapshot(branch).catalog
        schema_source = SchemaSource.graph(target.uri)
    report = lint_queries(catalog, read_source(query), query_path=str(query), schema_source=schema_source)
    if json:
        print_json(report)
    else:
        print_lines(report.lines())
    raise typer.Exit(report.exit_code)
