"""One tool: what an agent is told of it, the struct its arguments are decoded into, and what it does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import msgspec
from msgspec import Struct

from omnigraph.errors import RequestShapeError
from omnigraph.mcp.graph import AgentGraph
from omnigraph.mcp.terms import Terms


class Arguments(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The arguments of a tool. A member that a tool does not have is refused: an agent that misspelt one would never
    learn why it had no effect."""


@dataclass(frozen=True, slots=True)
class Toolcall:
    """A graph, and on which terms a tool works on it."""

    graph: AgentGraph
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
