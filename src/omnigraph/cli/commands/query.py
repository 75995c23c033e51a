"""`omnigraph query`: runs one read query on one pinned state.

`omnigraph mutate`: runs one mutation query as one commit.

`omnigraph shell`: a conversation with a graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.inputs import (
    Parameters,
    ReadingPoint,
    affected,
    name_and_uri,
    open_stored,
    query_source,
    stored_rows,
)
from omnigraph.cli.params import (
    AtSnapshot,
    AtTime,
    AtVersion,
    Branch,
    Json,
    NamedParams,
    Params,
    ParamsFile,
    QueryFile,
    QueryString,
    ReadBranch,
    Uri,
    UsageError,
    at_most_one,
)
from omnigraph.cli.printing.output import print_json, print_lines, print_warning
from omnigraph.cli.printing.progress import working
from omnigraph.cli.printing.rows import ReadPrinter, show_profiled
from omnigraph.cli.target import Invocation, ServerScope
from omnigraph.errors import PolicyError

if TYPE_CHECKING:
    from omnigraph.api.load import MutationReceipt


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


def mutate(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="The mutation in the source, or a stored one.", metavar="NAME"),
    ] = None,
    uri: Uri = None,
    query: QueryFile = None,
    query_string: QueryString = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: NamedParams = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", help="Only if the branch is at this commit; else exit 4.", metavar="COMMIT"),
    ] = None,
    json: Json = False,
) -> None:
    """Run a mutation: inserts, updates or deletes, all or nothing (alias: change)."""
    name, uri = name_and_uri(name, uri)
    invocation = Invocation.of(ctx, name)
    source = query_source(name, query, query_string, kind="mutation")
    parameters = Parameters.given(params, params_file, param)
    if source is None:
        receipt = _stored(invocation, str(name), parameters, branch, if_commit, uri)
    else:
        target, graph = invocation.open(uri)
        with graph, working("changing the graph"):
            actor = invocation.actor_of(target)
            given = parameters.of_source(source, name)
            receipt = graph.mutate(source, name, given, branch=branch, if_commit=if_commit, actor=actor)
    if json:
        print_json(receipt)
        return
    lines = [f"changed {receipt.branch} via {receipt.query_name}: {affected(receipt)}"]
    if receipt.actor_id is not None:
        lines.append(f"actor_id: {receipt.actor_id}")
    print_lines(lines)


def _stored(
    invocation: Invocation, name: str, given: Parameters, branch: str, if_commit: str | None, uri: str | None
) -> MutationReceipt:
    """A mutation that the server has under this name."""
    from omnigraph.api.load import MutationReceipt

    with open_stored(invocation, name, "mutation", uri) as graph, working("changing the graph"):
        receipt = graph.invoke(
            name, given.of_stored(graph, name), branch=branch, if_commit=if_commit, expect_mutation=True
        )
    assert isinstance(receipt, MutationReceipt)
    return receipt


def shell(
    ctx: typer.Context,
    uri: Uri = None,
    branch: Branch = "main",
    queries: Annotated[
        list[Path] | None,
        typer.Option("--query", help="A .gq file whose queries can be called; may be repeated.", metavar="FILE"),
    ] = None,
    format: Annotated[ReadFormat | None, typer.Option("--format", help="How rows are shown.  [default: table]")] = None,
) -> None:
    """Query and change a graph in a conversation: history, completion, `:help`.

    Mutations are commits on the current branch. Statements may also be piped in; then the exit code is 1 if one failed.
    """
    from omnigraph.cli.shell.session import Session
    from omnigraph.cli.shell.terminal import converse, is_interactive, run_piped

    invocation = Invocation.of(ctx)
    target, graph = invocation.open(uri)
    with graph:
        printer = ReadPrinter.chosen(format, invocation.config.defaults)
        session = Session(graph, printer, invocation.actor_of(target), branch.strip())
        graph.version_of(session.branch)  # a branch that is not there is better known before the first question
        if isinstance(target, ServerScope):
            try:
                session.take_stored_queries()
            except PolicyError as error:
                print_warning(f"the stored queries can't be listed: {error}")
        for file in queries or ():
            session.take_queries(file)
        if is_interactive():
            code = converse(session, f"omnigraph shell → {target.uri} ({target.access}); :help, or Ctrl-D to leave")
        else:
            code = run_piped(session)
    raise typer.Exit(code)
