"""`omnigraph alias`: stored reads of a server under short names of the operator's own."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.operator_config import Alias, OperatorConfig, listed, load_config
from omnigraph.cli.options import Json, NamedParams, Params, ParamsFile
from omnigraph.cli.progress import working
from omnigraph.cli.query_input import Parameters
from omnigraph.cli.read_printer import ReadPrinter
from omnigraph.cli.scope import server_scope
from omnigraph.cli.served import open_served
from omnigraph.cli.usage import at_most_one
from omnigraph.errors import BadRequestError


def alias(
    name: Annotated[str, typer.Argument(help="The alias, of the configuration.", metavar="NAME")],
    args: Annotated[
        list[str] | None, typer.Argument(help="Its parameters, in their declared order.", metavar="ARGS")
    ] = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: NamedParams = None,
    format: Annotated[ReadFormat | None, typer.Option("--format", help="How rows are shown.  [default: table]")] = None,
    json: Json = False,
) -> None:
    """Run a stored read of a server by the alias that the configuration has for it."""
    at_most_one(("--format", format), ("--json", json))
    explicit = Parameters.given(params, params_file, param)
    config = load_config()
    found = _declared(config, name)
    shown = ReadFormat.JSON if json else format or (None if found.format is None else ReadFormat(found.format))
    with open_served(server_scope(found.server, found.graph, config), config) as graph, working("running the query"):
        given = {**found.params, **_positional(found, args or []), **explicit.of_stored(graph, found.query)}
        rows = graph.invoke(found.query, given or None, expect_mutation=False)
    ReadPrinter.chosen(shown, config.defaults).show(rows)  # type: ignore[arg-type]  # a mutation was refused


def _declared(config: OperatorConfig, name: str) -> Alias:
    if name not in config.aliases:
        raise BadRequestError(f"unknown alias '{name}'; defined aliases: {listed(config.aliases)}")
    return config.aliases[name]


def _positional(found: Alias, given: Sequence[str]) -> dict[str, Any]:
    """Arguments by their declared names: JSON where it is, a text where it is not."""
    if len(given) > len(found.args):
        names = f" ({', '.join(found.args)})" if found.args else ""
        raise BadRequestError(
            f"alias '{found.name}' takes {len(found.args)} positional arg(s){names}, got {len(given)}"
        )
    return {name: _value(text) for name, text in zip(found.args, given, strict=False)}


def _value(text: str) -> Any:
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError):
        return text
