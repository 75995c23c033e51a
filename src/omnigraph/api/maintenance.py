"""Maintenance: policies that keep a graph fast and small, and reports of what was done or found.

`omnigraph.engine.maintenance` does the work; the command line and the server show the reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Struct, field

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import Action, Classification
from omnigraph.api.values import count_noun
from omnigraph.api.wire import LOCAL
from omnigraph.errors import BadRequestError

GRACE: Final = timedelta(days=7)
"""How long what a write in flight needs is kept. Only what was never published, pins, and branches that were deleted
wait for it; history that a policy releases goes at once."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called while a long operation runs: the name of the step, how much of it is done, and how much there is."""

METADATA_ROW: Final = "__manifest"
"""The row of a report that stands for the graph's own metadata."""

_DURATION = re.compile(r"(\d+)\s*([smhdw]?)")
_UNIT_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST_SECONDS: Final = 100 * 366 * 86400


def duration(text: str | int | timedelta) -> timedelta:
    """`90`, `90s`, `15m`, `12h`, `7d`, `2w`; a bare number is seconds."""
    if isinstance(text, timedelta):
        seconds = text.total_seconds()
    else:
        match = _DURATION.fullmatch(str(text).strip())
        if match is None:
            raise BadRequestError(f"'{text}' is not a duration; write a number and one of s, m, h, d, w, such as 7d")
        seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    if seconds < 0:
        raise BadRequestError("a duration must not be negative")
    return timedelta(seconds=min(seconds, _LONGEST_SECONDS))


# Policies


class Retention(Struct, frozen=True):
    """Which part of main's history stays: the newest versions, those of a recent time, or whichever is more."""

    keep_versions: int | None = None
    older_than: timedelta | None = None

    def __post_init__(self) -> None:
        if self.keep_versions is None and self.older_than is None:
            raise BadRequestError(
                "cleanup requires at least one of keep_versions (--keep) or older_than (--older-than)"
            )
        if self.keep_versions is not None and self.keep_versions < 0:
            raise BadRequestError("keep_versions must not be negative")


DEFAULT_RETENTION: Final = Retention(keep_versions=100, older_than=timedelta(days=7))
"""Every state of the last week, and the last hundred versions however old they are. Branches keep all of theirs."""


class MaintenancePolicy(Struct, frozen=True):
    """When a table is worth optimizing, and which history may go; `retention=None` keeps all of it.

    A cleanup lists every file and opens every retained version, so it waits until `released_versions` of main are
    there to go.
    """

    small_fragments: int = 16
    uncovered_rows: int = 50_000
    deleted_share: float = 0.2
    retention: Retention | None = DEFAULT_RETENTION
    released_versions: int = 100
    grace: timedelta = GRACE

    def __post_init__(self) -> None:
        if self.released_versions < 1:
            raise BadRequestError("released_versions must be at least 1")


DEFAULT_POLICY: Final = MaintenancePolicy()


# Optimize


class PendingIndex(Struct, frozen=True):
    """A declared index of a type that could not be built yet, and why."""

    property: str
    reason: str


class PendingProperty(Struct, frozen=True):
    """As `PendingIndex`, where the type does not follow from the place."""

    type_key: str
    property: str
    reason: str


class TableOptimized(Struct, frozen=True, kw_only=True):
    """What happened to one type. `skipped` and the two versions belong to an older storage design and stay null."""

    type_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    published_dataset_version: int | None = None
    lance_head_version: str | None = None
    pending_indexes: tuple[PendingIndex, ...] = ()


class OptimizeReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row per type. `commit` is None when there was nothing to do."""

    uri: str
    listed: tuple[TableOptimized, ...] = field(name="datasets")
    branch: Annotated[str, LOCAL] = "main"
    commit: Annotated[CommitReceipt | None, LOCAL] = None

    def __repr__(self) -> str:
        changed = sum(row.committed for row in self.datasets)
        done = "nothing to do" if self.commit is None else f"{count_noun(changed, 'table')}, commit {self.commit.id}"
        waiting = sum(len(row.pending_indexes) for row in self.datasets)
        pending = f", {count_noun(waiting, 'index', 'indexes')} pending" if waiting else ""
        return f"<optimized '{self.branch}': {done}{pending}>"

    @classmethod
    def of(
        cls, uri: str, branch: str, datasets: tuple[TableOptimized, ...], commit: CommitReceipt | None
    ) -> OptimizeReport:
        listed = (*datasets, TableOptimized(type_key=METADATA_ROW))
        return cls(uri=uri, listed=listed, branch=branch, commit=commit)

    @property
    def datasets(self) -> tuple[TableOptimized, ...]:
        """The types alone, without the row of the graph's metadata."""
        return tuple(row for row in self.listed if row.type_key != METADATA_ROW)


