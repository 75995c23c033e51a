"""The statements of a mutation that run once for each row of a feed.

`mutation` calls it. A feed is a read: its rows come from the captured head under the author's visibility, never from
what the mutation writes. A statement is worked on for all rows at once. That is the same as row by row as long as no
two rows give one entity different values, and such a mutation is refused: rows have no order that could decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from omnigraph.api.governance import Limits
from omnigraph.engine.query.bindings import Bindings, Indices, member_column
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.properties import Located, one_array
from omnigraph.engine.query.run import run_rows
from omnigraph.engine.query.value_columns import repeat
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.engine.query.values.stored import load_together
from omnigraph.engine.rows.columns import BLOB_CELL, equal_values, fillable
from omnigraph.engine.rows.end_ids import stored_ids
from omnigraph.engine.rows.kernels.ids import EndpointIds, EnvelopeError, edge_ends
from omnigraph.engine.rows.kernels.records import Records, RecordTyper
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, Stage, TypedRows
from omnigraph.engine.write.mutation_rows import (
    REPLACE,
    STATEMENT,
    InsertForm,
    records_of,
    refuse_first,
    refuse_large,
    stale_vectors,
    type_calculated,
)
from omnigraph.errors import ConstraintError, EvaluationError, EvaluationRule, ResourceLimitError
from omnigraph.language.catalog import EdgeEnd, EdgeType, NodeType, Property, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.violations import Sentence, quote
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.rows import RowIds

_REMEDY: Final = "write from fewer rows at a time, or use the Spark pipeline"
_LANGUAGE: Final = "omnigraph.language.query."


def types_read_by(feed: ir.ForEachRow, context: ReadContext) -> set[str]:
    """The keys of all types that a feed may look at. Where rows are invisible, an edge is only there with its ends."""
    types: set[str] = set()
    waiting: list[object] = [feed.rows]
    while waiting:
        part = waiting.pop()
        if isinstance(part, NodeType | EdgeType):
            types.add(part.type_key)
            if isinstance(part, EdgeType) and not context.visibility.is_unrestricted:
                types |= {f"node:{name}" for end in part.ends for name in end.types}
        elif isinstance(part, tuple):
            waiting += part
        elif isinstance(part, Struct) and type(part).__module__.startswith(_LANGUAGE):
            waiting += [getattr(part, name) for name in part.__struct_fields__]
    return types


@dataclass(frozen=True, slots=True)
class InsertedRows:
    """What an insert writes for the rows of a feed, and the number of the feed's row for each."""

    statement: ir.InsertNode | ir.InsertEdge
    typed: TypedRows
    form: InsertForm
    feed_rows: Indices

    @property
    def type(self) -> TableType:
        return self.statement.type

    @property
    def ids(self) -> pa.Array:
        return one_array(self.typed.rows.column("id"))

    @property
    def values(self) -> pa.Table:
        """The values for the entities: of all properties, or only of those that the statement assigns."""
        names = self.form.columns
        return self.typed.rows.drop_columns(["id"]) if names is None else self.typed.rows.select(list(names))

    @property
    def is_fresh(self) -> bool:
        """Whether every row is an entity of its own."""
        return not self.type.key

    def take(self, rows: Indices) -> InsertedRows:
        return replace(self, typed=self.typed.take(pa.array(rows)), feed_rows=self.feed_rows[rows])


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """What an update gives to the entities of a feed's variable; `rows` are their row ids."""

    statement: ir.UpdateVariable
    number: int
    ids: pa.Array
    rows: RowIds
    values: pa.Table
    feed_rows: Indices
    is_fresh: bool = field(default=False, init=False)

    @property
    def type(self) -> TableType:
        return self.statement.type

    def take(self, rows: Indices) -> UpdatedRows:
        chosen = pa.array(rows)
        ids, values = self.ids.take(chosen), self.values.take(chosen)
        return replace(self, ids=ids, rows=self.rows[rows], values=values, feed_rows=self.feed_rows[rows])


FeedWrite: TypeAlias = InsertedRows | UpdatedRows


