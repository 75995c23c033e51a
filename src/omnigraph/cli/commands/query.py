"""The commands that run queries: `query` reads one snapshot, `mutate` makes one commit, and `shell` is interactive.

The `queries` commands list and check the stored queries of a cluster or a server; `alias` runs a stored query of a
server by a name of the operator's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.exceptions import Exit

from omnigraph.api.enums import ReadFormat
from omnigraph.cli import inputs, params
from omnigraph.cli.config import Alias, list_names
from omnigraph.cli.printing.output import print_lines, print_warning
from omnigraph.cli.printing.progress import working
from omnigraph.cli.printing.rows import ReadPrinter, read_options, show_profiled
from omnigraph.cli.target import Invocation, ServerScope, StoreScope, open_graph, open_served, server_scope
from omnigraph.errors import BadRequestError, PolicyError

if TYPE_CHECKING:
    from omnigraph import Snapshot
    from omnigraph.api.graph import QueryRows
    from omnigraph.api.load import MutationReceipt
    from omnigraph.cluster.state_ledger import AppliedState


@click.argument("name", required=False, help="The query in the source, or a stored one.")
@inputs.query_options
@inputs.parameter_options
@params.named_point_options
@params.format_option
@params.json_option
@click.option("--explain", is_flag=True, help="Show the plan; run nothing.")
@click.option("--profile-query", is_flag=True, help="Also show what each operator did, on stderr.")
@click.option(
    "--traversal-work",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse a query whose traversals look at more than N edges and steps of paths.",
)
def query(
    invocation: Invocation,
    name: str | None,
    source: str | None,
    parameters: inputs.Parameters,
    point: dict[str, Any],
    format: ReadFormat | None,
    explain: bool,
    profile_query: bool,
    traversal_work: int | None,
) -> None:
    params.at_most_one(("--format", format), ("--json", invocation.json))
    name = inputs.query_name(invocation, name, source, "query")
    printer = ReadPrinter.choose(ReadFormat.JSON if invocation.json else format, invocation.config.defaults)
    if source is None:
        if explain or profile_query or traversal_work is not None:
            raise params.UsageError(
                "--explain, --profile-query and --traversal-work take the source of the query, --query <file> or "
                "-e '<gq>'"
            )
        with inputs.open_stored(invocation, str(name), "query") as server, working("running the query"):
            arguments = parameters.of_stored(server, str(name))
            rows = cast("QueryRows", server.invoke(str(name), arguments, **point, expect_mutation=False))
        printer.show(rows)
        return
    arguments = parameters.of_source(source, name)
    with invocation.open() as graph:
        if explain:
            print_lines(graph.explain(source, name, arguments, **point), lambda _: "")
        elif profile_query:
            show_profiled(graph, source, name, arguments, point, printer, traversal_work)
        else:
            with working("running the query"):
                rows = graph.query(source, name, arguments, **point, options=read_options(traversal_work))
            printer.show(rows)


@click.argument("name", required=False, help="The mutation in the source, or a stored one.")
@inputs.query_options
@inputs.parameter_options
@params.write_branch_option
@click.option("--if-commit", help="Only if the branch is at this commit; else exit 4.", metavar="COMMIT")
@params.json_option
def mutate(
    invocation: Invocation,
    name: str | None,
    source: str | None,
    parameters: inputs.Parameters,
    branch: str | None,
    if_commit: str | None,
) -> None:
    name = inputs.query_name(invocation, name, source, "mutation")
    if source is None:
        with inputs.open_stored(invocation, str(name), "mutation") as server, working("changing the graph"):
            arguments = parameters.of_stored(server, str(name))
            done = server.invoke(str(name), arguments, branch=branch, if_commit=if_commit, expect_mutation=True)
            receipt = cast("MutationReceipt", done)
    else:
        with invocation.open() as graph, working("changing the graph"):
            actor, arguments = invocation.write_actor(), parameters.of_source(source, name)
            receipt = graph.mutate(source, name, arguments, branch=branch, if_commit=if_commit, actor=actor)
    lines = [inputs.describe_change(receipt)]
    invocation.print(receipt, lines if receipt.actor_id is None else [*lines, f"actor_id: {receipt.actor_id}"])


@params.branch_option
@params.file_option(
    "--query", "queries", multiple=True, help="A .gq file whose queries can be called; may be repeated."
)
@params.format_option
def shell(invocation: Invocation, branch: str, queries: tuple[Path, ...], format: ReadFormat | None) -> None:
    from omnigraph.cli.shell_session import Session
    from omnigraph.cli.shell_terminal import converse, run_piped

    target = invocation.target
    with invocation.open() as graph:
        printer = ReadPrinter.choose(format, invocation.config.defaults)
        session = Session(graph, printer, invocation.write_actor(), branch.strip())
        graph.version_of(session.branch)  # a branch that is not there is better known before the first question
        if isinstance(target, ServerScope):
            try:
                session.take_stored_queries()
            except PolicyError as error:
                print_warning(f"the stored queries can't be listed: {error}")
        for file in queries:
            session.take_queries(file)
        if sys.stdin.isatty() and sys.stdout.isatty():
            code = converse(session, f"omnigraph shell → {target.uri} ({target.access}); :help, or Ctrl-D to leave")
        else:
            code = run_piped(session)
    raise Exit(code)


@params.json_option
def list_(invocation: Invocation) -> None:
    from omnigraph.api.service.cluster import DeclaredQueries

    server = invocation.server_of_queries()
    if server is not None:
        with open_served(server, invocation.config) as graph:
            listed = DeclaredQueries.of_server(graph.stored_queries(), server.graph or "")
    else:
        from omnigraph.cluster.commands.status import list_queries

        listed = list_queries(*_read_applied(invocation))
    invocation.print(listed, listed.lines())


@params.json_option
def validate(invocation: Invocation) -> None:
    from omnigraph.cluster.commands.status import validate_queries

    report = validate_queries(*_read_applied(invocation), _head)
    invocation.print(report, report.lines())
    raise Exit(0 if report.ok else 1)


def _read_applied(invocation: Invocation) -> tuple[AppliedState, list[str]]:
    """The applied state of a cluster, and the ids of the graphs that are meant."""
    from omnigraph.cluster.state_ledger import read_applied

    scope = invocation.cluster()
    applied = read_applied(scope.root)
    return applied, applied.select_graphs(scope.graph)


@contextmanager
def _head(uri: str) -> Iterator[Snapshot]:
    with open_graph(StoreScope(uri)) as graph:
        yield graph.snapshot("main")


@click.argument("name", help="The alias, of the configuration.")
@click.argument("args", nargs=-1, required=False, help="Its parameters, in their declared order.")
@inputs.parameter_options
@params.format_option
@params.json_option
def alias(
    invocation: Invocation, name: str, args: tuple[str, ...], parameters: inputs.Parameters, format: ReadFormat | None
) -> None:
    params.at_most_one(("--format", format), ("--json", invocation.json))
    config = invocation.config
    if (declared := config.aliases.get(name)) is None:
        raise BadRequestError(f"unknown alias '{name}'; defined aliases: {list_names(config.aliases)}")
    shown = ReadFormat.JSON if invocation.json else format or (declared.format and ReadFormat(declared.format))
    scope = server_scope(declared.server, declared.graph, config)
    with open_served(scope, config) as graph, working("running the query"):
        arguments = {**declared.params, **_positional(declared, args), **parameters.of_stored(graph, declared.query)}
        rows = cast("QueryRows", graph.invoke(declared.query, arguments or None, expect_mutation=False))
    ReadPrinter.choose(shown or None, config.defaults).show(rows)


def _positional(declared: Alias, texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments by their declared names: JSON where it is, a text where it is not."""
    if len(texts) > len(declared.args):
        names = f" ({', '.join(declared.args)})" if declared.args else ""
        takes = f"{len(declared.args)} positional arg(s){names}"
        raise BadRequestError(f"alias '{declared.name}' takes {takes}, got {len(texts)}")
    return {name: inputs.json_or_text(text) for name, text in zip(declared.args, texts, strict=False)}
