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
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.target import Invocation, pass_invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.language.catalog import Catalog

config_option = click.option("--config", default=".", help="The directory of cluster.yaml.", metavar="DIR")


@config_option
@json_option
def validate(config: str, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import validate as run

    report = run(config, read_pipeline_text)
    _print(report, lambda: cluster_reports.validate_lines(report), json=json)


@config_option
@json_option
def plan(config: str, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import plan as run

    for_review = _is_for_review(json=json)
    planned = run(config, read_pipeline_text, for_review=for_review)
    _print(planned.output, lambda: cluster_reports.plan_lines(planned, for_review=for_review), json=json)


@config_option
@json_option
@pass_invocation
def apply(invocation: Invocation, config: str, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.apply import apply as run

    report = run(config, read_pipeline_text, actor=invocation.actor)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.apply_lines(report, for_review=for_review), json=json)


@click.argument("resource", help="What is to be deleted, such as graph.kb.")
@config_option
@json_option
@pass_invocation
def approve(invocation: Invocation, resource: str, config: str, json: bool) -> None:
    approver = invocation.actor
    if approver is None:
        raise BadRequestError("`cluster approve` requires an approver: give --as <actor>, or set operator.actor")
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.plan import approve as run

    report = run(config, resource, read_pipeline_text, approver=approver)
    _print(report, lambda: cluster_reports.approve_lines(report), json=json)


@config_option
@click.option("--revision", type=click.IntRange(min=1), help="An earlier state, by its number.", metavar="N")
@json_option
def status(config: str, revision: int | None, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import status as run

    report = run(config, revision)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.status(report, for_review=for_review), json=json)


@config_option
@json_option
@pass_invocation
def refresh(invocation: Invocation, config: str, json: bool) -> None:
    _observe(invocation, "refresh", config, json=json)


@config_option
@json_option
@pass_invocation
def import_(invocation: Invocation, config: str, json: bool) -> None:
    _observe(invocation, "import", config, json=json)


def _observe(invocation: Invocation, operation: str, config: str, *, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands import refresh as refreshing

    run = refreshing.refresh if operation == "refresh" else refreshing.import_
    report = run(config, read_pipeline_text, actor=invocation.config.actor)
    for_review = _is_for_review(json=json)
    _print(report, lambda: cluster_reports.refresh_lines(report, for_review=for_review), json=json)


@click.argument("lock_id", help="The lock's id, as `cluster status` shows it.")
@config_option
@json_option
def force_unlock(lock_id: str, config: str, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import force_unlock as run

    report, lock = run(config, lock_id)
    _print(report, lambda: cluster_reports.unlock_lines(report, lock), json=json)


@config_option
@click.option("--limit", type=click.IntRange(min=1), default=20, help="At most so many.", metavar="N")
@json_option
def history(config: str, limit: int, json: bool) -> None:
    from omnigraph.cli.printing import cluster_reports
    from omnigraph.cluster.commands.status import history as run

    report = run(config, limit)
    _print(report, lambda: cluster_reports.history(report), json=json)


def read_pipeline_text(text: str, path: str) -> Callable[[Catalog], None]:
    """Read a pipeline file, and return the function that checks it against a schema. Starts no Spark.

    The cluster package may not import pipelines, so that its commands are given this function.
    """
    from omnigraph.pipeline.file import check_against, read_pipeline

    pipeline = read_pipeline(text, path=path)
    return lambda catalog: check_against(pipeline, catalog)


def _print(report: Any, lines: Callable[[], Iterable[str]], *, json: bool) -> None:
    from omnigraph.cli.printing.cluster_reports import style, wrap

    if json:
        print_json(report)
    elif _is_for_review(json=json):
        columns = get_terminal_size().columns
        print_lines([wrap(line, columns) for line in lines()], style)
    else:
        print_lines(lines())
    if not report.ok:
        raise Exit(1)


def _is_for_review(*, json: bool) -> bool:
    return not json and sys.stdout.isatty()
