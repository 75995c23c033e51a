"""What the reader of a snapshot sees of a table, as executors are told: plain data, settled by the driver.

Where a text of Lance's filter language says which rows are seen, the scan applies it. Otherwise, as for edges whose
ends decide, the places of the seen rows travel to the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph.engine.bulk.places import PLACE

if TYPE_CHECKING:
    # Executors import this module, and have no use for an open graph.
    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.engine.snapshot import Snapshot
    from omnigraph.language.catalog import TableType

_MOST_PLACES: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class SeenTable:
    """`places` are ascending; with neither a filter nor places every row is seen. `hidden` columns are null."""

    hidden: frozenset[str]
    filter: str | None = None
    places: NDArray[np.int64] | None = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The seen rows of a batch that has its `PLACE`."""
        if self.places is None:
            return batch
        from omnigraph.storage.ordered import contained

        return batch.filter(pa.array(contained(batch.column(PLACE).to_numpy(), self.places)))


def seen_table(snapshot: Snapshot, type_: TableType) -> SeenTable | None:
    """None when everything is seen."""
    if snapshot.lens.is_open:
        return None
    from omnigraph.engine.query.seen_entities import seen_filter, seen_places
    from omnigraph.errors import PolicyError

    hidden = frozenset(type_.properties[name].column for name in snapshot.lens.of(type_).hidden)
    text = seen_filter(snapshot, type_)
    if text is not None:
        return SeenTable(hidden, text or None)
    if snapshot.entry.tables[type_.type_key].rows > _MOST_PLACES:
        raise PolicyError(f"policy: {type_.name} has too many rows to tell Spark which of them you see")
    return SeenTable(hidden, places=seen_places(snapshot, type_))
