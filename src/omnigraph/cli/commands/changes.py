"""`omnigraph changes`: following a branch commit by commit, from a baseline or from a cursor.

`omnigraph diff`: the net difference between two states of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.api.enums import Operation
from omnigraph.api.values import counted
from omnigraph.cli.inputs import STDIN, refuse_where_unsafe, replacing
from omnigraph.cli.params import (
    Branch,
    Json,
    Kinds,
    Limit,
    Ops,
    Types,
    Uri,
    UriOption,
    UsageError,
    at_most_one,
    given_uri,
)
from omnigraph.cli.printing.history import change_style, diff_style, feed_lines
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import entities, working, writing
from omnigraph.cli.target import Invocation

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.history import ChangeSet


def poll(
    ctx: typer.Context,
    place: Uri = None,
    uri: UriOption = None,
    branch: Branch = "main",
    cursor: Annotated[str | None, typer.Option("--cursor", help="Where the last poll ended.", metavar="CURSOR")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", help="now, beginning, or after:<commit>.  [default: now]", metavar="now|beginning|after:ID"
        ),
    ] = None,
    limit: Limit = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Show what happened on a branch since a cursor, oldest commit first, and the cursor to go on from."""
    at_most_one(("--cursor", cursor), ("--start", start))
    from omnigraph.api.history import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph, working("reading changes"):
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        poll = graph.changes.poll(branch=branch, cursor=cursor, start=start, scope=scope, max_changes=limit)
        while (following := poll.next_page_token) is not None:
            page = graph.changes.poll(branch=branch, page_token=following, scope=scope, max_changes=limit)
            poll = poll.followed_by(page)
    if json:
        print_json(poll)
        return
    print_lines(feed_lines(poll.blocks), change_style)
    print_lines(["", f"cursor: {poll.cursor}", f"caught_up: {str(poll.caught_up).lower()}"])


def baseline(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="The file to install.", metavar="FILE")],
    place: Uri = None,
    uri: UriOption = None,
    branch: Branch = "main",
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Write a branch's state to a file, and print the cursor that continues from exactly there."""
    refuse_where_unsafe()
    if out == STDIN:
        raise UsageError("--out takes a file: the cursor is printed to stdout once the file is in place")
    from omnigraph.api.history import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph:
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        with (
            replacing(out) as file,
            writing(file, lambda: entities(graph, types=type_, kinds=kind, branch=branch), "writing") as lines,
        ):
            captured = graph.changes.baseline(lines, branch=branch, scope=scope)
    if json:
        print_json(captured)
    else:
        print_lines([f"snapshot_commit_id: {captured.snapshot_commit_id}", f"resume_cursor: {captured.resume_cursor}"])


def diff(
    ctx: typer.Context,
    before: Annotated[str, typer.Argument(help="A branch, a commit, or branch@version.", metavar="FROM")],
    after: Annotated[str, typer.Argument(help="A branch, a commit, or branch@version.", metavar="TO")],
    place: Uri = None,
    uri: UriOption = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Show which entities differ between two states, of any branches."""
    from omnigraph.api.history import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph, working("comparing states"):
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
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
