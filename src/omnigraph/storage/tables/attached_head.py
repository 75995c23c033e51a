"""What another tool did to a table: the attached lineage, which OmniGraph itself never moves.

Every dataset is born with the empty attached version 1, so whatever stands on a later one is foreign. Nothing here
changes it. Called by repair.
"""

from __future__ import annotations

from dataclasses import dataclass

import lance

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.models import TableState
from omnigraph.storage.store_errors import reason_of
from omnigraph.storage.tables.lance_errors import LANCE_ERRORS, translated
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import Table

BORN_WITH = 1


@dataclass(frozen=True, slots=True)
class AttachedHead:
    """The newest attached version, and the operations that led there, oldest first."""

    table: Table
    operations: tuple[str, ...]

    @property
    def version(self) -> int:
        return self.table.state.number

    @property
    def is_foreign(self) -> bool:
        return self.version != BORN_WITH


def attached_head(reader: TableReader, state: TableState) -> AttachedHead:
    uri = reader.location.child(state.path)
    doing = f"the attached head of {state.path} can't be opened"
    try:
        with translated(doing):
            dataset = lance.dataset(uri, storage_options=reader.storage_options)
            made = [t for t in dataset.get_transactions(dataset.version - BORN_WITH) if t is not None]
            rows = dataset.count_rows() if dataset.version != BORN_WITH else 0
            version = str(dataset.version)
            head = TableState(table_id=state.table_id, path=state.path, version=version, rows=rows, fragments=0)
            table = Table(head, dataset, reader.location)
            _ = table.schema  # a damaged one makes Lance panic when it is asked for
    except LANCE_ERRORS as error:
        raise StorageError(StorageErrorKind.PERMANENT, f"{doing}: {reason_of(error)}") from error
    return AttachedHead(table, tuple(type(t.operation).__name__ for t in reversed(made)))
