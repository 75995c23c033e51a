"""The conditions of plain updates and deletes, and the committed rows that satisfy them.

`mutation` calls it. A `Condition` is a predicate about one row, cut at its `and`s: what the store can answer goes into
the scan, one equality may become a lookup by value, and the rest is tested on rows in memory. `StoredRows` reads the
committed rows; statements that seek values of the same column share one lookup. Values are only calculated for rows
that the author of the write may see, so that a failing calculation tells nothing about others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.api.governance import Limits
from omnigraph.engine.query.bindings import Bindings
from omnigraph.engine.query.context import Plain, ReadContext, RowsContext
from omnigraph.engine.query.operators.filter_literals import NEVER
from omnigraph.engine.query.operators.pushdown import split_pushdown
from omnigraph.engine.query.properties import Located, one_array
from omnigraph.engine.query.value_columns import BoundValues
from omnigraph.engine.query.values.evaluate import constant_value, evaluate, is_constant
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.engine.query.values.stored import META_COLUMNS
from omnigraph.engine.rows.columns import column_of
from omnigraph.engine.rows.end_ids import end_of_column
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.mutation_rows import PendingRows, refuse_beyond
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.query.value_types import is_text
from omnigraph.language.types import INTEGER_RANGES, Scalar
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import ROW_ID, RowIds, row_ids_of

_ID: Final = META_COLUMNS[MetaField.ID]
_STORED_INTEGERS: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32})
_EQUALITIES: Final = frozenset({ir.Operator.EQUAL, ir.Operator.NOT_EQUAL})


def evaluate_rows(value: ir.Value, rows: pa.Table, context: ReadContext) -> pa.Array | pa.Scalar:
    """A value that reads properties of `ROW`, one for each of these rows; a scalar where it is the same for all."""
    evaluated = evaluate(value, *_bind_rows(rows, context))
    return one_array(evaluated.in_parts(context.budget)) if isinstance(evaluated, Located) else evaluated


def test_rows(tests: Sequence[ir.Predicate], rows: pa.Table, context: ReadContext) -> pa.Table:
    """Those of some rows for which every test is true. Each is evaluated for the rows that the ones before left."""
    if not tests or not rows.num_rows:
        return rows
    bindings, rows_context = _bind_rows(rows, context)
    left = filter_rows(bindings, tests, rows_context).rows[ir.ROW]
    return rows if len(left) == rows.num_rows else rows.take(pa.array(left))


def _bind_rows(rows: pa.Table, context: ReadContext) -> tuple[Bindings, RowsContext]:
    """Rows that are in no table of a snapshot, to be evaluated within the limits of a read."""
    bound = RowsContext(
        rows=rows.combine_chunks(),
        parameters=context.parameters,
        budget=context.budget,
        cancellation=context.cancellation,
        bound=BoundValues(context.budget),
    )
    return Bindings({ir.ROW: np.arange(rows.num_rows)}, rows.num_rows), bound


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The value of a column that every matching row has, and what else has to be true."""

    column: str
    value: str | int
    rest: tuple[ir.Predicate, ...]


class Condition:
    """The `where` of a statement about a type."""

    def __init__(self, type_: TableType, where: ir.Predicate, context: ReadContext) -> None:
        self.type = type_
        self._context = context
        self._is_possible = True
        varying: list[ir.Predicate] = []
        for test in ir.conjuncts(where):
            if not is_constant(test):
                varying.append(_with_ids(test, type_, context.catalog))
            elif constant_value(test, context) is not True:
                self._is_possible = False
        self._tests = tuple(varying)
        self.lookup = self._find_lookup() if self._is_possible else None

    @cached_property
    def pushdown(self) -> tuple[str | None, tuple[ir.Predicate, ...]]:
        """What the store answers, and the tests that are left. A lookup needs neither."""
        return split_pushdown(self._tests, self._context)

    @property
    def never_holds(self) -> bool:
        """Whether no row can satisfy it, as far as its constants tell."""
        return not self._is_possible or (self.lookup is None and self.pushdown[0] == NEVER)

    def columns_of(self, tests: Iterable[ir.Predicate]) -> list[str]:
        """The columns that some of the tests read."""
        parts = (part for test in tests for part in ir.walk(test))
        return list(dict.fromkeys(column for part in parts if (column := self._column(part)) is not None))

    def select_pending(self, pending: PendingRows) -> pa.Table:
        """The pending rows that satisfy the condition, in the order in which they were written."""
        if self.never_holds:
            return pending.together().slice(0, 0)
        if self.lookup is not None and self.lookup.column == _ID:
            return test_rows(self.lookup.rest, pending.row_of(str(self.lookup.value)), self._context)
        return test_rows(self._tests, pending.together(), self._context)

    def _find_lookup(self) -> _Lookup | None:
        """One equality whose value finds the rows; ids are what every table can look up."""
        best: _Lookup | None = None
        for position, test in enumerate(self._tests):
            if best is not None and best.column == _ID:
                break
            if not isinstance(test, ir.Compare) or test.operator is not ir.Operator.EQUAL:
                continue
            for own, other in ((test.left, test.right), (test.right, test.left)):
                if (column := self._column(own)) is None or not is_constant(other):
                    continue
                if end_of_column(self.type, column) is not None:
                    continue  # it holds tagged ids, which a pushed condition finds
                value = _comparable_in_store(own, constant_value(other, self._context))
                if value is not None and (best is None or column == _ID):
                    best = _Lookup(column, value, (*self._tests[:position], *self._tests[position + 1 :]))
        return best

    def _column(self, value: ir.Value) -> str | None:
        """The column of the row that a value is."""
        match value:
            case ir.PropertyValue(variable=ir.ROW):
                return column_of(self.type, value.prop.name)
            case ir.MetaValue(variable=ir.ROW):
                return META_COLUMNS.get(value.field)
        return None


