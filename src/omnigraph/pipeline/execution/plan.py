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
from omnigraph.language.catalog import Cardinality, EdgeType, TableType
from omnigraph.pipeline.execution.embedding import steps_of
from omnigraph.pipeline.file import OnError, Pipeline, check_against, load_pipeline
from omnigraph.pipeline.sources.csv_files import check_columns
from omnigraph.pipeline.sources.source_frames import SourceFrames
from omnigraph.pipeline.spark.session import session_of_run, spark_session

DRIVER: Final = "driver"
EXECUTORS: Final = "executors"


def validate(pipeline: Pipeline | str | Path, *, graph: GraphHandle | str | Path | None = None) -> Pipeline:
    """The model of a pipeline file, checked by itself, against the schema when a graph is known, and against the
    headers of CSV files on this machine."""
    model = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)
    if (target := _known_target(model, graph)) is not None:
        with open_workspace(target) as workspace:
            check_against(model, base_snapshot(workspace, model.branch, model.base).catalog)
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
        steps = tuple(_steps(model, base_snapshot(workspace, model.branch, model.base)))
        origins = {s.name: ("sql", s.sql) if s.sql else (s.format, s.path or "") for s in model.sources.values()}
        return PipelinePlan(
            pipeline=model.name,
            target=f"{display_path(workspace.uri)}, branch {model.branch}, mode {model.mode}",
            sources={name: tuple(column_names) for name, column_names in columns.items()},
            steps=tuple(step.what for step in steps),
            origins={name: f"{kind:<8} {place}".rstrip() for name, (kind, place) in origins.items()},
            plan=steps,
        )


def target_of(model: Pipeline, graph: GraphHandle | str | Path | None) -> GraphHandle | str:
    """The graph that a run loads. Raises when none is named."""
    if (target := _known_target(model, graph)) is None:
        raise BadRequestError(f"pipeline '{model.name}' names no graph; add 'graph:' to the file, or give --store")
    return target


def _known_target(model: Pipeline, graph: GraphHandle | str | Path | None) -> GraphHandle | str | None:
    """The graph of the caller, else the one that the file names, whose path is relative to the file."""
    if graph is not None:
        return str(graph) if isinstance(graph, Path) else graph
    return None if model.graph is None else model.resolve_path(model.graph)


def base_snapshot(workspace: Workspace, branch: str, base: str | None) -> Snapshot:
    """The head of a branch, or of its `base` where the branch is still to be made."""
    try:
        return workspace.snapshot(branch)
    except BranchNotFoundError:
        if base is None:
            raise
        return workspace.snapshot(base)


def _steps(model: Pipeline, state: Snapshot) -> Iterator[PipelineStep]:
    yield PipelineStep(DRIVER, f"pin {state.branch} at commit {state.commit_id}")
    types: dict[str, TableType] = {}
    for mapping in model.mappings:
        types[mapping.type_key] = state.catalog.type_named(mapping.type_key)
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
    if type_.key:
        duplicates = "last" if model.quality.keeps_last(model.mode, keyed=True) else "reject"
        stored = {
            LoadMode.APPEND: ", refuse stored ids",
            LoadMode.MERGE: ", replace stored ids",
            LoadMode.UPDATE: ", find stored ids",
        }.get(model.mode, "")
        yield f"check {key}: repeated ids ({duplicates}){stored}"
    for members in type_.uniques:
        yield f"check {key}: @unique({', '.join(members)})"
    if isinstance(type_, EdgeType):
        yield f"check {key}: src in {type_.from_type}, dst in {type_.to_type}"
        if type_.cardinality != Cardinality():
            yield f"check {key}: @card({type_.cardinality})"
