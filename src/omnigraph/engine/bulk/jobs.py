"""Bulk jobs of a driver: compaction, index builds and new values of one column, run fragment by fragment.

The pipeline plans a job here, sends its tasks to executors and hands their results back to be staged. The rules that
decide what an index lacks are those of `engine.maintenance`. Nothing here knows Spark, and nothing here publishes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from omnigraph.api.maintenance import PendingProperty
from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, pending_properties
from omnigraph.engine.resources import Resources
from omnigraph.engine.write.publish import PublishPlan, WriteTxn
from omnigraph.language.catalog import TableType
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.fragments import (
    FragmentStaging,
    build_index_segment,
    fragment_descriptions,
    run_compaction,
)
from omnigraph.storage.tables.indexes import IndexNeed, IndexSpec, index_need, spec_at
from omnigraph.storage.tables.maintenance import PendingIndex
from omnigraph.storage.tables.staging import StagedTable

Task: TypeAlias = Callable[[], str]
"""Work for an executor; it is pickled, and its result goes back to be staged."""


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A table after its rewrites, and how many fragments they took and made."""

    state: TableState
    removed: int = 0
    added: int = 0


class BulkCompaction:
    """The rewrites that would leave fragments of about `target_rows` in some tables; `tasks` are for executors."""

    def __init__(self, resources: Resources, tables: Mapping[str, TableState], target_rows: int) -> None:
        self._tables = tables
        self._staging = FragmentStaging(resources.root.reader, resources.root.trace)
        plans = {key: self._staging.plan_compaction(state, target_rows) for key, state in sorted(tables.items())}
        self._keys = [key for key, planned in plans.items() for _ in planned]
        self.tasks: list[Task] = [
            partial(run_compaction, RemoteTable.of(resources, tables[key]), plan)
            for key, planned in plans.items()
            for plan in planned
        ]

    def stage(self, results: Sequence[str]) -> dict[str, CompactedTable]:
        """Every table with its rewrites in place, given one result per task."""
        by_table: dict[str, list[str]] = {}
        for key, result in zip(self._keys, results, strict=True):
            by_table.setdefault(key, []).append(result)
        compacted = {key: CompactedTable(state) for key, state in self._tables.items()}
        for key, texts in by_table.items():
            reports = [json.loads(text) for text in texts]
            state = self._staging.apply_compaction(self._tables[key], texts).state
            removed = sum(len(report["original_fragments"]) for report in reports)
            added = sum(len(report["new_fragments"]) for report in reports)
            compacted[key] = CompactedTable(state, removed, added)
        return compacted


def same_content_plan(before: Mapping[str, TableState], after: Mapping[str, TableState]) -> PublishPlan:
    """Tables with a new layout and the same content. Strict: a writer that was faster makes the work void."""
    changed = {key: StagedTable(state) for key, state in after.items() if state != before[key]}
    return PublishPlan(staged=changed, strict=True)


_ROWS_PER_SEGMENT: Final = 4 << 20

TablesToIndex: TypeAlias = Mapping[str, tuple[TableType, TableState]]
"""By type key, the declaration and the version that needs indexes."""

IndexedVersions: TypeAlias = dict[str, TableState]


class IndexBuild:
    """The segments that some tables lack; `tasks` are for executors."""

    def __init__(self, resources: Resources, tables: TablesToIndex) -> None:
        self._root = resources.root
        self._tables = tables
        self._planned: list[tuple[str, IndexSpec, IndexNeed]] = []
        self.tasks: list[Task] = []
        for key, (type_, state) in sorted(tables.items()):
            table, pinned = self._root.reader.open(state), PinnedTable.of(resources, state)
            for spec in declared_indexes(type_):
                need, spec = index_need(table, spec), spec_at(table, spec)
                lacking = frozenset(need.fragment_ids)
                fragments = tuple(fragment for fragment in pinned.fragments if fragment.id in lacking)
                for group in replace(pinned, fragments=fragments).groups(_ROWS_PER_SEGMENT):
                    self._planned.append((key, spec, need))
                    self.tasks.append(partial(build_index_segment, pinned.remote, spec, group))

    def stage(self, segments: Sequence[str]) -> IndexedVersions:
        """Versions with every declared index whole, given one segment per task, of the tables that lack something."""
        built: dict[str, dict[str, tuple[IndexSpec, IndexNeed, list[str]]]] = {}
        for (key, spec, need), segment in zip(self._planned, segments, strict=True):
            if segment:  # vectors that can't have an index are searched without one
                built.setdefault(key, {}).setdefault(spec.name, (spec, need, []))[2].append(segment)
        staging, staged = FragmentStaging(self._root.reader, self._root.trace), {}
        for key, by_name in built.items():
            indexes = [by_name[name] for name in sorted(by_name)]
            staged[key] = staging.add_indexes(self._tables[key][1], indexes).state
        return staged


def waiting_indexes(resources: Resources, type_: TableType, state: TableState) -> list[PendingProperty]:
    """Declared indexes of a table that can't be built yet, with the reason."""
    table = resources.root.reader.open(state)
    needs = [(spec, index_need(table, spec)) for spec in declared_indexes(type_)]
    waiting = [PendingIndex(spec.column, need.pending) for spec, need in needs if need.pending is not None]
    return pending_properties(type_, waiting)


class ColumnRewrite:
    """One type of a captured head whose fragments get new values. `done` goes from attempt to attempt: it remembers
    what became of a fragment by all that it consists of, which is good for any later head that still has it."""

    def __init__(self, txn: WriteTxn, type_key: str, done: dict[str, str | None]) -> None:
        self._root = txn.root
        self._state = txn.state(type_key)
        self._described = fragment_descriptions(txn.root.reader.open(self._state))
        self._done = done
        self.table = RemoteTable.of(txn.resources, self._state)

    def undone(self) -> list[int]:
        """Fragments that have no result yet."""
        return [number for number, text in self._described.items() if text not in self._done]

    def note(self, fragment_id: int, rewritten: str | None) -> None:
        """What `RemoteTable.with_column` made of a fragment."""
        self._done[self._described[fragment_id]] = rewritten

    def stage(self) -> StagedTable | None:
        """The version with the new values; None when no row got one."""
        rewritten = [text for each in self._described.values() if (text := self._done[each]) is not None]
        staging = FragmentStaging(self._root.reader, self._root.trace)
        return staging.add_rewritten(self._state, rewritten) if rewritten else None
