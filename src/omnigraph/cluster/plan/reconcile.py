"""Observes the graphs of a cluster, and finishes what applies that died did not record.

`preview` and `refresh` call `observe` and `reconcile`. A graph that an apply created or changed without recording it is
recorded now. A graph in any other unexpected state is *pending*: it is left alone, its changes wait, and people are
told why.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from omnigraph.cluster.resources import Diagnostic, error, graph_address, schema_address, warning
from omnigraph.cluster.state import RecoveryRecord, State, StateBuilder, StatusKind, file_digest
from omnigraph.cluster.state_ledger import timestamp
from omnigraph.cluster.storage_root import graph_folders, graph_uri
from omnigraph.engine.managed_graph import Found, Standing, look_at, schema_made_by
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.objects import Objects

_LOOKS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class GraphView:
    """One observed graph. `observed` is None when the store could not be read, for the reason in `problem`."""

    graph_id: str
    uri: str
    observed: Found | None
    problem: str | None = None

    @property
    def standing(self) -> Standing | None:
        return self.observed.standing if self.observed is not None else None

    @property
    def reason(self) -> str:
        """The reason why the graph can't be used."""
        problem = self.observed.problem if self.observed is not None else self.problem
        return problem or "its marker is gone"

    @property
    def schema_digest(self) -> str | None:
        text = self.observed.schema if self.observed is not None else None
        return None if text is None else file_digest(text.encode())


@dataclass(frozen=True, slots=True)
class GraphViews:
    """The observed graphs by id, and the folders of deleted graphs that still exist."""

    graphs: dict[str, GraphView]
    strays: frozenset[str] = frozenset()
    """Ids of graphs that are neither declared nor recorded."""
    leftovers: tuple[str, ...] = ()


def observe(objects: Objects, state: State, declared: Collection[str]) -> GraphViews:
    """Observe every graph that is declared, recorded or found in storage. One listing, and five reads per graph."""
    folders = graph_folders(objects)
    leftovers = [folder for (graph_id, number), folder in folders.items() if number < state.generation(graph_id)]
    current = {graph_id for graph_id, number in folders if number == state.generation(graph_id)}
    graph_ids = {*declared, *state.graph_ids}

    def look(graph_id: str) -> GraphView:
        uri = graph_uri(objects.location.uri, graph_id, state.generation(graph_id))
        if graph_id not in current:
            return GraphView(graph_id, uri, Found(Standing.NOTHING))
        try:
            return GraphView(graph_id, uri, look_at(uri))
        except StorageError as problem:
            return GraphView(graph_id, uri, None, str(problem))

    wanted = sorted(graph_ids | current)
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="omnigraph-observe") as workers:
        views = dict(zip(wanted, workers.map(look, wanted), strict=True))
    return GraphViews(views, frozenset(current - graph_ids), tuple(leftovers))


IN_DOUBT: Final = frozenset({"graph_create_incomplete", "actual_applied_state_pending", "graph_missing"})
"""Conditions that a later observation may clear."""

ROLLED_FORWARD: Final = "cluster_recovery_rolled_forward"
PENDING: Final = "cluster_recovery_pending"


@dataclass
class Reconciliation:
    """The next state in line with the observed graphs, the pending graphs, and the findings for people."""

    builder: StateBuilder
    views: GraphViews
    pending: set[str] = field(default_factory=set)
    findings: list[Diagnostic] = field(default_factory=list)

    def hold_up(self, graph_id: str, finding: Diagnostic) -> None:
        """Leave a graph alone, for the reason in the finding."""
        self.findings.append(finding)
        self.pending.add(graph_id)


def reconcile(
    builder: StateBuilder, views: GraphViews, schemas: dict[str, str], actor: str | None = None
) -> Reconciliation:
    """Bring the next state in line with the observed graphs. `schemas` are the digests of the declared schemas, by
    graph. Writes nothing: "recorded now" in a finding holds once the state is created."""
    reconciliation = Reconciliation(builder, views)
    for graph_id, view in views.graphs.items():
        _reconcile_graph(reconciliation, graph_id, view, schemas.get(graph_id), actor)
    return reconciliation


