"""Maintenance of one table: fewer fragments and complete indexes, with the same content.

Optimize and repair call `TableMaintenance`. It does the expensive part, writing files, against one version and
remembers the steps. Content did not change, so when writers moved the table on meanwhile the same steps are replayed on
the newer version, which costs some metadata and no data. Only a writer that touched the rewritten rows makes the work
void.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from lance import LanceOperation
from lance.dataset import Index

from omnigraph.storage.models import TableState, VectorIndexRecord
from omnigraph.storage.tables.indexes import (
    EXTREME_VECTORS,
    IndexNeed,
    IndexSpec,
    build_segment,
    covered_fragments,
    index_need,
    index_records,
    stored_indexes,
)
from omnigraph.storage.tables.lance_metadata import FragmentRewrite, rewrite_fragments
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import Table, fragment_bytes
from omnigraph.storage.tables.staging import StagedTable, Staging

FULL_FRAGMENT_ROWS: Final = 1 << 20
FULL_FRAGMENT_BYTES: Final = 1 << 30
DELETED_SHARE: Final = 0.1
"""From this share of deleted rows on a fragment is written again."""
SMALL_TABLE_ROWS: Final = 1 << 17
"""Up to here indexes are built anew rather than extended when they prevent a better layout."""
SPARE_IDS: Final = 1 << 12
"""Fragment ids left to writers who go on while a table is compacted."""
MOST_FILES: Final = 3
"""Updates of single columns add files to a fragment; from here on it is written again as one file."""


_BUILDS_AT_ONCE: Final = max(2, os.cpu_count() or 1)
_BUILDS: Final = threading.BoundedSemaphore(_BUILDS_AT_ONCE)
"""A build sorts a whole column in memory, so there is a limit for all tables of the process."""


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """An index that can't be built yet, by physical column, and why."""

    column: str
    reason: str


class IndexChange(NamedTuple):
    """New segments and the ones they replace."""

    segments: list[Index]
    replaced: list[Index]

    @property
    def operation(self) -> Any:
        return LanceOperation.CreateIndex(self.segments, self.replaced)


class IndexMeasures(NamedTuple):
    """What was measured of approximate indexes, by their names."""

    records: dict[str, VectorIndexRecord]

    @property
    def operation(self) -> Any:
        return index_records(self.records)


@dataclass(frozen=True, slots=True)
class MaintenanceWork:
    """The result of maintenance on one version of a table, and its steps, which can be replayed on another version."""

    base: TableState
    staged: StagedTable
    steps: tuple[IndexChange | FragmentRewrite | IndexMeasures, ...] = ()
    fragments_removed: int = 0
    fragments_added: int = 0
    pending: tuple[PendingIndex, ...] = ()
    files: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.steps)


@dataclass(frozen=True, slots=True)
class FragmentFill:
    """The measures that decide whether a fragment is worth rewriting."""

    fragment_id: int
    rows: int
    deleted: int
    files: int
    bytes: int

    @property
    def is_small(self) -> bool:
        return self.rows < FULL_FRAGMENT_ROWS and self.bytes < FULL_FRAGMENT_BYTES

    @property
    def is_worn(self) -> bool:
        return self.deleted > DELETED_SHARE * (self.rows + self.deleted) or self.files > MOST_FILES


def fragment_fills(table: Table) -> list[FragmentFill]:
    """Read from the manifest alone."""
    described = (fragment.metadata for fragment in table._fragments())
    return [FragmentFill(m.id, m.num_rows, m.num_deletions, len(m.files), fragment_bytes(m)) for m in described]


def fragments_to_compact(fills: Sequence[FragmentFill]) -> set[int]:
    """The small and the worn ones, together. A table whose only small fragment is whole is left as it is, so that
    maintenance of a well-kept table does nothing."""
    chosen = {f.fragment_id for f in fills if f.is_small or f.is_worn}
    return chosen if len(chosen) > 1 or any(f.is_worn for f in fills) else set()


