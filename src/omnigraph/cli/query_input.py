"""What `query` and `mutate` run: the source text, the name in it, and the parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from omnigraph.api.cell_text import counted
from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.json_input import json_object
from omnigraph.cli.progress import working
from omnigraph.cli.reading_point import ReadingPoint
from omnigraph.cli.scope import StoreScope
from omnigraph.cli.served import open_served
from omnigraph.cli.usage import UsageError, at_most_one
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.graph import QueryRows
    from omnigraph.api.load import MutationReceipt
    from omnigraph.client import RemoteGraph

_TEXTS: Final = frozenset({"string", "date", "datetime", "blob"})
"""Types whose values are texts, and need no quotes."""


def name_and_uri(name: str | None, uri: str | None) -> tuple[str | None, str | None]:
    """The arguments of a query told apart, in any order: a name is an identifier, and a graph's URI is not, unless both
    are there."""
    if (file := next((each for each in (uri, name) if each is not None and each.endswith(".gq")), None)) is not None:
        raise UsageError(f"Got unexpected extra argument(s) ({file}); a file of queries is given with --query")
    if name is None or (uri is not None and (name.isidentifier() or not uri.isidentifier())):
        return name, uri
    return (name, None) if name.isidentifier() else (uri, name)


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


def open_stored(invocation: Invocation, name: str, kind: str, uri: str | None = None) -> RemoteGraph:
    """The graph whose server has a query of this name."""
    target = invocation.target(uri)
    if isinstance(target, StoreScope):
        raise BadRequestError(
            f"by-name invocation needs a server: '{name}' would be a stored {kind}; "
            "on storage, give the source with --query <file> or -e '<gq>'"
        )
    if kind == "mutation":
        invocation.actor_of(target)
    return open_served(target, invocation.config)


def stored_rows(
    invocation: Invocation, name: str, given: Parameters, point: ReadingPoint, uri: str | None = None
) -> QueryRows:
    """The rows of a read that the server has under this name."""
    with open_stored(invocation, name, "query", uri) as graph, working("running the query"):
        rows = graph.invoke(name, given.of_stored(graph, name), **point.pinned, expect_mutation=False)
    return cast("QueryRows", rows)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a command line gives a query: values of JSON, and texts that are read as the declared types."""

    values: dict[str, Any]
    texts: dict[str, str]

    @classmethod
    def given(cls, text: str | None, file: Path | None, named: Sequence[str] | None) -> Parameters:
        at_most_one(("--params", text), ("--params-file", file))
        where = "--params" if file is None else f"'{file}'"
        text = text if file is None else read_source(file)
        values = {} if text is None else json_object(text, where, "params must be a JSON object")
        texts: dict[str, str] = {}
        for each in named or ():
            name, assigned, value = each.removeprefix("$").partition("=")
            if not assigned or not name:
                raise UsageError(f"--param takes NAME=VALUE, not '{each}'")
            if name in texts or name in values:
                raise UsageError(f"the parameter '{name}' is given twice")
            texts[name] = value
        return cls(values, texts)

    def of_source(self, source: str, name: str | None) -> dict[str, Any]:
        """The values for a query of a text; an error in the text is raised when it is run."""
        if not self.texts:
            return self.values
        from omnigraph.engine.query.declared import declared_types

        return self._read(declared_types(source, name))

    def of_stored(self, graph: RemoteGraph, name: str) -> dict[str, Any]:
        """The values for a query that a server has under this name, which is asked for its types."""
        if not self.texts:
            return self.values
        found = next((query for query in graph.stored_queries().queries if query.name == name), None)
        return self._read({} if found is None else {parameter.name: parameter.kind for parameter in found.params})

    def _read(self, types: Mapping[str, str]) -> dict[str, Any]:
        return {**self.values, **{name: _typed(name, text, types.get(name)) for name, text in self.texts.items()}}


def affected(receipt: MutationReceipt) -> str:
    """How many entities a mutation changed, for a person."""
    return f"{counted(receipt.affected_nodes, 'node')}, {counted(receipt.affected_edges, 'edge')}"


def _typed(name: str, text: str, type_: str | None) -> Any:
    if type_ is None or type_.lower() in _TEXTS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequestError(f"--param {name}: expected {type_} as JSON writes it, got '{text}'") from None
