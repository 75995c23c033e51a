"""`omnigraph pipeline`: bulk data on Spark, from a pipeline file to one commit.

A thin skin over `omnigraph.pipeline`. Without `--store` the file says where the graph is; with `--cluster` the name of
an applied pipeline stands for the file, and the cluster says where its graph is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import STDIN, read_source
from omnigraph.cli.params import at_most_one, json_option, uri_argument
from omnigraph.cli.printing.output import print_json, print_json_line, print_lines
from omnigraph.cli.printing.progress import active_ui, stages
from omnigraph.cli.target import Invocation, applied_pipeline, pass_invocation

if TYPE_CHECKING:
    from omnigraph.api.service.pipeline import Progress, StageEvent
    from omnigraph.cli.target import OpenPipeline
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
@uri_argument
@click.option("--branch", help="The branch, instead of the one in the file.", metavar="NAME")
@click.option("--mode", help="append, merge or overwrite, instead of the mode in the file.", metavar="MODE")
@click.option("--dry-run", is_flag=True, help="Do everything except publish.")
@click.option("--force", is_flag=True, help="Run even if this input was loaded before.")
@click.option("--run-key", help="The name of the run: a second run of this name loads nothing.", metavar="KEY")
@json_option
@pass_invocation
def run(
    invocation: Invocation,
    file: Path,
    uri: str | None,
    branch: str | None,
    mode: str | None,
    dry_run: bool,
    force: bool,
    run_key: str | None,
    json: bool,
) -> None:
    from omnigraph.pipeline import run as run_pipeline

    with _resolve_run(invocation, file, uri) as meant, _progress(json=json) as progress:
        report = run_pipeline(
            meant.pipeline,
            graph=meant.graph(invocation, branch),
            embedding=meant.embedding,
            branch=branch,
            mode=mode,
            actor=invocation.actor,
            run_key=run_key,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
    if json:
        # One object per line, so that stages and the result can be read as they come.
        print_json_line(report)
    else:
        print_lines(report.lines(), _style)


@file_argument
@uri_argument
@json_option
@pass_invocation
def validate(invocation: Invocation, file: Path, uri: str | None, json: bool) -> None:
    from omnigraph.pipeline import validate as validate_pipeline

    with _resolve_run(invocation, file, uri) as meant:
        model = validate_pipeline(meant.pipeline, graph=meant.target)
    if json:
        from omnigraph.api.service.pipeline import PipelineValidated

        print_json(PipelineValidated(str(file), model.name))
    else:
        print_lines(
            [f"OK {file}: {count_noun(len(model.sources), 'source')}, {count_noun(len(model.mappings), 'mapping')}"]
        )


@file_argument
@uri_argument
@json_option
@pass_invocation
def explain(invocation: Invocation, file: Path, uri: str | None, json: bool) -> None:
    from omnigraph.pipeline import explain as explain_pipeline

    with _resolve_run(invocation, file, uri) as meant:
        plan = explain_pipeline(meant.pipeline, graph=meant.target)
    if json:
        print_json(plan)
    else:
        print_lines(plan.lines())


@dataclass(frozen=True, slots=True)
class _Meant:
    """Which pipeline a command line means, and the graph it says to load. None: the file says it."""

    pipeline: Pipeline
    target: str | Graph | None
    embedding: EmbeddingConfig | None = None
    applied: OpenPipeline | None = None

    def graph(self, invocation: Invocation, branch: str | None) -> str | Graph | None:
        """What a run loads, as its actor may."""
        return self.target if self.applied is None else self.applied.governed(invocation.actor, branch)


@contextmanager
def _resolve_run(invocation: Invocation, file: Path, uri: str | None) -> Iterator[_Meant]:
    flags = invocation.flags
    at_most_one(("URI", uri), ("--cluster", flags.cluster), ("--store", flags.store))
    if flags.cluster is None:
        yield _Meant(_read(file), flags.store if uri is None else uri)
        return
    with applied_pipeline(invocation.cluster().root, str(file)) as applied:
        yield _Meant(applied.model, applied.graph, applied.embedding, applied)


def _read(file: Path) -> Pipeline:
    """The pipeline of a file, or of stdin, whose paths are then relative to the working directory."""
    from omnigraph.pipeline import read_pipeline

    text = read_source(file)
    path = "stdin" if file == STDIN else str(file)
    return read_pipeline(text, path=path, directory=str(file.absolute().parent))


@contextmanager
def _progress(*, json: bool) -> Iterator[Progress]:
    """A JSON line per finished stage, or live lines on a terminal."""
    if json:
        yield _JsonLines()
        return
    with stages("starting Spark", transient=False) as show:
        yield show


class _JsonLines:
    """Tells stages as they end. Spark's start is the first of them, with the address of its UI when it has one."""

    def __init__(self) -> None:
        self._began: float | None = monotonic()

    def __call__(self, event: StageEvent) -> None:
        if self._began is not None:
            from omnigraph.api.service.pipeline import SparkStarted

            print_json_line(SparkStarted("start", "done", round(monotonic() - self._began, 3), active_ui()))
            self._began = None
        if event.seconds is not None:
            print_json_line(event)


def _style(line: str) -> str:
    first = line.partition(" ")[0]
    return {"type": "bold", "total": "bold", "commit": "green", "dry": "yellow", "already": "yellow"}.get(
        first, "yellow" if line.endswith("rejected:") or " rejected, the first " in line else ""
    )