class FeedRows:
    """The rows of one feed. All of them are read before anything is written."""

    def __init__(
        self, feed: ir.ForEachRow, context: ReadContext, limits: Limits, is_computed: Callable[[Property], bool]
    ) -> None:
        self._context = context
        self._limits = limits
        self._is_computed = is_computed
        needed = [value for statement in feed.statements for value in _values_of(statement)]
        self._rows = run_rows(feed.rows, needed, context)
        if self._rows.length > limits.rows:
            raise ResourceLimitError("rows of a feed", limits.rows, self._rows.length, _REMEDY)
        load_together(needed, self._rows, context)

    def __len__(self) -> int:
        return self._rows.length

    def write(self, statement: ir.RowWrite, number: int) -> FeedWrite:
        """What a statement writes for all rows."""
        match statement:
            case ir.InsertNode() | ir.InsertEdge():
                return self._insert(statement, number)
            case ir.UpdateVariable():
                return self._update(statement, number)
        raise AssertionError("deletes never share a mutation with inserts and updates")

    def _insert(self, insert: ir.InsertNode | ir.InsertEdge, number: int) -> InsertedRows:
        """A row whose end is a null entity is left out."""
        rows, feed_rows = self._with_entities(_entity_ends(insert))
        ends = self._ends(insert, rows, number) if isinstance(insert, ir.InsertEdge) else ()
        type_ = fillable(insert.type, self._is_computed)
        values = {assign.property.name: self._evaluate(assign.value, rows) for assign in insert.assignments}
        refuse_large(self._limits, insert.type, (*values.values(), *ends), rows.length)
        parts = []
        for start, records in records_of(values, rows.length):
            self._context.cancellation.check()
            block = [end.slice(start, len(records)).to_pylist() for end in ends]
            rejected: list[RejectedRow] = []
            parts.append(RecordTyper(type_, rejected).read(Records(type_, [number] * len(records), records, *block)))
            refuse_first(rejected)
        typed = pa.concat_tables([part.rows for part in parts])
        numbers = pa.array(np.full(rows.length, number))
        form = insert_form(insert, self._is_computed)
        return InsertedRows(insert, TypedRows(insert.type, typed, numbers), form, feed_rows)

    def _update(self, update: ir.UpdateVariable, number: int) -> UpdatedRows:
        """Null entities get nothing."""
        rows, feed_rows = self._with_entities([update.variable])
        ids = self._array(_id_of(update.variable, update.type), rows)
        values = {assign.property: self._evaluate(assign.value, rows) for assign in update.assignments}
        typed = type_calculated(update.type, values, ids, number, self._limits)
        return UpdatedRows(update, number, ids, rows.rows[update.variable], typed, feed_rows)

    def ids_of(self, delete: ir.DeleteVariable) -> set[str]:
        """The entities of a variable, without null."""
        rows, _ = self._with_entities([delete.variable])
        return set(self._array(_id_of(delete.variable, delete.type), rows).to_pylist())

    def _with_entities(self, variables: Sequence[str]) -> tuple[Bindings, Indices]:
        """The rows in which none of these variables is null, and their numbers."""
        is_bound = np.ones(self._rows.length, np.bool_)
        for variable in variables:
            is_bound &= self._rows.rows[variable] >= 0
        return self._rows.where(is_bound), np.flatnonzero(is_bound)

    def _ends(self, insert: ir.InsertEdge, rows: Bindings, number: int) -> tuple[pa.Array, ...]:
        """The ids of the nodes at the ends of the edges, in the form that is stored."""
        ids = []
        node_ids = edge_ends(self._context.catalog, insert.type)
        for end, named, value in zip(insert.type.ends, node_ids, (insert.source, insert.target), strict=True):
            if isinstance(value, ir.EntityValue):
                ids.append(_stored_ends(end, value, self._array(_entity_id(value), rows), rows))
            else:
                ids.append(_ids_of_ends(insert.type, named, self._array(value, rows), number))
        return tuple(ids)

    def _evaluate(self, value: ir.Value, rows: Bindings) -> pa.Array | pa.Scalar:
        """A value for each of the rows, or one that is the same for all."""
        evaluated = evaluate(value, rows, self._context)
        return one_array(evaluated.in_parts(self._context.budget)) if isinstance(evaluated, Located) else evaluated

    def _array(self, value: ir.Value, rows: Bindings) -> pa.Array:
        evaluated = self._evaluate(value, rows)
        return repeat(evaluated, rows.length) if isinstance(evaluated, pa.Scalar) else evaluated


def _entity_ends(statement: ir.InsertNode | ir.InsertEdge) -> list[str]:
    """The variables whose nodes are the ends of a new edge."""
    ends = (statement.source, statement.target) if isinstance(statement, ir.InsertEdge) else ()
    return [end.variable for end in ends if isinstance(end, ir.EntityValue)]


def insert_form(insert: ir.InsertNode | ir.InsertEdge, is_computed: Callable[[Property], bool]) -> InsertForm:
    """How the rows of an insert meet rows that have their ids."""
    if not insert.type.key:
        return REPLACE
    if not insert.keeps_rest:
        return InsertForm(must_be_new=True) if insert.must_be_new else REPLACE
    assigned = [assign.property.column for assign in insert.assignments]
    return InsertForm(columns=(*assigned, *stale_vectors(insert.type, assigned, is_computed)))


def refuse_ambiguous(writes: Sequence[FeedWrite]) -> None:
    """Raise unless all rows of a feed agree about every entity. A later statement of the same row may change what an
    earlier one gave, but two inserts of one key agree in any case, and two upserts in what they both assign."""
    by_type: dict[str, list[FeedWrite]] = {}
    for write in writes:
        if not write.is_fresh:
            by_type.setdefault(write.type.type_key, []).append(write)
    for of_type in by_type.values():
        if len(of_type) > 1:
            inserts = [write for write in of_type if isinstance(write, InsertedRows)]
            _compare_writes([insert for insert in inserts if insert.form.columns is None], in_turn=False)
            _compare_writes([insert for insert in inserts if insert.form.columns is not None], in_turn=False)
        _compare_writes(of_type, in_turn=True)


