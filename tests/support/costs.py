"""What an operation costs at the store, background work included."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.graph import Graph
from tests.support.s3 import RequestLog, S3Server
from tests.support.waiting import wait_until


def settle(graph: Graph) -> None:
    """Wait until the handle writes nothing in the background any more."""
    root = graph._workspace.root
    wait_until(lambda: not (root.log.hints_pending() or root.pins.pending()), "hints and pins are written")


def settled(graph: Graph, server: S3Server, work: Callable[[], object]) -> RequestLog:
    """The requests of `work`, with the hint that a commit writes in the background."""
    with server.logged() as log:
        work()
        settle(graph)
    return log
