"""The rows that one mutation writes, type by type, before they become a change of the graph.

`mutation` and `mutation_feeds` call it. `PendingRows` holds what statements have written so far, found by id, so that
later ones see it; blobs that no statement assigns are marked and never read. The values that statements assign are
typed here, by the rules of a load. Nothing here decides which rows match, or reads the graph.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.api.governance import Limits
from omnigraph.engine.query.value_columns import repeat
from omnigraph.engine.rows.columns import EPOCH_TYPES, arrow_type, equal_values, rows_schema
from omnigraph.engine.rows.kernels.records import Records, RecordTyper
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, TypedRows
from omnigraph.engine.write.change import Origin, TypeChange
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import Property, TableType
from omnigraph.language.types import PropertyType

STATEMENT: Final = "statement"
"""What the numbers of a mutation's rows count."""

# Values of so many rows are Python objects at a time.
_ROWS_PER_BLOCK: Final = 1 << 16
_STATEMENT_COLUMN: Final = "#statement"
_STORED_COLUMN: Final = "#stored"
_CHANGED_COLUMN: Final = "#changed"
_REMEDY: Final = "change fewer at a time, or use the Spark pipeline"


def refuse_beyond(limits: Limits, type_: TableType, count: int, size: int) -> None:
    """What one mutation may hold of one type, stored rows that it rewrites included."""
    if count > limits.rows:
        raise ResourceLimitError(f"keyed entities for {type_.type_key}", limits.rows, count, _REMEDY)
    if size > limits.bytes:
        raise ResourceLimitError(f"keyed entity bytes for {type_.type_key}", limits.bytes, size, _REMEDY)


# Values that are assigned ---------------------------------------------------------------------------------

_NUMBERS: Final = {arrow_type(PropertyType(scalar)): number for scalar, number in EPOCH_TYPES.items()}


def json_values(values: pa.Array | pa.ChunkedArray) -> list[object]:
    """Calculated values as JSON would give them to a load: days and instants as numbers."""
    return list(values.cast(_with_numbers(values.type)).to_pylist())


def _with_numbers(type_: pa.DataType) -> pa.DataType:
    return pa.list_(_with_numbers(type_.value_type)) if pa.types.is_list(type_) else _NUMBERS.get(type_, type_)


def refuse_first(rejected: Iterable[RejectedRow]) -> None:
    """Raise for the earliest statement, and of its violations the one that is checked first."""
    if first := min(rejected, key=lambda row: (row.line, row.stage), default=None):
        raise first.error(STATEMENT)


def records_of(
    values: Mapping[str, pa.Array | pa.Scalar], count: int
) -> Iterator[tuple[int, list[Mapping[str, object]]]]:
    """Some columns as records, a block at a time, each with the number of its first row. There is at least one."""
    for start in range(0, max(1, count), _ROWS_PER_BLOCK):
        size = min(_ROWS_PER_BLOCK, count - start)
        columns = [
            json_values(repeat(column, size) if isinstance(column, pa.Scalar) else column.slice(start, size))
            for column in values.values()
        ]
        cells = zip(*columns, strict=True) if columns else [()] * size
        yield start, [dict(zip(values, row, strict=True)) for row in cells]


def refuse_large(limits: Limits, type_: TableType, values: Iterable[pa.Array | pa.Scalar], count: int) -> None:
    """Values for so many rows have to fit, before one that is the same for all is repeated for each."""
    sizes = (pa.repeat(v, 1).nbytes * count if isinstance(v, pa.Scalar) else v.nbytes for v in values)
    refuse_beyond(limits, type_, 0, sum(sizes))


def type_assigned(
    type_: TableType,
    properties: Sequence[Property],
    records: list[Mapping[str, object]],
    statement: int,
    ids: Sequence[str] | None = None,
) -> pa.Table:
    """The values that an update assigns, in their stored types: a row for each record. `ids` are the entities that get
    them, where that is known."""
    # Reduced to what the update assigns, so that the rules of these values apply and no others.
    reduced = msgspec.structs.replace(type_, property_list=tuple(properties), key=())
    ends: list[str | None] = [""] * (len(records) if type_.kind == "edge" else 0)
    rejected: list[RejectedRow] = []
    typed = RecordTyper(reduced, rejected).read(Records(reduced, list(range(len(records))), records, ends, ends))
    refuse_first(with_fields(row, line=statement, entity_id=None if ids is None else ids[row.line]) for row in rejected)
    return typed.rows.select([prop.column for prop in properties])


