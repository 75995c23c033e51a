"""Branches as users see them: created from a branch or a commit, listed, deleted.

The protocol of names and ref generations is in `storage.log.branches`; this module finds the fork point and holds it
until the branch exists. A request with an idempotency key is carried out once, and a repeat gets the earlier result.
"""

from __future__ import annotations

from omnigraph.api.enums import PolicyAction
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import held_source
from omnigraph.engine.write.receipts import RequestDigest
from omnigraph.errors import BranchNotFoundError, ConflictError, NotFoundError
from omnigraph.storage.models import BranchRef, KeyUse


def create_branch(
    workspace: Workspace,
    name: str,
    source: str,
    *,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> BranchRef | KeyUse:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    name, source = name.strip(), source.strip()
    workspace.require(actor, PolicyAction.BRANCH_CREATE, source, name)
    branches = workspace.root.branches
    key = key_use(workspace, idempotency_key, actor, "branch_create", name, source)
    try:
        with held_source(workspace.root, source) as fork:
            ref = branches.new_ref(name, fork.ref, fork.entry, actor=actor, key=key)
            return branches.establish(ref, fork.age)
    except (ConflictError, NotFoundError):
        # Since the first try its source may have gone, or a part of its path may have become a branch.
        if (earlier := branches.earlier_use(name, key)) is None:
            raise
        return earlier


def find_or_create(workspace: Workspace, name: str, source: str, *, actor: str | None = None) -> None:
    """Create a branch unless it exists or another writer creates it at the same time."""
    if branch_exists(workspace, name):
        return
    try:
        create_branch(workspace, name, source, actor=workspace.author(actor))
    except ConflictError:
        if not branch_exists(workspace, name):
            raise


def branch_exists(workspace: Workspace, name: str) -> bool:
    """Whether there is such a branch, for those who may read it."""
    try:
        workspace.acting(PolicyAction.READ, name.strip()).head(name)
    except BranchNotFoundError:
        return False
    return True


def branch_names(workspace: Workspace) -> list[str]:
    return workspace.root.branches.names()


def delete_branch(
    workspace: Workspace, name: str, *, actor: str | None = None, idempotency_key: str | None = None
) -> KeyUse | None:
    """End a branch; the earlier use of the key when that has ended it before."""
    name = name.strip()
    workspace.require(actor, PolicyAction.BRANCH_DELETE, target_branch=name)
    key = key_use(workspace, idempotency_key, actor, "branch_delete", name)
    return workspace.root.branches.delete(name, actor=actor, key=key)


def key_use(workspace: Workspace, key: str | None, actor: str | None, kind: str, *asked: str) -> KeyUse | None:
    """What a request leaves with the name of a branch. Under rules a key is its actor's."""
    whose = () if workspace.gate is None or actor is None else (actor,)
    return None if key is None else KeyUse(key, RequestDigest(kind, *asked, *whose).text, actor)
