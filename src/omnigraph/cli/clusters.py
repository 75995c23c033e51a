"""Graphs that belong to a cluster: where they lie, and that their schemas are the cluster's to change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.cli.scope import ClusterScope, StoreScope
from omnigraph.errors import ConflictError

if TYPE_CHECKING:
    from omnigraph.cluster.serving import RunnablePipeline
    from omnigraph.embeddings.configuration import EmbeddingConfig
    from omnigraph.graph import Graph
    from omnigraph.pipeline import Pipeline


def graph_of(scope: ClusterScope) -> StoreScope:
    """The storage of a cluster's graph: the named one, or the only one. Looks at the ledger and at nothing else."""
    from omnigraph.cluster.ledger.ledger import read_applied

    applied = read_applied(scope.root)
    return StoreScope(applied.graph_uri(applied.one_graph(scope.graph)))


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster."""
    from omnigraph.cluster.ledger.ledger import cluster_around
    from omnigraph.engine.object_store import real_place

    cluster = cluster_around(real_place(uri))  # by a link, too
    if cluster is not None:
        raise ConflictError(
            f"'{uri}' is inside cluster '{cluster}'; declare it there and run `omnigraph cluster apply`"
        )


@dataclass(frozen=True, slots=True)
class OpenPipeline:
    """An applied pipeline and its graph, open. `embedding` is what the cluster says for the texts of the graph."""

    model: Pipeline
    graph: Graph
    applied: RunnablePipeline
    embedding: EmbeddingConfig | None

    def governed(self, actor: str | None, branch: str | None) -> Graph:
        """The graph as a run of this actor may change it, under the rules that the cluster has bound to it."""
        from omnigraph.api.access import AccessRequest
        from omnigraph.api.enums import PolicyAction
        from omnigraph.policy.gate import load_gate

        policy = self.applied.policy
        if policy is None:
            return self.graph
        gate = load_gate(policy.source, "graph", f"policy '{policy.name}'", self.applied.graph.graph_id)
        gate = gate.fitted(self.graph.snapshot("main").catalog)
        asked = AccessRequest(PolicyAction.CHANGE, (branch or self.model.branch).strip())
        return self.graph._with_gate(gate)._through(gate.sight(actor, asked))


@contextmanager
def applied_pipeline(cluster: str, name: str) -> Iterator[OpenPipeline]:
    """A pipeline as it was applied, whatever its file says now. Its commits are made under its name in the cluster."""
    import omnigraph
    from omnigraph.cluster.serving import find_pipeline
    from omnigraph.pipeline import read_pipeline

    found = find_pipeline(cluster, name)
    text = found.pipeline.source
    model = replace(read_pipeline(text, path=f"{name}.yaml", directory=found.directory), name=name)
    profile = found.graph.embedding
    with omnigraph.open(found.graph.uri, external_blobs=found.graph.own_blobs()) as graph:
        properties = [prop for node in graph.catalog.nodes.values() for prop in node.property_list]
        embeds = bool(model.embed) or any(prop.is_embedded_on_write for prop in properties)
        embedding = profile.resolved(os.environ) if profile is not None and embeds else None
        yield OpenPipeline(model, graph, found, embedding)
