"""`cluster status`, `cluster history`, `cluster force-unlock`, and the list and checks of stored queries.

These commands read the ledger and the lock. They need only the header of a configuration, and open only graphs that
have pipelines or whose queries are checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TypeAlias

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.service import cluster
from omnigraph.cluster import state_ledger
from omnigraph.cluster.command_run import CommandRun, as_warnings
from omnigraph.cluster.payloads import PayloadStore, damaged_payloads, payload_path
from omnigraph.cluster.plan.diff import difference
from omnigraph.cluster.resources import Address, ClusterError, Diagnostic, Kind, error, graph_address, warning
from omnigraph.cluster.serving import ClusterPipeline
from omnigraph.cluster.state import EMPTY, Resource
from omnigraph.engine.history.commits import last_runs
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError, IntegrityError, NotFoundError, OmniGraphError, StorageError
from omnigraph.language.catalog import Catalog
from omnigraph.language.lint import SchemaSource, lint_queries
from omnigraph.language.query.formatter import spell_parameter_type
from omnigraph.language.query.parser import declared_queries
from omnigraph.language.query.syntax import Query


def pipelines_with_runs(
    applied: state_ledger.AppliedState,
) -> tuple[tuple[cluster.AppliedPipeline, ...], list[Diagnostic]]:
    """The pipelines with their last commits, sorted by name. A graph that can't be opened is a finding; a damaged file
    is left out, because the check of payloads reports it."""
    findings: list[Diagnostic] = []
    by_graph: defaultdict[str, list[ClusterPipeline]] = defaultdict(list)
    for pipeline in _readable(applied):
        by_graph[pipeline.graph_id].append(pipeline)
    listed = []
    for graph_id, pipelines in by_graph.items():
        last: dict[str, CommitReceipt] = {}
        try:
            last = last_runs(applied.graph_uri(graph_id), {pipeline.name: pipeline.branch for pipeline in pipelines})
        except OmniGraphError as problem:
            message = f"the last runs of its pipelines are unknown: {problem}"
            findings.append(warning("graph_observation_error", graph_address(graph_id), message))
        listed += [
            cluster.AppliedPipeline(
                name=pipeline.name,
                graph_id=graph_id,
                branch=pipeline.branch,
                digest=pipeline.digest,
                last_commit=last.get(pipeline.name),
            )
            for pipeline in pipelines
        ]
    return tuple(sorted(listed, key=lambda pipeline: pipeline.name)), findings


def _readable(applied: state_ledger.AppliedState) -> list[ClusterPipeline]:
    payloads, pipelines = PayloadStore(applied.objects), []
    for address, resource in applied.state.of_kind(Kind.PIPELINE):
        graph = Address.parse(resource.pipeline_graph or "")
        try:
            source = payloads.read(str(address), resource.digest).decode("utf-8")
        except (NotFoundError, IntegrityError, StorageError, UnicodeDecodeError):
            continue
        if graph is not None:
            pipelines.append(ClusterPipeline(address.name, graph.name, resource.digest, source))
    return pipelines


def status(source: str, revision: int | None = None) -> cluster.ClusterStatus:
    """The newest state, or that of one revision."""
    command_run = CommandRun(source)
    pipelines: tuple[cluster.AppliedPipeline, ...] = ()
    with command_run.report_errors():
        session = command_run.open_read_only()
        if session is not None:
            try:
                session.holder = state_ledger.read_lock(session.objects)
            except ClusterError as problem:  # a damaged lock
                session.findings += as_warnings(problem)
            session.recorded = session.ledger.newest() if revision is None else session.ledger.revision(revision)
        if session is None or session.recorded is None:
            command_run.findings.append(_missing_state(revision))
        else:
            damaged = damaged_payloads(session.catalog, session.recorded.state.resources)
            command_run.findings += [payload.finding("the next apply stores it again") for payload in damaged]
            if revision is None:  # graphs of an earlier state may be deleted
                pipelines, unknown = pipelines_with_runs(
                    state_ledger.AppliedState(session.objects, session.recorded.state)
                )
                command_run.findings += unknown
    return command_run.report(cluster.ClusterStatus, pipelines=pipelines)


def _missing_state(revision: int | None) -> Diagnostic:
    if revision is not None:
        return error("state_missing", state_ledger.revision_path(revision), f"the ledger has no revision {revision}")
    return warning(
        "state_missing", state_ledger.STATE_FOLDER, "the cluster has no state yet; run `omnigraph cluster import`"
    )


def history(source: str, limit: int | None = None) -> cluster.ClusterHistory:
    """The revisions of a cluster with their changes, newest first, at most `limit` of them."""
    command_run = CommandRun(source)
    revisions: tuple[cluster.ClusterRevision, ...] = ()
    with command_run.report_errors():
        session = command_run.open_read_only()
        numbers = session.ledger.revisions() if session is not None else []
        if session is None or not numbers:
            command_run.findings.append(_missing_state(None))
        else:
            read = map(session.ledger.revision, numbers if limit is None else numbers[-limit - 1 :])
            states = [None, *(recorded for recorded in read if recorded is not None)]
            listed = [_revision(before, after) for before, after in pairwise(states) if after is not None]
            revisions = tuple(reversed(listed if limit is None else listed[-limit:]))
    return command_run.report(cluster.ClusterHistory, revisions=revisions)


def _revision(
    before: state_ledger.LedgerRevision | None, after: state_ledger.LedgerRevision
) -> cluster.ClusterRevision:
    had: dict[str, Resource] = before.state.resources if before is not None else EMPTY.resources
    written = after.state.written
    return cluster.ClusterRevision(
        state_revision=after.revision,
        state_cas=after.state_cas,
        operation=written.operation if written is not None else None,
        actor=written.actor if written is not None else None,
        written_at=written.at if written is not None else None,
        config_digest=after.state.applied_revision.config_digest,
        resource_count=len(after.state.resources),
        changes=difference(had, after.state.resources),
    )


def force_unlock(source: str, lock_id: str) -> tuple[cluster.ClusterUnlocked, state_ledger.Lock | None]:
    """Remove the lock with this id; returns the report and the removed lock."""
    command_run = CommandRun(source)
    removed: state_ledger.Lock | None = None
    with command_run.report_errors():
        session = command_run.open_read_only()
        held = state_ledger.read_lock(session.objects) if session is not None else None
        if session is None or held is None:
            raise ClusterError.of("state_lock_missing", state_ledger.LOCK_PATH, "there is no lock")
        session.holder = held
        if held.lock_id != lock_id:
            raise ClusterError.of("state_lock_id_mismatch", state_ledger.LOCK_PATH, f"the lock has another id ({held})")
        try:
            session.objects.delete(state_ledger.LOCK_PATH)
        except StorageError as problem:
            raise ClusterError.of("state_lock_error", state_ledger.LOCK_PATH, str(problem)) from problem
        session.holder, removed = None, held
        # Last, and for the report only: an unreadable ledger must not keep the cluster locked.
        session.recorded = session.ledger.newest()
    return command_run.report(cluster.ClusterUnlocked, lock_removed=removed is not None), removed


Head: TypeAlias = Callable[[str], AbstractContextManager[Snapshot]]
"""Opens the head of `main` of the graph at a URI."""


def list_queries(applied: state_ledger.AppliedState, graph_ids: Iterable[str]) -> cluster.DeclaredQueries:
    """The declarations of the queries of some graphs. Raises `ClusterError` with every broken query."""
    queries, broken = [], []
    for address, resource in _stored_queries(applied, graph_ids):
        try:
            query = _parse_query(_source(applied, address, resource), address)
        except NotFoundError as flaw:
            broken.append(error("catalog_payload_missing", str(address), str(flaw)))
            continue
        except (IntegrityError, BadRequestError) as flaw:
            code = "catalog_payload_mismatch" if isinstance(flaw, IntegrityError) else "query_parse_error"
            broken.append(error(code, str(address), str(flaw)))
            continue
        queries.append(
            cluster.DeclaredQuery(
                name=address.name,
                mcp_expose=False,
                tool_name=None,
                mutation=query.is_mutation,
                description=query.description,
                instruction=query.instruction,
                params=tuple(
                    cluster.DeclaredParameter(each.name, spell_parameter_type(each).removesuffix("?"), each.nullable)
                    for each in query.parameters
                ),
                graph_id=address.graph or "",
            )
        )
    if broken:
        raise ClusterError(broken)
    return cluster.DeclaredQueries(tuple(queries))


def validate_queries(
    applied: state_ledger.AppliedState, graph_ids: Iterable[str], head: Head
) -> cluster.QueriesValidated:
    """Check every query of some graphs against the current schema of its graph."""
    breakages: list[cluster.QueryNote] = []
    warnings: list[cluster.QueryNote] = []
    checked = 0
    for graph_id in graph_ids:
        stored = list(_stored_queries(applied, [graph_id]))
        if not stored:
            continue
        with head(applied.graph_uri(graph_id)) as state:
            for address, resource in stored:
                checked += 1
                try:
                    source = _source(applied, address, resource)
                    odd = _lint_warnings(state.catalog, source, address)
                except (NotFoundError, IntegrityError, BadRequestError) as flaw:
                    breakages.append(cluster.QueryNote(address.name, str(flaw), graph_id))
                else:
                    warnings += [cluster.QueryNote(address.name, message, graph_id) for message in odd]
    return cluster.QueriesValidated(not breakages, tuple(breakages), tuple(warnings), checked)


def _parse_query(source: str, address: Address) -> Query:
    declared = declared_queries(source, f"{address.name}.gq")
    query = next((query for query in declared if query.name.text == address.name), None)
    if query is None:
        raise BadRequestError(f"query '{address.name}' not found")
    return query


def _lint_warnings(catalog: Catalog, source: str, address: Address) -> tuple[str, ...]:
    """The warnings about a query that fits a schema. Raises `BadRequestError` when it does not fit."""
    path = f"{address.name}.gq"
    report = lint_queries(catalog, source, query_path=path, schema_source=SchemaSource.graph(path))
    if not report.results and report.findings:
        raise BadRequestError("\n".join(finding.message for finding in report.findings))
    result = next((result for result in report.results if result.name == address.name), None)
    if result is None:
        raise BadRequestError(f"query '{address.name}' not found")
    if result.error is not None:
        raise BadRequestError(result.error)
    return result.warnings


def _stored_queries(applied: state_ledger.AppliedState, graph_ids: Iterable[str]) -> Iterator[tuple[Address, Resource]]:
    chosen = set(graph_ids)
    return (query for query in applied.state.of_kind(Kind.QUERY) if query[0].graph in chosen)


def _source(applied: state_ledger.AppliedState, address: Address, resource: Resource) -> str:
    try:
        return PayloadStore(applied.objects).read(str(address), resource.digest).decode("utf-8")
    except UnicodeDecodeError:
        raise IntegrityError(str(payload_path(str(address), resource.digest)), "it is not UTF-8 text") from None
