"""The driver's part of an ingest: one job per mapping or source, and the reports of its tasks.

The tasks of `ingest` are made and started here, and their fragments and rejections counted; rows never pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph.api.enums import LoadMode
from omnigraph.api.service.pipeline import TypeCounts
from omnigraph.embeddings.configuration import EmbeddingConfig
from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.bulk.staged_run import WrittenFragment, WrittenFragments, remote_tables
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.language.catalog import Catalog
from omnigraph.pipeline.execution.embedding import embed_tasks, steps_of
from omnigraph.pipeline.execution.ingest import FRAGMENT, OUTCOME_SCHEMA, TALLY, IngestTask
from omnigraph.pipeline.execution.report import SAMPLES, Stages, rejected_by_kernels, too_many_rejected
from omnigraph.pipeline.file import OnError, Pipeline, TypeMapping
from omnigraph.pipeline.sources.source_frames import SourceFrames
from omnigraph.pipeline.spark.tasks import spark_schema, union_of

_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNWEIGHED_ROWS: Final = 8_192
_UNWEIGHED: Final = str((1 << 31) - 1)
_UNSET: Final = "1"


@dataclass
class Ingested:
    """Everything the executors wrote and refused, for one schema."""

    fragments: WrittenFragments
    outcomes: dict[tuple[int, str], DataFrame] = field(default_factory=dict)
    counts: dict[str, TypeCounts] = field(default_factory=dict)
    rejected: int = 0

    def rejections(self) -> DataFrame:
        """The rows that the kernels rejected, of all sources."""
        return union_of([rejected_by_kernels(source, outcomes) for (_, source), outcomes in self.outcomes.items()])

    def add(self, outcomes: DataFrame, order: int, source: str) -> None:
        """Run the job of a source, and take in the reports of its tasks."""
        self.outcomes[order, source] = outcomes
        metadata = outcomes.where(f"kind in ('{FRAGMENT}', '{TALLY}')")
        for row in metadata.select("kind", "type", "first", "rows", "rejected", "fragment").collect():
            if row["kind"] == FRAGMENT:
                fragment = WrittenFragment(row["type"], source, order, row["first"], row["rows"], row["fragment"])
                self.fragments.add(fragment)
                continue
            rejected = row["rejected"]
            counts = self.counts.get(row["type"], TypeCounts(type_key=row["type"]))
            changed = {"read": counts.read + row["rows"] + rejected, "rejected": counts.rejected + rejected}
            self.counts[row["type"]] = structs.replace(counts, **changed)
            self.rejected += rejected


@dataclass
class SourceIngest:
    """Has the sources of one run typed and written, on any head. `keep` has Spark keep a frame until the run ends;
    `millis` is the instant of the run."""

    model: Pipeline
    spark: SparkSession
    frames: SourceFrames
    stages: Stages
    keep: Callable[[DataFrame], DataFrame]
    run_id: str
    millis: int
    external_blobs: ExternalBlobPolicy
    embedding: EmbeddingConfig | None

    def __post_init__(self) -> None:
        self._weighed_by_user = self.spark.conf.get(_BATCH_BYTES, _UNSET) != _UNSET

    def into(self, found: Ingested, txn: WriteTxn) -> None:
        """Every source, one after another, for the tables of a head."""
        catalog, tables = txn.snapshot.catalog, remote_tables(txn)
        for order, (label, source, mapping) in enumerate(self._inputs()):
            with self.stages.stage("write", label):
                outcomes = self._outcomes(catalog, tables, label, source, mapping)
                try:
                    found.add(self.keep(outcomes), order, source)
                except (PySparkException, Py4JJavaError) as error:
                    too_many = too_many_rejected(str(error), source, self.frames.row_index)
                    if too_many is None:
                        raise
                    raise too_many from None

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

    def _outcomes(
        self,
        catalog: Catalog,
        tables: Mapping[str, RemoteTable],
        label: str,
        source: str,
        mapping: TypeMapping | None,
    ) -> DataFrame:
        """The reports of the tasks of a source; nothing runs yet."""
        type_key, quality = mapping.type_key if mapping else None, self.model.quality
        quarantine = quality.on_error is OnError.QUARANTINE
        task = IngestTask(
            catalog=catalog.to_json(),
            tables={type_key: tables[type_key]} if type_key else tables,
            seed=f"{self.run_id}\n{label}",
            millis=self.millis,
            type_key=type_key,
            replaces=self.model.mode is LoadMode.OVERWRITE,
            most_rejected=quality.max_rejected if quarantine else SAMPLES,
            stop_beyond=quality.max_rejected if quarantine else None,
            external_blobs=self.external_blobs,
            embed=embed_tasks(steps_of(self.model, catalog), catalog, self.embedding),
        )
        self._size_batches(catalog, type_key)
        schema = spark_schema(OUTCOME_SCHEMA)
        if mapping is not None:
            return self.frames.through(mapping, task, schema)
        return self.frames.through_records(source, task, schema)

    def _size_batches(self, catalog: Catalog, type_key: str | None) -> None:
        """Spark weighs every batch anew after every row, which takes longer than handing the rows over. Rows without
        blobs need no such care: their batches are bounded by a number of rows instead."""
        if self._weighed_by_user:
            return
        conf, types = self.spark.conf, table_types(catalog)
        chosen = [types[type_key]] if type_key else types.values()
        if any(prop.type.is_blob for type_ in chosen for prop in type_.property_list):
            conf.unset(_BATCH_BYTES)
            return
        conf.set(_BATCH_BYTES, _UNWEIGHED)
        rows = int(conf.get(_BATCH_ROWS) or 0)
        conf.set(_BATCH_ROWS, str(min(rows, _UNWEIGHED_ROWS) if rows > 0 else _UNWEIGHED_ROWS))
