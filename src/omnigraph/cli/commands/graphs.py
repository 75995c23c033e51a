"""`omnigraph graphs`: what a server serves."""

from __future__ import annotations

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.served import open_served


def list_(ctx: typer.Context, json: Json = False) -> None:
    """List the graphs of a server, if it lets you know them."""
    from omnigraph.api.service import GraphList

    invocation = Invocation.of(ctx)
    with open_served(invocation.server(), invocation.config) as server:
        found = server.list_graphs()
    if json:
        print_json(GraphList(tuple(found)))
    else:
        print_lines(f"{graph.graph_id}\t{graph.uri}" for graph in found)
