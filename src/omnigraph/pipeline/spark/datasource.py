"""The Spark data source `omnigraph`: graph types as tables, the change feed as a stream, frames as commits.

A version of a branch never changes meaning, so an offset of the stream stays valid across restarts for as long as
cleanup keeps the commits behind it. The driver only looks at heads; executors read the changes of their commits.
Options: `graph` (URI), `type`, `branch` (default main); for reads `columns`, `snapshot` and `pushdown`; for streams
`start`, `types`, `commitsPerBatch` and `schemaChanges` (stop, ignore, until:<commit id>); for writes `mode` (append,
merge, update, overwrite), `actor` and `runKey`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from omnigraph.api.enums import LoadMode, TypeChange
from omnigraph.api.history import ChangeScope
from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.bulk.staged_run import GraphAddress
from omnigraph.engine.history import log_walk
from omnigraph.engine.history.changes import CommitChanges, changes_of, selection_of
from omnigraph.engine.history.diff import Selection
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.load import load_mode
from omnigraph.engine.write.publish import Intent, already_published
from omnigraph.errors import BadRequestError, ChangeSchemaBoundaryError
from omnigraph.language.catalog import NodeType, TableType, check_type_names
from omnigraph.pipeline.execution.embedding import embed_tasks, on_write_steps, touched_steps
from omnigraph.pipeline.spark.table_frames import TableScan
from omnigraph.pipeline.spark.tasks import spark_schema
from omnigraph.pipeline.spark.type_reader import FilteringTypeReader, TypeReader, comparable_columns, type_scan
from omnigraph.pipeline.spark.type_writer import Sink, TypeStreamWriter, TypeWriter

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
CHANGES_SCHEMA: Final = (
    "commit_id string, version long, authored_at timestamp, actor string, op string, kind string, type string, "
    "id string, src string, dst string, before string, after string, src_type string, dst_type string"
)

_AFTER: Final = "after:"
_UNTIL: Final = "until:"
_ACCEPTED_VERSIONS: Final = {"stop": 0, "ignore": math.inf}
_STOPPING: Final = frozenset({TypeChange.DROPPED, TypeChange.CHANGED, TypeChange.RENAMED})
"""Changes after which a query that reads images, or names types, may mean something else."""
# A long history must not become as many tasks.
_MOST_TASKS: Final = 64


def register(spark: SparkSession) -> None:
    """Make `format("omnigraph")` known to a session, and let it take filters where a reader asks for them."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(OmnigraphDataSource)


class OmnigraphDataSource(ds.DataSource):
    """A `type` is read or written; without one, a stream reads the changes of the whole branch."""

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> StructType | str:
        return spark_schema(self._scan()[1].result_schema) if "type" in self.options else CHANGES_SCHEMA

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        type_, scan = self._scan()
        if self.options.get("pushdown", "false").lower() == "true":
            return FilteringTypeReader(scan, comparable_columns(type_))
        return TypeReader(scan)

    def writer(self, schema: StructType, overwrite: bool) -> ds.DataSourceWriter:
        key = self.options.get("runKey")
        if key is not None:
            # The run key is looked up before the type, which may be gone since an earlier write.
            intent = Intent(kind="pipeline", actor=self.options.get("actor"), idempotency_key=key)
            with self._graph().open() as workspace:
                if already_published(workspace.begin(self._branch(), intent)) is not None:
                    return TypeWriter(None)
        return TypeWriter(self._sink(overwrite, schema))

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:  # noqa: N802
        types = frozenset(filter(None, (t.strip() for t in self.options.get("types", "").split(","))))
        start = self.options.get("start", "beginning")
        most = self.options.get("commitsPerBatch")
        if most is not None and not (most.isdecimal() and int(most)):
            raise BadRequestError(f"option commitsPerBatch is a whole number above 0, not '{most}'")
        accepted = self._accepted_version(self.options.get("schemaChanges", "stop"))
        return ChangeStreamReader(self._graph(), self._branch(), start, types, int(most) if most else None, accepted)

    def _accepted_version(self, option: str) -> float:
        """The last version whose schema change the query is made for."""
        if option in _ACCEPTED_VERSIONS:
            return _ACCEPTED_VERSIONS[option]
        if not option.startswith(_UNTIL):
            raise BadRequestError(f"option schemaChanges is stop, ignore or until:<commit id>, not '{option}'")
        commit, branch = option.removeprefix(_UNTIL), self._branch()
        with self._graph().open() as workspace:
            newest = workspace.snapshot(branch).version
            if not log_walk.is_on_line(workspace.root, branch, newest, commit):
                raise BadRequestError(f"option schemaChanges: commit '{commit}' is not in the history of '{branch}'")
            return workspace.commit_entry(commit).version

    def streamWriter(self, schema: StructType, overwrite: bool) -> ds.DataSourceStreamWriter:  # noqa: N802
        return TypeStreamWriter(self._sink(False, schema), self.options.get("runKey"))

    def _sink(self, overwrite: bool, schema: StructType) -> Sink:
        mode_name = self.options.get("mode")
        mode = LoadMode.OVERWRITE if overwrite else load_mode(mode_name) if mode_name else LoadMode.APPEND
        with self._graph().open() as workspace:
            state = workspace.snapshot(self._branch())
            type_ = state.catalog.type_named(self._option("type"))
            computed = on_write_steps([type_] if isinstance(type_, NodeType) else [])
            if mode is LoadMode.UPDATE:
                computed = touched_steps(computed, state.catalog, {(type_.name, name) for name in schema.names})
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
                embed=embed_tasks(computed, state.catalog).get(type_.type_key, ()),
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


