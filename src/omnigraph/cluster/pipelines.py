"""A pipeline that a cluster has applied, with everything that a run of it needs: the file, the graph, the rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.config_text import Values, compose
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.serving import ClusterGraph, ClusterPipeline, ClusterPolicy, read_serving
from omnigraph.cluster.storage_root import CONFIG_FILE, read_text


@dataclass(frozen=True, slots=True)
class RunnablePipeline:
    """Of the newest applied state. `directory` is where relative paths of the file begin: beside the file it was
    applied from. None when the cluster was named by its storage root, which knows no such place."""

    pipeline: ClusterPipeline
    graph: ClusterGraph
    policy: ClusterPolicy | None
    directory: str | None


def find_pipeline(source: str, name: str) -> RunnablePipeline:
    """The applied pipeline of that name. Raises `ClusterError`."""
    snapshot = read_serving(source)
    found = next((pipeline for pipeline in snapshot.pipelines if pipeline.name == name), None)
    if found is None:
        names = ", ".join(pipeline.name for pipeline in snapshot.pipelines) or "none"
        raise ClusterError.of(
            "pipeline_not_applied",
            f"pipeline.{name}",
            f"pipeline '{name}' can't be run in cluster '{snapshot.root}'; applied for graphs that stand: {names}",
        )
    graph = next(graph for graph in snapshot.graphs if graph.graph_id == found.graph_id)
    scope = graph_address(graph.graph_id)
    policy = next((policy for policy in snapshot.policies if scope in policy.applies_to), None)
    directory = None if "://" in source else _directory(Path(source).expanduser().absolute(), name)
    return RunnablePipeline(found, graph, policy, directory)


def _directory(config: Path, name: str) -> str:
    """Where the file of a pipeline lies, by the configuration as it is now. What else is wrong with that is of no
    concern to somebody who runs what was applied."""
    values = Values()
    node: yaml.Node | None = compose(read_text(config / CONFIG_FILE))
    for key in ("pipelines", name, "file"):
        node = dict(values.entries(node, key)).get(key)
    return str(config if node is None else (config / values.text(node, "file")).parent)
