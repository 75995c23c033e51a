"""`omnigraph changes`: following a branch commit by commit, from a baseline or from a cursor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.change_lines import change_style, feed_lines
from omnigraph.cli.file_replacement import refuse_where_unsafe, replacing
from omnigraph.cli.files import STDIN
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Branch, Json, Kinds, Limit, Ops, Types, Uri, UriOption, given_uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import entities, working, writing
from omnigraph.cli.usage import UsageError, at_most_one


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
    from omnigraph.api.changes import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph, working("reading changes"):
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        poll = graph.poll_changes(branch=branch, cursor=cursor, start=start, scope=scope, max_changes=limit)
        while (following := poll.next_page_token) is not None:
            page = graph.poll_changes(branch=branch, page_token=following, scope=scope, max_changes=limit)
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
    from omnigraph.api.changes import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph:
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        with (
            replacing(out) as file,
            writing(file, lambda: entities(graph, types=type_, kinds=kind, branch=branch), "writing") as lines,
        ):
            captured = graph.capture_baseline(lines, branch=branch, scope=scope)
    if json:
        print_json(captured)
    else:
        print_lines([f"snapshot_commit_id: {captured.snapshot_commit_id}", f"resume_cursor: {captured.resume_cursor}"])
