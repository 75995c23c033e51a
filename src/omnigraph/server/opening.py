"""Opening the graphs of one state, a few at a time, each with its rules and its stored queries.

What is wrong with one graph quarantines that graph and no other. A graph that is open already, because the state before
had it, is not opened a second time: its caches and its clients stay.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from omnigraph.api.access import Gate
from omnigraph.api.limits import Limits
from omnigraph.cluster.addresses import unservable
from omnigraph.cluster.serving import ClusterGraph, ServingSnapshot
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.policy.access import WITHOUT_RULES
from omnigraph.policy.gate import PolicyGate
from omnigraph.server.policies import Bindings, PolicyLoader
from omnigraph.server.serving import AppliedPipeline, MadeOf, ServableGraph, Served
from omnigraph.server.states import close_graphs
from omnigraph.server.stored_queries import NamedSource, stored_queries

logger: Final = logging.getLogger("omnigraph.server")

OpenGraph: TypeAlias = Callable[[str, Embedder | None, ExternalBlobPolicy | None, Limits], ServableGraph]
"""Opens a graph at a URI with what embeds its query texts, the external blobs it takes in, and its limits. None means
what an open graph has by itself: a provider of the environment, no external blobs."""

_OPENED_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Opener:
    """How a server opens graphs. `standing` are those that it serves already."""

    open_graph: OpenGraph
    environment: Mapping[str, str]
    limits: Limits
    load_policy: PolicyLoader
    standing: Mapping[str, Served] = field(default_factory=dict)

    def opened(
        self, snapshot: ServingSnapshot, bindings: Bindings, *, owned_by_cluster: bool
    ) -> tuple[dict[str, Served], dict[str, str]]:
        """The graphs that can be served, and why the others can't."""
        queries: defaultdict[str, list[NamedSource]] = defaultdict(list)
        for query in snapshot.queries:
            queries[query.graph_id].append(NamedSource(query.name, query.source))
        pipelines: defaultdict[str, list[AppliedPipeline]] = defaultdict(list)
        for loading in snapshot.pipelines:
            pipelines[loading.graph_id].append(AppliedPipeline(loading.name, loading.digest, loading.branch))

        def serve(graph: ClusterGraph) -> Served:
            graph_id = graph.graph_id
            made_of = MadeOf(graph, graph.digest, bindings.graphs.get(graph_id), tuple(pipelines[graph_id]))
            return self._served(made_of, queries[graph_id], owned_by_cluster)

        workers = ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="omnigraph-open")
        opening: dict[str, Future[Served]] = {g.graph_id: workers.submit(serve, g) for g in snapshot.graphs}
        try:
            served: dict[str, Served] = {}
            quarantined: dict[str, str] = {}
            for graph_id, future in opening.items():
                try:
                    served[graph_id] = future.result()
                except Exception as error:
                    quarantined[graph_id] = _reason(graph_id, error)
            return served, quarantined
        except BaseException:
            workers.shutdown(cancel_futures=True)
            close_graphs(_finished(opening.values()), but=self.standing.values())
            raise
        finally:
            workers.shutdown()

    def _served(self, made_of: MadeOf, queries: Sequence[NamedSource], owned_by_cluster: bool) -> Served:
        graph, policy = made_of.graph, made_of.policy
        graph_id = graph.graph_id
        if (flaw := unservable(graph_id)) is not None:
            raise BadRequestError(flaw)
        gate: Gate = WITHOUT_RULES
        if policy is not None:
            gate = self.load_policy(policy.source, "graph", f"policy '{policy.name}'", graph_id)
        opened = self.open_graph(graph.uri, graph.embedder(self.environment), graph.served_blobs(), self.limits)
        standing = self._same(graph, opened)
        if standing is not None:
            opened.close()
            opened = standing.graph
        if standing is not None and standing.made_of == made_of:
            return standing
        try:
            head = opened._workspace.snapshot("main")
            offered = stored_queries(queries, head)
            if isinstance(gate, PolicyGate):
                gate = gate.fitted(head.catalog)
        except BaseException:
            if standing is None:
                opened.close()
            raise
        governed = opened._with_gate(None if policy is None else gate)
        return Served(graph_id, governed, gate, offered, owned_by_cluster, made_of, made_of.pipelines)

    def _same(self, graph: ClusterGraph, opened: ServableGraph) -> Served | None:
        """The graph that is open already, if it is still the one that stands there: a graph that was deleted and made
        again has the same place and nothing else in common with the first."""
        standing = self.standing.get(graph.graph_id)
        if standing is None or standing.made_of is None or standing.made_of.graph != graph:
            return None
        return standing if standing.graph._workspace.graph_id == opened._workspace.graph_id else None


def _finished(opening: Iterable[Future[Served]]) -> Iterator[Served]:
    return (future.result() for future in opening if not future.cancelled() and future.exception() is None)


def _reason(graph_id: str, error: Exception) -> str:
    """Why a graph can't be served."""
    if isinstance(error, OmniGraphError | OSError):
        return str(error)
    # Something unforeseen harms one graph and not its neighbours; its text may hold anything, so it is only logged.
    logger.error("graph '%s' failed to open", graph_id, exc_info=error)
    return f"it failed to open ({type(error).__name__}); the server's log says more"
