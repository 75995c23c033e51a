"""From settings to what is served: read what was applied, settle how callers are treated, open the graphs.

What is wrong with one graph quarantines that graph, with its reason in the log; what is wrong with the whole refuses,
and then nothing stays open. Rules that can't be loaded never end in fewer rules: their graph is not served.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph.api.access import Gate
from omnigraph.api.limits import Limits
from omnigraph.cluster.addresses import unservable
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.ledger import cluster_around
from omnigraph.cluster.serving import ClusterGraph, ServingSnapshot, read_serving
from omnigraph.engine.object_store import normal_uri, real_place
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import BadRequestError, BootRefusedError, OmniGraphError
from omnigraph.policy.access import WITHOUT_RULES
from omnigraph.policy.gate import PolicyGate, load_gate
from omnigraph.server.policies import Bindings, PolicyLoader, bind
from omnigraph.server.serving import RuntimeState, ServableGraph, Served, Serving
from omnigraph.server.settings import Settings
from omnigraph.server.stored_queries import NamedSource, stored_queries
from omnigraph.server.tokens import TOKEN, TOKENS_AWS_SECRET, TOKENS_FILE, TOKENS_JSON, Tokens, load_tokens

logger: Final = logging.getLogger("omnigraph.server")

OpenGraph: TypeAlias = Callable[[str, Embedder | None, ExternalBlobPolicy | None, Limits], ServableGraph]
"""Opens a graph at a URI with what embeds its query texts, the external blobs it takes in, and its limits. None means
what an open graph has by itself: a provider of the environment, no external blobs."""

_OPENED_AT_ONCE: Final = 4
_STORE_ID: Final = "default"
_QUARANTINED: Final = "graph '%s' is quarantined: %s"
_TOKEN_SOURCES: Final = f"{TOKENS_FILE}, {TOKENS_JSON}, {TOKEN} or {TOKENS_AWS_SECRET}"


def boot(
    settings: Settings,
    open_graph: OpenGraph,
    environment: Mapping[str, str],
    revision: int | None = None,
    load_policy: PolicyLoader = load_gate,
) -> tuple[Serving, Tokens]:
    """What a server serves, and whom it knows. Raises `BootRefusedError`.

    `revision` asks for one state of a cluster instead of its newest, so that several processes serve the same.
    """
    try:
        plan = _planned(settings, revision)
        bindings = bind(plan.snapshot.policies)
        gate = _server_gate(bindings, load_policy)
        tokens = load_tokens(environment)
    except BootRefusedError:
        raise
    except ClusterError as error:
        raise BootRefusedError([str(diagnostic) for diagnostic in error.diagnostics]) from error
    except OmniGraphError as error:
        raise BootRefusedError([str(error)]) from error
    state = runtime_state(bool(tokens), bool(bindings), settings.unauthenticated)
    _refuse_one_place_twice(plan.snapshot.graphs)
    graphs, quarantined = _opened(plan, open_graph, environment, _limits(settings), bindings, load_policy)
    serving = Serving(graphs, state, gate, {**plan.snapshot.quarantined, **quarantined}, plan.revision)
    try:
        _refuse_unhealthy(serving, plan.snapshot, settings.require_all_graphs)
    except BootRefusedError:
        serving.close()
        raise
    return serving, tokens


def runtime_state(has_tokens: bool, has_policy: bool, unauthenticated: bool) -> RuntimeState:
    """How callers are treated. That nobody has to prove who they are is never an accident: it has to be asked for."""
    if has_tokens:
        return RuntimeState.POLICY_ENABLED if has_policy else RuntimeState.DEFAULT_DENY
    if has_policy:
        refusal = f"policy file is configured but no bearer tokens are: every request would 401; set {_TOKEN_SOURCES}"
        raise BootRefusedError([refusal])
    if not unauthenticated:
        refusal = (
            f"no bearer tokens are configured, so everybody could do everything; set {_TOKEN_SOURCES}, "
            "or start with --unauthenticated (OMNIGRAPH_UNAUTHENTICATED=1) if that is what you want"
        )
        raise BootRefusedError([refusal])
    return RuntimeState.OPEN


@dataclass(frozen=True, slots=True)
class _Plan:
    """What there is to serve, and whose it is."""

    snapshot: ServingSnapshot
    revision: int | None
    owned_by_cluster: bool


def _planned(settings: Settings, revision: int | None) -> _Plan:
    if settings.cluster is not None and settings.store is not None:
        raise BadRequestError("a server boots from a cluster or serves one store, not both")
    if settings.cluster is not None:
        snapshot = read_serving(settings.cluster, revision)
        return _Plan(snapshot, snapshot.revision, True)
    if settings.store is None:
        raise BadRequestError("a server boots from a cluster: give --cluster <directory or URI>, or --store <graph>")
    uri = normal_uri(settings.store)
    graph = ClusterGraph(store_graph_id(uri), uri)
    return _Plan(ServingSnapshot(uri, 0, (graph,)), None, cluster_around(real_place(uri)) is not None)


def store_graph_id(uri: str) -> str:
    """The id under which a single graph is served: the last part of its URI, where that can be one."""
    name = uri.rstrip("/").rpartition("/")[2].removesuffix(".omni")
    return name if unservable(name) is None else _STORE_ID


def _server_gate(bindings: Bindings, load_policy: PolicyLoader) -> Gate:
    if bindings.server is None:
        return WITHOUT_RULES
    return load_policy(bindings.server.source, "server", f"policy '{bindings.server.name}'")


def _limits(settings: Settings) -> Limits:
    return Limits(rows=settings.limits.load_rows, bytes=settings.limits.load_bytes)


def _refuse_one_place_twice(graphs: Sequence[ClusterGraph]) -> None:
    """Two ids of one graph would be two sets of rules for the same rows."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for graph in graphs:
        places[real_place(graph.uri)].append(graph.graph_id)
    refused = [f"graphs {', '.join(ids)} are all at '{place}'" for place, ids in places.items() if len(ids) > 1]
    if refused:
        raise BootRefusedError(refused)


