"""What `query` and `mutate` run: the source text, the name in it, and the parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.json_input import json_object
from omnigraph.cli.progress import working
from omnigraph.cli.reading_point import ReadingPoint
from omnigraph.cli.scope import StoreScope
from omnigraph.cli.served import open_served
from omnigraph.cli.usage import at_most_one
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.graph import QueryRows
    from omnigraph.client import RemoteGraph


def query_source(name: str | None, file: Path | None, text: str | None, *, kind: str) -> str | None:
    """The ad-hoc source; None where a name means a stored query, which only a server has."""
    at_most_one(("--query", file), ("--query-string", text))
    if text is not None:
        if not text.strip():
            raise BadRequestError("--query-string must not be empty")
        return text
    if file is not None:
        return read_source(file)
    if name is None:
        raise BadRequestError(f"provide a {kind} name, or the {kind} itself with --query <file> or -e '<gq>'")
    return None


def open_stored(invocation: Invocation, name: str, kind: str) -> RemoteGraph:
    """The graph whose server has a query of this name."""
    target = invocation.target()
    if isinstance(target, StoreScope):
        raise BadRequestError(
            f"by-name invocation needs a server: '{name}' would be a stored {kind}; "
            "on storage, give the source with --query <file> or -e '<gq>'"
        )
    if kind == "mutation":
        invocation.actor_of(target)
    return open_served(target, invocation.config)


def stored_rows(invocation: Invocation, name: str, given: dict[str, Any], point: ReadingPoint) -> QueryRows:
    """The rows of a read that the server has under this name."""
    with open_stored(invocation, name, "query") as graph, working("running the query"):
        rows = graph.invoke(name, given, **point.pinned, expect_mutation=False)
    return cast("QueryRows", rows)


def parameters(text: str | None, file: Path | None) -> dict[str, Any]:
    at_most_one(("--params", text), ("--params-file", file))
    if file is not None:
        text = read_source(file)
    if text is None:
        return {}
    return json_object(text, "--params" if file is None else f"'{file}'", "params must be a JSON object")
