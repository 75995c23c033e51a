"""The `commit` commands show the history of a graph; `snapshot` lists the tables of a snapshot with their versions.

The `changes` commands follow a branch commit by commit, from a baseline or a cursor; `diff` compares snapshots.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.api.enums import Operation
from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import STDIN, refuse_where_unsafe, replacing
from omnigraph.cli.params import (
    ReadPoint,
    UsageError,
    at_most_one,
    branch_option,
    change_scope_options,
    file_option,
    json_option,
    limit_option,
    read_point_options,
    uri_argument,
    uri_argument_or_option,
)
from omnigraph.cli.printing.history import (
    block_lines,
    change_style,
    dag_style,
    describe_branch,
    diff_style,
    draw,
    feed_lines,
    format_counts,
    newest_first,
    reachable,
)
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import entities, working, writing
from omnigraph.cli.target import Invocation, pass_invocation

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.history import ChangeScope, ChangeSet


commit_argument = click.argument("commit_id", help="The commit.", metavar="ID")


@uri_argument_or_option
@branch_option
@click.option("--limit", type=click.IntRange(min=1), help="List only the newest N commits.", metavar="N")
@click.option("--dag", is_flag=True, help="Draw the history with its merges. A bare --graph means the same.")
@json_option
@pass_invocation
def list_(invocation: Invocation, uri: str | None, branch: str, limit: int | None, dag: bool, json: bool) -> None:
    at_most_one(("--dag", dag), ("--json", json))
    from omnigraph.api.history import CommitList

    _, graph = invocation.open(uri)
    with graph:
        if dag:
            print_lines(draw(reachable(graph, branch, limit)), dag_style)
            return
        if not json and sys.stdout.isatty():
            print_lines(describe_branch(graph, branch, limit), dag_style)
            return
        commits = newest_first(graph, branch, limit)
    if json:
        print_json(CommitList(tuple(commits)))
        return
    lines = []
    for commit in commits:
        actor = f" actor={commit.actor_id}" if commit.actor_id is not None else ""
        place = f"graph_branch={commit.graph_branch or 'main'}"
        lines.append(f"{commit.graph_commit_id} {place} graph_manifest_version={commit.graph_manifest_version}{actor}")
    print_lines(lines)


@commit_argument
@uri_argument_or_option
@json_option
@pass_invocation
def show(invocation: Invocation, commit_id: str, uri: str | None, json: bool) -> None:
    from msgspec import structs

    _, graph = invocation.open(uri)
    with graph:
        shown = graph.describe_commit(commit_id)
    if json:
        print_json(shown)
        return
    facts = {**structs.asdict(shown.commit), "kind": shown.kind, "message": shown.message}
    lines = [f"{key}: {value}" for key, value in facts.items() if value is not None]
    lines.append(f"created: {shown.created.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}")
    if shown.changes is None:
        lines.append("changes: can't be counted any more, cleanup has reclaimed the data")
    for type_key, counts in sorted((shown.changes or {}).items()):
        lines.append(f"  {type_key}: {format_counts(counts)}")
    print_lines(lines)


@commit_argument
@uri_argument_or_option
@limit_option
@click.option("--page-token", help="Show only this page.", metavar="TOKEN")
@change_scope_options
@json_option
@pass_invocation
def changes(
    invocation: Invocation,
    commit_id: str,
    uri: str | None,
    limit: int | None,
    page_token: str | None,
    scope: ChangeScope,
    json: bool,
) -> None:
    from omnigraph.api.history import CommitChangesPage

    _, graph = invocation.open(uri)
    with graph, working("comparing states"):
        shown = graph.changes.page(commit_id, scope=scope, page_token=page_token, max_changes=limit)
        while page_token is None and (following := shown.next_page_token) is not None:
            page = graph.changes.page(commit_id, scope=scope, page_token=following, max_changes=limit)
            shown = CommitChangesPage(shown.cause, (*shown.changes, *page.changes), page.next_page_token)
    if json:
        print_json(shown)
        return
    print_lines(block_lines(shown.cause, shown.changes), change_style)
    if shown.next_page_token is not None:
        print_lines(["", f"next_page_token: {shown.next_page_token}"])


@uri_argument
@read_point_options
@json_option
@pass_invocation
def snapshot(invocation: Invocation, uri: str | None, point: ReadPoint, json: bool) -> None:
    _, graph = invocation.open(uri)
    with graph:
        output = graph.listing(**point)
    if json:
        print_json(output)
        return
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
    print_lines(lines)


@uri_argument_or_option
@branch_option
@click.option("--cursor", help="The cursor that the last poll returned.", metavar="CURSOR")
@click.option("--start", help="now, beginning, or after:<commit>.  [default: now]", metavar="now|beginning|after:ID")
@limit_option
@change_scope_options
@json_option
@pass_invocation
def poll(
    invocation: Invocation,
    uri: str | None,
    branch: str,
    cursor: str | None,
    start: str | None,
    limit: int | None,
    scope: ChangeScope,
    json: bool,
) -> None:
    at_most_one(("--cursor", cursor), ("--start", start))
    _, graph = invocation.open(uri)
    with graph, working("reading changes"):
        poll = graph.changes.poll(branch=branch, cursor=cursor, start=start, scope=scope, max_changes=limit)
        while (following := poll.next_page_token) is not None:
            page = graph.changes.poll(branch=branch, page_token=following, scope=scope, max_changes=limit)
            poll = poll.followed_by(page)
    if json:
        print_json(poll)
        return
    print_lines(feed_lines(poll.blocks), change_style)
    print_lines(["", f"cursor: {poll.cursor}", f"caught_up: {str(poll.caught_up).lower()}"])


@file_option("--out", required=True, help="The file to write.")
@uri_argument_or_option
@branch_option
@change_scope_options
@json_option
@pass_invocation
def baseline(invocation: Invocation, out: Path, uri: str | None, branch: str, scope: ChangeScope, json: bool) -> None:
    refuse_where_unsafe()
    if out == STDIN:
        raise UsageError("--out takes a file: the cursor is printed to stdout once the file is in place")
    _, graph = invocation.open(uri)
    with graph:
        total = partial(entities, graph, types=scope.types, kinds=scope.kinds, branch=branch)
        with replacing(out) as file, writing(file, total, "writing") as lines:
            captured = graph.changes.baseline(lines, branch=branch, scope=scope)
    if json:
        print_json(captured)
    else:
        print_lines([f"snapshot_commit_id: {captured.snapshot_commit_id}", f"resume_cursor: {captured.resume_cursor}"])


@click.argument("before", help="A branch, a commit, or branch@version.", metavar="FROM")
@click.argument("after", help="A branch, a commit, or branch@version.", metavar="TO")
@uri_argument_or_option
@change_scope_options
@json_option
@pass_invocation
def diff(invocation: Invocation, before: str, after: str, uri: str | None, scope: ChangeScope, json: bool) -> None:
    _, graph = invocation.open(uri)
    with graph, working("comparing states"):
        found = graph.diff(_state(graph, before), _state(graph, after), scope)
    if json:
        print_json(found)
    else:
        print_lines(_lines(found), diff_style)


def _state(graph: GraphApi, text: str) -> str:
    """A branch or a commit as it is; `branch@version` as the commit it means."""
    branch, at, version = text.rpartition("@")
    return graph.resolve_snapshot(branch, version=int(version)) if at and version.isdecimal() else text


def _lines(found: ChangeSet) -> Iterator[str]:
    marks = {"insert": "+", "update": "~", "delete": "-"}
    for change in found.changes:
        ends = f" {change.src} -> {change.dst}" if change.src is not None else ""
        yield f"{marks[change.op]} {change.kind} {change.type_name} {change.id}{ends}"
    totals = ", ".join(count_noun(found.count(op), op) for op in Operation)
    yield f"{totals} from version {found.from_graph_manifest_version} to {found.to_graph_manifest_version}"
