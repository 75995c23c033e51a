"""Clusters and servers: diagnostics, the status of resources, stored queries, and the reports of cluster commands.

`omnigraph.cluster` and the server make these structs; the command line and HTTP show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct, field

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import ChangeDisposition, ResourceOperation, Severity, StatusKind
from omnigraph.api.queries import ParamDescriptor, StoredQueries
from omnigraph.api.schema import SchemaPlan
from omnigraph.api.wire import LOCAL


class ClusterDiagnostic(Struct, frozen=True):
    """One finding. `path` is a dotted key of the configuration, the address of a resource, or a file of the ledger."""

    code: str
    severity: Severity
    path: str
    message: str

    def __str__(self) -> str:
        label = "ERROR" if self.severity is Severity.ERROR else "WARN "
        return f"{label} {self.code} {self.path}: {self.message}"


Diagnostics: TypeAlias = tuple[ClusterDiagnostic, ...]


def is_ok(diagnostics: Diagnostics) -> bool:
    return all(finding.severity is not Severity.ERROR for finding in diagnostics)


# What a ledger says


class ResourceStatus(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    status: StatusKind
    conditions: tuple[str, ...] = ()
    message: str | None = None


class GraphObservation(Struct, frozen=True, kw_only=True, tag="graph", tag_field="kind", forbid_unknown_fields=True):
    """What was found at the root of a graph."""

    address: str
    graph_uri: str
    observed_at: str
    exists: bool
    graph_manifest_version: int | None = None
    schema_digest: str | None = None
    desired_schema_digest: str | None = None
    schema_matches_desired: bool | None = None
    error: str | None = None


class GraphTombstone(Struct, frozen=True, kw_only=True, tag="tombstone", tag_field="kind", forbid_unknown_fields=True):
    """A graph that was deleted."""

    deleted_at: str
    approval_id: str | None
    actor: str | None


Observations: TypeAlias = dict[str, GraphObservation | GraphTombstone]
Statuses: TypeAlias = dict[str, ResourceStatus]


class StateObservations(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger and the lock as a command found them; of its own lock, `lock_id` is `acquired_lock_id`."""

    state_path: str
    lock_path: str
    state_found: bool
    applied_config_digest: str | None = None
    state_revision: int
    state_cas: str | None = None
    resource_count: int
    locked: bool
    lock_id: str | None = None
    lock_acquired: bool
    acquired_lock_id: str | None = None
    lock_operation: str | None = None
    lock_created_at: str | None = None
    lock_pid: int | None = None
    lock_age_seconds: int | None = None


# What commands report


class DeclaredResource(Struct, frozen=True, omit_defaults=True):
    """A resource of the configuration. `path` is the file it is written in, where it is one."""

    address: str
    kind: str
    digest: str
    path: str | None = None


class Dependency(Struct, frozen=True):
    """`source` can't be applied without `target`."""

    source: str = field(name="from")
    target: str = field(name="to")


class DesiredRevision(Struct, frozen=True, omit_defaults=True):
    config_digest: str | None = None


class ClusterChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to one resource, and why it does not when it does not."""

    resource: str
    operation: ResourceOperation
    before_digest: str | None = None
    after_digest: str | None = None
    disposition: ChangeDisposition | None = None
    reason: str | None = None
    binding_change: bool = False
    metadata_change: Literal["policy_bindings", "embedding_profile", "pipeline_graph"] | None = None
    migration: SchemaPlan | None = None


class BlastRadius(Struct, frozen=True):
    """What depends on a resource that changes."""

    resource: str
    affected: tuple[str, ...]


class ApprovalRequired(Struct, frozen=True):
    resource: str
    reason: str
    satisfied: bool


class ClusterValidated(Struct, frozen=True, kw_only=True):
    ok: bool
    config_dir: str
    config_file: str
    resource_digests: dict[str, str]
    resources: tuple[DeclaredResource, ...]
    dependencies: tuple[Dependency, ...]
    diagnostics: Diagnostics


class ClusterPlan(Struct, frozen=True, kw_only=True):
    ok: bool
    config_dir: str
    desired_revision: DesiredRevision
    resource_digests: dict[str, str]
    dependencies: tuple[Dependency, ...]
    state_observations: StateObservations
    changes: tuple[ClusterChange, ...]
    blast_radius: tuple[BlastRadius, ...]
    approvals_required: tuple[ApprovalRequired, ...]
    diagnostics: Diagnostics


class ClusterApplied(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ok: bool
    config_dir: str
    actor: str | None = None
    desired_revision: DesiredRevision
    state_observations: StateObservations
    changes: tuple[ClusterChange, ...]
    applied_count: int
    deferred_count: int
    converged: bool
    state_written: bool
    resource_statuses: Statuses
    diagnostics: Diagnostics


class ClusterApproved(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ok: bool
    config_dir: str
    approval_id: str | None = None
    resource: str | None = None
    operation: ResourceOperation | None = None
    approved_by: str | None = None
    diagnostics: Diagnostics


class AppliedPipeline(Struct, frozen=True, kw_only=True):
    """A pipeline, the graph it loads and the branch that its file names. `last_commit` is its newest run there, None
    when it has not run, or long ago."""

    name: str
    graph_id: str
    branch: str
    digest: str
    last_commit: CommitReceipt | None


class ClusterStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ok: bool
    config_dir: str
    state_observations: StateObservations
    resource_digests: dict[str, str]
    resource_statuses: Statuses
    observations: Observations
    pipelines: tuple[AppliedPipeline, ...] = ()
    diagnostics: Diagnostics


class ClusterObserved(Struct, frozen=True, kw_only=True):
    """Of `refresh` and `import`: as a status, with what was done."""

    ok: bool
    operation: Literal["refresh", "import"]
    config_dir: str
    state_observations: StateObservations
    resource_digests: dict[str, str]
    resource_statuses: Statuses
    observations: Observations
    diagnostics: Diagnostics


class ClusterUnlocked(Struct, frozen=True, kw_only=True):
    ok: bool
    config_dir: str
    state_observations: StateObservations
    lock_removed: bool
    diagnostics: Diagnostics


class ClusterRevision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One state of the ledger, and what it changed of the one before."""

    state_revision: int
    state_cas: str
    operation: str | None = None
    actor: str | None = None
    written_at: str | None = None
    config_digest: str | None = None
    resource_count: int
    changes: tuple[ClusterChange, ...]


