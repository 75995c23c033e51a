"""The differences between recorded and desired resources, and what happens to each change. Pure.

A change is applied, derived, deferred or blocked. It is blocked if something it needs is missing, or if it would take
something away from a resource that stays: a graph whose delete waits for approval keeps its rules and its embedding
provider. A policy that such a graph shares with others can be bound to more graphs and stays bound to this one; its
rules can't change until the graph is deleted, because nobody has checked new ones against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from omnigraph.api.enums import ChangeDisposition, ResourceOperation
from omnigraph.api.service.cluster import BlastRadius, ClusterChange, Dependency
from omnigraph.cluster.resources import CLUSTER_SCOPE, Address, Diagnostic, Kind, graph_address, schema_address, warning
from omnigraph.cluster.state import Resource

MetadataChange: TypeAlias = Literal["policy_bindings", "embedding_profile", "pipeline_graph"]


def difference(before: Mapping[str, Resource], after: Mapping[str, Resource]) -> tuple[ClusterChange, ...]:
    """The changes from the first to the second, sorted by resource."""
    changes = (_change(address, before.get(address), after.get(address)) for address in sorted({*before, *after}))
    return tuple(change for change in changes if change is not None)


def _change(address: str, before: Resource | None, after: Resource | None) -> ClusterChange | None:
    if before is None:
        assert after is not None
        return ClusterChange(resource=address, operation=ResourceOperation.CREATE, after_digest=after.digest)
    if after is None:
        return ClusterChange(resource=address, operation=ResourceOperation.DELETE, before_digest=before.digest)
    # What the digest does not cover. The digest of a graph covers everything.
    metadata: MetadataChange | None = None
    if before.applies_to != after.applies_to:
        metadata = "policy_bindings"
    elif before.embedding_profile != after.embedding_profile:
        metadata = "embedding_profile"
    elif before.pipeline_graph != after.pipeline_graph:
        metadata = "pipeline_graph"
    if before.digest == after.digest and metadata is None:
        return None
    return ClusterChange(
        resource=address,
        operation=ResourceOperation.UPDATE,
        before_digest=before.digest,
        after_digest=after.digest,
        binding_change=metadata == "policy_bindings",
        metadata_change=metadata if before.digest == after.digest else None,
    )


def changed_settings(before: Resource, after: Resource) -> list[str]:
    """The changed settings of a resource, as lines: `name: before -> after`."""
    had, has = _settings(before), _settings(after)
    names = [name for name in dict.fromkeys([*had, *has]) if had.get(name) != has.get(name)]
    return [f"{name}: {had.get(name, '(none)')} -> {has.get(name, '(none)')}" for name in names]


def _settings(resource: Resource) -> dict[str, str]:
    profile, blobs = resource.embedding_profile, resource.external_blob_policy
    settings = {
        "applies_to": ", ".join(resource.applies_to or ()),
        "graph": resource.pipeline_graph,
        "embedding_provider": resource.embedding_provider,
        "external_blobs": ", ".join(f"{base.uri} ({base.scope})" for base in blobs.bases) if blobs else None,
        **(msgspec.structs.asdict(profile) if profile is not None else {}),
    }
    return {name: value for name, value in settings.items() if value}


def blast_radius(changes: Iterable[ClusterChange], dependencies: Sequence[Dependency]) -> tuple[BlastRadius, ...]:
    """The resources that depend on each changed resource."""
    affected = defaultdict(list)
    for edge in dependencies:
        affected[edge.target].append(edge.source)
    resources = (change.resource for change in changes if change.resource in affected)
    return tuple(BlastRadius(resource, tuple(affected[resource])) for resource in resources)


RECOVERY_PENDING: Final = "cluster_recovery_pending"
APPROVAL_REQUIRED: Final = "approval_required"
DEPENDENCY: Final = "dependency_not_applied"
UNSUPPORTED: Final = "apply_unsupported_kind"

GATE_REASONS: Final = {
    Kind.GRAPH: "deleting a deployed graph removes all its data; it must be approved",
    Kind.SCHEMA: "deleting a deployed schema definition must be approved",
}


def is_gated(change: ClusterChange, changes: Iterable[ClusterChange]) -> bool:
    """Whether a change needs an approval: the delete of a graph, or of a schema without its graph."""
    address = address_of(change)
    if change.operation is not ResourceOperation.DELETE or address.kind not in GATE_REASONS:
        return False
    return address.kind is Kind.GRAPH or not _deletes(changes, graph_address(address.name))


def _deletes(changes: Iterable[ClusterChange], resource: str) -> bool:
    return any(c.resource == resource and c.operation is ResourceOperation.DELETE for c in changes)


def address_of(change: ClusterChange) -> Address:
    address = Address.parse(change.resource)
    assert address is not None, "a change is of a resource"
    return address


@dataclass(frozen=True)
class PlanContext:
    """The resources before and after, the pending graphs, and the resources whose delete is approved."""

    before: Mapping[str, Resource]
    after: Mapping[str, Resource]
    pending: Collection[str] = ()
    approved: Collection[str] = ()


def classify(changes: Sequence[ClusterChange], outlook: PlanContext) -> tuple[ClusterChange, ...]:
    """The changes with their dispositions."""
    decide = _Classifier(outlook, {change.resource: change for change in changes}).decide
    decided = ((change, *decide(change)) for change in changes)
    return tuple(msgspec.structs.replace(change, disposition=how, reason=why) for change, how, why in decided)


@dataclass(frozen=True)
class _Classifier:
    outlook: PlanContext
    changes: Mapping[str, ClusterChange]

    def decide(self, change: ClusterChange) -> tuple[ChangeDisposition, str | None]:
        address, operation = address_of(change), change.operation
        match address.kind:
            case Kind.GRAPH if operation is ResourceOperation.UPDATE:
                is_stuck = _deletes(self.changes.values(), schema_address(address.name))
                return _DEFERRED if is_stuck else (ChangeDisposition.DERIVED, None)
            case Kind.GRAPH if operation is ResourceOperation.DELETE:
                return self._graph_delete(address.name)
            case Kind.SCHEMA if operation is ResourceOperation.DELETE:
                return self._graph_delete(address.name) if self._is_deleted(address.name) else _DEFERRED
            case Kind.QUERY if operation is ResourceOperation.DELETE:
                return self._graph_delete(address.graph) if self._is_deleted(address.graph) else _APPLIED
            case Kind.SCHEMA if operation is ResourceOperation.CREATE:
                is_new = graph_address(address.name) in self.changes
                is_free = is_new and address.name not in self.outlook.pending
                return _APPLIED if is_free else _blocked_because(RECOVERY_PENDING)
            case Kind.GRAPH | Kind.SCHEMA | Kind.QUERY:
                return _blocked_because(RECOVERY_PENDING) if address.graph in self.outlook.pending else _APPLIED
            case Kind.PIPELINE:
                after = self.outlook.after.get(change.resource)
                return self._follow_graphs((after.pipeline_graph or "",)) if after is not None else _APPLIED
            case Kind.POLICY:
                return self._policy(change)
            case Kind.EMBEDDING_PROVIDER:
                return self._provider(change)

    def _graph_delete(self, graph_id: str | None) -> tuple[ChangeDisposition, str | None]:
        if graph_id in self.outlook.pending:
            return _blocked_because(RECOVERY_PENDING)
        is_approved = graph_address(graph_id or "") in self.outlook.approved
        return _APPLIED if is_approved else _blocked_because(APPROVAL_REQUIRED)

    def _is_deleted(self, graph_id: str | None) -> bool:
        return _deletes(self.changes.values(), graph_address(graph_id or ""))

    def _policy(self, change: ClusterChange) -> tuple[ChangeDisposition, str | None]:
        had = self.outlook.before[change.resource].applies_to if change.resource in self.outlook.before else None
        has = self.outlook.after[change.resource].applies_to if change.resource in self.outlook.after else None
        kept = [scope for scope in had or () if scope not in (has or ()) and self._stays_undeclared(scope)]
        gains_a_graph = not {*(has or ())} <= {*(had or ())}
        # The bindings of a policy can change while it stays bound to an undeclared graph: its text must stay the same,
        # and rules of the server never become rules of a graph.
        is_update = change.operation is ResourceOperation.UPDATE and change.before_digest == change.after_digest
        if kept and not (gains_a_graph and is_update and CLUSTER_SCOPE not in (has or ())):
            return _blocked_because(DEPENDENCY)
        # Rules may move from one bundle to another: both change, or neither.
        return self._follow_graphs((*(had or ()), *(has or ())))

    def _provider(self, change: ClusterChange) -> tuple[ChangeDisposition, str | None]:
        if change.operation is ResourceOperation.DELETE:
            graphs = self.outlook.before.items()
            users = [address for address, graph in graphs if graph.embedding_provider == change.resource]
            if any(map(self._stays_undeclared, users)):
                return _blocked_because(DEPENDENCY)
        return _APPLIED

    def _stays_undeclared(self, graph: str) -> bool:
        """Whether a graph stays for now although its delete is declared."""
        address = Address.parse(graph)
        if address is None or address.kind is not Kind.GRAPH or not self._is_deleted(address.name):
            return False
        return self._graph_delete(address.name)[0] is not ChangeDisposition.APPLIED

    def _follow_graphs(self, graphs: Iterable[str]) -> tuple[ChangeDisposition, str | None]:
        pending = {graph_address(graph_id) for graph_id in self.outlook.pending}
        return _blocked_because(RECOVERY_PENDING) if pending.intersection(graphs) else _APPLIED


_APPLIED: Final[tuple[ChangeDisposition, None]] = (ChangeDisposition.APPLIED, None)
_DEFERRED: Final = (ChangeDisposition.DEFERRED, UNSUPPORTED)


def _blocked_because(reason: str) -> tuple[ChangeDisposition, str]:
    return ChangeDisposition.BLOCKED, reason


def demote(
    changes: Sequence[ClusterChange],
    failed: Mapping[str, str],
    before: Mapping[str, Resource],
    after: Mapping[str, Resource],
) -> tuple[ClusterChange, ...]:
    """The changes after failures: `failed` has a reason for each graph or schema that was not changed. Changes that
    depend on the graph are blocked too, and so are deletes of its rules and its provider, which it keeps."""
    graphs = {graph_address(address.name) for text in failed if (address := Address.parse(text)) is not None}
    used = {before[graph].embedding_provider for graph in graphs if graph in before}

    def of(change: ClusterChange) -> ClusterChange:
        if change.disposition is not ChangeDisposition.APPLIED:
            return change
        if change.resource in failed:
            return block(change, failed[change.resource])
        own = address_of(change).graph
        bound = {graph_address(own)} if own is not None else set()
        for resource in (before.get(change.resource), after.get(change.resource)):
            if resource is not None:
                bound |= {*(resource.applies_to or ()), resource.pipeline_graph or ""}
        is_lost = change.operation is ResourceOperation.DELETE and change.resource in used
        return block(change, DEPENDENCY) if is_lost or graphs & bound else change

    return tuple(map(of, changes))


def bound_until_deleted(had: Resource, changes: Iterable[ClusterChange]) -> tuple[str, ...]:
    """The graphs that an applied policy stays bound to because they are undeclared but not deleted yet."""
    waiting = {
        other.resource
        for other in changes
        if other.operation is ResourceOperation.DELETE and other.disposition is not ChangeDisposition.APPLIED
    }
    return tuple(scope for scope in had.applies_to or () if scope in waiting)


def block(change: ClusterChange, reason: str) -> ClusterChange:
    return msgspec.structs.replace(change, disposition=ChangeDisposition.BLOCKED, reason=reason)


_WHY: Final = {
    RECOVERY_PENDING: "its graph is pending",
    APPROVAL_REQUIRED: "run `omnigraph cluster approve {graph} --as <name>`, then apply again",
    DEPENDENCY: "a resource that it depends on, or that depends on it, was not applied",
    UNSUPPORTED: "apply can't make this change",
}


def unapplied_findings(changes: Iterable[ClusterChange]) -> Iterator[Diagnostic]:
    """A finding for each change that was not applied."""
    for change in changes:
        is_deferred = change.disposition is ChangeDisposition.DEFERRED
        if is_deferred or change.disposition is ChangeDisposition.BLOCKED:
            code = "apply_unsupported_change" if is_deferred else "apply_dependency_blocked"
            why = _WHY.get(change.reason or "", "see above")
            message = f"{change.reason}: {why.format(graph=graph_address(address_of(change).graph or ''))}"
            yield warning(code, change.resource, message)
