"""Graphs and stored queries that are addressed through a cluster."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cluster.payloads import PayloadStore, payload_path
from omnigraph.cluster.resources import graph_address
from omnigraph.cluster.state import Resource, ResourceStatus, StatusKind
from omnigraph.cluster.storage_root import make_root
from tests.cli.conftest import Cli
from tests.conftest import Place
from tests.support.clusters import QUERIES, SCHEMA, Cluster, make_cluster

ODD = 'query stamp() { insert Person { name: "always" } }\n'


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    make_cluster(root, {"kb": SCHEMA, "lab": SCHEMA}, {"kb": {"find": QUERIES, "add": QUERIES}, "lab": {"stamp": ODD}})
    return root


@pytest.fixture
def box(cli: Cli, made_once: Path) -> Cluster:
    """A cluster with the graphs `kb` and `lab` in the directory `box`."""
    shutil.copytree(made_once, "box")
    return Cluster("box", make_root("box"))


def without(*addresses: str) -> Callable[[dict[str, Resource]], None]:
    def change(resources: dict[str, Resource]) -> None:
        for address in addresses:
            del resources[address]

    return change


def store_query(cluster: Cluster, graph_id: str, name: str, text: str) -> None:
    digest = PayloadStore(cluster.objects).write(f"query.{graph_id}.{name}", text.encode())
    cluster.record(lambda resources: resources.update({f"query.{graph_id}.{name}": Resource(digest=digest)}))


# -- which graph


def test_a_graph_is_named_by_its_id(cli: Cli, box: Cluster) -> None:
    uri = box.graph_uri("kb")
    done = cli("optimize", "--cluster", "box", "--graph", "kb")
    assert done.code == 0
    assert done.err == f"omnigraph optimize → {uri} (direct, local)\n"
    assert done.lines[0].startswith(f"optimize {uri} — ")
    assert cli("repair", "--cluster", "box", "--graph", "lab", "--json").json["uri"] == box.graph_uri("lab")
    assert cli("cleanup", "--cluster", "box", "--graph", "kb", "--keep", "1").err.startswith(f"cleanup of {uri} would")
    Path("q.gq").write_text(QUERIES)
    linted = cli("lint", "--cluster", "box", "--graph", "kb", "--query", "q.gq", "--json").json
    assert (linted["status"], linted["schema_source"]) == ("ok", {"kind": "graph", "uri": uri})


def test_a_graph_that_was_deleted_and_made_again_is_the_later_one(cli: Cli, box: Cluster) -> None:
    """Its root has another name: maintenance must never work on what is left of the earlier one."""
    shutil.copytree("box/graphs/kb.omni", "box/graphs/kb.2.omni")
    box.record(lambda resources: None, retired_roots={"kb": 1})
    assert cli("repair", "--cluster", "box", "--graph", "kb", "--json").json["uri"].endswith("/graphs/kb.2.omni")
    assert cli("queries", "validate", "--cluster", "box", "--graph", "kb").code == 0


def test_of_several_graphs_one_has_to_be_named(cli: Cli, box: Cluster) -> None:
    refused = cli("optimize", "--cluster", "box")
    assert (refused.code, refused.out) == (1, "")
    assert "has 2 graphs: kb, lab; pass --graph <id>" in refused.err


def test_a_graph_that_was_not_applied_is_refused_with_those_that_were(cli: Cli, box: Cluster) -> None:
    refused = cli("repair", "--cluster", "box", "--graph", "nope")
    assert refused.code == 1
    assert "graph_not_applied" in refused.err
    assert "applied: kb, lab" in refused.err


def test_the_only_graph_needs_no_name(cli: Cli, box: Cluster) -> None:
    box.record(without("graph.lab", "schema.lab", "query.lab.stamp"))
    assert cli("repair", "--cluster", "box", "--json").json["uri"] == box.graph_uri("kb")
    box.record(without("graph.kb", "schema.kb", "query.kb.find", "query.kb.add"))
    assert "has no applied graphs" in cli("repair", "--cluster", "box").err


def test_a_damaged_catalog_and_a_graph_in_doubt_block_no_upkeep(cli: Cli, box: Cluster) -> None:
    shutil.rmtree("box/__cluster/resources")
    doubt = {graph_address("kb"): ResourceStatus(StatusKind.ERROR, ("graph_create_incomplete",))}
    box.record(lambda resources: None, cover=False, resource_statuses=doubt)
    assert cli("repair", "--cluster", "box", "--graph", "kb").code == 0


def test_a_cluster_by_its_name_a_profile_and_the_storage_of_its_configuration(
    cli: Cli, box: Cluster, config: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("conf").mkdir()
    Path("conf/cluster.yaml").write_text("version: 1\nstorage: ../box\n")
    config("clusters: {box: {root: conf}}\nprofiles: {boxed: {cluster: box, default_graph: lab}}\n")
    assert cli("repair", "--cluster", "box", "--graph", "kb", "--json").json["uri"] == box.graph_uri("kb")
    assert cli("repair", "--profile", "boxed", "--json").json["uri"] == box.graph_uri("lab")
    assert cli("repair", "--profile", "boxed", "--graph", "kb", "--json").json["uri"] == box.graph_uri("kb")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "boxed")
    assert [query["name"] for query in cli("queries", "list", "--json").json["queries"]] == ["stamp"]


def test_a_place_without_a_ledger_says_so(cli: Cli) -> None:
    Path("empty").mkdir()
    Path("empty/cluster.yaml").write_text("version: 1\n")
    refused = cli("optimize", "--cluster", "empty")
    assert refused.code == 1
    assert "cluster_state_missing" in refused.err


def test_a_cluster_by_its_uri(cli: Cli, place: Place) -> None:
    cluster = make_cluster(place.uri if "://" in place.uri else f"file://{place.uri}")
    assert cli("repair", "--cluster", cluster.root, "--json").json["uri"] == cluster.graph_uri("kb")
    assert cli("queries", "validate", "--cluster", cluster.root).lines == [
        "OK  2 stored queries type-check against the schema"
    ]


def test_a_link_into_a_cluster_leads_into_it(cli: Cli, box: Cluster) -> None:
    os.symlink("box/graphs", "link")
    for arguments in (["init", "--schema", "s.pg", "link/new.omni"], ["init", "--schema", "s.pg", "box/graphs/a.omni"]):
        refused = cli(*arguments)
        assert refused.code == 1
        assert "is inside cluster" in refused.err
    refused = cli("schema", "apply", "link/kb.omni", "--schema", "s.pg")
    assert "is inside cluster" in refused.err


# -- stored queries


def test_queries_are_listed_with_what_they_declare(cli: Cli, box: Cluster) -> None:
    listed = cli("queries", "list", "--cluster", "box", "--graph", "kb", "--json").json["queries"]
    assert listed == [
        {
            "name": "add",
            "mcp_expose": False,
            "tool_name": None,
            "mutation": True,
            "params": [
                {"name": "name", "type": "String", "nullable": False},
                {"name": "age", "type": "I32", "nullable": True},
            ],
            "graph_id": "kb",
        },
        {
            "name": "find",
            "mcp_expose": False,
            "tool_name": None,
            "mutation": False,
            "description": "Looks a person up.",
            "params": [{"name": "name", "type": "String", "nullable": False}],
            "graph_id": "kb",
        },
    ]
    assert cli("queries", "list", "--cluster", "box").lines == [
        "graph kb",
        "mutation  add($name: String, $age: I32?)",
        "read  find($name: String)",
        "    description: Looks a person up.",
        "graph lab",
        "mutation  stamp()",
    ]


def test_no_queries_are_no_failure(cli: Cli, box: Cluster) -> None:
    box.record(without("query.lab.stamp"))
    assert cli("queries", "list", "--cluster", "box", "--graph", "lab").lines == ["(no stored queries registered)"]
    assert cli("queries", "list", "--cluster", "box", "--graph", "lab", "--json").json == {"queries": []}


def test_queries_are_checked_against_the_schema_that_their_graph_has(cli: Cli, box: Cluster) -> None:
    store_query(box, "lab", "old", "query old() { match { $p: Person } return { $p.height } }\n")
    store_query(box, "kb", "torn", "query torn( {\n")
    store_query(box, "kb", "other", QUERIES)
    report = cli("queries", "validate", "--cluster", "box", "--json")
    assert report.code == 1
    assert list(report.json) == ["ok", "breakages", "warnings"]
    assert report.json["ok"] is False
    assert [(b["graph_id"], b["query"]) for b in report.json["breakages"]] == [
        ("kb", "other"),
        ("kb", "torn"),
        ("lab", "old"),
    ]
    other, torn, old = (breakage["message"] for breakage in report.json["breakages"])
    assert "query 'other' not found" in other
    assert "line 1" in torn
    assert "height" in old
    assert [w["query"] for w in report.json["warnings"]] == ["stamp"]
    lines = cli("queries", "validate", "--cluster", "box", "--graph", "lab").lines
    assert lines[0].startswith("ERROR  query 'old': ")
    assert lines[-1].startswith("WARN   query 'stamp': hard-coded mutation")


def test_a_payload_that_is_gone_breaks_its_query_alone(cli: Cli, box: Cluster) -> None:
    digest = box.newest.state.resources["query.kb.find"].digest
    Path("box", payload_path("query.kb.find", digest)).unlink()
    report = cli("queries", "validate", "--cluster", "box", "--graph", "kb", "--json").json
    assert [b["query"] for b in report["breakages"]] == ["find"]
    refused = cli("queries", "list", "--cluster", "box", "--json")
    assert refused.code == 1
    assert "catalog_payload_missing query.kb.find" in refused.err
    assert "catalog_payload_missing" in json.loads(refused.out)["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list"], "`queries list` needs a cluster or a server; give --cluster <dir|uri>, --server <name|url>, or"),
        (["validate"], "`queries validate` needs a cluster; give --cluster <dir|uri>, or a --profile"),
        (["list", "--profile", "here"], "`queries list` needs a cluster"),
        (["list", "--cluster", "box", "--graph", "nope"], "is not applied in cluster"),
        (["validate", "--cluster", "box", "--graph", "nope"], "is not applied in cluster"),
        (["list", "--store", "g"], "`queries list` is a cluster control command; --store"),
        (["list", "--store", "g"], "Give --cluster <dir|uri> or --server <name|url>."),
        (["validate", "--server", "s"], "Give --cluster <dir|uri>."),
    ],
)
def test_queries_belong_to_a_cluster(
    arguments: list[str], message: str, cli: Cli, box: Cluster, config: Callable[[str], None]
) -> None:
    config("profiles: {here: {store: g}}\n")
    refused = cli("queries", *arguments)
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err
