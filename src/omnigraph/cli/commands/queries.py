"""`omnigraph queries`: the stored queries that a cluster has applied, or that a server offers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.invocation import Invocation, open_graph
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import StoreScope
from omnigraph.cli.served import open_served

if TYPE_CHECKING:
    from omnigraph import Snapshot
    from omnigraph.cluster.ledger.ledger import Applied


def list_(ctx: typer.Context, json: Json = False) -> None:
    """List stored queries with their parameters, of a graph of a server, or of one or all graphs of a cluster."""
    from omnigraph.api.stored_queries import DeclaredQueries

    invocation = Invocation.of(ctx)
    server = invocation.server_of_queries()
    if server is not None:
        with open_served(server, invocation.config) as graph:
            listed = DeclaredQueries.offered(graph.stored_queries(), server.graph or "")
    else:
        from omnigraph.cluster.commands.status import declared_queries

        applied, graph_ids = _applied(ctx)
        listed = declared_queries(applied, graph_ids)
    if json:
        print_json(listed)
    else:
        print_lines(listed.lines())


def validate(ctx: typer.Context, json: Json = False) -> None:
    """Check stored queries against the schemas that their graphs have now."""
    from omnigraph.cluster.commands.status import validated_queries

    applied, graph_ids = _applied(ctx)
    report = validated_queries(applied, graph_ids, _head)
    if json:
        print_json(report)
    else:
        print_lines(report.lines())
    raise typer.Exit(0 if report.ok else 1)


def _applied(ctx: typer.Context) -> tuple[Applied, list[str]]:
    from omnigraph.cluster.ledger.ledger import read_applied

    scope = Invocation.of(ctx).cluster()
    applied = read_applied(scope.root)
    return applied, applied.chosen_graphs(scope.graph)


@contextmanager
def _head(uri: str) -> Iterator[Snapshot]:
    with open_graph(StoreScope(uri)) as graph:
        yield graph.snapshot("main")
