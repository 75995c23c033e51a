"""`cluster status`, `cluster history` and `cluster force-unlock`: commands that look at the ledger and the lock.

They need no more of a configuration than a header that can be read, and open no graph but those that pipelines load.
"""

from __future__ import annotations

from itertools import pairwise

from omnigraph.api.cluster import (
    AppliedPipeline,
    ClusterHistory,
    ClusterRevision,
    ClusterStatus,
    ClusterUnlocked,
    is_ok,
)
from omnigraph.cluster.applied import Applied
from omnigraph.cluster.diagnostics import ClusterError, Diagnostic, error, warning
from omnigraph.cluster.diff import difference
from omnigraph.cluster.last_runs import pipelines_with_runs
from omnigraph.cluster.ledger import STATE_FOLDER, Recorded, revision_path
from omnigraph.cluster.lock import LOCK_PATH, Lock, read_lock
from omnigraph.cluster.payloads import damaged_payloads
from omnigraph.cluster.session import UNREAD, Session, look_at_lock, open_to_look
from omnigraph.cluster.state import EMPTY, Resource
from omnigraph.cluster.storage_root import shown_directory
from omnigraph.errors import StorageError


def status(source: str, revision: int | None = None) -> ClusterStatus:
    """The newest state, or the one of that revision."""
    session: Session | None = None
    found: list[Diagnostic] = []
    pipelines: tuple[AppliedPipeline, ...] = ()
    try:
        session = open_to_look(source)
        if session is not None:
            look_at_lock(session)
            ledger = session.ledger
            session.recorded = ledger.newest() if revision is None else ledger.revision(revision)
        if session is None or session.recorded is None:
            found.append(_missing(revision))
        else:
            damaged = damaged_payloads(session.catalog, session.recorded.state.resources)
            found += [payload.finding("the next apply stores it again") for payload in damaged]
            if revision is None:  # an earlier state may speak of graphs that are gone
                pipelines, unknown = pipelines_with_runs(Applied(session.store, session.recorded.state))
                found += unknown
    except ClusterError as problem:
        found += problem.diagnostics
    if session is not None:
        found = [*session.found, *found]
    state = session.recorded.state if session is not None and session.recorded is not None else None
    return ClusterStatus(
        ok=is_ok(tuple(found)),
        config_dir=shown_directory(source),
        state_observations=session.observations() if session is not None else UNREAD,
        resource_digests={address: r.digest for address, r in state.resources.items()} if state is not None else {},
        resource_statuses=state.resource_statuses if state is not None else {},
        observations=state.observations if state is not None else {},
        pipelines=pipelines,
        diagnostics=tuple(found),
    )


def _missing(revision: int | None) -> Diagnostic:
    if revision is not None:
        return error("state_missing", revision_path(revision), f"the ledger has no revision {revision}")
    return warning("state_missing", STATE_FOLDER, "the cluster has no state yet; run `omnigraph cluster import`")


def history(source: str, limit: int | None = None) -> ClusterHistory:
    """The states of a cluster with what each changed, newest first, at most `limit` of them."""
    session: Session | None = None
    revisions: tuple[ClusterRevision, ...] = ()
    found: list[Diagnostic] = []
    try:
        session = open_to_look(source)
        numbers = session.ledger.revisions() if session is not None else []
        if session is None or not numbers:
            found.append(_missing(None))
        else:
            revisions = _told(session, numbers, limit)
    except ClusterError as problem:
        found += problem.diagnostics
    return ClusterHistory(
        ok=is_ok(tuple(found)),
        config_dir=shown_directory(source),
        revisions=revisions,
        diagnostics=tuple(found),
    )


def _told(session: Session, numbers: list[int], limit: int | None) -> tuple[ClusterRevision, ...]:
    wanted = numbers if limit is None else numbers[-limit - 1 :]
    read = [session.ledger.revision(number) for number in wanted]
    states: list[Recorded | None] = [None, *(recorded for recorded in read if recorded is not None)]
    told = [_revision(before, after) for before, after in pairwise(states) if after is not None]
    return tuple(reversed(told if limit is None else told[-limit:]))


def _revision(before: Recorded | None, after: Recorded) -> ClusterRevision:
    had: dict[str, Resource] = before.state.resources if before is not None else EMPTY.resources
    written = after.state.written
    return ClusterRevision(
        state_revision=after.revision,
        state_cas=after.state_cas,
        operation=written.operation if written is not None else None,
        actor=written.actor if written is not None else None,
        written_at=written.at if written is not None else None,
        config_digest=after.state.applied_revision.config_digest,
        resource_count=len(after.state.resources),
        changes=difference(had, after.state.resources),
    )


def force_unlock(source: str, lock_id: str) -> tuple[ClusterUnlocked, Lock | None]:
    """Remove the lock of that id; also the lock that was removed."""
    session: Session | None = None
    held: Lock | None = None
    removed = False
    found: list[Diagnostic] = []
    try:
        session = open_to_look(source)
        held = read_lock(session.store) if session is not None else None
        if session is None or held is None:
            raise ClusterError.of("state_lock_missing", LOCK_PATH, "nobody holds the lock")
        session.holder = held
        if held.lock_id != lock_id:
            message = f"the lock that is held is another one ({held})"
            raise ClusterError.of("state_lock_id_mismatch", LOCK_PATH, message)
        try:
            session.store.delete(LOCK_PATH)
        except StorageError as problem:
            raise ClusterError.of("state_lock_error", LOCK_PATH, str(problem)) from problem
        session.holder, removed = None, True
        # Last, and for the report only: a ledger that can't be read must not keep anybody locked out.
        session.recorded = session.ledger.newest()
    except ClusterError as problem:
        found += problem.diagnostics
    output = ClusterUnlocked(
        ok=is_ok(tuple(found)),
        config_dir=shown_directory(source),
        state_observations=session.observations() if session is not None else UNREAD,
        lock_removed=removed,
        diagnostics=tuple(found),
    )
    return output, held if removed else None
