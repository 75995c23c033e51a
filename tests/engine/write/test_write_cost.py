"""The cost contract of writing one entity, counted at the S3 server: an edge with its endpoint checks, an update and a
delete by key, an update of an edge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from omnigraph import Graph
from tests.conftest import Place
from tests.engine.museum import edge, lines, node
from tests.support.costs import settled
from tests.support.s3 import RequestLog, S3Server

REQUESTS = 12
ROUNDS = 6
FOLD_REQUESTS = 20

INSERT = "query link($f: String, $t: String) { insert Links { from: $f, to: $t, weight: 1 } }"


def new_graph(uri: str, tables: int) -> Graph:
    extra = "\n".join(f"node Extra{i} {{ name: String @key }}" for i in range(tables - 3))
    graph = Graph.init(
        uri,
        f"""node Page {{ path: String @key }}
            node Tag {{ name: String @key }}
            edge Links: Page -> Tag {{ weight: I32? }}
            {extra}""",
    )
    pages = [node("Page", path=f"p{i}") for i in range(100)]
    graph.load(lines(*pages, *(node("Tag", name=f"t{i}") for i in range(100))), mode="append")
    return graph


def insert(graph: Graph, branch: str, number: int = 0) -> None:
    graph.mutate(INSERT, "link", {"f": f"p{number % 100}", "t": f"t{number * 7 % 100}"}, branch=branch)


def waited_for(graph: Graph, server: S3Server, work: Callable[[], object]) -> RequestLog:
    """The requests that `work` waits for, in rounds. Nobody waits for hints, nor for the look at the writers' queue
    that comes with them and may be answered when all is done."""
    with server.logged() as log, server.in_rounds():
        work()
    settled(graph, server, lambda: None)
    background = ("/hints/", "queues")
    return RequestLog([r for r in log.requests if not any(word in r.path + r.query for word in background)])


def test_a_one_edge_insert_costs_the_same_at_any_depth_table_count_and_branch(
    s3_server: S3Server, s3_place: Place
) -> None:
    plain: dict[str, int] = {}
    for tables in (5, 50):
        graph = new_graph(f"{s3_place.uri}/{tables}", tables)
        for depth in (1, 50):
            while graph.snapshot().version < depth + 2:
                insert(graph, "main")
            graph.create_branch(f"fresh-{depth}")
            for branch in ("main", f"fresh-{depth}"):
                warm, *inserts = [partial(insert, graph, branch, i) for i in range(6)]
                settled(graph, s3_server, warm)
                costs = sorted(len(settled(graph, s3_server, work)) for work in inserts)
                # At most one commit in five folds the small fragments that the others leave.
                assert costs[:4] == [costs[0]] * 4, (tables, depth, branch, costs)
                assert costs[4] <= FOLD_REQUESTS
                plain[f"{tables} tables, depth {depth}, {branch}"] = costs[0]
    assert set(plain.values()) == {min(plain.values())}, plain
    assert max(plain.values()) <= REQUESTS, plain


def test_a_one_edge_insert_waits_for_few_answers_and_reads_no_edges(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri, 3)
    settled(graph, s3_server, partial(insert, graph, "main"))
    logs = [waited_for(graph, s3_server, partial(insert, graph, "main", i)) for i in range(5)]
    plain = sorted(logs, key=len)[:4]
    assert max(log.serial_rounds() for log in plain) <= ROUNDS, [log.lines() for log in plain]
    for log in plain:
        assert [r for r in log.requests if r.method == "GET" and "/edges/" in r.path] == [], log.lines()
        probes = [r.round for r in log.requests if r.method == "GET" and "/nodes/" in r.path]
        assert len(probes) <= 2, "none, once their ids are in memory"
        assert len(set(probes)) <= 1, "both endpoint types are asked at the same time"


ONE_LOAD = {
    "an append": ("append", {"name": "new$", "note": "x"}, 8, 7),
    "a merge of a new row": ("merge", {"name": "new$", "note": "x"}, 8, 7),
    "a merge of a changed row": ("merge", {"name": "t$", "note": "x"}, 13, 11),
    "a merge of a row that is stored": ("merge", {"name": "t$", "note": "n"}, 4, 4),
    "an update": ("update", {"name": "t$", "note": "x"}, 13, 11),
    "an update of a row that is stored": ("update", {"name": "t$", "note": "n"}, 4, 4),
}
"""A load of the row that `$` numbers, and the most requests and rounds that it takes."""


@pytest.mark.parametrize("case", ONE_LOAD)
def test_a_load_of_one_row_costs_one_read_of_what_is_stored(s3_server: S3Server, s3_place: Place, case: str) -> None:
    mode, row, most_requests, most_rounds = ONE_LOAD[case]
    graph = Graph.init(s3_place.uri, "node Tag { name: String @key  note: String?  more: String? }")
    graph.load(lines(*(node("Tag", name=f"t{i}", note="n") for i in range(50))), mode="append")

    def write(number: int) -> None:
        made = {name: value.replace("$", str(number)) for name, value in row.items()}
        receipt = graph.load(lines(node("Tag", **made)), mode=mode)
        assert (receipt.commit is None) == ("stored" in case)

    settled(graph, s3_server, partial(write, 0))
    logs = [waited_for(graph, s3_server, partial(write, number)) for number in range(1, 6)]
    plain = sorted(logs, key=len)[:3]
    assert max(len(log) for log in plain) <= most_requests, [log.lines() for log in plain]
    assert max(log.serial_rounds() for log in plain) <= most_rounds, [log.lines() for log in plain]


ONE_ROW = {
    "an update of a node": ('update Tag set { note: "x" } where name = "t$"', 11, 10),
    "a delete of a node": ('delete Tag where name = "t$"', 15, 11),
    "an update of an edge": ('update Links set { weight: 5 } where @id = "e$"', 11, 10),
    "a delete of an edge": ('delete Links where @id = "e$"', 8, 8),
    "an upsert": ('upsert Tag { name: "t$", note: "x" }', 11, 10),
    "a feed": ('match { $t: Tag { name: "t$" } } update $t set { note: "x" }', 13, 11),
}
"""A statement about the row that `$` numbers, and the most requests and rounds that it takes."""


@pytest.mark.parametrize("statement", ONE_ROW)
def test_a_write_of_one_row_costs_little_and_looks_at_nothing_else(
    s3_server: S3Server, s3_place: Place, statement: str
) -> None:
    body, most_requests, most_rounds = ONE_ROW[statement]
    graph = Graph.init(
        s3_place.uri,
        """node Page { path: String @key }
           node Tag { name: String @key  note: String? }
           edge Links: Page -> Tag @card(0..9) { weight: I32? }""",
    )
    pages = [node("Page", path=f"p{i}") for i in range(50)]
    tags = [node("Tag", name=f"t{i}") for i in range(50)]
    graph.load(lines(*pages, *tags, *(edge("Links", f"p{i}", f"t{i}", id=f"e{i}") for i in range(50))), mode="append")

    def write(number: int) -> None:
        receipt = graph.mutate("query it() { " + body.replace('$"', f'{number}"') + " }")
        assert receipt.affected_nodes + receipt.affected_edges > 0

    settled(graph, s3_server, partial(write, 0))
    logs = [waited_for(graph, s3_server, partial(write, number)) for number in range(1, 6)]
    plain = sorted(logs, key=len)[:3]
    assert max(len(log) for log in plain) <= most_requests, [log.lines() for log in plain]
    assert max(log.serial_rounds() for log in plain) <= most_rounds, [log.lines() for log in plain]
    other = ("/nodes/",) if "Links" in body else ("/edges/",) if "delete" not in body else ()
    assert [r.path for log in plain for r in log.requests if any(name in r.path for name in other)] == []
