"""Entities, paths, lists and records as a user gets them: Arrow structs and lists with typed fields.

Within a query an entity is a reference. `projection` calls this module where rows leave the query, so that properties
are read once for each entity of a batch and never for rows that a limit dropped. A column mask shows here as null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.queries import json_rows, rendering_parts
from omnigraph.api.values import OTHER_PROPERTIES, compact_json
from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import compact_lists, list_array, null_mask
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.engine.rows.end_ids import plain_ids, type_names
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import EdgeEnd, EdgeType, Property, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import OutputColumn
from omnigraph.language.query.value_types import (
    EntityType,
    ListType,
    NullType,
    PathType,
    RecordType,
    ValueType,
)
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.rows import RowIds

_NESTED: Final = "#objects"
"""The variable under which properties of entities within values are read."""
_MOST_BYTES: Final = 1 << 30
"""Of the texts of one object column of a batch: half of what Arrow allows them."""
# What is made of several rows at a time: enough for the cost of a call not to matter.
_BYTES_AT_ONCE: Final = 64 << 20
_ITEMS_AT_ONCE: Final = 1 << 16
_MOST_ITEMS: Final = 1 << 20
_MEMBER_BITS: Final = 16
_OTHERS: Final = pa.field("properties", pa.string(), metadata=OTHER_PROPERTIES)


# ---- types ----------------------------------------------------------------------------------------------


def output_schema(columns: Iterable[OutputColumn]) -> pa.Schema:
    """The Arrow schema of a result."""
    return pa.schema([pa.field(column.name, output_type(column.type)) for column in columns])


def output_type(type_: ValueType) -> pa.DataType:
    """The Arrow type of values of this type for a user."""
    match type_:
        case EntityType():
            return pa.struct(_entity_fields(type_))
        case PathType():
            nodes, edges = pa.list_(output_type(type_.nodes)), pa.list_(output_type(type_.edges))
            return pa.struct([("length", pa.int64()), ("nodes", nodes), ("edges", edges)])
        case ListType():
            return pa.list_(output_type(type_.item))
        case RecordType():
            return pa.struct([pa.field(name, output_type(field)) for name, field in type_.fields])
        case NullType():
            return pa.string()
    return arrow_type(type_)


def _entity_fields(type_: EntityType) -> list[pa.Field]:
    fields = [pa.field(name, pa.string()) for name in ("@id", "@type", *_end_fields(type_))]
    fields += [pa.field(prop.name, arrow_type(prop.type)) for prop in _common_properties(type_)]
    return fields if len(type_.members) == 1 else [*fields, _OTHERS]


def _end_fields(type_: EntityType) -> dict[str, int]:
    """The fields for the ends of edges, each with the position of its end. An end that is an interface in one of the
    types has another one for the type of the node."""
    edges = [member for member in type_.members if isinstance(member, EdgeType)]
    fields: dict[str, int] = {}
    for position, name in enumerate(("@src", "@dst") if type_.is_edge else ()):
        fields[name] = position
        if any(edge.ends[position].interface is not None for edge in edges):
            fields[f"{name}_type"] = position
    return fields


def _common_properties(type_: EntityType) -> tuple[Property, ...]:
    """The properties that every member has with one type; of several members none that is named as the rest is. A
    selection of edges may have no members: no edge fits its ends."""
    if not type_.members:
        return ()
    first, *others = type_.members
    return tuple(
        prop
        for prop in first.shown_properties
        if not others or prop.name != _OTHERS.name
        if all(_has_same(other, prop) for other in others)
    )


def _has_same(member: TableType, prop: Property) -> bool:
    own = member.properties.get(prop.name)
    return own is not None and arrow_type(own.type) == arrow_type(prop.type)


def shows_objects(type_: ValueType) -> bool:
    """Whether values of this type are, or hold, entities."""
    match type_:
        case EntityType() | PathType():
            return True
        case ListType():
            return shows_objects(type_.item)
        case RecordType():
            return any(shows_objects(field) for _, field in type_.fields)
    return False


# ---- values ---------------------------------------------------------------------------------------------


class TooManyRowsError(Exception):
    """The objects of so many rows are too much to make at a time."""


class Objects:
    """The objects of some rows, which count against the budget of the query until they are released."""

    def __init__(self, rows: int, context: ReadContext) -> None:
        """`rows` is how many there are: of several, too much is refused."""
        self._rows = rows
        self._context = context
        self.held = 0

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.budget.release(self.held)
        self.held = 0

    def present(self, located: Located, value: ir.Value) -> Located:
        """Values as a user gets them. Raises `TooManyRowsError` for what takes long or does not fit at a time."""
        if not shows_objects(value.type):
            return located
        column = located.condense(self._context.budget)
        if isinstance(value.type, EntityType):
            # Rows share the objects of equal entities: a cross product makes none anew.
            variable = value.variable if isinstance(value, ir.EntityValue) else _NESTED
            shared = self._entities(column.values, value.type, variable)
            return Located(shared.values, shared.positions[column.positions])
        return Located(self._convert(column.values, value.type), column.positions)

    def _convert(self, values: pa.Array, type_: ValueType) -> pa.Array:
        """Values of any type, one for each."""
        self._context.cancellation.check()
        match type_:
            case EntityType():
                return self._one_each(values, type_)
            case PathType():
                lengths = pc.cast(pc.list_value_length(values.field(1)), pa.int64())
                nodes = self._lists(values.field(0), type_.nodes)
                edges = self._lists(values.field(1), type_.edges)
                return _struct([lengths, nodes, edges], output_type(type_), values)
            case ListType():
                return self._lists(values, type_.item)
            case RecordType():
                fields = [self._convert(values.field(i), field) for i, (_, field) in enumerate(type_.fields)]
                return _struct(fields, output_type(type_), values)
        return values if values.type == output_type(type_) else values.cast(output_type(type_))

    def _lists(self, values: pa.Array, item: ValueType) -> pa.Array:
        if self._rows > 1 and (pc.sum(pc.list_value_length(values)).as_py() or 0) > _MOST_ITEMS:
            raise TooManyRowsError
        lists = compact_lists(values)
        return list_array(lists.offsets, self._convert(lists.values, item), null_mask(lists))

    def _one_each(self, values: pa.Array, type_: EntityType) -> pa.Array:
        """One object for each reference, which are copies."""
        parts: list[pa.Array] = []
        for start in range(0, max(1, len(values)), _ITEMS_AT_ONCE):
            self._context.cancellation.check()
            parts.append(self._gather(self._entities(values.slice(start, _ITEMS_AT_ONCE), type_)))
        return self._join(parts)

    def _gather(self, located: Located) -> pa.Array:
        """One value for each position, which is a copy."""
        self._require(nbytes := located.nbytes)
        parts = located.in_parts(self._context.budget).chunks
        self._hold(nbytes)
        return self._join(parts)

    def _join(self, parts: list[pa.Array]) -> pa.Array:
        if len(parts) == 1:
            return parts[0]
        nbytes = sum(part.nbytes for part in parts)
        self._hold(nbytes)
        if nbytes > _MOST_BYTES:
            remedy = "return or collect fewer entities at a time, or only the properties that are needed"
            raise ResourceLimitError("object_bytes", _MOST_BYTES, nbytes, remedy)
        return pa.concat_arrays(parts)

    def _require(self, nbytes: int) -> None:
        """Several rows that make so much more come fewer at a time."""
        if self._rows > 1 and self.held + nbytes > _BYTES_AT_ONCE:
            raise TooManyRowsError

    def _hold(self, nbytes: int) -> None:
        self._require(nbytes)
        self._context.budget.hold(nbytes)
        self.held += nbytes

    def _entities(self, values: pa.Array, type_: EntityType, variable: str = _NESTED) -> Located:
        """The objects of some references, each entity once."""
        members = pc.fill_null(pc.struct_field(values, "member"), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        rows = pc.fill_null(pc.struct_field(values, "row"), -1).to_numpy(zero_copy_only=False)
        chosen, own_members, of_value = _distinct_entities(members, rows)
        parts: list[pa.Array] = []
        places: list[Indices] = []
        for number, member in enumerate(type_.members):
            at = np.flatnonzero((own_members == number) & (chosen >= 0))
            if len(at):
                parts.append(self._of_member(chosen[at], member, type_, variable))
                places.append(at)
        position = np.full(len(chosen), -1, np.int64)
        if not parts:
            return Located(pa.nulls(0, output_type(type_)), position[of_value])
        place = np.concatenate(places)
        position[place] = np.arange(len(place))
        return Located(self._join(parts), position[of_value])

    def _of_member(self, rows: RowIds, member: TableType, type_: EntityType, variable: str) -> pa.Array:
        """The objects of entities of one type, in the form that `type_` has."""
        context, table = self._context, self._context.table(member)
        system = list(member.system_columns)
        shown = {prop.name: prop for prop in member.shown_properties}
        masked = context.visibility.of(member).masked
        stored = {
            name: prop.column
            for name, prop in shown.items()
            if name not in masked and context.has_column(ir.PropertyValue(variable, member, prop))
        }
        context.properties.load(table, variable, [*system, *stored.values()], rows)

        def column(name: str) -> pa.Array:
            return self._gather(context.properties.locate(table, variable, name, rows))

        def end_field(name: str, end: EdgeEnd) -> pa.Array:
            stored = column(end.column)
            return type_names(end, stored) if name.endswith("_type") else plain_ids(end, stored)

        def values_of(prop: Property) -> pa.Array:
            type_ = arrow_type(prop.type)
            return column(stored[prop.name]).cast(type_) if prop.name in stored else pa.nulls(len(rows), type_)

        ids, ends = column("id"), []
        if isinstance(member, EdgeType):
            ends = [end_field(name, member.ends[position]) for name, position in _end_fields(type_).items()]
        common = _common_properties(type_)
        named = [values_of(shown[prop.name]) for prop in common]
        arrays = [ids, pa.repeat(pa.scalar(member.name), len(rows)), *ends, *named]
        if len(type_.members) > 1:
            names = {prop.name for prop in common}
            rest = {name: values_of(prop) for name, prop in shown.items() if name not in names}
            arrays.append(self._as_json(rest, len(rows)))
        return _struct(arrays, output_type(type_))

    def _as_json(self, columns: dict[str, pa.Array], length: int) -> pa.Array:
        """One object per row as text: the properties that not every type of the variable has."""
        if not columns:
            return pa.repeat(pa.scalar("{}"), length)
        texts = []
        for part in rendering_parts(pa.RecordBatch.from_pydict(columns)):
            self._context.cancellation.check()
            texts.append(pa.array(map(compact_json, json_rows(part, list(columns))), pa.string()))
            self._hold(texts[-1].nbytes)
        return self._join(texts)


def _distinct_entities(members: Indices, rows: RowIds) -> tuple[RowIds, Indices, Indices]:
    """The rows and members of the distinct entities, and the one that each value is."""
    if not members.any():
        chosen, _, of_value = factorize(rows)
        return chosen, np.zeros(len(chosen), np.int64), of_value
    spaces, _, space_of = factorize(rows)
    codes, _, of_value = factorize((space_of << _MEMBER_BITS) | members)
    return spaces[codes >> _MEMBER_BITS], codes & ((1 << _MEMBER_BITS) - 1), of_value


def _struct(arrays: Sequence[pa.Array], type_: pa.DataType, values: pa.Array | None = None) -> pa.Array:
    """Structs of these fields, null where the `values` are."""
    mask = None if values is None else null_mask(values)
    return pa.StructArray.from_arrays(list(arrays), fields=list(type_), mask=mask)