def type_calculated(
    type_: TableType, values: Mapping[Property, pa.Array | pa.Scalar], ids: pa.Array, statement: int, limits: Limits
) -> pa.Table:
    """The same for values that were calculated for each of some entities."""
    refuse_large(limits, type_, values.values(), len(ids))
    by_name = {prop.name: column for prop, column in values.items()}
    parts = [
        type_assigned(type_, list(values), records, statement, ids.slice(start, len(records)).to_pylist())
        for start, records in records_of(by_name, len(ids))
    ]
    return pa.concat_tables(parts)


def stale_vectors(
    type_: TableType, assigned: Collection[str], is_computed: Callable[[Property], bool]
) -> dict[str, pa.Array]:
    """By column, null for the vectors of a text that is assigned: they are to be computed anew."""
    names = {prop.name for prop in type_.property_list if prop.column in assigned}
    return {
        prop.column: pa.nulls(1, arrow_type(prop.type))
        for prop in type_.property_list
        if prop.embed is not None and prop.embed.property in names and prop.name not in names and is_computed(prop)
    }


# Rows that are written ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertForm:
    """How an inserted row meets a row with its id. It replaces that row as a whole, or, where `columns` are given,
    changes those only (`upsert`); with `must_be_new` there may be no such row."""

    must_be_new: bool = False
    columns: tuple[str, ...] | None = None

    @property
    def asks_for_stored(self) -> bool:
        """Whether it matters what is stored under an id."""
        return self.must_be_new or self.columns is not None


REPLACE: Final = InsertForm()


