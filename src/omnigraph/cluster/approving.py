"""`cluster approve`: one person's word for one change that can't be undone."""

from __future__ import annotations

from functools import partial

from omnigraph.api.cluster import ClusterApproved
from omnigraph.cluster.approvals import Approval, root_of
from omnigraph.cluster.approvals import approve as write_approval
from omnigraph.cluster.attempt import Attempt
from omnigraph.cluster.desired import Desired, ReadPipeline
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.dispositions import is_gated
from omnigraph.cluster.prospect import look_ahead, not_recorded_yet, require_state
from omnigraph.cluster.session import Session


def approve(source: str, resource: str, read_pipeline: ReadPipeline, *, approver: str) -> ClusterApproved:
    attempt = Attempt(source)
    approval = attempt.run("approve", read_pipeline, partial(_approve, resource=resource, approver=approver))
    return ClusterApproved(
        ok=attempt.ok,
        config_dir=attempt.config_dir,
        approval_id=approval.approval_id if approval is not None else None,
        resource=approval.resource if approval is not None else None,
        operation=approval.operation if approval is not None else None,
        approved_by=approval.approved_by if approval is not None else None,
        diagnostics=attempt.diagnostics,
    )


def _approve(session: Session, desired: Desired, *, resource: str, approver: str) -> Approval:
    require_state(session)
    prospect = look_ahead(session, desired)
    session.found += not_recorded_yet(prospect.settlement.found)
    change = next((change for change in prospect.changes if change.resource == resource), None)
    if change is None or not is_gated(change, prospect.changes):
        gated = [required.resource for required in prospect.gates.required]
        waiting = f"waiting for approval: {', '.join(gated)}" if gated else "nothing waits for approval"
        raise ClusterError.of("approval_not_required", resource, f"no change of it needs an approval; {waiting}")
    root = root_of(change, prospect.draft)
    return write_approval(session.store, change, desired.config_digest, root, approver)
