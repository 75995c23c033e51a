"""The part of an applied state that a server or a pipeline run needs: graphs, queries, rules and pipelines, verified.

`read_serving` takes no lock and changes nothing. It reports all problems in one pass. A graph that the last apply left
pending is quarantined with a warning; every other problem is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from omnigraph.cluster.configuration import CONFIG_FILE, read_root
from omnigraph.cluster.payloads import PayloadStore, payload_path
from omnigraph.cluster.resources import Address, ClusterError, Diagnostic, Kind, error, graph_address, warning
from omnigraph.cluster.state import BlobPolicy, Resource, State, composite_digest, embedding_provider_digest
from omnigraph.cluster.state_ledger import read_applied, revision_path
from omnigraph.cluster.storage_root import graph_uri
from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import CompileError, IntegrityError, NotFoundError, StorageError
from omnigraph.storage.objects import Objects
from omnigraph.yaml_documents import YamlDocument

_READS_AT_ONCE: Final = 8
_IN_DOUBT: Final = frozenset({"graph_create_incomplete", "actual_applied_state_pending"})
"""Conditions of a graph whose changes the last apply could not finish."""


@dataclass(frozen=True, slots=True)
class ClusterGraph:
    """An applied graph with its settings. The machine that serves it opens it with its own keys."""

    graph_id: str
    uri: str
    embedding: EmbeddingProfile | None = None
    blobs: BlobPolicy | None = None
    digest: str = field(default="", compare=False)
    """The digest of everything that was applied for it. It makes no difference for opening the graph."""

    def embedder(self, environment: Mapping[str, str]) -> Embedder | None:
        """The client that embeds its query texts, with a key from these variables; None without a profile."""
        return None if self.embedding is None else open_client(self.embedding.resolve(environment), environment)

    def own_blobs(self) -> ExternalBlobPolicy | None:
        """The allowed external blobs for a process that opens the graph itself; None when none are allowed."""
        bases = self.blobs.bases if self.blobs is not None else ()
        return ExternalBlobPolicy([AllowedBase(base.uri, base.scope) for base in bases]) if bases else None

    def served_blobs(self) -> ExternalBlobPolicy | None:
        """The allowed external blobs for the clients of a server; None when none are allowed. Bases for embedded use
        are left out; a local base with the scope of servers is refused."""
        bases = self.blobs.bases if self.blobs is not None else ()
        safe = [AllowedBase(base.uri, base.scope) for base in bases if base.scope is Scope.SERVER_SAFE]
        return ExternalBlobPolicy(safe) if safe else None


@dataclass(frozen=True, slots=True)
class ClusterQuery:
    """A stored query. `source` is the whole file that declares it."""

    graph_id: str
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """A policy bundle with its bindings: `cluster` or `graph.<id>`."""

    name: str
    source: str = field(repr=False)
    applies_to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterPipeline:
    """A pipeline file, and the graph that it loads."""

    name: str
    graph_id: str
    digest: str
    source: str = field(repr=False)

    @property
    def branch(self) -> str:
        """The branch in the file, else `main`."""
        try:
            value = YamlDocument(self.source, scalars_are_texts=True).root().find("branch")
        except CompileError:
            return "main"
        return (value.text().value.strip() if value is not None else "") or "main"


@dataclass(frozen=True, slots=True)
class ServingSnapshot:
    """One applied state. `warnings` has a finding for each quarantined graph."""

    root: str
    revision: int
    graphs: tuple[ClusterGraph, ...]
    queries: tuple[ClusterQuery, ...] = ()
    policies: tuple[ClusterPolicy, ...] = ()
    pipelines: tuple[ClusterPipeline, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()


def read_serving(source: str, revision: int | None = None, *, is_root: bool = False) -> ServingSnapshot:
    """The newest state, or that of one revision; `is_root` as in `read_applied`. Raises `ClusterError`."""
    applied = read_applied(source, revision, is_root=is_root)
    return _Verification(applied.objects, applied.state).snapshot()


Made = TypeVar("Made")


class _Verification:
    """One pass over a state that collects all problems."""

    def __init__(self, objects: Objects, state: State) -> None:
        self._objects = objects
        self._catalog = PayloadStore(objects)
        self._state = state
        self._findings: list[Diagnostic] = []
        self._quarantined = {
            graph_id: f"the last apply left it pending ({', '.join(sorted(doubts))})"
            for graph_id in state.graph_ids
            if (doubts := state.conditions(graph_id) & _IN_DOUBT)
        }
        self._served = [graph_id for graph_id in state.graph_ids if graph_id not in self._quarantined]

    def snapshot(self) -> ServingSnapshot:
        warnings = tuple(
            warning("cluster_recovery_pending", graph_address(graph_id), f"{reason}; run `omnigraph cluster apply`")
            for graph_id, reason in self._quarantined.items()
        )
        if not self._served:
            code = "cluster_no_healthy_graphs" if self._quarantined else "cluster_empty"
            message = "the applied state has no graph"
            if self._quarantined:
                message = "every graph of the applied state is quarantined"
            raise ClusterError([*warnings, error(code, revision_path(self._state.state_revision), message)])
        graphs = tuple(map(self._graph, self._served))
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="omnigraph-catalog") as readers:

            def make_all(kind: Kind, make: Callable[[Address, Resource], Made | None]) -> tuple[Made, ...]:
                made = readers.map(lambda entry: make(*entry), self._state.of_kind(kind))
                return tuple(each for each in made if each is not None)

            queries = make_all(Kind.QUERY, self._query)
            policies = make_all(Kind.POLICY, self._policy)
            pipelines = make_all(Kind.PIPELINE, self._pipeline)
        if self._findings:
            raise ClusterError([*warnings, *sorted(self._findings, key=lambda finding: finding.path)])
        root, revision = self._objects.location.uri, self._state.state_revision
        return ServingSnapshot(root, revision, graphs, queries, policies, pipelines, self._quarantined, warnings)

    def _graph(self, graph_id: str) -> ClusterGraph:
        address = graph_address(graph_id)
        resource = self._state.resources[address]
        embedding = self._embedding(address, resource.embedding_provider)
        if composite_digest(self._state.resources, graph_id) != resource.digest:
            message = "its digest does not match its record; run `omnigraph cluster apply`"
            self._findings.append(error("external_blob_policy_digest_mismatch", address, message))
        uri = graph_uri(self._objects.location.uri, graph_id, self._state.generation(graph_id))
        return ClusterGraph(graph_id, uri, embedding, resource.external_blob_policy, resource.digest)

    def _embedding(self, graph: str, provider: str | None) -> EmbeddingProfile | None:
        if provider is None:
            return None
        address = Address.parse(provider)
        recorded = self._state.resources.get(provider)
        if address is None or address.kind is not Kind.EMBEDDING_PROVIDER:
            finding = error("wrong_kind_reference", graph, f"'{provider}' is not an embedding provider")
        elif recorded is None:
            finding = error("embedding_provider_missing", graph, f"'{provider}' is not in the applied state")
        elif recorded.embedding_profile is None:
            finding = error("embedding_provider_profile_missing", provider, "the applied state has no profile for it")
        elif embedding_provider_digest(recorded.embedding_profile) != recorded.digest:
            finding = error("embedding_provider_digest_mismatch", provider, "its digest is not that of its profile")
        else:
            return recorded.embedding_profile
        self._findings.append(finding)
        return None

    def _query(self, address: Address, resource: Resource) -> ClusterQuery | None:
        source = self._payload(address, resource) if address.graph in self._served else None
        return None if source is None else ClusterQuery(address.graph or "", address.name, source)

    def _policy(self, address: Address, resource: Resource) -> ClusterPolicy | None:
        """A policy without its bindings to graphs that are not served; None when it has no other binding."""
        scopes = tuple(scope for scope in resource.applies_to or () if not self._is_unserved_graph(scope))
        if not resource.applies_to:
            message = "the applied state has no bindings for it; run `omnigraph cluster apply`"
            self._findings.append(error("policy_bindings_missing", str(address), message))
        source = self._payload(address, resource) if scopes else None
        return None if source is None else ClusterPolicy(address.name, source, scopes)

    def _pipeline(self, address: Address, resource: Resource) -> ClusterPipeline | None:
        if self._is_unserved_graph(resource.pipeline_graph):
            return None
        graph = Address.parse(resource.pipeline_graph or "")
        if graph is None or graph.kind is not Kind.GRAPH:
            message = f"'{resource.pipeline_graph}' is not a graph; run `omnigraph cluster apply`"
            self._findings.append(error("unknown_pipeline_graph", str(address), message))
            return None
        source = self._payload(address, resource)
        return None if source is None else ClusterPipeline(address.name, graph.name, resource.digest, source)

    def _is_unserved_graph(self, scope: str | None) -> bool:
        """Whether a binding is to a graph that is quarantined or missing. A binding to something else is kept, because
        it has to be refused."""
        address = Address.parse(scope or "")
        return address is not None and address.kind is Kind.GRAPH and address.name not in self._served

    def _payload(self, address: Address, resource: Resource) -> str | None:
        try:
            return self._catalog.read(str(address), resource.digest).decode("utf-8")
        except NotFoundError as problem:
            finding = error("catalog_payload_missing", str(address), str(problem))
        except IntegrityError as problem:
            finding = error("catalog_payload_digest_mismatch", str(address), str(problem))
        except StorageError as problem:
            finding = error("catalog_payload_read_error", str(address), str(problem))
        except UnicodeDecodeError:
            path = payload_path(str(address), resource.digest)
            finding = error("catalog_payload_read_error", str(address), f"{path} is not UTF-8 text")
        self._findings.append(finding)
        return None


@dataclass(frozen=True, slots=True)
class RunnablePipeline:
    """A pipeline of the newest applied state. Relative paths in its file start at `directory`, the directory of the
    file it was applied from; None when the cluster was addressed by its storage root."""

    pipeline: ClusterPipeline
    graph: ClusterGraph
    policy: ClusterPolicy | None
    directory: str | None


def find_pipeline(source: str, name: str) -> RunnablePipeline:
    """The applied pipeline of that name. Raises `ClusterError`."""
    snapshot = read_serving(source)
    pipeline = next((pipeline for pipeline in snapshot.pipelines if pipeline.name == name), None)
    if pipeline is None:
        names = ", ".join(pipeline.name for pipeline in snapshot.pipelines) or "none"
        message = f"pipeline '{name}' can't be run in cluster '{snapshot.root}'; pipelines that can: {names}"
        raise ClusterError.of("pipeline_not_applied", f"pipeline.{name}", message)
    graph = next(graph for graph in snapshot.graphs if graph.graph_id == pipeline.graph_id)
    scope = graph_address(graph.graph_id)
    policy = next((policy for policy in snapshot.policies if scope in policy.applies_to), None)
    directory = None if "://" in source else _directory(Path(source).expanduser().absolute(), name)
    return RunnablePipeline(pipeline, graph, policy, directory)


def _directory(config: Path, name: str) -> str:
    """The directory of a pipeline file, according to the current configuration. Other mistakes in the configuration
    don't matter for running what was applied."""
    value = read_root(config / CONFIG_FILE).find("pipelines", name, "file")
    return str(config if value is None else (config / value.text().value).parent)
