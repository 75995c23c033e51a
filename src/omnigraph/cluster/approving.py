"""`cluster approve`: one person's word for one change that can't be undone."""

from __future__ import annotations

from omnigraph.api.cluster import ClusterApproved, is_ok
from omnigraph.cluster.approvals import approve as write_approval
from omnigraph.cluster.desired import Desired, ReadPipeline
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.dispositions import is_gated
from omnigraph.cluster.planning import load
from omnigraph.cluster.prospect import look_ahead, not_recorded_yet, require_state
from omnigraph.cluster.session import Session, locked, open_session


def approve(source: str, resource: str, read_pipeline: ReadPipeline, *, approver: str) -> ClusterApproved:
    desired: Desired | None = None
    session: Session | None = None
    approval = None
    try:
        desired = load(source, read_pipeline)
        session = open_session(source)
        with locked(session, "approve"):
            session.recorded = session.ledger.newest()
            require_state(session)
            prospect = look_ahead(session, desired)
            session.found += not_recorded_yet(prospect.settlement.found)
            change = next((change for change in prospect.changes if change.resource == resource), None)
            if change is None or not is_gated(change, prospect.changes):
                gated = [required.resource for required in prospect.gates.required]
                waiting = f"waiting for approval: {', '.join(gated)}" if gated else "nothing waits for approval"
                message = f"no change of it needs an approval; {waiting}"
                raise ClusterError.of("approval_not_required", resource, message)
            approval = write_approval(session.store, change, desired.config_digest, approver)
    except ClusterError as problem:
        found = [*(session.found if session is not None else ()), *problem.diagnostics]
    else:
        found = session.found
    return ClusterApproved(
        ok=is_ok(tuple(found)),
        config_dir=str(desired.file.directory) if desired is not None else source,
        approval_id=approval.approval_id if approval is not None else None,
        resource=approval.resource if approval is not None else None,
        operation=approval.operation if approval is not None else None,
        approved_by=approval.approved_by if approval is not None else None,
        diagnostics=tuple(found),
    )