class PendingRows:
    """Rows of one type that statements of this mutation have inserted or updated, one per id.

    Parts are only added; of two rows with one id the later one counts. They are joined when something needs them all.
    """

    def __init__(self, type_: TableType) -> None:
        self.type = type_
        self._schema = rows_schema(type_)
        self._blobs = [prop.column for prop in type_.property_list if prop.type.is_blob]
        marks = [
            *(pa.field(_keep_column(name), pa.bool_()) for name in self._blobs),
            pa.field(_STORED_COLUMN, pa.bool_()),
            pa.field(_CHANGED_COLUMN, pa.bool_()),
            pa.field(_STATEMENT_COLUMN, pa.int64()),
        ]
        self._marked_schema = pa.schema([*self._schema, *marks])
        self._nothing = self._marked_schema.empty_table()
        self._parts: list[pa.Table] = []
        self._starts: list[int] = []
        self._rows_by_id: dict[str, int] = {}
        self._parts_by_id = 0
        self._bytes = 0
        self._all_new = True

    def __len__(self) -> int:
        # The rows of one statement have different ids; a mutation of one statement never pays for finding them.
        if not self._parts:
            return 0
        return self._parts[0].num_rows if self._is_one_statement else len(self._by_id())

    def nbytes(self, enough: int) -> int:
        """At least what the rows hold; exactly that when it is more than `enough`."""
        if self._bytes > enough:
            self.together()
        return self._bytes

    @property
    def stored_columns(self) -> list[str]:
        """The columns that a row from the store brings along: all but blobs."""
        return [name for name in self._schema.names if name not in self._blobs]

    # Reading

    def holds(self, ids: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
        """Which of `ids` are pending, as a mask."""
        if not self._parts:
            return np.zeros(len(ids), np.bool_)
        positions = self._by_id()
        return np.fromiter((entity_id in positions for entity_id in ids.to_pylist()), np.bool_, len(ids))

    def rows_of(self, ids: Sequence[str]) -> pa.Table:
        """The rows with these ids, all of which are pending, in this order."""
        if not ids:
            return self._nothing
        by_id = self._by_id()
        positions = np.fromiter((by_id[entity_id] for entity_id in ids), np.int64, len(ids))
        starts = np.array(self._starts)
        parts = np.searchsorted(starts, positions, side="right") - 1
        order = np.argsort(parts, kind="stable")
        bounds = np.flatnonzero(np.diff(parts[order], prepend=-1))
        pieces = [
            self._parts[parts[chosen[0]]].take(pa.array(positions[chosen] - starts[parts[chosen[0]]]))
            for chosen in np.split(order, bounds[1:])
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(pieces).take(pa.array(back))

    def row_of(self, entity_id: str) -> pa.Table:
        """The row with this id, if it is pending."""
        row = self._by_id().get(entity_id) if self._parts else None
        if row is None:
            return self._nothing
        part = bisect_right(self._starts, row) - 1
        return self._parts[part].slice(row - self._starts[part], 1)

    def together(self) -> pa.Table:
        """All rows as one table, in the order in which they were written, and no longer in parts."""
        if not self._parts:
            return self._nothing
        if self._is_one_statement:
            return self._parts[0]
        positions = self._by_id()
        if len(positions) < self._starts[-1] + self._parts[-1].num_rows or len(self._parts) > 1:
            rows = pa.concat_tables(self._parts).combine_chunks().take(pa.array(list(positions.values()), pa.int64()))
            self._parts, self._starts, self._parts_by_id, self._bytes = [rows], [0], 1, rows.nbytes
            self._rows_by_id = {entity_id: row for row, entity_id in enumerate(positions)}
        return self._parts[0]

    def change(self, *, unchanged: bool = False) -> TypeChange:
        """What is written. A stored row that was assigned the values that it has is left out, unless `unchanged` asks
        for every row that a statement is about."""
        rows = self.together()
        if rows.num_rows and not unchanged:
            rows = rows.filter(rows.column(_CHANGED_COLUMN))
        kept_ends = rows.column(_STORED_COLUMN).to_numpy() if self.type.kind == "edge" else None
        return TypeChange(
            self.type,
            rows.select(self._schema.names),
            fresh=self._all_new,
            kept={name: rows.column(_keep_column(name)).to_numpy() for name in self._blobs},
            kept_ends=kept_ends,
            origin=Origin(STATEMENT, rows.column(_STATEMENT_COLUMN).combine_chunks()),
        )

    # Writing

    def insert(self, typed: TypedRows) -> None:
        """Complete new rows, in the order of their statements. Of one id the last stays, and replaces a pending row."""
        self._write(self._mark(typed.rows, typed.lines, stored=False))
        if self.type.key:
            self._by_id()
            self._all_new = False

    def upsert(self, typed: TypedRows, columns: Collection[str], stored: pa.Table) -> None:
        """Rows with different ids. One whose id is pending or among the `stored` rows gives that row these columns and
        nothing else."""
        ids = typed.rows.column("id")
        is_pending = self.holds(ids)
        positions = pc.index_in(ids, value_set=stored.column("id"))
        is_stored = ~is_pending & positions.is_valid().to_numpy()
        is_absent = ~is_pending & ~is_stored
        if is_absent.any():
            self.insert(typed.take(pa.array(np.flatnonzero(is_absent))))
        pending_rows = self.rows_of(ids.filter(pa.array(is_pending)).to_pylist())
        stored_rows = self.mark_stored(stored.take(positions.filter(pa.array(is_stored))))
        order = pa.array(np.concatenate([np.flatnonzero(is_pending), np.flatnonzero(is_stored)]))
        values = typed.rows.select(list(columns)).take(order)
        assigned = dict(zip(values.column_names, values.columns, strict=True))
        self.assign(pa.concat_tables([pending_rows, stored_rows]), assigned, typed.lines.take(order))

    def mark_stored(self, stored: pa.Table) -> pa.Table:
        """Rows from the store, ready to be assigned to; they keep their blobs."""
        return self._mark(stored, pa.array(np.zeros(stored.num_rows, np.int64)), stored=True)

    def assign(
        self, matched: pa.Table, assigned: Mapping[str, pa.Array | pa.ChunkedArray], statements: int | pa.Array
    ) -> None:
        """Give values to rows that are pending or come from the store: of each column one for each row, or one for
        all."""
        count = matched.num_rows
        columns = dict(zip(matched.column_names, matched.columns, strict=True))
        changed = matched.column(_CHANGED_COLUMN).to_numpy()
        for name, values in assigned.items():
            columns[name] = values if len(values) == count else values.take(pa.array(np.zeros(count, np.int64)))
            is_blob = _keep_column(name) in columns
            # The stored cell of a blob is not known here.
            changed = changed | (True if is_blob else ~equal_values(columns[name], matched.column(name)))
            if is_blob:
                columns[_keep_column(name)] = pa.array(np.zeros(count, np.bool_))
        columns[_CHANGED_COLUMN] = pa.array(changed, pa.bool_())
        columns[_STATEMENT_COLUMN] = pa.array(np.full(count, statements)) if isinstance(statements, int) else statements
        self._all_new = self._all_new and not pc.any(columns[_STORED_COLUMN], min_count=0).as_py()
        self._write(pa.table(columns, schema=self._marked_schema))

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

    def _mark(self, rows: pa.Table, statements: pa.Array, *, stored: bool) -> pa.Table:
        """Rows with their marks, and with placeholders for the blob cells that rows from the store keep."""
        names = set(rows.column_names)
        columns = [
            rows.column(field.name).cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        marks = [pa.array(np.full(rows.num_rows, stored)) for _ in (*self._blobs, _STORED_COLUMN)]
        marks.append(pa.array(np.full(rows.num_rows, not stored)))
        return pa.table([*columns, *marks, statements.cast(pa.int64())], schema=self._marked_schema)


def _keep_column(column: str) -> str:
    return f"#kept:{column}"
