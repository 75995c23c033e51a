"""From settings to a serving set: read the applied revision, bind policies, check stored queries, and open the graphs.

A worker calls `boot` at its start and `renew` for every later revision. A problem of one graph quarantines that graph
and no other; a problem of the whole refuses it, and then nothing stays open. A policy that can't be loaded never means
fewer rules: its graph is not served. A graph that is open already is not opened again, so that its caches stay.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from omnigraph.api.governance import Gate, Limits, QueryLimits
from omnigraph.api.queries import StoredQueries, StoredQuery
from omnigraph.cluster import resources
from omnigraph.cluster.serving import ClusterGraph, ClusterPolicy, ClusterQuery, ServingSnapshot, read_serving
from omnigraph.cluster.storage_root import enclosing_cluster, normal_uri, resolved_uri
from omnigraph.engine.query.read import describe_stored_query
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import BadRequestError, BootRefusedError, ConflictError, NotFoundError, OmniGraphError
from omnigraph.graph import Graph
from omnigraph.policy.gate import WITHOUT_RULES, PolicyGate, load_gate
from omnigraph.server.catalog import AppliedPipeline, MadeOf, RuntimeState, Served, Serving, StoredQuerySource
from omnigraph.server.reload import close_graphs
from omnigraph.server.settings import Settings, refusal_of_public
from omnigraph.server.tokens import TOKEN, TOKENS_AWS_SECRET, TOKENS_FILE, TOKENS_JSON, Tokens, load_tokens
from omnigraph.sources import Queries, queries

logger: Final = logging.getLogger("omnigraph.server")

OpenGraph: TypeAlias = Callable[[str, Embedder | None, ExternalBlobPolicy | None, Limits], Graph]
"""Opens a graph at a URI with its embedder, its policy for external blobs, and its limits. None is the default of
`omnigraph.open`: the provider of the environment, and no external blobs."""
PolicyLoader: TypeAlias = Callable[..., Gate]
"""As `load_gate`. Raises when it can't: rules that can't be evaluated must never be taken for rules that allow."""

Rules: TypeAlias = tuple[Mapping[str, ClusterPolicy], Gate]

_OPENED_AT_ONCE: Final = 4
_STORE_ID: Final = "default"
_TOKEN_SOURCES: Final = f"{TOKENS_FILE}, {TOKENS_JSON}, {TOKEN} or {TOKENS_AWS_SECRET}"


def bind(policies: Iterable[ClusterPolicy]) -> Mapping[str, ClusterPolicy]:
    """The bundle of each scope that has one. Refuses a scope with two, and a binding that names no scope."""
    bound: dict[str, ClusterPolicy] = {}
    refused = []
    for policy in policies:
        for scope in policy.applies_to:
            address = resources.Address.parse(scope)
            if scope != resources.CLUSTER_SCOPE and (address is None or address.kind is not resources.Kind.GRAPH):
                refused.append(f"policy '{policy.name}' is bound to '{scope}', which is neither cluster nor a graph")
            elif (other := bound.setdefault(scope, policy)) is not policy:
                refused.append(f"policies '{other.name}' and '{policy.name}' are both bound to '{scope}'")
    if refused:
        raise BootRefusedError(refused)
    return bound


def stored_queries(queries: Iterable[ClusterQuery], snapshot: Snapshot) -> Mapping[str, StoredQuerySource]:
    """The queries by name, sorted. Raises when one does not parse, is not declared by its text or does not fit the
    schema of the snapshot, and when two would be offered to agents as the same tool."""
    by_name: dict[str, StoredQuerySource] = {}
    for query in sorted(queries, key=lambda query: query.name):
        name, source = query.name, query.source
        try:
            entry = describe_stored_query(snapshot, source, name, f"{name}.gq")
        except BadRequestError as error:
            raise BadRequestError(f"stored query '{name}' can't be offered: {error}") from error
        if name in by_name:
            raise ConflictError(f"stored query '{name}' is given twice")
        by_name[name] = StoredQuerySource(source, entry)
    refuse_equal_tools(stored.entry for stored in by_name.values())
    return by_name


def offered_queries(stored: Mapping[str, StoredQuerySource]) -> Queries:
    """The same for callers of the graph itself, such as agents."""
    handles = [queries(query.source)[name] for name, query in stored.items()]
    return Queries(handles, entries=StoredQueries(tuple(query.entry for query in stored.values())))


def refuse_equal_tools(entries: Iterable[StoredQuery]) -> None:
    """An agent calls a tool by its name alone."""
    owners: dict[str, str] = {}
    for entry in entries:
        owner = owners.setdefault(entry.tool_name, entry.name)
        if owner != entry.name:
            both = f"'{owner}' and '{entry.name}'"
            raise ConflictError(f"stored queries {both} have the same tool name '{entry.tool_name}'")


@dataclass(frozen=True, slots=True)
class Opener:
    """How a server opens graphs. `current` are those that it serves already."""

    settings: Settings
    open_graph: OpenGraph
    environment: Mapping[str, str]
    load_policy: PolicyLoader
    current: Mapping[str, Served] = field(default_factory=dict)

    def load_rules(self, snapshot: ServingSnapshot) -> Rules:
        """The bundle of each scope, and the gate of the server itself."""
        bindings = bind(snapshot.policies)
        own = bindings.get(resources.CLUSTER_SCOPE)
        gate = WITHOUT_RULES if own is None else self.load_policy(own.source, "server", f"policy '{own.name}'")
        return bindings, gate

    def build(self, snapshot: ServingSnapshot, owned_by_cluster: bool, rules: Rules, has_tokens: bool) -> Serving:
        """Open the graphs. If the set must not be served as a whole, those that are not served already are closed."""
        settings, (bindings, gate) = self.settings, rules
        state = runtime_state(has_tokens, bool(bindings), settings.unauthenticated)
        if state is RuntimeState.OPEN and (refusal := refusal_of_public(settings)) is not None:
            raise BootRefusedError([refusal])
        _refuse_shared_locations(snapshot.graphs)
        graphs, failed = self.open_graphs(snapshot, bindings, owned_by_cluster=owned_by_cluster)
        quarantined = dict(sorted({**snapshot.quarantined, **failed}.items()))
        if refused := self._health_problems(graphs, quarantined, snapshot.warnings):
            close_graphs(graphs.values(), but=self.current.values())
            raise BootRefusedError(refused)
        for graph_id, reason in quarantined.items():
            logger.warning("graph '%s' is quarantined: %s", graph_id, reason)
        revision, root = (None, None) if settings.cluster is None else (snapshot.revision, snapshot.root)
        return Serving(graphs, state, gate, quarantined, revision, root)

    def _health_problems(
        self, graphs: Mapping[str, Served], quarantined: Mapping[str, str], warnings: Sequence[resources.Diagnostic]
    ) -> list[str]:
        """The reasons to refuse a serving set as a whole."""
        reasons = [f"graph '{graph_id}': {reason}" for graph_id, reason in quarantined.items()]
        if not graphs:
            return ["no healthy graphs", *reasons]
        if self.settings.require_all_graphs and (reasons or warnings):
            return ["strict boot (--require-all-graphs) takes every graph or none", *map(str, warnings), *reasons]
        return [
            f"graph '{graph_id}' is served now, and would not be: {reason}"
            for graph_id, reason in quarantined.items()
            if graph_id in self.current
        ]

    def open_graphs(
        self, snapshot: ServingSnapshot, bindings: Mapping[str, ClusterPolicy], *, owned_by_cluster: bool
    ) -> tuple[dict[str, Served], dict[str, str]]:
        """The graphs that can be served, and why the others can't."""
        queries: defaultdict[str, list[ClusterQuery]] = defaultdict(list)
        for query in snapshot.queries:
            queries[query.graph_id].append(query)
        pipelines: defaultdict[str, list[AppliedPipeline]] = defaultdict(list)
        for loading in snapshot.pipelines:
            pipelines[loading.graph_id].append(AppliedPipeline(loading.name, loading.digest, loading.branch))

        def serve(graph: ClusterGraph) -> Served:
            graph_id = graph.graph_id
            policy = bindings.get(resources.graph_address(graph_id))
            made_of = MadeOf(graph, graph.digest, policy, tuple(pipelines[graph_id]))
            return self._open_graph(made_of, queries[graph_id], owned_by_cluster)

        workers = ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="omnigraph-open")
        opening: dict[str, Future[Served]] = {g.graph_id: workers.submit(serve, g) for g in snapshot.graphs}
        try:
            served: dict[str, Served] = {}
            quarantined: dict[str, str] = {}
            for graph_id, future in opening.items():
                try:
                    served[graph_id] = future.result()
                except (OmniGraphError, OSError) as error:
                    quarantined[graph_id] = str(error)
                except Exception as error:
                    # It harms one graph and not its neighbours; its text may hold anything, so it is only logged.
                    logger.error("graph '%s' failed to open", graph_id, exc_info=error)
                    quarantined[graph_id] = f"it failed to open ({type(error).__name__}); the server's log says more"
            return served, quarantined
        except BaseException:
            workers.shutdown(cancel_futures=True)
            done = [future for future in opening.values() if not future.cancelled() and future.exception() is None]
            close_graphs((future.result() for future in done), but=self.current.values())
            raise
        finally:
            workers.shutdown()

    def _open_graph(self, made_of: MadeOf, queries: Sequence[ClusterQuery], owned_by_cluster: bool) -> Served:
        graph, policy = made_of.graph, made_of.policy
        graph_id = graph.graph_id
        if (flaw := resources.unservable_reason(graph_id)) is not None:
            raise BadRequestError(flaw)
        gate: Gate = WITHOUT_RULES
        if policy is not None:
            gate = self.load_policy(policy.source, "graph", f"policy '{policy.name}'", graph_id)
        embedder, limits = graph.embedder(self.environment), self.settings.limits
        query = QueryLimits(limits.query_bytes, limits.query_clauses, limits.query_literals, limits.query_depth)
        of_graph = Limits(limits.load_rows, limits.load_bytes, query)
        opened = self.open_graph(graph.uri, embedder, graph.served_blobs(), of_graph)
        current = self._same(graph, opened)
        if current is not None:
            opened.close()
            opened = current.graph
            if current.made_of == made_of:
                return current
        try:
            head = opened._workspace.snapshot("main")
            offered = stored_queries(queries, head)
            if isinstance(gate, PolicyGate):
                gate = gate.bind_schema(head.catalog)
        except BaseException:
            if current is None:
                opened.close()
            raise
        governed = opened._with_gate(gate).with_queries(offered_queries(offered))
        return Served(graph_id, governed, offered, owned_by_cluster, made_of, made_of.pipelines)

    def _same(self, graph: ClusterGraph, opened: Graph) -> Served | None:
        """The graph that is open already, if it is still the same: a graph that was deleted and made
        again has the same place and nothing else in common with the first."""
        current = self.current.get(graph.graph_id)
        if current is None or current.made_of is None or current.made_of.graph != graph:
            return None
        return current if current.graph._workspace.graph_id == opened._workspace.graph_id else None


