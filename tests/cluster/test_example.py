"""The example cluster: it is valid, its plan is what it declares, it is applied, and a server boots from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cluster.serving import read_serving
from omnigraph.server.loader import boot
from omnigraph.server.settings import Settings
from tests.support.cluster_files import ClusterFiles, codes
from tests.support.clusters import open_graph

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster"
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ana": "secret"}'}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ClusterFiles:
    directory = tmp_path_factory.mktemp("example") / "cluster"
    shutil.copytree(EXAMPLE, directory)
    made = ClusterFiles(directory)
    assert made.import_().ok
    assert made.apply("ana").converged
    return made


def test_it_is_valid_and_declares_every_kind_of_resource(files: ClusterFiles) -> None:
    report = files.validate()
    assert codes(report) == ["external_blob_ingress_default_deny"]
    assert {resource.kind for resource in report.resources} == {
        "graph", "schema", "query", "policy", "embedding_provider", "pipeline",
    }  # fmt: skip
    assert sum(resource.kind == "graph" for resource in report.resources) == 2


def test_nothing_is_left_to_do(files: ClusterFiles) -> None:
    plan = files.plan()
    assert (plan.changes, plan.diagnostics) == ((), ())
    assert files.status().resource_digests == files.validate().resource_digests


def test_a_server_boots_from_it(files: ClusterFiles) -> None:
    serving, _ = boot(Settings(cluster=files.source), open_graph, TOKENS)
    try:
        assert set(serving.graphs) == {"library", "staff"}
        assert serving.quarantined == {}
        assert set(serving.graphs["library"].queries) == {"books_of", "rename", "similar"}
        assert serving.revision == 2
    finally:
        serving.close()


def test_a_graph_that_was_made_again_is_served_from_its_own_root(files: ClusterFiles, tmp_path: Path) -> None:
    shutil.copytree(files.directory, tmp_path / "cluster")
    copy = ClusterFiles(tmp_path / "cluster")
    whole = (copy.directory / "cluster.yaml").read_text()
    copy.config(version=1, graphs={"library": {"schema": "library/schema.pg"}})
    assert copy.approve("graph.staff").ok
    assert copy.apply().converged
    copy.file("cluster.yaml", whole)
    assert copy.apply().converged
    (staff,) = (graph for graph in read_serving(copy.source).graphs if graph.graph_id == "staff")
    assert staff.uri.endswith("graphs/staff.2.omni")
    omnigraph.open(staff.uri).close()
