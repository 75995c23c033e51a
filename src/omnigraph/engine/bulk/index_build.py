"""Declared indexes brought to full coverage by many processes: one task per index and group of fragments.

What an index lacks is decided by the same rules as in process. Executors build segments; the driver stages them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from omnigraph.api.maintenance import PendingProperty
from omnigraph.engine.bulk.executor_tasks import SegmentTask
from omnigraph.engine.bulk.pinned_table import PinnedTable
from omnigraph.engine.resources import Resources
from omnigraph.engine.schema.declared_indexes import declared_indexes, pending_properties
from omnigraph.language.catalog import TableType
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.fragments import BuiltIndex, FragmentStaging
from omnigraph.storage.tables.indexes import IndexNeed, IndexSpec, index_need
from omnigraph.storage.tables.upkeep import PendingIndex

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

    def staged(self, segments: Sequence[str]) -> IndexedVersions:
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
            indexes = [BuiltIndex(*needs[key, name], tuple(made)) for name, made in sorted(by_name.items())]
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
