"""What a mutation has written so far: complete rows per type, seen by its later statements.

A row that came from the store keeps its blobs until a statement assigns them; such cells are marked, never read.
Rows are written to the end and found by id, so a statement costs what it touches and not what was written before it;
only a predicate on another property than the key scans all of them.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.rows.kernels import TypedRows
from omnigraph.engine.write.change import Origin, TypeChange
from omnigraph.engine.write.mutate.conditions import Condition
from omnigraph.language.catalog import NodeType, TableType

_STATEMENT = "#statement"


class PendingRows:
    """Rows of one type that statements of this mutation have inserted or updated, one per id."""

    def __init__(self, type_: TableType) -> None:
        self.type = type_
        self._schema = rows_schema(type_)
        self._blobs = [prop.column for prop in type_.property_list if prop.type.is_blob]
        marks = [*(pa.field(_kept(name), pa.bool_()) for name in self._blobs), pa.field(_STATEMENT, pa.int64())]
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
        blobs = set(self._blobs)
        return [name for name in self._schema.names if name not in blobs]

    def holds(self, ids: pa.ChunkedArray) -> pa.Array:
        """Which of `ids` are pending, as a mask."""
        known = self._by_id()
        held = [entity_id in known for entity_id in ids.to_pylist()] if known else np.zeros(len(ids), np.bool_)
        return pa.array(held, pa.bool_())

    def insert(self, typed: TypedRows) -> None:
        """Complete new rows, in the order of their statements; of one id the last stays, and replaces a pending row."""
        self._write(self._marked(typed.rows, typed.lines, kept=False))
        self._by_id()
        if isinstance(self.type, NodeType) and self.type.key:
            self._all_new = False

    def update(self, condition: Condition, stored: pa.Table, assigned: pa.Table, statement: int) -> int:
        """Give `assigned` (one row) to every pending row that matches and to all `stored` rows; how many that are."""
        pending = self._matching(condition)
        arrived = self._marked(self._completed(stored), pa.array(np.full(stored.num_rows, statement)), kept=True)
        matched = pa.concat_tables([pending, arrived])
        columns = dict(zip(matched.column_names, matched.columns, strict=True))
        first = pa.array(np.zeros(matched.num_rows, np.int64))
        for name, values in zip(assigned.column_names, assigned.columns, strict=True):
            columns[name] = values.take(first)
            if _kept(name) in columns:
                columns[_kept(name)] = pa.array(np.zeros(matched.num_rows, np.bool_))
        columns[_STATEMENT] = pa.array(np.full(matched.num_rows, statement, np.int64))
        self._write(pa.table(columns, schema=self._marked_schema))
        self._all_new = self._all_new and not stored.num_rows
        return int(matched.num_rows)

    def change(self) -> TypeChange:
        rows = self._together()
        return TypeChange(
            self.type,
            rows.select(self._schema.names),
            fresh=self._all_new,
            kept={name: rows.column(_kept(name)).to_numpy() for name in self._blobs},
            origin=Origin("statement", rows.column(_STATEMENT).combine_chunks()),
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
        """Where the row of each id stands, the last written last."""
        known = self._rows_by_id
        for part in range(self._parts_by_id, len(self._parts)):
            for row, entity_id in enumerate(self._parts[part].column("id").to_pylist(), start=self._starts[part]):
                known.pop(entity_id, None)
                known[entity_id] = row
        self._parts_by_id = len(self._parts)
        return known

    def _matching(self, condition: Condition) -> pa.Table:
        """The pending rows that a condition holds for, in the order in which they were written."""
        if not self._parts:
            return self._marked_schema.empty_table()
        wanted = condition.sought_id(self.type)
        if wanted is not None:
            row = self._by_id().get(wanted)
            return self._marked_schema.empty_table() if row is None else self._row(row)
        rows = self._together()
        return rows.filter(condition.test(rows.column(condition.column)))

    def _row(self, row: int) -> pa.Table:
        part = bisect_right(self._starts, row) - 1
        return self._parts[part].slice(row - self._starts[part], 1)

    def _together(self) -> pa.Table:
        """All rows as one table, and no longer in parts."""
        if not self._parts:
            return self._marked_schema.empty_table()
        if self._is_one_statement:
            return self._parts[0]
        known = self._by_id()
        if len(known) < self._starts[-1] + self._parts[-1].num_rows or len(self._parts) > 1:
            rows = pa.concat_tables(self._parts).combine_chunks().take(pa.array(list(known.values()), pa.int64()))
            self._parts, self._starts, self._parts_by_id, self._bytes = [rows], [0], 1, rows.nbytes
            self._rows_by_id = {entity_id: row for row, entity_id in enumerate(known)}
        return self._parts[0]

    def _completed(self, stored: pa.Table) -> pa.Table:
        """Rows from the store with placeholders for the blob cells that they keep."""
        given = dict(zip(stored.column_names, stored.columns, strict=True))
        return pa.table(
            [
                given[field.name].cast(field.type) if field.name in given else pa.nulls(stored.num_rows, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _marked(self, rows: pa.Table, statements: pa.Array, *, kept: bool) -> pa.Table:
        marks = [pa.array(np.full(rows.num_rows, kept)) for _ in self._blobs]
        return pa.table([*rows.columns, *marks, statements.cast(pa.int64())], schema=self._marked_schema)


def _kept(column: str) -> str:
    return f"#kept:{column}"
