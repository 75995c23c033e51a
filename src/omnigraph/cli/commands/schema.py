"""`omnigraph schema`: what a schema change would do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.errors import BadRequestError

app = typer.Typer(help="Plan schema changes.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def schema() -> None:
    """Plan schema changes."""


@app.command("plan")
def plan(
    desired: Annotated[Path, typer.Option("--schema", help="The desired schema, a .pg file.", metavar="FILE")],
    uri: Annotated[str | None, typer.Argument(help="A graph to plan for.", metavar="URI")] = None,
    accepted: Annotated[
        Path | None, typer.Option("--from", help="Plan offline, from this .pg file.", metavar="FILE")
    ] = None,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Plan drops as hard drops: history is purged with them.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show the steps from one schema to another.

    Nothing is changed. A plan that can't be applied is still shown, and no failure.
    """
    from omnigraph.cli.files import read_source
    from omnigraph.cli.output import print_json, print_lines, print_note
    from omnigraph.language.migration import evolve
    from omnigraph.language.schema.compile import accept_schema, declare_schema

    if accepted is None:
        addressed = f"can't open the graph '{uri}'" if uri is not None else "no graph addressed"
        raise BadRequestError(f"{addressed}: this version plans between schema files only; pass --from FILE")
    if uri is not None:
        raise BadRequestError("a graph URI and --from are mutually exclusive")
    before = accept_schema(read_source(accepted), str(accepted))
    after = declare_schema(read_source(desired), str(desired))
    migration = evolve(before, after, allow_data_loss=allow_data_loss).plan
    for note in migration.notes:
        print_note(note.render())
    if json:
        wire = migration.to_json_dict()
        steps = wire["steps"]
        print_json({"uri": str(accepted), "supported": wire["supported"], "step_count": len(steps), "steps": steps})
        return
    lines = [f"schema plan for {accepted}", f"supported: {'yes' if migration.supported else 'no'}"]
    lines += [f"- {step.line()}" for step in migration.steps] or ["no schema changes"]
    print_lines(lines)
