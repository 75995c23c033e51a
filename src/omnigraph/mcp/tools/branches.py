"""The tools for branches: an agent creates one, works on it, compares it, previews its merge, and merges it.

The tools for history: the commits of a branch, and the changes of each commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.api.branches import NO_RESOLUTIONS, Resolutions
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import EntityKind
from omnigraph.api.history import ChangeRecord, ChangeScope, SchemaChange
from omnigraph.api.queries import ReadPoint
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.mcp.graph import MAIN
from omnigraph.mcp.guide import readable
from omnigraph.mcp.tool import Branch, IdempotencyKey, PinnedPoint, Result, Toolcall, head_of, tool

_State = Annotated[str, Meta(min_length=1, description="A branch name or a commit id.")]
_Source = Annotated[str, Meta(min_length=1, description="The branch whose changes are taken.")]
_Target = Annotated[str, Meta(min_length=1, description="The branch that receives them.")]
_Types = Annotated[list[str] | None, Meta(description="Only entities of these types.")]
_Resolutions = Annotated[
    dict[str, Any] | None,
    Meta(
        description="How conflicts are decided: {kinds: {<conflict kind>: ours|theirs}, entities: [{type_key, "
        "entity_id, take: ours|theirs}]}; ours is the target."
    ),
]
_AT_ONCE: Final = 200


@tool("Branches")
def branches(call: Toolcall) -> Result:
    """The names of all branches, sorted; main is the one that counts."""
    return call.page({}, "branches", call.graph.list_branches())


@tool("Create a branch", writes=True)
def branch_create(
    call: Toolcall,
    *,
    name: Annotated[str, Meta(min_length=1, description="The name of the new branch.")],
    source: Annotated[str, Meta(min_length=1, description="A branch, or a commit id, to start from.")] = MAIN,
    idempotency_key: IdempotencyKey = None,
) -> Result:
    """Makes a branch to work on. It costs nothing: data is shared until it changes."""
    name, source = name.strip(), source.strip()
    created = call.graph.create_branch(name, source=source, actor=call.actor, idempotency_key=idempotency_key)
    return {"branch": name, "from": source, **({"replayed": True} if created.replayed else {})}


@tool("Difference of two states")
def diff(call: Toolcall, *, before: _State, after: _State, types: _Types = None) -> Result:
    """Which entities differ between two branches or commits, with counts. It has no values: see commit_changes, or
    entity at either commit."""
    branches = call.graph.list_branches()

    def commit_of(name: str) -> str:
        return head_of(call.graph, name) if name in branches else name

    # A later page compares the same states, whatever the branches are at now.
    before, after = call.position.pins or (commit_of(before.strip()), commit_of(after.strip()))
    changes = call.graph.diff(before, after, ChangeScope.of(types=types))
    head = {"before": before, "after": after, "stats": wire.to_builtins(changes.stats)}
    return call.page(head, "changes", changes.changes, lambda: [before, after])


@tool("Preview a merge")
def merge_preview(
    call: Toolcall, *, source: _Source, target: _Target = MAIN, resolutions: _Resolutions = None
) -> Result:
    """What a merge would change in the target, and every conflict that keeps it from happening. Nothing is written."""
    source, target = source.strip(), target.strip()
    heads = _heads(call, source, target)
    preview = call.graph.preview_merge(source, target, resolutions=_read_resolutions(resolutions))
    if heads != _heads(call, source, target) or call.position.pins not in ((), heads):
        moved = f"'{source}' or '{target}' moved while the preview was read"
        raise ConflictError(f"{moved}; ask again without continuation")
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

    return call.page(head, "findings", findings(), lambda: heads)


def _heads(call: Toolcall, source: str, target: str) -> tuple[str, str]:
    return head_of(call.graph, source), head_of(call.graph, target)


def _read_resolutions(resolutions: dict[str, Any] | None) -> Resolutions:
    try:
        return NO_RESOLUTIONS if resolutions is None else Resolutions.from_dict(resolutions)
    except (AttributeError, TypeError):
        raise BadRequestError(
            "resolutions must be {kinds: {kind: side}, entities: [{type_key, entity_id, take}]}"
        ) from None


@tool("Merge a branch", writes=True, destructive=True)
def merge(
    call: Toolcall,
    *,
    source: _Source,
    target: _Target = MAIN,
    message: Annotated[str | None, Meta(description="Why; kept with the commit.")] = None,
    delete_branch: Annotated[bool, Meta(description="Delete the source afterwards.")] = False,
    resolutions: _Resolutions = None,
    idempotency_key: IdempotencyKey = None,
) -> Result:
    """Takes the changes of a branch into another as one commit, or reports every conflict and changes nothing. Look at
    merge_preview first."""
    result = call.graph.merge(
        source.strip(),
        target.strip(),
        delete_branch=delete_branch,
        resolutions=_read_resolutions(resolutions),
        actor=call.actor,
        message=message,
        idempotency_key=idempotency_key,
    )
    members: Result = wire.to_builtins(result)
    return members


@tool("History of a branch")
def history(
    call: Toolcall,
    *,
    branch: Branch = None,
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many commits.")] = 20,
) -> Result:
    """The commits of a branch, newest first: when, by whom, and from what. Each is a snapshot that query, entity and
    diff can read."""
    branch = (branch or MAIN).strip()
    first = call.graph.commits(branch, limit=1).commits[0]
    newest = call.position.pins[0] if call.position.pins else str(first.version)
    commits = (_commit_members(each) for each in _walk(call, branch, int(newest) + 1, limit))
    return call.page({"branch": branch}, "commits", commits, lambda: [newest])


def _walk(call: Toolcall, branch: str, before: int | None, limit: int) -> Iterator[CommitReceipt]:
    """Commits of a branch from a version on, newest first."""
    while limit > 0:
        page = call.graph.commits(branch, limit=min(limit, _AT_ONCE), before=before)
        yield from page.commits
        limit -= len(page.commits)
        if (before := page.next_version) is None:
            return


def _commit_members(commit: CommitReceipt) -> dict[str, Any]:
    optional = {"merged": commit.merged_parent_commit_id, "actor": commit.actor_id}
    return {
        "commit": commit.graph_commit_id,
        "version": commit.graph_manifest_version,
        "at": commit.created.isoformat(timespec="milliseconds"),
        "branch": commit.graph_branch or MAIN,
        "parent": commit.parent_commit_id,
        **{name: value for name, value in optional.items() if value is not None},
    }


@tool("Changes of a commit")
def commit_changes(
    call: Toolcall, *, commit: Annotated[str, Meta(min_length=1, description="A commit id.")], types: _Types = None
) -> Result:
    """What a commit did to types, and what it inserted, updated and deleted, with the values before and after."""
    commit = commit.strip()
    catalog = PinnedPoint(ReadPoint(snapshot=commit)).catalog(call.graph)
    changes = call.graph.changes.of(commit, scope=ChangeScope.of(types=types))
    return call.page({"commit": commit}, "changes", (_change(each, catalog) for each in changes))


def _change(change: SchemaChange | ChangeRecord, catalog: Catalog) -> dict[str, Any]:
    """A change with values as a reader wants them, where the type is still known."""
    if isinstance(change, SchemaChange):
        digests = ("schema_before", "schema_after")
        own = {name: value for name, value in wire.to_builtins(change).items() if name not in digests}
        return {**own, "type": change.type_name, "steps": [step.line() for step in change.steps]}
    members: dict[str, Any] = {"op": change.op, "kind": change.kind, "type": change.type_name, "id": change.id}
    types: Mapping[str, TableType] = catalog.nodes if change.kind == EntityKind.NODE else catalog.edges
    type_ = types.get(change.type_name)
    for name, image in (("before", change.before), ("after", change.after)):
        if image is not None:
            values = image.properties if type_ is None else readable(type_, image.properties)
            ends = {} if image.endpoints is None else wire.to_builtins(image.endpoints)
            members[name] = {**ends, **values}
    return members
