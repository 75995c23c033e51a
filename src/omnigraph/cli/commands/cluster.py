"""The `cluster` commands: describe a cluster in files, review the changes, apply them, and look at the result.

A report always goes to stdout. A command that fails prints its report as well, and ends with exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from omnigraph.cli.params import json_option
from omnigraph.cli.printing import cluster_reports
from omnigraph.cli.printing.output import report_style
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.language.catalog import Catalog

config_option = click.option("--config", default=".", help="The directory of cluster.yaml.", metavar="DIR")


@config_option
@json_option
def validate(invocation: Invocation, config: str) -> None:
    from omnigraph.cluster.commands.plan import validate as run

    report = run(config, read_pipeline_text)
    counts = f"{len(report.resources)} resource(s), {len(report.dependencies)} dependency edge(s)"
    head = f"cluster config valid: {counts}" if report.ok else "cluster config invalid"
    _print(invocation, report, [head, *map(str, report.diagnostics)])


@config_option
@json_option
def plan(invocation: Invocation, config: str) -> None:
    from omnigraph.cluster.commands.plan import plan as run

    for_review = _is_for_review(invocation)
    planned = run(config, read_pipeline_text, for_review=for_review)
    _print(invocation, planned.output, cluster_reports.plan_lines(planned, for_review=for_review))


@config_option
@json_option
def apply(invocation: Invocation, config: str) -> None:
    from omnigraph.cluster.commands.apply import apply as run

    report = run(config, read_pipeline_text, actor=invocation.actor)
    _print(invocation, report, cluster_reports.apply_lines(report, for_review=_is_for_review(invocation)))


@click.argument("resource", help="What is to be deleted, such as graph.kb.")
@config_option
@json_option
def approve(invocation: Invocation, resource: str, config: str) -> None:
    approver = invocation.actor
    if approver is None:
        raise BadRequestError("`cluster approve` requires an approver: give --as <actor>, or set operator.actor")
    from omnigraph.cluster.commands.plan import approve as run

    report = run(config, resource, read_pipeline_text, approver=approver)
    approved = f"cluster approve: {report.operation} {report.resource} approved by {report.approved_by}"
    head = f"{approved} (approval {report.approval_id})" if report.ok else "cluster approve failed"
    _print(invocation, report, [head, *map(str, report.diagnostics)])


@config_option
@click.option("--revision", type=click.IntRange(min=1), help="An earlier state, by its number.", metavar="N")
@json_option
def status(invocation: Invocation, config: str, revision: int | None) -> None:
    from omnigraph.cluster.commands.status import status as run

    report = run(config, revision)
    _print(invocation, report, cluster_reports.status(report, for_review=_is_for_review(invocation)))


@config_option
@json_option
def refresh(invocation: Invocation, config: str) -> None:
    from omnigraph.cluster.commands import refresh as commands

    run = commands.import_ if invocation.command.path == "cluster import" else commands.refresh
    report = run(config, read_pipeline_text, actor=invocation.config.actor)
    _print(invocation, report, cluster_reports.refresh_lines(report, for_review=_is_for_review(invocation)))


@click.argument("lock_id", help="The lock's id, as `cluster status` shows it.")
@config_option
@json_option
def force_unlock(invocation: Invocation, lock_id: str, config: str) -> None:
    from omnigraph.cluster.commands.status import force_unlock as run

    report, lock = run(config, lock_id)
    head = f"cluster force-unlock: removed lock ({lock})" if report.ok else "cluster force-unlock failed"
    _print(invocation, report, [head, *map(str, report.diagnostics)])


@config_option
@click.option("--limit", type=click.IntRange(min=1), default=20, help="At most so many.", metavar="N")
@json_option
def history(invocation: Invocation, config: str, limit: int) -> None:
    from omnigraph.cluster.commands.status import history as run

    report = run(config, limit)
    _print(invocation, report, cluster_reports.history(report))


def read_pipeline_text(text: str, path: str) -> Callable[[Catalog], None]:
    """As `read_check` of pipelines, which is imported when a cluster has one. Starts no Spark."""
    from omnigraph.pipeline.file import read_check

    return read_check(text, path)


def _print(invocation: Invocation, report: Any, lines: Iterable[str]) -> None:
    style = report_style
    if _is_for_review(invocation):
        columns = get_terminal_size().columns
        lines, style = [cluster_reports.wrap(line, columns) for line in lines], cluster_reports.style
    invocation.print(report, lines, style)
    if not report.ok:
        raise Exit(1)


def _is_for_review(invocation: Invocation) -> bool:
    return not invocation.json and sys.stdout.isatty()
