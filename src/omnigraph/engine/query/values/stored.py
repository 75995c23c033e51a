"""What rows are bound to: properties, ids and ends, entities, values of variables; and what a search tells of them.

A variable of several types is read type by type. Null entities have null everywhere. Nothing here calls `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Bindings, Indices, member_column, output_variable
from omnigraph.engine.query.context import ReadContext, RowsContext, ValueContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.ranking import matching_rows, scores_of
from omnigraph.engine.query.properties import Located, one_array
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.value_columns import column_type, list_array, list_offsets, references
from omnigraph.engine.query.values.date_functions import date_texts
from omnigraph.engine.query.values.elementwise import (
    Argument,
    Evaluated,
    Part,
    Piece,
    as_located,
    convert_rows,
    join_pieces,
)
from omnigraph.engine.rows.end_ids import end_of_column, plain_ids
from omnigraph.engine.rows.kernels.ids import EndpointIds, EnvelopeError
from omnigraph.language.catalog import EdgeEnd, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.query.value_types import BOOL, F64, STRING, EntityType, ValueType
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

META_COLUMNS: Final = {MetaField.ID: "id", MetaField.SRC: "src", MetaField.DST: "dst"}
"""The column of each field that is stored."""


def read_context(context: ValueContext) -> ReadContext:
    assert isinstance(context, ReadContext), "stored values need a snapshot"
    return context


# ---- variables ------------------------------------------------------------------------------------------


def variables_read(*values: ir.Value | None) -> frozenset[str]:
    """The variables of the row that some values read, columns of an aggregate among them."""
    present = [value for value in values if value is not None]
    outputs = (output_variable(p.index) for v in present for p in ir.walk(v) if isinstance(p, ir.OutputValue))
    return frozenset({*outputs, *(name for value in present for name in ir.variables_of(value))})


def variable_value(variable: str, type_: ValueType, rows: Bindings, context: ValueContext) -> Located:
    """The value of a variable."""
    if isinstance(type_, EntityType):
        return entity(variable, rows)
    return context.bound.locate(variable, type_, rows.rows[variable])


def entity(variable: str, rows: Bindings) -> Located:
    bound = rows.rows[variable]
    return Located(references(rows.rows.get(member_column(variable), 0), bound), np.arange(len(bound)))


def variable_columns(
    variable: str, type_: ValueType, evaluated: Evaluated, source: ValueType, length: int, context: ValueContext
) -> dict[str, Indices]:
    """The columns of a variable of a type that is bound to values of another type, which it holds."""
    column = convert_rows(as_located(evaluated, length).condense(context.budget), source, type_)
    if not isinstance(type_, EntityType):
        return {variable: context.bound.add(variable, type_, column.values)[column.positions]}
    columns = {variable: _child(column.values, 1, -1)[column.positions]}
    if len(type_.members) > 1:
        columns[member_column(variable)] = _child(column.values, 0, 0)[column.positions]
    return columns


def _child(entities: pa.Array, index: int, null: int) -> Indices:
    """The member or the row id of each entity."""
    numbers: Indices = pc.fill_null(pc.struct_field(entities, index), null).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64, copy=False)


def _by_member(
    variable: str,
    count: int,
    rows: Bindings,
    read: Callable[[int, RowIds], tuple[Evaluated, ValueType]],
    type_: ValueType,
    context: ValueContext,
) -> Evaluated:
    """The values of a variable with so many types, read for the rows of each type on its own."""
    bound, codes = rows.rows[variable], rows.rows.get(member_column(variable))
    if codes is None:
        assert count == 1, f"${variable} is bound with its types"
        codes = np.zeros(len(bound), np.int64)
    pieces: list[Piece] = []
    for member in range(count):
        chosen = np.flatnonzero((codes == member) & (bound >= 0))
        if len(chosen):
            pieces.append((chosen, *read(member, bound[chosen])))
    return join_pieces(pieces, len(bound), type_, context)


# ---- properties and meta-fields -------------------------------------------------------------------------


def property_value(value: ir.PropertyValue, rows: Bindings, context: ValueContext) -> Evaluated:
    return _property(value, rows.rows[value.variable], context)


def _property(value: ir.PropertyValue, bound: RowIds, context: ValueContext) -> Evaluated:
    if isinstance(context, RowsContext):
        return Located(one_array(context.rows.column(value.prop.column)), bound)
    context = read_context(context)
    if not context.has_column(value):
        return pa.scalar(None, column_type(value.type))
    return context.properties.locate(context.table(value.owner), value.variable, value.prop.column, bound)


def union_property(value: ir.UnionProperty, rows: Bindings, context: ValueContext) -> Evaluated:
    def read(member: int, bound: RowIds) -> tuple[Evaluated, ValueType]:
        part = value.parts[member]
        if part is None:
            return pa.scalar(None, column_type(value.type)), value.type
        return _property(part, bound, context), part.prop.type

    return _by_member(value.variable, len(value.parts), rows, read, value.type, context)


def meta_value(value: ir.MetaValue, rows: Bindings, context: ValueContext) -> Evaluated:
    """An id or an end, or the name of the type."""
    if value.field is MetaField.TYPE:
        bound = rows.rows[value.variable]
        codes = rows.rows.get(member_column(value.variable), np.zeros(len(bound), np.int64))
        names = pa.array([member.name for member in value.members], pa.string())
        return Located(names, np.where(bound < 0, -1, codes))
    column = META_COLUMNS[value.field]
    if len(value.members) == 1:
        return _meta(value, value.members[0], column, rows.rows[value.variable], context)

    def read(member: int, bound: RowIds) -> tuple[Evaluated, ValueType]:
        return _meta(value, value.members[member], column, bound, context), STRING

    return _by_member(value.variable, len(value.members), rows, read, value.type, context)


def _meta(value: ir.MetaValue, owner: TableType, column: str, bound: RowIds, context: ValueContext) -> Located:
    if isinstance(context, RowsContext):
        located = Located(one_array(context.rows.column(column)), bound)
    else:
        context = read_context(context)
        located = context.properties.locate(context.table(owner), value.variable, column, bound)
    end = end_of_column(owner, column)
    return located if end is None else located_ids(end, located, context.budget)


def located_ids(end: EdgeEnd, located: Located, budget: MemoryBudget) -> Located:
    """The ids of nodes from the column of an end, without the tags of their types."""
    condensed = located.condense(budget)
    return Located(plain_ids(end, condensed.values), condensed.positions)


def load_together(values: Iterable[ir.Value], rows: Bindings, context: ValueContext) -> None:
    """Read the stored columns that values at any depth need, with one request per variable and type instead of one
    per value."""
    if not isinstance(context, ReadContext):
        return
    columns: dict[tuple[str, str], dict[str, None]] = {}
    owners: dict[tuple[str, str], tuple[TableType, RowIds]] = {}
    for variable, owner, member, column in stored_columns(values, context):
        bound = rows.rows.get(variable)
        if bound is None:
            continue  # a variable of a list form: its values are not bound yet
        key = (variable, owner.type_key)
        if key not in owners:
            codes = rows.rows.get(member_column(variable))
            owners[key] = owner, bound if codes is None or member is None else bound[codes == member]
        columns.setdefault(key, {})[column] = None
    for (variable, _), (owner, bound) in owners.items():
        context.properties.load(context.table(owner), variable, list(columns[variable, owner.type_key]), bound)


def stored_columns(
    values: Iterable[ir.Value], context: ReadContext
) -> Iterator[tuple[str, TableType, int | None, str]]:
    """Variable, type, the position of the type among those of the variable if it has several, and column. What only a
    search looks at is not read."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        match value:
            case ir.PropertyValue():
                if context.has_column(value):
                    yield value.variable, value.owner, None, value.prop.column
            case ir.UnionProperty():
                for member, part in enumerate(value.parts):
                    if part is not None and context.has_column(part):
                        yield value.variable, part.owner, member, part.prop.column
            case ir.MetaValue() if value.field in META_COLUMNS:
                for member, owner in enumerate(value.members):
                    yield value.variable, owner, member, META_COLUMNS[value.field]
            case ir.TextMatch() | ir.Score():
                continue
            case _:
                waiting += reversed(ir.operands_of(value))


