"""Loads beyond one process: `load --engine spark` and `write_frame`, each a pipeline built in memory.

The command line and users call it. Rows come from files of graph records, from tables of one type, or from a DataFrame;
everything else is `run`. A load makes the same commit and the same receipt as `Graph.load`, takes all rows or none, and
refuses a key that its input holds twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from omnigraph.api.enums import LoadMode
from omnigraph.api.load import LoadReceipt
from omnigraph.api.service.pipeline import PipelineReport, Progress
from omnigraph.engine.rows.kernels.decoder import ends_of
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle, Workspace, open_workspace
from omnigraph.engine.write.change import receipt_of
from omnigraph.engine.write.load import load_mode
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConstraintRule, KeyConflictError, RowsRejectedError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.pipeline.execution.run import require_permission, run
from omnigraph.pipeline.file import Duplicates, EmbedStep, Pipeline, Quality, Source, SparkSettings, TypeMapping
from omnigraph.pipeline.sources.source_frames import SourceFrames
from omnigraph.pipeline.spark.session import session_of_run, spark_session
from omnigraph.pipeline.spark.type_reader import type_named
from omnigraph.storage.identifiers import new_ulid


@dataclass(frozen=True, slots=True)
class BulkInput:
    """Files of one format, by a path, directory or pattern that Spark understands."""

    path: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


def load_on_spark(
    graph: GraphHandle,
    inputs: Sequence[BulkInput],
    *,
    mode: str,
    branch: str = "main",
    base: str | None = None,
    type_name: str | None = None,
    embed: bool = False,
    actor: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> LoadReceipt:
    """Load graph records, or rows of the type `type_name`, as one commit; a missing branch is made from `base`.

    `embed` computes every `@embed` vector that is missing.
    """
    require_permission(graph._workspace, actor, branch)
    state = _target(graph._workspace, branch, base)  # what is wrong with the target is known before Java starts
    type_ = None if type_name is None else type_named(state, type_name)
    names = ["data", *(f"data_{number}" for number in range(2, len(inputs) + 1))]
    sources = {name: Source(name, i.format, i.path, i.options) for name, i in zip(names, inputs, strict=True)}
    pipeline = Pipeline(
        name="load",
        sources=sources,
        branch=branch,
        base=base,
        mode=load_mode(mode),
        embed=tuple(_embed_steps(state.catalog, type_)) if embed else (),
        quality=Quality(duplicates=Duplicates.LOAD),
    )
    with spark_session(SparkSettings(), "omnigraph load", spark) as session:
        if type_ is not None:
            with session_of_run(session, pipeline.spark) as own:
                frames = SourceFrames(own, pipeline, to_read=False)
                columns = {name: frames.columns(name) for name in sources}
            # Files without a single byte have no columns, and no rows either.
            sources = {name: source for name, source in sources.items() if columns[name]}
            mappings = tuple(_by_name(type_, source, columns[name]) for name, source in sources.items())
            pipeline = replace(pipeline, sources=sources, mappings=mappings)
        report = run(pipeline, graph=graph, spark=session, actor=actor, force=True, progress=progress, skip_empty=True)
    return _receipt(graph._workspace, report, base, graph._workspace.author(actor))


def _embed_steps(catalog: Catalog, type_: TableType | None) -> Iterator[EmbedStep]:
    """Every vector that a schema says a source of, of one type or of all."""
    for node in catalog.nodes.values():
        for prop in node.property_list:
            if prop.embed is not None and type_ in (None, node):
                yield EmbedStep(node.name, prop.name)


def _target(workspace: Workspace, branch: str, base: str | None) -> Snapshot:
    try:
        return workspace.snapshot(branch)
    except BranchNotFoundError:
        if base is None:
            raise
        return workspace.snapshot(base)


def _by_name(type_: TableType, source: Source, columns: Sequence[str]) -> TypeMapping:
    """Columns become the properties they are called like. One that is called like none is refused: it would be lost."""
    ends = ends_of(type_, columns, source.path)
    rest = [column for column in columns if column not in ends]
    select = {column: _quote(column) for column in rest}
    return TypeMapping(type_.name, source.name, select, *(_quote(end) for end in ends))


def _quote(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _receipt(workspace: Workspace, report: PipelineReport, base: str | None, actor: str | None) -> LoadReceipt:
    loaded = {"node": dict[str, int](), "edge": dict[str, int]()}
    for counts in report.types:
        kind, _, name = counts.type_key.partition(":")
        loaded[kind][name] = counts.accepted
    return LoadReceipt.of(
        branch=report.branch,
        base_branch=base,
        branch_created=report.branch_created,
        mode=load_mode(report.mode),
        nodes_loaded=loaded["node"],
        edges_loaded=loaded["edge"],
        actor_id=actor,
        commit=None if report.commit_id is None else receipt_of(workspace.commit_entry(report.commit_id)),
    )


_SOURCE = "frame"


def write_frame(
    graph: GraphHandle | str | Path,
    frame: DataFrame,
    type_name: str,
    *,
    mode: str = LoadMode.APPEND,
    branch: str = "main",
    quality: Quality | None = None,
    embed: Sequence[str] = (),
    index: bool = False,
    actor: str | None = None,
    run_key: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PipelineReport:
    """Write the rows of a frame as one commit. Columns are properties, `id`, and `src` and `dst` for edges.

    `embed` names vector properties to fill. A run with a `run_key` that the branch remembers is not done again. An
    append that meets an id twice raises KeyConflictError as a load does, unless `quality` has a quarantine for it.
    """
    # Only a global view can be seen from the session that a run makes for its sources.
    view = f"omnigraph_{new_ulid().lower()}"
    frame.createGlobalTempView(view)
    try:
        with open_workspace(graph) as workspace:
            type_ = type_named(_typing_state(workspace, branch, run_key), type_name)
        pipeline = Pipeline(
            name=f"{type_.name} from a DataFrame",
            sources={_SOURCE: Source(_SOURCE, sql=f"select * from global_temp.{view}")},
            mappings=(_mapping(type_, frame.columns),),
            branch=branch,
            mode=load_mode(mode),
            embed=tuple(EmbedStep(type_.name, name) for name in embed),
            quality=quality or Quality(),
            index=index,
        )
        return run(
            pipeline,
            graph=graph,
            spark=frame.sparkSession,
            actor=actor,
            run_key=run_key,
            force=run_key is None,
            dry_run=dry_run,
            progress=progress,
        )
    except RowsRejectedError as error:
        if error.rule is ConstraintRule.ID and error.type_key and load_mode(mode) is LoadMode.APPEND:
            message = f"{error.samples[0]}; nothing was written"
            raise KeyConflictError(error.type_key, error.entity_id, message=message) from error
        raise
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(view)


def _typing_state(workspace: Workspace, branch: str, run_key: str | None) -> Snapshot:
    """The state whose schema has the type: the head, or what a run of this name made, which may be long ago."""
    head = workspace.snapshot(branch)
    earlier = None if run_key is None else head.entry.with_key(run_key)
    return head if earlier is None else workspace.snapshot(branch, version=earlier.version)


def _mapping(type_: TableType, columns: Sequence[str]) -> TypeMapping:
    spelled = {name: f"`{name.replace('`', '``')}`" for name in columns}
    if type_.kind != "edge":
        return TypeMapping(type_.name, _SOURCE, spelled)
    src, dst = (spelled.pop(name, None) for name in ("src", "dst"))
    if src is None or dst is None:
        raise BadRequestError(f"rows of the edge type {type_.name} need the columns 'src' and 'dst'")
    return TypeMapping(type_.name, _SOURCE, spelled, src, dst)
