"""What became of applies that died, decided from what stands and from nothing else.

A graph that an apply made or changed without living to record it is recorded now. What can't be explained so, because
somebody changed a schema by hand or a root does not open, is left alone: its graph is *pending*, all its changes are
held up, and people are told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.draft import Draft
from omnigraph.cluster.lock import timestamp
from omnigraph.cluster.observe import GraphView, Views
from omnigraph.cluster.state import RecoveryRecord, StatusKind
from omnigraph.engine.managed_graph import Standing
from omnigraph.engine.object_store import new_object_id
from omnigraph.errors import OmniGraphError

IN_DOUBT: Final = frozenset({"graph_create_incomplete", "actual_applied_state_pending", "graph_missing"})
"""Conditions that a later look may find settled."""

ROLLED_FORWARD: Final = "cluster_recovery_rolled_forward"
PENDING: Final = "cluster_recovery_pending"


@dataclass
class Settlement:
    """A draft that knows what stands, the graphs that are pending, and what people should hear about it."""

    draft: Draft
    views: Views
    pending: set[str] = field(default_factory=set)
    found: list[Diagnostic] = field(default_factory=list)


def settle(draft: Draft, views: Views, schemas: dict[str, str], actor: str | None = None) -> Settlement:
    """Bring a draft in line with what was found. `schemas` are the digests of the declared ones, by graph. Nothing is
    written: findings speak of what is recorded when the draft is."""
    settlement = Settlement(draft, views)
    for graph_id, view in views.graphs.items():
        _settle_graph(settlement, graph_id, view, schemas.get(graph_id), actor)
    return settlement


def _settle_graph(
    settlement: Settlement, graph_id: str, view: GraphView, wanted: str | None, actor: str | None
) -> None:
    draft = settlement.draft
    graph, schema = graph_address(graph_id), schema_address(graph_id)
    is_recorded = graph in draft.resources
    before = draft.resources[schema].digest if schema in draft.resources else None
    match view.standing:
        case None if graph_id in settlement.views.strays:
            pass
        case None:
            message = f"it can't be looked at: {view.problem}"
            settlement.found.append(error("graph_observation_error", graph, message))
            settlement.pending.add(graph_id)
        case Standing.GRAPH:
            if is_recorded and view.schema_digest == before:
                _clear_doubt(draft, graph_id)
            else:
                _explain(settlement, graph_id, view, wanted, actor)
        case Standing.NOTHING | Standing.UNFINISHED if not is_recorded:
            _clear_doubt(draft, graph_id, IN_DOUBT - {"graph_missing"})
        case Standing.NOTHING if wanted is not None:
            message = (
                f"there is nothing at {view.uri}, and no delete was applied; bring it back, or run `omnigraph cluster "
                "refresh` to accept the loss: the next apply then makes an empty graph"
            )
            draft.settle_graph(graph_id, StatusKind.DRIFTED, "graph_missing", message)
            settlement.found.append(error("graph_observation_error", graph, message))
            settlement.pending.add(graph_id)
        case _ if wanted is not None:
            message = f"{view.uri} holds no graph that opens: {_reason(view)}"
            draft.settle_graph(graph_id, StatusKind.ERROR, "graph_create_incomplete", message)
            settlement.found.append(error("graph_create_incomplete", graph, message))
            settlement.pending.add(graph_id)


def _explain(settlement: Settlement, graph_id: str, view: GraphView, wanted: str | None, actor: str | None) -> None:
    """A graph whose schema is not the recorded one."""
    draft = settlement.draft
    graph = graph_address(graph_id)
    digest = view.schema_digest
    assert digest is not None, "a graph has a schema"
    is_recorded = graph in draft.resources
    try:
        operation = view.made_by()
    except OmniGraphError as problem:
        if graph_id not in settlement.views.strays:
            settlement.found.append(error("graph_observation_error", graph, f"its history can't be read: {problem}"))
            settlement.pending.add(graph_id)
        return
    if operation is not None or digest == wanted:
        kind = "schema_apply" if is_recorded else "graph_create"
        draft.record_graph(graph_id, digest)
        draft.settle_graph(graph_id, StatusKind.APPLIED)
        draft.recoveries[operation or new_object_id()] = RecoveryRecord(
            kind=kind, graph_id=graph_id, outcome="rolled_forward", recovered_at=timestamp(), actor=actor
        )
        what = "changed the schema" if is_recorded else "made the graph"
        message = f"an apply {what} and did not live to record it; it is recorded now"
        settlement.found.append(warning(ROLLED_FORWARD, graph, message))
    elif graph_id not in settlement.views.strays:
        message = (
            f"its schema ({digest[:12]}) is neither the recorded nor the declared one, and no apply made it; "
            "run `omnigraph cluster refresh` to take it for what is there, then plan again"
        )
        draft.settle_graph(graph_id, StatusKind.DRIFTED, "actual_applied_state_pending", message)
        settlement.found.append(warning(PENDING, graph, message))
        settlement.pending.add(graph_id)


def _clear_doubt(draft: Draft, graph_id: str, doubts: frozenset[str] = IN_DOUBT) -> None:
    for address in (graph_address(graph_id), schema_address(graph_id)):
        status = draft.statuses.get(address)
        if status is not None and doubts.intersection(status.conditions):
            if address in draft.resources:
                draft.settle(address, StatusKind.APPLIED)
            else:
                del draft.statuses[address]


def _reason(view: GraphView) -> str:
    found = view.found
    if found is None or found.problem is None:
        return "what makes it one is gone"
    return found.problem
