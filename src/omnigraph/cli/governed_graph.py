"""One graph of a cluster without a server, under the rules that the cluster has for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.cli.commands.serve import SERVED_GRAPH
from omnigraph.cli.invocation import Invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.server.in_process import InProcessGraph


@contextmanager
def open_governed(invocation: Invocation) -> Iterator[InProcessGraph]:
    """The graph that `--cluster` and `--graph` name, as the actor of `--as` finds it behind a server."""
    flags = invocation.flags
    assert flags.cluster is not None
    if flags.graph is None:
        raise BadRequestError("--cluster holds several graphs; choose one with --graph <id>")
    from omnigraph.server.process import Program
    from omnigraph.server.single_graph import as_actor, served_alone

    cluster = invocation.config.clusters.get(flags.cluster, flags.cluster)
    served = served_alone(cluster, flags.graph, Program(SERVED_GRAPH).part("open_graph"), os.environ)
    try:
        yield as_actor(served, invocation.actor)
    finally:
        served.graph.close()
