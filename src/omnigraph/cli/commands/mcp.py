"""`omnigraph mcp`: the graph as tools of an agent, over the standard streams or over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.commands.serve import address, host_flag, name_missing_extra, open_graph
from omnigraph.cli.inputs import read_source
from omnigraph.cli.params import UsageError, file_option, repeatable_option
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError
from omnigraph.mcp.graph import DEFAULT_MAX_TOKENS, LEAST_MAX_TOKENS

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.mcp.connections import DirectAccess

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@click.option("--http", help="Serve http://ADDR:PORT/mcp instead of stdin and stdout.", metavar="ADDR:PORT")
@file_option("--queries", multiple=True, help="Offer the queries of this .gq file as tools; may be repeated.")
@click.option("--read-only", is_flag=True, help="Offer no tool that writes.")
@click.option("--allow-main", is_flag=True, help="Let mutations go to main; else only to other branches.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=LEAST_MAX_TOKENS),
    default=DEFAULT_MAX_TOKENS,
    help="The size of an answer, at 4 bytes a token.",
    metavar="N",
)
@click.option("--unauthenticated", is_flag=True, help="Let --http listen where other machines reach it.")
@repeatable_option("--allowed-host", help="A further name by which --http may be called", metavar="NAME")
def mcp(
    invocation: Invocation,
    http: str | None,
    queries: tuple[Path, ...],
    read_only: bool,
    allow_main: bool,
    max_tokens: int,
    unauthenticated: bool,
    allowed_host: tuple[str, ...],
) -> None:
    if read_only and allow_main:
        raise UsageError("--read-only and --allow-main contradict each other")
    if unauthenticated and http is None:
        raise UsageError("--unauthenticated is about --http; stdin and stdout are the caller's own")
    names = [host_flag(name) for name in allowed_host]
    if names and http is None:
        raise UsageError("--allowed-host is about --http; stdin and stdout are the caller's own")
    place = None if http is None else address(http, "--http")
    if place is not None and place[0] not in _LOOPBACK and not unauthenticated:
        raise BadRequestError(
            f"--http {http} would let everybody who reaches this machine use the graph; use `omnigraph serve`, "
            "which asks for tokens and offers /graphs/<id>/mcp, or add --unauthenticated if that is what you want"
        )
    texts = [(str(path), read_source(path)) for path in queries]
    with name_missing_extra("this"), ExitStack() as opened:
        from omnigraph.mcp.connections import serve_http, serve_stdio
        from omnigraph.mcp.graph import Terms

        access = _access(invocation, texts, opened)
        terms = Terms(max_tokens=max_tokens, read_only=read_only, allow_main=allow_main)
        if place is None:
            serve_stdio(access, terms)
            return
        from omnigraph.server.http.origins import Hosts, with_hosts
        from omnigraph.server.runtime.listener import announce, bind, listen

        hosts = Hosts(place[0], names)
        with bind(*place) as listener:
            listen(listener)
            serve_http(access, terms, listener, lambda: announce(listener), partial(with_hosts, hosts=hosts))


def _access(invocation: Invocation, texts: list[tuple[str, str]], opened: ExitStack) -> DirectAccess:
    """The graph that is addressed, and who writes to it: a server knows that by itself."""
    from omnigraph.mcp.connections import DirectAccess
    from omnigraph.mcp.stored_queries import with_query_files

    if invocation.flags.cluster is not None and invocation.uri is None:
        if texts:
            raise UsageError("--queries is for a graph without stored queries; a cluster declares its own")
        return DirectAccess(opened.enter_context(_open_cluster_graph(invocation)), invocation.actor)
    graph: GraphApi = opened.enter_context(invocation.open())
    return DirectAccess(with_query_files(graph, texts) if texts else graph, invocation.write_actor())


@contextmanager
def _open_cluster_graph(invocation: Invocation) -> Iterator[GraphApi]:
    """The graph of `--cluster` that `--graph` names, or its only one, for the actor of `--as`. Without a policy, access
    to the storage is enough to do everything."""
    from omnigraph.cluster.state_ledger import read_applied
    from omnigraph.server.loader import load_graph

    scope, actor = invocation.cluster(), invocation.actor
    graph_id = read_applied(scope.root).one_graph(scope.graph)
    served = load_graph(scope.root, graph_id, open_graph, os.environ)
    with served.graph as graph:
        if served.policy is None:
            yield graph._with_gate(None)
        elif actor is None:
            raise BadRequestError(f"the cluster has rules for graph '{graph_id}': say who asks with --as <actor>")
        else:
            yield graph.acting_for(actor)
