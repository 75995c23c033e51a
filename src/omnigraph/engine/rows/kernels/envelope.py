"""From a JSON value to a record of a type: which type, which endpoints, which members.

The first stage of every load, record by record. Values of properties are not checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.kernels.endpoints import EdgeEnds, NotANodeError, edge_ends
from omnigraph.engine.rows.kernels.framing import Block
from omnigraph.engine.rows.kernels.plain import PlainEdge, PlainNode
from omnigraph.engine.rows.kernels.rows import LostValues, RejectedRow, Stage
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.values import shape_of
from omnigraph.language.violations import Sentence

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
    """Records of one type in input order. Nodes have no endpoints; those of edges are ids."""

    type: TableType
    ends: EdgeEnds | None = None
    lines: list[int] = field(default_factory=list)
    members: list[dict[str, object]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def add_edge(self, at: int, source: object, target: object, members: dict[str, object]) -> None:
        """Raises NotANodeError for an end that names no node."""
        if self.ends is None:
            raise AssertionError(f"{self.type.type_key} has no ends")
        ids = self.ends[0].id_of(source), self.ends[1].id_of(target)
        self.lines.append(at)
        self.members.append(members)
        self.sources.append(ids[0])
        self.targets.append(ids[1])


class _NotARecordError(Exception):
    """A value that is not a graph record."""

    def __init__(self, sentence: Sentence, **values: object) -> None:
        super().__init__(sentence.text(**values))
        self.rule = sentence.rule


class EnvelopeReader:
    """Sorts the values of a block into records by type. Members that the lenient grammar leaves out are counted."""

    def __init__(self, catalog: Catalog, grammar: Grammar, lost: LostValues) -> None:
        self._catalog = catalog
        self._lost = lost
        self._strict = grammar is Grammar.STRICT
        self._not_json = Sentence.NOT_STRICT_JSON if self._strict else Sentence.NOT_JSON
        self._suggestions: dict[tuple[str, str], str] = {}
        self._ends = {edge.name: edge_ends(catalog, edge) for edge in catalog.edges.values()}
        # Edges whose ends are ids wherever they are texts, which is the usual case and costs nothing.
        self._named_by_ids = {name for name, ends in self._ends.items() if all(end.takes_any_text for end in ends)}

    def sort(self, block: Block, rejected: list[RejectedRow]) -> list[Records]:
        """The records of a block by type, in no particular order; values that are not records are rejected."""
        for at, reason in block.malformed:
            text = self._not_json.text(reason=reason)
            rejected.append(RejectedRow(at, None, None, text, Stage.ENVELOPE, self._not_json.rule))
        nodes: dict[str, Records] = {name: Records(node) for name, node in self._catalog.nodes.items()}
        edges = {name: Records(edge, self._ends[name]) for name, edge in self._catalog.edges.items()}
        for at, value in zip(block.positions, block.values, strict=True):
            if type(value) is PlainNode:
                if (records := nodes.get(value.type)) is not None:
                    records.lines.append(at)
                    records.members.append(value.data or {})
                    continue
            elif (
                type(value) is PlainEdge
                and value.edge in self._named_by_ids
                and type(value.source) is str
                and type(value.target) is str
            ):
                records = edges[value.edge]
                records.lines.append(at)
                records.members.append(value.data or {})
                records.sources.append(value.source)
                records.targets.append(value.target)
                continue
            try:
                if type(value) is PlainEdge and (records := edges.get(value.edge)) is not None:
                    records.add_edge(at, value.source, value.target, value.data or {})
                else:
                    self._take(at, value, nodes, edges)
            except _NotARecordError as error:
                rejected.append(RejectedRow(at, None, None, str(error), Stage.ENVELOPE, error.rule))
            except NotANodeError as error:
                rejected.append(RejectedRow(at, None, None, str(error), Stage.ENVELOPE, error.sentence.rule))
        return [records for records in (*nodes.values(), *edges.values()) if records.lines]

    def _take(self, at: int, value: object, nodes: dict[str, Records], edges: dict[str, Records]) -> None:
        if isinstance(value, PlainNode | PlainEdge):
            value = msgspec.to_builtins(value)
        if type(value) is not dict:
            raise _NotARecordError(self._not_json, reason=Sentence.NO_OBJECT.text(shape=shape_of(value)))
        if self._strict:
            self._check_members(value)
        name = value.get("type")
        self._lost.dropped += len(value.keys() - (_NODE_MEMBERS if isinstance(name, str) else _EDGE_MEMBERS))
        if isinstance(name, str):
            if name not in nodes:
                raise self._unknown("node", name)
            members = self._members(value)
            nodes[name].members.append(members)
            nodes[name].lines.append(at)
            return
        name = value.get("edge")
        if not isinstance(name, str):
            raise _NotARecordError(Sentence.NO_TYPE)
        edge = self._catalog.edge_named(name)
        if edge is None:
            raise self._unknown("edge", name)
        for end in ("from", "to"):
            if end not in value:
                raise _NotARecordError(Sentence.NO_NODE_ID, name=end, shape="nothing")
        edges[edge.name].add_edge(at, value["from"], value["to"], self._members(value))

    def _check_members(self, value: dict[str, object]) -> None:
        for name in value:
            if name in RESERVED_NAMES:
                raise _NotARecordError(Sentence.RESERVED_FIELD, name=name)
        if ("type" in value) == ("edge" in value):
            raise _NotARecordError(Sentence.TWO_TYPES)
        kind, allowed = ("node", _NODE_MEMBERS) if "type" in value else ("edge", _EDGE_MEMBERS)
        for name in value:
            if name not in allowed:
                raise _NotARecordError(Sentence.UNKNOWN_MEMBER, name=name, kind=kind)

    def _unknown(self, kind: str, name: str) -> _NotARecordError:
        # A wrong name rarely comes alone, and looking for similar ones is slow.
        if (kind, name) not in self._suggestions:
            known = self._catalog.nodes if kind == "node" else self._catalog.edges
            suggestion = did_you_mean(name, list(known))
            self._suggestions[kind, name] = f"; {suggestion}" if suggestion else ""
        return _NotARecordError(Sentence.UNKNOWN_TYPE, kind=kind, name=name, suggestion=self._suggestions[kind, name])

    def _members(self, value: dict[str, object]) -> dict[str, object]:
        data = value.get("data")
        if type(data) is dict:
            return data
        if self._strict and "data" in value:
            raise _NotARecordError(Sentence.NO_DATA, shape=shape_of(data))
        self._lost.dropped += data is not None
        return {}
