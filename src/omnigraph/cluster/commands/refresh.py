"""`cluster refresh` and `cluster import`: record the graphs as they are, whatever was recorded before.

`import` creates the first state of a cluster, from existing graphs or from none; `refresh` creates the next one.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

from omnigraph.api.service.cluster import ClusterObserved, GraphObservation, is_ok
from omnigraph.cluster.command_run import CommandRun, Session, refuse_uncovered, require_state
from omnigraph.cluster.commands.plan import desired_schemas
from omnigraph.cluster.desired import Desired, ReadPipeline
from omnigraph.cluster.payloads import Damage, damaged_payloads
from omnigraph.cluster.plan.reconcile import ROLLED_FORWARD, GraphView, observe, reconcile
from omnigraph.cluster.resources import ClusterError, error, graph_address, schema_address
from omnigraph.cluster.state import StateBuilder, StatusKind, Written
from omnigraph.cluster.state_ledger import timestamp
from omnigraph.cluster.storage_root import graph_folders
from omnigraph.engine.managed_graph import Standing

Operation: TypeAlias = Literal["refresh", "import"]


def refresh(source: str, read_pipeline: ReadPipeline, *, actor: str | None = None) -> ClusterObserved:
    return _run("refresh", source, read_pipeline, actor)


def import_(source: str, read_pipeline: ReadPipeline, *, actor: str | None = None) -> ClusterObserved:
    return _run("import", source, read_pipeline, actor)


def _run(operation: Operation, source: str, read_pipeline: ReadPipeline, actor: str | None) -> ClusterObserved:
    command_run = CommandRun(source)
    command_run.run(operation, read_pipeline, partial(_refresh if operation == "refresh" else _import, actor=actor))
    return command_run.report(ClusterObserved, operation=operation)


def _refresh(session: Session, desired: Desired, actor: str | None) -> None:
    recorded = require_state(session)
    state = recorded.state
    refuse_uncovered(state)
    views = observe(session.objects, state, desired.file.config.graphs)
    reconciliation = reconcile(StateBuilder.of(state), views, desired_schemas(desired), actor)
    if reconciliation.findings:
        session.ledger.refuse_overtaken(recorded)
    # Every graph is recorded as it is below; only the finished changes of a dead apply are reported.
    session.findings += [finding for finding in reconciliation.findings if finding.code == ROLLED_FORWARD]
    builder = reconciliation.builder
    _verify_payloads(session, builder)
    for graph_id in sorted({*desired.file.config.graphs, *state.graph_ids}):
        _observe(session, builder, views.graphs[graph_id], desired)
    written = Written("refresh", actor, timestamp())
    session.recorded = session.ledger.create(builder.state(written), recorded)


def _import(session: Session, desired: Desired, actor: str | None) -> None:
    if session.recorded is not None:
        message = "the cluster already has a ledger; run `omnigraph cluster refresh` to record the graphs as they are"
        raise ClusterError.of("state_already_exists", session.recorded.path, message)
    # A lost ledger no longer counts the deleted folders; the existing folders show which are current.
    newest: dict[str, int] = {}
    for graph_id, generation in graph_folders(session.objects):
        newest[graph_id] = max(generation, newest.get(graph_id, 1))
    builder = StateBuilder(config_digest=desired.config_digest)
    builder.retired_roots = {graph_id: number - 1 for graph_id, number in sorted(newest.items()) if number > 1}
    views = observe(session.objects, builder.state(), desired.file.config.graphs)
    for graph_id in desired.file.config.graphs:
        _observe(session, builder, views.graphs[graph_id], desired)
    if not is_ok(tuple(session.findings)):
        raise ClusterError.of(
            "graph_observation_error", "graphs", "an existing graph can't be imported as it is; no state was created"
        )
    session.recorded = session.ledger.create(builder.state(Written("import", actor, timestamp())), None)


def _verify_payloads(session: Session, builder: StateBuilder) -> None:
    """Drop resources with missing or damaged payloads, so that the next apply stores them again."""
    for damaged in damaged_payloads(session.catalog, builder.resources):
        session.findings.append(damaged.finding("the next apply stores it again"))
        if damaged.damage is Damage.READ_ERROR:
            builder.set_status(damaged.address, StatusKind.ERROR, "payload_read_error", damaged.reason)
        else:
            builder.forget(damaged.address)
            builder.set_status(damaged.address, StatusKind.DRIFTED, f"payload_{damaged.damage}", damaged.reason)


def _observe(session: Session, builder: StateBuilder, view: GraphView, desired: Desired) -> None:
    graph_id = view.graph_id
    graph, schema = graph_address(graph_id), schema_address(graph_id)
    wanted = desired.resources[schema].digest if schema in desired.resources else None
    is_recorded = graph in builder.resources
    problem = None
    match view.standing:
        case Standing.GRAPH:
            digest = view.schema_digest
            assert digest is not None, "a graph has a schema"
            builder.record_graph(graph_id, digest)
            builder.set_graph_status(graph_id, StatusKind.APPLIED)
            if wanted is not None and digest != wanted:
                message = f"the schema of the graph ({digest[:12]}) is not the declared one ({wanted[:12]})"
                builder.set_graph_status(graph_id, StatusKind.DRIFTED, "schema_mismatch", message)
        case Standing.NOTHING | Standing.UNFINISHED if view.standing is Standing.NOTHING or not is_recorded:
            builder.forget(graph)
            builder.forget(schema)
            builder.set_graph_status(graph_id, StatusKind.DRIFTED, "graph_missing", f"there is no graph at {view.uri}")
        case _:
            problem = view.reason
            builder.set_graph_status(graph_id, StatusKind.ERROR, "graph_observation_error", problem)
            session.findings.append(error("graph_observation_error", graph, problem))
    is_there = view.standing is Standing.GRAPH
    builder.observations[graph] = GraphObservation(
        address=graph,
        graph_uri=view.uri,
        observed_at=timestamp(),
        exists=view.standing is not Standing.NOTHING,
        graph_manifest_version=view.observed.version if view.observed is not None else None,
        schema_digest=view.schema_digest,
        desired_schema_digest=wanted,
        schema_matches_desired=view.schema_digest == wanted if is_there and wanted is not None else None,
        error=problem,
    )
