"""Loose records of one type to typed rows: envelope, field names, ids, properties and keys, in that order.

`decode` calls it for each type of a block, mutations for the rows they insert. A row that breaks a rule is left out and
reported; the caller decides whether one violation ends the write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.columns import arrow_type, rows_schema
from omnigraph.engine.rows.kernels.coerce import Column, coerce
from omnigraph.engine.rows.kernels.ids import (
    EdgeEnds,
    EndpointIds,
    Mint,
    NotANodeError,
    canonical_texts,
    edge_ends,
    ends_of_type,
    is_spelling_of,
    key_ids,
    new_ulids,
)
from omnigraph.engine.rows.kernels.ndjson import Block, PlainEdge, PlainNode
from omnigraph.engine.rows.kernels.source_values import coerce_arrow
from omnigraph.engine.rows.kernels.typed_rows import LostValues, RejectedRow, Stage, TypedRows, forbidden_values
from omnigraph.errors import BadRequestError, ConstraintRule
from omnigraph.language.catalog import Catalog, NodeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import shape_of
from omnigraph.language.violations import Sentence, quote

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
            types = self._catalog.nodes if kind == "node" else self._catalog.edges
            suggestion = did_you_mean(name, list(types))
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


_ID_TYPE = PropertyType(Scalar.STRING)
_STRUCTURAL_NAMES = frozenset({"src", "dst"})


def type_records(
    type_: TableType,
    records: Sequence[Mapping[str, object]],
    lines: Sequence[int],
    rejected: list[RejectedRow],
    *,
    grammar: Grammar = Grammar.STRICT,
    endpoints: tuple[Sequence[str], Sequence[str]] | None = None,
    mint: Mint = new_ulids,
) -> TypedRows:
    """JSON-like members by property name (plus `id`) to typed rows; `endpoints` are the `from` and `to` of edges.

    Bad rows are left out and appended to `rejected`. Dates may be texts or stored integers, as in the input grammar.
    """
    return RecordTyper(type_, rejected, grammar, mint).read(records, lines, endpoints)


def type_batch(
    type_: TableType,
    batch: pa.RecordBatch | pa.Table,
    lines: Sequence[int] | pa.Array,
    rejected: list[RejectedRow],
    *,
    catalog: Catalog,
    mint: Mint = new_ulids,
) -> TypedRows:
    """Loosely typed Arrow columns by property name (plus `id`, and `from` and `to` for edges) to typed rows.

    Columns that are absent are null; a column the type does not know is a BadRequestError. `lines` number the rows
    in reports, and `catalog` tells the keys at the ends of an edge. Value constraints are part of it: every row that is
    left is valid by itself.
    """
    checked = _CheckedRows(type_, lines, rejected)
    ends = ("from", "to") if type_.kind == "edge" else ()
    names = frozenset(batch.schema.names)
    for name in batch.schema.names:
        if name not in type_.properties and name != "id" and name not in ends:
            raise BadRequestError(f"{type_.type_key}: {_unknown_field(type_, name)[1]}")
    typer = RecordTyper(type_, rejected, Grammar.STRICT, mint)
    explicit = _id_column(batch, "id", checked) if "id" in names else None
    endpoints = [_endpoint_column(batch, end, checked) for end in ends_of_type(catalog, type_) or ()]
    columns = []
    for prop in type_.property_list:
        if prop.name in names:
            column = coerce_arrow(prop.type, batch.column(prop.name))
            checked.column(prop, column)
            columns.append(column.array)
        else:
            columns.append(_absent(prop, checked))
    ids = typer.ids(columns, explicit, checked)
    for violation in forbidden_values(type_, checked.table([ids, *endpoints, *columns])):
        if not checked.is_rejected(violation.row):
            checked.reject(violation.row, violation.stage(), violation.property, violation.rule, violation.reason)
    return checked.accept([ids, *endpoints, *columns], explicit)


def _endpoint_column(batch: pa.RecordBatch, end: EndpointIds, checked: _CheckedRows) -> pa.Array:
    name = end.name
    if name not in batch.schema.names:
        raise BadRequestError(f"{checked.type_key}: the input has no '{name}' column")
    try:
        column = end.column(batch.column(name))
    except BadRequestError as error:
        raise BadRequestError(f"{checked.type_key}: {error}") from None
    for row, unfit in column.unfit.items():
        sentence, values = end.reason(unfit)
        checked.refuse(row, Stage.ENVELOPE, name, sentence, **values)
    for row in column.null_rows():
        checked.refuse(row, Stage.ENVELOPE, name, Sentence.NO_NODE_ID, name=name, shape="null")
    return column.array


def _id_column(batch: pa.RecordBatch, name: str, checked: _CheckedRows) -> pa.Array:
    """Explicit ids as texts. An integer is the id of the node whose key has that value."""
    column = coerce_arrow(_ID_TYPE, batch.column(name))
    if column.unfit:
        found = batch.column(name)
        if not pa.types.is_integer(found.type):
            raise BadRequestError(f"{checked.type_key}: column '{name}' must hold ids as strings, not {found.type}")
        column = Column(canonical_texts(Scalar.I64, found))
    return column.array


@dataclass(slots=True)
class RecordTyper:
    """Types the records of one type, block after block.

    `respelled` remembers which old spelling of an id stood for which canonical one (lenient grammar): edges of the
    same input may still use the old one. `lost` counts what that grammar did not take.
    """

    type_: TableType
    rejected: list[RejectedRow]
    grammar: Grammar = Grammar.STRICT
    mint: Mint = new_ulids
    lost: LostValues = field(default_factory=LostValues)
    respelled: dict[str, str] = field(default_factory=dict)

    def read(
        self,
        records: Sequence[Mapping[str, object]],
        lines: Sequence[int],
        endpoints: tuple[Sequence[str], Sequence[str]] | None = None,
    ) -> TypedRows:
        checked = _CheckedRows(self.type_, lines, self.rejected)
        names = set().union(*records)
        if self.grammar is Grammar.STRICT:
            self._check_names(names, records, checked)
        elif unknown := names - self.type_.properties.keys() - {"id"}:
            self.lost.dropped += sum(len(record.keys() & unknown) for record in records)
        given = self._explicit_ids(records, checked) if "id" in names else None
        members = _by_name(records, names)
        columns = []
        for prop in self.type_.property_list:
            if prop.name in names:
                column = coerce(prop.type, members(prop.name), self.grammar)
                self.lost.nulled += column.nulled
                checked.column(prop, column)
                columns.append(column.array)
            else:
                columns.append(_absent(prop, checked))
        explicit = None if given is None else pa.array(given, pa.string())
        ids = self.ids(columns, explicit, checked)
        ends = [] if endpoints is None else [pa.array(end, pa.string()) for end in endpoints]
        return checked.accept([ids, *ends, *columns], explicit)

    def _check_names(self, names: set[str], records: Sequence[Mapping[str, object]], checked: _CheckedRows) -> None:
        unknown = names - self.type_.properties.keys() - {"id"}
        if not unknown:
            return
        problems = {name: _unknown_field(self.type_, name) for name in unknown}
        for row, record in enumerate(records):
            for name in record:
                if name in unknown:
                    checked.reject(row, Stage.FIELDS, name, *problems[name])

    def _explicit_ids(self, records: Sequence[Mapping[str, object]], checked: _CheckedRows) -> list[str | None]:
        tolerant = self.grammar is Grammar.LENIENT and self.type_.kind == "edge"
        ids: list[str | None] = []
        for row, record in enumerate(records):
            entity_id = record.get("id")
            ids.append(entity_id if isinstance(entity_id, str) else None)
            if isinstance(entity_id, str) or "id" not in record:
                continue
            if tolerant:
                self.lost.dropped += entity_id is not None
            else:
                checked.refuse(row, Stage.FIELDS, "id", Sentence.WRONG_ID, shape=shape_of(entity_id))
        return ids

    def ids(self, columns: list[pa.Array], explicit: pa.Array | None, checked: _CheckedRows) -> pa.Array:
        """Derived from the key where there is one, else the explicit ones, else fresh."""
        if isinstance(self.type_, NodeType) and self.type_.key:
            return self._key_ids(self.type_, columns, explicit, checked)
        if explicit is None:
            return self.mint(checked.count)
        if not explicit.null_count:
            return explicit
        return pc.replace_with_mask(explicit, explicit.is_null(), self.mint(explicit.null_count))

    def _key_ids(
        self, type_: NodeType, columns: list[pa.Array], explicit: pa.Array | None, checked: _CheckedRows
    ) -> pa.Array:
        typed = pa.table(columns, names=[prop.column for prop in type_.property_list])
        ids = key_ids(type_, typed)
        if explicit is None:
            return ids
        differs = pc.fill_null(pc.not_equal(explicit, ids), False)
        if pc.any(differs, min_count=0).as_py():
            members = [type_.properties[name] for name in type_.key]
            texts = [canonical_texts(m.type.scalar, typed.column(m.column).combine_chunks()) for m in members]
            for row in np.flatnonzero(differs.to_numpy(zero_copy_only=False)).tolist():
                if not checked.is_rejected(row):
                    spellings = [(m.type.scalar, text[row].as_py()) for m, text in zip(members, texts, strict=True)]
                    self._respell(row, explicit[row].as_py(), ids[row].as_py(), spellings, checked)
        return ids

    def _respell(
        self, row: int, given: str, canonical: str, members: list[tuple[Scalar, str]], checked: _CheckedRows
    ) -> None:
        known = canonical
        if self.grammar is Grammar.STRICT:
            sentence = Sentence.OTHER_KEY
        elif not any(is_spelling_of(scalar, text, given) for scalar, text in members):
            sentence = Sentence.NO_SPELLING
        elif (known := self.respelled.setdefault(given, canonical)) != canonical:
            sentence = Sentence.AMBIGUOUS_ENDPOINT
        else:
            return
        texts = {"given": quote(given), "canonical": quote(canonical), "known": quote(known)}
        checked.refuse(row, Stage.KEYS, "id", sentence, **texts)


class _CheckedRows:
    """One block of rows under check: collects its rejections and cuts the rejected rows out at the end."""

    def __init__(self, type_: TableType, lines: Sequence[int] | pa.Array, rejected: list[RejectedRow]) -> None:
        self._type = type_
        self._lines = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.int64())
        self._report = rejected
        self._found: list[tuple[int, Stage, str | None, ConstraintRule, str]] = []
        self._rows: set[int] = set()

    @property
    def type_key(self) -> str:
        return self._type.type_key

    @property
    def count(self) -> int:
        return len(self._lines)

    def is_rejected(self, row: int) -> bool:
        return row in self._rows

    def refuse(self, row: int, stage: Stage, field: str | None, sentence: Sentence, **values: object) -> None:
        self.reject(row, stage, field, sentence.rule, sentence.text(**values))

    def reject(self, row: int, stage: Stage, name: str | None, rule: ConstraintRule, reason: str) -> None:
        self._rows.add(row)
        self._found.append((row, stage, name, rule, reason))

    def column(self, prop: Property, column: Column) -> None:
        for row, reason in column.unfit.items():
            self.refuse(row, Stage.VALUES, prop.name, Sentence.WRONG_VALUE, property=prop.name, reason=reason)
        if not prop.type.nullable:
            for row in column.null_rows():
                self.refuse(row, Stage.VALUES, prop.name, missing_value(self._type, prop), property=prop.name)

    def table(self, columns: list[pa.Array]) -> pa.Table:
        return pa.table(columns, schema=rows_schema(self._type))

    def accept(self, columns: list[pa.Array], explicit: pa.Array | None) -> TypedRows:
        """The rows that broke no rule; `columns` begin with their ids, of which `explicit` were given."""
        rows = self.table(columns)
        if not self._rows:
            return TypedRows(self._type, rows, self._lines)
        # An id that was generated for a rejected row names nothing.
        ids = columns[0] if isinstance(self._type, NodeType) and self._type.key else explicit
        for row, stage, name, rule, reason in self._found:
            entity_id = None if ids is None else ids[row].as_py()
            line = self._lines[row].as_py()
            self._report.append(RejectedRow(line, self._type.type_key, name, reason, stage, rule, entity_id))
        keep = np.ones(self.count, np.bool_)
        keep[list(self._rows)] = False
        mask = pa.array(keep)
        return TypedRows(self._type, rows.filter(mask), self._lines.filter(mask))


def _by_name(records: Sequence[Mapping[str, object]], names: set[str]) -> Callable[[str], Sequence[object]]:
    """How to get the values of one member from all records, null where a record has none."""
    if sum(map(len, records)) == len(names) * len(records):
        return lambda name: list(map(itemgetter(name), records))
    return lambda name: [record.get(name) for record in records]


def _absent(prop: Property, checked: _CheckedRows) -> pa.Array:
    column = Column(pa.nulls(checked.count, arrow_type(prop.type)))
    checked.column(prop, column)
    return column.array


def missing_value(type_: TableType, prop: Property) -> Sentence:
    """What is said about a null where the schema wants a value."""
    if prop.type.is_vector:
        return Sentence.NO_VECTOR
    if prop.type.is_blob:
        return Sentence.NO_BLOB
    return Sentence.NO_KEY if isinstance(type_, NodeType) and prop.name in type_.key else Sentence.NO_VALUE


def _unknown_field(type_: TableType, name: str) -> tuple[ConstraintRule, str]:
    suggestion = did_you_mean(name, type_.properties)
    sentence = Sentence.UNKNOWN_FIELD
    if name in RESERVED_NAMES:
        sentence = Sentence.RESERVED_FIELD
    elif type_.kind == "edge" and name in _STRUCTURAL_NAMES:
        sentence = Sentence.RESERVED_ENDPOINT
    return sentence.rule, sentence.text(name=name, suggestion=f"; {suggestion}" if suggestion else "")
