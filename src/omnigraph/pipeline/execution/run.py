"""A pipeline run from sources to one commit, or to nothing.

`run` captures a head, lets executors type and write the rows, checks them with joins against that head, and publishes
through the engine's publish machine like every other write. The driver holds metadata, counts and samples.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import structs
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.conf import RuntimeConfig

from omnigraph.api import wire
from omnigraph.api.enums import LoadMode, PolicyAction
from omnigraph.api.service.pipeline import PipelineReport, Progress, RejectedSample, TypeCounts
from omnigraph.embeddings.configuration import EmbeddingConfig
from omnigraph.engine.bulk.executor import EntityRecords, RemoteTable
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.bulk.staged_run import WrittenFragment, WrittenFragments
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.workspace import GraphHandle, Workspace, open_workspace
from omnigraph.engine.write.publish import Intent, PublishedCommit, PublishPlan, WriteTxn, already_published
from omnigraph.errors import BranchNotFoundError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.pipeline.checks.check_sequence import CheckSequence
from omnigraph.pipeline.execution import report
from omnigraph.pipeline.execution.embedding import embed_tasks, steps_of, touched_steps
from omnigraph.pipeline.execution.ingest import FRAGMENT, OUTCOME_SCHEMA, TALLY, IngestTask
from omnigraph.pipeline.execution.plan import target_of
from omnigraph.pipeline.execution.report import SAMPLES, Stages, rejected_by_kernels, samples
from omnigraph.pipeline.execution.staged_tables import IncomingTables, index_tables
from omnigraph.pipeline.execution.updates import FILLED, FillTask, bucket_counts, filled_outcomes
from omnigraph.pipeline.file import EmbedStep, OnError, Pipeline, TypeMapping, check_against, load_pipeline
from omnigraph.pipeline.sources.fingerprints import DigestCache, Digests
from omnigraph.pipeline.sources.source_frames import RowIndex, SourceFrames, hadoop_uri, spark_errors
from omnigraph.pipeline.spark.session import session_of_run, spark_session, ui_url
from omnigraph.pipeline.spark.tasks import spark_schema, union_of
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.models import ChangeCounts

_COUNTS: Final = "pipeline.counts"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNWEIGHED_ROWS: Final = 8_192
_UNWEIGHED: Final = str((1 << 31) - 1)
_UNSET: Final = "1"


def run(
    pipeline: Pipeline | str | Path,
    *,
    graph: GraphHandle | str | Path | None = None,
    branch: str | None = None,
    mode: str | None = None,
    spark: SparkSession | None = None,
    actor: str | None = None,
    run_key: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    embedding: EmbeddingConfig | None = None,
    skip_empty: bool = False,
) -> PipelineReport:
    """Run a pipeline (a model, or the path of its file) as one commit.

    Inputs that were loaded before by the same pipeline are recognised and skipped, unless `force`. `run_key` names
    the run instead, for inputs that Spark can't fingerprint. A dry run does everything, and keeps nothing of it.
    `embedding` embeds texts instead of the provider that the environment names. A run without rows makes a commit as
    well, to record that the pipeline ran, unless `skip_empty`.
    """
    model = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)
    model = model if branch is None else replace(model, branch=branch)
    model = model if mode is None else replace(model, mode=LoadMode(mode))
    with open_workspace(target_of(model, graph)) as workspace:
        allowed, author = require_permission(workspace, actor, model.branch)
        with (
            spark_session(model.spark, f"omnigraph: {model.name}", spark) as session,
            session_of_run(session, model.spark) as own,
            spark_errors(None),
            ExitStack() as kept,
        ):
            execution = _Run(model, allowed, own, author, Stages(progress), kept, dry_run, embedding, skip_empty)
            return execution.to_commit(run_key, force=force)


def require_permission(workspace: Workspace, actor: str | None, branch: str) -> tuple[Workspace, str | None]:
    """The workspace as an actor may load it, and that actor. Callers check this before Spark starts, so that a caller
    who may not write learns it at once."""
    author = workspace.author(actor)
    allowed = workspace.for_action(PolicyAction.CHANGE, branch)
    allowed.require(author, PolicyAction.CHANGE, branch)
    allowed.refuse_restricted("a pipeline")
    return allowed, author


@dataclass
class Ingested:
    """Everything the executors wrote and refused, for one schema."""

    fragments: WrittenFragments
    outcomes: dict[tuple[int, str], DataFrame] = field(default_factory=dict)
    cells: dict[str, dict[int, DataFrame]] = field(default_factory=dict)
    """Of an update: by type key, the outcomes with partial rows of the type, by the order of their inputs."""
    unchanged: Counter[str] = field(default_factory=Counter)
    superseded: Counter[str] = field(default_factory=Counter)
    counts: dict[str, TypeCounts] = field(default_factory=dict)
    rejected: int = 0

    def rejections(self) -> DataFrame:
        """The rows that the kernels rejected, of all sources."""
        return union_of([rejected_by_kernels(source, outcomes) for (_, source), outcomes in self.outcomes.items()])

    def add(self, outcomes: DataFrame, order: int, source: str) -> None:
        """Run the job of a source, and take in the reports of its tasks."""
        self.outcomes[order, source] = outcomes
        for row in _metadata(outcomes, FRAGMENT, TALLY):
            if row["kind"] == FRAGMENT:
                fragment = WrittenFragment(row["type"], source, order, row["first"], row["rows"], row["fragment"])
                self.fragments.add(fragment)
                continue
            self.cells.setdefault(row["type"], {})[order] = outcomes
            rejected = row["rejected"]
            counts = self.counts.get(row["type"], TypeCounts(type_key=row["type"]))
            changed = {"read": counts.read + row["rows"] + rejected, "rejected": counts.rejected + rejected}
            self.counts[row["type"]] = structs.replace(counts, **changed)
            self.rejected += rejected

    def add_filled(self, filled: DataFrame, sources: Sequence[str]) -> None:
        """Run the job that fills the partial rows of a type, and take in the reports of its tasks. `sources` are those
        of the inputs, in order; what becomes of their partial rows comes after all of them."""
        for row in _metadata(filled, FRAGMENT, FILLED):
            if row["kind"] == FRAGMENT:
                order = row["order"]
                place = (sources[order], len(sources) + order, row["first"], row["rows"])
                self.fragments.add(WrittenFragment(row["type"], *place, row["fragment"]))
                continue
            counts = self.counts[row["type"]]
            self.counts[row["type"]] = structs.replace(counts, rejected=counts.rejected + row["rejected"])
            self.rejected += row["rejected"]
            self.unchanged[row["type"]] += row["rows"]
            self.superseded[row["type"]] += row["first"]
        for order, source in enumerate(sources):
            here, frame = (len(sources) + order, source), filled.where(F.col("order") == order)
            of_other_types = self.outcomes.get(here)
            self.outcomes[here] = frame if of_other_types is None else of_other_types.unionByName(frame)


def _metadata(outcomes: DataFrame, *kinds: str) -> list[Row]:
    columns = ("kind", "type", "first", "rows", "rejected", "fragment", "order")
    return outcomes.where(F.col("kind").isin(*kinds)).select(*columns).collect()


def _size_batches(conf: RuntimeConfig, types: Iterable[TableType]) -> None:
    """Spark weighs every batch anew after every row, which takes longer than handing the rows over. Rows without blobs
    need no such care: their batches are bounded by a number of rows instead."""
    if any(prop.type.is_blob for type_ in types for prop in type_.property_list):
        conf.unset(_BATCH_BYTES)
        return
    conf.set(_BATCH_BYTES, _UNWEIGHED)
    rows = int(conf.get(_BATCH_ROWS) or 0)
    conf.set(_BATCH_ROWS, str(min(rows, _UNWEIGHED_ROWS) if rows > 0 else _UNWEIGHED_ROWS))


@dataclass
class _Run:
    """One run. `kept` holds the frames that Spark keeps until the run ends."""

    model: Pipeline
    workspace: Workspace
    spark: SparkSession
    actor: str | None
    stages: Stages
    kept: ExitStack
    dry_run: bool = False
    embedding: EmbeddingConfig | None = None
    skip_empty: bool = False
    run_id: str = field(default_factory=new_ulid)
    began: float = field(default_factory=monotonic)
    rejected_samples: Sequence[RejectedSample] = ()
    rejected_total: int = 0
    counts: tuple[TypeCounts, ...] = ()
    quarantine: str | None = None
    _ingested: dict[tuple[str, ...], Ingested] = field(default_factory=dict)
    _indexes: dict[str, RowIndex] = field(default_factory=dict)

    def to_commit(self, run_key: str | None, *, force: bool) -> PipelineReport:
        if run_key is not None:
            # Looked up first: the inputs of an earlier run may be gone, and its mappings may not fit the schema now.
            named = Intent(kind="pipeline", actor=self.actor, idempotency_key=run_key)
            with suppress(BranchNotFoundError):
                if (done := already_published(self.workspace.begin(self.model.branch, named))) is not None:
                    return self._report(done, run_key)
        with self.stages.stage("read", ", ".join(self.model.sources)):
            self.frames = SourceFrames(self.spark, self.model)
            key = run_key or (None if force else self._fingerprint())
        self.intent = Intent(
            kind="pipeline", actor=self.actor, message=f"pipeline {self.model.name}", idempotency_key=key,
            details={"pipeline.name": self.model.name, "pipeline.run_id": self.run_id},
        )  # fmt: skip
        self._weighed_by_user = self.spark.conf.get(_BATCH_BYTES, _UNSET) != _UNSET
        self.workspace.require(self.actor, PolicyAction.CHANGE, self.model.branch.strip())
        self.workspace.refuse_restricted("a pipeline")
        try:
            txn = self.workspace.begin(self.model.branch, self.intent)
        except BranchNotFoundError:
            if self.model.base is None:
                raise
            return self._on_new_branch(key)
        if (done := already_published(txn)) is not None:
            return self._report(done, key)
        plan = self.prepare(txn)
        if self.dry_run or (self.skip_empty and not plan.staged):
            self._discard()
            return self._report(None, key)
        again = None if self.model.mode is LoadMode.OVERWRITE else self.prepare
        with self.stages.stage("publish"):
            return self._report(self.workspace.publish(txn, plan, again), key)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self.kept.callback(frame.unpersist)
        return frame.persist(StorageLevel.DISK_ONLY)

    def _discard(self) -> None:
        """Remove the rows that executors wrote, unless a plan that left this run names them."""
        for ingested in self._ingested.values():
            ingested.fragments.discard()

    def _on_new_branch(self, key: str | None) -> PipelineReport:
        base = self.model.base or ""
        self.workspace.require(self.actor, PolicyAction.BRANCH_CREATE, base.strip(), self.model.branch.strip())
        if self.dry_run:
            self.prepare(self.workspace.begin(base, self.intent))
            self._discard()
            return self._report(None, key, created=True)

        def prepare(txn: WriteTxn) -> PublishPlan | None:
            plan = self.prepare(txn)
            return None if self.skip_empty and not plan.staged else plan

        published = self.workspace.commit_on_new_branch(self.model.branch, base, prepare, self.intent)
        return self._report(published, key, created=True)

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Everything between the captured head and the publish. May run again on a newer head."""
        try:
            plan = self._prepare(txn)
        except BaseException:
            self._discard()
            raise
        if not self.dry_run:
            for ingested in self._ingested.values():
                ingested.fragments.keep()
        return plan

    def _prepare(self, txn: WriteTxn) -> PublishPlan:
        """One attempt: its fragments as staged tables, checked and indexed."""
        ingested = self._ingest(txn)
        tables = IncomingTables(self.spark, txn)
        types = table_types(txn.snapshot.catalog)
        replaces = self.model.mode is LoadMode.OVERWRITE
        with self.stages.stage("stage"):
            fragments = ingested.fragments.by_type()
            # A type that a mapping names is replaced also by no rows at all.
            mapped = [mapping.type_key for mapping in self.model.mappings] if replaces else []
            for key in sorted({*mapped, *fragments}):
                tables.add(types[key], fragments.get(key, []), replaces=replaces)
        checked = CheckSequence(tables, self.model, ingested.outcomes, self._refuse_now, self._keep)
        with self.stages.stage("check"):
            checked.run()
        self._put_into_quarantine(ingested, checked)
        if self.model.index:
            with self.stages.stage("index"):
                current = {key: (incoming.type, incoming.current) for key, incoming in tables.by_key.items()}
                for key, state in index_tables(self.spark, txn.resources, current).items():
                    tables.replace_current(key, state)
        self.counts = _final_counts(ingested, checked, tables)
        facts = {
            _COUNTS: wire.encode(list(self.counts)).decode(),
            "pipeline.rejected": str(self.rejected_total),
            "pipeline.sources": json.dumps(sorted(self.model.sources)),
        }
        staged, read_set = tables.newest_versions(), tables.read_set()
        # What is stored of a type without changes is relied on.
        read_set = replace(read_set, tables=read_set.tables | (ingested.unchanged.keys() - staged.keys()))
        return PublishPlan(staged=staged, read_set=read_set, strict=replaces, details=facts)

    def _ingest(self, txn: WriteTxn) -> Ingested:
        """Typed fragments of every source; the same for every attempt that meets the same tables."""
        is_update = self.model.mode is LoadMode.UPDATE
        states = txn.base.tables.values()
        # What an update writes is made of the stored rows of one version.
        tables = (txn.base.schema, *sorted(f"{s.path} {s.version if is_update else ''}" for s in states))
        if tables in self._ingested:
            return self._ingested[tables]
        ingested = self._ingested[tables] = Ingested(WrittenFragments(txn))
        check_against(self.model, txn.snapshot.catalog)
        for order, (label, source, mapping) in enumerate(self._inputs()):
            with self.stages.stage("write", label):
                outcomes = self._outcomes(txn, label, source, mapping)
                try:
                    ingested.add(self._keep(outcomes), order, source)
                except (PySparkException, Py4JJavaError) as error:
                    too_many = report.too_many_rejected(str(error), source, self.frames.row_index)
                    if too_many is None:
                        raise
                    raise too_many from None
        if is_update:
            self._fill(txn, ingested)
        if ingested.rejected:
            self._refuse_now(ingested.rejected, ingested.rejections())
        return ingested

    def _fill(self, txn: WriteTxn, ingested: Ingested) -> None:
        """Fill the partial rows of an update from the stored ones."""
        catalog, quality = txn.snapshot.catalog, self.model.quality
        types, sources = table_types(catalog), [source for _, source, _ in self._inputs()]
        vectors = embed_tasks(self._embed_steps(catalog), catalog, self.embedding)
        for key, cells in sorted(ingested.cells.items()):
            if key not in types:
                continue
            type_, state = types[key], txn.state(key)
            task = FillTask(
                type=type_,
                stored=EntityRecords.of(txn.snapshot, type_),
                table=RemoteTable.of(txn.resources, state),
                keeps_last=quality.keeps_last(self.model.mode, keyed=bool(type_.key)),
                most_rejected=quality.max_rejected if quality.on_error is OnError.QUARANTINE else SAMPLES,
                embed=vectors.get(key, ()),
            )
            with self.stages.stage("write", f"{key} beside what is stored"):
                stored = PinnedTable.of(txn.resources, state)
                filled = filled_outcomes(self.spark, stored, task, cells, bucket_counts(txn)[key])
                ingested.add_filled(self._keep(filled), sources)

    def _embed_steps(self, catalog: Catalog) -> list[EmbedStep]:
        """The vectors that the run computes; an update only those whose texts or vectors it may write."""
        steps = steps_of(self.model, catalog)
        if self.model.mode is not LoadMode.UPDATE or any(each.is_graph for each in self.model.sources.values()):
            return steps
        selected = {(m.type_name, name) for m in self.model.mappings if not m.is_edge for name in m.select}
        return touched_steps(steps, catalog, selected)

    def _inputs(self) -> Iterator[tuple[str, str, TypeMapping | None]]:
        """The inputs to ingest: a label, a source, and its mapping, which graph records do not need. Of a source that
        only queries read, only the records that can't be read are left to report."""
        for mapping in self.model.mappings:
            yield f"{mapping.type_key} from {mapping.source}", mapping.source, mapping
        for name, source in self.model.sources.items():
            if source.is_graph:
                yield f"records of {name}", name, None
        for name in self.frames.read_by_queries_only():
            yield f"bad records of {name}", name, None

    def _outcomes(self, txn: WriteTxn, label: str, source: str, mapping: TypeMapping | None) -> DataFrame:
        """The reports of the tasks of a source; nothing runs yet."""
        catalog, quality = txn.snapshot.catalog, self.model.quality
        tables = {key: RemoteTable.of(txn.resources, state) for key, state in txn.base.tables.items()}
        quarantine, type_key = quality.on_error is OnError.QUARANTINE, mapping.type_key if mapping else None
        task = IngestTask(
            catalog=catalog.to_json(),
            tables={type_key: tables[type_key]} if type_key else tables,
            seed=f"{self.run_id}\n{label}",
            millis=self.intent.authored_at // 1_000,
            type_key=type_key,
            replaces=self.model.mode is LoadMode.OVERWRITE,
            most_rejected=quality.max_rejected if quarantine else SAMPLES,
            stop_beyond=quality.max_rejected if quarantine else None,
            external_blobs=self.workspace.external_blobs,
            embed=embed_tasks(self._embed_steps(catalog), catalog, self.embedding),
            buckets=bucket_counts(txn) if self.model.mode is LoadMode.UPDATE else None,
        )
        if not self._weighed_by_user:
            types = table_types(catalog)
            _size_batches(self.spark.conf, [types[type_key]] if type_key else types.values())
        schema = spark_schema(OUTCOME_SCHEMA)
        if mapping is not None:
            return self.frames.through(mapping, task, schema)
        return self.frames.through_records(source, task, schema)

    def _refuse_now(self, total: int, rejected: DataFrame) -> None:
        """End the run because of rejected rows, if they are too many; the first ones are shown."""
        quality = self.model.quality
        allowed = quality.max_rejected if quality.on_error is OnError.QUARANTINE else 0
        if total > allowed:
            raise report.rows_rejected(total, samples(rejected, self._row_indexes(rejected), SAMPLES), allowed)

    def _put_into_quarantine(self, ingested: Ingested, checked: CheckSequence) -> None:
        """Before the commit, so that every row is loaded or in the quarantine at any time."""
        self.rejected_total = ingested.rejected + checked.rejected
        if not self.rejected_total:
            return
        rejected = self._keep(union_of([ingested.rejections(), *checked.frames]))
        self._refuse_now(self.rejected_total, rejected)
        with self.stages.stage("quarantine"):
            indexes = self._row_indexes(rejected)
            self.rejected_samples = samples(rejected, indexes, SAMPLES)
            if self.dry_run:
                return
            self.quarantine = f"{self.model.resolve_path(self.model.quality.quarantine or '')}/{self.run_id}"
            report.with_positions(rejected, indexes).write.mode("overwrite").json(hadoop_uri(self.quarantine))

    def _row_indexes(self, rejected: DataFrame) -> dict[str, RowIndex]:
        for row in rejected.select("source").distinct().collect():
            if row[0] not in self._indexes:
                self._indexes[row[0]] = self.frames.row_index(row[0])
        return self._indexes

    def _fingerprint(self) -> str | None:
        """Pipeline and contents of its input as one key. None when some input has no files to look at."""
        digests = Digests(self.spark, DigestCache.of_user(os.environ))
        parts = [self.model.name, self.model.mode.value, repr(self.model.mappings), repr(self.model.embed)]
        # Mappings without types of ends have the fingerprints of earlier releases.
        if any(map(any, types := [(mapping.src_type, mapping.dst_type) for mapping in self.model.mappings])):
            parts.append(repr(types))
        for name in self.model.sources:
            fingerprint = self.frames.fingerprint(name, digests)
            if fingerprint is None:
                return None
            parts.append(f"{name} {fingerprint}")
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"pipeline:{self.model.name}:{digest[:32]}"

    def _report(self, published: PublishedCommit | None, key: str | None, *, created: bool = False) -> PipelineReport:
        counts, replayed = self.counts, published is not None and published.replayed
        if published is not None and replayed:
            counts = wire.decode(published.entry.commit.details.get(_COUNTS, "[]"), tuple[TypeCounts, ...])
        return PipelineReport(
            pipeline=self.model.name,
            run_id=self.run_id,
            run_key=key,
            graph=self.workspace.uri,
            branch=self.model.branch,
            mode=self.model.mode.value,
            types=counts,
            rejected=self.rejected_total,
            samples=tuple(self.rejected_samples),
            quarantine=self.quarantine,
            commit_id=published.commit_id if published else None,
            version=published.version if published else None,
            branch_created=created,
            dry_run=self.dry_run,
            replayed=replayed,
            seconds=monotonic() - self.began,
            stages=self.stages.seconds,
            spark_ui=ui_url(self.spark),
        )


def _final_counts(ingested: Ingested, checked: CheckSequence, tables: IncomingTables) -> tuple[TypeCounts, ...]:
    final = []
    for key in sorted({*ingested.counts, *tables.by_key}):
        counts = ingested.counts.get(key, TypeCounts(type_key=key))
        rejected, superseded = (by_type.get(key, 0) for by_type in (checked.rejected_by_type, checked.superseded))
        superseded += ingested.superseded[key]
        changes = structs.asdict(tables.by_key[key].changes if key in tables.by_key else ChangeCounts())
        counts = structs.replace(counts, rejected=counts.rejected + rejected, superseded=superseded, **changes)
        same = tables.by_key[key].unchanged if key in tables.by_key else 0
        nulled = tables.by_key[key].nulled if key in tables.by_key else ()
        counts = structs.replace(counts, unchanged=ingested.unchanged[key] + same, nulled=nulled)
        final.append(structs.replace(counts, type_key=key or "(no type)"))
    return tuple(final)
