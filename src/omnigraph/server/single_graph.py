"""One graph of a cluster for a program that works on it without a server, under the rules the cluster has for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

from omnigraph import __version__
from omnigraph.api.governance import AccessRequest, Decision, Limits
from omnigraph.api.service.routes import route
from omnigraph.cluster.serving import read_serving
from omnigraph.errors import BadRequestError, BootRefusedError, NotFoundError
from omnigraph.policy.gate import load_gate
from omnigraph.policy.rules import WITHOUT_RULES
from omnigraph.server.admission import Budgets, WriteTurns
from omnigraph.server.catalog import RuntimeState, Served, Serving
from omnigraph.server.http.call import Call, Services
from omnigraph.server.in_process import InProcessGraph
from omnigraph.server.loader import Opener, OpenGraph, bind
from omnigraph.server.reload import States
from omnigraph.server.runtime.context import RequestRecord
from omnigraph.server.settings import ServerLimits

Result = TypeVar("Result")


def served_alone(cluster: str, graph_id: str, open_graph: OpenGraph, environment: Mapping[str, str]) -> Served:
    """The graph with its rules and its stored queries."""
    snapshot = read_serving(cluster)
    chosen = tuple(graph for graph in snapshot.graphs if graph.graph_id == graph_id)
    if not chosen:
        known = ", ".join(sorted(graph.graph_id for graph in snapshot.graphs)) or "none"
        reason = snapshot.quarantined.get(graph_id, f"its graphs: {known}")
        raise NotFoundError(f"cluster '{cluster}' serves no graph '{graph_id}'; {reason}")
    opener = Opener(open_graph, environment, Limits(), load_gate)
    alone = replace(snapshot, graphs=chosen, quarantined={})
    graphs, quarantined = opener.opened(alone, bind(snapshot.policies), owned_by_cluster=True)
    if graph_id in quarantined:
        raise BootRefusedError([f"graph '{graph_id}': {quarantined[graph_id]}"])
    return graphs[graph_id]


def as_actor(served: Served, actor: str | None) -> InProcessGraph:
    """The graph as this actor finds it. Where no rules are bound, whoever reaches the storage may do everything."""
    if served.gate is WITHOUT_RULES:
        served = replace(served, gate=_Ungoverned())
    elif actor is None:
        raise BadRequestError(f"the cluster has rules for graph '{served.graph_id}': say who asks with --as <actor>")
    limits, alone = ServerLimits(), _Unobserved()
    serving = Serving({served.graph_id: served}, RuntimeState.POLICY_ENABLED)
    states = States(serving)
    budgets, write_turns = Budgets(limits), WriteTurns(limits.write_threads)
    services = Services(states, limits, alone, alone, budgets, write_turns, __version__)
    return InProcessGraph(Call(route("query"), "alone", actor, {}, {}, services, states.hold(), target=served))


class _Ungoverned:
    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        return Decision(True, f"no rules govern action '{request.action}'")


class _Unobserved:
    """For a process that serves nobody else: it counts nothing and admits every write."""

    def admitted(self, actor: str | None, size: int) -> AbstractContextManager[None]:
        return nullcontext()

    def began(self, operation_id: str) -> None: ...

    def around(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        return work

    def answered(self, record: RequestRecord) -> None: ...

    def decided(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None: ...

    def failed(self, request_id: str, operation_id: str, error: BaseException) -> None: ...

    def stream_opened(self, graph_id: str) -> None: ...

    def stream_closed(self, graph_id: str) -> None: ...

    def committed(self, graph_id: str) -> None: ...

    def conflicted(self, graph_id: str) -> None: ...

    def exposition(self) -> bytes:
        return b""
