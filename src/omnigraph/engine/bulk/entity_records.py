"""Entities of some fragments as lines of an export, made by executors with the engine's own code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.api.enums import Dates
from omnigraph.language.catalog import TableType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.engine.snapshot import Snapshot
    from omnigraph.storage.location import Location
    from omnigraph.storage.models import TableState


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

    def by_id(
        self, fragment_ids: Sequence[int], offsets: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """The same lines, each with the id of its entity."""
        from omnigraph.engine.export import entity_batches
        from omnigraph.engine.rows.export_form import record_lines
        from omnigraph.engine.rows.type_state import TypeState
        from omnigraph.storage.tables import TableReader
        from omnigraph.storage.tables.fragments import fragment_row_ids

        entities = TypeState(TableReader(self.location), self.type, self.state)
        row_ids = fragment_row_ids(entities.table, fragment_ids)
        for rows in entity_batches(entities, row_ids if offsets is None else row_ids[offsets]):
            yield from zip(rows.column("id").to_pylist(), record_lines(self.type, rows, self.dates), strict=True)
