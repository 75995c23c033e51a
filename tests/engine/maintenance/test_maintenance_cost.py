"""What reads cost when nobody runs `optimize`: writes fold small fragments, so that it stays near a tidy table."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from tests.conftest import Place
from tests.engine.library import SCHEMA, reader
from tests.support.costs import settle
from tests.support.s3 import S3Server


def requests(server: S3Server, uri: str, filter: str | None) -> int:
    """Requests of one read by a handle that has nothing cached."""
    graph = Graph.open(uri)
    snapshot = graph.snapshot()
    with server.logged() as log:
        assert snapshot.scan("node:Reader", ["id", "card", "name"], filter).num_rows
    graph.close()
    return len(log)


@pytest.mark.parametrize("commits", [1, 30, 65])
def test_reads_of_an_untended_table_cost_at_most_three_times_those_of_a_tidy_one(
    s3_server: S3Server, s3_place: Place, commits: int
) -> None:
    graph = Graph.init(s3_place.uri, SCHEMA)
    for i in range(commits):
        graph.load(reader(f"r{i}", name="n"), mode="append")
    point = "id = 'r0'"
    settle(graph)
    untended = [requests(s3_server, s3_place.uri, filter) for filter in (point, None)]
    graph.maintenance.optimize()
    settle(graph)
    tidy = [requests(s3_server, s3_place.uri, filter) for filter in (point, None)]
    assert untended[0] <= 3 * tidy[0]
    assert untended[1] <= 3 * tidy[1]
