"""`omnigraph query`: runs one read query on one pinned state."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import (
    AtSnapshot,
    AtTime,
    AtVersion,
    Json,
    NamedParams,
    Params,
    ParamsFile,
    QueryFile,
    QueryString,
    ReadBranch,
    Uri,
)
from omnigraph.cli.output import print_lines
from omnigraph.cli.profiled import show_profiled
from omnigraph.cli.progress import working
from omnigraph.cli.query_input import Parameters, name_and_uri, query_source, stored_rows
from omnigraph.cli.read_printer import ReadPrinter
from omnigraph.cli.reading_point import ReadingPoint
from omnigraph.cli.usage import UsageError, at_most_one


def query(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The query in the source, or a stored one.", metavar="NAME")
    ] = None,
    uri: Uri = None,
    query: QueryFile = None,
    query_string: QueryString = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: NamedParams = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    format: Annotated[ReadFormat | None, typer.Option("--format", help="How rows are shown.  [default: table]")] = None,
    json: Json = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan; run nothing.")] = False,
    profile_query: Annotated[
        bool, typer.Option("--profile-query", help="Also show what each operator did, on stderr.")
    ] = False,
) -> None:
    """Run a read query (alias: read).

    All rows come from one state: a branch's head, or its past.
    """
    at_most_one(("--format", format), ("--json", json))
    name, uri = name_and_uri(name, uri)
    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    source = query_source(name, query, query_string, kind="query")
    parameters = Parameters.given(params, params_file, param)
    invocation = Invocation.of(ctx, name)
    printer = ReadPrinter.chosen(ReadFormat.JSON if json else format, invocation.config.defaults)
    if source is None:
        if explain or profile_query:
            raise UsageError("--explain and --profile-query take the source of the query, --query <file> or -e '<gq>'")
        printer.show(stored_rows(invocation, str(name), parameters, point, uri))
        return
    given = parameters.of_source(source, name)
    _, graph = invocation.open(uri)
    with graph:
        if explain:
            print_lines(graph.explain(source, name, given, **point.pinned), _plain)
        elif profile_query:
            show_profiled(graph, source, name, given, point, printer)
        else:
            with working("running the query"):
                rows = graph.query(source, name, given, **point.pinned)
            printer.show(rows)


def _plain(line: str) -> str:
    return ""
