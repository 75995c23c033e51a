"""Reads of a graph in an object store by a process that has just begun: requests and rounds, counted at the server."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.storage.shared_memory import SHARED_MEMORY
from tests.conftest import Place
from tests.engine.query_graphs import edge, node
from tests.support.costs import settle
from tests.support.s3 import RequestLog, S3Server

SCHEMA = """
node Person { slug: String @key  age: I32? }
edge Knows: Person -> Person
"""
PEOPLE = [f"p{number:03}" for number in range(200)]
LOOKUP = "query q($k: String) { match { $p: Person { slug: $k } } return { $p.age as age } }"
HOP = "query q($k: String) { match { $p: Person { slug: $k }  $p knows $x } return { count($x) as n } }"

LOOKUP_COST = (10, 8)
HOP_COST = (14, 7)
"""Requests, and rounds of them: what a cold process pays for its first read."""


@pytest.fixture
def uri(s3_place: Place) -> str:
    lines = [node("Person", name, age=number) for number, name in enumerate(PEOPLE)]
    lines += [edge("Knows", PEOPLE[0], name) for name in PEOPLE[1:8]]
    with Graph.init(s3_place.uri, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        graph.maintenance.optimize()
        graph.query(HOP, k=PEOPLE[0])
    return s3_place.uri


def cold(server: S3Server, uri: str, query: str, **params: object) -> tuple[list[dict[str, object]], RequestLog]:
    """The rows of the first query of a process, and what it asked the store."""
    SHARED_MEMORY.clear()
    with server.logged() as log, server.in_rounds():
        graph = Graph.open(uri)
        rows = [dict(row) for row in graph.query(query, **params)]
    settle(graph)
    graph.close()
    return rows, log


@pytest.mark.parametrize(("query", "row", "cost"), [(LOOKUP, {"age": 0}, LOOKUP_COST), (HOP, {"n": 7}, HOP_COST)])
def test_the_first_read_of_a_process_waits_for_few_answers(
    s3_server: S3Server, uri: str, query: str, row: dict[str, int], cost: tuple[int, int]
) -> None:
    rows, log = cold(s3_server, uri, query, k=PEOPLE[0])
    assert rows == [row]
    assert (len(log), log.serial_rounds()) <= cost, log.lines()
    assert log.serial_rounds() <= cost[1], log.lines()


def test_the_parts_of_a_topology_are_read_in_one_round(s3_server: S3Server, uri: str) -> None:
    _, log = cold(s3_server, uri, HOP, k=PEOPLE[0])
    parts = [r for r in log.requests if "/topology/" in r.path and not r.path.endswith(".json")]
    assert len(parts) > 1
    assert len({r.round for r in parts}) == 1, log.lines()


def test_a_reader_sees_the_commit_that_came_before_its_question(s3_server: S3Server, uri: str) -> None:
    """Whatever was read ahead."""
    with Graph.open(uri) as reader, Graph.open(uri) as writer:
        assert list(reader.query(HOP, k=PEOPLE[0])) == [{"n": 7}]
        writer.load(edge("Knows", PEOPLE[0], PEOPLE[9]), mode="append")
        assert list(reader.query(HOP, k=PEOPLE[0])) == [{"n": 8}]
    PROCESS_TOPOLOGIES.clear()
