"""One tool: what an agent is told of it, the struct its arguments are decoded into, and what it does.

Arguments that several tools have, described once.

Answers within a budget: as many items as fit, and a token that continues exactly where they ended.

A token is short, because a model has to repeat it. It names the commits that the first page read and how many items
were delivered; everything else is asked for again, and a digest tells whether it was. Nothing is kept between pages.

Which state a tool reads: a branch as it is now, a commit, or on later pages exactly what the first page read.

A later page of a branch names a version of that branch and not the commit alone. Rules govern a commit by the branch it
was made on, and a young branch has the commits of the branch it came from: who may read the one may still go on.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

import mcp_types as types
import msgspec
from msgspec import Meta, Struct

from omnigraph.api import wire
from omnigraph.api.graph import GraphApi
from omnigraph.errors import BadRequestError, ConflictError, RequestShapeError
from omnigraph.language.catalog import Catalog
from omnigraph.mcp.graph import MAIN, Rows, Terms
from omnigraph.mcp.guide import catalog_of


class Arguments(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The arguments of a tool. A member that a tool does not have is refused: an agent that misspelt one would never
    learn why it had no effect."""


@dataclass(frozen=True, slots=True)
class Toolcall:
    """A graph, and on which terms a tool works on it."""

    graph: GraphApi
    terms: Terms
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """`run` returns the members of the answer. A tool that writes is not offered in read-only mode."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Toolcall, Any], dict[str, Any]]
    writes: bool = False
    destructive: bool = False

    def decoded(self, given: dict[str, Any] | None) -> Arguments:
        try:
            return msgspec.convert(given or {}, self.arguments)
        except msgspec.ValidationError as error:
            known = ", ".join(
                f"{f.encode_name}{'' if f.required else '?'}" for f in msgspec.structs.fields(self.arguments)
            )
            raise RequestShapeError(f"{self.name}: {error}; its arguments are: {known or 'none'}") from None

    def described(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=input_schema(self.arguments),
            annotations=hints(self.title, writes=self.writes, destructive=self.destructive),
        )


def hints(title: str | None, *, writes: bool, destructive: bool = False) -> types.ToolAnnotations:
    """What clients may go by when they ask a person for consent. Nothing outside the graph is touched."""
    if not writes:
        return types.ToolAnnotations(title=title, read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        title=title,
        read_only_hint=False,
        destructive_hint=destructive,
        idempotent_hint=False,
        open_world_hint=False,
    )


@functools.cache
def input_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a struct of arguments, in one piece."""
    (schema,), components = msgspec.json.schema_components([arguments])
    name = schema["$ref"].rpartition("/")[2]
    whole = components.pop(name)
    if components:
        raise AssertionError(f"the arguments {name} are not flat: {', '.join(components)}")
    return {"type": "object", "properties": _told(whole["properties"]), "additionalProperties": False} | (
        {"required": whole["required"]} if whole.get("required") else {}
    )


def _told(properties: dict[str, Any]) -> dict[str, Any]:
    """What is optional is left out rather than sent as null, so null is not offered."""
    told = {}
    for name, schema in properties.items():
        schema = dict(schema)
        kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) > 1:
            schema["anyOf"] = kinds
        elif kinds:
            schema = {**kinds[0], **schema}
        if schema.get("default", ...) is None:
            del schema["default"]
        told[name] = schema
    return told


