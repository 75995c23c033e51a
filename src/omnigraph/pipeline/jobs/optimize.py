"""Optimize on executors: compaction and index builds of a branch as one commit that changes no content.

The same outcome and the same report as `Graph.optimize`, for tables that one machine would take too long for. Called
by `omnigraph optimize --engine spark`. Executors write files; the driver alone commits them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import SparkSession

from omnigraph.api.enums import PolicyAction
from omnigraph.api.maintenance import OptimizeReport, PendingIndex, TableOptimized
from omnigraph.api.service.pipeline import Progress
from omnigraph.engine.bulk.jobs import BulkCompaction, same_content_plan, waiting_indexes
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.maintenance.optimize import refresh_topologies
from omnigraph.engine.workspace import GraphHandle
from omnigraph.engine.write.publish import Intent
from omnigraph.engine.write.receipts import receipt_of
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.execution.index_tasks import index_tables
from omnigraph.pipeline.execution.report import Stages
from omnigraph.pipeline.file.model import SparkSettings
from omnigraph.pipeline.sources.sources import spark_errors
from omnigraph.pipeline.spark.session import spark_session
from omnigraph.pipeline.spark.tasks import texts_of

TARGET_ROWS: Final = 1 << 20


def optimize_on_spark(
    spark: SparkSession | None,
    graph: GraphHandle,
    branch: str = "main",
    *,
    types: Collection[str] | None = None,
    actor: str | None = None,
    target_rows: int = TARGET_ROWS,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Compact the tables of a branch and make their indexes whole. Refused when a writer changes those tables."""
    stages, author = Stages(progress), graph._workspace.author(actor)
    workspace = graph._workspace.acting(PolicyAction.ADMIN)
    txn = workspace.begin(branch, Intent(kind="optimize", actor=author))
    known = table_types(txn.snapshot.catalog)
    if types is not None and (unknown := sorted(set(types) - known.keys())):
        hint = did_you_mean(unknown[0], known) or "write node:<Type> or edge:<Type>"
        raise BadRequestError(f"unknown type '{unknown[0]}'; {hint}")
    chosen = {key: type_ for key, type_ in known.items() if types is None or key in types}
    before = {key: txn.base.tables[key] for key in chosen}
    with spark_session(SparkSettings(), "omnigraph optimize", spark) as session, spark_errors("optimize"):
        with stages.stage("compact", f"{len(chosen)} tables"):
            compaction = BulkCompaction(txn.resources, before, target_rows)
            compacted = compaction.staged(texts_of(session, [task.run for task in compaction.tasks]))
        with stages.stage("index"):
            latest = {key: (type_, compacted[key].state) for key, type_ in chosen.items()}
            indexed = index_tables(session, txn.resources, latest)
    after = {key: indexed.get(key, table.state) for key, table in compacted.items()}
    plan = same_content_plan(before, after)
    published = None
    if plan.staged:
        with stages.stage("publish"):
            published = workspace.publish(txn, plan)
    refresh_topologies(workspace.snapshot(branch))
    rows = [
        TableOptimized(
            type_key=key,
            fragments_removed=compacted[key].removed,
            fragments_added=compacted[key].added,
            committed=key in plan.staged,
            pending_indexes=tuple(
                PendingIndex(each.property, each.reason) for each in waiting_indexes(txn.resources, type_, after[key])
            ),
        )
        for key, type_ in chosen.items()
    ]
    commit = None if published is None else receipt_of(published.entry)
    return OptimizeReport.of(workspace.uri, branch, tuple(rows), commit)
