"""Loose records of one type to typed rows: field names, ids, every property, keys; in that order.

Called by `decode` for each type of a block and by mutations for the rows they insert. A row that fails is left out
and reported; the caller decides whether one report ends everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.columns import arrow_type, rows_schema
from omnigraph.engine.kernels.coerce import Column, coerce
from omnigraph.engine.kernels.envelope import RESERVED_NAMES
from omnigraph.engine.kernels.ids import Mint, canonical_texts, is_spelling_of, key_ids, new_ulids
from omnigraph.engine.kernels.loose import coerce_arrow
from omnigraph.engine.kernels.rows import Grammar, RejectedRow, Stage, TypedRows
from omnigraph.engine.kernels.scalars import shape_of, shown
from omnigraph.engine.kernels.values import violations
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import PropertyType, Scalar

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
    mint: Mint = new_ulids,
) -> TypedRows:
    """Loosely typed Arrow columns by property name (plus `id`, and `from` and `to` for edges) to typed rows.

    Columns that are absent are null; a column the type does not know is a BadRequestError. `lines` number the rows
    in reports. Value constraints are part of it: every row that is left is valid by itself.
    """
    judge = _Judge(type_, lines, rejected)
    ends = ("from", "to") if type_.kind == "edge" else ()
    names = frozenset(batch.schema.names)
    for name in batch.schema.names:
        if name not in type_.properties and name != "id" and name not in ends:
            raise BadRequestError(f"{type_.type_key}: {_unknown_reason(type_, name)}")
    typer = RecordTyper(type_, rejected, Grammar.STRICT, mint)
    explicit = _id_column(batch, "id", judge) if "id" in names else None
    endpoints = [_id_column(batch, end, judge, required=True) for end in ends]
    columns = []
    for prop in type_.property_list:
        if prop.name in names:
            column = coerce_arrow(prop.type, batch.column(prop.name))
            judge.column(prop, column)
            columns.append(column.array)
        else:
            columns.append(_absent(prop, judge))
    ids = typer.ids(columns, explicit, judge)
    for found in violations(type_, judge.table([ids, *endpoints, *columns])):
        if not judge.is_rejected(found.row):
            judge.reject(found.row, found.stage, found.property, found.reason)
    return judge.accepted([ids, *endpoints, *columns])


def _id_column(batch: pa.RecordBatch, name: str, judge: _Judge, *, required: bool = False) -> pa.Array:
    """Ids as texts. An integer names the node whose key has that value."""
    if name not in batch.schema.names:
        raise BadRequestError(f"{judge.type_key}: the input has no '{name}' column")
    column = coerce_arrow(_ID_TYPE, batch.column(name))
    if column.unfit:
        found = batch.column(name)
        if not pa.types.is_integer(found.type):
            raise BadRequestError(f"{judge.type_key}: column '{name}' must hold ids as strings, not {found.type}")
        column = Column(canonical_texts(Scalar.I64, found))
    if required:
        for row in column.null_rows():
            judge.reject(row, Stage.ENVELOPE, name, f"'{name}' must be the id of a node, got null")
    return column.array


@dataclass(slots=True)
class RecordTyper:
    """Types the records of one type, block after block.

    `respelled` remembers which old spelling of an id stood for which canonical one (lenient grammar): edges of the
    same input may still use the old one.
    """

    type_: TableType
    rejected: list[RejectedRow]
    grammar: Grammar = Grammar.STRICT
    mint: Mint = new_ulids
    respelled: dict[str, str] = field(default_factory=dict)

    def read(
        self,
        records: Sequence[Mapping[str, object]],
        lines: Sequence[int],
        endpoints: tuple[Sequence[str], Sequence[str]] | None = None,
    ) -> TypedRows:
        judge = _Judge(self.type_, lines, self.rejected)
        names = set().union(*records)
        if self.grammar is Grammar.STRICT:
            self._check_names(names, records, judge)
        given = self._explicit_ids(records, judge) if "id" in names else None
        members = _by_name(records, names)
        columns = []
        for prop in self.type_.property_list:
            if prop.name in names:
                column = coerce(prop.type, members(prop.name), self.grammar)
                judge.column(prop, column)
                columns.append(column.array)
            else:
                columns.append(_absent(prop, judge))
        ids = self.ids(columns, None if given is None else pa.array(given, pa.string()), judge)
        ends = [] if endpoints is None else [pa.array(end, pa.string()) for end in endpoints]
        return judge.accepted([ids, *ends, *columns])

    def _check_names(self, names: set[str], records: Sequence[Mapping[str, object]], judge: _Judge) -> None:
        unknown = names - self.type_.properties.keys() - {"id"}
        if not unknown:
            return
        reasons = {name: _unknown_reason(self.type_, name) for name in unknown}
        for row, record in enumerate(records):
            for name in record:
                if name in unknown:
                    judge.reject(row, Stage.FIELDS, name, reasons[name])

    def _explicit_ids(self, records: Sequence[Mapping[str, object]], judge: _Judge) -> list[str | None]:
        tolerant = self.grammar is Grammar.LENIENT and self.type_.kind == "edge"
        ids: list[str | None] = []
        for row, record in enumerate(records):
            given = record.get("id")
            ids.append(given if isinstance(given, str) else None)
            if not isinstance(given, str) and "id" in record and not tolerant:
                judge.reject(row, Stage.FIELDS, "id", f"'id' must be a string, got {shape_of(given)}")
        return ids

    def ids(self, columns: list[pa.Array], explicit: pa.Array | None, judge: _Judge) -> pa.Array:
        """Derived from the key where there is one, else the explicit ones, else fresh."""
        if isinstance(self.type_, NodeType) and self.type_.key:
            return self._key_ids(self.type_, columns, explicit, judge)
        if explicit is None:
            return self.mint(judge.count)
        if not explicit.null_count:
            return explicit
        return pc.replace_with_mask(explicit, explicit.is_null(), self.mint(explicit.null_count))

    def _key_ids(self, type_: NodeType, columns: list[pa.Array], explicit: pa.Array | None, judge: _Judge) -> pa.Array:
        typed = pa.table(columns, names=[prop.column for prop in type_.property_list])
        ids = key_ids(type_, typed)
        if explicit is None:
            return ids
        differs = pc.fill_null(pc.not_equal(explicit, ids), False)
        if pc.any(differs, min_count=0).as_py():
            members = [type_.properties[name] for name in type_.key]
            texts = [canonical_texts(m.type.scalar, typed.column(m.column).combine_chunks()) for m in members]
            for row in np.flatnonzero(differs.to_numpy(zero_copy_only=False)).tolist():
                if not judge.is_rejected(row):
                    spellings = [(m.type.scalar, text[row].as_py()) for m, text in zip(members, texts, strict=True)]
                    self._respell(row, explicit[row].as_py(), ids[row].as_py(), spellings, judge)
        return ids

    def _respell(self, row: int, given: str, canonical: str, members: list[tuple[Scalar, str]], judge: _Judge) -> None:
        if self.grammar is Grammar.STRICT:
            reason = f"id {shown(given)} does not match its canonical @key id {shown(canonical)}"
        elif not any(is_spelling_of(scalar, text, given) for scalar, text in members):
            reason = f"id {shown(given)} does not match @key, whose canonical id is {shown(canonical)}"
        elif self.respelled.setdefault(given, canonical) != canonical:
            known = self.respelled[given]
            reason = f"ambiguous edge endpoint remap: {shown(given)} stands for {shown(known)} and {shown(canonical)}"
        else:
            return
        judge.reject(row, Stage.KEYS, "id", reason)


class _Judge:
    """Collects the rejections of one block of rows and cuts the rejected rows out at the end."""

    def __init__(self, type_: TableType, lines: Sequence[int] | pa.Array, rejected: list[RejectedRow]) -> None:
        self._type = type_
        self._lines = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.int64())
        self._report = rejected
        self._rows: set[int] = set()

    @property
    def type_key(self) -> str:
        return self._type.type_key

    @property
    def count(self) -> int:
        return len(self._lines)

    def is_rejected(self, row: int) -> bool:
        return row in self._rows

    def reject(self, row: int, stage: Stage, name: str | None, reason: str) -> None:
        self._rows.add(row)
        line = self._lines[row].as_py()
        self._report.append(RejectedRow(line, self._type.type_key, name, reason, stage))

    def column(self, prop: Property, column: Column) -> None:
        for row, reason in column.unfit.items():
            self.reject(row, Stage.VALUES, prop.name, f"property '{prop.name}': {reason}")
        if not prop.type.nullable:
            for row in column.null_rows():
                self.reject(row, Stage.VALUES, prop.name, _null_reason(self._type, prop))

    def table(self, columns: list[pa.Array]) -> pa.Table:
        return pa.table(columns, schema=rows_schema(self._type))

    def accepted(self, columns: list[pa.Array]) -> TypedRows:
        rows = self.table(columns)
        if not self._rows:
            return TypedRows(self._type, rows, self._lines)
        keep = np.ones(self.count, np.bool_)
        keep[list(self._rows)] = False
        mask = pa.array(keep)
        return TypedRows(self._type, rows.filter(mask), self._lines.filter(mask))


def _by_name(records: Sequence[Mapping[str, object]], names: set[str]) -> Callable[[str], Sequence[object]]:
    """How to get the values of one member from all records, null where a record has none."""
    if sum(map(len, records)) == len(names) * len(records):
        return lambda name: list(map(itemgetter(name), records))
    return lambda name: [record.get(name) for record in records]


def _absent(prop: Property, judge: _Judge) -> pa.Array:
    column = Column(pa.nulls(judge.count, arrow_type(prop.type)))
    judge.column(prop, column)
    return column.array


def _null_reason(type_: TableType, prop: Property) -> str:
    if prop.type.is_vector:
        return f"non-nullable vector property '{prop.name}' has no value; @embed does not fill it on load"
    if prop.type.is_blob:
        return f"non-nullable blob property '{prop.name}' has no value"
    keyed = ", and it is part of the @key" if isinstance(type_, NodeType) and prop.name in type_.key else ""
    return f"non-nullable property '{prop.name}' has null value{keyed}"


def _unknown_reason(type_: TableType, name: str) -> str:
    if name in RESERVED_NAMES:
        return f"'{name}' is reserved physical state"
    if type_.kind == "edge" and name in _STRUCTURAL_NAMES:
        return f"'{name}' is reserved structural state; the endpoints are 'from' and 'to' beside 'data'"
    suggestion = did_you_mean(name, type_.properties)
    return f"unknown input field '{name}'" + (f"; {suggestion}" if suggestion else "")