@dataclass
class CommitRange(ds.InputPartition):
    """The commits at some versions of the branch, both ends included."""

    first: int
    last: int


@dataclass(eq=False)
class ChangeStreamReader(ds.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Commits after the start, in order, at most `commits` in a micro-batch. `start` is beginning (default), now, or
    after:<commit id>.

    Rows have no place for records of schema changes, and a query that runs can't be changed. So a batch fails at a
    commit that changed, renamed or dropped a type of the stream after version `accepted`; its offsets stay, and a query
    that was restarted for the new schema repeats it.
    """

    graph: GraphAddress
    branch: str
    start: str
    types: frozenset[str]
    commits: int | None = None
    accepted: float = 0
    _end: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with self.graph.open() as workspace:
            check_type_names(self.types, workspace.snapshot(self.branch).catalog)
            if self.start == "now":
                return {"version": workspace.snapshot(self.branch).version}
            if self.start.startswith(_AFTER):
                return {"version": workspace.commit_entry(self.start.removeprefix(_AFTER)).version}
            if self.start != "beginning":
                raise BadRequestError(f"option start is beginning, now or after:<commit id>, not '{self.start}'")
        # The first commit creates the graph and changes nothing that was there before.
        return {"version": 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark counts rows, bytes or files; a commit is nearest to a file."""
        return ReadAllAvailable() if self.commits is None else ReadMaxFiles(self.commits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end = self._newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        newest = self._newest() if self._end is None else self._end
        if isinstance(limit, ReadMaxFiles):
            newest = min(newest, start["version"] + limit.max_files)
        return {"version": max(newest, start["version"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[ds.InputPartition]:
        first, last = start["version"] + 1, end["version"]
        size = max(1, -(-(last - first + 1) // _MOST_TASKS))
        return [CommitRange(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]

    def read(self, partition: ds.InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, CommitRange):
            return
        scope = ChangeScope.of(types=self.types)
        with self.graph.open() as workspace:
            for version in range(partition.first, partition.last + 1):
                state = workspace.snapshot(self.branch, version=version)
                changes = changes_of(state, _selection(state, scope))
                if version > self.accepted:
                    _refuse_schema_changes(changes)
                yield from self._rows(state, changes)

    def _rows(self, state: Snapshot, changes: CommitChanges) -> Iterator[tuple[Any, ...]]:
        commit = state.entry.commit
        cause = (commit.id, state.entry.version, datetime.fromtimestamp(commit.authored_at / 1e6, UTC), commit.actor)
        for change in changes.records():
            image = change.after or change.before
            ends = image.endpoints if image is not None else None
            between = (None, None) if ends is None else (ends.source, ends.target)
            types = (None, None) if ends is None else (ends.source_type, ends.target_type)
            entity = (change.op.value, change.kind.value, change.type_name, change.id, *between)
            yield (*cause, *entity, _image(change.before), _image(change.after), *types)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for a consumer, so there is nothing to release."""

    def _newest(self) -> int:
        with self.graph.open() as workspace:
            return workspace.snapshot(self.branch).version


def _selection(state: Snapshot, scope: ChangeScope) -> Selection:
    """The types of a stream. One that was dropped meanwhile has no more changes."""
    try:
        return selection_of(state, scope)
    except BadRequestError:
        return Selection(scope)


def _refuse_schema_changes(changes: CommitChanges) -> None:
    for change in changes.schema_changes:
        if change.change in _STOPPING:
            commit, steps = changes.cause.graph_commit_id, "; ".join(step.line() for step in change.steps)
            restart = f"restart it with the same checkpoint and the option schemaChanges={_UNTIL}{commit}"
            remedy = f"make the query of this stream fit the new schema ({steps or change.change}), then {restart}"
            raise ChangeSchemaBoundaryError(commit, change.type_name, remedy)


def _image(image: Any) -> str | None:
    return None if image is None else json.dumps(image.properties, ensure_ascii=False)