# ---- what is derived from them --------------------------------------------------------------------------


def node_key_kernel(value: ir.NodeKey) -> Callable[[Part, Argument], pa.Array]:
    """The ids of nodes by their keys; a value that is not a key becomes a text that is nobody's id."""
    ids = EndpointIds("key", value.node)

    def id_of(key: object) -> str:
        try:
            return ids.id_of(key)
        except EnvelopeError:
            return str(key)

    def kernel(part: Part, keys: Argument) -> pa.Array:
        if pa.types.is_temporal(keys.type):
            keys = date_texts(part, keys)
        return pa.array([id_of(key) for (key,) in part.each(keys)], pa.string())

    return kernel


_KEYS: Final = "#keys"
"""The variable under which `keys` reads columns."""
_NAME_BYTES: Final = 64
"""Of one name in a list: its text, which property it is of, and whether the entity has that."""


def property_names(entities: Located, type_: EntityType, value: ir.Value, context: ValueContext) -> Located:
    """`keys`: the names of the properties that an entity has and its reader sees, but for blobs and vectors, as objects
    have them."""
    context = read_context(context)
    condensed = entities.condense(context.budget)
    codes, bound = _child(condensed.values, 0, 0), _child(condensed.values, 1, -1)
    pieces: list[Piece] = []
    for number, member in enumerate(type_.members):
        chosen = np.flatnonzero((codes == number) & (bound >= 0))
        if len(chosen):
            names = _names_of(member, bound[chosen], context)
            pieces.append((chosen, Located(names, np.arange(len(chosen))), value.type))
    named = join_pieces(pieces, len(bound), value.type, context)
    return Located(named.values, named.positions[condensed.positions])


