"""`GraphApi`: what a user can do with a graph, wherever it is: its calls, its branches, its past and its areas.

The embedded handle and the remote one implement it. `GraphViews` is what all handles say the same way; a handle for
asyncio has it too, with calls that are awaited.

`omnigraph.Branch`: one branch of a graph, with everything that can be done on it.

What `Graph.branch` and `RemoteGraph.branch` return. It holds the graph and a name; each method is a call of the graph
with the branch filled in, so naming it always means its newest head. Of an `AsyncRemoteGraph` the calls are awaited.

`g.schema`, `g.changes` and `g.maintenance`: calls of a graph by what they are about, under short names.

Nothing is decided here; each method is one call of the graph, embedded or remote. For asyncio it is awaited, or
iterated with `async for`, as the call is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from omnigraph.api import maintenance
from omnigraph.api.branches import NO_RESOLUTIONS, BranchDeleted, MergePreview, MergeResult, Resolutions
from omnigraph.api.calls import GraphCalls, LoadInput, QueryBatches, QueryRows, SnapshotApi
from omnigraph.api.history import (
    ChangeBaseline,
    ChangePoll,
    ChangeRecord,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    CommitHistory,
)
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.queries import ByteWriter, OperatorProfile
from omnigraph.api.schema import SchemaApplied, SchemaPlan

MAIN: Final = "main"


class Branch:
    """A branch: read it, write to it, compare it, merge it, delete it."""

    def __init__(self, graph: GraphCalls, name: str) -> None:
        self._graph = graph
        self.name = name

    def __repr__(self) -> str:
        return f"<branch '{self.name}' of {self._graph.uri}>"

    # Reading

    def query(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows:
        """Run a read query on the head of the branch; see `Graph.query`."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.query(*asked, branch=self.name, options=options)

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches:
        """As `query`, a batch at a time."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.stream(*asked, branch=self.name, options=options)

    def explain(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        return self._graph.explain(*self._graph._bound(source, name, params, parameters, {}), branch=self.name)

    def profile(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        return self._graph.profile(*self._graph._bound(source, name, params, parameters, {}), branch=self.name)

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, None when it is not there."""
        return self._graph.entity(type_name, entity_id, branch=self.name)

    def count(self, type_name: str) -> int:
        """How many entities of a type there are."""
        return self._graph.count(type_name, branch=self.name)

    def head(self) -> str:
        """The commit id of the branch as it is now."""
        return self._graph.resolve_snapshot(self.name)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end; with `epoch`, dates and times are numbers."""
        return self._graph.export(branch=self.name, types=types, epoch=epoch)

    def at(self, version: int | None = None, *, time: datetime | None = None) -> SnapshotApi:
        """The branch as it was at a version or a moment; as it is now when neither is given."""
        return self._graph.snapshot(self.name, version=version, at=time)

    # Writing

    def mutate(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **parameters: Any,
    ) -> MutationReceipt:
        """Run a mutation as one commit on the branch; see `Graph.mutate`."""
        options = {"if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
        asked = self._graph._bound(source, name, params, parameters, options)
        return self._graph.mutate(
            *asked, branch=self.name, if_commit=if_commit, actor=actor, idempotency_key=idempotency_key
        )

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        format: str | None = None,
        csv: Any = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load rows or graph records as one commit on the branch; see `Graph.load`."""
        return self._graph.load(
            data,
            mode=mode,
            type=type,
            branch=self.name,
            format=format,
            csv=csv,
            embed=embed,
            actor=actor,
            idempotency_key=idempotency_key,
        )

    # As a branch

    def history(self, *, limit: int = 100, before: int | None = None) -> CommitHistory:
        """The commits of the branch, newest first, with what each of them did."""
        return self._graph.commit_history(self.name, limit=limit, before=before)

    def diff(self, base: Any = MAIN, scope: ChangeScope | None = None) -> ChangeSet:
        """What the branch has that `base`, a branch, a commit or a snapshot, has not, and the other way round."""
        return self._graph.diff(base, self.name, scope)

    def preview_merge(self, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS) -> MergePreview:
        """What merging it into another branch would change, and what conflicts."""
        return self._graph.preview_merge(self.name, target, resolutions=resolutions)

    def merge_into(
        self,
        target: str = MAIN,
        *,
        delete: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge it into another branch as one commit, and delete it if asked; or raise every conflict at once."""
        return self._graph.merge(
            self.name,
            target,
            delete_branch=delete,
            resolutions=resolutions,
            actor=actor,
            message=message,
            idempotency_key=idempotency_key,
        )

    def delete(self, *, actor: str | None = None, idempotency_key: str | None = None) -> BranchDeleted:
        """Delete the branch. Commits that another branch has stay."""
        return self._graph.delete_branch(self.name, actor=actor, idempotency_key=idempotency_key)


class SchemaArea:
    """`g.schema`: the types of the graph, and how they change."""

    def __init__(self, graph: GraphCalls) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<schema of {self._graph.uri}: show, plan, apply>"

    def show(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> str:
        """The accepted schema text of a branch, now or in the past."""
        return self._graph.schema_text(branch, snapshot=snapshot, version=version, at=at)

    def plan(self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False) -> SchemaPlan:
        """The steps from a branch's schema to this one; also when some of them are not possible."""
        return self._graph.plan_schema(text, branch=branch, allow_data_loss=allow_data_loss)

    def apply(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplied:
        """Change the schema of a branch in one commit, together with the data change it needs."""
        return self._graph.apply_schema(
            text, branch=branch, allow_data_loss=allow_data_loss, actor=actor, idempotency_key=idempotency_key
        )


class ChangesArea:
    """`g.changes`: what commits changed, one commit or as a feed."""

    def __init__(self, graph: GraphCalls) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<changes of {self._graph.uri}: of, page, poll, follow, baseline>"

    def of(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]:
        """Everything that a commit changed relative to its first parent, one after another."""
        return self._graph.iter_commit_changes(commit_id, scope=scope)

    def page(
        self,
        commit_id: str,
        *,
        scope: ChangeScope | None = None,
        page_token: str | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
    ) -> CommitChangesPage:
        """One page of what a commit changed relative to its first parent, with images before and after."""
        return self._graph.commit_changes(
            commit_id, scope=scope, page_token=page_token, max_changes=max_changes, max_bytes=max_bytes
        )

    def poll(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
        max_commits: int | None = None,
        wait_ms: int | None = None,
    ) -> ChangePoll:
        """The next commits of a branch's feed. `start` is `now` (the default), `beginning` or `after:<commit id>`.

        With `wait_ms`, an answer that would be empty waits until something happens, for at most so long.
        """
        return self._graph.poll_changes(
            branch=branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            scope=scope,
            max_changes=max_changes,
            max_bytes=max_bytes,
            max_commits=max_commits,
            wait_ms=wait_ms,
        )

    def follow(
        self,
        *,
        branch: str = MAIN,
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> Iterator[ChangePoll]:
        """The changes of a branch as they happen, without end. `poll.cursor` is where a later `follow` goes on.

        The feed begins with this call, for asyncio when its first item is awaited.
        """
        return self._graph.follow(branch=branch, start=start, cursor=cursor, scope=scope, max_changes=max_changes)

    def baseline(self, writer: ByteWriter, *, branch: str = MAIN, scope: ChangeScope | None = None) -> ChangeBaseline:
        """Write an export of the branch's head, and return the cursor that continues exactly after it."""
        return self._graph.capture_baseline(writer, branch=branch, scope=scope)


class MaintenanceArea:
    """`g.maintenance`: compaction, indexes, retention, and checks of what is stored."""

    def __init__(self, graph: GraphCalls) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<maintenance of {self._graph.uri}: optimize, ensure_indices, cleanup, maintain, verify, repair>"

    def optimize(
        self,
        branch: str = MAIN,
        *,
        types: Collection[str] | None = None,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.OptimizeReport:
        """Compact the tables of a branch and make their indexes whole, in one commit that changes no content."""
        return self._graph.optimize(branch, types=types, actor=actor, progress=progress)

    def ensure_indices(self, branch: str = MAIN, *, actor: str | None = None) -> list[maintenance.PendingProperty]:
        """Build the declared indexes of a branch, in one commit; returns those that have to wait."""
        return self._graph.ensure_indices(branch, actor=actor)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = maintenance.GRACE,
        dry_run: bool = False,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.CleanupReport:
        """Delete table data that no retained snapshot needs. A dry run only says how much that is."""
        return self._graph.cleanup(
            keep_versions=keep_versions, older_than=older_than, grace=grace, dry_run=dry_run, progress=progress
        )

    def maintain(
        self,
        policy: maintenance.MaintenancePolicy = maintenance.DEFAULT_POLICY,
        *,
        branch: str = MAIN,
        actor: str | None = None,
    ) -> maintenance.MaintenanceReport:
        """Do what passed a threshold of the policy. Meant to be called now and then by a long-running process."""
        return self._graph.maintain(policy, branch=branch, actor=actor)

    def verify(self) -> maintenance.Verification:
        """Open everything that every head names, and report what is missing or foreign."""
        return self._graph.verify()

    def repair(
        self,
        *,
        confirm: bool = False,
        force: bool = False,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.RepairReport:
        """Show what other tools did to main's tables; with both flags, load the rows they brought."""
        return self._graph.repair(confirm=confirm, force=force, actor=actor, progress=progress)


# Following a feed

WAIT_MS: Final = 30_000


def next_poll(poll: ChangePoll) -> dict[str, Any]:
    """How a poll is gone on from: within a commit at once, else where it ended, waiting for more if that was all."""
    if poll.next_page_token is not None:
        return {"page_token": poll.next_page_token}
    return {"cursor": poll.cursor, "wait_ms": WAIT_MS if poll.caught_up else None}


def follow(graph: GraphCalls, start: str | None, cursor: str | None, **options: Any) -> Iterator[ChangePoll]:
    """Poll after poll of a feed that has changes. The first one is made here and does not wait, so that there is a
    cursor before anything can be missed."""
    first = graph.poll_changes(start=start, cursor=cursor, **options)

    def polls() -> Iterator[ChangePoll]:
        poll = first
        while True:
            if poll.blocks:
                yield poll
            poll = graph.poll_changes(**next_poll(poll), **options)

    return polls()


__all__ = ["GraphApi", "GraphViews", "LoadInput", "QueryBatches", "QueryRows", "SnapshotApi"]


_BY_AREA: Final = {
    *("schema_text", "plan_schema", "apply_schema"),
    *("commit_changes", "iter_commit_changes", "poll_changes", "capture_baseline"),
    *("optimize", "ensure_indices", "cleanup", "maintain", "verify", "repair"),
}
"""Calls that people find under `schema`, `changes` and `maintenance`. Their long names are not shown beside those."""


class GraphViews:
    """The parts of a graph that are reached through it: what they do, the calls of the graph do."""

    def __dir__(self) -> list[str]:
        """What completion shows."""
        return [name for name in super().__dir__() if name not in _BY_AREA]

    @property
    def schema(self) -> SchemaArea:
        """The types of the graph, and how they change."""
        return SchemaArea(self)  # type: ignore[arg-type]

    @property
    def changes(self) -> ChangesArea:
        """What commits changed, one commit or as a feed."""
        return ChangesArea(self)  # type: ignore[arg-type]

    @property
    def maintenance(self) -> MaintenanceArea:
        """Compaction, indexes, retention, and checks of what is stored."""
        return MaintenanceArea(self)  # type: ignore[arg-type]


class GraphApi(GraphCalls, Protocol):
    """A versioned graph of typed tables, embedded or behind a server. Every read names a branch, or a commit, a version
    or a moment."""

    @property
    def schema(self) -> SchemaArea: ...
    @property
    def changes(self) -> ChangesArea: ...
    @property
    def maintenance(self) -> MaintenanceArea: ...

    def branch(
        self, name: str, *, create: bool = False, source: str | None = None, actor: str | None = None
    ) -> Branch: ...


# Names of the last release

_OLD_NAMES: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "query_at": ("query(…, version=…)", lambda g: lambda version, *asked: g.query(*asked, version=version)),
    "entity_at": ("entity(…, version=…)", lambda g: lambda key, id, version: g.entity(key, id, version=version)),
    "diff_commits": ("diff", lambda g: g.diff),
    "schema_source": ("schema.show()", lambda g: g.schema.show()),
    "load_file": ("load", lambda g: lambda path, **options: g.load(Path(path), **options)),
    "list_commits": ("commits or commit_history", lambda g: g._list_commits),
    "get_commit": ("describe_commit", lambda g: g._get_commit),
    "merge_base": ("preview_merge", lambda g: g._merge_base),
    "preview_schema": ("schema.plan", lambda g: g._preview_schema),
    "state_of": ("snapshot", lambda g: g._workspace.state_of),
    "workspace": ("omnigraph.open", lambda g: g._workspace),
    "through": ("omnigraph.open(…, policy=…)", lambda g: g._restricted_to),
    "with_gate": ("omnigraph.open(…, policy=…)", lambda g: g._with_gate),
}
"""What each is now, for one more release."""


def old_name(graph: Any, name: str) -> Any:
    """A member under its name of the last release, with a warning that says the new one."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"'{type(graph).__name__}' object has no attribute '{name}'")
    now, found = _OLD_NAMES[name]
    warnings.warn(f"Graph.{name} goes with the next release; use {now}", DeprecationWarning, stacklevel=3)
    return found(graph)
