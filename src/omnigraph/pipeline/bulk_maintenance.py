"""Maintenance on executors: optimizing a branch, and new vectors for stored rows, each as one commit.

`omnigraph optimize --engine spark` and `reembed` call it, for tables that one machine would take too long for.
Executors write files and the driver alone commits them. Optimizing changes no content. Re-embedding writes one column
file per fragment; all other columns stay in the files they are in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from omnigraph.engine.write.change import receipt_of
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.execution.embedding import EmbedTask, embed_tasks
from omnigraph.pipeline.execution.report import Stages
from omnigraph.pipeline.execution.staged_tables import index_tables
from omnigraph.pipeline.file import EmbedStep, SparkSettings
from omnigraph.pipeline.sources.source_frames import spark_errors
from omnigraph.pipeline.spark.session import spark_session
from omnigraph.pipeline.spark.tasks import on_executors, texts_of
from omnigraph.pipeline.spark.type_reader import type_named

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
    details = {"embed.property": f"{type_name}.{property}"}
    author = graph._workspace.author(actor)
    workspace = graph._workspace.acting(PolicyAction.CHANGE, branch)
    workspace.require(author, PolicyAction.CHANGE, branch)
    workspace.refuse_restricted("embedding a type")
    intent = Intent(kind="pipeline", actor=author, message=f"embed {type_name}.{property}", details=details)
    with spark_session(SparkSettings(), f"omnigraph: embed {type_name}.{property}", spark) as session:
        txn = workspace.begin(branch, intent)
        attempt = _Reembedding(session, EmbedStep(type_name, property), config, only_missing, index)
        plan = attempt.prepare(txn)
        if not plan.staged:
            return ReembedOutcome(0, None)
        published = workspace.publish(txn, plan, attempt.prepare)
    commit = receipt_of(published.entry)
    embedded = sum(counts.updated for counts in published.entry.commit.changes.values())
    return ReembedOutcome(embedded, commit.id, commit)


@dataclass
class _Reembedding:
    spark: SparkSession
    step: EmbedStep
    config: EmbeddingConfig | None
    only_missing: bool
    index: bool
    # What became of fragments, by all that they consisted of: good for any head that still has them.
    _done: dict[str, str | None] = field(default_factory=dict)

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        type_ = type_named(txn.snapshot, self.step.type_name)
        if not isinstance(type_, NodeType) or self.step.property not in type_.properties:
            hint = did_you_mean(self.step.property, type_.properties)
            raise BadRequestError(
                f"{type_.name} has no vector property '{self.step.property}'" + (f"; {hint}" if hint else "")
            )
        (task,) = embed_tasks([EmbedStep(type_.name, self.step.property)], txn.snapshot.catalog, self.config)[
            type_.type_key
        ]
        key = type_.type_key
        rewrite = ColumnRewrite(txn, key, self._done)
        for number, rewritten in self._embed(rewrite.table, task, rewrite.undone()):
            rewrite.note(number, rewritten)
        staged = rewrite.stage()
        if staged is None:
            return PublishPlan(staged={})
        if self.index:
            indexed = index_tables(self.spark, txn.resources, {key: (type_, staged.state)})
            staged = replace(staged, state=indexed.get(key, staged.state))
        return PublishPlan(staged={key: staged}, details={"embed.model": task.config.model})

    def _embed(self, table: RemoteTable, task: EmbedTask, fragments: Sequence[int]) -> Iterator[tuple[int, str | None]]:
        if not fragments:
            return
        work = _rewriter(table, task, fragments, self.only_missing)
        for row in on_executors(self.spark, len(fragments), work, "fragment long, rewritten string").collect():
            yield row[0], row[1]


def _rewriter(
    table: RemoteTable, task: EmbedTask, fragments: Sequence[int], only_missing: bool
) -> Callable[[int], Iterator[pa.RecordBatch]]:
    wanted = all_of([is_not_blank(task.source), *([is_null(task.target)] if only_missing else [])])

    def rewrite(number: int) -> Iterator[pa.RecordBatch]:
        from omnigraph.storage.tables.fragments import rewrite_column

        rewritten = rewrite_column(
            table,
            fragments[number],
            task.target,
            [task.source],
            wanted,
            lambda rows, type_: task.vectors(rows.column(0), type_),
        )
        schema = pa.schema([("fragment", pa.int64()), ("rewritten", pa.string())])
        yield pa.record_batch([[fragments[number]], [rewritten]], schema=schema)

    return rewrite
