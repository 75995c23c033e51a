"""`omnigraph pipeline`: bulk data on Spark, from a pipeline file to one commit.

A thin skin over `omnigraph.pipeline`. Without `--store` the file says where the graph is.
"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from omnigraph.pipeline.report import Progress, StageEvent

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
        print(json_text.dumps(report.to_dict(), ensure_ascii=False))
    else:
        print_lines(report.lines())


def validate(ctx: typer.Context, file: PipelineFile, json: Json = False) -> None:
    """Check a pipeline file, against its graph's schema when there is one. Starts no Spark."""
    from omnigraph.pipeline import validate as validate_pipeline

    model = validate_pipeline(file, graph=Invocation.of(ctx).flags.store)
    if json:
        print_json({"file": str(file), "pipeline": model.name, "valid": True})
    else:
        print_lines([f"OK {file}: {len(model.sources)} sources, {len(model.mappings)} mappings"])


def explain(ctx: typer.Context, file: PipelineFile, json: Json = False) -> None:
    """Show what a run would do, step by step. Reads schemas, no rows."""
    from omnigraph.pipeline import explain as explain_pipeline

    plan = explain_pipeline(file, graph=Invocation.of(ctx).flags.store)
    if json:
        print_json(plan.to_dict())
    else:
        print_lines(plan.lines())


@contextmanager
def _progress(*, json: bool) -> Iterator[Progress | None]:
    """A JSON line per finished stage, a live line on a terminal, or nothing."""
    if json:
        yield _tell
        return
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with Bars(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=Console(stderr=True)
    ) as bars:
        tasks = {}

        def show(event: StageEvent) -> None:
            name = f"{event.stage} {event.detail}".strip()
            if event.seconds is None:
                tasks[name] = bars.add_task(name, total=1)
            else:
                bars.update(tasks[name], completed=1)

        yield show


def _tell(event: StageEvent) -> None:
    if event.seconds is not None:
        print(json_text.dumps(event.to_dict()), flush=True)
