"""Booting a server: what refuses, what quarantines one graph, and how callers are treated."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision, Gate, Limits, QueryLimits
from omnigraph.cluster.payloads import PayloadStore
from omnigraph.cluster.state import (
    BlobBase,
    BlobPolicy,
    Resource,
    ResourceStatus,
    StatusKind,
    embedding_provider_digest,
)
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy, Scope
from omnigraph.errors import BadRequestError, BootRefusedError, ExternalBlobPolicyError
from omnigraph.policy.gate import WITHOUT_RULES, PolicyGate
from omnigraph.server.catalog import RuntimeState, Serving
from omnigraph.server.loader import PolicyLoader, boot, runtime_state, store_graph_id
from omnigraph.server.settings import ServerLimits, Settings
from omnigraph.server.tokens import Tokens
from tests.conftest import Place
from tests.support.clusters import QUERIES, SCHEMA, Cluster, make_cluster, open_graph
from tests.support.s3 import Fault, S3Server

SECRET = "hunter2-planted"
TOKEN = {"OMNIGRAPH_SERVER_BEARER_TOKEN": SECRET}
Change = Callable[[dict[str, Resource]], None]


class Opened:
    """Opens graphs, and knows which of them are still open."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.closed: list[str] = []
        self.given: dict[str, tuple[Embedder | None, ExternalBlobPolicy | None, Limits]] = {}

    def __call__(self, uri: str, embedder: Embedder | None, blobs: ExternalBlobPolicy | None, limits: Limits) -> Graph:
        graph = open_graph(uri, embedder, blobs, limits)
        self.uris.append(uri)
        self.given[Path(uri).stem] = embedder, blobs, limits
        graph._workspace.root.on_close(lambda: self.closed.append(uri))
        return graph

    @property
    def left_open(self) -> list[str]:
        return sorted((Counter(self.uris) - Counter(self.closed)).elements())


@pytest.fixture
def opened() -> Iterator[Opened]:
    yield (opened := Opened())
    assert opened.left_open == []


def settings(cluster: Cluster, **members: object) -> Settings:
    return Settings(cluster=cluster.root, **{"unauthenticated": True, **members})  # type: ignore[arg-type]


class Booted:
    """What a boot came to. Closed when the block ends."""

    def __init__(
        self,
        to_serve: Settings,
        opened: Opened,
        environment: Mapping[str, str] | None = None,
        load_policy: PolicyLoader | None = None,
        revision: int | None = None,
    ) -> None:
        more = {} if load_policy is None else {"load_policy": load_policy}
        self.serving, self.tokens = boot(to_serve, opened, environment or {}, revision, **more)

    def __enter__(self) -> tuple[Serving, Tokens]:
        return self.serving, self.tokens

    def __exit__(self, *_: object) -> None:
        self.serving.close()


def refusal(*arguments: object, **options: object) -> str:
    with pytest.raises(BootRefusedError) as error:
        Booted(*arguments, **options)  # type: ignore[arg-type]
    assert SECRET not in str(error.value)
    return str(error.value)


def with_members(address: str, **members: object) -> Change:
    def change(resources: dict[str, Resource]) -> None:
        resources[address] = msgspec.structs.replace(resources[address], **members)

    return change


# -- what is served


def test_all_graphs_with_their_queries(place: Place, opened: Opened) -> None:
    cluster = make_cluster(place.uri)
    limits = ServerLimits(load_rows=7, load_bytes=800, query_bytes=900, query_literals=5, query_depth=6)
    with Booted(settings(cluster, limits=limits), opened) as (serving, tokens):
        served = serving.graph("kb")
        assert serving.state is RuntimeState.OPEN
        assert (serving.revision, serving.quarantined, len(tokens)) == (1, {}, 0)
        assert served.owned_by_cluster
        assert served.graph._workspace.gate is serving.gate is WITHOUT_RULES
        assert list(served.queries) == ["add", "find"]
        stored = served.queries["find"]
        served.graph.load_lenient('{"type": "Person", "data": {"name": "Ada"}}', mode="append")
        assert served.graph.query(stored.source, "find", {"name": "Ada"}).rows() == [{"p.name": "Ada", "p.age": None}]
        assert opened.given["kb"] == (
            None,
            None,
            Limits(rows=7, bytes=800, query=QueryLimits(bytes=900, literals=5, depth=6)),
        )


