"""Approvals of changes that can't be undone.

A person approves one change of one state; the apply that makes the change uses the approval up. An edit of the
configuration or a change of the graph makes an approval stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from omnigraph.api.enums import ResourceOperation
from omnigraph.api.service.cluster import ApprovalRequired, ClusterChange
from omnigraph.cluster.plan.diff import GATE_REASONS, address_of, is_gated
from omnigraph.cluster.resources import ClusterError, Diagnostic, Kind, warning
from omnigraph.cluster.state import ApprovalRecord, StateBuilder
from omnigraph.cluster.state_ledger import timestamp
from omnigraph.cluster.storage_root import CLUSTER_FOLDER, graph_folder, object_names
from omnigraph.errors import StorageError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.objects import Objects

APPROVALS_FOLDER: Final = f"{CLUSTER_FOLDER}/approvals"
APPROVAL_VERSION: Final = 1


class Approval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`bound_*` identify the approved change: the configuration, the digests and the folder of the graph. A graph that
    was created again must not be deleted by an approval for its predecessor."""

    schema_version: int = APPROVAL_VERSION
    approval_id: str
    resource: str
    operation: ResourceOperation
    reason: str
    bound_config_digest: str
    bound_before_digest: str | None
    bound_after_digest: str | None
    bound_root: str | None = None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None

    def is_for(self, change: ClusterChange, config_digest: str, root: str | None) -> bool:
        bound = (self.bound_config_digest, self.bound_before_digest, self.bound_after_digest, self.bound_root)
        return bound == (config_digest, change.before_digest, change.after_digest, root)


class _Versioned(Struct):
    schema_version: int


@dataclass
class Gates:
    """The changes of a plan that need an approval, and the approvals that exist."""

    required: list[ApprovalRequired] = field(default_factory=list)
    approvals: dict[str, Approval] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


def find_gates(
    objects: Objects, changes: tuple[ClusterChange, ...], config_digest: str, builder: StateBuilder
) -> Gates:
    """The gates of these changes. Approvals are only read when a change needs one."""
    gates = Gates()
    gated = [change for change in changes if is_gated(change, changes)]
    standing = _unspent(objects, builder.approval_records, gates.findings) if gated else []
    for change in gated:
        approvals = [a for a in standing if (a.resource, a.operation) == (change.resource, change.operation)]
        fitting = [a for a in approvals if a.is_for(change, config_digest, root_of(change, builder))]
        if fitting:
            gates.approvals[change.resource] = fitting[0]
        elif approvals:
            message = f"approval {approvals[-1].approval_id} was given for another state of it; approve it again"
            gates.findings.append(warning("approval_stale", change.resource, message))
        reason = GATE_REASONS[address_of(change).kind]
        gates.required.append(ApprovalRequired(change.resource, reason, change.resource in gates.approvals))
    return gates


def root_of(change: ClusterChange, builder: StateBuilder) -> str | None:
    """The folder of the graph that a change deletes."""
    address = address_of(change)
    return graph_folder(address.name, builder.generation(address.name)) if address.kind is Kind.GRAPH else None


def approve(objects: Objects, change: ClusterChange, config_digest: str, root: str | None, approver: str) -> Approval:
    """Store an approval of a change. Raises `ClusterError`."""
    approval = Approval(
        approval_id=new_ulid(),
        resource=change.resource,
        operation=change.operation,
        reason=GATE_REASONS[address_of(change).kind],
        bound_config_digest=config_digest,
        bound_before_digest=change.before_digest,
        bound_after_digest=change.after_digest,
        bound_root=root,
        approved_by=approver,
        created_at=timestamp(),
    )
    path = _path(approval.approval_id)
    try:
        # The id is unique, so an object that exists already is our own request, whose response was lost.
        objects.claim(path, _encode(approval))
    except StorageError as problem:
        raise ClusterError.of("approval_write_error", path, str(problem)) from problem
    return approval


def mark_spent(objects: Objects, approval: Approval, record: ApprovalRecord) -> list[Diagnostic]:
    """Mark an approval as used. The ledger records that too, so a failure is only a warning."""
    spent = msgspec.structs.replace(
        approval, consumed_at=record.consumed_at, consumed_by_operation=record.consumed_by_operation
    )
    path = _path(approval.approval_id)
    try:
        objects.put(path, _encode(spent), durable=True)
    except StorageError as problem:
        return [warning("approval_write_error", path, f"it is used, but could not be marked as used: {problem}")]
    return []


def _unspent(objects: Objects, spent: Mapping[str, ApprovalRecord], findings: list[Diagnostic]) -> list[Approval]:
    try:
        names = object_names(objects, APPROVALS_FOLDER)
    except StorageError as problem:
        findings.append(warning("approval_read_error", APPROVALS_FOLDER, str(problem)))
        return []
    read = (_read(objects, f"{APPROVALS_FOLDER}/{name}", findings) for name in sorted(names) if name.endswith(".json"))
    return [a for a in read if a is not None and a.consumed_at is None and a.approval_id not in spent]


def _read(objects: Objects, path: str, findings: list[Diagnostic]) -> Approval | None:
    """An approval; None, with a warning, when it can't be understood."""
    try:
        data = objects.get(path)
    except StorageError as problem:
        findings.append(warning("approval_read_error", path, f"it is ignored: {problem}"))
        return None
    if data is None:
        return None
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != APPROVAL_VERSION:
            message = f"it is ignored: it has version {version}, and this omnigraph knows version {APPROVAL_VERSION}"
            findings.append(warning("unsupported_approval_version", path, message))
            return None
        return msgspec.json.decode(data, type=Approval)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        findings.append(warning("invalid_approval_artifact", path, f"it is ignored: {problem}"))
        return None


def _path(approval_id: str) -> str:
    return f"{APPROVALS_FOLDER}/{approval_id}.json"


def _encode(approval: Approval) -> bytes:
    return msgspec.json.format(msgspec.json.encode(approval), indent=2) + b"\n"
