"""A pipeline before it runs: the checks of `validate` and the plan of `explain`.

`validate` starts no Spark; `explain` reads schemas of sources and heads of branches, never rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from omnigraph.api.enums import LoadMode
from omnigraph.api.service.pipeline import PipelinePlan, PipelineStep, display_path
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle, Workspace, open_workspace
from omnigraph.errors import BadRequestError, BranchNotFoundError
from omnigraph.language.catalog import Cardinality, EdgeType, NodeType, TableType
from omnigraph.pipeline.execution.embedding import steps_of
from omnigraph.pipeline.file import OnError, Pipeline, Source, check_against, load_pipeline
from omnigraph.pipeline.sources.csv_files import check_columns
from omnigraph.pipeline.sources.source_frames import SourceFrames
from omnigraph.pipeline.spark.session import session_of_run, spark_session
from omnigraph.pipeline.spark.type_reader import type_named

DRIVER: Final = "driver"
EXECUTORS: Final = "executors"


def validate(pipeline: Pipeline | str | Path, *, graph: GraphHandle | str | Path | None = None) -> Pipeline:
    """The checked model of a pipeline file: its own mistakes, against the schema when a graph is known, and against the
    headers of CSV files on this machine."""
    model = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)
    if (target := _known_target(model, graph)) is not None:
        with open_workspace(target) as workspace:
            check_against(model, _base(workspace, model).catalog)
    check_columns(model)
    return model


def explain(
    pipeline: Pipeline | str | Path, *, graph: GraphHandle | str | Path | None = None, spark: SparkSession | None = None
) -> PipelinePlan:
    """The steps of a run, without running it."""
    model = validate(pipeline, graph=graph)
    with open_workspace(target_of(model, graph)) as workspace:
        with (
            spark_session(model.spark, f"omnigraph: {model.name}", spark) as session,
            session_of_run(session, model.spark) as own,
        ):
            frames = SourceFrames(own, model, to_read=False)
            columns = {name: [] if model.sources[name].is_graph else frames.columns(name) for name in model.sources}
            for mapping in model.mappings:
                frames.map_rows(mapping)
        shown = f"{display_path(workspace.uri)}, branch {model.branch}, mode {model.mode}"
        steps = tuple(_steps(model, workspace))
        return PipelinePlan(
            pipeline=model.name,
            target=shown,
            sources={name: tuple(found) for name, found in columns.items()},
            steps=tuple(step.what for step in steps),
            origins={source.name: _origin(source) for source in model.sources.values()},
            plan=steps,
        )


def _origin(source: Source) -> str:
    return f"sql      {source.sql}" if source.sql else f"{source.format:<8} {source.path or ''}".rstrip()


def target_of(model: Pipeline, graph: GraphHandle | str | Path | None) -> GraphHandle | str:
    """The graph that a run loads. Raises when none is named."""
    if (target := _known_target(model, graph)) is None:
        raise BadRequestError(f"pipeline '{model.name}' names no graph; add 'graph:' to the file, or give --store")
    return target


def _known_target(model: Pipeline, graph: GraphHandle | str | Path | None) -> GraphHandle | str | None:
    """The graph that was given, else the one that the file names. A path is relative to the file only in the file."""
    if graph is not None and not isinstance(graph, str | Path):
        return graph
    if graph is not None:
        return str(graph)
    return None if model.graph is None else model.resolve_path(model.graph)


def _base(workspace: Workspace, model: Pipeline) -> Snapshot:
    try:
        return workspace.snapshot(model.branch)
    except BranchNotFoundError:
        if model.base is None:
            raise
        return workspace.snapshot(model.base)


def _steps(model: Pipeline, workspace: Workspace) -> Iterator[PipelineStep]:
    state = _base(workspace, model)
    yield PipelineStep(DRIVER, f"pin {state.branch} at commit {state.commit_id}")
    types: dict[str, TableType] = {}
    for mapping in model.mappings:
        types[mapping.type_key] = type_named(state, mapping.type_key)
        filtered = f" where {mapping.where}" if mapping.where else ""
        yield PipelineStep(EXECUTORS, f"type and write {mapping.type_key} from {mapping.source}{filtered}")
    for name, source in model.sources.items():
        if source.is_graph:
            yield PipelineStep(EXECUTORS, f"type and write the records of {name}")
    for step in steps_of(model, state.catalog):
        yield PipelineStep(EXECUTORS, f"embed {step.type_name}.{step.property} while writing")
    for key, type_ in sorted(types.items()):
        yield from (PipelineStep(EXECUTORS, rule) for rule in _rules(model, key, type_))
    if model.quality.on_error is OnError.QUARANTINE:
        allowed = f"at most {model.quality.max_rejected}"
        yield PipelineStep(EXECUTORS, f"write rejected rows to {model.quality.quarantine}, {allowed}")
    if model.index:
        yield PipelineStep(EXECUTORS, "build declared indexes")
    yield PipelineStep(DRIVER, f"publish one commit on {model.branch} ({model.mode})")


def _rules(model: Pipeline, key: str, type_: TableType) -> Iterator[str]:
    if isinstance(type_, NodeType) and type_.key:
        duplicates = "last" if model.quality.keeps_last(model.mode, keyed=True) else "reject"
        stored = {LoadMode.APPEND: ", refuse stored ids", LoadMode.MERGE: ", replace stored ids"}.get(model.mode, "")
        yield f"check {key}: repeated ids ({duplicates}){stored}"
    for members in type_.uniques:
        yield f"check {key}: @unique({', '.join(members)})"
    if isinstance(type_, EdgeType):
        yield f"check {key}: src in {type_.from_type}, dst in {type_.to_type}"
        if type_.cardinality != Cardinality():
            yield f"check {key}: @card({type_.cardinality})"
