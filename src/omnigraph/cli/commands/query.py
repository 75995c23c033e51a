"""The commands that run queries: `query` reads one snapshot, `mutate` makes one commit, and `shell` is interactive.

The `queries` commands list and check the stored queries of a cluster or a server; `alias` runs a stored query of a
server by a name of the operator's own.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.config import Alias, OperatorConfig, list_names, load_config
from omnigraph.cli.inputs import (
    Parameters,
    describe_affected,
    name_and_uri,
    open_stored,
    parameter_options,
    query_file_option,
    query_source,
    query_string_option,
    stored_rows,
)
from omnigraph.cli.params import (
    ReadPoint,
    UsageError,
    at_most_one,
    branch_option,
    choice_option,
    file_option,
    json_option,
    read_point_options,
    uri_argument,
)
from omnigraph.cli.printing.output import print_json, print_lines, print_warning
from omnigraph.cli.printing.progress import working
from omnigraph.cli.printing.rows import ReadPrinter, show_profiled
from omnigraph.cli.target import (
    Invocation,
    ServerScope,
    StoreScope,
    open_graph,
    open_served,
    pass_invocation,
    server_scope,
)
from omnigraph.errors import BadRequestError, PolicyError

if TYPE_CHECKING:
    from omnigraph import Snapshot
    from omnigraph.api.load import MutationReceipt
    from omnigraph.cluster.state_ledger import AppliedState


@click.argument("name", required=False, help="The query in the source, or a stored one.")
@uri_argument
@query_file_option
@query_string_option
@parameter_options
@read_point_options
@choice_option("--format", ReadFormat, help="How rows are shown.  [default: table]")
@json_option
@click.option("--explain", is_flag=True, help="Show the plan; run nothing.")
@click.option("--profile-query", is_flag=True, help="Also show what each operator did, on stderr.")
@pass_invocation
def query(
    invocation: Invocation,
    name: str | None,
    uri: str | None,
    query: Path | None,
    query_string: str | None,
    parameters: Parameters,
    point: ReadPoint,
    format: ReadFormat | None,
    json: bool,
    explain: bool,
    profile_query: bool,
) -> None:
    at_most_one(("--format", format), ("--json", json))
    name, uri = name_and_uri(name, uri)
    source = query_source(name, query, query_string, kind="query")
    invocation.query_name = name
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
            print_lines(graph.explain(source, name, given, **point), _plain)
        elif profile_query:
            show_profiled(graph, source, name, given, point, printer)
        else:
            with working("running the query"):
                rows = graph.query(source, name, given, **point)
            printer.show(rows)


def _plain(line: str) -> str:
    return ""


@click.argument("name", required=False, help="The mutation in the source, or a stored one.")
@uri_argument
@query_file_option
@query_string_option
@parameter_options
@branch_option
@click.option("--if-commit", help="Only if the branch is at this commit; else exit 4.", metavar="COMMIT")
@json_option
@pass_invocation
def mutate(
    invocation: Invocation,
    name: str | None,
    uri: str | None,
    query: Path | None,
    query_string: str | None,
    parameters: Parameters,
    branch: str,
    if_commit: str | None,
    json: bool,
) -> None:
    name, uri = name_and_uri(name, uri)
    invocation.query_name = name
    source = query_source(name, query, query_string, kind="mutation")
    if source is None:
        receipt = _run_stored(invocation, str(name), parameters, branch, if_commit, uri)
    else:
        target, graph = invocation.open(uri)
        with graph, working("changing the graph"):
            actor = invocation.actor_of(target)
            given = parameters.of_source(source, name)
            receipt = graph.mutate(source, name, given, branch=branch, if_commit=if_commit, actor=actor)
    if json:
        print_json(receipt)
        return
    lines = [f"changed {receipt.branch} via {receipt.query_name}: {describe_affected(receipt)}"]
    if receipt.actor_id is not None:
        lines.append(f"actor_id: {receipt.actor_id}")
    print_lines(lines)


def _run_stored(
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


@uri_argument
@branch_option
@file_option("--query", "queries", multiple=True, help="A .gq file whose queries can be called; may be repeated.")
@choice_option("--format", ReadFormat, help="How rows are shown.  [default: table]")
@pass_invocation
def shell(
    invocation: Invocation, uri: str | None, branch: str, queries: tuple[Path, ...], format: ReadFormat | None
) -> None:
    from omnigraph.cli.shell_session import Session
    from omnigraph.cli.shell_terminal import converse, is_interactive, run_piped

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
    raise Exit(code)


@json_option
@pass_invocation
def list_(invocation: Invocation, json: bool) -> None:
    from omnigraph.api.service.cluster import DeclaredQueries

    server = invocation.server_of_queries()
    if server is not None:
        with open_served(server, invocation.config) as graph:
            listed = DeclaredQueries.offered(graph.stored_queries(), server.graph or "")
    else:
        from omnigraph.cluster.commands.status import list_queries

        applied, graph_ids = _read_applied(invocation)
        listed = list_queries(applied, graph_ids)
    if json:
        print_json(listed)
    else:
        print_lines(listed.lines())


@json_option
@pass_invocation
def validate(invocation: Invocation, json: bool) -> None:
    from omnigraph.cluster.commands.status import validate_queries

    applied, graph_ids = _read_applied(invocation)
    report = validate_queries(applied, graph_ids, _head)
    if json:
        print_json(report)
    else:
        print_lines(report.lines())
    raise Exit(0 if report.ok else 1)


def _read_applied(invocation: Invocation) -> tuple[AppliedState, list[str]]:
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
@parameter_options
@choice_option("--format", ReadFormat, help="How rows are shown.  [default: table]")
@json_option
def alias(name: str, args: tuple[str, ...], parameters: Parameters, format: ReadFormat | None, json: bool) -> None:
    at_most_one(("--format", format), ("--json", json))
    config = load_config()
    found = _find_alias(config, name)
    shown = ReadFormat.JSON if json else format or (None if found.format is None else ReadFormat(found.format))
    with open_served(server_scope(found.server, found.graph, config), config) as graph, working("running the query"):
        given = {**found.params, **_positional(found, args or []), **parameters.of_stored(graph, found.query)}
        rows = graph.invoke(found.query, given or None, expect_mutation=False)
    ReadPrinter.chosen(shown, config.defaults).show(rows)  # type: ignore[arg-type]  # a mutation was refused


def _find_alias(config: OperatorConfig, name: str) -> Alias:
    if name not in config.aliases:
        raise BadRequestError(f"unknown alias '{name}'; defined aliases: {list_names(config.aliases)}")
    return config.aliases[name]


def _positional(found: Alias, given: Sequence[str]) -> dict[str, Any]:
    """Arguments by their declared names: JSON where it is, a text where it is not."""
    if len(given) > len(found.args):
        names = f" ({', '.join(found.args)})" if found.args else ""
        raise BadRequestError(
            f"alias '{found.name}' takes {len(found.args)} positional arg(s){names}, got {len(given)}"
        )
    return {name: _value(text) for name, text in zip(found.args, given, strict=False)}


def _value(text: str) -> Any:
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError):
        return text
