"""The serving set of a server: graphs by id, each with its stored queries, and the gate of the server itself.

`loader` builds it and every request reads it. It is immutable: a server that follows its cluster replaces it by another
one (`reload`), which may share open graphs with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.api.governance import Gate
from omnigraph.api.queries import StoredQuery
from omnigraph.cluster.resources import SERVED_ID
from omnigraph.cluster.serving import ClusterGraph, ClusterPolicy
from omnigraph.engine.history.commits import PipelineRuns
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.policy.gate import WITHOUT_RULES


class RuntimeState(StrEnum):
    """How a server treats its callers. It is fixed when the server starts."""

    OPEN = "open"
    """No authentication; every action on one graph is allowed."""
    DEFAULT_DENY = "default_deny"
    """Every caller authenticates and may read, nothing else."""
    POLICY_ENABLED = "policy_enabled"
    """Every caller authenticates, and a policy says what it may do."""


@dataclass(frozen=True, slots=True)
class StoredQuerySource:
    """A stored query: the text that declares it, and its description for callers."""

    source: str
    entry: StoredQuery


@dataclass(frozen=True, slots=True)
class AppliedPipeline:
    """A pipeline that loads a graph: its file's digest, and the branch that the file names."""

    name: str
    digest: str
    branch: str


@dataclass(frozen=True, slots=True)
class MadeOf:
    """The applied parts of a graph. If they are the same in the next revision, the graph is not opened again."""

    graph: ClusterGraph
    digest: str
    policy: ClusterPolicy | None
    pipelines: tuple[AppliedPipeline, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """One graph that is served. `owned_by_cluster` means that its schema changes by `cluster apply` alone."""

    graph_id: str
    graph: Graph
    queries: Mapping[str, StoredQuerySource] = field(default_factory=dict)
    owned_by_cluster: bool = False
    made_of: MadeOf | None = None
    pipelines: Sequence[AppliedPipeline] = ()
    runs: PipelineRuns = field(default_factory=PipelineRuns, compare=False)

    @property
    def policy(self) -> ClusterPolicy | None:
        """The rules that are bound to the graph."""
        return None if self.made_of is None else self.made_of.policy

    @property
    def opened(self) -> object:
        """The open storage of the graph, which handles with other policies share and which is closed once."""
        return self.graph._workspace.root

    @property
    def public_uri(self) -> str:
        """Where the graph is, for clients: its storage if they may have access to it too, else its path on this server.
        A path on the disk of the server is useless to clients and would reveal how the machine is set up."""
        return f"/graphs/{self.graph_id}" if "://" not in self.graph.uri else self.graph.uri


@dataclass(frozen=True, slots=True)
class Serving:
    """Everything that is served, and how callers are treated. `quarantined` says why a graph is not served."""

    graphs: Mapping[str, Served]
    state: RuntimeState
    gate: Gate = WITHOUT_RULES
    quarantined: Mapping[str, str] = field(default_factory=dict)
    revision: int | None = None
    cluster_root: str | None = None

    @property
    def requires_token(self) -> bool:
        return self.state is not RuntimeState.OPEN

    def graph(self, graph_id: str) -> Served:
        if SERVED_ID.fullmatch(graph_id) is None:
            raise BadRequestError(f"'{graph_id}' is not a graph id: use 1 to 64 letters, digits and hyphens")
        served = self.graphs.get(graph_id)
        if served is None:
            raise NotFoundError(f"graph '{graph_id}' not found")
        return served

    def close(self) -> None:
        for served in self.graphs.values():
            served.graph.close()
