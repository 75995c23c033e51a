"""`GET /pipelines`: the pipelines of a graph, and the last commit of each on its branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.engine.history.commits import PIPELINE_NAME, PipelineRuns
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.server.catalog import AppliedPipeline
from omnigraph.server.loader import boot
from tests.server.running import RunningServer, running
from tests.server.sample import Rules, bearer, people
from tests.server.test_boot import settings
from tests.support.clusters import SCHEMA, make_cluster, open_graph

PIPELINES = (
    AppliedPipeline("weekly", "b" * 64, "side"),
    AppliedPipeline("nightly", "a" * 64, "main"),
    AppliedPipeline("never", "c" * 64, "main"),
    AppliedPipeline("nowhere", "d" * 64, "no-such-branch"),
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with people(tmp_path / "kb") as graph:
        graph.create_branch("side")
        yield graph


def ran(graph: Graph, pipeline: str, branch: str = "main") -> str:
    """A commit as a run of a pipeline makes it, without the rows."""
    intent = Intent(kind="pipeline", actor="ana", details={PIPELINE_NAME: pipeline})
    published = graph._workspace.commit(branch, lambda txn: PublishPlan({}), intent)
    assert published is not None
    return published.entry.commit.id


def with_pipelines(server: RunningServer) -> RunningServer:
    states = server.services.states
    served = replace(states.serving.graph("kb"), pipelines=PIPELINES)
    states.replace(replace(states.serving, graphs={"kb": served}))
    return server


def last_commits(answer: Any) -> dict[str, str | None]:
    assert answer.status_code == 200, answer.text
    listed = answer.json()["pipelines"]
    return {entry["name"]: entry["last_commit"] and entry["last_commit"]["graph_commit_id"] for entry in listed}


def test_pipelines_are_listed_with_their_last_runs(graph: Graph) -> None:
    with running({"kb": graph}) as server:
        assert server.client.get("/graphs/kb/pipelines").json() == {"pipelines": []}
        with_pipelines(server)
        nothing = {"never": None, "nightly": None, "nowhere": None, "weekly": None}
        assert last_commits(server.client.get("/graphs/kb/pipelines")) == nothing
        ran(graph, "nightly")
        first, other = ran(graph, "nightly"), ran(graph, "weekly", "side")
        ran(graph, "unknown")
        assert last_commits(server.client.get("/graphs/kb/pipelines")) == {
            **nothing,
            "nightly": first,
            "weekly": other,
        }
        second = ran(graph, "nightly")
        found = server.client.get("/graphs/kb/pipelines")
        assert last_commits(found)["nightly"] == second
        assert found.json()["pipelines"][1] == {
            "name": "nightly",
            "branch": "main",
            "digest": "a" * 64,
            "last_commit": server.client.get(f"/graphs/kb/commits/{second}").json(),
        }


def test_what_a_branch_was_walked_for_once_is_not_read_again(graph: Graph) -> None:
    runs, workspace = PipelineRuns(), graph._workspace
    commit = ran(graph, "nightly")
    for _ in range(5):
        ran(graph, "other")
    assert runs.last(workspace, "main", ["nightly"])["nightly"].id == commit
    counts = dict(workspace.root.objects.counts)
    assert runs.last(workspace, "main", ["nightly"])["nightly"].id == commit
    assert workspace.root.objects.counts["get"] - counts["get"] <= 1, "the head, and nothing of the past"


def test_a_branch_that_is_made_again_has_its_own_runs(graph: Graph) -> None:
    runs = PipelineRuns()
    ran(graph, "weekly", "side")
    assert "weekly" in runs.last(graph._workspace, "side", ["weekly"])
    graph.delete_branch("side")
    assert runs.last(graph._workspace, "side", ["weekly"]) == {}
    graph.create_branch("side")
    assert runs.last(graph._workspace, "side", ["weekly"]) == {}


def test_a_run_is_shown_to_those_who_may_read_its_branch(graph: Graph) -> None:
    commit = ran(graph, "nightly")
    ran(graph, "weekly", "side")
    gate = Rules({"rob": ["read@main"], "eve": ["read@side"]})
    with running({"kb": graph}, tokens={"rob": "r", "eve": "e"}, gates={"kb": gate}) as server:
        with_pipelines(server)
        seen = last_commits(server.client.get("/graphs/kb/pipelines", headers=bearer("r")))
        assert (seen["nightly"], seen["weekly"]) == (commit, None)
        assert server.client.get("/graphs/kb/pipelines", headers=bearer("e")).status_code == 403


def test_a_server_lists_what_its_cluster_applied(tmp_path: Path) -> None:
    text = "version: 1\nbranch: ingest\nsources: {}\n"
    cluster = make_cluster(tmp_path, {"kb": SCHEMA, "lab": SCHEMA}, {}, pipelines={"nightly": (text, "kb")})
    serving, _ = boot(settings(cluster), open_graph, {})
    try:
        (pipeline,) = serving.graph("kb").pipelines
        assert (pipeline.name, pipeline.branch) == ("nightly", "ingest")
        assert serving.graph("lab").pipelines == ()
    finally:
        serving.close()
