"""Branches as users see them: created from a branch or a commit, listed, deleted.

The protocol of names and lives is `storage.log.branches`; here a fork point is found, and held until the branch
exists.
"""

from __future__ import annotations

from omnigraph.api.enums import PolicyAction
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.held_source import held_source
from omnigraph.storage.models import BranchRef


def create_branch(workspace: Workspace, name: str, source: str, *, actor: str | None = None) -> BranchRef:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    workspace.require(actor, PolicyAction.BRANCH_CREATE, source.strip(), name.strip())
    branches = workspace.root.branches
    with held_source(workspace.root, source) as fork:
        ref = branches.draft(name, fork.ref, fork.entry, actor=actor)
        return branches.establish(ref, fork.age)


def branch_names(workspace: Workspace) -> list[str]:
    return workspace.root.branches.names()


def delete_branch(workspace: Workspace, name: str, *, actor: str | None = None) -> None:
    workspace.require(actor, PolicyAction.BRANCH_DELETE, target_branch=name.strip())
    workspace.root.branches.delete(name, actor=actor)
