"""From a JSON value to a record of a type: which type, which endpoints, which members.

The first stage of every load, record by record. Nothing here looks at a property's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from omnigraph.engine.kernels.framing import Block
from omnigraph.engine.kernels.plain import PlainEdge, PlainNode
from omnigraph.engine.kernels.rows import Grammar, RejectedRow, Stage
from omnigraph.engine.kernels.scalars import shape_of
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.source import did_you_mean

RESERVED_NAMES: Final = frozenset(
    {
        "_tombstone",
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)

_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})


@dataclass(slots=True)
class Records:
    """Records of one type in input order. Nodes have no endpoints."""

    type: TableType
    lines: list[int] = field(default_factory=list)
    members: list[dict[str, object]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


class _RefusedError(Exception):
    """An envelope that is not one; the message is the reason."""


class EnvelopeReader:
    """Sorts the values of a block into records by type."""

    def __init__(self, catalog: Catalog, grammar: Grammar) -> None:
        self._catalog = catalog
        self._strict = grammar is Grammar.STRICT
        self._unknown_names: dict[tuple[str, str], str] = {}

    def sort(self, block: Block, rejected: list[RejectedRow]) -> list[Records]:
        """The records of a block by type, in no particular order; values that are no records are rejected."""
        rejected.extend(RejectedRow(at, None, None, reason, Stage.ENVELOPE) for at, reason in block.malformed)
        nodes: dict[str, Records] = {name: Records(node) for name, node in self._catalog.nodes.items()}
        edges: dict[str, Records] = {name: Records(edge) for name, edge in self._catalog.edges.items()}
        for at, value in zip(block.positions, block.values, strict=True):
            if type(value) is PlainNode:
                if (records := nodes.get(value.type)) is not None:
                    records.lines.append(at)
                    records.members.append(value.data or {})
                    continue
            elif type(value) is PlainEdge and (records := edges.get(value.edge)) is not None:
                records.lines.append(at)
                records.members.append(value.data or {})
                records.sources.append(value.source)
                records.targets.append(value.target)
                continue
            try:
                self._take(at, value, nodes, edges)
            except _RefusedError as error:
                rejected.append(RejectedRow(at, None, None, str(error), Stage.ENVELOPE))
        return [records for records in (*nodes.values(), *edges.values()) if records.lines]

    def _take(self, at: int, value: object, nodes: dict[str, Records], edges: dict[str, Records]) -> None:
        if isinstance(value, PlainNode | PlainEdge):
            value = msgspec.to_builtins(value)
        if type(value) is not dict:
            raise _RefusedError(f"expected a JSON object with 'type' or 'edge', got {shape_of(value)}")
        if self._strict:
            self._check_members(value)
        name = value.get("type")
        if isinstance(name, str):
            if name not in nodes:
                raise _RefusedError(self._unknown("node", name))
            members = self._members(value)
            nodes[name].members.append(members)
            nodes[name].lines.append(at)
            return
        name = value.get("edge")
        if not isinstance(name, str):
            raise _RefusedError("expected 'type' or 'edge' as a string")
        edge = self._catalog.edge_named(name)
        if edge is None:
            raise _RefusedError(self._unknown("edge", name))
        source, target = _endpoint(value, "from"), _endpoint(value, "to")
        members = self._members(value)
        records = edges[edge.name]
        records.lines.append(at)
        records.members.append(members)
        records.sources.append(source)
        records.targets.append(target)

    def _check_members(self, value: dict[str, object]) -> None:
        for name in value:
            if name in RESERVED_NAMES:
                raise _RefusedError(f"'{name}' is reserved physical state")
        if ("type" in value) == ("edge" in value):
            raise _RefusedError("expected exactly one of 'type' or 'edge'")
        kind, allowed = ("node", _NODE_MEMBERS) if "type" in value else ("edge", _EDGE_MEMBERS)
        for name in value:
            if name not in allowed:
                raise _RefusedError(f"unexpected member '{name}'; properties of a {kind} belong into 'data'")

    def _unknown(self, kind: str, name: str) -> str:
        # A wrong name rarely comes alone, and looking for near ones is slow.
        if (kind, name) not in self._unknown_names:
            known = self._catalog.nodes if kind == "node" else self._catalog.edges
            suggestion = did_you_mean(name, list(known))
            self._unknown_names[kind, name] = f"unknown {kind} type '{name}'" + (
                f"; {suggestion}" if suggestion else ""
            )
        return self._unknown_names[kind, name]

    def _members(self, value: dict[str, object]) -> dict[str, object]:
        data = value.get("data")
        if type(data) is dict:
            return data
        if self._strict and "data" in value:
            raise _RefusedError(f"'data' must be an object, got {shape_of(data)}")
        return {}


def _endpoint(value: dict[str, object], name: str) -> str:
    endpoint = value.get(name)
    if not isinstance(endpoint, str):
        found = shape_of(endpoint) if name in value else "nothing"
        raise _RefusedError(f"'{name}' must be the id of a node as a string, got {found}")
    return endpoint
