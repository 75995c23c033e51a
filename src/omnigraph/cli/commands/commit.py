"""The `commit` commands show the history of a graph; `snapshot` lists the tables of a snapshot with their versions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from omnigraph.cli.params import (
    ReadPoint,
    at_most_one,
    branch_option,
    change_scope_options,
    json_option,
    limit_option,
    read_point_options,
    uri_argument,
    uri_argument_or_option,
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
from omnigraph.cli.target import Invocation, pass_invocation

if TYPE_CHECKING:
    from omnigraph.api.history import ChangeScope

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
        lines.append(f"  {type_key}: {counted(counts)}")
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
