"""The `schema` commands show, plan and apply the schema of a graph; `init` creates a graph from a schema file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from omnigraph.api.schema import Dedupe
from omnigraph.cli.inputs import read_source
from omnigraph.cli.params import branch_option, file_option, json_option, read_point_options
from omnigraph.cli.printing.output import print_json, print_lines, print_note, print_text
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope, refuse_inside_cluster
from omnigraph.process import PROCESS

dedupe_option = click.option(
    "--dedupe",
    type=click.Choice(["first", "last"]),
    help="Where an edge type gets a key: which of several edges with equal keys stays.",
)


@read_point_options
@json_option
def show(invocation: Invocation, point: dict[str, Any]) -> None:
    from omnigraph.api.schema import SchemaSource

    with invocation.open() as graph:
        source = graph.schema.show(**point)
    if invocation.json:
        print_json(SchemaSource(source))
    else:
        print_text(source)


@file_option("--schema", "desired", required=True, help="The desired schema, a .pg file.")
@file_option("--from", "accepted", help="Plan offline, from this .pg file.")
@branch_option
@click.option("--allow-data-loss", is_flag=True, help="Plan drops as hard drops: history is purged with them.")
@dedupe_option
@json_option
def plan(
    invocation: Invocation,
    desired: Path,
    accepted: Path | None,
    branch: str,
    allow_data_loss: bool,
    dedupe: Dedupe | None,
) -> None:
    invocation.instead_of_graph("--from", accepted)
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
        planned_for = invocation.target.uri
        with invocation.open() as graph, working("planning the change"):
            migration = graph.schema.plan(source, branch=branch, allow_data_loss=allow_data_loss, dedupe=dedupe)
    for note in migration.notes:
        print_note(note.render())
    lines = [f"schema plan for {planned_for}", f"supported: {'yes' if migration.supported else 'no'}"]
    lines += migration.lines() or ["no schema changes"]
    invocation.print(SchemaPlanOutput.of(planned_for, migration), lines)


@file_option("--schema", "desired", required=True, help="The desired schema, a .pg file.")
@branch_option
@click.option("--allow-data-loss", is_flag=True, help="Drop hard: history is purged with what is dropped.")
@dedupe_option
@json_option
def apply(invocation: Invocation, desired: Path, branch: str, allow_data_loss: bool, dedupe: Dedupe | None) -> None:
    from omnigraph.language.schema.compile import declare_schema

    target = invocation.target
    source = read_source(desired)
    declare_schema(source, str(desired))  # first, so that a mistake is shown with the name of the file
    if isinstance(target, StoreScope):
        refuse_inside_cluster(target.uri)
    invocation.echo()
    actor = invocation.write_actor()
    with invocation.open() as graph, working("applying the schema"):
        applied = graph.schema.apply(source, branch=branch, allow_data_loss=allow_data_loss, dedupe=dedupe, actor=actor)
    for note in applied.notes:
        print_note(note.render())
    lines = [
        f"schema apply for {target.uri}",
        f"supported: {'yes' if applied.supported else 'no'}",
        f"applied: {'yes' if applied.applied else 'no'}",
        f"graph_manifest_version: {applied.graph_manifest_version}",
    ]
    lines += [f"- {step.line()}" for step in applied.steps] or ["no schema changes"]
    invocation.print(invocation.name_graph(applied), lines)


@file_option("--schema", required=True, help="The schema, a .pg file.")
@click.option("--force", is_flag=True, help="Take a place that an interrupted init left behind; never a graph.")
def init(invocation: Invocation, schema: Path, force: bool) -> None:
    from omnigraph.language.schema.compile import accept_schema

    place = invocation.new_storage()
    source = read_source(schema)
    accept_schema(source, str(schema))  # first, so that a mistake is shown with the name of the file
    refuse_inside_cluster(place)
    import omnigraph

    PROCESS.import_arrow()
    omnigraph.init(place, source, force=force).close()
    print_lines([f"initialized {place}"])
