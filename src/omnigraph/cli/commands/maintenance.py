"""The maintenance commands `optimize`, `repair` and `cleanup` keep a graph fast, complete and small."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import click
from click.exceptions import Exit

from omnigraph.api.values import count_noun
from omnigraph.cli.params import (
    Engine,
    UsageError,
    at_most_one,
    branch_option,
    choice_option,
    json_option,
    uri_argument,
)
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import stages, steps
from omnigraph.cli.target import Invocation, open_graph, pass_invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.maintenance import CleanupReport, OptimizeReport, RepairReport
    from omnigraph.graph import Graph


Report = TypeVar("Report", "OptimizeReport", "RepairReport", "CleanupReport")


@uri_argument
@branch_option
@choice_option("--engine", Engine, default="local", help="spark rewrites and indexes large tables on executors.")
@json_option
@pass_invocation
def optimize(invocation: Invocation, uri: str | None, branch: str, engine: Engine, json: bool) -> None:
    target, graph = invocation.maintain_storage(uri)
    with graph:
        done = _optimized_on_spark(graph, branch) if engine is Engine.SPARK else _optimize(graph, branch)
        report = _with_uri(done, target.uri)
    if json:
        print_json(report)
    else:
        print_lines(_optimize_lines(report), _style)


def _optimize(graph: Graph, branch: str) -> OptimizeReport:
    with steps("optimize") as progress:
        return graph.maintenance.optimize(branch, progress=progress)


def _optimized_on_spark(graph: Graph, branch: str) -> OptimizeReport:
    from omnigraph.pipeline import optimize_on_spark

    with stages("starting Spark") as progress:
        return optimize_on_spark(None, graph, branch, progress=progress)


@uri_argument
@click.option("--confirm", is_flag=True, help="Repair; without it, only look.")
@click.option("--force", is_flag=True, help="With --confirm: also take over suspicious changes.")
@json_option
@pass_invocation
def repair(invocation: Invocation, uri: str | None, confirm: bool, force: bool, json: bool) -> None:
    if force and not confirm:
        raise UsageError("--force only goes with --confirm; look at the preview first")
    target, graph = invocation.maintain_storage(uri)
    with graph, steps("repair") as progress:
        report = _with_uri(graph.maintenance.repair(confirm=confirm, force=force, progress=progress), target.uri)
    if json:
        print_json(report)
    else:
        print_lines(_repair_lines(report), _style)
    if report.refused:
        message = (
            f"repair refused {report.refused} of {count_noun(len(report.datasets), 'dataset')}; see the report above"
        )
        print(f"Error: {message}", file=sys.stderr)
        raise Exit(BadRequestError.exit_code)  # the report is the output; a second object would not parse


@uri_argument
@click.option("--keep", type=click.IntRange(min=0), help="Keep this many of the newest versions.", metavar="N")
@click.option("--older-than", help="Remove only what is older: N[s|m|h|d|w].", metavar="DURATION")
@click.option("--dry-run", is_flag=True, help="Count what would go, per type; remove nothing.")
@click.option("--confirm", is_flag=True, help="Remove it.")
@json_option
@pass_invocation
def cleanup(
    invocation: Invocation,
    uri: str | None,
    keep: int | None,
    older_than: str | None,
    dry_run: bool,
    confirm: bool,
    json: bool,
) -> None:
    if keep is None and older_than is None:
        raise BadRequestError("cleanup requires at least one of --keep or --older-than")
    at_most_one(("--dry-run", dry_run), ("--confirm", confirm))
    from omnigraph.api.maintenance import duration

    age = None if older_than is None else duration(older_than)
    target = invocation.storage(uri)
    policy = _policy(keep, older_than)
    if not (confirm or dry_run):
        would = f"cleanup of {target.uri} would apply the policy: {policy}"
        print(f"{would}; pass --dry-run to see what would go, --confirm to remove it", file=sys.stderr)
        return
    if confirm:
        invocation.echo(target)
        invocation.require_consent(target, "cleanup --confirm", json=json)
    with open_graph(target) as graph, steps("cleanup") as progress:
        done = graph.maintenance.cleanup(keep_versions=keep, older_than=age, dry_run=dry_run, progress=progress)
        report = _with_uri(done, target.uri)
    if json:
        print_json(report)
    else:
        print_lines(_cleanup_lines(report, policy, "would remove" if dry_run else "removed"), _style)


def _with_uri(report: Report, uri: str) -> Report:
    """The report with the graph as it was addressed."""
    from msgspec.structs import replace

    return replace(report, uri=uri)


def subject(type_key: str) -> str:
    """`node type 'T'`; what belongs to no type keeps its name."""
    kind, _, name = type_key.partition(":")
    return f"{kind} type '{name}'" if name else type_key


def _policy(keep: int | None, older_than: str | None) -> str:
    parts = [f"keep {count_noun(keep, 'version')}"] if keep is not None else []
    return ", ".join(parts + ([f"older than {older_than}"] if older_than is not None else []))


def _optimize_lines(report: OptimizeReport) -> Iterator[str]:
    yield f"optimize {report.uri} — {count_noun(len(report.listed), 'dataset')}"
    for row in report.listed:
        what = f"frags {row.fragments_removed} → {row.fragments_added} ✓" if row.committed else "no-op"
        what = f"skipped ({row.skipped})" if row.skipped is not None else what
        yield f"  {subject(row.type_key):<40} {what}"
        for pending in row.pending_indexes:
            yield f"    index on {pending.property} waits: {pending.reason}"
    if any(row.committed for row in report.listed):
        yield "  no space was released: older versions keep their files until `omnigraph cleanup` removes them"


def _repair_lines(report: RepairReport) -> Iterator[str]:
    mode = "confirm" if report.confirm else "preview"
    yield f"repair {report.uri} — {mode} mode, {count_noun(len(report.datasets), 'dataset')}"
    for row in report.datasets:
        yield f"  {subject(row.type_key):<40} {row.classification}: {row.action}"
        yield from (f"    {operation}" for operation in row.operations)
        if row.error is not None:
            yield f"    {row.error}"


def _cleanup_lines(report: CleanupReport, policy: str, removes: str) -> Iterator[str]:
    removed = f"{count_noun(report.versions_removed, 'version')} ({count_noun(report.bytes_removed, 'byte')})"
    across = count_noun(len(report.datasets), "dataset")
    yield f"cleanup {report.uri} ({policy}) — {removes} {removed} across {across}"
    for row in report.datasets:
        if row.error is not None:
            yield f"  {subject(row.type_key):<40} failed: {row.error}"
        elif row.old_versions_removed or row.bytes_removed:
            removed = f"{count_noun(row.old_versions_removed, 'version')}, {count_noun(row.bytes_removed, 'byte')}"
            yield f"  {subject(row.type_key):<40} {removed}"


def _style(line: str) -> str:
    if line.endswith("✓"):
        return "green"
    return (
        "red" if " failed: " in line or line.endswith("refused") else "dim" if line.endswith(("no-op", "no_op")) else ""
    )
