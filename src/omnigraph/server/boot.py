"""From settings to what is served: read what was applied, settle how callers are treated, open the graphs.

What is wrong with one graph quarantines that graph (`opening.py`); what is wrong with the whole refuses, and then
nothing stays open. Rules that can't be loaded never end in fewer rules: their graph is not served.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from omnigraph.api.access import Gate
from omnigraph.api.limits import Limits, QueryLimits
from omnigraph.cluster.addresses import unservable
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.ledger import cluster_around
from omnigraph.cluster.serving import ClusterGraph, ServingSnapshot, read_serving
from omnigraph.engine.object_store import ObjectStore, normal_uri, real_place
from omnigraph.errors import BadRequestError, BootRefusedError, OmniGraphError
from omnigraph.policy.access import WITHOUT_RULES
from omnigraph.policy.gate import load_gate
from omnigraph.server.opening import Opener, OpenGraph
from omnigraph.server.policies import Bindings, PolicyLoader, bind
from omnigraph.server.serving import RuntimeState, Serving
from omnigraph.server.settings import Settings, refusal_of_public
from omnigraph.server.states import close_graphs
from omnigraph.server.tokens import TOKEN, TOKENS_AWS_SECRET, TOKENS_FILE, TOKENS_JSON, Tokens, load_tokens

logger: Final = logging.getLogger("omnigraph.server")

_STORE_ID: Final = "default"
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
    with _refusing():
        plan = _planned(settings, revision)
        rules = _Rules.of(plan.snapshot, load_policy)
        tokens = load_tokens(environment)
    opener = Opener(open_graph, environment, _limits(settings), load_policy)
    serving = _built(plan, rules, bool(tokens), settings, opener)
    _warn(serving)
    return serving, tokens


def renewed(
    before: Serving,
    has_tokens: bool,
    settings: Settings,
    open_graph: OpenGraph,
    environment: Mapping[str, str],
    revision: int,
    load_policy: PolicyLoader = load_gate,
) -> Serving:
    """What a later revision of the same cluster says to serve; graphs that have not changed stay open and are shared.

    All of it or nothing: a graph that is served now, still stands in the cluster and could not be served by the new
    state refuses the whole of it, with `BootRefusedError`, and then nothing has changed.
    """
    assert before.cluster_root is not None
    with _refusing():
        snapshot = read_serving(ObjectStore.open(before.cluster_root), revision)
        rules = _Rules.of(snapshot, load_policy)
    opener = Opener(open_graph, environment, _limits(settings), load_policy, before.graphs)
    serving = _built(_Plan(snapshot, revision, True), rules, has_tokens, settings, opener)
    lost = [
        f"graph '{graph_id}' is served now, and would not be: {reason}"
        for graph_id, reason in sorted(serving.quarantined.items())
        if graph_id in before.graphs
    ]
    if lost:
        close_graphs(serving.graphs.values(), but=before.graphs.values())
        raise BootRefusedError(lost)
    _warn(serving)
    return serving


def _warn(serving: Serving) -> None:
    """Tell which graphs are left out of what is served from now on."""
    for graph_id, reason in sorted(serving.quarantined.items()):
        logger.warning("graph '%s' is quarantined: %s", graph_id, reason)


@contextmanager
def _refusing() -> Iterator[None]:
    """What is wrong with the whole, as a refusal."""
    try:
        yield
    except BootRefusedError:
        raise
    except ClusterError as error:
        raise BootRefusedError([str(diagnostic) for diagnostic in error.diagnostics]) from error
    except OmniGraphError as error:
        raise BootRefusedError([str(error)]) from error


@dataclass(frozen=True, slots=True)
class _Rules:
    """Which bundle governs which graph, and the gate of the server itself."""

    bindings: Bindings
    gate: Gate

    @classmethod
    def of(cls, snapshot: ServingSnapshot, load_policy: PolicyLoader) -> _Rules:
        bindings = bind(snapshot.policies)
        if bindings.server is None:
            return cls(bindings, WITHOUT_RULES)
        return cls(bindings, load_policy(bindings.server.source, "server", f"policy '{bindings.server.name}'"))


def _built(plan: _Plan, rules: _Rules, has_tokens: bool, settings: Settings, opener: Opener) -> Serving:
    snapshot = plan.snapshot
    state = runtime_state(has_tokens, bool(rules.bindings), settings.unauthenticated)
    if state is RuntimeState.OPEN and (refusal := refusal_of_public(settings)) is not None:
        raise BootRefusedError([refusal])
    _refuse_one_place_twice(snapshot.graphs)
    graphs, quarantined = opener.opened(snapshot, rules.bindings, owned_by_cluster=plan.owned_by_cluster)
    root = snapshot.root if plan.revision is not None else None
    serving = Serving(graphs, state, rules.gate, {**snapshot.quarantined, **quarantined}, plan.revision, root)
    try:
        _refuse_unhealthy(serving, snapshot, settings.require_all_graphs)
    except BootRefusedError:
        close_graphs(graphs.values(), but=opener.standing.values())
        raise
    return serving


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


def _limits(settings: Settings) -> Limits:
    limits = settings.limits
    query = QueryLimits(limits.query_bytes, limits.query_clauses, limits.query_literals, limits.query_depth)
    return Limits(limits.load_rows, limits.load_bytes, query)


def _refuse_one_place_twice(graphs: Sequence[ClusterGraph]) -> None:
    """Two ids of one graph would be two sets of rules for the same rows."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for graph in graphs:
        places[real_place(graph.uri)].append(graph.graph_id)
    refused = [f"graphs {', '.join(ids)} are all at '{place}'" for place, ids in places.items() if len(ids) > 1]
    if refused:
        raise BootRefusedError(refused)


def _refuse_unhealthy(serving: Serving, snapshot: ServingSnapshot, strict: bool) -> None:
    reasons = [f"graph '{graph_id}': {reason}" for graph_id, reason in sorted(serving.quarantined.items())]
    if not serving.graphs:
        raise BootRefusedError(["no healthy graphs", *reasons])
    if strict and (reasons or snapshot.warnings):
        found = [str(diagnostic) for diagnostic in snapshot.warnings]
        raise BootRefusedError(["strict boot (--require-all-graphs) takes every graph or none", *found, *reasons])
