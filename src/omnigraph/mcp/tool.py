"""One tool of an agent: its description, its arguments, and pages of results within a budget.

The modules of `mcp.tools` and `mcp.stored_queries` are built from it. Nothing is kept between pages: a continuation is
short, because a model has to repeat it, and names the commits that the first page read and how many items were
delivered. A later page of a branch names a version of that branch and not the commit alone: a policy governs a commit
by the branch it was made on, and a young branch has commits of the branch it came from.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

import mcp_types as types
import msgspec
from msgspec import Meta, Struct

from omnigraph.api import wire
from omnigraph.api.graph import GraphApi
from omnigraph.api.queries import ReadPoint
from omnigraph.errors import BadRequestError, ConflictError, RequestShapeError
from omnigraph.language.catalog import Catalog
from omnigraph.mcp.graph import Rows, Terms
from omnigraph.mcp.guide import catalog_of


@dataclass(frozen=True, slots=True)
class Toolcall:
    """One call of a tool: the graph, the terms of the endpoint, the actor of writes, and the page that is asked for."""

    graph: GraphApi
    terms: Terms
    actor: str | None
    position: PagePosition

    def page(
        self, head: Mapping[str, Any], name: str, items: Iterable[Any], pins: Callable[[], Iterable[str]] = tuple
    ) -> dict[str, Any]:
        """A result with the members of `head` and, as member `name`, the next items that fit. Only a page that is
        continued needs its pins."""
        delivered = self.position.delivered
        room = self.terms.max_bytes - len(wire.encode(head))
        taken: list[Any] = []
        for item in map(wire.to_builtins, islice(items, delivered, None)):
            size = len(msgspec.json.encode(item)) + 1
            if taken and size > room:
                return {
                    **head,
                    name: taken,
                    "continuation": self.position.token(pins(), delivered + len(taken)),
                    "note": "there is more: call again with the same arguments and this continuation",
                }
            if size > room:
                item, head = shorten(item, room), {**head, "shortened": SHORTENED}
            taken.append(item)
            room -= size
        return {**head, name: taken}


Result: TypeAlias = dict[str, Any]
"""The members of the result of a tool."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function as a tool. One that writes is not offered in read-only mode."""

    name: str
    title: str
    description: str
    arguments: type[Struct]
    function: Callable[..., Result]
    writes: bool
    destructive: bool

    def bind(self, arguments: dict[str, Any]) -> Callable[[GraphApi, Terms, str | None], Result]:
        """The call with these arguments, which are checked at once."""
        try:
            struct = msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError as error:
            fields = msgspec.structs.fields(self.arguments)
            names = ", ".join(f"{field.encode_name}{'' if field.required else '?'}" for field in fields)
            raise RequestShapeError(f"{self.name}: {error}; its arguments are: {names or 'none'}") from None
        keywords, request = msgspec.structs.asdict(struct), msgspec.to_builtins(struct)
        request.pop("continuation", None)
        position = PagePosition.of(self.name, request, keywords.pop("continuation", None))
        return lambda graph, terms, actor: self.function(Toolcall(graph, terms, actor, position), **keywords)

    def describe(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=_input_schema(self.arguments),
            annotations=hints(self.title, writes=self.writes, destructive=self.destructive),
        )


def tool(
    title: str, *, writes: bool = False, destructive: bool = False, paged: bool = True
) -> Callable[[Callable[..., Result]], Tool]:
    """A tool with the name of the function, whose docstring describes it and whose keywords are its arguments.

    A tool that reads in pages also has the argument `continuation`. An unknown argument is refused: an agent that
    misspelled one would never learn why it had no effect.
    """

    def make(function: Callable[..., Result]) -> Tool:
        annotations = get_type_hints(function, include_extras=True)
        fields: list[Any] = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((parameter.name, annotations[parameter.name], *default))
        if paged and not writes:
            fields.append(("continuation", Continuation, None))
        arguments = msgspec.defstruct(
            function.__name__, fields, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
        )
        description = " ".join((function.__doc__ or "").split())
        return Tool(function.__name__, title, description, arguments, function, writes, destructive)

    return make


def hints(title: str | None, *, writes: bool, destructive: bool = False) -> types.ToolAnnotations:
    """Hints by which clients decide whether they ask a person for consent. Nothing outside the graph is changed."""
    of_writes = {"destructive_hint": destructive, "idempotent_hint": False} if writes else {}
    return types.ToolAnnotations(title=title, read_only_hint=not writes, open_world_hint=False, **of_writes)