def test_several_processes_can_ask_for_the_same_revision(cluster: Cluster, opened: Opened) -> None:
    cluster.record(lambda resources: [resources.pop(a) for a in ("graph.lab", "schema.lab")] and None)
    with Booted(settings(cluster), opened) as (newest, _):
        assert (newest.revision, list(newest.graphs)) == (2, ["kb"])
    with Booted(settings(cluster), opened, revision=1) as (first, _):
        assert (first.revision, list(first.graphs)) == (1, ["kb", "lab"])


def test_graphs_are_opened_four_at_a_time(made_once: Path, tmp_path: Path) -> None:
    ids = [f"g{n}" for n in range(6)]
    cluster = make_cluster(tmp_path, dict.fromkeys(ids, SCHEMA), {}, init=False)
    for graph_id in ids:
        shutil.copytree(made_once / "graphs" / "kb.omni", tmp_path / "graphs" / f"{graph_id}.omni")
    at_once, most, lock = [0], [0], threading.Lock()
    four = threading.Barrier(4)

    def counting(uri: str, *others: object) -> Graph:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        if Path(uri).stem in ids[:4]:
            four.wait(60)
        try:
            return omnigraph.open(uri)
        finally:
            with lock:
                at_once[0] -= 1

    serving, _ = boot(settings(cluster), counting, {})
    assert sorted(serving.graphs) == ids
    assert most == [4]
    serving.close()


# -- one graph without a cluster


@pytest.mark.parametrize(
    ("uri", "graph_id"),
    [
        ("/data/knowledge.omni", "knowledge"),
        ("s3://bucket/a/my-graph", "my-graph"),
        ("s3://bucket", "bucket"),
        ("/data/under_score.omni", "default"),
        ("/data/graphs", "default"),
        ("/data/openapi.omni", "default"),
        ("/data/.omni", "default"),
        ("/", "default"),
        (f"/data/{'x' * 65}", "default"),
    ],
)
def test_a_store_is_served_by_the_name_of_its_folder(uri: str, graph_id: str) -> None:
    assert store_graph_id(uri) == graph_id


def test_a_store_is_served_without_a_cluster(place: Place, opened: Opened) -> None:
    omnigraph.init(place.uri, SCHEMA).close()
    with Booted(Settings(store=place.uri, unauthenticated=True), opened) as (serving, _):
        served = serving.graph("graph")
        assert (serving.state, serving.revision, served.owned_by_cluster) == (RuntimeState.OPEN, None, False)
        assert served.queries == {}
    assert "OMNIGRAPH_UNAUTHENTICATED" in refusal(Settings(store=place.uri), opened)
    with Booted(Settings(store=place.uri, unauthenticated=True), opened, TOKEN) as (serving, tokens):
        assert serving.state is RuntimeState.DEFAULT_DENY
        assert tokens.actor_of(SECRET) == "default"


def test_a_store_that_a_cluster_owns_stays_its_own(cluster: Cluster, tmp_path: Path, opened: Opened) -> None:
    (tmp_path / "current").symlink_to(cluster.graph_uri("kb"))
    for store, graph_id in ((cluster.graph_uri("kb"), "kb"), (str(tmp_path / "current"), "current")):
        with Booted(Settings(store=store, unauthenticated=True), opened) as (serving, _):
            assert serving.graph(graph_id).owned_by_cluster


@pytest.mark.parametrize("store", ["", "ftp://x/y", "s3://u:hunter2-planted@b/x", "/does/not/exist.omni"])
def test_a_store_that_is_none(store: str, opened: Opened) -> None:
    refusal(Settings(store=store, unauthenticated=True), opened)


# -- refusals


def test_a_server_boots_from_something(opened: Opened) -> None:
    assert "boots from a cluster" in refusal(Settings(unauthenticated=True), opened)
    assert "not both" in refusal(Settings(cluster="x", store="y", unauthenticated=True), opened)


