"""Stored queries as tools of their own: typed by their parameters, described by their annotations.

A graph may have hundreds of them, and a model reads the list before it does anything. So arguments that are the same
for all of them (`branch`, `continuation`, ...) are explained once, by the instructions and the general tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast, get_args

import mcp_types as types

from omnigraph.api import wire
from omnigraph.api.graph import GraphApi
from omnigraph.api.load import MutationReceipt
from omnigraph.api.queries import ParamDescriptor, StoredQueries, StoredQuery
from omnigraph.errors import BadRequestError, ConflictError, PolicyError, RequestShapeError
from omnigraph.language.query.compile import compile_queries, describe_parameters
from omnigraph.mcp.graph import Rows, Terms
from omnigraph.mcp.guide import catalog_of
from omnigraph.mcp.tool import (
    Branch,
    Continuation,
    IdempotencyKey,
    IfCommit,
    PagePosition,
    PinnedPoint,
    Result,
    Snapshot,
    Toolcall,
    WriteBranch,
    hints,
)
from omnigraph.mcp.tools import TOOLS
from omnigraph.mcp.tools.queries import page_of_rows

_KINDS: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "bigint": {"type": ["integer", "string"], "description": "An integer; as a decimal string beyond 2^53."},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {"type": "string"},
}
_READ_CONTROLS: Final = {"branch": Branch, "snapshot": Snapshot, "continuation": Continuation}
_WRITE_CONTROLS: Final = {"branch": WriteBranch, "if_commit": IfCommit, "idempotency_key": IdempotencyKey}
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class QueryTool:
    """A stored query under the name that agents call it by."""

    name: str
    query: StoredQuery

    @property
    def writes(self) -> bool:
        return self.query.mutation

    @property
    def controls(self) -> dict[str, str]:
        """The arguments about the call and how they are named: a parameter of the query keeps the name it shares."""
        taken = {param.name for param in self.query.params}
        names = _WRITE_CONTROLS if self.query.mutation else _READ_CONTROLS
        return {name: f"_{name}" if name in taken else name for name in names}

    def describe(self) -> types.Tool:
        query = self.query
        lines = [query.description or f"The stored {'mutation' if query.mutation else 'query'} {query.name}."]
        if query.instruction is not None:
            lines.append(query.instruction)
        required = [param.name for param in query.params if not param.nullable]
        if query.mutation:
            required.append(self.controls["branch"])
        properties = {param.name: _schema(param) for param in query.params}
        for name, argument in self.controls.items():
            properties[argument] = {"type": "string"}
            if argument != name:  # explained only under a name that no other tool has
                _, explanation = get_args((_WRITE_CONTROLS if query.mutation else _READ_CONTROLS)[name])
                properties[argument]["description"] = explanation.description
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return types.Tool(
            name=self.name,
            description="\n".join(lines),
            input_schema=schema,
            annotations=hints(None, writes=query.mutation, destructive=query.mutation),
        )

    def bind(self, arguments: Mapping[str, Any]) -> Callable[[GraphApi, Terms, str | None], Result]:
        return partial(self._run, arguments)

    def _run(self, arguments: Mapping[str, Any], graph: GraphApi, terms: Terms, actor: str | None) -> Result:
        declared = {param.name for param in self.query.params}
        controls = {name: arguments.get(argument) for name, argument in self.controls.items()}
        self._check(arguments, declared, controls)
        params = {name: value for name, value in arguments.items() if name in declared}
        if self.query.mutation:
            receipt = graph.invoke(
                self.query.name,
                params,
                branch=terms.writable(controls["branch"] or ""),
                if_commit=controls["if_commit"],
                actor=actor,
                idempotency_key=controls["idempotency_key"],
            )
            members: Result = wire.to_builtins(receipt)
            return members
        request = {name: value for name, value in arguments.items() if name != self.controls["continuation"]}
        position = PagePosition.of(self.name, request, controls["continuation"])
        point = PinnedPoint.of(controls["branch"], controls["snapshot"], position)
        rows = graph.invoke(self.query.name, params, **point.keywords)
        assert not isinstance(rows, MutationReceipt), "a stored query stays what it was listed as"
        return page_of_rows(Toolcall(graph, terms, actor, position), point, rows)

    def _check(self, arguments: Mapping[str, Any], declared: set[str], controls: Mapping[str, Any]) -> None:
        valid_names = [*sorted(declared), *self.controls.values()]
        if strangers := sorted(set(arguments) - set(valid_names)):
            raise RequestShapeError(
                f"{self.name}: unknown argument '{strangers[0]}'; its arguments are: {', '.join(valid_names)}"
            )
        for name, value in controls.items():
            if value is not None and not isinstance(value, str):
                raise RequestShapeError(f"{self.name}: '{self.controls[name]}' must be a string")


def query_tools(graph: GraphApi, *, read_only: bool) -> dict[str, QueryTool]:
    """The stored queries of a graph by their tool names. An actor who may not see them gets none."""
    try:
        queries = graph.stored_queries().queries
    except PolicyError:
        return {}
    return {tool.name: tool for tool in _name_tools(queries) if not (read_only and tool.writes)}


def _name_tools(queries: Iterable[StoredQuery]) -> Iterable[QueryTool]:
    """Every query under a name of its own. One that is called like a tool every graph has is offered as
    `stored_<name>`; where that is the name of yet another query, or was cut to it, with a number behind it."""
    taken = set(TOOLS)
    renamed = []
    for query in queries:
        name = _NOT_IN_A_NAME.sub("_", query.tool_name)[:_LONGEST_NAME]
        if name in taken:
            renamed.append((f"stored_{name}" if name in TOOLS else name, query))
        else:
            taken.add(name)
            yield QueryTool(name, query)
    for name, query in renamed:
        numbered = (f"{name[: _LONGEST_NAME - 4]}_{number}" for number in range(2, 1000))
        free = next(each for each in (name[:_LONGEST_NAME], *numbered) if each not in taken)
        taken.add(free)
        yield QueryTool(free, query)


def _schema(param: ParamDescriptor) -> dict[str, Any]:
    if param.kind == "vector":
        size = {} if param.vector_dim is None else {"minItems": param.vector_dim, "maxItems": param.vector_dim}
        return {"type": "array", "items": {"type": "number"}, **size}
    if param.kind == "list":
        return {"type": "array", "items": _KINDS.get(param.item_kind or "", {})}
    return dict(_KINDS.get(param.kind, {}))


def with_query_files(graph: GraphApi, texts: Iterable[tuple[str, str]]) -> GraphApi:
    """The graph with the queries of some texts, each given as a name for messages and the text itself.

    Raises when a query does not fit the schema of main, or when two have one name.
    """
    return cast(GraphApi, _WithQueryFiles(graph, texts))  # everything else comes from the graph


class _WithQueryFiles:
    def __init__(self, graph: GraphApi, texts: Iterable[tuple[str, str]]) -> None:
        self._graph = graph
        self._sources: dict[str, str] = {}
        catalog = catalog_of(graph.schema.show())
        entries = []
        for path, text in texts:
            for query in compile_queries(text, catalog, path).queries:
                if query.name in self._sources:
                    raise ConflictError(f"{path}: a query called '{query.name}' is given already; rename one of them")
                self._sources[query.name] = text
                entries.append(StoredQuery.of(query, describe_parameters(query.parameters)))
        self._entries = StoredQueries(tuple(sorted(entries, key=lambda entry: entry.name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def stored_queries(self) -> StoredQueries:
        return self._entries

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **point: Any,
    ) -> Rows | MutationReceipt:
        entry = next((each for each in self._entries.queries if each.name == name), None)
        if entry is None:
            raise BadRequestError(f"there is no stored query '{name}'")
        source = self._sources[name]
        if not entry.mutation:
            return self._graph.stream(source, name, params, **point)
        branch = point.get("branch")
        return self._graph.mutate(
            source, name, params, branch=branch, if_commit=if_commit, actor=actor, idempotency_key=idempotency_key
        )
