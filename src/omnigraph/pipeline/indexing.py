"""Declared indexes brought to full coverage by executors: one task per index and group of fragments.

Called by a run that asked for indexes and by distributed maintenance. What an index lacks is decided by the same
rules as in process; the driver only commits the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.api.upkeep import PendingProperty
from omnigraph.engine.indexes import declared_indexes, pending_properties
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.tasks import on_executors
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.distributed import BuiltIndex, FragmentStaging, TableAddress, fragments_of
from omnigraph.storage.tables.indexing import IndexNeed, IndexSpec, index_need
from omnigraph.storage.tables.upkeep import PendingIndex

_ROWS_PER_SEGMENT: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _SegmentTask:
    key: str
    address: TableAddress
    spec: IndexSpec
    need: IndexNeed
    fragment_ids: tuple[int, ...]


def index_tables(
    spark: SparkSession, root: GraphRoot, tables: Mapping[str, tuple[TableType, TableState]]
) -> dict[str, TableState]:
    """Staged versions of these tables with every declared index whole; tables that lack nothing are left out."""
    tasks = [task for key, (type_, state) in sorted(tables.items()) for task in _tasks(root, key, type_, state)]
    if not tasks:
        return {}
    rows = on_executors(spark, len(tasks), _builder(tasks), "task long, segment string").collect()
    segments: dict[tuple[str, str], list[str]] = {}
    for number, segment in sorted((row[0], row[1]) for row in rows):
        segments.setdefault((tasks[number].key, tasks[number].spec.name), []).append(segment)
    staging = FragmentStaging(root.reader, root.trace)
    staged = {}
    for key in sorted({task.key for task in tasks}):
        specs = {task.spec.name: task for task in tasks if task.key == key}
        built = [BuiltIndex(t.spec, t.need, tuple(segments[key, name])) for name, t in sorted(specs.items())]
        staged[key] = staging.add_indexes(tables[key][1], built).state
    return staged


def waiting_indexes(root: GraphRoot, type_: TableType, state: TableState) -> list[PendingProperty]:
    """Declared indexes of a table that can't be built yet, with the reason."""
    table = root.reader.open(state)
    needs = [(spec, index_need(table, spec)) for spec in declared_indexes(type_)]
    waiting = [PendingIndex(spec.column, need.pending) for spec, need in needs if need.pending is not None]
    return pending_properties(type_, waiting)


def _tasks(root: GraphRoot, key: str, type_: TableType, state: TableState) -> Iterator[_SegmentTask]:
    table = root.reader.open(state)
    rows = {f.id: f.rows for f in fragments_of(table)}
    address = TableAddress.of(root.location, state)
    for spec in declared_indexes(type_):
        need = index_need(table, spec)
        group: list[int] = []
        for fragment_id in need.fragment_ids:
            if group and sum(rows[i] for i in group) + rows[fragment_id] > _ROWS_PER_SEGMENT:
                yield _SegmentTask(key, address, spec, need, tuple(group))
                group = []
            group.append(fragment_id)
        if group:
            yield _SegmentTask(key, address, spec, need, tuple(group))


def _builder(tasks: list[_SegmentTask]) -> Callable[[int], Iterator[pa.RecordBatch]]:
    # What an executor needs of a task; segments that will be replaced stay with the driver.
    shipped = [(task.address, task.spec, task.fragment_ids) for task in tasks]

    def build(number: int) -> Iterator[pa.RecordBatch]:
        from omnigraph.storage.tables.distributed import build_index_segment

        yield pa.RecordBatch.from_pydict({"task": [number], "segment": [build_index_segment(*shipped[number])]})

    return build