def _reconcile_graph(
    result: Reconciliation, graph_id: str, view: GraphView, wanted: str | None, actor: str | None
) -> None:
    builder = result.builder
    graph, schema = graph_address(graph_id), schema_address(graph_id)
    is_recorded = graph in builder.resources
    before = builder.resources[schema].digest if schema in builder.resources else None
    match view.standing:
        case None if graph_id in result.views.strays:
            pass
        case None:
            message = f"it can't be read: {view.problem}"
            result.hold_up(graph_id, error("graph_observation_error", graph, message))
        case Standing.GRAPH:
            if is_recorded and view.schema_digest == before:
                _clear_doubt(builder, graph_id)
            else:
                _explain(result, graph_id, view, wanted, actor)
        case Standing.NOTHING | Standing.UNFINISHED if not is_recorded:
            _clear_doubt(builder, graph_id, IN_DOUBT - {"graph_missing"})
        case Standing.NOTHING if wanted is not None:
            message = (
                f"there is no graph at {view.uri}, and no delete was applied; restore it, or run `omnigraph cluster "
                "refresh` to accept the loss: the next apply then creates an empty graph"
            )
            builder.set_graph_status(graph_id, StatusKind.DRIFTED, "graph_missing", message)
            result.hold_up(graph_id, error("graph_observation_error", graph, message))
        case _ if wanted is not None:
            message = f"{view.uri} is not a graph that can be opened: {view.reason}"
            builder.set_graph_status(graph_id, StatusKind.ERROR, "graph_create_incomplete", message)
            result.hold_up(graph_id, error("graph_create_incomplete", graph, message))


def _explain(result: Reconciliation, graph_id: str, view: GraphView, wanted: str | None, actor: str | None) -> None:
    """Handle a graph whose schema is not the recorded one."""
    builder = result.builder
    graph = graph_address(graph_id)
    digest = view.schema_digest
    assert digest is not None, "a graph has a schema"
    is_recorded = graph in builder.resources
    try:
        operation = schema_made_by(view.uri)
    except OmniGraphError as problem:
        if graph_id not in result.views.strays:
            message = f"its history can't be read: {problem}"
            result.hold_up(graph_id, error("graph_observation_error", graph, message))
        return
    if operation is not None or digest == wanted:
        kind = "schema_apply" if is_recorded else "graph_create"
        builder.record_graph(graph_id, digest)
        builder.set_graph_status(graph_id, StatusKind.APPLIED)
        builder.recovery_records[operation or new_ulid()] = RecoveryRecord(
            kind=kind, graph_id=graph_id, outcome="rolled_forward", recovered_at=timestamp(), actor=actor
        )
        what = "changed the schema" if is_recorded else "created the graph"
        message = f"an apply {what} and died before it recorded that; it is recorded now"
        result.findings.append(warning(ROLLED_FORWARD, graph, message))
    elif graph_id not in result.views.strays:
        message = (
            f"its schema ({digest[:12]}) is neither the recorded nor the declared one, and no apply made it; "
            "run `omnigraph cluster refresh` to record it, then plan again"
        )
        builder.set_graph_status(graph_id, StatusKind.DRIFTED, "actual_applied_state_pending", message)
        result.hold_up(graph_id, warning(PENDING, graph, message))


def _clear_doubt(builder: StateBuilder, graph_id: str, doubts: frozenset[str] = IN_DOUBT) -> None:
    for address in (graph_address(graph_id), schema_address(graph_id)):
        status = builder.resource_statuses.get(address)
        if status is not None and doubts.intersection(status.conditions):
            if address in builder.resources:
                builder.set_status(address, StatusKind.APPLIED)
            else:
                del builder.resource_statuses[address]