def group_by_segments(chosen: Collection[int], indexes: Mapping[str, Sequence[Index]]) -> list[set[int]]:
    """Fragments that may be compacted together: an index segment that follows its rows must know all or none. A
    compaction forgets what a BTREE covered; other kinds follow their rows."""
    by_segments: dict[frozenset[str], set[int]] = {}
    for fragment_id in chosen:
        knowing = frozenset(
            segment.uuid
            for name, segments in indexes.items()
            for segment in segments
            if not name.endswith("_btree") and fragment_id in segment.fragment_ids
        )
        by_segments.setdefault(knowing, set()).add(fragment_id)
    return list(by_segments.values())


@dataclass(frozen=True, slots=True)
class TableCondition:
    """How much maintenance a table could use."""

    rows: int
    small_fragments: int
    deleted_rows: int
    uncovered_rows: int


class TableMaintenance:
    """Maintenance of the tables of one graph."""

    def __init__(self, reader: TableReader, staging: Staging) -> None:
        self._reader = reader
        self._staging = staging

    def optimize(self, base: TableState, specs: Sequence[IndexSpec]) -> MaintenanceWork:
        """Compact what is worth it and make every index whole, until there is nothing left to do."""
        work = self._begin(base)
        while True:
            indexed = self.index(self._compact(work), specs)
            if len(indexed.steps) == len(work.steps):
                return indexed
            work = indexed

    def index(self, work: MaintenanceWork, specs: Sequence[IndexSpec]) -> MaintenanceWork:
        """Make every declared index whole and drop those that are no longer declared."""
        table = self._reader.open(work.staged.state)
        declared = {spec.name for spec in specs}
        replaced = [s for name, segments in stored_indexes(table).items() if name not in declared for s in segments]
        segments, pending = [], []
        needs = [(spec, index_need(table, spec)) for spec in specs] if table.state.rows else []
        for (spec, need), segment in zip(needs, _build_segments(table, needs), strict=True):
            if need.pending is not None:
                pending.append(PendingIndex(spec.column, need.pending))
            if not need:
                continue
            if segment is None:
                pending.append(PendingIndex(spec.column, EXTREME_VECTORS))
            else:
                segments.append(segment)
                replaced += need.replaced
        return replace(self._apply(work, IndexChange(segments, replaced)), pending=tuple(pending))

    def index_only(self, base: TableState, specs: Sequence[IndexSpec]) -> MaintenanceWork:
        """Whole indexes over the fragments as they are."""
        return self.index(self._begin(base), specs)

    def reindex(self, base: TableState, damaged: Collection[str], specs: Sequence[IndexSpec]) -> MaintenanceWork:
        """Drop these index segments, by uuid, and build again what is declared: the rows have everything."""
        dropped = [segment for segment in _segments(self._reader.open(base)) if segment.uuid in damaged]
        return self.index(self._apply(self._begin(base), IndexChange([], dropped)), specs)

    def condition(self, state: TableState, specs: Sequence[IndexSpec]) -> TableCondition:
        """Read from the manifest alone. Rows outside an index count when any declared index lacks them."""
        table = self._reader.open(state)
        fills, coverage = fragment_fills(table), covered_fragments(table)
        covered = [coverage.get(spec.name, set()) for spec in specs if not spec.is_vector]
        return TableCondition(
            rows=state.rows,
            small_fragments=sum(fill.is_small for fill in fills),
            deleted_rows=sum(fill.deleted for fill in fills),
            uncovered_rows=sum(f.rows for f in fills if any(f.fragment_id not in ids for ids in covered)),
        )

    def replay(self, work: MaintenanceWork, base: TableState) -> MaintenanceWork | None:
        """The same work on a newer version of the table. None when that version changed what the work rests on."""
        if base == work.base:
            return work
        before, after = (
            {segment.uuid for segment in _segments(self._reader.open(state))} for state in (work.base, base)
        )
        if before != after:
            return None  # others did maintenance, or replaced the whole table
        replayed = replace(work, base=base, staged=StagedTable(base), steps=(), files=_files(self._reader.open(base)))
        for step in work.steps:
            table = self._reader.open(replayed.staged.state)
            if not _fits(table, work, step):
                return None
            replayed = self._apply(replayed, step)
        return replayed

    def _begin(self, base: TableState) -> MaintenanceWork:
        return MaintenanceWork(base, StagedTable(base), files=_files(self._reader.open(base)))

    def _compact(self, work: MaintenanceWork) -> MaintenanceWork:
        table = self._reader.open(work.staged.state)
        fills = {fill.fragment_id: fill for fill in fragment_fills(table)}
        worth_it = fragments_to_compact(list(fills.values()))
        groups = group_by_segments(worth_it, stored_indexes(table))
        if table.state.rows <= SMALL_TABLE_ROWS and len(groups) > 1:
            # Building the indexes of a small table anew costs next to nothing, so those that keep its fragments apart
            # are dropped. A large table keeps them, and its fragments are compacted group by group.
            work = self._apply(work, IndexChange([], _segments(table)))
            table, groups = self._reader.open(work.staged.state), [worth_it]
        for group in groups:
            chosen = fragments_to_compact([fills[fragment_id] for fragment_id in group])
            rewritten = rewrite_fragments(table, chosen, spare_ids=SPARE_IDS)
            if rewritten is not None:
                work = replace(
                    self._apply(work, rewritten),
                    fragments_removed=work.fragments_removed + len(rewritten.replaced),
                    fragments_added=work.fragments_added + len(rewritten.created),
                )
                table = self._reader.open(work.staged.state)
        return work

    def keep_measures(self, work: MaintenanceWork, records: Mapping[str, VectorIndexRecord]) -> MaintenanceWork:
        """Work with what was measured of its indexes, which every later version of the table has too."""
        return self._apply(work, IndexMeasures(dict(records)))

    def _apply(self, work: MaintenanceWork, step: IndexChange | FragmentRewrite | IndexMeasures) -> MaintenanceWork:
        if not any(step):
            return work
        staged = self._staging.apply(work.staged.state, step.operation)
        return replace(work, staged=staged, steps=(*work.steps, step))


