"""`omnigraph changes`: following a branch commit by commit, from a baseline or from a cursor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.change_lines import change_style, feed_lines
from omnigraph.cli.installing import refuse_where_unsafe, replacing
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Branch, Json, Kinds, Limit, Ops, Types, UriOption
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.usage import at_most_one


def poll(
    ctx: typer.Context,
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
    from omnigraph.engine.scope import ChangeScope

    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        page = graph.poll_changes(branch=branch, cursor=cursor, start=start, scope=scope, max_changes=limit).to_dict()
        blocks = page["blocks"]
        while (following := page.get("next_page_token")) is not None:
            page = graph.poll_changes(branch=branch, page_token=following, scope=scope, max_changes=limit).to_dict()
            blocks = _stitched(blocks, page["blocks"])
    end = {key: page[key] for key in ("cursor", "caught_up") if key in page}
    if json:
        print_json({"blocks": blocks, **end})
        return
    print_lines(feed_lines(blocks), change_style)
    print_lines(["", f"cursor: {end['cursor']}", f"caught_up: {str(end['caught_up']).lower()}"])


def baseline(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="The file to install.", metavar="FILE")],
    uri: UriOption = None,
    branch: Branch = "main",
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Write a branch's state to a file, and print the cursor that continues from exactly there."""
    refuse_where_unsafe()
    from omnigraph.engine.scope import ChangeScope

    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        with replacing(out) as file:
            captured = graph.capture_baseline(file, branch=branch, scope=scope).to_dict()
    if json:
        print_json(captured)
    else:
        print_lines(f"{key}: {value}" for key, value in captured.items())


def _stitched(blocks: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pages put together; a commit that was split over two of them is one block again."""
    if blocks and more and blocks[-1]["cause"] == more[0]["cause"]:
        last = {"cause": more[0]["cause"], "changes": [*blocks[-1]["changes"], *more[0]["changes"]]}
        return [*blocks[:-1], last, *more[1:]]
    return [*blocks, *more]
