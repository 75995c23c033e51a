"""The pipelines of an applied state, with the last commit that each made. Opens the graphs they load and no other."""

from __future__ import annotations

from collections import defaultdict

from omnigraph.api.cluster import AppliedPipeline
from omnigraph.api.commits import CommitReceipt
from omnigraph.cluster.addresses import Address, Kind, graph_address
from omnigraph.cluster.applied import Applied
from omnigraph.cluster.catalog import Catalog, pipeline_path
from omnigraph.cluster.diagnostics import Diagnostic, warning
from omnigraph.cluster.serving import ClusterPipeline
from omnigraph.engine.history.pipeline_runs import last_runs
from omnigraph.errors import IntegrityError, NotFoundError, OmniGraphError, StorageError


def pipelines_with_runs(applied: Applied) -> tuple[tuple[AppliedPipeline, ...], list[Diagnostic]]:
    """Sorted by name. What can't be told keeps nobody from the rest: a graph that does not open is a finding, and a
    file that is damaged is one of those who verify payloads."""
    found: list[Diagnostic] = []
    by_graph: defaultdict[str, list[ClusterPipeline]] = defaultdict(list)
    for pipeline in _readable(applied):
        by_graph[pipeline.graph_id].append(pipeline)
    told = []
    for graph_id, pipelines in by_graph.items():
        last: dict[str, CommitReceipt] = {}
        try:
            last = last_runs(applied.graph_uri(graph_id), {pipeline.name: pipeline.branch for pipeline in pipelines})
        except OmniGraphError as problem:
            message = f"when its pipelines last ran can't be told: {problem}"
            found.append(warning("graph_observation_error", graph_address(graph_id), message))
        told += [
            AppliedPipeline(
                name=pipeline.name,
                graph_id=graph_id,
                branch=pipeline.branch,
                digest=pipeline.digest,
                last_commit=last.get(pipeline.name),
            )
            for pipeline in pipelines
        ]
    return tuple(sorted(told, key=lambda pipeline: pipeline.name)), found


def _readable(applied: Applied) -> list[ClusterPipeline]:
    catalog, found = Catalog(applied.store), []
    for address, resource in applied.state.of_kind(Kind.PIPELINE):
        graph = Address.parse(resource.pipeline_graph or "")
        path = pipeline_path(address.name, resource.digest)
        try:
            source = catalog.read(path, resource.digest).decode("utf-8")
        except (NotFoundError, IntegrityError, StorageError, UnicodeDecodeError):
            continue
        if graph is not None:
            found.append(ClusterPipeline(address.name, graph.name, resource.digest, source))
    return found