def boot(
    settings: Settings,
    open_graph: OpenGraph,
    environment: Mapping[str, str],
    revision: int | None = None,
    load_policy: PolicyLoader = load_gate,
) -> tuple[Serving, Tokens]:
    """The serving set and the tokens of a server. Raises `BootRefusedError`.

    `revision` asks for one state of a cluster instead of its newest, so that several processes serve the same.
    """
    opener = Opener(settings, open_graph, environment, load_policy)
    with _refuse_problems():
        snapshot, owned_by_cluster = _read_snapshot(settings, revision)
        rules = opener.load_rules(snapshot)
        tokens = load_tokens(environment)
    return opener.build(snapshot, owned_by_cluster, rules, bool(tokens)), tokens


def load_graph(cluster: str, graph_id: str, open_graph: OpenGraph, environment: Mapping[str, str]) -> Served:
    """One graph of a cluster with its policy and its stored queries, for a program that needs no server."""
    snapshot = read_serving(cluster)
    chosen = tuple(graph for graph in snapshot.graphs if graph.graph_id == graph_id)
    if not chosen:
        graph_ids = ", ".join(sorted(graph.graph_id for graph in snapshot.graphs)) or "none"
        reason = snapshot.quarantined.get(graph_id, f"its graphs: {graph_ids}")
        raise NotFoundError(f"cluster '{cluster}' serves no graph '{graph_id}'; {reason}")
    opener = Opener(Settings(), open_graph, environment, load_gate)
    alone = replace(snapshot, graphs=chosen, quarantined={})
    graphs, quarantined = opener.open_graphs(alone, bind(snapshot.policies), owned_by_cluster=True)
    if graph_id in quarantined:
        raise BootRefusedError([f"graph '{graph_id}': {quarantined[graph_id]}"])
    return graphs[graph_id]