def test_fatal_findings_are_all_printed(cluster: Cluster, tmp_path: Path, opened: Opened) -> None:
    assert "ERROR cluster_state_missing __cluster/state" in refusal(Settings(cluster=f"file://{tmp_path}"), opened)
    for name in ("find", "add"):
        cluster.record(with_members(f"query.kb.{name}", digest="a" * 64))
    message = refusal(settings(cluster), opened)
    assert message.count("ERROR catalog_payload_missing") == 2
    assert opened.uris == []


def test_token_errors_refuse_before_a_graph_is_opened(cluster: Cluster, opened: Opened) -> None:
    text = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": f'{{"ana": "{SECRET}", "bob": "{SECRET}"}}'}
    assert "same token" in refusal(settings(cluster), opened, text)
    assert opened.uris == []


def test_one_place_under_two_ids_is_refused(cluster: Cluster, opened: Opened) -> None:
    shutil.rmtree(cluster.graph_uri("lab"))
    os.symlink(cluster.graph_uri("kb"), cluster.graph_uri("lab"))
    assert "graphs kb, lab are all at" in refusal(settings(cluster), opened)
    assert opened.uris == []


# -- how callers are treated


@pytest.mark.parametrize(
    ("tokens", "policy", "unauthenticated", "expected"),
    [
        (False, False, True, RuntimeState.OPEN),
        (False, False, False, "--unauthenticated (OMNIGRAPH_UNAUTHENTICATED=1)"),
        (True, False, False, RuntimeState.DEFAULT_DENY),
        (True, False, True, RuntimeState.DEFAULT_DENY),
        (False, True, False, "every request would 401"),
        (False, True, True, "policy file is configured but no bearer tokens"),
        (True, True, False, RuntimeState.POLICY_ENABLED),
        (True, True, True, RuntimeState.POLICY_ENABLED),
    ],
)
def test_the_runtime_state(tokens: bool, policy: bool, unauthenticated: bool, expected: RuntimeState | str) -> None:
    if isinstance(expected, RuntimeState):
        assert runtime_state(tokens, policy, unauthenticated) is expected
    else:
        with pytest.raises(BootRefusedError) as error:
            runtime_state(tokens, policy, unauthenticated)
        assert expected in str(error.value)


