"""A draft of the next state of a cluster: the parts of a state while they change, and the state made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from omnigraph.cluster.ledger.ledger import LedgerRevision
from omnigraph.cluster.ledger.state import (
    AppliedRevision,
    ApprovalRecord,
    GraphObservation,
    GraphTombstone,
    RecoveryRecord,
    Resource,
    ResourceStatus,
    State,
    StatusKind,
    Written,
    composite_digest,
)
from omnigraph.cluster.resources import Address, graph_address, schema_address


@dataclass
class StateBuilder:
    config_digest: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    statuses: dict[str, ResourceStatus] = field(default_factory=dict)
    approvals: dict[str, ApprovalRecord] = field(default_factory=dict)
    recoveries: dict[str, RecoveryRecord] = field(default_factory=dict)
    observations: dict[str, GraphObservation | GraphTombstone] = field(default_factory=dict)
    retired_roots: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> StateBuilder:
        return cls(
            state.applied_revision.config_digest,
            dict(state.resources),
            dict(state.resource_statuses),
            dict(state.approval_records),
            dict(state.recovery_records),
            dict(state.observations),
            dict(state.retired_roots),
        )

    def state(self, written: Written | None = None) -> State:
        """The state, with the digest of every graph covering what is recorded of it."""
        resources = dict(sorted(self.resources.items()))
        state = State(
            state_revision=0,
            operation_id="",
            written=written,
            applied_revision=AppliedRevision(self.config_digest, resources),
            resource_statuses=dict(sorted(self.statuses.items())),
            approval_records=self.approvals,
            recovery_records=self.recoveries,
            observations=dict(sorted(self.observations.items())),
            retired_roots=self.retired_roots,
        )
        for graph_id in state.graph_ids:
            address = graph_address(graph_id)
            digest = composite_digest(state.resources, graph_id)
            resources[address] = msgspec.structs.replace(resources[address], digest=digest)
        return state

    def differs_from(self, recorded: LedgerRevision) -> bool:
        """Whether anything differs from a state that stands."""
        before = recorded.state
        same = msgspec.structs.replace(
            self.state(before.written), state_revision=before.state_revision, operation_id=before.operation_id
        )
        return same != before

    def settle(
        self, address: str, status: StatusKind, condition: str | None = None, message: str | None = None
    ) -> None:
        self.statuses[address] = ResourceStatus(status, () if condition is None else (condition,), message)

    def set_graph_status(
        self, graph_id: str, status: StatusKind, condition: str | None = None, message: str | None = None
    ) -> None:
        for address in (graph_address(graph_id), schema_address(graph_id)):
            self.settle(address, status, condition, message)

    def record_graph(self, graph_id: str, schema_digest: str) -> None:
        """That a graph stands, with this schema. What is recorded of it beside that stays."""
        self.resources.setdefault(graph_address(graph_id), Resource(digest="0" * 64))
        self.resources[schema_address(graph_id)] = Resource(digest=schema_digest)

    def forget(self, address: str) -> None:
        self.resources.pop(address, None)
        self.statuses.pop(address, None)

    def forget_graph(self, graph_id: str) -> None:
        """A graph that was deleted, with all that hangs on it: its schema, its queries, the pipelines that load it. Its
        root is never used again."""
        for text in [*self.resources, *self.statuses]:
            address, resource = Address.parse(text), self.resources.get(text)
            is_loading = resource is not None and resource.pipeline_graph == graph_address(graph_id)
            if is_loading or (address is not None and address.graph == graph_id):
                self.forget(text)
        self.retired_roots[graph_id] = self.retired_roots.get(graph_id, 0) + 1

    def generation(self, graph_id: str) -> int:
        return self.retired_roots.get(graph_id, 0) + 1
