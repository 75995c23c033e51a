"""A separate process that works for long, and says from time to time what it holds.

    URI ROLE COUNT

`commit` prints `<commits> <resident KiB> <open table versions> <topologies>` after every tenth of its commits, each
followed by a read over all edges. `maintenance` prints the most threads it had during an optimize and a cleanup, and
how many of them were those of the object store's client.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from omnigraph import Graph
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from tests.support.child import say

LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
PAIRS = "query pairs() { match { $a: Person  $a knows $b  $b knows $c } return { count($c) as n } }"


def main(uri: str, role: str, count: str) -> None:
    with Graph.open(uri) as graph:
        ROLES[role](graph, int(count))


def commit(graph: Graph, count: int) -> None:
    for i in range(1, count + 1):
        graph.mutate(LINK, "link", {"a": f"p{i}", "b": f"p{2 * i}"})
        graph.query(PAIRS)
        if i % (count // 10) == 0:
            say(i, resident(), len(graph._workspace.root.reader.open_tables()), PROCESS_TOPOLOGIES.held_count())


def maintenance(graph: Graph, count: int) -> None:
    most, most_of_store, done = 0, 0, threading.Event()

    def watch() -> None:
        nonlocal most, most_of_store
        while not done.wait(0.01):
            names = thread_names()
            most = max(most, len(names))
            most_of_store = max(most_of_store, sum(name.startswith("tokio") for name in names))

    watching = threading.Thread(target=watch)
    watching.start()
    for _ in range(count):
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep_versions=1)
    done.set()
    watching.join()
    say(most, most_of_store)


def thread_names() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            names.append((task / "comm").read_text())
    return names


def resident() -> int:
    """Kibibytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


ROLES = {"commit": commit, "maintenance": maintenance}