def _names_of(type_: TableType, bound: RowIds, context: ReadContext) -> pa.Array:
    """The names for entities of one type, in the order of its properties."""
    masked = context.visibility.of(type_).masked
    properties = [
        ir.PropertyValue(_KEYS, type_, prop)
        for prop in type_.property_list
        if not (prop.type.is_blob or prop.type.is_vector or prop.name in masked)
    ]
    stored = [prop for prop in properties if context.has_column(prop)]
    rows = Bindings({_KEYS: bound}, len(bound))
    load_together(stored, rows, context)
    context.budget.step(_NAME_BYTES * len(stored) * len(bound))
    present = np.zeros((len(stored), len(bound)), np.bool_)
    for number, prop in enumerate(stored):
        column = as_located(property_value(prop, rows, context), len(bound))
        present[number] = column.values.is_valid().to_numpy(zero_copy_only=False)[column.positions]
    names = pa.array([prop.prop.name for prop in stored], pa.string())
    return list_array(list_offsets(present.sum(axis=0)), names.take(pa.array(np.nonzero(present.T)[1])))


# ---- search ---------------------------------------------------------------------------------------------


def text_match(value: ir.TextMatch, rows: Bindings, context: ValueContext) -> Evaluated:
    """False for a null text and a null entity: a match is never null."""
    context = read_context(context)
    parts = _parts_of(value.field)
    bound = rows.rows[value.field.variable]

    def read(member: int, bound: RowIds) -> tuple[Evaluated, ValueType]:
        part = parts[member]
        if part is None:
            return pa.scalar(False), BOOL
        candidates = RowSpace.of(bound)
        match = ir.TextMatch(value.function, part, value.query, value.max_edits)
        matching = RowSpace(matching_rows(match, Candidates(rows=candidates.rows), context))
        return Located(pa.array(matching.contains(candidates.rows)), candidates.positions(bound)), BOOL

    if len(parts) == 1 and bound.min(initial=0) >= 0:
        return read(0, bound)[0]
    matches = as_located(_by_member(value.field.variable, len(parts), rows, read, BOOL, context), len(bound))
    values = pa.concat_arrays([matches.values, pa.array([False])])
    return Located(values, np.where(matches.positions < 0, len(values) - 1, matches.positions))


def score(value: ir.Score, rows: Bindings, context: ValueContext) -> Evaluated:
    """The score of each row; null for a row without a rank."""
    context, rank = read_context(context), value.rank
    field = rank.first.field if isinstance(rank, ir.FusedRank) else rank.field

    def measure(rank: ir.Ranking, bound: RowIds) -> Located:
        scores = scores_of(rank, bound, context)
        return Located(pa.array(scores.values), scores.space.positions(bound))

    if isinstance(field, ir.PropertyValue):
        return measure(rank, rows.rows[field.variable])
    assert isinstance(rank, ir.NearestRank), "only vectors are ranked over several types"
    query, parts = rank.query, field.parts

    def read(member: int, bound: RowIds) -> tuple[Evaluated, ValueType]:
        part = parts[member]
        if part is None:
            return pa.scalar(None, pa.float64()), F64
        return measure(ir.NearestRank(part, query), bound), F64

    return _by_member(field.variable, len(parts), rows, read, F64, context)


def _parts_of(field: ir.PropertyValue | ir.UnionProperty) -> Sequence[ir.PropertyValue | None]:
    return field.parts if isinstance(field, ir.UnionProperty) else (field,)
