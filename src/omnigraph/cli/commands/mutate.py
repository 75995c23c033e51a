"""`omnigraph mutate`: runs one mutation query as one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Branch, Json, NamedParams, Params, ParamsFile, QueryFile, QueryString, Uri
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.progress import working
from omnigraph.cli.query_input import Parameters, affected, name_and_uri, open_stored, query_source

if TYPE_CHECKING:
    from omnigraph.api.load import MutationReceipt


def mutate(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="The mutation in the source, or a stored one.", metavar="NAME"),
    ] = None,
    uri: Uri = None,
    query: QueryFile = None,
    query_string: QueryString = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: NamedParams = None,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", help="Only if the branch is at this commit; else exit 4.", metavar="COMMIT"),
    ] = None,
    json: Json = False,
) -> None:
    """Run a mutation: inserts, updates or deletes, all or nothing (alias: change)."""
    name, uri = name_and_uri(name, uri)
    invocation = Invocation.of(ctx, name)
    source = query_source(name, query, query_string, kind="mutation")
    parameters = Parameters.given(params, params_file, param)
    if source is None:
        receipt = _stored(invocation, str(name), parameters, branch, if_commit, uri)
    else:
        target, graph = invocation.open(uri)
        with graph, working("changing the graph"):
            actor = invocation.actor_of(target)
            given = parameters.of_source(source, name)
            receipt = graph.mutate(source, name, given, branch=branch, if_commit=if_commit, actor=actor)
    if json:
        print_json(receipt)
        return
    lines = [f"changed {receipt.branch} via {receipt.query_name}: {affected(receipt)}"]
    if receipt.actor_id is not None:
        lines.append(f"actor_id: {receipt.actor_id}")
    print_lines(lines)


def _stored(
    invocation: Invocation, name: str, given: Parameters, branch: str, if_commit: str | None, uri: str | None
) -> MutationReceipt:
    """A mutation that the server has under this name."""
    from omnigraph.api.load import MutationReceipt

    with open_stored(invocation, name, "mutation", uri) as graph, working("changing the graph"):
        receipt = graph.invoke(
            name, given.of_stored(graph, name), branch=branch, if_commit=if_commit, expect_mutation=True
        )
    assert isinstance(receipt, MutationReceipt)
    return receipt
