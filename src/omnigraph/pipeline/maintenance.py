"""Optimize on executors: compaction and index builds of a branch as one commit that changes no content.

The same outcome and the same report as `Graph.optimize`, for tables that one machine would take too long for. Called
by `omnigraph optimize --engine spark`. Executors write files; the driver alone commits them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.api.pipeline import Progress
from omnigraph.api.upkeep import OptimizeReport, PendingIndex, TableOptimized
from omnigraph.engine.indexes import table_types
from omnigraph.engine.publish import Intent, PublishPlan, WriteTxn
from omnigraph.engine.receipts import receipt_of
from omnigraph.engine.topology_upkeep import refresh_topologies
from omnigraph.engine.workspace import GraphHandle
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.indexing import index_tables, waiting_indexes
from omnigraph.pipeline.report import Stages
from omnigraph.pipeline.sources import spark_errors
from omnigraph.pipeline.tasks import on_executors
from omnigraph.storage.models import TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.distributed import FragmentStaging, TableAddress

TARGET_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Compacted:
    """A table after its rewrites, and how many fragments they took and made."""

    state: TableState
    removed: int = 0
    added: int = 0


def optimize_on_spark(
    spark: SparkSession,
    graph: GraphHandle,
    branch: str = "main",
    *,
    types: Collection[str] | None = None,
    actor: str | None = None,
    target_rows: int = TARGET_ROWS,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Compact the tables of a branch and make their indexes whole. Refused when a writer changes those tables."""
    stages, workspace = Stages(progress), graph.workspace
    txn = workspace.begin(branch, Intent(kind="optimize", actor=actor))
    known = table_types(txn.snapshot.catalog)
    if types is not None and (unknown := sorted(set(types) - known.keys())):
        raise BadRequestError(f"unknown type '{unknown[0]}'; write node:<Type> or edge:<Type>")
    chosen = {key: type_ for key, type_ in known.items() if types is None or key in types}
    before = {key: txn.base.tables[key] for key in chosen}
    with spark_errors("optimize"):
        with stages.stage("compact", f"{len(chosen)} tables"):
            compacted = _compacted(spark, txn, before, target_rows)
        with stages.stage("index"):
            latest = {key: (type_, compacted[key].state) for key, type_ in chosen.items()}
            indexed = index_tables(spark, txn.root, latest)
    after = {key: indexed.get(key, table.state) for key, table in compacted.items()}
    changed = {key: StagedTable(state) for key, state in after.items() if state != before[key]}
    published = None
    if changed:
        with stages.stage("publish"):
            published = workspace.publish(txn, PublishPlan(staged=changed, strict=True))
    refresh_topologies(workspace.snapshot(branch))
    rows = [
        TableOptimized(
            type_key=key,
            fragments_removed=compacted[key].removed,
            fragments_added=compacted[key].added,
            committed=key in changed,
            pending_indexes=tuple(
                PendingIndex(each.property, each.reason) for each in waiting_indexes(txn.root, type_, after[key])
            ),
        )
        for key, type_ in chosen.items()
    ]
    commit = None if published is None else receipt_of(published.entry)
    return OptimizeReport.of(workspace.uri, branch, tuple(rows), commit)


def _compacted(
    spark: SparkSession, txn: WriteTxn, states: Mapping[str, TableState], target_rows: int
) -> dict[str, _Compacted]:
    staging = FragmentStaging(txn.root.reader, txn.root.trace)
    plans = [
        (key, task) for key, state in sorted(states.items()) for task in staging.plan_compaction(state, target_rows)
    ]
    results: dict[str, list[str]] = {}
    if plans:
        shipped = [(TableAddress.of(txn.root.location, states[key]), task) for key, task in plans]
        rows = on_executors(spark, len(plans), _compactor(shipped), "task long, result string").collect()
        for number, result in sorted((row[0], row[1]) for row in rows):
            results.setdefault(plans[number][0], []).append(result)
    return {
        key: _rewritten(staging, state, results[key]) if key in results else _Compacted(state)
        for key, state in states.items()
    }


def _rewritten(staging: FragmentStaging, state: TableState, results: list[str]) -> _Compacted:
    told = [json.loads(result) for result in results]
    return _Compacted(
        staging.apply_compaction(state, results).state,
        sum(len(result["original_fragments"]) for result in told),
        sum(len(result["new_fragments"]) for result in told),
    )


def _compactor(
    shipped: list[tuple[TableAddress, str]],
) -> Callable[[int], Iterator[pa.RecordBatch]]:
    def compact(number: int) -> Iterator[pa.RecordBatch]:
        from omnigraph.storage.tables.distributed import run_compaction

        yield pa.RecordBatch.from_pydict({"task": [number], "result": [run_compaction(*shipped[number])]})

    return compact
