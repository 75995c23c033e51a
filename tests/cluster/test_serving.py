"""What a server reads of a cluster: one applied state, verified; everything that is wrong is found at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from omnigraph.cluster.payloads import PayloadStore, payload_path
from omnigraph.cluster.resources import ClusterError, Severity
from omnigraph.cluster.serving import ClusterGraph, ClusterPipeline, find_pipeline, read_serving
from omnigraph.cluster.state import BlobBase, BlobPolicy, Resource, ResourceStatus, StatusKind
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope
from omnigraph.errors import BadRequestError
from tests.conftest import Place
from tests.support.clusters import QUERIES, SCHEMA, Cluster, make_cluster
from tests.support.s3 import Fault, S3Server

Change = Callable[[dict[str, Resource]], None]
PROFILE = EmbeddingProfile(kind="mock", model="m")
BLOBS = BlobPolicy("allow", (BlobBase("s3://b/p/", Scope.SERVER_SAFE),))
RULES = "rules: []"
PIPELINE = "version: 1\nbranch: ingest\nsources: {}\n"


def full(root: str | Path) -> Cluster:
    return make_cluster(
        root,
        {"kb": SCHEMA, "lab": SCHEMA},
        {"kb": {"find": QUERIES}},
        policies={"main": (RULES, ("graph.kb", "graph.lab")), "top": (RULES, ("cluster",))},
        providers={"p": PROFILE},
        embedding={"kb": "provider.embedding.p"},
        blobs={"kb": BLOBS},
        pipelines={"nightly": (PIPELINE, "kb")},
        init=False,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return full(tmp_path)


def with_members(address: str, **members: object) -> Change:
    def change(resources: dict[str, Resource]) -> None:
        resources[address] = msgspec.structs.replace(resources[address], **members)

    return change


def refused(cluster: Cluster) -> ClusterError:
    with pytest.raises(ClusterError) as error:
        read_serving(cluster.root)
    return error.value


def test_everything_that_was_applied(place: Place) -> None:
    cluster = full(place.uri)
    found = read_serving(place.uri)
    assert found.root == cluster.objects.location.uri
    assert found.revision == 1
    assert found.graphs == (
        ClusterGraph("kb", f"{found.root}/graphs/kb.omni", PROFILE, BLOBS),
        ClusterGraph("lab", f"{found.root}/graphs/lab.omni"),
    )
    assert [(q.graph_id, q.name, q.source) for q in found.queries] == [("kb", "find", QUERIES)]
    assert [(p.name, p.source, p.applies_to) for p in found.policies] == [
        ("main", RULES, ("graph.kb", "graph.lab")),
        ("top", RULES, ("cluster",)),
    ]
    assert [(p.name, p.graph_id, p.source, p.branch) for p in found.pipelines] == [
        ("nightly", "kb", PIPELINE, "ingest")
    ]
    assert (found.quarantined, found.warnings) == ({}, ())


@pytest.mark.parametrize(
    ("text", "branch"),
    [
        ("version: 1", "main"),
        ("branch:", "main"),
        ("branch: 2026-01-01", "2026-01-01"),
        ("branch: ' a '", "a"),
        ("branch: {a: b}", "main"),
        ("- branch", "main"),
        ("{", "main"),
        ("", "main"),
    ],
)
def test_the_branch_of_a_pipeline_is_what_its_file_says(text: str, branch: str) -> None:
    assert ClusterPipeline("p", "kb", "", text).branch == branch


def test_an_older_state_can_be_asked_for(cluster: Cluster) -> None:
    cluster.record(lambda resources: [resources.pop(a) for a in ("query.kb.find", "policy.top")] and None)
    assert [read_serving(cluster.root, n).revision for n in (1, 2, None)] == [1, 2, 2]
    assert len(read_serving(cluster.root, 1).queries) == 1
    assert read_serving(cluster.root).queries == ()
    with pytest.raises(ClusterError) as error:
        read_serving(cluster.root, 3)
    assert error.value.codes == ["cluster_state_missing"]
    assert error.value.diagnostics[0].path == "__cluster/state/3.json"


@pytest.mark.parametrize("revision", [None, 1])
def test_a_place_without_a_state(tmp_path: Path, revision: int | None) -> None:
    for source in (f"file://{tmp_path}", f"file://{tmp_path}/absent"):
        with pytest.raises(ClusterError) as error:
            read_serving(source, revision)
        assert error.value.codes == ["cluster_state_missing"]
        assert error.value.diagnostics[0].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        (with_members("pipeline.nightly", pipeline_graph="schema.kb"), "unknown_pipeline_graph", "pipeline.nightly"),
        (with_members("pipeline.nightly", pipeline_graph=None), "unknown_pipeline_graph", "pipeline.nightly"),
        (with_members("pipeline.nightly", digest="a" * 64), "catalog_payload_missing", "pipeline.nightly"),
        (with_members("graph.kb", embedding_provider="schema.kb"), "wrong_kind_reference", "graph.kb"),
        (with_members("graph.kb", embedding_provider="p"), "wrong_kind_reference", "graph.kb"),
        (
            with_members("graph.kb", embedding_provider="provider.embedding.q"),
            "embedding_provider_missing",
            "graph.kb",
        ),
        (
            with_members("provider.embedding.p", embedding_profile=None),
            "embedding_provider_profile_missing",
            "provider.embedding.p",
        ),
        (
            with_members("provider.embedding.p", embedding_profile=EmbeddingProfile(kind="mock", model="n")),
            "embedding_provider_digest_mismatch",
            "provider.embedding.p",
        ),
        (with_members("policy.main", applies_to=None), "policy_bindings_missing", "policy.main"),
        (with_members("policy.main", applies_to=()), "policy_bindings_missing", "policy.main"),
        (with_members("query.kb.find", digest="a" * 64), "catalog_payload_missing", "query.kb.find"),
        (with_members("policy.top", digest="a" * 64), "catalog_payload_missing", "policy.top"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(cluster: Cluster, change: Change, code: str, path: str) -> None:
    cluster.record(change)
    error = refused(cluster)
    assert error.codes == [code]
    assert error.diagnostics[0].path == path


@pytest.mark.parametrize(
    "change",
    [
        with_members("graph.kb", external_blob_policy=None),
        with_members("graph.lab", external_blob_policy=BLOBS),
        with_members("graph.lab", embedding_provider="provider.embedding.p"),
        with_members("schema.kb", digest="a" * 64),
        lambda resources: resources.pop("query.kb.find") and None,
    ],
)
def test_the_digest_of_a_graph_covers_what_is_recorded_of_it(cluster: Cluster, change: Change) -> None:
    cluster.record(change, cover=False)
    assert refused(cluster).codes == ["external_blob_policy_digest_mismatch"]


def test_payloads_are_hashed_again_and_all_findings_come_at_once(cluster: Cluster) -> None:
    resources = cluster.newest.state.resources
    cluster.objects.put(
        payload_path("query.kb.find", resources["query.kb.find"].digest), b"query find() { all }", durable=True
    )
    cluster.objects.put(payload_path("policy.top", resources["policy.top"].digest), b"allow: everything", durable=True)
    cluster.record(with_members("graph.lab", embedding_provider="provider.embedding.q"))
    error = refused(cluster)
    assert [(d.code, d.path) for d in error.diagnostics] == [
        ("embedding_provider_missing", "graph.lab"),
        ("catalog_payload_digest_mismatch", "policy.top"),
        ("catalog_payload_digest_mismatch", "query.kb.find"),
    ]


def test_a_payload_that_is_no_text(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, queries={}, init=False)
    digest = PayloadStore(cluster.objects).write("query.kb.odd", b"\xff")
    cluster.record(lambda resources: resources.update({"query.kb.odd": Resource(digest=digest)}))
    assert refused(cluster).codes == ["catalog_payload_read_error"]


def test_a_payload_that_the_store_keeps_back(s3_server: S3Server, s3_place: Place) -> None:
    cluster = full(s3_place.uri)
    with s3_server.broken(lambda method, path: Fault(403) if path.endswith(".gq") else None):
        assert refused(cluster).codes == ["catalog_payload_read_error"]


def in_doubt(condition: str, *addresses: str) -> dict[str, ResourceStatus]:
    return {address: ResourceStatus(StatusKind.ERROR, (condition,)) for address in addresses}


@pytest.mark.parametrize("address", ["graph.kb", "schema.kb"])
@pytest.mark.parametrize("condition", ["graph_create_incomplete", "actual_applied_state_pending"])
def test_a_graph_in_doubt_is_set_apart_with_its_rules_and_queries(
    cluster: Cluster, address: str, condition: str
) -> None:
    cluster.record(
        with_members("policy.main", applies_to=("graph.kb",)), resource_statuses=in_doubt(condition, address)
    )
    found = read_serving(cluster.root)
    assert [graph.graph_id for graph in found.graphs] == ["lab"]
    assert condition in found.quarantined["kb"]
    assert [(w.code, w.severity, w.path) for w in found.warnings] == [
        ("cluster_recovery_pending", Severity.WARNING, "graph.kb")
    ]
    assert found.queries == ()
    assert [policy.name for policy in found.policies] == ["top"]


def test_rules_lose_bindings_to_graphs_in_doubt(cluster: Cluster) -> None:
    cluster.record(lambda _: None, resource_statuses=in_doubt("graph_create_incomplete", "graph.kb"))
    main, _ = read_serving(cluster.root).policies
    assert main.applies_to == ("graph.lab",)


def test_drift_alone_is_served(cluster: Cluster) -> None:
    drifted = {"schema.kb": ResourceStatus(StatusKind.DRIFTED, ("schema_mismatch",))}
    cluster.record(lambda _: None, resource_statuses=drifted)
    assert len(read_serving(cluster.root).graphs) == 2


def test_a_broken_part_of_a_graph_in_doubt_does_not_refuse_the_rest(cluster: Cluster) -> None:
    def break_kb(resources: dict[str, Resource]) -> None:
        with_members("query.kb.find", digest="a" * 64)(resources)
        with_members("graph.kb", embedding_provider="p")(resources)
        with_members("policy.main", digest="a" * 64, applies_to=("graph.kb",))(resources)
        with_members("pipeline.nightly", digest="a" * 64)(resources)

    cluster.record(break_kb, resource_statuses=in_doubt("graph_create_incomplete", "graph.kb"))
    assert [graph.graph_id for graph in read_serving(cluster.root).graphs] == ["lab"]


def test_no_graph_at_all(cluster: Cluster) -> None:
    cluster.record(lambda _: None, resource_statuses=in_doubt("graph_create_incomplete", "graph.kb", "graph.lab"))
    assert refused(cluster).codes == [*["cluster_recovery_pending"] * 2, "cluster_no_healthy_graphs"]
    cluster.record(dict.clear)
    assert refused(cluster).codes == ["cluster_empty"]


def test_only_bases_for_servers_count_and_others_are_not_even_looked_at() -> None:
    embedded = BlobBase("file:///does/not/exist/", Scope.EMBEDDED_ONLY)
    policy = ClusterGraph("kb", "/x", blobs=BlobPolicy("allow", (embedded, *BLOBS.bases))).served_blobs()
    assert policy is not None
    assert policy.admit("s3://b/p/photo.png") == "s3://b/p/photo.png"
    assert ClusterGraph("kb", "/x", blobs=BlobPolicy("allow", (embedded,))).served_blobs() is None
    with pytest.raises(BadRequestError, match="server safe"):
        ClusterGraph(
            "kb", "/x", blobs=BlobPolicy("allow", (BlobBase("file:///tmp/", Scope.SERVER_SAFE),))
        ).served_blobs()


@pytest.mark.parametrize(
    ("pipelines", "folder"),
    [
        ("{nightly: {file: loads/n.yaml, graph: kb}}", "loads"),
        ("{nightly: {file: n.yaml, novelty: 1}, nightly2: 7}", ""),
        ("{nightly: loads/n.yaml}", ""),
        ("[nightly]", ""),
        ("", ""),
    ],
)
def test_paths_of_a_pipeline_begin_where_the_configuration_has_its_file(
    cluster: Cluster, tmp_path: Path, pipelines: str, folder: str
) -> None:
    (tmp_path / "cluster.yaml").write_text(f"version: 99\npipelines: {pipelines}\n")
    assert find_pipeline(str(tmp_path), "nightly").directory == str(tmp_path / folder)
    assert find_pipeline(f"file://{tmp_path}", "nightly").directory is None
