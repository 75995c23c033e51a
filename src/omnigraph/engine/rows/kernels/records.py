"""Loose records of one type to typed rows: envelope, field names, ids, properties and keys, in that order.

`decode` calls it for each type of a block, mutations for the rows they insert. A row that breaks a rule is left out and
reported; the caller decides whether one violation ends the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.columns import arrow_type, rows_schema, whole_array
from omnigraph.engine.rows.end_ids import interface_ends
from omnigraph.engine.rows.kernels.coerce import Column, absent_values, coerce, default_value
from omnigraph.engine.rows.kernels.ids import (
    EndpointIds,
    EnvelopeError,
    Mint,
    canonical_texts,
    edge_ends,
    is_same_key,
    is_spelling_of,
    key_ids,
    new_ulids,
)
from omnigraph.engine.rows.kernels.ndjson import Block, PlainEdge, PlainNode
from omnigraph.engine.rows.kernels.source_values import coerce_arrow
from omnigraph.engine.rows.kernels.typed_rows import (
    LostValues,
    RecordForm,
    RejectedRow,
    Stage,
    TypedRows,
    forbidden_values,
)
from omnigraph.errors import BadRequestError, ConstraintRule
from omnigraph.language.catalog import Catalog, EdgeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import shape_of
from omnigraph.language.violations import Sentence, quote

_LANCE_NAMES = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
RESERVED_NAMES: Final = frozenset({"_tombstone", *_LANCE_NAMES})

_NODE_MEMBERS: Final = frozenset({"type", "id", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "id", "from", "to", "data"})


@dataclass(slots=True)
class Records:
    """Records of one type in input order. Nodes have no endpoints; those of edges are ids, or None where a partial
    record leaves one out. The id of a record is among its members, as `system_name` calls it."""

    type: TableType
    lines: list[int] = field(default_factory=list)
    members: list[Mapping[str, object]] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    targets: list[str | None] = field(default_factory=list)

    def add(
        self, line: int, members: Mapping[str, object], endpoints: tuple[str | None, str | None] | None = None
    ) -> None:
        self.lines.append(line)
        self.members.append(members)
        if endpoints is not None:
            self.sources.append(endpoints[0])
            self.targets.append(endpoints[1])

    @property
    def endpoints(self) -> tuple[list[str | None], ...]:
        return (self.sources, self.targets) if self.type.kind == "edge" else ()


class EnvelopeReader:
    """Sorts the values of a block into records by type. Members that the lenient grammar leaves out are counted."""

    def __init__(
        self, catalog: Catalog, grammar: Grammar, lost: LostValues, form: RecordForm = RecordForm.WHOLE
    ) -> None:
        self._catalog = catalog
        self._is_partial = form is RecordForm.PARTIAL
        self._lost = lost
        self._strict = grammar is Grammar.STRICT
        self._not_json = Sentence.NOT_STRICT_JSON if self._strict else Sentence.NOT_JSON
        self._suggestions: dict[tuple[str, str], str] = {}
        self._ends = {edge.name: edge_ends(catalog, edge) for edge in catalog.edges.values()}
        # Edges whose ends are ids wherever they are texts, which is the usual case and costs nothing.
        self._named_by_ids = {name for name, ends in self._ends.items() if all(_takes_ids(end) for end in ends)}

    def sort(self, block: Block, rejected: list[RejectedRow]) -> list[Records]:
        """The records of a block by type, in no particular order; values that are not records are rejected."""
        for at, reason in block.malformed:
            rejected.append(RejectedRow.of(at, None, None, Stage.ENVELOPE, self._not_json, reason=reason))
        nodes: dict[str, Records] = {name: Records(node) for name, node in self._catalog.nodes.items()}
        edges: dict[str, Records] = {name: Records(edge) for name, edge in self._catalog.edges.items()}
        for at, value in zip(block.positions, block.values, strict=True):
            try:
                if type(value) is PlainNode and (records := nodes.get(value.type)) is not None:
                    records.lines.append(at)
                    records.members.append(value.data or {})
                elif type(value) is PlainEdge and (records := edges.get(value.edge)) is not None:
                    source, target = value.source, value.target
                    if value.edge not in self._named_by_ids or type(source) is not str or type(target) is not str:
                        ends = self._ends[value.edge]
                        source, target = ends[0].id_of(source), ends[1].id_of(target)
                    records.lines.append(at)
                    records.members.append(value.data or {})
                    records.sources.append(source)
                    records.targets.append(target)
                else:
                    self._take(at, value, nodes, edges)
            except EnvelopeError as error:
                rejected.append(RejectedRow(at, None, None, str(error), Stage.ENVELOPE, error.sentence.rule))
        return [records for records in (*nodes.values(), *edges.values()) if records.lines]

    def _take(self, at: int, value: object, nodes: dict[str, Records], edges: dict[str, Records]) -> None:
        if isinstance(value, PlainNode | PlainEdge):
            value = msgspec.to_builtins(value)
        if type(value) is not dict:
            raise EnvelopeError(self._not_json, reason=Sentence.NO_OBJECT.text(shape=shape_of(value)))
        if self._strict:
            self._check_members(value)
        name = value.get("type")
        self._lost.dropped += len(
            value.keys() - (_NODE_MEMBERS if isinstance(name, str) else self._edge_members(value))
        )
        if isinstance(name, str):
            if name not in nodes:
                raise self._unknown("node", name)
            nodes[name].add(at, self._members(value, nodes[name].type))
            return
        name = value.get("edge")
        if not isinstance(name, str):
            raise EnvelopeError(Sentence.NO_TYPE)
        edge = self._catalog.edge_named(name)
        if edge is None:
            raise self._unknown("edge", name)
        source, target = (self._end_of(value, end) for end in self._ends[edge.name])
        edges[edge.name].add(at, self._members(value, edge), (source, target))

    def _end_of(self, value: dict[str, object], end: EndpointIds) -> str | None:
        type_name = f"{end.name}_type"
        has_type = end.is_interface and type_name in value
        if end.name in value:
            return (end.of_type(value[type_name]) if has_type else end).id_of(value[end.name])
        if not self._is_partial:
            raise EnvelopeError(Sentence.NO_NODE_ID, name=end.name, shape="nothing")
        if has_type:
            raise end.type_alone()
        return None

    def _check_members(self, value: dict[str, object]) -> None:
        for name in value:
            if name in RESERVED_NAMES:
                raise EnvelopeError(Sentence.RESERVED_FIELD, name=name)
        if ("type" in value) == ("edge" in value):
            raise EnvelopeError(Sentence.TWO_TYPES)
        kind, allowed = ("node", _NODE_MEMBERS) if "type" in value else ("edge", self._edge_members(value))
        for name in value:
            if name not in allowed:
                raise EnvelopeError(Sentence.UNKNOWN_MEMBER, name=name, kind=kind)

    def _edge_members(self, value: Mapping[str, object]) -> frozenset[str]:
        """What the record of an edge may hold: also the types of ends that are interfaces."""
        name = value.get("edge")
        edge = self._catalog.edge_named(name) if isinstance(name, str) else None
        ends = () if edge is None else self._ends[edge.name]
        return _EDGE_MEMBERS.union(f"{end.name}_type" for end in ends if end.is_interface)

    def _unknown(self, kind: str, name: str) -> EnvelopeError:
        # A wrong name rarely comes alone, and looking for similar ones is slow.
        if (kind, name) not in self._suggestions:
            types = self._catalog.nodes if kind == "node" else self._catalog.edges
            suggestion = did_you_mean(name, list(types))
            self._suggestions[kind, name] = f"; {suggestion}" if suggestion else ""
        return EnvelopeError(Sentence.UNKNOWN_TYPE, kind=kind, name=name, suggestion=self._suggestions[kind, name])

    def _members(self, value: dict[str, object], type_: TableType) -> dict[str, object]:
        data = value.get("data")
        if type(data) is not dict:
            if self._strict and "data" in value:
                raise EnvelopeError(Sentence.NO_DATA, shape=shape_of(data))
            self._lost.dropped += data is not None
            data = {}
        if "id" not in value:
            return data
        identity = type_.system_name("id")
        if identity in data:
            raise EnvelopeError(Sentence.TWO_IDS)
        return {**data, identity: value["id"]}


def type_batch(
    type_: TableType,
    batch: pa.RecordBatch | pa.Table,
    lines: Sequence[int] | pa.Array,
    rejected: list[RejectedRow],
    *,
    catalog: Catalog,
    mint: Mint = new_ulids,
    form: RecordForm = RecordForm.WHOLE,
) -> TypedRows:
    """Loosely typed Arrow columns by property name (plus `id`, or `@id`, and `from` and `to` for edges) to typed rows.

    Columns that are absent hold the default, or null where there is none; a column the type does not know is a
    BadRequestError. `lines` number the rows in reports, and `catalog` tells the keys at the ends of an edge. Every row
    that is left is valid by itself.
    """
    checked = _CheckedRows(type_, lines, rejected)
    ends = edge_ends(catalog, type_) if isinstance(type_, EdgeType) else ()
    names, identity = dict.fromkeys(batch.schema.names), type_.system_name("id")
    for name in names:
        if name not in type_.properties and name not in (
            identity,
            *(each for end in ends for each in _columns_of(end)),
        ):
            raise BadRequestError(f"{type_.type_key}: {_unknown_field(type_, name)[1]}")
    explicit = _id_column(batch.column(identity), type_) if identity in names else None
    presence = _Presence(form, batch.num_rows)
    endpoints = [_endpoint_column(batch, end, checked, presence) for end in ends]
    columns = [
        checked.column(
            prop,
            coerce_arrow(prop.type, batch.column(prop.name)) if prop.name in names else None,
            presence.note(prop.column, prop.name in names),
        )
        for prop in type_.property_list
    ]
    ids = RecordTyper(type_, rejected, mint=mint, form=form).ids([*endpoints, *columns], explicit, checked)
    rows = pa.table([ids, *endpoints, *columns], schema=rows_schema(type_))
    for violation in forbidden_values(type_, rows):
        if violation.row not in checked.rejected_rows:
            checked.reject(violation.row, violation.stage(), violation.property, violation.rule, violation.reason)
    return checked.accept(rows, explicit, presence)


def _endpoint_column(batch: pa.RecordBatch, end: EndpointIds, checked: _CheckedRows, presence: _Presence) -> pa.Array:
    name, type_key = end.name, checked.type.type_key
    presence.note(_COLUMNS_OF_ENDS[name], name in batch.schema.names)
    type_name = f"{name}_type"
    if name not in batch.schema.names:
        if presence.form is not RecordForm.PARTIAL:
            raise BadRequestError(f"{type_key}: the input has no '{name}' column")
        if end.is_interface and type_name in batch.schema.names:
            raise BadRequestError(f"{type_key}: {end.type_alone()}")
        return pa.nulls(batch.num_rows, pa.string())
    try:
        if end.is_interface and type_name in batch.schema.names:
            column = _typed_endpoints(end, batch.column(name), batch.column(type_name), checked)
        else:
            column = end.column(batch.column(name))
    except BadRequestError as error:
        raise BadRequestError(f"{type_key}: {error}") from None
    for row, unfit in column.unfit.items():
        refusal = end.refusal(unfit)
        checked.refuse(row, Stage.ENVELOPE, name, refusal.sentence, **refusal.values)
    for row in column.null_rows():
        checked.refuse(row, Stage.ENVELOPE, name, Sentence.NO_NODE_ID, name=name, shape="null")
    return column.array


def _typed_endpoints(end: EndpointIds, values: pa.Array, types: pa.Array, checked: _CheckedRows) -> Column:
    """The ends of edges whose types are given in a column beside them; null where the ids alone have to tell."""
    names = coerce_arrow(PropertyType(Scalar.STRING), whole_array(types))
    if names.unfit:
        raise BadRequestError(f"column '{end.name}_type' must hold the names of types, not {types.type}")
    values = whole_array(values)
    parts: list[pa.Array] = []
    places: list[NDArray[np.int64]] = []
    unfit: dict[int, str] = {}
    for name in pc.unique(names.array).to_pylist():
        mask = names.array.is_null() if name is None else pc.fill_null(pc.equal(names.array, name), False)
        rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        try:
            typed = end if name is None else end.of_type(name)
        except EnvelopeError as error:
            for row in rows.tolist():
                checked.refuse(row, Stage.ENVELOPE, f"{end.name}_type", error.sentence, **error.values)
            typed = end
        column = typed.column(values.take(pa.array(rows)))
        unfit |= {int(rows[row]): reason for row, reason in column.unfit.items()}
        parts.append(column.array)
        places.append(rows)
    if not parts:
        return end.column(values)
    order = np.argsort(np.concatenate(places), kind="stable")
    return Column(pa.concat_arrays(parts).take(pa.array(order)), unfit)


def _columns_of(end: EndpointIds) -> tuple[str, ...]:
    """The columns that say what is at an end."""
    return (end.name, f"{end.name}_type") if end.is_interface else (end.name,)


def _takes_ids(end: EndpointIds) -> bool:
    """Whether a text at an end is stored as it comes."""
    return end.takes_any_text and not end.is_interface


def _id_column(ids: pa.Array | pa.ChunkedArray, type_: TableType) -> pa.Array:
    """Explicit ids as texts. An integer is the id of the node whose key has that value."""
    column = coerce_arrow(PropertyType(Scalar.STRING), ids)
    if not column.unfit:
        return column.array
    if not pa.types.is_integer(ids.type):
        name = type_.system_name("id")
        raise BadRequestError(f"{type_.type_key}: column '{name}' must hold ids as strings, not {ids.type}")
    return canonical_texts(Scalar.I64, ids)


@dataclass(slots=True)
class RecordTyper:
    """Types the records of one type, block after block. `respelled` remembers which old spelling of an id stood for
    which canonical one (lenient grammar): edges of the same input may still use the old one. `lost` counts what that
    grammar did not take."""

    type_: TableType
    rejected: list[RejectedRow]
    grammar: Grammar = Grammar.STRICT
    mint: Mint = new_ulids
    lost: LostValues = field(default_factory=LostValues)
    respelled: dict[str, str] = field(default_factory=dict)
    form: RecordForm = RecordForm.WHOLE

    def read(self, block: Records) -> TypedRows:
        """JSON-like members by property name (plus `id`, or `@id`) as typed rows; bad ones go to `rejected`."""
        records, identity = block.members, self.type_.system_name("id")
        checked = _CheckedRows(self.type_, block.lines, self.rejected)
        names = set().union(*records)
        if unknown := names - self.type_.properties.keys() - {identity}:
            self._leave_out(unknown, records, checked)
        explicit = pa.array(self._explicit_ids(records, checked), pa.string()) if identity in names else None
        is_uniform = sum(map(len, records)) == len(names) * len(records)
        presence = _Presence(self.form, len(records))
        columns = []
        for prop in self.type_.property_list:
            column, noted = None, presence.note(prop.column, False)
            if (name := prop.name) in names:
                default = default_value(prop) if self.form is not RecordForm.PARTIAL else None
                values = list(map(itemgetter(name), records)) if is_uniform else [r.get(name, default) for r in records]
                column = coerce(prop.type, values, self.grammar)
                self.lost.nulled += column.nulled
                noted = presence.note(prop.column, True if is_uniform else [name in record for record in records])
            columns.append(checked.column(prop, column, noted))
        ends = [pa.array(end, pa.string()) for end in block.endpoints]
        for end, nodes in zip(_COLUMNS_OF_ENDS.values(), block.endpoints, strict=False):
            presence.note(end, [node is not None for node in nodes])
        ids = self.ids([*ends, *columns], explicit, checked)
        return checked.accept(pa.table([ids, *ends, *columns], schema=rows_schema(self.type_)), explicit, presence)

    def _leave_out(self, unknown: set[str], records: Sequence[Mapping[str, object]], checked: _CheckedRows) -> None:
        """Refuse members that the type does not have; the lenient grammar drops them."""
        if self.grammar is Grammar.LENIENT:
            self.lost.dropped += sum(len(record.keys() & unknown) for record in records)
            return
        problems = {name: _unknown_field(self.type_, name) for name in unknown}
        for row, record in enumerate(records):
            for name in record:
                if name in unknown:
                    checked.reject(row, Stage.FIELDS, name, *problems[name])

    def _explicit_ids(self, records: Sequence[Mapping[str, object]], checked: _CheckedRows) -> list[str | None]:
        tolerant = self.grammar is Grammar.LENIENT and self.type_.kind == "edge"
        ids: list[str | None] = []
        identity = self.type_.system_name("id")
        for row, record in enumerate(records):
            entity_id = record.get(identity)
            ids.append(entity_id if isinstance(entity_id, str) else None)
            if isinstance(entity_id, str) or identity not in record:
                continue
            if tolerant:
                self.lost.dropped += entity_id is not None
            else:
                checked.refuse(row, Stage.FIELDS, "id", Sentence.WRONG_ID, shape=shape_of(entity_id))
        return ids

    def ids(self, columns: list[pa.Array], explicit: pa.Array | None, checked: _CheckedRows) -> pa.Array:
        """Derived from the key where there is one, else the explicit ones, else fresh. `columns` are all but the id."""
        if self.form is RecordForm.PARTIAL:
            return self._ids_of_stored(columns, explicit, checked)
        if self.type_.key:
            return self._key_ids(columns, explicit, checked)
        if explicit is None:
            return self.mint(len(checked.lines))
        if not explicit.null_count:
            return explicit
        return pc.replace_with_mask(explicit, explicit.is_null(), self.mint(explicit.null_count))

    def _ids_of_stored(self, columns: list[pa.Array], explicit: pa.Array | None, checked: _CheckedRows) -> pa.Array:
        """The ids that partial records name, each by its whole key or as it is."""
        ids = pa.nulls(len(checked.lines), pa.string()) if explicit is None else explicit
        if self.type_.key:
            ids = pc.coalesce(self._key_ids(columns, explicit, checked), ids)
        names = " and ".join(f"'{name}'" for name in self.type_.key)
        identity = self.type_.system_name("id")
        for row in Column(ids).null_rows():
            wanted = f"{names}, or '{identity}'" if names else f"'{identity}'"
            checked.refuse(row, Stage.KEYS, "id", Sentence.NO_IDENTITY, names=wanted)
        return ids

    def _key_ids(self, columns: list[pa.Array], explicit: pa.Array | None, checked: _CheckedRows) -> pa.Array:
        typed = pa.table(columns, names=rows_schema(self.type_).names[1:])
        ids = key_ids(self.type_, typed)
        if explicit is None:
            return ids
        differs = pc.fill_null(pc.not_equal(explicit, ids), False)
        if interface_ends(self.type_):
            pairs = zip(explicit.to_pylist(), ids.to_pylist(), differs.to_pylist(), strict=True)
            differs = pa.array(
                [differ and not is_same_key(self.type_, one, other) for one, other, differ in pairs], pa.bool_()
            )
        if pc.any(differs, min_count=0).as_py():
            members = self.type_.key_columns
            texts = [canonical_texts(scalar, typed.column(column).combine_chunks()) for column, scalar in members]
            for row in np.flatnonzero(differs.to_numpy(zero_copy_only=False)).tolist():
                if row not in checked.rejected_rows:
                    spellings = [(scalar, text[row].as_py()) for (_, scalar), text in zip(members, texts, strict=True)]
                    self._respell(row, explicit[row].as_py(), ids[row].as_py(), spellings, checked)
        return ids

    def _respell(
        self, row: int, explicit_id: str, canonical: str, members: list[tuple[Scalar, str]], checked: _CheckedRows
    ) -> None:
        earlier_id = canonical
        if self.grammar is Grammar.STRICT:
            sentence = Sentence.OTHER_KEY
        elif not any(is_spelling_of(scalar, text, explicit_id) for scalar, text in members):
            sentence = Sentence.NO_SPELLING
        elif (earlier_id := self.respelled.setdefault(explicit_id, canonical)) != canonical:
            sentence = Sentence.AMBIGUOUS_ENDPOINT
        else:
            return
        texts = {"given": quote(explicit_id), "canonical": quote(canonical), "known": quote(earlier_id)}
        checked.refuse(row, Stage.KEYS, "id", sentence, **texts)


class _Presence:
    """Which columns the records of a block have, if their form asks for it."""

    def __init__(self, form: RecordForm, count: int) -> None:
        self.form = form
        self._count = count
        self._columns: dict[str, NDArray[np.bool_]] = {}

    def note(self, column: str, present: bool | Sequence[bool]) -> NDArray[np.bool_] | None:
        """Which rows have a column, where a null of the others means nothing."""
        if self.form is RecordForm.WHOLE:
            return None
        noted = np.full(self._count, present) if isinstance(present, bool) else np.array(present, np.bool_)
        self._columns[column] = noted
        return noted if self.form is RecordForm.PARTIAL else None

    def table(self, columns: Sequence[str]) -> pa.Table | None:
        return None if self.form is RecordForm.WHOLE else pa.table({name: self._columns[name] for name in columns})


_COLUMNS_OF_ENDS: Final = {"from": "src", "to": "dst"}


class _CheckedRows:
    """One block of rows under check: collects its rejections and cuts the rejected rows out at the end."""

    def __init__(self, type_: TableType, lines: Sequence[int] | pa.Array, rejected: list[RejectedRow]) -> None:
        self.type = type_
        self.lines = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.int64())
        self._report = rejected
        self._found: list[tuple[int, Stage, str | None, ConstraintRule, str]] = []
        self.rejected_rows: set[int] = set()

    def refuse(self, row: int, stage: Stage, field: str | None, sentence: Sentence, **values: object) -> None:
        self.reject(row, stage, field, sentence.rule, sentence.text(**values))

    def reject(self, row: int, stage: Stage, name: str | None, rule: ConstraintRule, reason: str) -> None:
        self.rejected_rows.add(row)
        self._found.append((row, stage, name, rule, reason))

    def column(self, prop: Property, column: Column | None, present: NDArray[np.bool_] | None = None) -> pa.Array:
        """The values of a property, or what absent ones mean where the column is missing; rows whose value can't be
        stored are refused. Of partial records, `present` tells which have the property, and absent ones mean nothing.
        """
        if column is None:
            count = len(self.lines)
            column = Column(absent_values(prop, count) if present is None else pa.nulls(count, arrow_type(prop.type)))
        for row, reason in column.unfit.items():
            self.refuse(row, Stage.VALUES, prop.name, Sentence.WRONG_VALUE, property=prop.name, reason=reason)
        if not prop.type.nullable:
            for row in column.null_rows():
                if present is None or present[row]:
                    self.refuse(row, Stage.VALUES, prop.name, missing_value(self.type, prop), property=prop.name)
        return column.array

    def accept(self, rows: pa.Table, explicit: pa.Array | None, presence: _Presence) -> TypedRows:
        """The rows that broke no rule; of their ids, `explicit` were given."""
        typed = TypedRows(
            self.type, rows, self.lines, presence.table(rows.column_names[1:]), self._mark_generated(explicit, presence)
        )
        if not self.rejected_rows:
            return typed
        # An id that was generated for a rejected row names nothing.
        ids = rows.column("id") if self.type.key else explicit
        for row, stage, name, rule, reason in self._found:
            entity_id = None if ids is None else ids[row].as_py()
            line = self.lines[row].as_py()
            self._report.append(RejectedRow(line, self.type.type_key, name, reason, stage, rule, entity_id))
        keep = np.ones(len(self.lines), np.bool_)
        keep[list(self.rejected_rows)] = False
        return typed.filter(pa.array(keep))

    def _mark_generated(self, explicit: pa.Array | None, presence: _Presence) -> pa.BooleanArray | None:
        """Which rows got an id of `RecordTyper.ids` that nothing in them says."""
        if self.type.key or presence.form is RecordForm.PARTIAL:
            return None
        if explicit is None:
            return pa.repeat(True, len(self.lines))
        return explicit.is_null() if explicit.null_count else None


def missing_value(type_: TableType, prop: Property) -> Sentence:
    """What is said about a null where the schema wants a value."""
    if prop.type.is_vector:
        return Sentence.NO_VECTOR
    if prop.type.is_blob:
        return Sentence.NO_BLOB
    return Sentence.NO_KEY if prop.name in type_.key else Sentence.NO_VALUE


def _unknown_field(type_: TableType, name: str) -> tuple[ConstraintRule, str]:
    suggestion = did_you_mean(name, type_.properties)
    sentence = Sentence.UNKNOWN_FIELD
    if name in RESERVED_NAMES:
        sentence = Sentence.RESERVED_FIELD
    elif type_.kind == "edge" and name in ("src", "dst"):
        sentence = Sentence.RESERVED_ENDPOINT
    return sentence.rule, sentence.text(name=name, suggestion=f"; {suggestion}" if suggestion else "")
