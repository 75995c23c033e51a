"""The `queries` commands list and check the stored queries of a cluster or a server; `alias` runs a stored query of a
server by a name of the operator's own.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.config import Alias, OperatorConfig, listed, load_config
from omnigraph.cli.inputs import Parameters, parameter_options
from omnigraph.cli.params import at_most_one, choice_option, json_option
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import working
from omnigraph.cli.printing.rows import ReadPrinter
from omnigraph.cli.target import Invocation, StoreScope, open_graph, open_served, pass_invocation, server_scope
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph import Snapshot
    from omnigraph.cluster.ledger.ledger import AppliedState


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
    from omnigraph.cluster.ledger.ledger import read_applied

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
    found = _declared(config, name)
    shown = ReadFormat.JSON if json else format or (None if found.format is None else ReadFormat(found.format))
    with open_served(server_scope(found.server, found.graph, config), config) as graph, working("running the query"):
        given = {**found.params, **_positional(found, args or []), **parameters.of_stored(graph, found.query)}
        rows = graph.invoke(found.query, given or None, expect_mutation=False)
    ReadPrinter.chosen(shown, config.defaults).show(rows)  # type: ignore[arg-type]  # a mutation was refused


def _declared(config: OperatorConfig, name: str) -> Alias:
    if name not in config.aliases:
        raise BadRequestError(f"unknown alias '{name}'; defined aliases: {listed(config.aliases)}")
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
