"""A DataFrame into one graph type through a whole pipeline run: judged by Spark joins, whatever its size.

`df.write.format("omnigraph")` commits in a process without a session and is bounded by the limits of a load. This is
the way for everything larger; it differs from a pipeline file only in where its rows come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from omnigraph.api.enums import LoadMode
from omnigraph.api.service.pipeline import PipelineReport, Progress
from omnigraph.engine.bulk.staged_run import new_run_id
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle, Workspace, opened
from omnigraph.engine.write.load import load_mode
from omnigraph.errors import BadRequestError, ConstraintRule, KeyConflictError, RowsRejectedError
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.datasource.read import type_named
from omnigraph.pipeline.execution.run import run
from omnigraph.pipeline.file.model import EmbedStep, Pipeline, Quality, Source, TypeMapping

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
    view = f"omnigraph_{new_run_id().lower()}"
    frame.createGlobalTempView(view)
    try:
        with opened(graph) as workspace:
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
