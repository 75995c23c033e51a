"""`g.schema`, `g.changes` and `g.maintenance`: calls of a graph by what they are about, under short names.

Nothing is decided here; each method is one call of the graph, embedded or remote. For asyncio it is awaited, or
iterated with `async for`, as the call is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from omnigraph.api import upkeep
from omnigraph.api.calls import GraphCalls
from omnigraph.api.changes import ChangeBaseline, ChangePoll, ChangeRecord, ChangeScope, CommitChangesPage
from omnigraph.api.export import ByteWriter
from omnigraph.api.schema import SchemaApplied, SchemaPlan

MAIN: Final = "main"


class SchemaArea:
    """`g.schema`: the types of the graph, and how they change."""

    def __init__(self, graph: GraphCalls) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<schema of {self._graph.uri}: show, plan, apply>"

    def show(
        self,
        *,
        branch: str | None = None,
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
        self, branch: str = MAIN, *, types: Collection[str] | None = None, actor: str | None = None
    ) -> upkeep.OptimizeReport:
        """Compact the tables of a branch and make their indexes whole, in one commit that changes no content."""
        return self._graph.optimize(branch, types=types, actor=actor)

    def ensure_indices(self, branch: str = MAIN, *, actor: str | None = None) -> list[upkeep.PendingProperty]:
        """Build the declared indexes of a branch, in one commit; returns those that have to wait."""
        return self._graph.ensure_indices(branch, actor=actor)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = upkeep.GRACE,
        dry_run: bool = False,
    ) -> upkeep.CleanupReport:
        """Delete table data that no retained snapshot needs. A dry run only says how much that is."""
        return self._graph.cleanup(keep_versions=keep_versions, older_than=older_than, grace=grace, dry_run=dry_run)

    def maintain(
        self, policy: upkeep.MaintenancePolicy = upkeep.DEFAULT_POLICY, *, branch: str = MAIN, actor: str | None = None
    ) -> upkeep.MaintenanceReport:
        """Do what passed a threshold of the policy. Meant to be called now and then by a long-running process."""
        return self._graph.maintain(policy, branch=branch, actor=actor)

    def verify(self) -> upkeep.Verification:
        """Open everything that every head names, and report what is missing or foreign."""
        return self._graph.verify()

    def repair(self, *, confirm: bool = False, force: bool = False, actor: str | None = None) -> upkeep.RepairReport:
        """Show what other tools did to main's tables; with both flags, load the rows they brought."""
        return self._graph.repair(confirm=confirm, force=force, actor=actor)


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
