"""A pinned state of the whole graph: one log entry, tables opened when first touched.

A snapshot never mixes versions and never changes; whoever holds one reads the same rows for as long as cleanup keeps
the versions it names.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog
from omnigraph.storage.models import LogEntry, SchemaDocument
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table


class Snapshot:
    def __init__(self, root: GraphRoot, branch: str, entry: LogEntry) -> None:
        self._root = root
        self.branch = branch
        self.entry = entry

    @property
    def commit_id(self) -> str:
        return self.entry.commit.id

    @property
    def version(self) -> int:
        return self.entry.version

    @property
    def schema_document(self) -> SchemaDocument:
        return self._root.schema(self.entry.schema)

    @property
    def catalog(self) -> Catalog:
        return self._root.catalog(self.entry.schema)

    def types(self) -> list[str]:
        """Type keys, edges before nodes."""
        return sorted(self.entry.tables)

    def table(self, type_key: str) -> Table:
        state = self.entry.tables.get(type_key)
        if state is None:
            raise BadRequestError(f"type '{type_key}' does not exist at this snapshot (commit {self.commit_id})")
        return self._root.reader.open(state)

    def count(self, type_key: str, filter: str | None = None) -> int:
        return self.table(type_key).count(filter)

    def scan(self, type_key: str, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.Table:
        return self.table(type_key).read(columns, filter=filter)
