"""The maintenance commands: `optimize`, `repair` and `cleanup` keep a graph fast, complete and small; `index status`
shows what its indexes cover."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from omnigraph.api.values import count_noun
from omnigraph.cli import params
from omnigraph.cli.printing.progress import stages, steps
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.maintenance import CleanupReport, IndexListing, IndexStatus, OptimizeReport, RepairReport


@params.branch_option
@params.choice_option(
    "--engine", params.Engine, default="local", help="spark rewrites and indexes large tables on executors."
)
@params.json_option
def optimize(invocation: Invocation, branch: str, engine: params.Engine) -> None:
    with invocation.maintain_storage() as graph:
        if engine is params.Engine.SPARK:
            from omnigraph.pipeline import optimize_on_spark

            with stages("starting Spark") as stage_progress:
                report = optimize_on_spark(None, graph, branch, progress=stage_progress)
        else:
            with steps("optimize") as progress:
                report = graph.maintenance.optimize(branch, progress=progress)
    report = invocation.name_graph(report)
    invocation.print(report, _optimize_lines(report), _style)


@params.read_point_options
@params.json_option
def index_status(invocation: Invocation, point: dict[str, Any]) -> None:
    with invocation.open() as graph:
        status = graph.maintenance.index_status(**point)
    invocation.print(status, _index_lines(status))


@click.option("--confirm", is_flag=True, help="Repair; without it, only look.")
@click.option("--force", is_flag=True, help="With --confirm: also take over suspicious changes.")
@params.json_option
def repair(invocation: Invocation, confirm: bool, force: bool) -> None:
    if force and not confirm:
        raise params.UsageError("--force only goes with --confirm; look at the preview first")
    with invocation.maintain_storage() as graph, steps("repair") as progress:
        report = invocation.name_graph(graph.maintenance.repair(confirm=confirm, force=force, progress=progress))
    invocation.print(report, _repair_lines(report), _style)
    if report.refused:
        total = count_noun(len(report.datasets), "dataset")
        print(f"Error: repair refused {report.refused} of {total}; see the report above", file=sys.stderr)
        raise Exit(BadRequestError.exit_code)  # the report is the output; a second object would not parse


@click.option("--keep", type=click.IntRange(min=0), help="Keep this many of the newest versions.", metavar="N")
@click.option("--older-than", help="Remove only what is older: N[s|m|h|d|w].", metavar="DURATION")
@click.option("--dry-run", is_flag=True, help="Count what would go, per type; remove nothing.")
@click.option("--confirm", is_flag=True, help="Remove it.")
@params.json_option
def cleanup(invocation: Invocation, keep: int | None, older_than: str | None, dry_run: bool, confirm: bool) -> None:
    if keep is None and older_than is None:
        raise BadRequestError("cleanup requires at least one of --keep or --older-than")
    params.at_most_one(("--dry-run", dry_run), ("--confirm", confirm))
    from omnigraph.api.maintenance import duration

    age = None if older_than is None else duration(older_than)
    parts = [] if keep is None else [f"keep {count_noun(keep, 'version')}"]
    policy = ", ".join(parts if older_than is None else [*parts, f"older than {older_than}"])
    storage = invocation.storage
    if not (confirm or dry_run):
        would = f"cleanup of {storage.uri} would apply the policy: {policy}"
        print(f"{would}; pass --dry-run to see what would go, --confirm to remove it", file=sys.stderr)
        return
    if confirm:
        invocation.echo()
        invocation.require_consent("cleanup --confirm")
    with invocation.open_storage() as graph, steps("cleanup") as progress:
        report = graph.maintenance.cleanup(keep_versions=keep, older_than=age, dry_run=dry_run, progress=progress)
    report = invocation.name_graph(report)
    invocation.print(report, _cleanup_lines(report, policy, "would remove" if dry_run else "removed"), _style)


def _subject(type_key: str) -> str:
    """`node type 'T'`; what does not belong to a type keeps its name."""
    kind, _, name = type_key.partition(":")
    return f"{kind} type '{name}'" if name else type_key


def _optimize_lines(report: OptimizeReport) -> Iterator[str]:
    yield f"optimize {report.uri} — {count_noun(len(report.listed), 'dataset')}"
    for row in report.listed:
        what = f"frags {row.fragments_removed} → {row.fragments_added} ✓" if row.committed else "no-op"
        what = f"skipped ({row.skipped})" if row.skipped is not None else what
        yield f"  {_subject(row.type_key):<40} {what}"
        for pending in row.pending_indexes:
            yield f"    index on {pending.property} waits: {pending.reason}"
    if any(row.committed for row in report.listed):
        yield "  no space was released: older versions keep their files until `omnigraph cleanup` removes them"


_INDEX_HEADS = ("type", "property", "kind", "covered", "stale", "recall", "bytes", "pending")
_NUMBERS = frozenset({"covered", "stale", "recall", "bytes"})


def _index_lines(status: IndexListing) -> Iterator[str]:
    rows = [_INDEX_HEADS, *map(_index_cells, status.indexes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if head in _NUMBERS else cell.ljust(width)
            for head, cell, width in zip(_INDEX_HEADS, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _index_cells(index: IndexStatus) -> tuple[str, ...]:
    recall = "" if index.recall is None else f"{index.recall:.2f}"
    size = "" if index.size_bytes is None else str(index.size_bytes)
    kind = f"{index.kind} (approximate)" if index.approximate else index.kind
    covered, stale = str(index.covered_rows), str(index.stale_rows)
    return index.type_key, index.property, kind, covered, stale, recall, size, index.pending or ""


def _repair_lines(report: RepairReport) -> Iterator[str]:
    mode = "confirm" if report.confirm else "preview"
    yield f"repair {report.uri} — {mode} mode, {count_noun(len(report.datasets), 'dataset')}"
    for row in report.datasets:
        yield f"  {_subject(row.type_key):<40} {row.classification}: {row.action}"
        yield from (f"    {operation}" for operation in row.operations)
        if row.error is not None:
            yield f"    {row.error}"


def _cleanup_lines(report: CleanupReport, policy: str, removes: str) -> Iterator[str]:
    removed = f"{count_noun(report.versions_removed, 'version')} ({count_noun(report.bytes_removed, 'byte')})"
    across = count_noun(len(report.datasets), "dataset")
    yield f"cleanup {report.uri} ({policy}) — {removes} {removed} across {across}"
    for row in report.datasets:
        if row.error is not None:
            yield f"  {_subject(row.type_key):<40} failed: {row.error}"
        elif row.old_versions_removed or row.bytes_removed:
            removed = f"{count_noun(row.old_versions_removed, 'version')}, {count_noun(row.bytes_removed, 'byte')}"
            yield f"  {_subject(row.type_key):<40} {removed}"


def _style(line: str) -> str:
    if line.endswith("✓"):
        return "green"
    if " failed: " in line or line.endswith("refused"):
        return "red"
    return "dim" if line.endswith(("no-op", "no_op")) else ""
