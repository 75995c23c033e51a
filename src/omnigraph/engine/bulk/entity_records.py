"""Entities of some fragments as lines of an export, made by executors with the engine's own code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.language.catalog import TableType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.engine.entities import TypeState
    from omnigraph.engine.snapshot import Snapshot
    from omnigraph.storage.location import Location
    from omnigraph.storage.models import TableState
    from omnigraph.storage.tables.rows import RowIds


@dataclass(frozen=True, slots=True)
class EntityRecords:
    """One type in one version of its table; plain data for tasks."""

    location: Location
    type: TableType
    state: TableState

    @classmethod
    def of(cls, snapshot: Snapshot, type_: TableType, state: TableState | None = None) -> EntityRecords:
        """As a snapshot has them, or in a staged version."""
        return cls(snapshot.root.location, type_, state or snapshot.table(type_.type_key).state)

    def lines(self, fragment_ids: Sequence[int]) -> Iterator[bytes]:
        """One line per entity, in the order of the table."""
        from omnigraph.engine.export import entity_lines

        entities, row_ids = self._rows(fragment_ids)
        return entity_lines(entities, row_ids)

    def with_ids(self, fragment_ids: Sequence[int], offsets: NDArray[np.int64]) -> Iterator[tuple[str, bytes]]:
        """The id and the line of some rows, by their offsets in fragments that have lost none."""
        from omnigraph.engine.export import entity_batches
        from omnigraph.engine.export_form import record_lines

        entities, row_ids = self._rows(fragment_ids)
        for rows in entity_batches(entities, row_ids[offsets]):
            yield from zip(rows.column("id").to_pylist(), record_lines(self.type, rows), strict=True)

    def _rows(self, fragment_ids: Sequence[int]) -> tuple[TypeState, RowIds]:
        from omnigraph.engine.entities import TypeState
        from omnigraph.storage.tables import TableReader
        from omnigraph.storage.tables.distributed import fragment_row_ids

        entities = TypeState(TableReader(self.location), self.type, self.state)
        return entities, fragment_row_ids(entities.table, fragment_ids)
