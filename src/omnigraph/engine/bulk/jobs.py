"""Bulk jobs of a driver: compaction, index builds and new values of one column, run fragment by fragment.

The pipeline plans a job here, sends its tasks to executors and hands their results back to be staged. The rules that
decide what an index lacks are those of `engine.maintenance`. Nothing here knows Spark, and nothing here publishes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from omnigraph.api.maintenance import PendingProperty
from omnigraph.engine.bulk.executor import RemoteTable, RewriteTask, SegmentTask
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, pending_properties
from omnigraph.engine.resources import Resources
from omnigraph.engine.write.publish import PublishPlan, WriteTxn
from omnigraph.language.catalog import TableType
from omnigraph.storage.models import TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.fragments import FragmentStaging, fragment_descriptions
from omnigraph.storage.tables.indexes import IndexNeed, IndexSpec, index_need
from omnigraph.storage.tables.maintenance import PendingIndex


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A table after its rewrites, and how many fragments they took and made."""

    state: TableState
    removed: int = 0
    added: int = 0


class BulkCompaction:
    """The rewrites that would leave fragments of about `target_rows` in some tables."""

    def __init__(self, resources: Resources, tables: Mapping[str, TableState], target_rows: int) -> None:
        self._tables = tables
        self._staging = FragmentStaging(resources.root.reader, resources.root.trace)
        self._planned = [
            (key, RewriteTask(RemoteTable.of(resources, state), plan))
            for key, state in sorted(tables.items())
            for plan in self._staging.plan_compaction(state, target_rows)
        ]

    @property
    def tasks(self) -> list[RewriteTask]:
        return [task for _, task in self._planned]

    def stage(self, results: Sequence[str]) -> dict[str, CompactedTable]:
        """Every table with its rewrites in place, given one result per task."""
        by_table: dict[str, list[str]] = {}
        for (key, _), result in zip(self._planned, results, strict=True):
            by_table.setdefault(key, []).append(result)
        return {
            key: self._rewritten(state, by_table[key]) if key in by_table else CompactedTable(state)
            for key, state in self._tables.items()
        }

    def _rewritten(self, state: TableState, results: list[str]) -> CompactedTable:
        reports = [json.loads(result) for result in results]
        return CompactedTable(
            self._staging.apply_compaction(state, results).state,
            sum(len(report["original_fragments"]) for report in reports),
            sum(len(report["new_fragments"]) for report in reports),
        )


def same_content_plan(before: Mapping[str, TableState], after: Mapping[str, TableState]) -> PublishPlan:
    """Tables with a new layout and the same content. Strict: a writer that was faster makes the work void."""
    changed = {key: StagedTable(state) for key, state in after.items() if state != before[key]}
    return PublishPlan(staged=changed, strict=True)


_ROWS_PER_SEGMENT: Final = 4 << 20

TablesToIndex: TypeAlias = Mapping[str, tuple[TableType, TableState]]
"""By type key, the declaration and the version that needs indexes."""

IndexedVersions: TypeAlias = dict[str, TableState]


@dataclass(frozen=True, slots=True)
class _Planned:
    """A task and what the driver needs to know of it; segments that will be replaced stay there."""

    key: str
    need: IndexNeed
    task: SegmentTask


class IndexBuild:
    """The segments that some tables lack."""

    def __init__(self, resources: Resources, tables: TablesToIndex) -> None:
        self._resources = resources
        self._tables = tables
        self._planned = [p for key, (type_, state) in sorted(tables.items()) for p in self._plan(key, type_, state)]

    @property
    def tasks(self) -> list[SegmentTask]:
        return [planned.task for planned in self._planned]

    def stage(self, segments: Sequence[str]) -> IndexedVersions:
        """Versions with every declared index whole, given one segment per task; tables that lack nothing are left
        out."""
        root = self._resources.root
        staging = FragmentStaging(root.reader, root.trace)
        built: dict[str, dict[str, list[str]]] = {}
        needs: dict[tuple[str, str], tuple[IndexSpec, IndexNeed]] = {}
        for planned, segment in zip(self._planned, segments, strict=True):
            if not segment:
                continue  # vectors that can't have an index are searched without one
            spec = planned.task.spec
            built.setdefault(planned.key, {}).setdefault(spec.name, []).append(segment)
            needs[planned.key, spec.name] = (spec, planned.need)
        staged = {}
        for key, by_name in built.items():
            indexes = [(*needs[key, name], texts) for name, texts in sorted(by_name.items())]
            staged[key] = staging.add_indexes(self._tables[key][1], indexes).state
        return staged

    def _plan(self, key: str, type_: TableType, state: TableState) -> Iterator[_Planned]:
        table, pinned = self._resources.root.reader.open(state), PinnedTable.of(self._resources, state)
        for spec in declared_indexes(type_):
            need = index_need(table, spec)
            lacking = tuple(fragment for fragment in pinned.fragments if fragment.id in set(need.fragment_ids))
            for group in replace(pinned, fragments=lacking).groups(_ROWS_PER_SEGMENT):
                yield _Planned(key, need, SegmentTask(pinned.remote, spec, group))


def waiting_indexes(resources: Resources, type_: TableType, state: TableState) -> list[PendingProperty]:
    """Declared indexes of a table that can't be built yet, with the reason."""
    table = resources.root.reader.open(state)
    needs = [(spec, index_need(table, spec)) for spec in declared_indexes(type_)]
    waiting = [PendingIndex(spec.column, need.pending) for spec, need in needs if need.pending is not None]
    return pending_properties(type_, waiting)


class ColumnRewrite:
    """One type of a captured head whose fragments get new values.

    What became of a fragment is remembered by all that it consists of, so it is good for any later head that still has
    that fragment: `done` is handed from attempt to attempt.
    """

    def __init__(self, txn: WriteTxn, type_key: str, done: dict[str, str | None]) -> None:
        self._root = txn.root
        self._state = txn.state(type_key)
        self._described = fragment_descriptions(txn.root.reader.open(self._state))
        self._done = done
        self.table = RemoteTable.of(txn.resources, self._state)

    def undone(self) -> list[int]:
        """Fragments that still have to be looked at."""
        return [number for number, text in self._described.items() if text not in self._done]

    def note(self, fragment_id: int, rewritten: str | None) -> None:
        """What `RemoteTable.with_column` made of a fragment."""
        self._done[self._described[fragment_id]] = rewritten

    def stage(self) -> StagedTable | None:
        """The version with the new values; None when no row got one."""
        found = [text for each in self._described.values() if (text := self._done[each]) is not None]
        if not found:
            return None
        return FragmentStaging(self._root.reader, self._root.trace).with_rewritten_columns(self._state, found)
