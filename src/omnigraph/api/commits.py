"""Commits: what writes return about the commit they made, and the listings of a branch's history.

The engine makes them, and every client sees the same shapes. Nothing here reads a graph.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from msgspec import Struct

from omnigraph.api.values import count_noun
from omnigraph.errors import BadRequestError

_NOT_IN_AN_ID: Final = frozenset('"*,')
_MOST_SHOWN: Final = 10


def shorten(text: str, length: int) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time of UTC, to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def required_commit(text: str, what: str) -> str:
    """The one commit that a write requires its branch to be at. What HTTP has besides, `*`, lists and weak tags, would
    require something else."""
    commit = text.strip()
    is_text = commit.isascii() and commit.isprintable() and _NOT_IN_AN_ID.isdisjoint(commit)
    if not commit or not is_text or commit.startswith("W/"):
        raise BadRequestError(f"{what} must hold one commit id and nothing else")
    return commit


class CommitReceipt(Struct, frozen=True):
    """A commit. `graph_branch` is None on main; `created_at` counts microseconds since 1970."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int

    WIRE_NAME: ClassVar[str] = "CommitOutput"

    def __repr__(self) -> str:
        return f"<commit {self._facts()}>"

    def _facts(self) -> str:
        by = "" if self.actor_id is None else f" by {self.actor_id}"
        where = self.graph_branch or "main"
        return f"{self.id}, version {self.version} of {where}{by}, {self.created:%Y-%m-%d %H:%M:%S}Z"

    @property
    def id(self) -> str:
        """The id of the commit."""
        return self.graph_commit_id

    @property
    def commit_id(self) -> str:
        """The same as `id`."""
        return self.graph_commit_id

    @property
    def created(self) -> datetime:
        """When the commit was made, as `created_at` counts it."""
        return moment(self.created_at)

    @property
    def version(self) -> int:
        """The version of the graph that the commit made on its branch."""
        return self.graph_manifest_version


class EntityCounts(Struct, frozen=True):
    """How many entities of one type a commit inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class CommitSummary(CommitReceipt, frozen=True):
    """A commit with what it did. `changes`, by type key, is None when cleanup has reclaimed what would be counted."""

    kind: str
    message: str | None
    changes: dict[str, EntityCounts] | None

    WIRE_NAME: ClassVar[str] = "CommitSummaryOutput"

    def __repr__(self) -> str:
        every = (self.changes or {}).values()
        sums = [sum(getattr(counts, name) for counts in every) for name in ("inserted", "updated", "deleted")]
        counts = "" if self.changes is None else " +{} ~{} -{}".format(*sums)
        message = "" if self.message is None else f" {shorten(self.message, 60)!r}"
        return f"<{self.kind} {self._facts()}{counts}{message}>"

    @property
    def commit(self) -> CommitReceipt:
        """The commit without what it did."""
        return CommitReceipt(*(getattr(self, name) for name in CommitReceipt.__struct_fields__))


def _commit_lines(listed: CommitList | CommitHistory) -> str:
    """Some commits for a person, one per line."""
    commits, next_version = listed.commits, listed.next_version
    shown = [f"  {commit!r}" for commit in commits[:_MOST_SHOWN]]
    hidden = len(commits) - len(shown)
    more = [f"  … {hidden} more"] if hidden else []
    older = "" if next_version is None else f"; older ones: before={next_version}"
    return "\n".join([f"<{count_noun(len(commits), 'commit')}{older}>", *shown, *more])


class CommitList(Struct, frozen=True, omit_defaults=True):
    """Commits, newest first. `next_version` continues the listing; None at the beginning of history."""

    commits: tuple[CommitReceipt, ...]
    next_version: int | None = None

    WIRE_NAME: ClassVar[str] = "CommitListOutput"

    __repr__ = _commit_lines


class CommitHistory(Struct, frozen=True, omit_defaults=True):
    """As `CommitList`, with what each commit did."""

    commits: tuple[CommitSummary, ...]
    next_version: int | None = None

    WIRE_NAME: ClassVar[str] = "CommitHistoryOutput"

    __repr__ = _commit_lines