class ClusterHistory(Struct, frozen=True, kw_only=True):
    """The states of a cluster, newest first."""

    ok: bool
    config_dir: str
    revisions: tuple[ClusterRevision, ...]
    diagnostics: Diagnostics


class DeclaredParameter(Struct, frozen=True):
    """`type` is its text in the query language, without the mark of a nullable one."""

    name: str
    type: str
    nullable: bool

    def __str__(self) -> str:
        return f"${self.name}: {self.type}{'?' if self.nullable else ''}"


class DeclaredQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored query by what its text declares. A cluster exposes no tools, so there is no name of one."""

    name: str
    mcp_expose: bool
    tool_name: str | None
    mutation: bool
    description: str | None = None
    instruction: str | None = None
    params: tuple[DeclaredParameter, ...]
    graph_id: str

    def lines(self) -> Iterator[str]:
        """The query for a person."""
        yield f"{'mutation' if self.mutation else 'read'}  {self.name}({', '.join(map(str, self.params))})"
        if self.description is not None:
            yield f"    description: {self.description}"
        if self.instruction is not None:
            yield f"    instruction: {self.instruction}"


class DeclaredQueries(Struct, frozen=True):
    """Sorted by graph, then by name."""

    queries: tuple[DeclaredQuery, ...]

    @classmethod
    def of_server(cls, listed: StoredQueries, graph_id: str) -> DeclaredQueries:
        """The queries that a server offers on a graph. It tells kinds of values where a text has types."""
        return cls(
            tuple(
                DeclaredQuery(
                    name=query.name,
                    mcp_expose=True,
                    tool_name=query.tool_name,
                    mutation=query.mutation,
                    description=query.description,
                    instruction=query.instruction,
                    params=tuple(DeclaredParameter(p.name, _kind(p), p.nullable) for p in query.params),
                    graph_id=graph_id,
                )
                for query in listed.queries
            )
        )

    def lines(self) -> Iterator[str]:
        """For a person; graphs are named where there are several."""
        if not self.queries:
            yield "(no stored queries registered)"
        graphs = {query.graph_id for query in self.queries}
        graph_id = None
        for query in self.queries:
            if len(graphs) > 1 and query.graph_id != graph_id:
                graph_id = query.graph_id
                yield f"graph {graph_id}"
            yield from query.lines()


def _kind(parameter: ParamDescriptor) -> str:
    if parameter.item_kind is not None:
        return f"[{parameter.item_kind}]"
    return parameter.kind if parameter.vector_dim is None else f"{parameter.kind}({parameter.vector_dim})"


class QueryNote(Struct, frozen=True):
    """What is wrong with one stored query, or odd about it."""

    query: str
    message: str
    graph_id: str


class QueriesValidated(Struct, frozen=True):
    """Whether every stored query fits the schema of its graph."""

    ok: bool
    breakages: tuple[QueryNote, ...]
    warnings: tuple[QueryNote, ...]
    checked: Annotated[int, LOCAL] = 0

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        for breakage in self.breakages:
            yield f"ERROR  query '{breakage.query}': {_indent(breakage.message)}"
        for warning in self.warnings:
            yield f"WARN   query '{warning.query}': {_indent(warning.message)}"
        if self.ok:
            checks = "1 stored query type-checks" if self.checked == 1 else f"{self.checked} stored queries type-check"
            yield f"OK  {checks} against the schema"


def _indent(text: str) -> str:
    return text.replace("\n", "\n       ")


class HealthOutput(Struct, frozen=True, omit_defaults=True):
    status: str
    version: str
    internal_schema_version: int
    source_version: str | None = None


LANGUAGES: Final = {"gq": "3.0"}
"""The query languages that this version understands, each with its own version."""


class VersionOutput(Struct, frozen=True):
    """The versions of the program, of the storage format that it writes, and of the query languages."""

    version: str
    internal_schema_version: int
    languages: dict[str, str]


class Readiness(Struct, frozen=True, omit_defaults=True):
    """How many graphs are served and how many are not. Which ones they are is for those who may know.

    `revision` is the applied state of a cluster that is served. `unserved_revision` is a newer one that a server which
    follows its cluster could not take over; why is in its log.
    """

    status: str
    graphs: int
    quarantined: int
    revision: int | None = None
    unserved_revision: int | None = None

    WIRE_NAME: ClassVar[str] = "ReadinessOutput"


class GraphInfo(Struct, frozen=True):
    graph_id: str
    uri: str


class GraphList(Struct, frozen=True):
    """Sorted by id."""

    graphs: tuple[GraphInfo, ...]

    WIRE_NAME: ClassVar[str] = "GraphListResponse"
