"""A separate process that writes to a graph until it is told to stop, or killed.

    URI ROLE [ARGUMENT ...]

Every acknowledged step is printed as one line, flushed before the next step begins: what the parent reads is what
the graph must remember. `OMNIGRAPH_KILL_AT=<point>:<n>` makes the process kill itself the n-th time it passes a trace
point, or at its n-th step of any kind, with a signal nothing can catch.
"""

from __future__ import annotations

import sys

from omnigraph import Graph
from omnigraph.errors import ConflictError
from tests.support.child import die_at_a_step, killing_trace, say
from tests.support.tables import (
    KNOWS,
    PEOPLE,
    PLACES,
    append,
    append_one,
    connect,
    edges,
    new_graph,
    nodes,
    remove_person,
    upsert,
)


def write_everything(graph: Graph, label: str, rounds: int) -> None:
    """Commits over several tables, branches made, written, deleted: everything that has a durable step."""
    for i in range(rounds):
        name = f"{label}-{i}"
        rows = {PEOPLE: nodes({name: i}), PLACES: nodes({name: i}), KNOWS: edges([(name, name, name)])}
        append(graph, rows)
        say("row", name)
        branch = f"b-{name}"
        graph.create_branch(branch)
        say("branch", branch)
        append_one(graph, f"{name}-on-branch", branch)
        graph.delete_branch(branch)
        say("gone", branch)


def main(uri: str, role: str, *arguments: str) -> None:
    trace = killing_trace()
    if role == "init":
        new_graph(uri, trace=trace)
        say("ready")
        return
    graph = Graph.open(uri, trace=trace)
    die_at_a_step(graph)
    say("ready")
    sys.stdin.readline()  # the parent starts everybody at once
    if role == "everything":
        write_everything(graph, arguments[0], int(arguments[1]))
    elif role == "append":
        for i in range(int(arguments[1])):
            say("row", f"{arguments[0]}-{i}", append_one(graph, f"{arguments[0]}-{i}").commit_id)
    elif role == "strict":
        for i in range(int(arguments[1])):
            try:
                upsert(graph, PEOPLE, nodes({"contended": i}), strict=True)
                say("won", i)
            except ConflictError as error:
                say("conflict", type(error).__name__)
    elif role == "connect":
        attempt(lambda: connect(graph, arguments[0], arguments[1], arguments[2]))
    elif role == "remove":
        attempt(lambda: remove_person(graph, arguments[0]))


def attempt(write: object) -> None:
    try:
        say("committed" if write() is not None else "refused")  # type: ignore[operator]
    except ConflictError as error:
        say("conflict", type(error).__name__)
