"""`omnigraph snapshot`: which tables, at which versions, a state of the graph is made of."""

from __future__ import annotations

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import AtSnapshot, AtTime, AtVersion, Json, ReadBranch, Uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.reading_point import ReadingPoint


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
