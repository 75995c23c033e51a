"""Every feature of the query language in Python: by text, by handle and by name, as rows, as Arrow, and in frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.api import wire
from omnigraph.api.queries import OperatorProfile
from omnigraph.errors import BadRequestError, CompileError, NotFoundError, PolicyError, ResourceLimitError
from tests.server.sample import EVERYTHING, Rules
from tests.support.feature_queries import (
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
    label,
    lasting,
    plain,
    statements,
)

q = omnigraph.queries(STORED_TEXT)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "g") as graph:
        yield graph.with_queries(q)


@pytest.mark.parametrize("example", READS, ids=label)
def test_a_feature_in_rows_arrow_and_frames(graph: omnigraph.Graph, example: Example) -> None:
    result = graph.query(example.text, params=example.params)
    assert result.rows() == result.to_dicts() == list(result) == example.rows
    assert list(graph.stream(example.text, params=example.params).rows()) == example.rows
    table = result.to_arrow()
    assert [plain(row) for row in table.to_pylist()] == example.rows
    assert [plain(row) for row in pl.DataFrame(result).to_dicts()] == example.rows
    table = table.select([name for name in table.column_names if name != "nan"])  # it has no null besides
    frame = result.to_pandas()[table.column_names]
    assert pa.Table.from_pandas(frame, schema=table.schema, preserve_index=False).equals(table)
    assert example.name in repr(result)


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_feature_by_handle_and_by_name(graph: omnigraph.Graph, example: Example) -> None:
    handle = q[example.name]
    assert not handle.is_mutation
    assert graph.query(handle, **example.params).rows() == example.rows
    assert graph.at().query(handle, params=example.params).rows() == example.rows
    assert graph.invoke(example.name, example.params).rows() == example.rows


@pytest.mark.parametrize("example", STORED, ids=label)
def test_a_feature_is_explained_and_profiled(graph: omnigraph.Graph, example: Example) -> None:
    """Every operator of a plan is a line of its explanation, and what ran is what was explained."""
    plan = graph.query(f"explain {example.text}", params=example.params)
    texts = [json.loads(row["detail"])["text"] for row in plan]
    lines = graph.explain(example.text, params=example.params)
    assert [line.strip().split("  (about ")[0] for line in lines if "  (about " in line] == texts
    profile = graph.profile(example.text, params=example.params)
    assert profile.rows == len(example.rows)
    assert set(operators_of(profile)) <= {"query", *texts}


def operators_of(profile: OperatorProfile) -> Iterator[str]:
    yield profile.operator
    for below in profile.inputs:
        yield from operators_of(below)


@pytest.mark.parametrize("write", WRITES, ids=label)
@pytest.mark.parametrize("way", ["text", "handle", "name"])
def test_a_feature_of_writes(graph: omnigraph.Graph, write: Write, way: str) -> None:
    branch = graph.branch(f"{write.name}/{way}", create=True)
    if way == "text":
        receipt = graph.mutate(write.text, params=write.params, branch=branch.name)
    elif way == "handle":
        assert q[write.name].is_mutation
        receipt = branch.mutate(q[write.name], **write.params)
    else:
        receipt = graph.invoke(write.name, write.params, branch=branch.name)
    assert (receipt.affected_nodes, receipt.affected_edges) == write.counts
    assert branch.query(write.shown_by).rows() == write.rows
    assert receipt.outcome is None


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_what_cannot_be_calculated_names_its_rule_and_its_expression(graph: omnigraph.Graph, refusal: Refusal) -> None:
    with pytest.raises(omnigraph.errors.EvaluationError) as caught:
        (graph.mutate if refusal.writes else graph.query)(refusal.text)
    assert caught.value.error_type() == refusal.type
    assert caught.value.fields == refusal.fields
    assert caught.value.http_status == 400


def test_the_work_of_paths_is_limited(graph: omnigraph.Graph) -> None:
    reached = next(example for example in READS if example.name == "reached")
    enough, little = (omnigraph.ReadOptions(traversal_work=work) for work in (1_000, 2))
    assert graph.query(reached.text, options=enough).rows() == reached.rows
    for read in (graph.query, graph.at().query, graph.branch("main").query, graph.profile):
        with pytest.raises(ResourceLimitError, match="traversal_work: actual 3, limit 2"):
            read(reached.text, options=little)


# Statements


def test_statements_create_merge_and_delete_branches(graph: omnigraph.Graph) -> None:
    before = graph.list_branches()
    for statement in statements("python"):
        receipt = graph.mutate(statement.text, branch=statement.branch, actor="ana")
        assert lasting(wire.to_builtins(receipt)) == statement.receipt
        assert receipt.actor_id == "ana"
        assert graph.query("branch list").rows() == [{"name": name} for name in graph.list_branches()]
    assert graph.list_branches() == before


def test_a_statement_is_repeated_safely(graph: omnigraph.Graph) -> None:
    first, again = (graph.mutate("branch create repeated", idempotency_key="once") for _ in range(2))
    assert (first.replayed, again.replayed, again.outcome) == (False, True, first.outcome)


def test_the_list_of_branches_names_no_commit(graph: omnigraph.Graph) -> None:
    listed = graph.stream("/* all */ branch list")
    assert (listed.query_name, listed.graph_commit_id, listed.columns) == ("branch list", "", ["name"])
    assert {"name": "main"} in listed.rows()


@pytest.mark.parametrize(("asked", "words"), WRONG_READS)
def test_a_statement_that_cannot_be_read(graph: omnigraph.Graph, asked: dict[str, Any], words: str) -> None:
    for read in (graph.query, graph.stream):
        with pytest.raises(BadRequestError) as caught:
            read(asked["query"], **{name: value for name, value in asked.items() if name != "query"})
        assert words in str(caught.value)


@pytest.mark.parametrize(("asked", "words"), WRONG_WRITES)
def test_a_statement_that_cannot_be_run(graph: omnigraph.Graph, asked: dict[str, Any], words: str) -> None:
    with pytest.raises((BadRequestError, NotFoundError)) as caught:
        graph.mutate(asked["query"], **{name: value for name, value in asked.items() if name != "query"})
    assert words in str(caught.value)


def test_a_statement_takes_no_state_no_condition_and_no_keyword(graph: omnigraph.Graph) -> None:
    commit = graph.resolve_snapshot()
    for beside in ({"if_commit": commit}, {"x": 3}):
        with pytest.raises(BadRequestError, match="stands alone"):
            graph.mutate("branch create x", **beside)
    with pytest.raises(BadRequestError, match="stands alone"):
        graph.branch("main").mutate("branch create x")
    for reader in (graph.at(), graph.branch("main")):
        with pytest.raises(BadRequestError, match="stands alone"):
            reader.query("branch list")
    with pytest.raises(BadRequestError, match="stands alone"):
        graph.query("branch list", x=3)


def test_a_source_of_queries_holds_no_statement(tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text("branch list")
    for source in (tmp_path / "q.gq", READS[-1].text):
        with pytest.raises(CompileError, match="Q004: a statement is not a query"):
            omnigraph.queries(source)


def test_the_plan_of_a_query_takes_its_parameters(graph: omnigraph.Graph) -> None:
    text = "explain query q($least: I32) { match { $r: Reader  $r.age > $least } return { $r.card as card } }"
    (_, scan) = graph.query(text, least=20)
    assert "`age` > 20" in scan["detail"]
    assert graph.query(text, "q", {"least": 20}, branch="main").graph_commit_id == graph.resolve_snapshot()
    with pytest.raises(BadRequestError, match="parameter 'least' not provided"):
        graph.query(text)


def test_a_policy_decides_statements_like_methods(graph: omnigraph.Graph) -> None:
    governed = graph._with_gate(Rules({"ana": EVERYTHING, "rob": ["read", "change", "branch_merge"]}))
    assert governed.acting_for("ana").mutate("branch create governed").actor_id == "ana"
    rob = governed.acting_for("rob")
    for text in ("branch create mine", "branch delete governed"):
        with pytest.raises(PolicyError, match="policy denied action 'branch_"):
            rob.mutate(text)
    assert rob.mutate("branch merge governed").outcome is not None
    assert {"name": "governed"} in rob.query("branch list")
    assert "mine" not in graph.list_branches()
    nobody = governed.acting_for("eve")
    for text in ("branch list", READS[-1].text):
        with pytest.raises(PolicyError):
            nobody.query(text, params=None if text == "branch list" else READS[-1].params)