def test_a_public_address_without_tokens_has_to_be_asked_for(tmp_path: Path, opened: Opened) -> None:
    store = str(tmp_path / "kb")
    omnigraph.init(store, SCHEMA).close()
    for host in ("0.0.0.0", "::", "10.0.0.5", "myhost"):
        public = Settings(store=store, unauthenticated=True, host=host)
        assert "--insecure-public (OMNIGRAPH_INSECURE_PUBLIC=1)" in refusal(public, opened)
        assert "--insecure-public" in refusal(public, opened, {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": "{}"})
    assert opened.uris == []
    for settings in (replace(public, insecure_public=True), *(replace(public, host=h) for h in ("::1", "localhost"))):
        with Booted(settings, opened) as (serving, _):
            assert serving.state is RuntimeState.OPEN
    with Booted(public, opened, TOKEN) as (serving, _):
        assert serving.state is RuntimeState.DEFAULT_DENY


class Rules:
    """A gate that allows what its text names."""

    def __init__(self, source: str, kind: str, label: str) -> None:
        if source == "broken":
            raise BadRequestError(f"{label}: does not parse")
        self.source, self.kind, self.label = source, kind, label

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        return Decision(request.action in self.source, self.label)


def load_rules(source: str, kind: str, label: str, graph_id: str | None = None) -> Gate:
    return Rules(source, kind, label)


def bound(cluster: Cluster, **policies: tuple[str, tuple[str, ...]]) -> Cluster:
    def change(resources: dict[str, Resource]) -> None:
        for name, (source, scopes) in policies.items():
            digest = PayloadStore(cluster.objects).write(f"policy.{name}", source.encode())
            resources[f"policy.{name}"] = Resource(digest=digest, applies_to=scopes)

    cluster.record(change)
    return cluster


def test_each_scope_gets_its_own_rules(cluster: Cluster, opened: Opened) -> None:
    bound(cluster, main=("read change", ("graph.kb",)), top=("graph_list", ("cluster",)))
    with Booted(settings(cluster), opened, TOKEN, load_rules) as (serving, _):
        assert serving.state is RuntimeState.POLICY_ENABLED
        assert isinstance(serving.gate, Rules)
        assert (serving.gate.kind, serving.gate.label) == ("server", "policy 'top'")
        gate = serving.graph("kb").graph._workspace.gate
        assert isinstance(gate, Rules)
        assert (gate.kind, gate.label) == ("graph", "policy 'main'")
        assert gate.decide("ana", AccessRequest(PolicyAction.CHANGE)).allowed
        assert serving.graph("lab").graph._workspace.gate is WITHOUT_RULES


@pytest.mark.parametrize("scopes", [("cluster",), ("graph.lab",)])
def test_rules_without_tokens_are_refused(cluster: Cluster, opened: Opened, scopes: tuple[str, ...]) -> None:
    bound(cluster, main=("read", scopes))
    assert "every request would 401" in refusal(settings(cluster), opened, {}, load_rules)


def test_rules_of_a_graph_that_fails_count_as_rules(cluster: Cluster, opened: Opened) -> None:
    """Otherwise a graph that breaks would open its neighbours to everybody."""
    bound(cluster, main=("read", ("graph.kb",)))
    shutil.rmtree(cluster.graph_uri("kb"))
    assert "every request would 401" in refusal(settings(cluster), opened, {}, load_rules)
    with Booted(settings(cluster), opened, TOKEN, load_rules) as (serving, _):
        assert serving.state is RuntimeState.POLICY_ENABLED


def test_two_bundles_on_one_scope_are_refused(cluster: Cluster, opened: Opened) -> None:
    bound(cluster, a=("read", ("cluster", "graph.kb")), b=("read", ("cluster",)), c=("read", ("graph.kb",)))
    message = refusal(settings(cluster), opened, TOKEN, load_rules)
    assert "policies 'a' and 'b' are both bound to 'cluster'" in message
    assert "policies 'a' and 'c' are both bound to 'graph.kb'" in message


@pytest.mark.parametrize("scope", ["kb", "schema.kb", "graph.", "everything", "graph.kb.x"])
def test_an_unknown_binding_is_refused(cluster: Cluster, opened: Opened, scope: str) -> None:
    bound(cluster, a=("read", ("graph.kb", scope)))
    assert f"'a' is bound to '{scope}'" in refusal(settings(cluster), opened, TOKEN, load_rules)


def test_rules_that_do_not_load(cluster: Cluster, opened: Opened) -> None:
    bound(cluster, main=("broken", ("graph.kb",)))
    with Booted(settings(cluster), opened, TOKEN, load_rules) as (serving, _):
        assert list(serving.graphs) == ["lab"]
        assert serving.quarantined == {"kb": "policy 'main': does not parse"}
    bound(cluster, main=("read", ("graph.kb",)), top=("broken", ("cluster",)))
    assert "policy 'top': does not parse" in refusal(settings(cluster), opened, TOKEN, load_rules)


READERS = """\
version: 1
groups: {readers: [ana]}
rules:
  - id: readers-read
    allow: {actors: {group: readers}, actions: [read]}
"""
LISTERS = READERS.replace("[read]", "[graph_list]")


def test_bundles_are_compiled_by_themselves(cluster: Cluster, opened: Opened) -> None:
    bound(cluster, main=(READERS, ("graph.kb",)), top=(LISTERS, ("cluster",)))
    with Booted(settings(cluster), opened, TOKEN) as (serving, _):
        assert serving.state is RuntimeState.POLICY_ENABLED
        assert serving.gate.decide("ana", AccessRequest(PolicyAction.GRAPH_LIST)).matched_rule_id == "readers-read"
        gate = serving.graph("kb").graph._workspace.gate
        assert gate.decide("ana", AccessRequest(PolicyAction.READ)).matched_rule_id == "readers-read"
        assert not gate.decide("ana", AccessRequest(PolicyAction.CHANGE, "main")).allowed
        assert isinstance(gate, PolicyGate)
        assert 'Omnigraph::Graph::"kb"' in gate.rules.text


def test_a_bundle_of_the_wrong_kind_closes_what_it_governs(cluster: Cluster, opened: Opened) -> None:
    bound(cluster, main=(LISTERS, ("graph.kb",)))
    with Booted(settings(cluster), opened, TOKEN) as (serving, _):
        assert list(serving.graphs) == ["lab"]
        assert "policy 'main':5:" in serving.quarantined["kb"]
        assert "Graph policy file" in serving.quarantined["kb"]
        assert serving.state is RuntimeState.POLICY_ENABLED
    bound(cluster, top=(READERS, ("cluster",)))
    assert "Server policy file" in refusal(settings(cluster), opened, TOKEN)


# -- quarantine


def rename(resources: dict[str, Resource]) -> None:
    for kind in ("graph", "schema"):
        resources[f"{kind}.a_b"] = resources.pop(f"{kind}.kb")
    for name in ("find", "add"):
        del resources[f"query.kb.{name}"]


def reserve(resources: dict[str, Resource]) -> None:
    for kind in ("graph", "schema"):
        resources[f"{kind}.openapi"] = resources[f"{kind}.kb"]


def stored(source: str) -> Callable[[Cluster], None]:
    def change(cluster: Cluster) -> None:
        digest = PayloadStore(cluster.objects).write("query.kb.find", source.encode())
        cluster.record(with_members("query.kb.find", digest=digest))

    return change


def embedded(profile: EmbeddingProfile) -> Callable[[Cluster], None]:
    def change(cluster: Cluster) -> None:
        provider = Resource(digest=embedding_provider_digest(profile), embedding_profile=profile)
        cluster.record(lambda resources: resources.update({"provider.embedding.p": provider}))
        cluster.record(with_members("graph.kb", embedding_provider="provider.embedding.p"))

    return change


def blobs(*bases: BlobBase) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.record(with_members("graph.kb", external_blob_policy=BlobPolicy("allow", bases)))


def newer_format(cluster: Cluster) -> None:
    identity = Path(cluster.graph_uri("kb"), "__manifest/graph.json")
    identity.write_text(identity.read_text().replace('"format":6', '"format":7'))


CAUSES: dict[str, tuple[Callable[[Cluster], object], str, str]] = {
    "id": (lambda cluster: cluster.record(rename), "a_b", "letters, digits and hyphens"),
    "reserved id": (lambda cluster: cluster.record(reserve), "openapi", "reserved"),
    "parse": (stored("query find( {"), "kb", "stored query 'find'"),
    "name": (stored("query other() { match { $p: Person } return { $p.name } }"), "kb", "'find' not found"),
    "type": (stored("query find() { match { $p: Alien } return { $p.name } }"), "kb", "Alien"),
    "secret": (embedded(EmbeddingProfile(kind="openai", api_key="${ABSENT_KEY}")), "kb", "ABSENT_KEY"),
    "inline secret": (embedded(EmbeddingProfile(kind="openai", api_key=SECRET)), "kb", "has to name a variable"),
    "local blobs": (blobs(BlobBase("file:///tmp/", Scope.SERVER_SAFE)), "kb", "server safe"),
    "user in blobs": (blobs(BlobBase(f"s3://u:{SECRET}@b/", Scope.SERVER_SAFE)), "kb", "<redacted>"),
    "missing": (lambda cluster: shutil.rmtree(cluster.graph_uri("kb")), "kb", "no graph"),
    "format": (newer_format, "kb", "upgrade omnigraph first"),
    "damage": (lambda c: Path(c.graph_uri("kb"), "__manifest/graph.json").write_text("{"), "kb", "graph.json"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_one_bad_graph_does_not_stop_the_others(
    cluster: Cluster, opened: Opened, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    change, graph_id, reason = CAUSES[cause]
    change(cluster)
    with caplog.at_level(logging.DEBUG), Booted(settings(cluster), opened) as (serving, _):
        assert list(serving.quarantined) == [graph_id]
        assert reason in serving.quarantined[graph_id]
        assert "lab" in serving.graphs
        assert graph_id not in serving.graphs
        assert opened.left_open == sorted(served.graph.uri for served in serving.graphs.values())
    (warning,) = [record for record in caplog.records if "quarantined" in record.getMessage()]
    assert warning.levelno == logging.WARNING
    assert reason in warning.getMessage()
    assert SECRET not in caplog.text
    strict = refusal(settings(cluster, require_all_graphs=True), opened)
    assert "strict" in strict
    assert reason in strict


def test_a_local_base_is_refused_before_the_graph_is_opened(cluster: Cluster, opened: Opened) -> None:
    blobs(BlobBase("file:///tmp/", Scope.SERVER_SAFE))(cluster)
    with Booted(settings(cluster), opened):
        assert opened.uris == [cluster.graph_uri("lab")]


def test_a_graph_in_doubt_is_quarantined_and_refuses_strictly(
    cluster: Cluster, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    doubt = {"graph.kb": ResourceStatus(StatusKind.ERROR, ("graph_create_incomplete",))}
    cluster.record(lambda _: None, resource_statuses=doubt)
    with Booted(settings(cluster), opened) as (serving, _):
        assert list(serving.graphs) == ["lab"]
        assert "graph_create_incomplete" in serving.quarantined["kb"]
    assert "graph 'kb' is quarantined: the last apply left it pending" in caplog.text
    strict = refusal(settings(cluster, require_all_graphs=True), opened)
    assert "strict" in strict
    assert "WARN  cluster_recovery_pending graph.kb" in strict


def test_no_healthy_graph_refuses(cluster: Cluster, opened: Opened) -> None:
    for graph_id in ("kb", "lab"):
        shutil.rmtree(cluster.graph_uri(graph_id))
    message = refusal(settings(cluster), opened)
    assert message.startswith("no healthy graphs\n")
    assert "graph 'kb': " in message
    assert "graph 'lab': " in message


def test_strict_is_content_with_healthy_graphs(cluster: Cluster, opened: Opened) -> None:
    with Booted(settings(cluster, require_all_graphs=True), opened) as (serving, _):
        assert len(serving.graphs) == 2


def test_something_unforeseen_harms_one_graph_only(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    def failing(uri: str, *given: object) -> Graph:
        if uri.endswith("kb.omni"):
            raise ZeroDivisionError("odd")
        return opened(uri, *given)  # type: ignore[arg-type]

    serving, _ = boot(settings(cluster), failing, {})
    serving.close()
    assert "ZeroDivisionError" in serving.quarantined["kb"]
    causes = [str(record.exc_info[1]) for record in caplog.records if record.exc_info is not None]
    assert causes == ["odd"]


def test_an_interrupted_boot_leaves_no_graph_open(cluster: Cluster, opened: Opened) -> None:
    def interrupted(uri: str, *given: object) -> Graph:
        if uri.endswith("lab.omni"):
            raise KeyboardInterrupt
        return opened(uri, *given)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        boot(settings(cluster), interrupted, {})


def test_a_store_that_does_not_answer_refuses(s3_server: S3Server, s3_place: Place, opened: Opened) -> None:
    cluster = make_cluster(s3_place.uri, init=False)
    with s3_server.broken(lambda method, path: Fault(403)):
        assert "state_read_error" in refusal(settings(cluster), opened)
    assert "no healthy graphs" in refusal(settings(cluster), opened)


# -- what a graph is opened with


def test_a_profile_becomes_what_embeds(cluster: Cluster, opened: Opened) -> None:
    embedded(EmbeddingProfile(kind="mock", model="m"))(cluster)
    with Booted(settings(cluster), opened):
        embedder = opened.given["kb"][0]
        assert embedder is not None
        assert embedder.model == "m"
        assert embedder.embed_query("text", 3).shape == (3,)
        assert opened.given["lab"][0] is None


def test_only_bases_for_servers_reach_a_served_graph(cluster: Cluster, opened: Opened) -> None:
    blobs(BlobBase("s3://b/p/", Scope.SERVER_SAFE), BlobBase("file:///does/not/exist/", Scope.EMBEDDED_ONLY))(cluster)
    with Booted(settings(cluster), opened) as (serving, _):
        policy = serving.graph("kb").graph._workspace.external_blobs
        assert policy.admit("s3://b/p/x") == "s3://b/p/x"
        with pytest.raises(ExternalBlobPolicyError):
            policy.admit("file:///does/not/exist/x")
        assert opened.given["lab"][1] is None


def test_unused_queries_of_a_file_need_not_fit(cluster: Cluster, opened: Opened) -> None:
    stored(QUERIES + "query alien() { match { $a: Alien } return { $a } }")(cluster)
    with Booted(settings(cluster), opened) as (serving, _):
        assert serving.quarantined == {}
