"""Maintenance on executors: compaction and index builds of a branch as one commit that changes no content.

The same outcome as `Graph.optimize`, for tables that one machine would take too long for. Bulk exports live here as
well: both read or rewrite whole tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.engine.graph import Graph
from omnigraph.engine.indexes import table_types
from omnigraph.engine.publish import Intent, PublishedCommit, PublishPlan
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.indexing import index_tables
from omnigraph.pipeline.reading import type_named, type_scan
from omnigraph.pipeline.scanning import scan_frame
from omnigraph.storage.models import TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.distributed import FragmentStaging, TableAddress

TARGET_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MaintenanceOutcome:
    """What a distributed optimize did. `commit` is None when there was nothing to do."""

    compacted: dict[str, tuple[int, int]]
    indexed: tuple[str, ...]
    commit: PublishedCommit | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "compacted": {key: {"before": a, "after": b} for key, (a, b) in sorted(self.compacted.items())},
            "indexed": list(self.indexed),
            "commit_id": self.commit.commit_id if self.commit else None,
        }


def optimize_on_spark(
    spark: SparkSession,
    graph: Graph,
    branch: str = "main",
    *,
    types: Collection[str] | None = None,
    actor: str | None = None,
    target_rows: int = TARGET_ROWS,
) -> MaintenanceOutcome:
    """Compact the tables of a branch and make their indexes whole. Refused when a writer changes those tables."""
    txn = graph.begin(branch, Intent(kind="optimize", actor=actor))
    known = table_types(txn.snapshot.catalog)
    if types is not None and (unknown := sorted(set(types) - known.keys())):
        raise BadRequestError(f"unknown type '{unknown[0]}'; write node:<Type> or edge:<Type>")
    states = {key: txn.base.tables[key] for key in known if types is None or key in types}
    staging = FragmentStaging(txn.root.reader, txn.root.trace)
    compacted = _compacted(spark, txn.root.location, staging, states, target_rows)
    latest = {**states, **compacted}
    indexed = index_tables(spark, txn.root, {key: (known[key], state) for key, state in latest.items()})
    changed = {key: StagedTable(state) for key, state in {**compacted, **indexed}.items()}
    shrunk = {key: (states[key].fragments, state.fragments) for key, state in compacted.items()}
    if not changed:
        return MaintenanceOutcome({}, (), None)
    published = graph.publish(txn, PublishPlan(staged=changed, strict=True))
    return MaintenanceOutcome(shrunk, tuple(sorted(indexed)), published)


def _compacted(
    spark: SparkSession, location: Any, staging: FragmentStaging, states: dict[str, TableState], target_rows: int
) -> dict[str, TableState]:
    plans = [
        (key, task) for key, state in sorted(states.items()) for task in staging.plan_compaction(state, target_rows)
    ]
    if not plans:
        return {}
    shipped = [(TableAddress.of(location, states[key]), task) for key, task in plans]
    rows = (
        spark.range(0, len(plans), 1, len(plans)).mapInArrow(_compactor(shipped), "task long, result string").collect()
    )
    results: dict[str, list[str]] = {}
    for number, result in sorted((row[0], row[1]) for row in rows):
        results.setdefault(plans[number][0], []).append(result)
    return {key: staging.apply_compaction(states[key], found).state for key, found in results.items()}


def _compactor(
    shipped: list[tuple[TableAddress, str]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from omnigraph.storage.tables.distributed import run_compaction

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"task": [number], "result": [run_compaction(*shipped[number])]})

    return compact


def export_types(
    spark: SparkSession,
    graph: Graph,
    directory: str,
    *,
    format: str = "parquet",
    types: Collection[str] = (),
    branch: str | None = None,
    snapshot: str | None = None,
) -> dict[str, int]:
    """One directory of files per type, all of one snapshot, in any format Spark writes; rows by type key."""
    state = graph.snapshot(branch, snapshot=snapshot)
    chosen = [type_named(state, name) for name in (types or state.types())]
    for type_ in chosen:
        frame = scan_frame(spark, type_scan(state, type_))
        frame.write.format(format).mode("errorifexists").save(f"{directory.rstrip('/')}/{type_.kind}s/{type_.name}")
    return {type_.type_key: state.count(type_.type_key) for type_ in chosen}
