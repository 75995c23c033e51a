"""`load` for inputs beyond one process: the same commit and the same receipt as `Graph.load`, made by a pipeline.

Called by the command line. It builds a pipeline in memory, of graph records or of rows of one type, and leaves
everything else to `run`; like every load it takes all rows or none, and a key that its input holds twice is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from omnigraph.api.load import LoadReceipt
from omnigraph.api.service.pipeline import PipelineReport, Progress
from omnigraph.engine.rows.kernels.decoder import ends_of
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle, Workspace
from omnigraph.engine.write.load import load_mode
from omnigraph.engine.write.receipts import receipt_of
from omnigraph.errors import BranchNotFoundError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.pipeline.datasource.read import type_named
from omnigraph.pipeline.execution.run import permitted, run
from omnigraph.pipeline.file.model import Duplicates, EmbedStep, Pipeline, Quality, Source, SparkSettings, TypeMapping
from omnigraph.pipeline.sources.sources import SourceFrames
from omnigraph.pipeline.spark.session import session_of_run, spark_session


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
    permitted(graph._workspace, actor, branch)
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
    select = {column: _quoted(column) for column in rest}
    return TypeMapping(type_.name, source.name, select, *(_quoted(end) for end in ends))


def _quoted(column: str) -> str:
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
