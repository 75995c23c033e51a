"""Maintenance on executors: optimizing a branch, and new vectors for stored rows, each as one commit.

`omnigraph optimize --engine spark` and `reembed` call it, for tables that one machine would take too long for.
Executors write files and the driver alone commits them. Optimizing changes no content. Re-embedding writes one column
file per fragment; all other columns stay in the files they are in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.api.enums import PolicyAction
from omnigraph.api.maintenance import OptimizeReport, PendingIndex, TableOptimized
from omnigraph.api.service.pipeline import Progress, ReembedOutcome
from omnigraph.embeddings.configuration import EmbeddingConfig
from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.bulk.jobs import BulkCompaction, ColumnRewrite, same_content_plan, waiting_indexes
from omnigraph.engine.bulk.scan_plans import all_of, is_not_blank, is_null
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.maintenance.optimize import refresh_topologies
from omnigraph.engine.workspace import GraphHandle
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn, receipt_of
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.execution.embedding import EmbedTask, embed_tasks
from omnigraph.pipeline.execution.report import Stages
from omnigraph.pipeline.execution.staged_tables import index_tables
from omnigraph.pipeline.file import EmbedStep, SparkSettings
from omnigraph.pipeline.sources.source_frames import spark_errors
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
    workspace = graph._workspace.for_action(PolicyAction.ADMIN)
    txn = workspace.begin(branch, Intent(kind="optimize", actor=author))
    catalog_types = table_types(txn.snapshot.catalog)
    if types is not None and (unknown := sorted(set(types) - catalog_types.keys())):
        hint = did_you_mean(unknown[0], catalog_types) or "write node:<Type> or edge:<Type>"
        raise BadRequestError(f"unknown type '{unknown[0]}'; {hint}")
    chosen = {key: type_ for key, type_ in catalog_types.items() if types is None or key in types}
    before = {key: txn.base.tables[key] for key in chosen}
    with spark_session(SparkSettings(), "omnigraph optimize", spark) as session, spark_errors("optimize"):
        with stages.stage("compact", f"{len(chosen)} tables"):
            compaction = BulkCompaction(txn.resources, before, target_rows)
            compacted = compaction.stage(texts_of(session, compaction.tasks))
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
    rows = []
    for key, type_ in chosen.items():
        pending = [PendingIndex(i.property, i.reason) for i in waiting_indexes(txn.resources, type_, after[key])]
        rows.append(
            TableOptimized(
                type_key=key,
                fragments_removed=compacted[key].removed,
                fragments_added=compacted[key].added,
                committed=key in plan.staged,
                pending_indexes=tuple(pending),
            )
        )
    commit = None if published is None else receipt_of(published.entry)
    return OptimizeReport.of(workspace.uri, branch, tuple(rows), commit)


def reembed(
    graph: GraphHandle,
    type_name: str,
    property: str,
    *,
    spark: SparkSession | None = None,
    only_missing: bool = True,
    branch: str = "main",
    index: bool = False,
    actor: str | None = None,
    config: EmbeddingConfig | None = None,
) -> ReembedOutcome:
    """Embed the source text of stored rows: those without a vector, or all of them when not `only_missing`.

    Rows without a text, or with a blank one, keep what they have. When the branch moves meanwhile, only fragments that
    changed are embedded again. `index` brings the declared indexes of the type to full coverage in the same commit.
    """
    author = graph._workspace.author(actor)
    workspace = graph._workspace.for_action(PolicyAction.CHANGE, branch)
    workspace.require(author, PolicyAction.CHANGE, branch)
    workspace.refuse_restricted("embedding a type")
    called = f"{type_name}.{property}"
    intent = Intent(kind="pipeline", actor=author, message=f"embed {called}", details={"embed.property": called})
    # The rewritten fragments, by the full description of the originals: valid for any head that still has those.
    done: dict[str, str | None] = {}

    def prepare(txn: WriteTxn) -> PublishPlan:
        type_ = txn.snapshot.catalog.type_named(type_name)
        if not isinstance(type_, NodeType) or property not in type_.properties:
            hint = did_you_mean(property, type_.properties)
            raise BadRequestError(f"{type_.name} has no vector property '{property}'" + (f"; {hint}" if hint else ""))
        key = type_.type_key
        (task,) = embed_tasks([EmbedStep(type_.name, property)], txn.snapshot.catalog, config)[key]
        rewrite = ColumnRewrite(txn, key, done)
        fragments = rewrite.undone()
        tasks = [partial(_rewrite, rewrite.table, task, number, only_missing) for number in fragments]
        for number, rewritten in zip(fragments, texts_of(session, tasks), strict=True):
            rewrite.note(number, rewritten)
        staged = rewrite.stage()
        if staged is None:
            return PublishPlan(staged={})
        if index:
            indexed = index_tables(session, txn.resources, {key: (type_, staged.state)})
            staged = replace(staged, state=indexed.get(key, staged.state))
        return PublishPlan(staged={key: staged}, details={"embed.model": task.config.model})

    with spark_session(SparkSettings(), f"omnigraph: embed {called}", spark) as session:
        txn = workspace.begin(branch, intent)
        plan = prepare(txn)
        if not plan.staged:
            return ReembedOutcome(0, None)
        published = workspace.publish(txn, plan, prepare)
    commit = receipt_of(published.entry)
    embedded = sum(counts.updated for counts in published.entry.commit.changes.values())
    return ReembedOutcome(embedded, commit.id, commit)


def _rewrite(table: RemoteTable, task: EmbedTask, fragment: int, only_missing: bool) -> str | None:
    """The work of an executor on one fragment; None when no row of it gets a vector."""
    from omnigraph.storage.tables.fragments import rewrite_column

    wanted = all_of([is_not_blank(task.source), *([is_null(task.target)] if only_missing else [])])

    def vectors(rows: pa.Table, type_: pa.DataType) -> pa.Array:
        return task.vectors(rows.column(0), type_)

    return rewrite_column(table, fragment, task.target, [task.source], wanted, vectors)
