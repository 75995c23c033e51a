"""The rows that the statements of a mutation match and write.

`mutation` calls it. `Condition` is an exact test with an optional filter that may only leave out rows that
fail the test. `StoredRows` reads committed rows; statements that seek values of the same column share one lookup.
`PendingRows` holds rows already written, found by id; blobs that no statement assigns are marked and never read.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.governance import Limits
from omnigraph.engine.query.operators.pushdown import equals_any
from omnigraph.engine.query.operators.values import ARROW_TESTS
from omnigraph.engine.rows.columns import EPOCH_TYPES, rows_schema
from omnigraph.engine.rows.kernels.coerce import DATE_PARSERS
from omnigraph.engine.rows.kernels.typed_rows import TypedRows
from omnigraph.engine.write.change import Origin, TypeChange
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.language.query.ir import Endpoint, Operator, Where
from omnigraph.language.query.params import BoundValue
from omnigraph.language.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import identifier, literal

STATEMENT: Final = "statement"
"""What the numbers of a mutation's rows count."""
_STORED_INTEGERS: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32})
_LESS: Final = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL})
_GREATER: Final = frozenset({Operator.GREATER, Operator.GREATER_OR_EQUAL})
_ENDPOINT_COLUMNS: Final = {Endpoint.FROM: "src", Endpoint.TO: "dst"}


class Condition:
    """The `where` of a statement about a type, with its value known."""

    def __init__(self, type_: TableType, where: Where, value: BoundValue) -> None:
        self.type = type_
        self._property = None if isinstance(where.column, Endpoint) else where.column
        if isinstance(where.column, Endpoint):
            self.column, self._kind = _ENDPOINT_COLUMNS[where.column], PropertyType(Scalar.STRING)
        else:
            self.column, self._kind = where.column.column, where.column.type
        self._operator = where.operator
        self._value = value

    @property
    def never_holds(self) -> bool:
        """Null satisfies nothing, and lists and vectors are not compared."""
        return self._value is None or self._kind.list or self._kind.is_vector

    def test(self, values: pa.ChunkedArray | pa.Array) -> Any:
        """Which rows satisfy the condition, as a mask without nulls."""
        if self.never_holds:
            return pa.array([False] * len(values), pa.bool_())
        value: Any = self._value
        scalar = self._kind.scalar
        if scalar in INTEGERS:
            mask = _compare_integers(values, scalar, self._operator, value)
        elif scalar in FLOATS:
            mask = _compare_floats(values, self._operator, value)
        elif scalar in DATE_PARSERS and isinstance(value, str):
            stored = pa.scalar(DATE_PARSERS[scalar](value), EPOCH_TYPES[scalar]).cast(values.type)
            mask = ARROW_TESTS[self._operator](values, stored)
        else:
            mask = ARROW_TESTS[self._operator](values, pa.scalar(value, values.type))
        return pc.fill_null(mask, False)

    def pushdown(self) -> str | None:
        """A filter for the store that keeps at least every row that passes the test; None to read them all."""
        if (entity_id := self.sought_id) is not None:
            return f"{identifier('id')} = {literal(entity_id)}"
        value = self._comparable_in_store()
        if value is None:
            return None
        if self._property is not None and isinstance(value, str) and self._operator is Operator.EQUAL:
            return equals_any(self.type, self._property, [value])
        return f"{identifier(self.column)} {self._operator.value} {literal(value)}"

    def lookup(self) -> tuple[str, str | int | None]:
        """The column and the value that find every matching row; ids are what every table can look up."""
        if (entity_id := self.sought_id) is not None:
            return "id", entity_id
        return self.column, self._comparable_in_store() if self._operator is Operator.EQUAL else None

    @property
    def sought_id(self) -> str | None:
        """The only id that a matching row can have: a text key is the id itself."""
        key = self.type.key if isinstance(self.type, NodeType) else ()
        if len(key) != 1 or self._operator is not Operator.EQUAL or not isinstance(self._value, str):
            return None
        prop = self.type.properties[key[0]]
        return self._value if prop.type.is_text and prop.column == self.column else None

    def _comparable_in_store(self) -> str | int | None:
        """The value, when the store compares it with the column as the test does."""
        value = self._value
        if self._kind.scalar is Scalar.STRING and isinstance(value, str):
            return value
        if self._kind.scalar in _STORED_INTEGERS and isinstance(value, int):
            low, high = INTEGER_RANGES[self._kind.scalar]
            return value if low <= value <= high else None
        return None