def _build_segments(table: Table, needs: Sequence[tuple[IndexSpec, IndexNeed]]) -> list[Index | None]:
    """The segment of each index that needs one, some at a time: no column waits for the longest build."""

    def build(spec: IndexSpec, need: IndexNeed) -> Index | None:
        with _BUILDS:
            return build_segment(table, spec, need.fragment_ids)

    with ThreadPoolExecutor(_BUILDS_AT_ONCE, thread_name_prefix="omnigraph-index") as workers:
        builds = [workers.submit(build, spec, need) if need else None for spec, need in needs]
        return [None if each is None else each.result() for each in builds]


def _files(table: Table) -> dict[int, tuple[str, ...]]:
    return {f.fragment_id: tuple(file.path for file in f.metadata.files) for f in table._fragments()}


def _segments(table: Table) -> list[Index]:
    return [segment for segments in stored_indexes(table).values() for segment in segments]


def _fits(table: Table, work: MaintenanceWork, step: IndexChange | FragmentRewrite | IndexMeasures) -> bool:
    """Whether a step of some work may be done on another version of the table."""
    match step:
        case FragmentRewrite():
            return _holds_unchanged(table, step)
        case IndexChange():
            return _has_files(table, work, step)
    return True


def _holds_unchanged(table: Table, rewritten: FragmentRewrite) -> bool:
    """Whether a version still has the rewritten fragments, row for row, and room for what takes their place."""
    stored: dict[int, Any] = {f.fragment_id: f.metadata.to_json() for f in table._fragments()}
    return stored.keys().isdisjoint(fragment.id for fragment in rewritten.created) and all(
        (now := stored.get(old.id)) is not None
        and now["files"] == old.to_json()["files"]
        and now["deletion_file"] == old.to_json()["deletion_file"]
        for old in rewritten.replaced
    )


def _has_files(table: Table, work: MaintenanceWork, step: IndexChange) -> bool:
    """Whether the fragments that new segments were built from hold the same files in a version. Rows deleted or moved
    away meanwhile do no harm: a segment answers only for rows that its fragments still hold."""
    here = _files(table)
    indexed = {fragment_id for segment in step.segments for fragment_id in segment.fragment_ids}
    return all(number in here and here[number] == work.files.get(number, here[number]) for number in indexed)
