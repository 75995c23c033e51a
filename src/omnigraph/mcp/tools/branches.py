"""The tools for branches: an agent creates one, works on it, compares it, previews its merge, and merges it.

The tools for history: the commits of a branch, and the changes of each commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.api.branches import NO_RESOLUTIONS, Resolutions
from omnigraph.api.enums import EntityKind
from omnigraph.api.history import ChangeRecord, ChangeScope, CommitReceipt
from omnigraph.api.queries import ReadPoint
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.mcp.graph import MAIN
from omnigraph.mcp.guide import readable
from omnigraph.mcp.tool import (
    Arguments,
    Branch,
    Continuation,
    IdempotencyKey,
    PagePosition,
    PinnedPoint,
    Tool,
    Toolcall,
    head_of,
)

_State = Annotated[str, Meta(min_length=1, description="A branch name or a commit id.")]
_Source = Annotated[str, Meta(min_length=1, description="The branch whose changes are taken.")]
_Target = Annotated[str, Meta(min_length=1, description="The branch that receives them.")]
_Resolutions = Annotated[
    dict[str, Any] | None,
    Meta(
        description="How conflicts are decided: {kinds: {<conflict kind>: ours|theirs}, entities: [{type_key, "
        "entity_id, take: ours|theirs}]}; ours is the target."
    ),
]


class BranchesArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    continuation: Continuation = None


def branches(call: Toolcall, arguments: BranchesArguments) -> dict[str, Any]:
    position = PagePosition.of("branches", arguments, arguments.continuation)
    return position.page(call.terms, {}, "branches", call.graph.list_branches())


BRANCHES: Final = Tool(
    "branches",
    "Branches",
    "The names of all branches, sorted; main is the one that counts.",
    BranchesArguments,
    branches,
)


class BranchCreateArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, description="The name of the new branch.")]
    source: Annotated[str, Meta(min_length=1, description="A branch, or a commit id, to start from.")] = MAIN
    idempotency_key: IdempotencyKey = None


def branch_create(call: Toolcall, arguments: BranchCreateArguments) -> dict[str, Any]:
    name, source = arguments.name.strip(), arguments.source.strip()
    key = arguments.idempotency_key
    created = call.graph.create_branch(name, source=source, actor=call.actor, idempotency_key=key)
    return {"branch": name, "from": source, **({"replayed": True} if created.replayed else {})}


BRANCH_CREATE: Final = Tool(
    "branch_create",
    "Create a branch",
    "Makes a branch to work on. It costs nothing: data is shared until it changes.",
    BranchCreateArguments,
    branch_create,
    writes=True,
)


class DiffArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    before: _State
    after: _State
    types: Annotated[list[str] | None, Meta(description="Only entities of these types.")] = None
    continuation: Continuation = None


def diff(call: Toolcall, arguments: DiffArguments) -> dict[str, Any]:
    position = PagePosition.of("diff", arguments, arguments.continuation)
    known = call.graph.list_branches()
    before, after = position.pins or tuple(
        _commit(call, name.strip(), known) for name in (arguments.before, arguments.after)
    )
    found = call.graph.diff(before, after, ChangeScope.of(types=arguments.types))
    head = {"before": before, "after": after, "stats": wire.to_builtins(found.stats)}
    return position.page(call.terms, head, "changes", found.changes, lambda: [before, after])


def _commit(call: Toolcall, name: str, branches: list[str]) -> str:
    """What a name means now, so that later pages compare the same states."""
    return head_of(call.graph, name) if name in branches else name


DIFF: Final = Tool(
    "diff",
    "Difference of two states",
    "Which entities differ between two branches or commits, with counts. It has no values: see commit_changes, or "
    "entity at either commit.",
    DiffArguments,
    diff,
)


class MergePreviewArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    source: _Source
    target: _Target = MAIN
    resolutions: _Resolutions = None
    continuation: Continuation = None


def merge_preview(call: Toolcall, arguments: MergePreviewArguments) -> dict[str, Any]:
    position = PagePosition.of("merge_preview", arguments, arguments.continuation)
    source, target = arguments.source.strip(), arguments.target.strip()
    heads = _heads(call, source, target)
    preview = call.graph.preview_merge(source, target, resolutions=_resolutions(arguments.resolutions))
    if heads != _heads(call, source, target) or position.pins not in ((), heads):
        raise ConflictError(
            f"'{source}' or '{target}' moved while the preview was read; ask again without continuation"
        )
    head = {
        "outcome": preview.outcome,
        "source": {"branch": source, "commit": heads[0]},
        "target": {"branch": target, "commit": heads[1]},
        "base_commit": preview.base_commit_id,
        "counts": preview.counts,
        "conflict_count": len(preview.conflicts),
    }

    def findings() -> Iterator[dict[str, Any]]:
        yield from ({"conflict": wire.to_builtins(each)} for each in preview.conflicts)
        yield from ({"change": wire.to_builtins(each)} for each in preview.changes)

    return position.page(call.terms, head, "findings", findings(), lambda: heads)


def _heads(call: Toolcall, source: str, target: str) -> tuple[str, str]:
    return head_of(call.graph, source), head_of(call.graph, target)


def _resolutions(given: dict[str, Any] | None) -> Resolutions:
    try:
        return NO_RESOLUTIONS if given is None else Resolutions.from_dict(given)
    except (AttributeError, TypeError):
        raise BadRequestError(
            "resolutions must be {kinds: {kind: side}, entities: [{type_key, entity_id, take}]}"
        ) from None


MERGE_PREVIEW: Final = Tool(
    "merge_preview",
    "Preview a merge",
    "What a merge would change in the target, and every conflict that keeps it from happening. Nothing is written.",
    MergePreviewArguments,
    merge_preview,
)


class MergeArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    source: _Source
    target: _Target = MAIN
    message: Annotated[str | None, Meta(description="Why; kept with the commit.")] = None
    delete_branch: Annotated[bool, Meta(description="Delete the source afterwards.")] = False
    resolutions: _Resolutions = None
    idempotency_key: IdempotencyKey = None


def merge(call: Toolcall, arguments: MergeArguments) -> dict[str, Any]:
    result = call.graph.merge(
        arguments.source.strip(),
        arguments.target.strip(),
        delete_branch=arguments.delete_branch,
        resolutions=_resolutions(arguments.resolutions),
        actor=call.actor,
        message=arguments.message,
        idempotency_key=arguments.idempotency_key,
    )
    members: dict[str, Any] = wire.to_builtins(result)
    return members


MERGE: Final = Tool(
    "merge",
    "Merge a branch",
    "Takes the changes of a branch into another as one commit, or reports every conflict and changes nothing. Look at "
    "merge_preview first.",
    MergeArguments,
    merge,
    writes=True,
    destructive=True,
)


_AT_ONCE: Final = 200


class HistoryArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    branch: Branch = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many commits.")] = 20
    continuation: Continuation = None


def history(call: Toolcall, arguments: HistoryArguments) -> dict[str, Any]:
    position = PagePosition.of("history", arguments, arguments.continuation)
    branch = (arguments.branch or MAIN).strip()
    first = call.graph.commits(branch, limit=1).commits[0]
    newest = position.pin or str(first.version)
    commits = (_commit_members(each) for each in _walk(call, branch, int(newest) + 1, arguments.limit))
    return position.page(call.terms, {"branch": branch}, "commits", commits, lambda: [newest])


def _walk(call: Toolcall, branch: str, before: int | None, limit: int) -> Iterator[CommitReceipt]:
    """Commits of a branch from a version on, newest first."""
    while limit > 0:
        page = call.graph.commits(branch, limit=min(limit, _AT_ONCE), before=before)
        yield from page.commits
        limit -= len(page.commits)
        before = page.next_version
        if before is None:
            return


def _commit_members(commit: CommitReceipt) -> dict[str, Any]:
    members: dict[str, Any] = {
        "commit": commit.graph_commit_id,
        "version": commit.graph_manifest_version,
        "at": commit.created.isoformat(timespec="milliseconds"),
        "branch": commit.graph_branch or MAIN,
        "parent": commit.parent_commit_id,
    }
    if commit.merged_parent_commit_id is not None:
        members["merged"] = commit.merged_parent_commit_id
    if commit.actor_id is not None:
        members["actor"] = commit.actor_id
    return members


HISTORY: Final = Tool(
    "history",
    "History of a branch",
    "The commits of a branch, newest first: when, by whom, and from what. Each is a snapshot that query, entity and "
    "diff can read.",
    HistoryArguments,
    history,
)


class CommitChangesArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    commit: Annotated[str, Meta(min_length=1, description="A commit id.")]
    types: Annotated[list[str] | None, Meta(description="Only entities of these types.")] = None
    continuation: Continuation = None


def commit_changes(call: Toolcall, arguments: CommitChangesArguments) -> dict[str, Any]:
    position = PagePosition.of("commit_changes", arguments, arguments.continuation)
    commit = arguments.commit.strip()
    catalog = PinnedPoint(ReadPoint(snapshot=commit)).catalog(call.graph)
    found = call.graph.changes.of(commit, scope=ChangeScope.of(types=arguments.types))
    changes = (_change(each, catalog) for each in found)
    return position.page(call.terms, {"commit": commit}, "changes", changes)


def _change(change: ChangeRecord, catalog: Catalog) -> dict[str, Any]:
    """A change with values as a reader wants them, where the type is still known."""
    members: dict[str, Any] = {"op": change.op, "kind": change.kind, "type": change.type_name, "id": change.id}
    types: Mapping[str, TableType] = catalog.nodes if change.kind == EntityKind.NODE else catalog.edges
    type_ = types.get(change.type_name)
    for name, image in (("before", change.before), ("after", change.after)):
        if image is not None:
            values = image.properties if type_ is None else readable(type_, image.properties)
            ends = {} if image.endpoints is None else wire.to_builtins(image.endpoints)
            members[name] = {**ends, **values}
    return members


COMMIT_CHANGES: Final = Tool(
    "commit_changes",
    "Changes of a commit",
    "What a commit inserted, updated and deleted, with the values before and after.",
    CommitChangesArguments,
    commit_changes,
)
