"""`omnigraph schema`: the accepted schema of a graph, and what a change of it would do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.options import AtSnapshot, AtTime, AtVersion, Branch, Json, ReadBranch, Uri


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
    from omnigraph.cli.invocation import Invocation
    from omnigraph.cli.output import print_json, print_text
    from omnigraph.cli.reading_point import ReadingPoint

    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        source = graph.snapshot(**point.pinned).schema_document.source
    if json:
        print_json({"schema_source": source})
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
    from omnigraph.cli.files import read_source
    from omnigraph.cli.invocation import Invocation
    from omnigraph.cli.output import print_json, print_lines, print_note
    from omnigraph.cli.usage import at_most_one
    from omnigraph.language.migration import evolve
    from omnigraph.language.schema.compile import accept_schema, declare_schema

    at_most_one(("URI", uri), ("--from", accepted))
    after = declare_schema(read_source(desired), str(desired))
    if accepted is not None:
        planned_for = str(accepted)
        before = accept_schema(read_source(accepted), planned_for)
    else:
        target, graph = Invocation.of(ctx).open(uri)
        planned_for = target.uri
        with graph:
            before = graph.snapshot(branch).catalog
    migration = evolve(before, after, allow_data_loss=allow_data_loss).plan
    for note in migration.notes:
        print_note(note.render())
    if json:
        wire = migration.to_json_dict()
        steps = wire["steps"]
        print_json({"uri": planned_for, "supported": wire["supported"], "step_count": len(steps), "steps": steps})
        return
    lines = [f"schema plan for {planned_for}", f"supported: {'yes' if migration.supported else 'no'}"]
    lines += [f"- {step.line()}" for step in migration.steps] or ["no schema changes"]
    print_lines(lines)