def _comparable_in_store(own: ir.Value, value: Plain | list[Plain]) -> str | int | None:
    """The value, when the store compares it with the column as the language does."""
    if isinstance(own, ir.MetaValue):
        return value if isinstance(value, str) else None
    assert isinstance(own, ir.PropertyValue)
    scalar, is_list = own.prop.type.scalar, own.prop.type.list
    if scalar is Scalar.STRING and not is_list and isinstance(value, str):
        return value
    if scalar in _STORED_INTEGERS and not is_list and type(value) is int:
        low, high = INTEGER_RANGES[scalar]
        return value if low <= value <= high else None
    return None


def _with_ids(test: ir.Predicate, type_: TableType, catalog: Catalog) -> ir.Predicate:
    """The same test with stored ids for keys of nodes. A text key is the id itself, which every table can look up. A
    constant that is compared with an end of an edge is an id, or any spelling of a node's key."""
    nodes = {}
    if isinstance(type_, EdgeType):
        # At an interface a constant is an id: what a key spells depends on the type.
        ends = zip((MetaField.SRC, MetaField.DST), type_.ends, strict=True)
        nodes = {field: catalog.nodes[end.types[0]] for field, end in ends if end.interface is None}

    def change(value: ir.Value) -> ir.Value:
        if not isinstance(value, ir.Compare) or value.operator not in _EQUALITIES:
            return value
        left, right = value.left, value.right
        return replace(value, left=key_at(right, own_id(left)), right=key_at(left, own_id(right)))

    def own_id(value: ir.Value) -> ir.Value:
        is_key = isinstance(value, ir.PropertyValue) and value.variable == ir.ROW and type_.key == (value.prop.name,)
        return ir.MetaValue(ir.ROW, (type_,), MetaField.ID) if is_key and is_text(value.type) else value

    def key_at(end: ir.Value, other: ir.Value) -> ir.Value:
        node = nodes.get(end.field) if isinstance(end, ir.MetaValue) else None
        if node is None or isinstance(other, ir.NodeKey) or not is_constant(other):
            return other
        return ir.NodeKey(node, other)

    return ir.rebuild(test, change)


_RowsByValue: TypeAlias = tuple[pa.Table, Mapping[str | int, list[int]]]
"""Rows that hold the sought values of one column, and which of them hold which value."""


