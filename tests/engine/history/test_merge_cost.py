"""The cost contract of branches and fast-forward merges, counted at the S3 server."""

from __future__ import annotations

import json

from omnigraph import Graph
from tests.conftest import Place
from tests.engine.museum import lines, node
from tests.support.costs import settled
from tests.support.s3 import S3Server

FAST_FORWARD_REQUESTS = 8
LOOKED_AHEAD = 1
"""A head that is not known is looked for in two or three slots at once."""
FIRST_WRITE_REQUESTS = 3
"""What a handle asks its store before its first write."""
CREATE_REQUESTS = 4


def fill(graph: Graph, rows: int) -> None:
    graph.load(lines(*(node("T0", name=f"n{i}") for i in range(rows))), mode="append")


def test_a_fast_forward_costs_the_same_at_any_size_and_copies_nothing(s3_server: S3Server, s3_place: Place) -> None:
    costs = {}
    for types, rows, commits in ((2, 10, 1), (30, 3_000, 12)):
        schema = "\n".join(f"node T{i} {{ name: String @key }}" for i in range(types))
        with Graph.init(f"{s3_place.uri}/{types}", schema) as graph:
            settled(graph, s3_server, lambda graph=graph, rows=rows: fill(graph, rows))
            created = settled(graph, s3_server, lambda graph=graph: graph.create_branch("side"))
            assert len(created) <= CREATE_REQUESTS, created.lines()
            for commit in range(commits):
                added = (node(f"T{i}", name=f"side-{commit}") for i in range(types))
                graph.load(lines(*added), mode="append", branch="side")
        # A handle that knows main and has never seen the branch.
        with Graph.open(f"{s3_place.uri}/{types}") as graph:
            graph.snapshot()
            log = settled(graph, s3_server, lambda graph=graph: graph.merge("side"))
            assert json.loads(graph.snapshot().entry.commit.details["merge"])["outcome"] == "fast_forward"
            written = [r.path for r in log.requests if r.method != "GET"]
            assert all("/__manifest/" in path for path in written), written
            costs[types] = len(log)
    assert max(costs.values()) <= FAST_FORWARD_REQUESTS + FIRST_WRITE_REQUESTS + LOOKED_AHEAD, costs
    assert max(costs.values()) - min(costs.values()) <= LOOKED_AHEAD, costs
