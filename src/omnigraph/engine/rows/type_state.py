"""The entities of one type at one snapshot: the type as that snapshot declares it, over the table version it names.

Diffs, merges, change images, entity reads and exports read rows through `TypeState`: a column that the table does not
have reads as null, and a column that the schema no longer declares is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from omnigraph.engine.rows.carry import absent_column, carry
from omnigraph.engine.rows.columns import BLOB_CELL, arrow_type, rows_schema
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import Property, TableType
from omnigraph.storage.models import TableState
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.blobs import BlobDescriptors
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import ROW_ID, RowIds

_FIRST_ROWS: Final = 64
_BATCH_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class TypeState:
    """One type at one snapshot. The table is opened when its rows are first asked for."""

    reader: TableReader
    type: TableType
    state: TableState
    masked: frozenset[str] = frozenset()
    """Columns that read as null, whatever is stored."""
    carries: bool = False
    """Whether the table may have been written by another declaration than `type`, to which its values are carried."""

    @classmethod
    def of(cls, snapshot: Snapshot, type_: TableType) -> TypeState:
        """One type of a snapshot, with what its reader may not see as null."""
        masked = frozenset(type_.properties[name].column for name in snapshot.visibility.of(type_).masked)
        return cls(snapshot.root.reader, type_, snapshot.entry.tables[type_.type_key], masked)

    @classmethod
    def all_of(cls, snapshot: Snapshot) -> dict[str, TypeState]:
        """Every type of a snapshot, by type key."""
        return {type_key: cls.of(snapshot, type_) for type_key, type_ in snapshot.types_by_key().items()}

    def carried_to(self, type_: TableType) -> TypeState:
        """The same rows as a newer declaration of the type has them, with the properties that it dropped."""
        if type_ == self.type:
            return self
        kept = {prop.column for prop in type_.property_list}
        dropped = [prop for prop in self.type.property_list if prop.column not in kept]
        widened = structs.replace(type_, property_list=(*type_.property_list, *dropped))
        return replace(self, type=widened, carries=True)

    def carry(self, column: str, values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Stored values of a property as its declaration has them."""
        return carry(self._by_column[column], values) if self.carries and column in self._by_column else values

    def absent(self, column: str, count: int) -> pa.Array:
        """The values of a property that the table does not have."""
        prop = self._by_column[column]
        return absent_column(prop, count) if self.carries else pa.nulls(count, arrow_type(prop.type))

    @cached_property
    def _by_column(self) -> dict[str, Property]:
        return {prop.column: prop for prop in self.type.property_list}

    @property
    def lifetime(self) -> str:
        """An id that stays the same through renames and differs after a drop and re-create."""
        return self.state.table_id

    @property
    def type_key(self) -> str:
        return self.type.type_key

    @property
    def table(self) -> Table:
        return self.reader.open(self.state)

    @property
    def keys(self) -> list[str]:
        """The system columns: `id`, and the endpoints of an edge."""
        return list(self.type.system_columns)

    @cached_property
    def visible(self) -> frozenset[str]:
        """Every column that the type declares at this snapshot."""
        return frozenset((*self.keys, *(prop.column for prop in self.type.property_list)))

    @cached_property
    def blob_columns(self) -> frozenset[str]:
        return frozenset(prop.column for prop in self.type.property_list if prop.type.is_blob)

    def same_content(self, other: TypeState) -> bool:
        """Whether nothing differs, as far as the versions alone can prove it."""
        return self.state.version == other.state.version and self.visible == other.visible

    def keys_of_all(self) -> pa.Table:
        """The system columns and the row id of every row, in id order."""
        return self.table.read(self.keys, row_ids=True).sort_by("id")

    def keys_among(self, ids: Sequence[str]) -> pa.Table:
        """The system columns and row ids of the entities with these ids, in id order."""
        return self.table.rows_among("id", ids, self.keys, row_ids=True).sort_by("id")

    def rows(self, row_ids: RowIds, *, blobs: bool = True) -> pa.Table:
        """Complete rows in `columns.rows_schema`. Without `blobs` every blob cell is null, whatever is stored."""
        columns = self.stored_columns(frozenset() if blobs else self.blob_columns)
        return self.complete(self.table.take(row_ids, columns), row_ids)

    def stored_columns(self, skipped: frozenset[str] = frozenset()) -> list[str]:
        """The columns of complete rows that the table of this snapshot has."""
        present = frozenset(self.table.columns) - skipped - self.masked
        return [name for name in dict.fromkeys(rows_schema(self.type).names) if name in present]

    def complete(self, stored: pa.Table, row_ids: RowIds) -> pa.Table:
        """Complete rows from stored columns: blobs are read, and what `stored` does not have is null."""
        schema, names, columns = rows_schema(self.type), set(stored.column_names), []
        for field in schema:
            if field.name in self.masked:
                columns.append(pa.nulls(len(row_ids), field.type))
            elif field.name not in names:
                columns.append(self.absent(field.name, len(row_ids)))
            elif field.type == BLOB_CELL:
                columns.append(blob_cells(self.table, field.name, row_ids, stored.column(field.name)))
            else:
                columns.append(self.carry(field.name, stored.column(field.name)).cast(field.type))
        return pa.table(columns, schema=schema)

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows with some columns, `id` and the row id, a batch at a time; at least one part, which may be empty."""
        names = list(dict.fromkeys(["id", *columns]))
        stored = [name for name in names if name in self.table.columns]
        yield self._part(self.table.read(stored, filter="FALSE", row_ids=True), names)
        for batch in self.table.batches(stored, row_ids=True):
            yield self._part(pa.table(batch), names)

    def _part(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        present = set(rows.column_names)
        columns = {
            name: self.carry(name, rows.column(name)) if name in present else self.absent(name, rows.num_rows)
            for name in names
        }
        return pa.table({**columns, ROW_ID: rows.column(ROW_ID)})

    def batches(self, row_ids: RowIds, size: int, *, blobs: bool = True) -> Iterator[pa.Table]:
        """The same rows, so many at a time; fewer where the first few are large: an array holds 2 GiB of text."""
        start = nbytes = 0
        count = min(size, _FIRST_ROWS)
        while start < len(row_ids):
            rows = self.rows(row_ids[start : start + count], blobs=blobs)
            yield rows
            start, nbytes = start + rows.num_rows, nbytes + rows.nbytes
            count = max(1, min(size, start * _BATCH_BYTES // max(1, nbytes)))


def blob_cells(table: Table, column: str, row_ids: RowIds, descriptors: pa.ChunkedArray) -> pa.Array:
    """The blobs of some rows, read where their bytes are the graph's own, as cells of rows."""
    described = BlobDescriptors.of(descriptors)
    data: list[bytes | None] = [None] * len(row_ids)
    held = np.flatnonzero(described.managed)
    for row, content in zip(held.tolist(), table.blobs(column, row_ids[held]), strict=True):
        data[row] = content.read()
    uri = pc.if_else(pa.array(described.external), described.uri.combine_chunks(), pa.scalar(None, pa.string()))
    cells, missing = [pa.array(data, pa.large_binary()), uri.cast(pa.string())], pa.array(~described.valid)
    return pa.StructArray.from_arrays(cells, fields=list(BLOB_CELL), mask=missing)
