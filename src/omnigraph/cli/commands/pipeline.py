"""`omnigraph pipeline`: bulk data on Spark, from a pipeline file to one commit.

A thin skin over `omnigraph.pipeline`. Without `--store` the file says where the graph is; with `--cluster` the name of
an applied pipeline replaces the file, and the cluster says where its graph is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import STDIN, read_source
from omnigraph.cli.params import at_most_one, json_option
from omnigraph.cli.printing.output import print_json_line, print_lines
from omnigraph.cli.printing.progress import active_ui, stages
from omnigraph.cli.target import Invocation

if TYPE_CHECKING:
    from omnigraph.api.service.pipeline import StageEvent
    from omnigraph.cluster.serving import RunnablePipeline
    from omnigraph.embeddings.configuration import EmbeddingConfig
    from omnigraph.graph import Graph
    from omnigraph.pipeline import Pipeline

file_argument = click.argument(
    "file",
    type=click.Path(path_type=Path),
    help="A pipeline file; - is stdin; with --cluster, the name of an applied pipeline.",
    metavar="FILE",
)


@file_argument
@click.option("--branch", help="The branch, instead of the one in the file.", metavar="NAME")
@click.option("--mode", help="append, merge, update or overwrite, instead of the mode in the file.", metavar="MODE")
@click.option("--dry-run", is_flag=True, help="Do everything except publish.")
@click.option("--force", is_flag=True, help="Run even if this input was loaded before.")
@click.option("--run-key", help="The name of the run: a second run of this name loads nothing.", metavar="KEY")
@json_option
def run(
    invocation: Invocation,
    file: Path,
    branch: str | None,
    mode: str | None,
    dry_run: bool,
    force: bool,
    run_key: str | None,
) -> None:
    from omnigraph.pipeline import run as run_pipeline

    with _find_pipeline(invocation, file) as meant, _progress(json=invocation.json) as progress:
        report = run_pipeline(
            meant.pipeline,
            graph=meant.graph_of_run(invocation, branch),
            embedding=meant.embedding,
            branch=branch,
            mode=mode,
            actor=invocation.actor,
            run_key=run_key,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
    if invocation.json:
        # One object per line, so that stages and the result can be read as they come.
        print_json_line(report)
    else:
        print_lines(report.lines(), _style)


@file_argument
@json_option
def validate(invocation: Invocation, file: Path) -> None:
    from omnigraph.api.service.pipeline import PipelineValidated
    from omnigraph.pipeline import validate as validate_pipeline

    with _find_pipeline(invocation, file) as meant:
        model = validate_pipeline(meant.pipeline, graph=meant.graph)
    parts = f"{count_noun(len(model.sources), 'source')}, {count_noun(len(model.mappings), 'mapping')}"
    invocation.print(PipelineValidated(str(file), model.name), [f"OK {file}: {parts}"])


@file_argument
@json_option
def explain(invocation: Invocation, file: Path) -> None:
    from omnigraph.pipeline import explain as explain_pipeline

    with _find_pipeline(invocation, file) as meant:
        plan = explain_pipeline(meant.pipeline, graph=meant.graph)
    invocation.print(plan, plan.lines())


@dataclass(frozen=True, slots=True)
class _Meant:
    """The pipeline that a command line means, and its graph; None where the file says it. Of an applied pipeline, the
    graph is open, and `embedding` is what the cluster says for its texts."""

    pipeline: Pipeline
    graph: str | Graph | None
    embedding: EmbeddingConfig | None = None
    applied: RunnablePipeline | None = None

    def graph_of_run(self, invocation: Invocation, branch: str | None) -> str | Graph | None:
        """The graph as a run of this actor may change it, under the rules that the cluster has bound to it."""
        from omnigraph.api.enums import PolicyAction
        from omnigraph.api.governance import AccessRequest
        from omnigraph.graph import Graph
        from omnigraph.policy.gate import load_gate

        if self.applied is None or (policy := self.applied.policy) is None:
            return self.graph
        assert isinstance(self.graph, Graph), "the graph of an applied pipeline is open"
        gate = load_gate(policy.source, "graph", f"policy '{policy.name}'", self.applied.graph.graph_id)
        gate = gate.bind_schema(self.graph.snapshot("main").catalog)
        asked = AccessRequest(PolicyAction.CHANGE, (branch or self.pipeline.branch).strip())
        return self.graph._with_gate(gate)._restricted_to(gate.visibility(invocation.actor, asked))


@contextmanager
def _find_pipeline(invocation: Invocation, file: Path) -> Iterator[_Meant]:
    """The applied pipeline of that name; or that of a file, or of stdin, whose paths begin in the working directory."""
    uri, flags = invocation.uri, invocation.flags
    at_most_one(("URI", uri), ("--cluster", flags.cluster), ("--store", flags.store))
    from omnigraph.pipeline import read_pipeline

    if flags.cluster is not None:
        with _open_applied(invocation.cluster().root, str(file)) as applied:
            yield applied
        return
    text = read_source(file)
    path = "stdin" if file == STDIN else str(file)
    pipeline = read_pipeline(text, path=path, directory=str(file.absolute().parent))
    yield _Meant(pipeline, flags.store if uri is None else uri)


@contextmanager
def _open_applied(cluster: str, name: str) -> Iterator[_Meant]:
    """A pipeline as it was applied, whatever its file says now. Its commits are made under its name in the cluster."""
    import omnigraph
    from omnigraph.cluster.serving import find_pipeline
    from omnigraph.pipeline import read_pipeline

    applied = find_pipeline(cluster, name)
    text = applied.pipeline.source
    model = replace(read_pipeline(text, path=f"{name}.yaml", directory=applied.directory), name=name)
    profile = applied.graph.embedding
    with omnigraph.open(applied.graph.uri, external_blobs=applied.graph.own_blobs()) as graph:
        properties = [prop for node in graph.catalog.nodes.values() for prop in node.property_list]
        embeds = bool(model.embed) or any(prop.is_embedded_on_write for prop in properties)
        embedding = profile.resolve(os.environ) if profile is not None and embeds else None
        yield _Meant(model, graph, embedding, applied)


@contextmanager
def _progress(*, json: bool) -> Iterator[Callable[[StageEvent], None]]:
    """Live lines on a terminal; or a JSON line per stage as it ends. Spark's start is the first of these, with the
    address of its UI when it has one."""
    if not json:
        with stages("starting Spark", transient=False) as show:
            yield show
        return
    began: float | None = monotonic()

    def print_stage(event: StageEvent) -> None:
        nonlocal began
        if began is not None:
            from omnigraph.api.service.pipeline import SparkStarted

            print_json_line(SparkStarted("start", "done", round(monotonic() - began, 3), active_ui()))
            began = None
        if event.seconds is not None:
            print_json_line(event)

    yield print_stage


def _style(line: str) -> str:
    first = line.partition(" ")[0]
    return {"type": "bold", "total": "bold", "commit": "green", "dry": "yellow", "already": "yellow"}.get(
        first, "yellow" if line.endswith("rejected:") or " rejected, the first " in line else ""
    )
