"""A table version as other processes work on it: what they read of it, and the files they make for it.

It is pickled into tasks, so it is plain data, and Lance is imported by its methods, after the fork. What they return is
text for the driver, which alone turns it into versions; a file whose maker died is named by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.engine.bulk.places import PLACE

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.resources import Resources
    from omnigraph.storage.models import TableState
    from omnigraph.storage.tables.indexes import IndexSpec


@dataclass(frozen=True, slots=True)
class RemoteTable:
    """Where another process finds one table version. The options of the store may hold credentials."""

    uri: str
    version: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, resources: Resources, state: TableState) -> RemoteTable:
        location = resources.root.location
        return cls(location.child(state.path), state.version, dict(location.options))

    def scan(
        self,
        fragment_ids: Sequence[int],
        columns: Sequence[str],
        *,
        filter: str | None = None,
        limit: int | None = None,
        places: bool = False,
        blobs_as_bytes: bool = False,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of some fragments; `places` adds where each stands, as `PLACE`."""
        from omnigraph.storage.tables.fragments import scan_fragments

        return scan_fragments(
            self,
            fragment_ids,
            columns,
            filter=filter,
            limit=limit,
            addresses=PLACE if places else None,
            blobs_as_bytes=blobs_as_bytes,
            batch_rows=batch_rows,
        )

    def write(self, rows: pa.Table, schema: pa.Schema, *, replaces: bool) -> list[str]:
        """New fragments with these rows, for a run that adds to the table or replaces what it holds."""
        from omnigraph.storage.tables.fragments import write_new_fragments

        return write_new_fragments(self, rows, schema, replaces=replaces)

    def without_rows(self, fragment_id: int, offsets: Sequence[int]) -> str | None:
        """A fragment without some of its rows; None when none is left."""
        from omnigraph.storage.tables.fragments import delete_rows

        return delete_rows(self, fragment_id, offsets)

    def with_column(
        self,
        fragment_id: int,
        target: str,
        columns: Sequence[str],
        filter: str,
        compute: Callable[[pa.Table, pa.DataType], pa.Array],
    ) -> str | None:
        """A fragment with new values of one column for the rows of a filter; None when no row matches."""
        from omnigraph.storage.tables.fragments import rewrite_column

        return rewrite_column(self, fragment_id, target, columns, filter, compute)

    def index_segment(self, spec: IndexSpec, fragment_ids: Sequence[int]) -> str:
        """One segment of an index over some fragments; an empty text when its vectors can't have one."""
        from omnigraph.storage.tables.fragments import build_index_segment

        return build_index_segment(self, spec, fragment_ids)

    def compacted(self, task: str) -> str:
        """What one planned rewrite of fragments made."""
        from omnigraph.storage.tables.fragments import run_compaction

        return run_compaction(self, task)
