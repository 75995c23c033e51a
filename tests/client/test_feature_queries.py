"""Every feature of the query language through the clients of a server, which answer as the graph in this process does.

`ways` of the conftest would serve another graph, so this module makes its own three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

import omnigraph
from omnigraph.api import wire
from omnigraph.api.queries import ReadPoint
from omnigraph.errors import BadRequestError, EvaluationError, KeyConflictError, NotFoundError, ResourceLimitError
from tests.client.three_graphs import Api, AwaitedGraph
from tests.server.running import RunningServer, faultless
from tests.support.feature_queries import (
    ENTITIES,
    READS,
    REFUSALS,
    STORED,
    STORED_TEXT,
    WRITES,
    WRONG_READS,
    WRONG_WRITES,
    Example,
    Refusal,
    Write,
    feature_graph,
    follows,
    label,
    lasting,
    statements,
)

q = omnigraph.queries(STORED_TEXT)


@pytest.fixture(scope="module")
def served_graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(served_graph: omnigraph.Graph) -> Iterator[RunningServer]:
    with faultless({"kb": served_graph}, queries=STORED_TEXT) as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: RunningServer) -> Iterator[dict[str, Api]]:
    awaited = AwaitedGraph(lambda: omnigraph.connect_async(server.url, graph="kb"))
    with omnigraph.connect(server.graph()) as remote:
        yield {"remote": remote, "async": cast(Any, awaited)}
    awaited.close()


@pytest.fixture(params=["remote", "async"])
def client(clients: dict[str, Api], request: pytest.FixtureRequest) -> Api:
    return clients[request.param]


@pytest.mark.parametrize("example", READS, ids=label)
def test_a_feature_is_what_it_is_in_this_process(client: Api, served_graph: omnigraph.Graph, example: Example) -> None:
    here = served_graph.query(example.text, params=example.params)
    there = client.query(example.text, params=example.params)
    assert there.rows() == list(there) == example.rows
    equal = [name for name in here.columns if name != "nan"]  # which equals nothing
    assert there.to_arrow().select(equal).equals(here.to_arrow().select(equal))
    assert (there.typed_columns, repr(there).partition(":")[0]) == (here.typed_columns, repr(here).partition(":")[0])
    assert there.graph_commit_id == here.graph_commit_id
    assert list(client.stream(example.text, params=example.params).rows()) == example.rows


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_feature_by_handle_and_by_name(client: Api, example: Example) -> None:
    assert client.query(q[example.name], **example.params).rows() == example.rows
    assert cast(Any, client.invoke(example.name, example.params)).rows() == example.rows
    assert client.explain(q[example.name], **example.params)


@pytest.mark.parametrize("write", WRITES, ids=label)
def test_a_feature_of_writes(client: Api, served_graph: omnigraph.Graph, write: Write) -> None:
    for way in ("text", "name"):
        branch = f"{write.name}/{way}/{type(client).__name__}"
        client.create_branch(branch)
        if way == "text":
            receipt = client.mutate(write.text, params=write.params, branch=branch)
        else:
            receipt = cast(Any, client.invoke(write.name, write.params, branch=branch))
        assert (receipt.affected_nodes, receipt.affected_edges, receipt.outcome) == (*write.counts, None)
        assert client.query(write.shown_by, branch=branch).rows() == write.rows
        assert served_graph.query(write.shown_by, branch=branch).rows() == write.rows


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_an_error_of_evaluation_is_rebuilt(client: Api, served_graph: omnigraph.Graph, refusal: Refusal) -> None:
    errors = []
    for graph in (client, served_graph):
        with pytest.raises(EvaluationError) as caught:
            (graph.mutate if refusal.writes else graph.query)(refusal.text)
        errors.append((str(caught.value), caught.value.fields))
    assert errors[0] == errors[1]
    assert errors[0][1] == refusal.fields


def test_an_entity_with_a_property_id_and_an_edge_with_a_key(client: Api, served_graph: omnigraph.Graph) -> None:
    for (type_name, id_), entity in ENTITIES.items():
        assert client.entity(type_name, id_) == served_graph.entity(type_name, id_) == entity
    branch = f"keys_{type(client).__name__}"
    client.create_branch(branch)
    again = {"src": "r1", "dst": "r2", "since": 8}
    with pytest.raises(KeyConflictError) as caught:
        client.load([again], type="Follows", mode="append", branch=branch)
    assert (caught.value.type_key, caught.value.entity_id) == ("edge:Follows", '["r1","r2"]')
    client.load([again], type="Follows", mode="merge", branch=branch)
    client.load([{"id": "s1", "room": "Z"}, {"id": "s3"}], type="Shelf", mode="merge", branch=branch)
    assert client.query(WRITES[-1].shown_by, branch=branch).rows() == [
        {"f": follows("r1", "r2", 8), "shelf": "s1"},
        {"f": follows("r1", "r2", 8), "shelf": "s3"},
    ]


def test_a_client_lowers_the_work_of_paths(client: Api) -> None:
    reached = next(example for example in READS if example.name == "reached")
    enough, little = (omnigraph.ReadOptions(traversal_work=work) for work in (1_000, 2))
    assert client.query(reached.text, options=enough).rows() == reached.rows
    for read in (client.query, client.profile):
        with pytest.raises(ResourceLimitError) as refused:
            read(reached.text, options=little)
        assert (refused.value.resource, refused.value.limit) == ("traversal_work", 2)


def test_statements_create_merge_and_delete_branches(client: Api) -> None:
    before = client.list_branches()
    for statement in statements(type(client).__name__):
        receipt = client.mutate(statement.text, branch=statement.branch)
        assert lasting(wire.to_builtins(receipt)) == statement.receipt
        listed = client.query("branch list")
        assert listed.rows() == [{"name": name} for name in client.list_branches()]
        assert (listed.query_name, listed.graph_commit_id, listed.target) == ("branch list", "", ReadPoint())
    assert client.list_branches() == before


def test_a_branch_that_a_statement_made_again_is_read_as_it_is(client: Api) -> None:
    """A client asks for states no older than those it has read, but only of the same branch."""
    name = f"again_{type(client).__name__}"
    add = 'query add() { insert Shelf { id: "new" } }'
    count = "query total() { match { $s: Shelf } return { count($s) as n } }"
    for _ in range(2):
        client.mutate(f"branch create {name}")
        assert client.query(count, branch=name).rows() == [{"n": 1}]
        client.mutate(add, branch=name)
        client.mutate(f"branch create {name}_target")
        client.mutate(f"branch merge {name} into {name}_target")
        assert client.query(count, branch=f"{name}_target").rows() == [{"n": 2}]
        client.mutate(f"branch delete {name}")
        client.mutate(f"branch delete {name}_target")


@pytest.mark.parametrize("writes", [False, True])
def test_a_wrong_statement_is_refused_in_the_same_words(
    client: Api, served_graph: omnigraph.Graph, writes: bool
) -> None:
    for asked, words in WRONG_WRITES if writes else WRONG_READS:
        beside = {name: value for name, value in asked.items() if name != "query"}
        told = []
        for graph in (client, served_graph):
            with pytest.raises((BadRequestError, NotFoundError)) as caught:
                (graph.mutate if writes else graph.query)(asked["query"], **beside)
            told.append((type(caught.value), str(caught.value)))
        assert told[0] == told[1]
        assert words in told[0][1]
