"""A real cluster on a disk or in a bucket: graphs that were initialised, a ledger that names them, stored queries.

    cluster = make_cluster(place.uri)                           # one graph `kb`, two stored queries
    cluster = make_cluster(place.uri, {"kb": SCHEMA, "lab": SCHEMA}, {"kb": {"find": FIND}})

`cluster.root` is what a server boots from: with a scheme it is a storage root, and a local one also works as a
configuration directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import omnigraph
from omnigraph.api.governance import Limits
from omnigraph.cluster.payloads import PayloadStore
from omnigraph.cluster.resources import graph_address, schema_address
from omnigraph.cluster.state import (
    AppliedRevision,
    BlobPolicy,
    Resource,
    State,
    composite_digest,
    embedding_provider_digest,
    file_digest,
)
from omnigraph.cluster.state_ledger import Ledger, LedgerRevision
from omnigraph.cluster.storage_root import graph_uri, make_root
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.storage.objects import Objects

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person
"""
QUERIES = """
query find($name: String) @description("Looks a person up.") {
    match { $p: Person { name: $name } }
    return { $p.name, $p.age }
}

query add($name: String, $age: I32?) {
    insert Person { name: $name, age: $age }
}
"""
DEFAULT_QUERIES = {"find": QUERIES, "add": QUERIES}


@dataclass(frozen=True)
class Cluster:
    """A cluster that stands. `root` has a scheme, or is a local directory with a `cluster.yaml`."""

    root: str
    objects: Objects = field(repr=False)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.objects)

    @property
    def newest(self) -> LedgerRevision:
        found = self.ledger.newest()
        assert found is not None
        return found

    def graph_uri(self, graph_id: str) -> str:
        found = self.ledger.newest()
        return graph_uri(self.objects.location.uri, graph_id, 1 if found is None else found.state.generation(graph_id))

    def record(self, change: Callable[[dict[str, Resource]], None], *, cover: bool = True, **members: object) -> int:
        """Make the next revision with other resources; its number. `cover` brings the digests of graphs up to date."""
        before = self.newest
        resources = dict(before.state.resources)
        change(resources)
        return self._create(resources, before, cover, members)

    def _create(
        self, resources: dict[str, Resource], after: LedgerRevision | None, cover: bool, members: Mapping[str, object]
    ) -> int:
        applied = AppliedRevision(None, resources)
        state = State(state_revision=0, operation_id="", applied_revision=applied)
        if after is not None:
            state = msgspec.structs.replace(after.state, applied_revision=applied)
        state = msgspec.structs.replace(state, **members)
        for graph_id in state.graph_ids if cover else ():
            digest = composite_digest(state.resources, graph_id)
            address = graph_address(graph_id)
            resources[address] = msgspec.structs.replace(resources[address], digest=digest)
        return self.ledger.create(state, after).revision


def make_cluster(
    root: str | Path,
    graphs: Mapping[str, str] | None = None,
    queries: Mapping[str, Mapping[str, str]] | None = None,
    *,
    policies: Mapping[str, tuple[str, tuple[str, ...]]] | None = None,
    providers: Mapping[str, EmbeddingProfile] | None = None,
    embedding: Mapping[str, str] | None = None,
    blobs: Mapping[str, BlobPolicy] | None = None,
    pipelines: Mapping[str, tuple[str, str]] | None = None,
    init: bool = True,
) -> Cluster:
    """Graphs by id with their schemas, the sources of their stored queries by name, policies with text and scopes,
    embedding profiles by name, the provider each graph is bound to, pipelines with text and graph. With `init` false no
    graph is initialised."""
    graphs = {"kb": SCHEMA} if graphs is None else graphs
    queries = dict.fromkeys(graphs, DEFAULT_QUERIES) if queries is None else queries
    objects = make_root(str(root))
    if "://" not in str(root):
        Path(root, "cluster.yaml").write_text("version: 1\n")
    cluster = Cluster(str(root), objects)
    catalog = PayloadStore(objects)
    resources: dict[str, Resource] = {}
    for name, profile in (providers or {}).items():
        resources[f"provider.embedding.{name}"] = Resource(
            digest=embedding_provider_digest(profile), embedding_profile=profile
        )
    for graph_id, schema in graphs.items():
        if init:
            omnigraph.init(cluster.graph_uri(graph_id), schema).close()
        resources[schema_address(graph_id)] = Resource(digest=file_digest(schema.encode()))
        resources[graph_address(graph_id)] = Resource(
            digest="0" * 64,
            embedding_provider=(embedding or {}).get(graph_id),
            external_blob_policy=(blobs or {}).get(graph_id),
        )
        for name, source in queries.get(graph_id, {}).items():
            digest = catalog.write(f"query.{graph_id}.{name}", source.encode())
            resources[f"query.{graph_id}.{name}"] = Resource(digest=digest)
    for name, (source, scopes) in (policies or {}).items():
        digest = catalog.write(f"policy.{name}", source.encode())
        resources[f"policy.{name}"] = Resource(digest=digest, applies_to=tuple(sorted(scopes)))
    for name, (source, graph_id) in (pipelines or {}).items():
        digest = catalog.write(f"pipeline.{name}", source.encode())
        resources[f"pipeline.{name}"] = Resource(digest=digest, pipeline_graph=graph_address(graph_id))
    cluster._create(resources, None, True, {})
    return cluster


def open_graph(
    uri: str, embedder: Embedder | None, external_blobs: ExternalBlobPolicy | None, limits: Limits
) -> omnigraph.Graph:
    """How `omnigraph serve` opens a graph."""
    return omnigraph.open(uri, embedder=embedder, external_blobs=external_blobs, limits=limits)
