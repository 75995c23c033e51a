"""A process that opens a graph and asks it something, again and again, as so many processes would."""

from __future__ import annotations

from omnigraph import Graph
from omnigraph.storage.cache import SHARED_MEMORY
from tests.support.child import say


def main(uri: str, query: str, times: str) -> None:
    say("ready")
    input()
    for _ in range(int(times)):
        SHARED_MEMORY.clear()
        with Graph.open(uri) as graph:
            rows = [dict(row) for row in graph.query(query, k="p000")]
            if (copies := graph._workspace.root.copies) is not None:
                copies.wait()
        say(str(rows))