_TOKEN: Final = re.compile(r"c1\.(\d{1,12})\.([0-9a-f]{8})((?:\.[A-Za-z0-9_-]{1,64})*)")
_CUTS: Final = (4000, 1000, 250, 60, 20)
SHORTENED: Final = "an item larger than the whole answer may be was shortened: its cut values end in '…'"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a result a call stands: the commits that its first page read, none on the first page itself."""

    asked: bytes
    """A digest of the tool and its arguments."""
    pins: tuple[str, ...] = ()
    delivered: int = 0

    @classmethod
    def of(cls, tool: str, arguments: Any, continuation: str | None) -> Place:
        given = {name: value for name, value in msgspec.to_builtins(arguments).items() if name != "continuation"}
        first = cls(hashlib.sha256(msgspec.json.encode([tool, given], order="sorted")).digest())
        if continuation is None:
            return first
        found = _TOKEN.fullmatch(continuation.strip())
        if found is not None:
            place = cls(first.asked, tuple(found[3].split(".")[1:]), int(found[1]))
            if place.token(place.pins, place.delivered) == found[0]:
                return place
        raise BadRequestError(
            f"continuation '{continuation[:80]}' does not belong to this call; repeat the arguments of the first "
            "call exactly and add the continuation of its answer, or leave the continuation out to start again"
        )

    @property
    def pin(self) -> str | None:
        return self.pins[0] if self.pins else None

    def token(self, pins: Iterable[str], delivered: int) -> str:
        """The place after so many items. It tells a letter that was copied wrong from the right one."""
        position = (str(delivered), *pins)
        check = hashlib.sha256(self.asked + ".".join(position).encode()).hexdigest()[:8]
        return ".".join(["c1", position[0], check, *position[1:]])

    def page(
        self,
        terms: Terms,
        head: Mapping[str, Any],
        name: str,
        items: Iterable[Any],
        pins: Callable[[], Iterable[str]] = tuple,
    ) -> dict[str, Any]:
        """An answer with the members of `head` and, as member `name`, the items from here on that fit. Only a page
        that is continued asks for its pins."""
        room = terms.max_bytes - len(wire.encode(head))
        taken: list[Any] = []
        remaining = islice(items, self.delivered, None)
        for item, size in _sized(remaining):
            if taken and size > room:
                return {
                    **head,
                    name: taken,
                    "continuation": self.token(pins(), self.delivered + len(taken)),
                    "note": "there is more: call again with the same arguments and this continuation",
                }
            if size > room:
                item, head = shortened(item, room), {**head, "shortened": SHORTENED}
            taken.append(item)
            room -= size
        return {**head, name: taken}


def _sized(items: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    for item in items:
        built = wire.to_builtins(item)
        yield built, len(msgspec.json.encode(built)) + 1


def shortened(item: Any, room: int) -> Any:
    """An item that is too large by itself, with its long texts and lists cut until it fits, or is as short as it
    gets."""
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


_LOOKED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class State:
    """One of a branch and a snapshot. A pinned one has a `commit`; that of a branch also has the `version` which must
    turn out to be this commit."""

    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    commit: str | None = None

    @classmethod
    def of(cls, branch: str | None, snapshot: str | None, place: Place | None = None) -> State:
        """What is asked for; what the first page read where there was one."""
        if branch is not None and snapshot is not None:
            raise BadRequestError("give a branch or a snapshot, not both")
        if snapshot is not None:
            return cls(snapshot=snapshot.strip())
        named = MAIN if branch is None else branch.strip()
        if place is None or not place.pins:
            return cls(named)
        commit, version = place.pins
        return cls(named, None, int(version), commit)

    @property
    def options(self) -> dict[str, Any]:
        """As calls of a graph take them."""
        return {"branch": self.branch, "snapshot": self.snapshot, "version": self.version}

    def catalog(self, graph: GraphApi) -> Catalog:
        """The schema of this state, which need not be that of main."""
        return catalog_of(graph.schema_text(**self.options))

    def pinned(self, graph: GraphApi) -> State:
        """The same state for several reads, whatever becomes of the branch meanwhile."""
        if self.branch is None:
            return replace(self, commit=self.snapshot)
        if self.version is not None:
            return self
        head = graph.commits(self.branch, limit=1).commits[0]
        return State(self.branch, None, head.version, head.id)

    def rows(self, rows: Rows) -> Rows:
        """Rows that were read here, once it is certain that they were."""
        if self.branch is not None and self.commit is not None and rows.graph_commit_id != self.commit:
            raise self._gone(self.commit)
        return rows

    def at(self, graph: GraphApi, commit: str) -> State:
        """The same state for further reads, pinned to what a first read saw."""
        if self.branch is None or self.version is not None:
            return replace(self, commit=commit)
        before: int | None = None
        while True:
            page = graph.commits(self.branch, limit=_LOOKED_AT_ONCE, before=before)
            for found in page.commits:
                if found.id == commit:
                    return State(self.branch, None, found.version, commit)
            if (before := page.next_version) is None:
                raise self._gone(commit)

    @property
    def pins(self) -> list[str]:
        """What a continuation has to name of a pinned state."""
        return [str(each) for each in (self.commit, self.version) if each is not None]

    def _gone(self, commit: str) -> ConflictError:
        return ConflictError(
            f"branch '{self.branch}' is not the one of commit {commit} any more: it was deleted and made again; "
            "ask again without a continuation"
        )


def head_of(graph: GraphApi, branch: str) -> str:
    """The commit that a branch is at now."""
    return graph.commits(branch.strip(), limit=1).commits[0].id


Branch: TypeAlias = Annotated[str | None, Meta(description="The branch to read; main when left out.")]
Snapshot: TypeAlias = Annotated[
    str | None, Meta(description="A commit id: read exactly this state instead of a branch's head.")
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
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Meta(description="A name of your own for this write: repeating the call with it never writes twice."),
]


class ReadArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Of a tool that reads one state."""

    branch: Branch = None
    snapshot: Snapshot = None

    def state(self, place: Place | None = None) -> State:
        return State.of(self.branch, self.snapshot, place)
