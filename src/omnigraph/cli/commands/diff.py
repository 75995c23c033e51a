"""`omnigraph diff`: the net difference between two states of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.api.cell_text import counted
from omnigraph.api.enums import Operation
from omnigraph.cli.change_lines import diff_style
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Json, Kinds, Ops, Types, Uri, UriOption, given_uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import working

if TYPE_CHECKING:
    from omnigraph.api.changes import ChangeSet
    from omnigraph.api.graph import GraphApi


def diff(
    ctx: typer.Context,
    before: Annotated[str, typer.Argument(help="A branch, a commit, or branch@version.", metavar="FROM")],
    after: Annotated[str, typer.Argument(help="A branch, a commit, or branch@version.", metavar="TO")],
    place: Uri = None,
    uri: UriOption = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    json: Json = False,
) -> None:
    """Show which entities differ between two states, of any branches."""
    from omnigraph.api.changes import ChangeScope

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph, working("comparing states"):
        scope = ChangeScope.of(kinds=kind, types=type_, ops=op)
        found = graph.diff(_state(graph, before), _state(graph, after), scope)
    if json:
        print_json(found)
    else:
        print_lines(_lines(found), diff_style)


def _state(graph: GraphApi, text: str) -> str:
    """A branch or a commit as it is; `branch@version` as the commit it means."""
    branch, at, version = text.rpartition("@")
    return graph.resolve_snapshot(branch, version=int(version)) if at and version.isdecimal() else text


def _lines(found: ChangeSet) -> Iterator[str]:
    marks = {"insert": "+", "update": "~", "delete": "-"}
    for change in found.changes:
        ends = f" {change.src} -> {change.dst}" if change.src is not None else ""
        yield f"{marks[change.op]} {change.kind} {change.type_name} {change.id}{ends}"
    totals = ", ".join(counted(found.count(op), op) for op in Operation)
    yield f"{totals} from version {found.from_graph_manifest_version} to {found.to_graph_manifest_version}"
