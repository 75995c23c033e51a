"""A read with what each of its operators did: the rows on stdout, the rest on stderr, on storage and on servers.

Only the process that runs a query can measure it. A server answers with rows or with a profile, so there the read runs
twice, the second time on the commit that the rows are of.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.read_printer import ReadPrinter
from omnigraph.cli.reading_point import ReadingPoint

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi


def show_profiled(
    graph: GraphApi,
    source: str,
    name: str | None,
    given: Mapping[str, Any],
    point: ReadingPoint,
    printer: ReadPrinter,
) -> None:
    from omnigraph.engine.query.read import ReadOptions
    from omnigraph.graph import Graph

    if isinstance(graph, Graph):
        result = graph.query(source, name, given, **point.pinned, options=ReadOptions(profile=True))
        printer.show(result)
        profile = result.profile.measured
    else:
        rows = graph.query(source, name, given, **point.pinned)
        printer.show(rows)
        profile = graph.profile(source, name, given, snapshot=rows.graph_commit_id)
    sys.stdout.flush()
    print(*profile.lines(), sep="\n", file=sys.stderr)
