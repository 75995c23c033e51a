"""`omnigraph lint`: type-checks the queries of a file against a schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.errors import BadRequestError


def lint(
    query: Annotated[Path, typer.Option("--query", help="The .gq file to check.", metavar="FILE")],
    uri: Annotated[str | None, typer.Argument(help="A graph to check against.", metavar="URI")] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Check against this .pg file, offline.", metavar="FILE")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check the queries of a file against a schema.

    Reports every error with its code, and what each query reads, writes and returns.
    """
    from omnigraph.cli.files import read_source
    from omnigraph.cli.output import print_json, print_lines
    from omnigraph.language.lint import SchemaSource, lint_queries
    from omnigraph.language.schema.compile import compile_schema

    if schema is None:
        addressed = f"can't open the graph '{uri}'" if uri is not None else "no graph addressed"
        raise BadRequestError(f"{addressed}: this version checks against a schema file only; pass --schema FILE")
    catalog = compile_schema(read_source(schema), str(schema))
    report = lint_queries(
        catalog,
        read_source(query),
        query_path=str(query),
        schema_source=SchemaSource("file", str(schema)),
    )
    if json:
        print_json(report.to_json_dict())
    else:
        print_lines(report.lines())
    raise typer.Exit(report.exit_code)
