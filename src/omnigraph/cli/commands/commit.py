"""The `commit` commands show the history of a graph; `snapshot` lists the tables of a snapshot with their versions.

The `changes` commands follow a branch commit by commit, from a baseline or a cursor; `diff` compares snapshots.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.api.enums import Operation
from omnigraph.api.values import count_noun
from omnigraph.cli import params
from omnigraph.cli.inputs import STDIN, replace_locked
from omnigraph.cli.printing import history
from omnigraph.cli.printing.output import print_lines
from omnigraph.cli.printing.progress import entities, working, writing
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.commits import CommitSummary
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.history import ChangeScope


commit_argument = click.argument("commit_id", help="The commit.", metavar="ID")


@params.branch_option
@click.option("--limit", type=click.IntRange(min=1), help="List only the newest N commits.", metavar="N")
@click.option("--dag", is_flag=True, help="Draw the history with its merges. A bare --graph means the same.")
@params.json_option
def list_(invocation: Invocation, branch: str, limit: int | None, dag: bool) -> None:
    params.at_most_one(("--dag", dag), ("--json", invocation.json))
    from omnigraph.api.commits import CommitList

    with invocation.open() as graph:
        if dag:
            print_lines(history.draw(history.reachable(graph, branch, limit)), history.dag_style)
            return
        if not invocation.json and sys.stdout.isatty():
            print_lines(history.describe_branch(graph, branch, limit), history.dag_style)
            return
        commits = list(history.list_line(graph.commits, branch, limit))
    lines = []
    for commit in commits:
        actor = f" actor={commit.actor_id}" if commit.actor_id is not None else ""
        branch = f"graph_branch={commit.graph_branch or 'main'}"
        lines.append(f"{commit.graph_commit_id} {branch} graph_manifest_version={commit.graph_manifest_version}{actor}")
    invocation.print(CommitList(tuple(commits)), lines)


@commit_argument
@params.json_option
def show(invocation: Invocation, commit_id: str) -> None:
    with invocation.open() as graph:
        shown = graph.describe_commit(commit_id)
    invocation.print(shown, _commit_lines(shown))


def _commit_lines(shown: CommitSummary) -> Iterator[str]:
    from msgspec import structs

    facts = {**structs.asdict(shown.commit), "kind": shown.kind, "message": shown.message}
    yield from (f"{key}: {value}" for key, value in facts.items() if value is not None)
    yield f"created: {shown.created.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
    if shown.changes is None:
        yield "changes: can't be counted any more, cleanup has reclaimed the data"
    for type_key, counts in sorted((shown.changes or {}).items()):
        yield f"  {type_key}: {history.format_counts(counts)}"


@commit_argument
@params.limit_option
@click.option("--page-token", help="Show only this page.", metavar="TOKEN")
@params.change_scope_options
@params.json_option
def changes(
    invocation: Invocation, commit_id: str, limit: int | None, page_token: str | None, scope: ChangeScope
) -> None:
    with invocation.open() as graph, working("comparing states"):
        shown = graph.changes.page(commit_id, scope=scope, page_token=page_token, max_changes=limit)
        while page_token is None and (following := shown.next_page_token) is not None:
            page = graph.changes.page(commit_id, scope=scope, page_token=following, max_changes=limit)
            shown = shown.followed_by(page)
    invocation.print(shown, history.block_lines(shown.cause, shown), history.change_style)
    if shown.next_page_token is not None and not invocation.json:
        print_lines(["", f"next_page_token: {shown.next_page_token}"])


@params.read_point_options
@params.json_option
def snapshot(invocation: Invocation, point: dict[str, Any]) -> None:
    with invocation.open() as graph:
        output = graph.listing(**point)
    lines = [
        f"graph_branch: {output.graph_branch}",
        f"graph_manifest_version: {output.graph_manifest_version}",
        f"internal_schema_version: {output.internal_schema_version}",
    ]
    for row in output.datasets:
        lines.append(
            f"{row.entity_kind} type '{row.type_name}' published_dataset_version={row.published_dataset_version} "
            f"native_dataset_branch={row.native_dataset_branch or 'main'} entities={row.entity_count}"
        )
    invocation.print(output, lines)


@params.branch_option
@click.option("--cursor", help="The cursor that the last poll returned.", metavar="CURSOR")
@click.option("--start", help="now, beginning, or after:<commit>.  [default: now]", metavar="now|beginning|after:ID")
@params.limit_option
@params.change_scope_options
@params.json_option
def poll(
    invocation: Invocation, branch: str, cursor: str | None, start: str | None, limit: int | None, scope: ChangeScope
) -> None:
    params.at_most_one(("--cursor", cursor), ("--start", start))
    with invocation.open() as graph, working("reading changes"):
        poll = graph.changes.poll(branch=branch, cursor=cursor, start=start, scope=scope, max_changes=limit)
        while (following := poll.next_page_token) is not None:
            page = graph.changes.poll(branch=branch, page_token=following, scope=scope, max_changes=limit)
            poll = poll.followed_by(page)
    invocation.print(poll, history.feed_lines(poll.blocks), history.change_style)
    if not invocation.json:
        print_lines(["", f"cursor: {poll.cursor}", f"caught_up: {str(poll.caught_up).lower()}"])


@params.file_option("--out", required=True, help="The file to write.")
@params.branch_option
@params.change_scope_options
@params.json_option
def baseline(invocation: Invocation, out: Path, branch: str, scope: ChangeScope) -> None:
    if sys.platform == "win32":  # it has no such locks and renames
        raise BadRequestError("a baseline can't be installed safely on this platform; run this on Linux or macOS")
    if out == STDIN:
        raise params.UsageError("--out takes a file: the cursor is printed to stdout once the file is in place")
    with invocation.open() as graph:
        total = partial(entities, graph, types=scope.types, kinds=scope.kinds, branch=branch)
        with replace_locked(out) as file, writing(file, total, "writing") as lines:
            captured = graph.changes.baseline(lines, branch=branch, scope=scope)
    facts = [f"snapshot_commit_id: {captured.snapshot_commit_id}", f"resume_cursor: {captured.resume_cursor}"]
    invocation.print(captured, facts)


@click.argument("before", help="A branch, a commit, or branch@version.", metavar="FROM")
@click.argument("after", help="A branch, a commit, or branch@version.", metavar="TO")
@params.change_scope_options
@params.json_option
def diff(invocation: Invocation, before: str, after: str, scope: ChangeScope) -> None:
    with invocation.open() as graph, working("comparing states"):
        changes = graph.diff(_state(graph, before), _state(graph, after), scope)
    totals = ", ".join(count_noun(changes.count(op), op) for op in Operation)
    versions = f"from version {changes.from_graph_manifest_version} to {changes.to_graph_manifest_version}"
    lines = itertools.chain(map(history.describe_entity, changes.changes), [f"{totals} {versions}"])
    invocation.print(changes, lines, history.diff_style)


def _state(graph: GraphApi, text: str) -> str:
    """A branch or a commit as it is; `branch@version` as the commit it means."""
    branch, at, version = text.rpartition("@")
    return graph.resolve_snapshot(branch, version=int(version)) if at and version.isdecimal() else text
