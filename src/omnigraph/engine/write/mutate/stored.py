"""Committed rows that satisfy the conditions of updates and deletes, read from the pinned head.

Every statement tests the same committed rows, so statements that each seek one value of the same column are answered
together: one lookup of all their values costs about as much as one of them alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from omnigraph.api.governance import Limits
from omnigraph.engine.write.mutate.conditions import Condition
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import TableType
from omnigraph.storage.tables.predicates import identifier, literal

_Place: TypeAlias = tuple[str, str]
"""A table and one of its columns."""


@dataclass(frozen=True, slots=True)
class _FoundTogether:
    """Rows that hold the sought values of one column, and which of them hold which value."""

    rows: pa.Table
    by_value: Mapping[str | int, list[int]]


class StoredRows:
    """The committed rows of one mutation's statements. `limits` bound what may be held of one type."""

    def __init__(
        self, txn: WriteTxn, conditions: Iterable[tuple[TableType, Condition]], limits: Limits | None = None
    ) -> None:
        self._txn = txn
        self._limits = limits
        self._sought: defaultdict[_Place, list[str | int]] = defaultdict(list)
        self._found: dict[_Place, _FoundTogether] = {}
        for type_, condition in conditions:
            column, value = _lookup(type_, condition)
            if value is not None:
                self._sought[type_.type_key, column].append(value)

    def matching(self, type_: TableType, condition: Condition, columns: Sequence[str]) -> pa.Table:
        """The matching rows. Raises ResourceLimitError as soon as they are more than the limits allow."""
        table = self._txn.snapshot.table(type_.type_key)
        if condition.never_holds or not table.state.rows:
            return pa.schema([table.schema.field(name) for name in columns]).empty_table()
        column, value = _lookup(type_, condition)
        if value is not None and len(self._sought[type_.type_key, column]) > 1:
            found = self._together((type_.type_key, column), columns)
            if found is not None:
                return found.rows.take(pa.array(found.by_value.get(value, []), pa.int64())).select(columns)
        return self._tested(type_, condition, columns)

    def _together(self, place: _Place, columns: Sequence[str]) -> _FoundTogether | None:
        """The rows that one lookup finds for all statements; None when they are too many to be held together."""
        found = self._found.get(place)
        if found is None:
            rows = self._all_sought(place, columns)
            if rows is None:
                self._sought[place].clear()
                return None
            by_value: defaultdict[str | int, list[int]] = defaultdict(list)
            for row, value in enumerate(rows.column(place[1]).to_pylist()):
                by_value[value].append(row)
            found = self._found[place] = _FoundTogether(rows, by_value)
        return found

    def _all_sought(self, place: _Place, columns: Sequence[str]) -> pa.Table | None:
        type_key, column = place
        table = self._txn.snapshot.table(type_key)
        read = list(dict.fromkeys((*columns, column)))
        parts, count, size = [pa.schema([table.schema.field(name) for name in read]).empty_table()], 0, 0
        for part in table.parts_among(column, set(self._sought[place]), read):
            parts.append(part)
            count, size = count + part.num_rows, size + part.nbytes
            if self._limits is not None and (count > self._limits.rows or size > self._limits.bytes):
                return None
        return pa.concat_tables(parts).combine_chunks()

    def _tested(self, type_: TableType, condition: Condition, columns: Sequence[str]) -> pa.Table:
        """Tested a batch at a time, so that a large table costs no more memory than what matches."""
        table = self._txn.snapshot.table(type_.type_key)
        wanted = condition.sought_id(type_)
        narrowing = condition.narrowing(type_) if wanted is None else f"{identifier('id')} = {literal(wanted)}"
        read = list(dict.fromkeys((*columns, condition.column)))
        parts, count, size = [pa.schema([table.schema.field(name) for name in columns]).empty_table()], 0, 0
        for batch in table.batches(read, filter=narrowing):
            rows = pa.table(batch)
            matching = rows.filter(condition.test(rows.column(condition.column))).select(columns)
            parts.append(matching)
            count, size = count + matching.num_rows, size + matching.nbytes
            if self._limits is not None:
                refuse_beyond(self._limits, type_, count, size)
        return pa.concat_tables(parts)


def refuse_beyond(limits: Limits, type_: TableType, count: int, size: int) -> None:
    """What one mutation may hold of one type, stored rows that it rewrites included."""
    remedy = "change fewer at a time, or use the Spark pipeline"
    if count > limits.rows:
        raise ResourceLimitError(f"keyed entities for {type_.type_key}", limits.rows, count, remedy)
    if size > limits.bytes:
        raise ResourceLimitError(f"keyed entity bytes for {type_.type_key}", limits.bytes, size, remedy)


def _lookup(type_: TableType, condition: Condition) -> tuple[str, str | int | None]:
    """The column and the value that find every matching row; ids are what every table can look up."""
    wanted = condition.sought_id(type_)
    return ("id", wanted) if wanted is not None else (condition.column, condition.sought_value())
