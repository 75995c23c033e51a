"""The Spark data source `omnigraph`: graph types as tables, the change feed as a stream, frames as commits.

Options: `graph` (URI), `type`, `branch` (default main); for reads `columns`, `snapshot` and `pushdown`; for streams
`start`, `types` and `commitsPerBatch`; for writes `mode` (append, merge, overwrite), `actor` and `runKey`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.bulk.staged_run import GraphAddress
from omnigraph.engine.write.load import load_mode
from omnigraph.engine.write.publish import Intent, already_published
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.pipeline.execution.embedding import embed_tasks, on_write_steps
from omnigraph.pipeline.spark.change_stream import CHANGES_SCHEMA, ChangeStreamReader
from omnigraph.pipeline.spark.table_frames import TableScan
from omnigraph.pipeline.spark.tasks import spark_schema
from omnigraph.pipeline.spark.type_reader import FilteringTypeReader, TypeReader, comparable_columns, type_scan
from omnigraph.pipeline.spark.type_writer import Sink, TypeStreamWriter, TypeWriter

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("omnigraph")` known to a session, and let it take filters where a reader asks for them."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(OmnigraphDataSource)


class OmnigraphDataSource(DataSource):
    """A `type` is read or written; without one, a stream reads the changes of the whole branch."""

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> StructType | str:
        return spark_schema(self._scan()[1].result_schema) if "type" in self.options else CHANGES_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        type_, scan = self._scan()
        if self.options.get("pushdown", "false").lower() == "true":
            return FilteringTypeReader(scan, comparable_columns(type_))
        return TypeReader(scan)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        key = self.options.get("runKey")
        if key is not None:
            # The run key is looked up before the type, which may be gone since an earlier write.
            intent = Intent(kind="pipeline", actor=self.options.get("actor"), idempotency_key=key)
            with self._graph().open() as workspace:
                if already_published(workspace.begin(self._branch(), intent)) is not None:
                    return TypeWriter(None)
        return TypeWriter(self._sink(overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        types = frozenset(filter(None, (t.strip() for t in self.options.get("types", "").split(","))))
        start = self.options.get("start", "beginning")
        most = self.options.get("commitsPerBatch")
        if most is not None and not (most.isdecimal() and int(most)):
            raise BadRequestError(f"option commitsPerBatch is a whole number above 0, not '{most}'")
        return ChangeStreamReader(self._graph(), self._branch(), start, types, int(most) if most else None)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return TypeStreamWriter(self._sink(False), self.options.get("runKey"))

    def _sink(self, overwrite: bool) -> Sink:
        given = self.options.get("mode")
        mode = LoadMode.OVERWRITE if overwrite else load_mode(given) if given else LoadMode.APPEND
        with self._graph().open() as workspace:
            state = workspace.snapshot(self._branch())
            type_ = state.catalog.type_named(self._option("type"))
            computed = on_write_steps([type_] if isinstance(type_, NodeType) else [])
            return Sink(
                graph=self._graph(),
                branch=self._branch(),
                type_key=type_.type_key,
                mode=mode,
                catalog=state.catalog.to_json(),
                schema_digest=state.entry.schema,
                table=RemoteTable.of(workspace, state.table(type_.type_key).state),
                actor=self.options.get("actor"),
                run_key=self.options.get("runKey"),
                embed=embed_tasks(list(computed), state.catalog).get(type_.type_key, ()),
            )

    def _option(self, name: str) -> str:
        if name not in self.options:
            raise BadRequestError(f"the omnigraph data source needs the option '{name}'")
        return str(self.options[name])

    def _branch(self) -> str:
        return str(self.options.get("branch", "main"))

    def _graph(self) -> GraphAddress:
        return GraphAddress.of(self._option("graph"))

    def _scan(self) -> tuple[TableType, TableScan]:
        commit, columns = self.options.get("snapshot"), self.options.get("columns")
        with self._graph().open() as workspace:
            state = workspace.snapshot(None, snapshot=commit) if commit else workspace.snapshot(self._branch())
            type_ = state.catalog.type_named(self._option("type"))
            names = None if columns is None else [name.strip() for name in columns.split(",")]
            return type_, type_scan(state, type_, names)
