"""`omnigraph pipeline`: bulk data on Spark, from a pipeline file to one commit.

A thin skin over `omnigraph.pipeline`. Without `--store` the file says where the graph is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_json_line, print_lines
from omnigraph.cli.progress import active_ui, stages

if TYPE_CHECKING:
    from omnigraph.api.pipeline import Progress, StageEvent

PipelineFile: TypeAlias = Annotated[Path, typer.Argument(help="A pipeline file.", metavar="FILE")]


def run(
    ctx: typer.Context,
    file: PipelineFile,
    branch: Annotated[str | None, typer.Option("--branch", help="Instead of the file's.", metavar="NAME")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="append, merge or overwrite.", metavar="MODE")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but publish.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run even if this input was loaded before.")] = False,
    run_key: Annotated[
        str | None, typer.Option("--run-key", help="Names the run, for once-only.", metavar="KEY")
    ] = None,
    json: Json = False,
) -> None:
    """Run a pipeline as one commit."""
    from omnigraph.pipeline import run as run_pipeline

    invocation = Invocation.of(ctx)
    with _progress(json=json) as progress:
        report = run_pipeline(
            file,
            graph=invocation.flags.store,
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


def validate(ctx: typer.Context, file: PipelineFile, json: Json = False) -> None:
    """Check a pipeline file, against its graph's schema when there is one. Starts no Spark."""
    from omnigraph.pipeline import validate as validate_pipeline

    model = validate_pipeline(file, graph=Invocation.of(ctx).flags.store)
    if json:
        from omnigraph.api.pipeline import PipelineValidated

        print_json(PipelineValidated(str(file), model.name))
    else:
        print_lines([f"OK {file}: {len(model.sources)} sources, {len(model.mappings)} mappings"])


def explain(ctx: typer.Context, file: PipelineFile, json: Json = False) -> None:
    """Show what a run would do, step by step. Reads schemas, no rows."""
    from omnigraph.pipeline import explain as explain_pipeline

    plan = explain_pipeline(file, graph=Invocation.of(ctx).flags.store)
    if json:
        print_json(plan)
    else:
        print_lines(plan.lines())


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
            from omnigraph.api.pipeline import SparkStarted

            print_json_line(SparkStarted("start", "done", round(monotonic() - self._began, 3), active_ui()))
            self._began = None
        if event.seconds is not None:
            print_json_line(event)


def _style(line: str) -> str:
    first = line.partition(" ")[0]
    return {"type": "bold", "total": "bold", "commit": "green", "dry": "yellow", "already": "yellow"}.get(
        first, "yellow" if line.endswith("rejected:") or " rejected, the first " in line else ""
    )