def _compare_integers(values: Any, scalar: Scalar, op: Operator, value: int | float) -> Any:
    """By value, whatever the type of the literal: 2.5 lies between 2 and 3, and no column wraps around."""
    low, high = INTEGER_RANGES[scalar]
    if value > high:
        return _constant(values, op in _LESS or op is Operator.NOT_EQUAL)
    if value < low:
        return _constant(values, op in _GREATER or op is Operator.NOT_EQUAL)
    if value != (whole := math.floor(value)):
        if op in (Operator.EQUAL, Operator.NOT_EQUAL):
            return _constant(values, op is Operator.NOT_EQUAL)
        # x < 2.5 and x <= 2.5 are x <= 2; x > 2.5 and x >= 2.5 are x > 2.
        op = Operator.LESS_OR_EQUAL if op in _LESS else Operator.GREATER
    return ARROW_TESTS[op](values, pa.scalar(whole, values.type))


def _compare_floats(values: Any, op: Operator, value: int | float) -> Any:
    near = float(value)
    if near != value:
        # An integer that no float equals lies between two floats: compare with the nearest one, ordered by hand.
        if op in _LESS:
            op = Operator.LESS_OR_EQUAL if near < value else Operator.LESS
        elif op in _GREATER:
            op = Operator.GREATER_OR_EQUAL if near > value else Operator.GREATER
        else:
            return _constant(values, op is Operator.NOT_EQUAL)
    return ARROW_TESTS[op](values.cast(pa.float64()), near)


def _constant(values: Any, outcome: bool) -> Any:
    """The same outcome for every row that has a value."""
    return pc.if_else(pc.is_valid(values), outcome, None)


_RowsByValue: TypeAlias = tuple[pa.Table, Mapping[str | int, list[int]]]
"""Rows that hold the sought values of one column, and which of them hold which value."""


class StoredRows:
    """The committed rows of one mutation's statements. `limits` bound what may be held of one type."""

    def __init__(self, txn: WriteTxn, conditions: Iterable[Condition], limits: Limits | None = None) -> None:
        self._txn = txn
        self._limits = limits
        self._sought: defaultdict[tuple[str, str], list[str | int]] = defaultdict(list)
        self._found: dict[tuple[str, str], _RowsByValue] = {}
        for condition in conditions:
            column, value = condition.lookup()
            if value is not None:
                self._sought[condition.type.type_key, column].append(value)

    def select(self, condition: Condition, columns: Sequence[str]) -> pa.Table:
        """The matching rows. Raises ResourceLimitError as soon as they are more than the limits allow."""
        table = self._txn.snapshot.table(condition.type.type_key)
        if condition.never_holds or not table.state.rows:
            return _no_rows(table, columns)
        column, value = condition.lookup()
        if value is not None and len(self._sought[condition.type.type_key, column]) > 1:
            lookup = self._look_up_together(condition.type, column, columns)
            if lookup is not None:
                rows, by_value = lookup
                return rows.take(pa.array(by_value.get(value, []), pa.int64())).select(columns)
        # Tested a batch at a time, so that a large table costs no more memory than what matches.
        read = list(dict.fromkeys((*columns, condition.column)))
        batches = map(pa.table, table.batches(read, filter=condition.pushdown()))
        tested = (rows.filter(condition.test(rows.column(condition.column))).select(columns) for rows in batches)
        return self._collect(condition.type, _no_rows(table, columns), tested)

    def _look_up_together(self, type_: TableType, column: str, columns: Sequence[str]) -> _RowsByValue | None:
        """The rows that one lookup finds for all statements; None when they are too many to be held together."""
        position = type_.type_key, column
        if position not in self._found:
            table = self._txn.snapshot.table(type_.type_key)
            read = list(dict.fromkeys((*columns, column)))
            parts = table.parts_among(column, set(self._sought[position]), read)
            try:
                rows = self._collect(type_, _no_rows(table, read), parts).combine_chunks()
            except ResourceLimitError:
                self._sought[position].clear()
                return None
            by_value: defaultdict[str | int, list[int]] = defaultdict(list)
            for row, value in enumerate(rows.column(column).to_pylist()):
                by_value[value].append(row)
            self._found[position] = rows, by_value
        return self._found[position]

    def _collect(self, type_: TableType, empty: pa.Table, parts: Iterable[pa.Table]) -> pa.Table:
        collected, count, size = [empty], 0, 0
        for part in parts:
            collected.append(part)
            count, size = count + part.num_rows, size + part.nbytes
            if self._limits is not None:
                refuse_beyond(self._limits, type_, count, size)
        return pa.concat_tables(collected)