def _opened(
    plan: _Plan,
    open_graph: OpenGraph,
    environment: Mapping[str, str],
    limits: Limits,
    bindings: Bindings,
    load_policy: PolicyLoader,
) -> tuple[dict[str, Served], dict[str, str]]:
    """The graphs that can be served, and why the others can't."""
    for graph_id, reason in plan.snapshot.quarantined.items():
        logger.warning(_QUARANTINED, graph_id, reason)
    queries: defaultdict[str, list[NamedSource]] = defaultdict(list)
    for query in plan.snapshot.queries:
        queries[query.graph_id].append(NamedSource(query.name, query.source))

    def serve(graph: ClusterGraph) -> Served:
        graph_id = graph.graph_id
        if (flaw := unservable(graph_id)) is not None:
            raise BadRequestError(flaw)
        policy = bindings.graphs.get(graph_id)
        gate: Gate = WITHOUT_RULES
        if policy is not None:
            gate = load_policy(policy.source, "graph", f"policy '{policy.name}'", graph_id)
        opened = open_graph(graph.uri, graph.embedder(environment), graph.served_blobs(), limits)
        try:
            head = opened.snapshot("main")
            offered = stored_queries(queries[graph_id], head)
            if isinstance(gate, PolicyGate):
                gate = gate.fitted(head.catalog)
        except BaseException:
            opened.close()
            raise
        governed = opened if policy is None else opened.with_gate(gate)
        return Served(graph_id, governed, gate, offered, plan.owned_by_cluster)

    workers = ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="omnigraph-open")
    opening: dict[str, Future[Served]] = {g.graph_id: workers.submit(serve, g) for g in plan.snapshot.graphs}
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
        _close(opening.values())
        raise
    finally:
        workers.shutdown()


def _reason(graph_id: str, error: Exception) -> str:
    """Why a graph is not served, noted in the log."""
    if isinstance(error, OmniGraphError | OSError):
        logger.warning(_QUARANTINED, graph_id, error)
        return str(error)
    # Something unforeseen harms one graph and not its neighbours; its text may hold anything, so it is only logged.
    logger.error(_QUARANTINED, graph_id, type(error).__name__, exc_info=error)
    return f"it failed to open ({type(error).__name__}); the server's log says more"


def _close(opening: Iterable[Future[Served]]) -> None:
    for future in opening:
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().graph.close()


def _refuse_unhealthy(serving: Serving, snapshot: ServingSnapshot, strict: bool) -> None:
    reasons = [f"graph '{graph_id}': {reason}" for graph_id, reason in sorted(serving.quarantined.items())]
    if not serving.graphs:
        raise BootRefusedError(["no healthy graphs", *reasons])
    if strict and (reasons or snapshot.warnings):
        found = [str(diagnostic) for diagnostic in snapshot.warnings]
        raise BootRefusedError(["strict boot (--require-all-graphs) takes every graph or none", *found, *reasons])
