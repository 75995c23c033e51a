"""The `changes` commands follow a branch commit by commit, from a baseline or a cursor; `diff` compares snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.api.enums import Operation
from omnigraph.api.values import counted
from omnigraph.cli.inputs import STDIN, refuse_where_unsafe, replacing
from omnigraph.cli.params import (
    UsageError,
    at_most_one,
    branch_option,
    change_scope_options,
    file_option,
    json_option,
    limit_option,
    uri_argument_or_option,
)
from omnigraph.cli.printing.history import change_style, diff_style, feed_lines
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import entities, working, writing
from omnigraph.cli.target import Invocation, pass_invocation

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.history import ChangeScope, ChangeSet


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
    totals = ", ".join(counted(found.count(op), op) for op in Operation)
    yield f"{totals} from version {found.from_graph_manifest_version} to {found.to_graph_manifest_version}"
