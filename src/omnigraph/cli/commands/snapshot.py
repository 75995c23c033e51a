"""`omnigraph snapshot`: which tables, at which versions, a state of the graph is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from omnigraph.cli.options import AtSnapshot, AtTime, AtVersion, Json, ReadBranch, Uri

if TYPE_CHECKING:
    from omnigraph.engine.snapshot import Snapshot


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
    from omnigraph.cli.invocation import Invocation
    from omnigraph.cli.output import print_json, print_lines
    from omnigraph.cli.reading_point import ReadingPoint

    point = ReadingPoint.chosen(branch, snapshot, at_version, at)
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        output = _output(graph.snapshot(**point.pinned))
    if json:
        print_json(output)
        return
    lines = [f"{key}: {output[key]}" for key in output if key != "datasets"]
    for row in output["datasets"]:
        lines.append(
            f"{row['entity_kind']} type '{row['type_name']}' "
            f"published_dataset_version={row['published_dataset_version']} "
            f"native_dataset_branch={row['native_dataset_branch'] or 'main'} entities={row['entity_count']}"
        )
    print_lines(lines)


def _output(state: Snapshot) -> dict[str, Any]:
    from omnigraph.cli.commands.version import INTERNAL_SCHEMA_VERSION

    datasets = []
    for type_key in state.types():
        kind, _, name = type_key.partition(":")
        table = state.entry.tables[type_key]
        datasets.append(
            {
                "entity_kind": kind,
                "type_name": name,
                "dataset_path": table.path,
                "published_dataset_version": table.version,
                "native_dataset_branch": None,
                "entity_count": table.rows,
            }
        )
    return {
        "graph_branch": state.branch,
        "graph_manifest_version": state.version,
        "internal_schema_version": INTERNAL_SCHEMA_VERSION,
        "datasets": datasets,
    }
