"""What a mutation has written so far: complete rows per type, seen by its later statements.

A row that came from the store keeps its blobs until a statement assigns them; such cells are marked, never read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.change import Origin, TypeChange
from omnigraph.engine.columns import rows_schema
from omnigraph.engine.mutate.conditions import Condition
from omnigraph.language.catalog import NodeType, TableType

_STATEMENT = "#statement"


class PendingRows:
    """Rows of one type that statements of this mutation have inserted or updated, one per id."""

    def __init__(self, type_: TableType) -> None:
        self.type = type_
        self._schema = rows_schema(type_)
        self._blobs = [prop.column for prop in type_.property_list if prop.type.is_blob]
        self._rows = self._marked(self._schema.empty_table(), statement=0, kept=False)
        self._all_new = True

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self._rows.nbytes)

    @property
    def stored_columns(self) -> list[str]:
        """The columns that a row from the store brings along: all but blobs."""
        return [name for name in self._schema.names if name not in self._blobs]

    def holds(self, ids: pa.ChunkedArray) -> Any:
        return pc.is_in(ids, value_set=self._rows.column("id"))

    def insert(self, rows: pa.Table, statement: int) -> None:
        """Complete new rows; one with a pending id replaces that row entirely."""
        others = self._rows.filter(pc.invert(pc.is_in(self._rows.column("id"), value_set=rows.column("id"))))
        self._rows = pa.concat_tables([others, self._marked(rows, statement, kept=False)])
        if isinstance(self.type, NodeType) and self.type.key:
            self._all_new = False

    def update(self, condition: Condition, stored: pa.Table, assigned: pa.Table, statement: int) -> int:
        """Give `assigned` (one row) to every pending row that matches and to all `stored` rows; how many that are."""
        matches = condition.test(self._rows.column(condition.column))
        arrived = self._marked(self._completed(stored), statement, kept=True)
        matched = pa.concat_tables([self._rows.filter(matches), arrived])
        first = pa.array(np.zeros(matched.num_rows, np.int64))
        for name in assigned.column_names:
            matched = _with_column(matched, name, assigned.column(name).take(first))
            if name in self._blobs:
                matched = _with_column(matched, _kept(name), pa.array(np.zeros(matched.num_rows, np.bool_)))
        matched = _with_column(matched, _STATEMENT, pa.array(np.full(matched.num_rows, statement)))
        self._rows = pa.concat_tables([self._rows.filter(pc.invert(matches)), matched])
        self._all_new = self._all_new and not stored.num_rows
        return int(matched.num_rows)

    def change(self) -> TypeChange:
        return TypeChange(
            self.type,
            self._rows.select(self._schema.names),
            fresh=self._all_new,
            kept={name: self._rows.column(_kept(name)).to_numpy() for name in self._blobs},
            origin=Origin("statement", self._rows.column(_STATEMENT).combine_chunks()),
        )

    def _completed(self, stored: pa.Table) -> pa.Table:
        """Rows from the store with the blob cells that they keep, which nobody reads."""
        rows = stored.cast(pa.schema([self._schema.field(name) for name in stored.column_names]))
        for name in self._blobs:
            field = self._schema.field(name)
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self._schema.names)

    def _marked(self, rows: pa.Table, statement: int, *, kept: bool) -> pa.Table:
        for name in self._blobs:
            rows = rows.append_column(_kept(name), pa.array(np.full(rows.num_rows, kept)))
        return rows.append_column(_STATEMENT, pa.array(np.full(rows.num_rows, statement, np.int64)))


def _kept(column: str) -> str:
    return f"#kept:{column}"


def _with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
