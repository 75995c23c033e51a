"""`omnigraph schema`: the accepted schema of a graph, and what a change of it would do.

`omnigraph init`: a new graph from a schema file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.inputs import ReadingPoint, read_source
from omnigraph.cli.params import AtSnapshot, AtTime, AtVersion, Branch, Json, ReadBranch, Uri
from omnigraph.cli.printing.output import print_json, print_lines, print_note, print_text
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope, open_graph, refuse_inside_cluster


def show(
    ctx: typer.Context,
    uri: Uri = None,
    branch: ReadBranch = None,
    snapshot: AtSnapshot = None,
    at_version: AtVersion = None,
    at: AtTime = None,
    json: Json = False,
) -> None:
    """Print the accepted schema, word for word."""
    from omnigraph.api.schema import SchemaSource

    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        source = graph.schema.show(**point.pinned)
    if json:
        print_json(SchemaSource(source))
    else:
        print_text(source)


def plan(
    ctx: typer.Context,
    desired: Annotated[Path, typer.Option("--schema", help="The desired schema, a .pg file.", metavar="FILE")],
    uri: Uri = None,
    accepted: Annotated[
        Path | None, typer.Option("--from", help="Plan offline, from this .pg file.", metavar="FILE")
    ] = None,
    branch: Branch = "main",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Plan drops as hard drops: history is purged with them.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the steps from the accepted schema to another.

    Nothing is changed. A plan that can't be applied is still shown, and no failure.
    """
    invocation = Invocation.of(ctx)
    invocation.instead_of_graph("--from", accepted, uri)
    from omnigraph.api.schema import SchemaPlanOutput
    from omnigraph.language.schema.compile import accept_schema, declare_schema
    from omnigraph.language.schema.migration import evolve

    source = read_source(desired)
    after = declare_schema(source, str(desired))  # first, so that a mistake is shown with the name of the file
    if accepted is not None:
        planned_for = str(accepted)
        before = accept_schema(read_source(accepted), planned_for)
        migration = evolve(before, after, allow_data_loss=allow_data_loss).plan
    else:
        target = invocation.target(uri)
        planned_for = target.uri
        if isinstance(target, StoreScope):
            with open_graph(target) as graph:
                before = graph.snapshot(branch).catalog
            migration = evolve(before, after, allow_data_loss=allow_data_loss).plan
        else:
            with invocation.opened(target) as served:
                migration = served.schema.plan(source, branch=branch, allow_data_loss=allow_data_loss)
    for note in migration.notes:
        print_note(note.render())
    if json:
        print_json(SchemaPlanOutput.of(planned_for, migration))
        return
    lines = [f"schema plan for {planned_for}", f"supported: {'yes' if migration.supported else 'no'}"]
    lines += [f"- {step.line()}" for step in migration.steps] or ["no schema changes"]
    print_lines(lines)


def apply(
    ctx: typer.Context,
    desired: Annotated[Path, typer.Option("--schema", help="The desired schema, a .pg file.", metavar="FILE")],
    uri: Uri = None,
    branch: Branch = "main",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Drop hard: history is purged with what is dropped.")
    ] = False,
    json: Json = False,
) -> None:
    """Change the schema, and the data with it, in one commit."""
    from msgspec.structs import replace

    from omnigraph.language.schema.compile import declare_schema

    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    source = read_source(desired)
    declare_schema(source, str(desired))  # first, so that a mistake is shown with the name of the file
    if isinstance(target, StoreScope):
        refuse_inside_cluster(target.uri)
    invocation.echo(target)
    actor = invocation.actor_of(target)
    with invocation.opened(target) as graph, working("applying the schema"):
        applied = graph.schema.apply(source, branch=branch, allow_data_loss=allow_data_loss, actor=actor)
    for note in applied.notes:
        print_note(note.render())
    if json:
        print_json(replace(applied, uri=target.uri))
        return
    lines = [
        f"schema apply for {target.uri}",
        f"supported: {'yes' if applied.supported else 'no'}",
        f"applied: {'yes' if applied.applied else 'no'}",
        f"graph_manifest_version: {applied.graph_manifest_version}",
    ]
    print_lines(lines + ([f"- {step.line()}" for step in applied.steps] or ["no schema changes"]))


def init(
    ctx: typer.Context,
    schema: Annotated[Path, typer.Option("--schema", help="The schema, a .pg file.", metavar="FILE")],
    uri: Uri = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take a place that an interrupted init left behind; never a graph.")
    ] = False,
) -> None:
    """Create a graph at the place that --store names.

    Parent directories are made. A place that holds a graph already is refused.
    """
    from omnigraph.language.schema.compile import accept_schema

    place = Invocation.of(ctx).new_storage(uri)
    source = read_source(schema)
    accept_schema(source, str(schema))  # first, so that a mistake is shown with the name of the file
    refuse_inside_cluster(place)
    import omnigraph

    omnigraph.init(place, source, force=force).close()
    print_lines([f"initialized {place}"])
