"""Which state a read is of: a branch's head, or its past by commit, version or moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from omnigraph.cli.usage import UsageError, at_most_one


class Pinned(TypedDict, total=False):
    """The keywords of `Graph.snapshot` and `Graph.query`."""

    branch: str | None
    snapshot: str | None
    version: int | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class ReadingPoint:
    branch: str | None
    snapshot: str | None
    version: int | None
    at: datetime | None

    @classmethod
    def chosen(
        cls,
        branch: str | None,
        snapshot: str | None = None,
        version: int | None = None,
        at: str | None = None,
    ) -> ReadingPoint:
        at_most_one(("--branch", branch), ("--snapshot", snapshot))
        at_most_one(("--snapshot", snapshot), ("--at-version", version), ("--at", at))
        moment = None if at is None else _moment(at)
        return cls(None if snapshot is not None else "main" if branch is None else branch, snapshot, version, moment)

    @property
    def pinned(self) -> Pinned:
        return {"branch": self.branch, "snapshot": self.snapshot, "version": self.version, "at": self.at}


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"--at: '{text}' is not a point in time; write 2026-03-01 or 2026-03-01T09:30:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
