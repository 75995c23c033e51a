"""The work of executors on one table version: where it is, which rows are visible, export lines, blob admission.

Tasks are pickled, so everything here is plain data, and methods import Lance after the fork. Executors return text to
the driver, which alone makes versions of it; a file whose process died is named by nothing. A row address is one
number that orders rows as the table does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Dates
from omnigraph.engine.rows.columns import BLOB_CELL
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import OmniGraphError
from omnigraph.language.catalog import TableType
from omnigraph.storage.external_objects import ExternalObjects
from omnigraph.storage.location import TableAddress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.engine.resources import Resources
    from omnigraph.engine.snapshot import Snapshot
    from omnigraph.storage.location import Location
    from omnigraph.storage.models import TableState


PLACE: Final = "_place"
"""The fragment of a row in the upper half, its physical offset there in the lower."""

OFFSET_BITS: Final = 32
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1


def by_fragment(addresses: Iterable[int]) -> dict[int, list[int]]:
    """The offsets of each fragment, ascending and each once; fragments in order."""
    offsets_of: dict[int, set[int]] = {}
    for address in addresses:
        offsets_of.setdefault(address >> OFFSET_BITS, set()).add(address & _OFFSET_MASK)
    return {fragment: sorted(offsets) for fragment, offsets in sorted(offsets_of.items())}


@dataclass(frozen=True, slots=True)
class RemoteTable(TableAddress):
    """A table version as another process reads it."""

    @classmethod
    def of(cls, resources: Resources, state: TableState) -> RemoteTable:
        location = resources.root.location
        return cls(location.child(state.path), state.version, dict(location.options))


_ROWS_LOOKED_AT: Final = 8_192
_MOST_PLACES: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """`places` are ascending; with neither a filter nor places every row is visible. `masked` columns are null."""

    masked: frozenset[str]
    filter: str | None = None
    places: NDArray[np.int64] | None = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The visible rows of a batch that has its `PLACE`."""
        if self.places is None:
            return batch
        from omnigraph.storage.integer_sets import is_member

        return batch.filter(pa.array(is_member(batch.column(PLACE).to_numpy(), self.places)))


def visible_table(snapshot: Snapshot, type_: TableType) -> VisibleTable | None:
    """None for an unrestricted reader."""
    if snapshot.visibility.is_unrestricted:
        return None
    from omnigraph.engine.query.visibility import visible_addresses, visible_filter
    from omnigraph.errors import PolicyError

    masked = frozenset(type_.properties[name].column for name in snapshot.visibility.of(type_).masked)
    text = visible_filter(snapshot, type_)
    if text is not None:
        return VisibleTable(masked, text or None)
    if snapshot.entry.tables[type_.type_key].rows > _MOST_PLACES:
        raise PolicyError(f"policy: {type_.name} has too many rows to tell Spark which of them you see")
    return VisibleTable(masked, places=visible_addresses(snapshot, type_))


@dataclass(frozen=True, slots=True)
class EntityRecords:
    """One type in one version of its table; plain data for tasks."""

    location: Location
    type: TableType
    state: TableState
    dates: Dates = Dates.EPOCH

    @classmethod
    def of(
        cls, snapshot: Snapshot, type_: TableType, state: TableState | None = None, dates: Dates = Dates.EPOCH
    ) -> EntityRecords:
        """As a snapshot has them, or in a staged version."""
        return cls(snapshot.root.location, type_, state or snapshot.table(type_.type_key).state, dates)

    def lines(self, fragment_ids: Sequence[int], offsets: NDArray[np.int64] | None = None) -> Iterator[bytes]:
        """One line per entity, in the order of the table. Offsets choose rows of one fragment that has lost none."""
        return (line for _, line in self.by_id(fragment_ids, offsets))

    def by_id(self, fragments: Sequence[int], offsets: NDArray[np.int64] | None = None) -> Iterator[tuple[str, bytes]]:
        """The same lines, each with the id of its entity."""
        from omnigraph.engine.export import entity_batches
        from omnigraph.engine.rows.export_form import record_lines
        from omnigraph.engine.rows.type_state import TypeState
        from omnigraph.storage.tables import TableReader
        from omnigraph.storage.tables.rows import row_ids_of

        entities = TypeState(TableReader(self.location), self.type, self.state)
        row_ids = row_ids_of(entities.table.read([], row_ids=True, fragments=fragments))
        for rows in entity_batches(entities, row_ids if offsets is None else row_ids[offsets]):
            yield from zip(rows.column("id").to_pylist(), record_lines(self.type, rows, self.dates), strict=True)