def renew(
    before: Serving,
    has_tokens: bool,
    settings: Settings,
    open_graph: OpenGraph,
    environment: Mapping[str, str],
    revision: int,
    load_policy: PolicyLoader = load_gate,
) -> Serving:
    """The serving set of a later revision of the same cluster; graphs that have not changed stay open and are shared.

    All of it or nothing: a graph that is served now, still stands in the cluster and could not be served by the new
    state refuses the whole of it, with `BootRefusedError`, and then nothing has changed.
    """
    assert before.cluster_root is not None
    opener = Opener(settings, open_graph, environment, load_policy, before.graphs)
    with _refuse_problems():
        snapshot = read_serving(before.cluster_root, revision, is_root=True)
        rules = opener.load_rules(snapshot)
    return opener.build(snapshot, True, rules, has_tokens)


@contextmanager
def _refuse_problems() -> Iterator[None]:
    """Turn a problem of the whole configuration into a refusal."""
    try:
        yield
    except BootRefusedError:
        raise
    except resources.ClusterError as error:
        raise BootRefusedError([str(diagnostic) for diagnostic in error.diagnostics]) from error
    except OmniGraphError as error:
        raise BootRefusedError([str(error)]) from error


def runtime_state(has_tokens: bool, has_policy: bool, unauthenticated: bool) -> RuntimeState:
    """How callers are treated. A server without authentication is never an accident: it has to be requested."""
    if has_tokens:
        return RuntimeState.POLICY_ENABLED if has_policy else RuntimeState.DEFAULT_DENY
    if has_policy:
        refusal = f"policy file is configured but no bearer tokens are: every request would 401; set {_TOKEN_SOURCES}"
        raise BootRefusedError([refusal])
    if not unauthenticated:
        refusal = (
            f"no bearer tokens are configured, so every caller could do everything; set {_TOKEN_SOURCES}, "
            "or start with --unauthenticated (OMNIGRAPH_UNAUTHENTICATED=1) if that is what you want"
        )
        raise BootRefusedError([refusal])
    return RuntimeState.OPEN


