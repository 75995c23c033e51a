"""Work on tables that a driver plans and an executor does: plain data, and light to import where it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.engine.bulk.remote_table import RemoteTable

if TYPE_CHECKING:
    from omnigraph.storage.tables.indexes import IndexSpec


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment of an index, over some fragments."""

    table: RemoteTable
    spec: IndexSpec
    fragment_ids: tuple[int, ...]

    def run(self) -> str:
        return self.table.index_segment(self.spec, self.fragment_ids)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One planned rewrite of fragments into fewer."""

    table: RemoteTable
    plan: str

    def run(self) -> str:
        return self.table.compacted(self.plan)
