"""The state of a cluster as one revision of the ledger holds it, its builder, and the digests of resources.

The ledger and every command use these structs. Ledgers outlive versions of this program, so neither the persisted
fields nor the bytes that are hashed may ever change their meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from omnigraph.api.enums import StatusKind as StatusKind
from omnigraph.api.service.cluster import GraphObservation as GraphObservation
from omnigraph.api.service.cluster import GraphTombstone as GraphTombstone
from omnigraph.api.service.cluster import ResourceStatus as ResourceStatus
from omnigraph.cluster.configuration import ClusterConfig
from omnigraph.cluster.resources import Address, Kind, graph_address, schema_address
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope
from omnigraph.errors import FormatVersionError, IntegrityError

STATE_VERSION: Final = 1

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""Lower-case SHA-256. It becomes part of a path, so nothing else is accepted."""


class BlobBase(Struct, frozen=True, forbid_unknown_fields=True):
    uri: str
    scope: Scope


class BlobPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """The external blobs that a graph allows. A graph without a policy allows none."""

    mode: Literal["allow"]
    bases: tuple[BlobBase, ...]


class Resource(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An applied resource. Its kind determines which members it has beside the digest."""

    digest: Digest
    applies_to: tuple[str, ...] | None = None
    """Of policies: their bindings, sorted."""
    embedding_provider: str | None = None
    """Of graphs: the address of their embedding provider."""
    external_blob_policy: BlobPolicy | None = None
    """Of graphs."""
    embedding_profile: EmbeddingProfile | None = None
    """Of embedding providers."""
    pipeline_graph: str | None = None
    """Of pipelines: the address of the graph that they load."""


class AppliedRevision(Struct, frozen=True, forbid_unknown_fields=True):
    config_digest: str | None
    resources: dict[str, Resource]


class ApprovalRecord(Struct, frozen=True, forbid_unknown_fields=True):
    consumed_at: str
    consumed_by_operation: str


class RecoveryRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operation that died before it was recorded, and that a later command recorded."""

    kind: str
    graph_id: str
    outcome: Literal["rolled_forward"]
    recovered_at: str
    actor: str | None


class Written(Struct, frozen=True, forbid_unknown_fields=True):
    """The command, the actor and the time of a revision."""

    operation: str
    actor: str | None
    at: str


class State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One revision. `operation_id` is unique to the write that created it, so no two revisions have the same text."""

    version: int = STATE_VERSION
    state_revision: int
    operation_id: str
    written: Written | None = None
    applied_revision: AppliedRevision
    resource_statuses: dict[str, ResourceStatus] = {}
    approval_records: dict[str, ApprovalRecord] = {}
    recovery_records: dict[str, RecoveryRecord] = {}
    observations: dict[str, GraphObservation | GraphTombstone] = {}
    retired_roots: dict[str, int] = {}
    """The number of deleted folders by graph id. Their names are never used again."""

    @property
    def resources(self) -> dict[str, Resource]:
        return self.applied_revision.resources

    @property
    def digests(self) -> dict[str, str]:
        return {address: resource.digest for address, resource in self.resources.items()}

    def of_kind(self, kind: Kind) -> Iterator[tuple[Address, Resource]]:
        """The applied resources of a kind, sorted by address."""
        for text in sorted(self.resources):
            address = Address.parse(text)
            if address is not None and address.kind is kind:
                yield address, self.resources[text]

    @property
    def graph_ids(self) -> list[str]:
        return [address.name for address, _ in self.of_kind(Kind.GRAPH)]

    def generation(self, graph_id: str) -> int:
        """The number of the current folder of a graph id."""
        return self.retired_roots.get(graph_id, 0) + 1

    def conditions(self, graph_id: str) -> set[str]:
        """The conditions of a graph and its schema."""
        statuses = (self.resource_statuses.get(address(graph_id)) for address in (graph_address, schema_address))
        return {condition for status in statuses if status is not None for condition in status.conditions}


EMPTY: Final = AppliedRevision(None, {})


class _Versioned(Struct):
    version: int


_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_STATE: Final = msgspec.json.Decoder(State)


def decode_state(path: str, data: bytes) -> State:
    """A state from its text. The version is checked first; `path` is for messages."""
    try:
        version = _VERSIONED.decode(data).version
        if version != STATE_VERSION:
            raise FormatVersionError(path, version, STATE_VERSION)
        state = _STATE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IntegrityError(path, f"is not a cluster state ({error})") from None
    for address in state.resources:
        if Address.parse(address) is None:
            raise IntegrityError(path, f"names a resource of an unknown kind: '{address}'")
    return state


def encode_state(state: State) -> bytes:
    """Indented JSON that ends in a newline."""
    return msgspec.json.format(msgspec.json.encode(state, order="deterministic"), indent=2) + b"\n"


def file_digest(data: bytes) -> str:
    """The digest of a schema, a query file or a policy file."""
    return hashlib.sha256(data).hexdigest()


def embedding_provider_digest(profile: EmbeddingProfile) -> str:
    return file_digest(b"embedding-provider\0" + msgspec.json.encode(profile))


def graph_digest(
    graph_id: str,
    schema: str | None,
    queries: Mapping[str, str],
    provider: tuple[str, str] | None = None,
    blobs: BlobPolicy | None = None,
) -> str:
    """The digest of a graph: of its schema and queries by name, the address and digest of its provider, and its
    external blob policy."""
    parts = ["graph", graph_id, "schema", schema or ""]
    for name in sorted(queries):
        parts += ["query", name, queries[name]]
    if provider is not None:
        parts += ["embedding_provider", *provider]
    if blobs is not None:
        parts += ["external_blob_policy", msgspec.json.encode(blobs).decode()]
    return file_digest("".join(f"{part}\0" for part in parts).encode())


def config_digest(config: ClusterConfig, digests: Mapping[str, str]) -> str:
    """The digest of a configuration and of its resources, by address."""
    parts = ["cluster-config", msgspec.json.encode(config, order="deterministic").decode()]
    for address in sorted(digests):
        parts += [address, digests[address]]
    return file_digest("".join(f"{part}\0" for part in parts).encode())


def composite_digest(resources: Mapping[str, Resource], graph_id: str) -> str:
    """The digest that a graph must have, computed from the other resources."""
    digests = {address: resource.digest for address, resource in resources.items()}
    addresses = ((address, digest) for text, digest in digests.items() if (address := Address.parse(text)))
    queries = {a.name: digest for a, digest in addresses if a.kind is Kind.QUERY and a.graph == graph_id}
    graph = resources[graph_address(graph_id)]
    bound = graph.embedding_provider
    provider = (bound, digests.get(bound, "")) if bound is not None else None
    schema = digests.get(schema_address(graph_id))
    return graph_digest(graph_id, schema, queries, provider, graph.external_blob_policy)


_PARTS: Final = ("resource_statuses", "approval_records", "recovery_records", "observations", "retired_roots")


@dataclass
class StateBuilder:
    """The parts of the next state while a command changes them, named as in `State`."""

    config_digest: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    resource_statuses: dict[str, ResourceStatus] = field(default_factory=dict)
    approval_records: dict[str, ApprovalRecord] = field(default_factory=dict)
    recovery_records: dict[str, RecoveryRecord] = field(default_factory=dict)
    observations: dict[str, GraphObservation | GraphTombstone] = field(default_factory=dict)
    retired_roots: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> StateBuilder:
        parts = {name: dict(getattr(state, name)) for name in _PARTS}
        return cls(state.applied_revision.config_digest, dict(state.resources), **parts)

    def state(self, written: Written | None = None) -> State:
        """The state, with up-to-date digests of all graphs."""
        resources = dict(sorted(self.resources.items()))
        parts: dict[str, Any] = {name: dict(sorted(getattr(self, name).items())) for name in _PARTS}
        state = State(
            state_revision=0,
            operation_id="",
            written=written,
            applied_revision=AppliedRevision(self.config_digest, resources),
            **parts,
        )
        for graph_id in state.graph_ids:
            address = graph_address(graph_id)
            digest = composite_digest(state.resources, graph_id)
            resources[address] = msgspec.structs.replace(resources[address], digest=digest)
        return state

    def differs_from(self, before: State) -> bool:
        """Whether the state would differ from a recorded one in more than its revision."""
        same = msgspec.structs.replace(
            self.state(before.written), state_revision=before.state_revision, operation_id=before.operation_id
        )
        return same != before

    def set_status(
        self, address: str, status: StatusKind, condition: str | None = None, message: str | None = None
    ) -> None:
        self.resource_statuses[address] = ResourceStatus(status, () if condition is None else (condition,), message)

    def set_graph_status(
        self, graph_id: str, status: StatusKind, condition: str | None = None, message: str | None = None
    ) -> None:
        for address in (graph_address(graph_id), schema_address(graph_id)):
            self.set_status(address, status, condition, message)

    def record_graph(self, graph_id: str, schema_digest: str) -> None:
        """Record that a graph exists with this schema, and keep its other settings."""
        self.resources.setdefault(graph_address(graph_id), Resource(digest="0" * 64))
        self.resources[schema_address(graph_id)] = Resource(digest=schema_digest)

    def forget(self, address: str) -> None:
        self.resources.pop(address, None)
        self.resource_statuses.pop(address, None)

    def forget_graph(self, graph_id: str) -> None:
        """Drop a deleted graph with its schema, its queries and the pipelines that load it, and retire its folder."""
        for text in [*self.resources, *self.resource_statuses]:
            address, resource = Address.parse(text), self.resources.get(text)
            is_loading = resource is not None and resource.pipeline_graph == graph_address(graph_id)
            if is_loading or (address is not None and address.graph == graph_id):
                self.forget(text)
        self.retired_roots[graph_id] = self.retired_roots.get(graph_id, 0) + 1

    def generation(self, graph_id: str) -> int:
        return self.retired_roots.get(graph_id, 0) + 1