@functools.cache
def _input_schema(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a struct of arguments, in one piece."""
    _, components = msgspec.json.schema_components([arguments])
    whole = components.pop(arguments.__name__)
    if components:
        raise AssertionError(f"the arguments of {arguments.__name__} are not flat: {', '.join(components)}")
    schemas = {}
    for name, schema in whole["properties"].items():
        # There is no null: an optional argument is left out instead.
        kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) > 1:
            schema["anyOf"] = kinds
        elif kinds:
            schema = {**kinds[0], **schema}
        if schema.get("default", ...) is None:
            del schema["default"]
        schemas[name] = schema
    required = {"required": whole["required"]} if whole.get("required") else {}
    return {"type": "object", "properties": schemas, "additionalProperties": False, **required}


_TOKEN: Final = re.compile(r"c1\.(\d{1,12})\.([0-9a-f]{8})((?:\.[A-Za-z0-9_-]{1,64})*)")
_CUTS: Final = (4000, 1000, 250, 60, 20)
SHORTENED: Final = "an item larger than the whole answer may be was shortened: its cut values end in '…'"


@dataclass(frozen=True, slots=True)
class PagePosition:
    """The position of a page in a result. `pins` are the commits that the first page read; the first page has none."""

    request: bytes
    """A digest of the tool and its arguments."""
    pins: tuple[str, ...] = ()
    delivered: int = 0

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, Any], continuation: str | None) -> PagePosition:
        first = cls(hashlib.sha256(msgspec.json.encode([tool, arguments], order="sorted")).digest())
        if continuation is None:
            return first
        match = _TOKEN.fullmatch(continuation.strip())
        if match is not None:
            position = cls(first.request, tuple(match[3].split(".")[1:]), int(match[1]))
            if position.token(position.pins, position.delivered) == match[0]:
                return position
        raise BadRequestError(
            f"continuation '{continuation[:80]}' does not belong to this call; repeat the arguments of the first "
            "call exactly and add the continuation of its answer, or leave the continuation out to start again"
        )

    def token(self, pins: Iterable[str], delivered: int) -> str:
        """The continuation after so many items, with a digest that detects a letter that was copied wrong."""
        parts = (str(delivered), *pins)
        check = hashlib.sha256(self.request + ".".join(parts).encode()).hexdigest()[:8]
        return ".".join(["c1", parts[0], check, *parts[1:]])


def shorten(item: Any, room: int) -> Any:
    """An item that is too large by itself, with its long texts and lists cut until it fits, if that is possible."""
    for cut in _CUTS:
        item = _cut(item, cut)
        if len(msgspec.json.encode(item)) <= room:
            break
    return item


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}…"
    if isinstance(value, dict):
        return {key: _cut(member, length) for key, member in value.items()}
    if isinstance(value, list):
        kept = [_cut(member, length) for member in value[: max(2, length // 8)]]
        return kept if len(kept) == len(value) else [*kept, f"{len(value) - len(kept)} more …"]
    return value


_COMMITS_PER_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class PinnedPoint:
    """The point that a tool reads. On a later page, or between several reads, `commit` is the one that the first read
    saw; the point of a branch then has the version that must turn out to be this commit."""

    point: ReadPoint
    commit: str | None = None

    @classmethod
    def of(cls, branch: str | None, snapshot: str | None, position: PagePosition | None = None) -> PinnedPoint:
        """The point that the arguments name; on a later page, the one that the first page read."""
        point = ReadPoint(branch, snapshot).normalize()
        if point.branch is None or position is None or not position.pins:
            return cls(point)
        commit, version = position.pins
        return cls(ReadPoint(point.branch, version=int(version)), commit)

    @property
    def keywords(self) -> dict[str, Any]:
        """As calls of a graph take them."""
        return self.point.keywords

    def catalog(self, graph: GraphApi) -> Catalog:
        """The schema at this point, which need not be that of main."""
        return catalog_of(graph.schema.show(**self.keywords))

    def pin(self, graph: GraphApi) -> PinnedPoint:
        """The same snapshot for several reads, whatever becomes of the branch meanwhile."""
        if self.point.branch is None:
            return replace(self, commit=self.point.snapshot)
        if self.point.version is not None:
            return self
        head = graph.commits(self.point.branch, limit=1).commits[0]
        return PinnedPoint(ReadPoint(self.point.branch, version=head.version), head.id)

    def check(self, rows: Rows) -> Rows:
        """The rows, if they were read from the commit of this point."""
        if self.point.branch is not None and self.commit is not None and rows.graph_commit_id != self.commit:
            raise self._branch_replaced(self.commit)
        return rows

    def at(self, graph: GraphApi, commit: str) -> PinnedPoint:
        """The same point for further reads, pinned to the commit that a first read saw."""
        branch = self.point.branch
        if branch is None or self.point.version is not None:
            return replace(self, commit=commit)
        before: int | None = None
        while True:
            page = graph.commits(branch, limit=_COMMITS_PER_PAGE, before=before)
            for entry in page.commits:
                if entry.id == commit:
                    return PinnedPoint(ReadPoint(branch, version=entry.version), commit)
            if (before := page.next_version) is None:
                raise self._branch_replaced(commit)

    @property
    def pins(self) -> list[str]:
        """The parts of a continuation that name this point."""
        return [str(part) for part in (self.commit, self.point.version) if part is not None]

    def _branch_replaced(self, commit: str) -> ConflictError:
        return ConflictError(
            f"branch '{self.point.branch}' is not the one of commit {commit} any more: it was deleted and made again; "
            "ask again without a continuation"
        )


def head_of(graph: GraphApi, branch: str) -> str:
    """The commit that a branch is at now."""
    return graph.commits(branch.strip(), limit=1).commits[0].id


Branch: TypeAlias = Annotated[str | None, Meta(description="The branch to read; main when left out.")]
Snapshot: TypeAlias = Annotated[
    str | None, Meta(description="A commit id: read exactly this snapshot instead of a branch's head.")
]
Continuation: TypeAlias = Annotated[
    str | None, Meta(description="From the previous answer; the other arguments must be repeated unchanged.")
]
TypeName: TypeAlias = Annotated[
    str, Meta(description="A type of the schema, such as Person; node:Person or edge:Knows where both exist.")
]
Params: TypeAlias = Annotated[
    dict[str, Any] | None, Meta(description="Values of the query's parameters by name, without the $.")
]
QueryName: TypeAlias = Annotated[
    str | None, Meta(description="Which query of the text; needed only if it holds several.")
]
WriteBranch: TypeAlias = Annotated[str, Meta(description="The branch that is changed; one that branch_create made.")]
IfCommit: TypeAlias = Annotated[
    str | None, Meta(description="Only if the branch is at this commit; nothing is written otherwise.")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None, Meta(description="A name of your own for this write: repeating the call with it never writes twice.")
]