def row_ids_at(records: EntityRecords, fragment: int, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row ids of some rows of one fragment, by their addresses."""
    from omnigraph.storage.integer_sets import find_positions
    from omnigraph.storage.tables import TableReader
    from omnigraph.storage.tables.rows import ROW_ADDRESS, row_ids_of

    table = TableReader(records.location).open(records.state)
    rows = table.read([ROW_ADDRESS], row_ids=True, fragments=[fragment]).sort_by(ROW_ADDRESS)
    at, _ = find_positions(rows.column(ROW_ADDRESS).to_numpy().astype("int64"), addresses)
    return row_ids_of(rows)[at]


def equal_rows_at(
    new: EntityRecords, new_rows: NDArray[np.int64], stored: EntityRecords, stored_rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Row by row, whether two versions of a table hold the same values in the rows with these ids."""
    from omnigraph.engine.history.diff import equal_entities
    from omnigraph.engine.rows.columns import equal_values
    from omnigraph.engine.rows.type_state import TypeState
    from omnigraph.storage.tables import TableReader

    left, right = (TypeState(TableReader(each.location), each.type, each.state) for each in (new, stored))
    same = equal_entities(left, new_rows, right, stored_rows)
    if ends := left.keys[1:]:
        mine, others = left.table.take(new_rows, ends), right.table.take(stored_rows, ends)
        for end in ends:
            same &= equal_values(mine.column(end), others.column(end))
    return same


def columns_with_values(records: EntityRecords, row_ids: NDArray[np.int64], columns: Sequence[str]) -> list[str]:
    """Those of some columns that any of these rows has a value in."""
    from omnigraph.storage.tables import TableReader

    table = TableReader(records.location).open(records.state)
    left, filled = list(columns), list[str]()
    for start in range(0, len(row_ids), _ROWS_LOOKED_AT):
        if not left:
            break
        rows = table.take(row_ids[start : start + _ROWS_LOOKED_AT], left)
        filled += [name for name in left if rows.column(name).null_count < rows.num_rows]
        left = [name for name in left if name not in filled]
    return sorted(filled)


def admitted_blobs(
    type_: TableType, rows: pa.Table, policy: ExternalBlobPolicy, *, keeps_references: bool
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Rows with their external cells admitted, and the rows to refuse: row -> property and reason."""
    refused: dict[int, tuple[str, str]] = {}
    for prop in type_.property_list:
        if not prop.type.is_blob:
            continue
        index = rows.column_names.index(prop.column)
        uris = pc.struct_field(rows.column(index), "uri")
        if uris.null_count == len(uris):
            continue
        objects, cells = ExternalObjects(), rows.column(index).to_pylist()
        for row, uri in enumerate(uris.to_pylist()):
            if uri is not None:
                try:
                    normal = policy.admit(uri)
                    objects.size(normal)
                    data, kept = (None, normal) if keeps_references else (objects.read(normal), None)
                    cells[row] = {"data": data, "uri": kept}
                except OmniGraphError as error:
                    refused.setdefault(row, (prop.name, str(error)))
        rows = rows.set_column(index, rows.schema.field(index), pa.array(cells, BLOB_CELL))
    return rows, refused
