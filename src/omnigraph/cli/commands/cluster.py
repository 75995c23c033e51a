"""`omnigraph cluster`: describe a cluster in files, review what would change, apply it, and see what became of it.

A report always goes to stdout, also when the command fails; then it ends with exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import Annotated, Any, TypeAlias

import typer

from omnigraph.cli.params import Json
from omnigraph.cli.pipeline_texts import read_pipeline_text
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError

Config: TypeAlias = Annotated[str, typer.Option("--config", help="The directory of cluster.yaml.", metavar="DIR")]


def validate(config: Config = ".", json: Json = False) -> None:
    """Check a configuration and every file it names. Looks at nothing else."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import validate as run

    report = run(config, read_pipeline_text)
    _print(report, lambda: cluster_reports.validated(report), json=json)


def plan(config: Config = ".", json: Json = False) -> None:
    """Show what an apply would do. Changes nothing."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import plan as run

    for_review = _is_for_review(json=json)
    planned = run(config, read_pipeline_text, for_review=for_review)
    _print(planned.output, lambda: cluster_reports.planned(planned, for_review=for_review), json=json)


def apply(ctx: typer.Context, config: Config = ".", json: Json = False) -> None:
    """Make the cluster what its configuration says."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.apply import apply as run

    report = run(config, read_pipeline_text, actor=Invocation.of(ctx).actor)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.applied(report, for_review=for_review), json=json)


def approve(
    ctx: typer.Context,
    resource: Annotated[str, typer.Argument(help="What is to be deleted, such as graph.kb.", metavar="RESOURCE")],
    config: Config = ".",
    json: Json = False,
) -> None:
    """Approve a delete, for the state that is planned now."""
    approver = Invocation.of(ctx).actor
    if approver is None:
        raise BadRequestError("`cluster approve` requires an approver: give --as <actor>, or set operator.actor")
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import approve as run

    report = run(config, resource, read_pipeline_text, approver=approver)
    _print(report, lambda: cluster_reports.approved(report), json=json)


def status(
    config: Config = ".",
    revision: Annotated[
        int | None, typer.Option("--revision", help="An earlier state, by its number.", metavar="N", min=1)
    ] = None,
    json: Json = False,
) -> None:
    """Show what is applied, and the last commit of each pipeline."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import status as run

    report = run(config, revision)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.status(report, for_review=for_review), json=json)


def refresh(ctx: typer.Context, config: Config = ".", json: Json = False) -> None:
    """Record what stands, whatever was recorded before."""
    _observe(ctx, "refresh", config, json=json)


def import_(ctx: typer.Context, config: Config = ".", json: Json = False) -> None:
    """Make the first state of a cluster, from the graphs that stand."""
    _observe(ctx, "import", config, json=json)


def _observe(ctx: typer.Context, operation: str, config: str, *, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands import refresh as refreshing

    run = refreshing.refresh if operation == "refresh" else refreshing.import_
    report = run(config, read_pipeline_text, actor=Invocation.of(ctx).config.actor)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.observed(report, for_review=for_review), json=json)


def force_unlock(
    lock_id: Annotated[str, typer.Argument(help="The lock's id, as `cluster status` shows it.", metavar="LOCK_ID")],
    config: Config = ".",
    json: Json = False,
) -> None:
    """Remove the lock of a command that is gone."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import force_unlock as run

    report, lock = run(config, lock_id)
    _print(report, lambda: cluster_reports.unlocked(report, lock), json=json)


def history(
    config: Config = ".",
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", metavar="N", min=1)] = 20,
    json: Json = False,
) -> None:
    """List the states of a cluster, newest first, with what each changed."""
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import history as run

    report = run(config, limit)
    _print(report, lambda: cluster_reports.history(report), json=json)


def _print(report: Any, lines: Callable[[], Iterable[str]], *, json: bool) -> None:
    from omnigraph.cli.printing.cluster_reports import folded, style

    if json:
        print_json(report)
    elif _is_for_review(json=json):
        columns = get_terminal_size().columns
        print_lines([folded(line, columns) for line in lines()], style)
    else:
        print_lines(lines())
    if not report.ok:
        raise typer.Exit(1)


def _is_for_review(*, json: bool) -> bool:
    return not json and sys.stdout.isatty()
