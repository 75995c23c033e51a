"""Merging one branch into another: by entity, all or nothing, as one commit with two parents.

`Graph` calls `merge` and `preview`. If the target has no commits of its own, its next entry names the versions of the
source: no data is read and nothing needs validation. Otherwise `merge_plan` plans the result, `merge_decision` decides
each entity, and the publish machine refuses the plan if the target moved meanwhile.
"""

from __future__ import annotations

import json

from msgspec import structs

from omnigraph.api.branches import MergeConflict, MergePreview, MergeRequest, MergeResult
from omnigraph.api.enums import MergeOutcome, PolicyAction, Side
from omnigraph.api.history import EntityChange
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.commits import key_use
from omnigraph.engine.history.diff import diff
from omnigraph.engine.history.merge_plan import MergePlan, ThreeStates, plan_merge
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write import publish
from omnigraph.engine.write.change import RequestDigest
from omnigraph.engine.write.publish import receipt_of
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    MergeConflictsError,
    OmniGraphError,
    ReadSetChangedError,
)
from omnigraph.storage.identifiers import checked_branch_name
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.log.ref_generations import earlier_use
from omnigraph.storage.models import KeyUse, LogEntry
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.staging import StagedTable

_OUTCOME = "merge"


def merge(workspace: Workspace, request: MergeRequest) -> MergeResult:
    """Merge the source's head, as it is now, into the target; then delete the source if that was asked for."""
    request = _check_request(request)
    workspace.require(request.actor, PolicyAction.BRANCH_MERGE, request.source, request.target)
    workspace.refuse_restricted("a merge")
    intent, published, key = _intent(request), None, None
    if request.idempotency_key is not None:
        # The source of an earlier merge with this key may be gone since.
        published = publish.already_published(workspace.begin(request.target, intent))
        if request.delete_branch and intent.request_digest is not None:
            # Where nothing was to be merged, the deletion of the source is all that a merge leaves.
            key = key_use(workspace, request.idempotency_key, request.actor, intent.kind, intent.request_digest)
    result = MergeResult(request.source, request.target, MergeOutcome.ALREADY_UP_TO_DATE, request.actor)
    if published is None:
        try:
            with publish.held_source(workspace.root, request.source) as held:
                if earlier_use(held.ref.earlier_keys, key) is not None:
                    raise BranchNotFoundError(request.source, "it was deleted, and a new branch has its name")
                published = _publish(workspace, request, held, intent)
        except BranchNotFoundError:
            # A merge that had nothing to commit is known by the deletion of its source.
            if workspace.root.branches.earlier_use(request.source, key) is None:
                raise
            return structs.replace(result, branch_deleted=True, replayed=True)
        except MergeConflictsError:
            # Conflicts name entities. A restricted actor learns that there are conflicts, but not which.
            if all(workspace.sees_all(request.actor, branch) for branch in (request.source, request.target)):
                raise
            raise ConflictError(
                f"'{request.source}' can't be merged into '{request.target}' as it is: there are conflicts, which are "
                "not listed because you do not see all of both branches"
            ) from None
    if published is not None:
        outcome, commit = _outcome(published.entry), receipt_of(published.entry)
        result = structs.replace(result, outcome=outcome, replayed=published.replayed, commit=commit)
    if request.delete_branch:
        deleted, failure = _delete_source(workspace, request, published, key)
        result = structs.replace(result, branch_deleted=deleted, branch_delete_error=failure)
    return result


def _check_request(request: MergeRequest) -> MergeRequest:
    source, target = checked_branch_name(request.source), checked_branch_name(request.target)
    if source == target:
        raise BadRequestError(f"a merge needs distinct source and target branches, got '{source}' twice")
    return structs.replace(request, source=source, target=target)


