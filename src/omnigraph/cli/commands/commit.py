"""`omnigraph commit`: the history of a graph.

`omnigraph snapshot`: which tables, at which versions, a state of the graph is made of.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnigraph.cli.inputs import ReadingPoint
from omnigraph.cli.params import (
    AtSnapshot,
    AtTime,
    AtVersion,
    Branch,
    Json,
    Kinds,
    Limit,
    Ops,
    ReadBranch,
    Types,
    Uri,
    UriOption,
    at_most_one,
    given_uri,
)
from omnigraph.cli.printing.history import (
    block_lines,
    change_style,
    counted,
    dag_style,
    described,
    drawn,
    newest_first,
    reachable,
)
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation

CommitId = Annotated[str, typer.Argument(help="The commit.", metavar="ID")]


def list_(
    ctx: typer.Context,
    place: Uri = None,
    uri: UriOption = None,
    branch: Branch = "main",
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only so many of the newest.", metavar="N", min=1)
    ] = None,
    dag: Annotated[
        bool, typer.Option("--dag", help="Draw the merges of the history. A bare --graph means the same.")
    ] = False,
    json: Json = False,
) -> None:
    """List the commits of a branch, newest first."""
    at_most_one(("--dag", dag), ("--json", json))
    from omnigraph.api.history import CommitList

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph:
        if dag:
            print_lines(drawn(reachable(graph, branch, limit)), dag_style)
            return
        if not json and sys.stdout.isatty():
            print_lines(described(graph, branch, limit), dag_style)
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


def show(ctx: typer.Context, commit_id: CommitId, place: Uri = None, uri: UriOption = None, json: Json = False) -> None:
    """Show one commit: who, when, where, and how many entities it changed."""
    from msgspec import structs

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
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
        lines.append(f"  {type_key}: {counted(counts)}")
    print_lines(lines)


def changes(
    ctx: typer.Context,
    commit_id: CommitId,
    place: Uri = None,
    uri: UriOption = None,
    limit: Limit = None,
    page_token: Annotated[
        str | None, typer.Option("--page-token", help="Show exactly this page.", metavar="TOKEN")
    ] = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Show what a commit changed, entity by entity, with the values before and after."""
    from omnigraph.api.history import ChangeScope, CommitChangesPage

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph, working("comparing states"):
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
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


def snapshot(
    ctx: typer.Context,
    uri: Uri = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    json: Json = False,
) -> None:
    """Show the tables of a state, with their versions and sizes."""
    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        output = graph.listing(**point.pinned)
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
