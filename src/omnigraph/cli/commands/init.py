"""`omnigraph init`: a new graph from a schema file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.clusters import refuse_inside_cluster
from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Uri
from omnigraph.cli.output import print_lines


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