# Indexes


class IndexStatus(Struct, frozen=True, kw_only=True):
    """One declared index. Searches read the `stale_rows`, which are not `covered_rows` of it, one by one.

    `recall` is the share of the nearest vectors that searches of an approximate index get, as it was measured after the
    build on a sample; an index without one misses nothing, or is not measured yet. `pending` says what the next
    optimize will do, None when there is nothing to do but to cover stale rows.
    """

    type_key: str
    property: str
    kind: str
    covered_rows: int
    stale_rows: int
    approximate: bool = False
    recall: float | None = None
    probes: int | None = None
    size_bytes: int | None = None
    pending: str | None = None


class IndexListing(Struct, frozen=True):
    """The declared indexes of a state, by type key, in the order in which their properties are declared."""

    graph_branch: str
    graph_manifest_version: int
    indexes: tuple[IndexStatus, ...]

    WIRE_NAME: ClassVar[str] = "IndexStatusOutput"

    def __repr__(self) -> str:
        waiting = sum(index.pending is not None for index in self.indexes)
        pending = f", {waiting} pending" if waiting else ""
        count = count_noun(len(self.indexes), "index", "indexes")
        return f"<branch '{self.graph_branch}', version {self.graph_manifest_version}: {count}{pending}>"


# Cleanup


class TableCleaned(Struct, frozen=True):
    """What went, or would go, of one table. A folder that no type uses any more is named by its path."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None


class CleanupReport(Struct, frozen=True):
    """What a cleanup removed, or would remove, by type."""

    uri: str
    keep_versions: int | None
    older_than_secs: int | None
    datasets: tuple[TableCleaned, ...]
    dry_run: Annotated[bool, LOCAL] = False

    def __repr__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        what = f"{count_noun(self.versions_removed, 'version')}, {count_noun(self.bytes_removed, 'byte')}"
        failed = sum(row.error is not None for row in self.datasets)
        return f"<cleanup {verb} {what}{f', {failed} failed' if failed else ''}>"

    @property
    def bytes_removed(self) -> int:
        """Over all types."""
        return sum(row.bytes_removed for row in self.datasets)

    @property
    def versions_removed(self) -> int:
        """Over all types."""
        return sum(row.old_versions_removed for row in self.datasets)


class MaintenanceReport(Struct, frozen=True):
    """Why which types were tidied, and what that did. Both reports are None when there was no need."""

    reasons: dict[str, str]
    optimized: OptimizeReport | None = None
    cleaned: CleanupReport | None = None

    def __repr__(self) -> str:
        done = [f"{report!r}" for report in (self.optimized, self.cleaned) if report is not None]
        return f"<maintained: {', '.join(done) or 'nothing to do'}>"


# Verify and repair


class Problem(Struct, frozen=True):
    """`where` is a branch, or a table as seen from a branch; `path` the object to blame, where it is known."""

    where: str
    reason: str
    path: str | None = None


class Verification(Struct, frozen=True):
    """What was found when everything that the heads name was opened."""

    branches: int
    tables: int
    files: int
    problems: tuple[Problem, ...]

    def __repr__(self) -> str:
        tables, files = count_noun(self.tables, "table"), count_noun(self.files, "file")
        outcome = count_noun(len(self.problems), "problem") if self.problems else "clean"
        lines = [f"  {problem.where}: {problem.reason}" for problem in self.problems[:10]]
        return "\n".join(
            [f"<verified {count_noun(self.branches, 'branch', 'branches')}, {tables}, {files}: {outcome}>", *lines]
        )

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class TableRepaired(Struct, frozen=True, kw_only=True):
    """What was found about one table, and done. `dataset_version_id` is what Lance calls the published version, and
    `lance_head_version` the version that other tools see."""

    type_key: str
    published_dataset_version: int
    dataset_version_id: str
    lance_head_version: str
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None
    foreign_rows: Annotated[int, LOCAL] = 0


class RepairReport(Struct, frozen=True):
    """`graph_manifest_version` is that of the commit that took rows in, None when there was none."""

    uri: str
    confirm: bool
    force: bool
    graph_manifest_version: int | None
    datasets: tuple[TableRepaired, ...]

    WIRE_NAME: ClassVar[str] = "RepairOutput"

    def __repr__(self) -> str:
        tables = [f"  {row.type_key} {row.classification.value}: {row.action.value}" for row in self.datasets]
        return "\n".join([f"<repair of {count_noun(len(tables), 'table')}, {self.refused} refused>", *tables])

    @property
    def refused(self) -> int:
        """How many of them could not be put right; each says why."""
        return sum(row.action is Action.REFUSED for row in self.datasets)
