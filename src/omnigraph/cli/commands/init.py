"""`omnigraph init`: a new graph from a schema file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.clusters import refuse_inside_cluster
from omnigraph.cli.files import read_source
from omnigraph.cli.output import print_lines
from omnigraph.cli.scope import storage_uri


def init(
    uri: Annotated[str, typer.Argument(help="Where the graph goes: a path, file:// or s3://.", metavar="URI")],
    schema: Annotated[Path, typer.Option("--schema", help="The schema, a .pg file.", metavar="FILE")],
    force: Annotated[
        bool, typer.Option("--force", help="Take a place that an interrupted init left behind; never a graph.")
    ] = False,
) -> None:
    """Create a graph.

    Parent directories are made. A place that holds a graph already is refused.
    """
    from omnigraph.language.schema.compile import accept_schema

    place = storage_uri(uri, "init")
    source = read_source(schema)
    accept_schema(source, str(schema))  # first, so that a mistake is shown with the name of the file
    refuse_inside_cluster(place)
    import omnigraph

    omnigraph.init(place, source, force=force).close()
    print_lines([f"initialized {uri}"])
