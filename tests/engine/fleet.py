"""One process of a fleet: it writes branches of its own, or merges branches back into main, and tells what it did.

URI write LABEL COUNT
URI merge BRANCH ...
"""

from __future__ import annotations

import random
import sys
import time

from omnigraph import Graph
from omnigraph.errors import ReadSetChangedError
from tests.engine.town import knows, person, put


def write(graph: Graph, label: str, count: int) -> None:
    for number in range(count):
        branch = f"{label}-{number}"
        graph.create_branch(branch)
        put(
            graph,
            branch,
            person(f"{branch}-a"),
            person(f"{branch}-b"),
            knows(f"{branch}-k", f"{branch}-a", f"{branch}-b"),
        )
        print("written", branch, flush=True)


def merge_back(graph: Graph, branch: str) -> None:
    """Main moves while others merge: a merge that lost the race is the caller's to run again."""
    while True:
        try:
            graph.merge(branch, delete_branch=True)
            return
        except ReadSetChangedError:
            time.sleep(random.uniform(0, 0.1))


def main(uri: str, role: str, *arguments: str) -> None:
    with Graph.open(uri) as graph:
        print("ready", flush=True)
        sys.stdin.readline()
        if role == "write":
            write(graph, arguments[0], int(arguments[1]))
        else:
            for branch in arguments:
                merge_back(graph, branch)
                print("merged", branch, flush=True)