def _read_snapshot(settings: Settings, revision: int | None) -> tuple[ServingSnapshot, bool]:
    """The graphs to serve, and whether a cluster owns them."""
    if settings.cluster is not None and settings.store is not None:
        raise BadRequestError("a server boots from a cluster or serves one store, not both")
    if settings.cluster is not None:
        return read_serving(settings.cluster, revision), True
    if settings.store is None:
        raise BadRequestError("a server boots from a cluster: give --cluster <directory or URI>, or --store <graph>")
    uri = normal_uri(settings.store)
    graph = ClusterGraph(store_graph_id(uri), uri)
    return ServingSnapshot(uri, 0, (graph,)), enclosing_cluster(uri) is not None


def store_graph_id(uri: str) -> str:
    """The id under which a single graph is served: the last part of its URI, where that can be one."""
    name = uri.rstrip("/").rpartition("/")[2].removesuffix(".omni")
    return name if resources.unservable_reason(name) is None else _STORE_ID


def _refuse_shared_locations(graphs: Sequence[ClusterGraph]) -> None:
    """Two ids of one graph would be two sets of rules for the same rows."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for graph in graphs:
        places[resolved_uri(graph.uri)].append(graph.graph_id)
    refused = [f"graphs {', '.join(ids)} are all at '{place}'" for place, ids in places.items() if len(ids) > 1]
    if refused:
        raise BootRefusedError(refused)
