"""`omnigraph branch`: lines of work on the whole graph."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Json, UriOption

Name = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]


def create(
    ctx: typer.Context,
    name: Name,
    uri: UriOption = None,
    source: Annotated[
        str, typer.Option("--from", help="A branch, or any commit that is still kept.", metavar="SOURCE")
    ] = "main",
    json: Json = False,
) -> None:
    """Create a branch. It costs one small object, whatever the size of the graph."""
    from omnigraph.cli.invocation import Invocation, open_graph
    from omnigraph.cli.output import print_json, print_lines

    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    with open_graph(target) as graph:
        graph.create_branch(name, source=source, actor=invocation.actor)
    if json:
        print_json({"uri": target.uri, "from": source, "name": name, "actor_id": invocation.actor})
    else:
        print_lines([f"created branch {name} from {source}"])


def list_(ctx: typer.Context, uri: UriOption = None, json: Json = False) -> None:
    """List the branches, main first."""
    from omnigraph.cli.invocation import Invocation
    from omnigraph.cli.output import print_json, print_lines

    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        names = graph.list_branches()
    if json:
        print_json({"branches": names})
    else:
        print_lines(names)


def delete(ctx: typer.Context, name: Name, uri: UriOption = None, json: Json = False) -> None:
    """Delete a branch and the commits that only it has. This can't be undone."""
    from omnigraph.cli.invocation import Invocation, open_graph
    from omnigraph.cli.output import print_json, print_lines

    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    invocation.require_consent(target, "branch delete", json=json)
    with open_graph(target) as graph:
        graph.delete_branch(name, actor=invocation.actor)
    if json:
        print_json({"uri": target.uri, "name": name, "actor_id": invocation.actor})
    else:
        print_lines([f"deleted branch {name}"])