class StoredRows:
    """The committed rows of one mutation's statements. `limits` bound what may be held of one type."""

    def __init__(
        self,
        conditions: Iterable[Condition],
        visibility: AuthorVisibility,
        context: ReadContext,
        limits: Limits | None = None,
    ) -> None:
        self._visibility = visibility
        self._context = context
        self._limits = limits
        self._sought: defaultdict[tuple[str, str], list[str | int]] = defaultdict(list)
        self._tested: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._looked_up: dict[tuple[str, str], _RowsByValue] = {}
        for condition in conditions:
            if (lookup := condition.lookup) is not None:
                position = condition.type.type_key, lookup.column
                self._sought[position].append(lookup.value)
                self._tested[position] |= dict.fromkeys((lookup.column, *condition.columns_of(lookup.rest)))

    def select(self, condition: Condition, columns: Sequence[str]) -> pa.Table:
        """The matching rows. Raises ResourceLimitError as soon as they are more than the limits allow."""
        table = self._context.snapshot.table(condition.type.type_key)
        if condition.never_holds or not table.state.rows:
            return _no_rows(table, columns)
        lookup = condition.lookup
        if lookup is not None and len(self._sought[condition.type.type_key, lookup.column]) > 1:
            together = self._look_up_together(condition.type, lookup.column, columns)
            if together is not None:
                rows, by_value = together
                sought = rows.take(pa.array(by_value.get(lookup.value, []), pa.int64()))
                return test_rows(lookup.rest, sought, self._context).select(columns)
        rest, batches = self._candidates(table, condition, columns)
        tested = (
            test_rows(rest, rows, self._context).select(columns) for rows in self._visible(condition.type, batches)
        )
        return self._collect(condition.type, _no_rows(table, columns), tested)

    def _candidates(
        self, table: Table, condition: Condition, columns: Sequence[str]
    ) -> tuple[Sequence[ir.Predicate], Iterable[pa.Table]]:
        """Rows among which the matching ones are, and the tests that they still have to pass."""
        is_restricted = not self._visibility.is_unrestricted
        if (lookup := condition.lookup) is not None and isinstance(lookup.value, str):
            read = list(dict.fromkeys((*columns, *condition.columns_of(lookup.rest))))
            rows = table.rows_in_memory(lookup.column, [lookup.value], read, row_ids=is_restricted)
            if rows is not None:
                return lookup.rest, [rows]
        # Tested a batch at a time, so that a large table costs no more memory than what matches.
        pushed, rest = condition.pushdown
        read = list(dict.fromkeys((*columns, *condition.columns_of(rest))))
        return rest, map(pa.table, table.batches(read, filter=pushed, row_ids=is_restricted))

    def with_ids(self, type_: TableType, ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows with these ids, as far as there are any, visible or not."""
        table = self._context.snapshot.table(type_.type_key)
        parts = table.parts_among("id", ids.to_pylist(), columns)
        return self._collect(type_, _no_rows(table, columns), parts)

    def with_row_ids(self, type_: TableType, rows: RowIds, columns: Sequence[str]) -> pa.Table:
        """The rows with these row ids, which all exist, in this order."""

        def watch(nbytes: int) -> None:
            self._context.cancellation.check()
            if self._limits is not None:
                refuse_beyond(self._limits, type_, len(rows), nbytes)

        return self._context.snapshot.table(type_.type_key).with_watch(watch).take(rows, columns)

    def _look_up_together(self, type_: TableType, column: str, columns: Sequence[str]) -> _RowsByValue | None:
        """The rows that one lookup finds for all statements; None when they are too many to be held together."""
        position = type_.type_key, column
        if position not in self._looked_up:
            table = self._context.snapshot.table(type_.type_key)
            read = list(dict.fromkeys((*columns, *self._tested[position])))
            is_restricted = not self._visibility.is_unrestricted
            parts = table.parts_among(column, set(self._sought[position]), read, row_ids=is_restricted)
            try:
                visible = self._visible(type_, parts)
                rows = self._collect(type_, _no_rows(table, read), visible).combine_chunks()
            except ResourceLimitError:
                self._sought[position].clear()
                return None
            by_value: defaultdict[str | int, list[int]] = defaultdict(list)
            for row, value in enumerate(rows.column(column).to_pylist()):
                by_value[value].append(row)
            self._looked_up[position] = rows, by_value
        return self._looked_up[position]

    def _visible(self, type_: TableType, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows that exist for the author. What a condition calculates must not depend on others."""
        for rows in parts:
            if self._visibility.is_unrestricted:
                yield rows
            else:
                visible = self._visibility.visible_rows(type_, row_ids_of(rows))
                yield rows.filter(pa.array(visible)).drop_columns([ROW_ID])

    def _collect(self, type_: TableType, empty: pa.Table, parts: Iterable[pa.Table]) -> pa.Table:
        collected, count, size = [empty], 0, 0
        for part in parts:
            self._context.cancellation.check()
            collected.append(part)
            count, size = count + part.num_rows, size + part.nbytes
            if self._limits is not None:
                refuse_beyond(self._limits, type_, count, size)
        return pa.concat_tables(collected)


def _no_rows(table: Table, columns: Sequence[str]) -> pa.Table:
    return pa.schema([table.schema.field(name) for name in columns]).empty_table()
