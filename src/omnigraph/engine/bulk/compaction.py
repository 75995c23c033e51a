"""Compaction by many processes: rewrites are planned here, run by executors, and staged here as one version each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.engine.bulk.executor_tasks import RewriteTask
from omnigraph.engine.bulk.remote_table import RemoteTable
from omnigraph.engine.resources import Resources
from omnigraph.engine.write.publish import PublishPlan
from omnigraph.storage.models import TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.fragments import FragmentStaging


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

    def staged(self, results: Sequence[str]) -> dict[str, CompactedTable]:
        """Every table with its rewrites in place, given one result per task."""
        by_table: dict[str, list[str]] = {}
        for (key, _), result in zip(self._planned, results, strict=True):
            by_table.setdefault(key, []).append(result)
        return {
            key: self._rewritten(state, by_table[key]) if key in by_table else CompactedTable(state)
            for key, state in self._tables.items()
        }

    def _rewritten(self, state: TableState, results: list[str]) -> CompactedTable:
        told = [json.loads(result) for result in results]
        return CompactedTable(
            self._staging.apply_compaction(state, results).state,
            sum(len(result["original_fragments"]) for result in told),
            sum(len(result["new_fragments"]) for result in told),
        )


def same_content_plan(before: Mapping[str, TableState], after: Mapping[str, TableState]) -> PublishPlan:
    """Tables that were laid out anew and hold what they held. Strict: a writer who was faster makes the work void."""
    changed = {key: StagedTable(state) for key, state in after.items() if state != before[key]}
    return PublishPlan(staged=changed, strict=True)
