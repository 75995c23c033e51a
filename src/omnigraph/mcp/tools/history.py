"""The tools for history: the commits of a branch, and the changes of each commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.api.enums import EntityKind
from omnigraph.api.history import ChangeRecord, ChangeScope, CommitReceipt
from omnigraph.api.queries import ReadPoint
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.mcp.graph import MAIN
from omnigraph.mcp.guide import readable
from omnigraph.mcp.tool import Arguments, Branch, Continuation, PagePosition, PinnedPoint, Tool, Toolcall

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