def _compare_writes(writes: Sequence[FeedWrite], *, in_turn: bool) -> None:
    """Raise where an entity gets two values of a property. `in_turn`: what an earlier statement of the same row gave
    does not count."""
    for column in dict.fromkeys(name for write in writes for name in write.values.column_names):
        _compare_values([write for write in writes if column in write.values.column_names], column, in_turn=in_turn)


def _compare_values(writes: Sequence[FeedWrite], column: str, *, in_turn: bool) -> None:
    ids = one_array(pa.chunked_array([write.ids for write in writes], pa.string()))
    entities = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    places = np.arange(len(ids))
    if in_turn and len(writes) > 1:
        # Statements follow each other here, so of one row and entity the last place is that of the last statement.
        feed_rows = np.concatenate([write.feed_rows for write in writes])
        order = np.lexsort((places, feed_rows, entities))
        is_last = np.ones(len(ids), np.bool_)
        is_last[:-1] = (np.diff(entities[order]) != 0) | (np.diff(feed_rows[order]) != 0)
        places = np.sort(order[is_last])
    _, first, entity = factorize(entities[places])
    if len(first) == len(places):
        return
    values = pa.concat_tables([write.values.select([column]) for write in writes]).column(column)
    same = _equal_cells(values.take(pa.array(places)), values.take(pa.array(places[first][entity])))
    if not same.all():
        place = int(places[np.argmin(same)])
        write = writes[int(np.searchsorted(np.cumsum([len(each.ids) for each in writes]), place, side="right"))]
        raise _ambiguous(write, column, ids[place].as_py())


def _equal_cells(left: pa.ChunkedArray, right: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Row by row, whether two columns hold the same values."""
    if left.type != BLOB_CELL:
        return equal_values(left, right)
    same = np.ones(len(left), np.bool_)
    for own, other in zip(left.flatten(), right.flatten(), strict=True):
        same &= equal_values(own, other)
    return same


def _ambiguous(write: FeedWrite, column: str, entity_id: str) -> EvaluationError:
    name = next(prop.name for prop in write.type.property_list if prop.column == column)
    value = next((each.value for each in write.statement.assignments if each.property.name == name), None)
    message = f"the rows give {write.type.name} {quote(entity_id)} different values of '{name}'; nothing was written"
    expression = "" if value is None else ir.value_text(value)
    return EvaluationError(EvaluationRule.AMBIGUOUS_WRITE, expression, write.type.name, entity_id, message=message)


def one_of_each(write: FeedWrite) -> FeedWrite:
    """One row for each entity, the first."""
    if write.is_fresh:
        return write
    entities = write.ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    first = factorize(entities).first
    return write if len(first) == len(entities) else write.take(np.sort(first))


def _stored_ends(end: EdgeEnd, entity: ir.EntityValue, ids: pa.Array, rows: Bindings) -> pa.Array:
    """The ids of the nodes of a variable, which knows their types, as the column of an end holds them."""
    if end.interface is None:
        return ids
    members = rows.rows.get(member_column(entity.variable), np.zeros(len(ids), np.int64))
    stored = ids
    for number, member in enumerate(entity.type.members):
        stored = pc.if_else(pa.array(members == number), stored_ids(end, member.name, ids), stored)
    return stored


def _ids_of_ends(edge: EdgeType, end: EndpointIds, values: pa.Array, number: int) -> pa.Array:
    """The ids of the nodes that some values name, by their ids or their keys."""
    column = end.column(values)
    refusals = {row: end.refusal(unfit) for row, unfit in column.unfit.items()}
    refusals |= {row: EnvelopeError(Sentence.NO_NODE_ID, name=end.name, shape="null") for row in column.null_rows()}
    if refusals:
        error = refusals[min(refusals)]
        raise refused_end(edge, error, number)
    return column.array


def refused_end(edge: EdgeType, error: EnvelopeError, number: int) -> ConstraintError:
    """The error about an end of a new edge that names no node."""
    end, rule = str(error.values["name"]), error.sentence.rule
    return RejectedRow(number, edge.type_key, end, str(error), Stage.ENVELOPE, rule).error(STATEMENT)


def _values_of(write: ir.RowWrite) -> Iterator[ir.Value]:
    """What a statement reads of a row."""
    if isinstance(write, ir.UpdateVariable | ir.DeleteVariable):
        yield _id_of(write.variable, write.type)
    if isinstance(write, ir.InsertEdge):
        for end in (write.source, write.target):
            yield _entity_id(end) if isinstance(end, ir.EntityValue) else end
    if not isinstance(write, ir.DeleteVariable):
        yield from (assign.value for assign in write.assignments)


def _id_of(variable: str, type_: TableType) -> ir.MetaValue:
    return ir.MetaValue(variable, (type_,), MetaField.ID, optional=True)


def _entity_id(entity: ir.EntityValue) -> ir.MetaValue:
    return ir.MetaValue(entity.variable, entity.type.members, MetaField.ID, optional=True)
