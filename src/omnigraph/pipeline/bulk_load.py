"""Loads beyond one process: `load --engine spark` and `write_frame`, each a pipeline built in memory.

The command line and users call it. Rows come from files of graph records, from tables of one type, or from a DataFrame;
everything else is `run`. A load makes the same commit and the same receipt as `Graph.load`, takes all rows or none, and
refuses a key that its input holds twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from omnigraph.api.enums import LoadMode
from omnigraph.api.load import LoadReceipt, TypeLoaded
from omnigraph.api.service.pipeline import PipelineReport, Progress
from omnigraph.engine.rows.end_ids import interface_ends
from omnigraph.engine.rows.kernels.decoder import ends_of
from omnigraph.engine.rows.kernels.typed_rows import RecordForm
from omnigraph.engine.workspace import GraphHandle, open_workspace
from omnigraph.engine.write.load import load_mode
from omnigraph.engine.write.publish import receipt_of
from omnigraph.errors import BadRequestError, ConstraintRule, KeyConflictError, RowsRejectedError
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.execution.plan import base_snapshot
from omnigraph.pipeline.execution.run import require_permission, run
from omnigraph.pipeline.file import (
    END_COLUMNS,
    Duplicates,
    EmbedStep,
    Pipeline,
    Quality,
    Source,
    SparkSettings,
    TypeMapping,
)
from omnigraph.pipeline.sources.source_frames import SourceFrames
from omnigraph.pipeline.spark.session import session_of_run, spark_session
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
    state = base_snapshot(graph._workspace, branch, base)  # a wrong target is reported before Java starts
    type_ = None if type_name is None else state.catalog.type_named(type_name)
    names = ["data", *(f"data_{number}" for number in range(2, len(inputs) + 1))]
    properties = {} if type_ is None else type_.properties
    sources = {
        name: Source(name, i.format, i.path, i.options, properties=properties)
        for name, i in zip(names, inputs, strict=True)
    }
    vectors = [(node, prop) for node in state.catalog.nodes.values() if embed for prop in node.property_list]
    pipeline = Pipeline(
        name="load",
        sources=sources,
        branch=branch,
        base=base,
        mode=load_mode(mode),
        embed=tuple(EmbedStep(n.name, prop.name) for n, prop in vectors if prop.embed and type_ in (None, n)),
        quality=Quality(duplicates=Duplicates.LOAD),
    )
    with spark_session(SparkSettings(), "omnigraph load", spark) as session:
        if type_ is not None:
            with session_of_run(session, pipeline.spark) as own:
                frames = SourceFrames(own, pipeline, to_read=False)
                columns = {name: frames.columns(name) for name in sources}
            # Files without a single byte have no columns, and no rows either.
            sources = {name: source for name, source in sources.items() if columns[name]}
            # A column that is not a property is refused: it would be lost.
            form = RecordForm.PARTIAL if pipeline.mode is LoadMode.UPDATE else RecordForm.WHOLE
            ends = {name: ends_of(type_, columns[name], source.path, form) for name, source in sources.items()}
            mappings = tuple(_mapping(type_, name, columns[name], ends[name]) for name in sources)
            pipeline = replace(pipeline, sources=sources, mappings=mappings)
        report = run(pipeline, graph=graph, spark=session, actor=actor, force=True, progress=progress, skip_empty=True)
    loaded = {"node": list[TypeLoaded](), "edge": list[TypeLoaded]()}
    for each in report.types:
        kind, _, name = each.type_key.partition(":")
        counts = (each.accepted, each.inserted, each.updated, each.unchanged, each.deleted)
        loaded[kind].append(TypeLoaded(name, *counts, each.nulled))
    workspace, commit = graph._workspace, report.commit_id
    return LoadReceipt.of(
        branch=report.branch,
        base_branch=base,
        branch_created=report.branch_created,
        mode=load_mode(report.mode),
        nodes=loaded["node"],
        edges=loaded["edge"],
        actor_id=workspace.author(actor),
        commit=None if commit is None else receipt_of(workspace.commit_entry(commit)),
    )


def _mapping(type_: TableType, source: str, columns: Sequence[str], ends: Mapping[str, str]) -> TypeMapping:
    """Columns become the properties of their names; `ends` are the columns of the ends of an edge, as the row kernel
    calls them."""
    quoted = {column: "`" + column.replace("`", "``") + "`" for column in columns}
    select = {column: text for column, text in quoted.items() if column not in ends}
    named = {end: quoted[column] for column, end in ends.items()}
    texts = {setting: named.get(end) for setting, end in END_COLUMNS.items()}
    return TypeMapping(type_.name, source, select, **texts, of_edges=type_.kind == "edge")


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
    # The session that a run makes for its sources sees only global views.
    view = f"omnigraph_{new_ulid().lower()}"
    frame.createGlobalTempView(view)
    try:
        with open_workspace(graph) as workspace:
            state = workspace.snapshot(branch)
            # The schema of an earlier run of this name may have a type that is gone since.
            earlier = None if run_key is None else state.entry.with_key(run_key)
            state = state if earlier is None else workspace.snapshot(branch, version=earlier.version)
            type_ = state.catalog.type_named(type_name)
        ends = {"src": "from", "dst": "to"} if type_.kind == "edge" else {}
        if not ends.keys() <= set(frame.columns) and load_mode(mode) is not LoadMode.UPDATE:
            raise BadRequestError(f"rows of the edge type {type_.name} need the columns 'src' and 'dst'")
        ends |= {name: END_COLUMNS[name] for name in (f"{end.column}_type" for end in interface_ends(type_))}
        ends = {name: end for name, end in ends.items() if name in frame.columns}
        source = Source("frame", sql=f"select * from global_temp.{view}")
        pipeline = Pipeline(
            name=f"{type_.name} from a DataFrame",
            sources={source.name: source},
            mappings=(_mapping(type_, source.name, frame.columns, ends),),
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
