"""What an operation costs at the store, background work included."""

from __future__ import annotations

import threading
from collections.abc import Callable

from omnigraph.graph import Graph
from tests.support.s3 import RequestLog, S3Server


def settle(graph: Graph) -> None:
    """Wait until the handle writes nothing in the background any more."""
    workers = graph._workspace.root.workers
    # A worker comes here only when it has finished what was submitted before.
    everybody = threading.Barrier(workers._max_workers)
    for arrived in [workers.submit(everybody.wait, 30) for _ in range(workers._max_workers)]:
        arrived.result()


def settled(graph: Graph, server: S3Server, work: Callable[[], object]) -> RequestLog:
    """The requests of `work`, with the hint that a commit writes in the background."""
    with server.logged() as log:
        work()
        settle(graph)
    return log