def preview(workspace: Workspace, request: MergeRequest) -> MergePreview:
    """The same decisions as `merge`, without any effect."""
    workspace.refuse_restricted("the preview of a merge")
    request = _check_request(request)
    root = workspace.root
    source, target = root.branches.head(request.source), root.branches.head(request.target)
    outcome, base = _relation(root, source, target)
    changes: tuple[EntityChange, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    if outcome is MergeOutcome.FAST_FORWARD:
        before = Snapshot(workspace, target.ref.branch, target.entry)
        changes = diff(before, Snapshot(workspace, source.ref.branch, source.entry)).changes
    elif outcome is MergeOutcome.MERGED:
        plan = _plan(workspace, request, source, target, base, _intent(request))
        changes, conflicts = tuple(plan.target_changes()), tuple(plan.conflicts)
    base_id = None if base is None else base.commit.id
    return MergePreview.of(request.source, request.target, outcome, base_id, changes, conflicts)


def _publish(
    workspace: Workspace, request: MergeRequest, held: publish.HeldSource, intent: publish.Intent
) -> publish.PublishedCommit | None:
    captured: list[str] = []
    source = BranchHead(held.ref, held.entry)

    def prepare(txn: publish.WriteTxn) -> publish.PublishPlan | None:
        captured.append(txn.base.commit.id)
        target = BranchHead(txn.ref, txn.base)
        outcome, base = _relation(txn.root, source, target)
        if outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return None
        # A fast-forward names the source's versions: no data is touched, whatever the size of the graph.
        staged: dict[str, StagedTable] = {}
        tables, schema = source.entry.tables, source.entry.schema
        if outcome is MergeOutcome.MERGED:
            plan = _plan(workspace, request, source, target, base, txn.intent)
            if plan.conflicts:
                raise MergeConflictsError(source.ref.branch, target.ref.branch, plan.conflicts)
            merged = plan.stage_tables()
            staged = {key: table for key, table in merged.items() if target.entry.tables.get(key) != table.state}
            tables, schema = {key: table.state for key, table in merged.items()}, plan.schema
        try:
            txn.root.log.head(source.ref)
        except BranchNotFoundError:  # a source that only advanced meanwhile is fine
            name, commit_id = source.ref.branch, source.entry.commit.id
            raise ReadSetChangedError(f"graph_head:{name}", commit_id, "a deleted branch") from None
        return publish.PublishPlan(
            staged=staged,
            added={key: state for key, state in tables.items() if key not in staged},
            dropped=frozenset(target.entry.tables.keys() - tables.keys()),
            read_set=publish.ReadSet(everything=True),
            schema=schema,
            merged=source.entry.link,
            strict=True,
            details={_OUTCOME: json.dumps({"source": source.ref.branch, "outcome": outcome.value})},
            held_since=held.age,
        )

    try:
        return workspace.commit(request.target, prepare, intent, strict=True)
    except BranchNotFoundError:
        if not captured:
            raise
        raise ReadSetChangedError(f"graph_head:{request.target}", captured[0], "a deleted branch") from None


def _intent(request: MergeRequest) -> publish.Intent:
    decided, actor, key = request.resolutions, request.actor, request.idempotency_key
    parts = sorted(decided.kinds.items()), sorted(decided.by_entity.items())
    digest = RequestDigest("merge", request.source, request.target, *parts).text
    return publish.Intent(
        kind="merge", actor=actor, message=request.message, idempotency_key=key, request_digest=digest
    )


def _relation(root: GraphRoot, source: BranchHead, target: BranchHead) -> tuple[MergeOutcome, LogEntry | None]:
    """What a merge amounts to, and the base. A head on the other branch's own line needs no walk through history."""
    if _is_on_line(source.entry, target):
        return MergeOutcome.ALREADY_UP_TO_DATE, source.entry
    if _is_on_line(target.entry, source):
        return MergeOutcome.FAST_FORWARD, target.entry
    base = log_walk.merge_base(root, source.entry, target.entry)
    if base is not None and base.commit.id == source.entry.commit.id:
        return MergeOutcome.ALREADY_UP_TO_DATE, base
    if base is not None and base.commit.id == target.entry.commit.id:
        return MergeOutcome.FAST_FORWARD, base
    return MergeOutcome.MERGED, base


def _is_on_line(entry: LogEntry, head: BranchHead) -> bool:
    """Whether a commit is in the first-parent history of a head, inherited part included."""
    if entry.version > head.entry.version:
        return False
    address = head.ref.locate(entry.version)
    return (address.branch_id, address.version) == (entry.branch_id, entry.version)


def _plan(
    workspace: Workspace,
    request: MergeRequest,
    source: BranchHead,
    target: BranchHead,
    base: LogEntry | None,
    intent: publish.Intent,
) -> MergePlan:
    if base is None:
        raise ConflictError(f"branches '{request.source}' and '{request.target}' have no commit in common")
    heads = {Side.OURS: target, Side.THEIRS: source}
    return plan_merge(ThreeStates(Snapshot(workspace, base.branch, base), heads, intent), request.resolutions)


def _outcome(entry: LogEntry) -> MergeOutcome:
    details = json.loads(entry.commit.details.get(_OUTCOME, "null"))
    if details is None:
        raise ConflictError("this idempotency key belongs to a write that is not a merge; choose another key")
    return MergeOutcome(details["outcome"])


def _delete_source(
    workspace: Workspace, request: MergeRequest, published: publish.PublishedCommit | None, key: KeyUse | None
) -> tuple[bool, str | None]:
    branches = workspace.root.branches
    merged = published.entry.commit.parents[-1] if published is not None and published.replayed else None
    try:
        # After a replay, the name may belong to a new ref generation.
        if merged is not None and branches.head(request.source).entry.link != merged:
            return False, f"branch '{request.source}' is no longer the one that was merged"
        workspace.require(request.actor, PolicyAction.BRANCH_DELETE, target_branch=request.source)
        # A commit holds the key already, beside what it did.
        branches.delete(request.source, actor=request.actor, key=key if published is None else None)
    except BranchNotFoundError as error:
        return (False, str(error)) if merged is None else (True, None)
    except OmniGraphError as error:
        return False, str(error)
    return True, None
