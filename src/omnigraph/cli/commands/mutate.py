"""`omnigraph mutate`: runs one mutation query as one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Branch, Json, Params, ParamsFile, QueryFile, QueryString
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import working
from omnigraph.cli.query_input import open_stored, parameters, query_source

if TYPE_CHECKING:
    from omnigraph.api.load import MutationReceipt


def mutate(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="The mutation in the source, or a stored one.", metavar="NAME"),
    ] = None,
    query: QueryFile = None,
    query_string: QueryString = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", help="Only if the branch is at this commit; else exit 4.", metavar="COMMIT"),
    ] = None,
    json: Json = False,
) -> None:
    """Run a mutation: inserts, updates or deletes, all or nothing (alias: change)."""
    invocation = Invocation.of(ctx)
    source = query_source(name, query, query_string, kind="mutation")
    given = parameters(params, params_file)
    if source is None:
        receipt = _stored(invocation, str(name), given, branch, if_commit)
    else:
        target, graph = invocation.open()
        with graph, working("changing the graph"):
            actor = invocation.actor_of(target)
            receipt = graph.mutate(source, name, given, branch=branch, if_commit=if_commit, actor=actor)
    if json:
        print_json(receipt)
        return
    counts = f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
    lines = [f"changed {receipt.branch} via {receipt.query_name}: {counts}"]
    if receipt.actor_id is not None:
        lines.append(f"actor_id: {receipt.actor_id}")
    print_lines(lines)


def _stored(
    invocation: Invocation, name: str, given: dict[str, Any], branch: str, if_commit: str | None
) -> MutationReceipt:
    """A mutation that the server has under this name."""
    from omnigraph.api.load import MutationReceipt

    with open_stored(invocation, name, "mutation") as graph, working("changing the graph"):
        receipt = graph.invoke(name, given, branch=branch, if_commit=if_commit, expect_mutation=True)
    assert isinstance(receipt, MutationReceipt)
    return receipt
