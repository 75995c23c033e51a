"""One graph of a cluster without a server, under the rules that the cluster has for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.cli.commands.serve import SERVED_GRAPH
from omnigraph.cli.target import Invocation

if TYPE_CHECKING:
    from omnigraph.server.in_process import InProcessGraph


@contextmanager
def open_governed(invocation: Invocation) -> Iterator[InProcessGraph]:
    """The graph of `--cluster` that `--graph` names, or its only one, as the actor of `--as` finds it at a server."""
    from omnigraph.cluster.ledger.ledger import read_applied
    from omnigraph.server.runtime.workers import Program
    from omnigraph.server.single_graph import as_actor, served_alone

    scope = invocation.cluster()
    graph_id = read_applied(scope.root).one_graph(scope.graph)
    served = served_alone(scope.root, graph_id, Program(SERVED_GRAPH).part("open_graph"), os.environ)
    try:
        yield as_actor(served, invocation.actor)
    finally:
        served.graph.close()