def _no_rows(table: Table, columns: Sequence[str]) -> pa.Table:
    return pa.schema([table.schema.field(name) for name in columns]).empty_table()


def refuse_beyond(limits: Limits, type_: TableType, count: int, size: int) -> None:
    """What one mutation may hold of one type, stored rows that it rewrites included."""
    remedy = "change fewer at a time, or use the Spark pipeline"
    if count > limits.rows:
        raise ResourceLimitError(f"keyed entities for {type_.type_key}", limits.rows, count, remedy)
    if size > limits.bytes:
        raise ResourceLimitError(f"keyed entity bytes for {type_.type_key}", limits.bytes, size, remedy)


_STATEMENT_COLUMN = "#statement"


class PendingRows:
    """Rows of one type that statements of this mutation have inserted or updated, one per id."""

    def __init__(self, type_: TableType) -> None:
        self.type = type_
        self._schema = rows_schema(type_)
        self._blobs = [prop.column for prop in type_.property_list if prop.type.is_blob]
        marks = [
            *(pa.field(_keep_column(name), pa.bool_()) for name in self._blobs),
            pa.field(_STATEMENT_COLUMN, pa.int64()),
        ]
        self._marked_schema = pa.schema([*self._schema, *marks])
        self._parts: list[pa.Table] = []
        self._starts: list[int] = []
        self._rows_by_id: dict[str, int] = {}
        self._parts_by_id = 0
        self._bytes = 0
        self._all_new = True

    def __len__(self) -> int:
        # The rows of one statement have different ids; a mutation of one statement never pays for finding them.
        return self._parts[0].num_rows if self._is_one_statement else len(self._by_id())

    def nbytes(self, enough: int) -> int:
        """At least what the rows hold; exactly that when it is more than `enough`."""
        if self._bytes > enough:
            self._together()
        return self._bytes

    @property
    def stored_columns(self) -> list[str]:
        """The columns that a row from the store brings along: all but blobs."""
        return [name for name in self._schema.names if name not in self._blobs]

    def holds(self, ids: pa.ChunkedArray) -> pa.Array:
        """Which of `ids` are pending, as a mask."""
        positions = self._by_id()
        held = [entity_id in positions for entity_id in ids.to_pylist()] if positions else np.zeros(len(ids), np.bool_)
        return pa.array(held, pa.bool_())

    def insert(self, typed: TypedRows) -> None:
        """Complete new rows, in the order of their statements; of one id the last stays, and replaces a pending row."""
        self._write(self._mark(typed.rows, typed.lines, kept=False))
        self._by_id()
        if isinstance(self.type, NodeType) and self.type.key:
            self._all_new = False

    def update(self, condition: Condition, stored: pa.Table, assigned: pa.Table, statement: int) -> int:
        """Give `assigned` (one row) to every pending row that matches and to all `stored` rows; how many that are."""
        pending = self._select_pending(condition)
        arrived = self._mark(stored, pa.array(np.full(stored.num_rows, statement)), kept=True)
        matched = pa.concat_tables([pending, arrived])
        columns = dict(zip(matched.column_names, matched.columns, strict=True))
        first = pa.array(np.zeros(matched.num_rows, np.int64))
        for name, values in zip(assigned.column_names, assigned.columns, strict=True):
            columns[name] = values.take(first)
            if _keep_column(name) in columns:
                columns[_keep_column(name)] = pa.array(np.zeros(matched.num_rows, np.bool_))
        columns[_STATEMENT_COLUMN] = pa.array(np.full(matched.num_rows, statement, np.int64))
        self._write(pa.table(columns, schema=self._marked_schema))
        self._all_new = self._all_new and not stored.num_rows
        return int(matched.num_rows)

    def change(self) -> TypeChange:
        rows = self._together()
        return TypeChange(
            self.type,
            rows.select(self._schema.names),
            fresh=self._all_new,
            kept={name: rows.column(_keep_column(name)).to_numpy() for name in self._blobs},
            origin=Origin(STATEMENT, rows.column(_STATEMENT_COLUMN).combine_chunks()),
        )

    @property
    def _is_one_statement(self) -> bool:
        return len(self._parts) == 1 and not self._parts_by_id

    def _write(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._starts.append(self._starts[-1] + self._parts[-1].num_rows if self._parts else 0)
            self._parts.append(rows)
            self._bytes += rows.nbytes

    def _by_id(self) -> dict[str, int]:
        """The position of the row of each id, the last written last."""
        positions = self._rows_by_id
        for part in range(self._parts_by_id, len(self._parts)):
            for row, entity_id in enumerate(self._parts[part].column("id").to_pylist(), start=self._starts[part]):
                positions.pop(entity_id, None)
                positions[entity_id] = row
        self._parts_by_id = len(self._parts)
        return positions

    def _select_pending(self, condition: Condition) -> pa.Table:
        """The pending rows that a condition holds for, in the order in which they were written."""
        if (wanted := condition.sought_id) is not None:
            row = self._by_id().get(wanted)
            if row is None:
                return self._marked_schema.empty_table()
            part = bisect_right(self._starts, row) - 1
            return self._parts[part].slice(row - self._starts[part], 1)
        rows = self._together()
        return rows.filter(condition.test(rows.column(condition.column)))

    def _together(self) -> pa.Table:
        """All rows as one table, and no longer in parts."""
        if not self._parts:
            return self._marked_schema.empty_table()
        if self._is_one_statement:
            return self._parts[0]
        positions = self._by_id()
        if len(positions) < self._starts[-1] + self._parts[-1].num_rows or len(self._parts) > 1:
            rows = pa.concat_tables(self._parts).combine_chunks().take(pa.array(list(positions.values()), pa.int64()))
            self._parts, self._starts, self._parts_by_id, self._bytes = [rows], [0], 1, rows.nbytes
            self._rows_by_id = {entity_id: row for row, entity_id in enumerate(positions)}
        return self._parts[0]

    def _mark(self, rows: pa.Table, statements: pa.Array, *, kept: bool) -> pa.Table:
        """Rows with their marks, and with placeholders for the blob cells that rows from the store keep."""
        names = set(rows.column_names)
        columns = [
            rows.column(field.name).cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        marks = [pa.array(np.full(rows.num_rows, kept)) for _ in self._blobs]
        return pa.table([*columns, *marks, statements.cast(pa.int64())], schema=self._marked_schema)


def _keep_column(column: str) -> str:
    return f"#kept:{column}"
