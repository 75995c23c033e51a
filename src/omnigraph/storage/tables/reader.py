"""Opening immutable table versions and keeping the recent ones open.

`(path, version)` never changes meaning, so an opened dataset is cached without any invalidation: the last versions of
each table, under one byte bound and one shared Lance session per graph handle.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import lance
from lance import Session  # type: ignore[attr-defined]

from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.digests import VersionDigests
from omnigraph.storage.tables.lance_errors import translated
from omnigraph.storage.tables.rows import Table

_OPEN_BYTES = 64 << 20
# Who writes leaves a version behind with each commit: without this, a busy table alone would fill the bound above.
_OPEN_VERSIONS = 16
_METADATA_CACHE_BYTES = 128 << 20
_INDEX_CACHE_BYTES = 1 << 30
# What an open dataset costs: its manifest in memory, mostly the metadata of fragments and columns.
_BYTES_PER_DATASET = 16 << 10
_BYTES_PER_FRAGMENT = 1 << 10
_BYTES_PER_COLUMN = 1 << 10


class TableReader:
    """Opens table versions of one graph and keeps the most recent ones open."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.session = Session(
            index_cache_size_bytes=_INDEX_CACHE_BYTES, metadata_cache_size_bytes=_METADATA_CACHE_BYTES
        )
        self.digests = VersionDigests(location)
        self._open: OrderedDict[str, OrderedDict[str, Table]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.location.options) or None

    def open(self, state: TableState) -> Table:
        with self._lock:
            versions = self._open.get(state.path)
            if versions is not None and (table := versions.get(state.version)) is not None:
                versions.move_to_end(state.version)
                self._open.move_to_end(state.path)
                return table
        return self.keep(self._load(state))

    def keep(self, table: Table) -> Table:
        """Remember an open version; a staged one is the base of the next write and costs no request then."""
        path, version = table.state.path, table.state.version
        with self._lock:
            versions = self._open.setdefault(path, OrderedDict())
            self._open.move_to_end(path)
            if version not in versions:
                versions[version] = table
                self._bytes += _cost(table)
            if len(versions) > _OPEN_VERSIONS:
                self._close_one(path)
            while self._bytes > _OPEN_BYTES and (len(self._open) > 1 or len(versions) > 1):
                self._close_one(next(iter(self._open)))
        return table

    def _close_one(self, path: str) -> None:
        """Let go of the version of a table that was not asked for longest."""
        versions = self._open[path]
        _, closed = versions.popitem(last=False)
        self._bytes -= _cost(closed)
        if not versions:
            del self._open[path]

    def requests(self) -> int:
        """Read requests sent for the tables that are open now."""
        with self._lock:
            tables = [table for versions in self._open.values() for table in versions.values()]
        return sum(table.requests()[0] for table in tables)

    def open_count(self) -> int:
        with self._lock:
            return sum(map(len, self._open.values()))

    def _load(self, state: TableState) -> Table:
        uri = self.location.child(state.path)
        self.digests.check_manifest(state)
        with translated(f"opening {uri}", self.location, state):
            dataset = lance.dataset(
                uri, version=state.number, session=self.session, storage_options=self.storage_options
            )
            table = Table(state, dataset, self.location)
            # A damaged schema opens, and makes Lance panic when it is asked for.
            _ = table.schema
            self.digests.check_deletions(state, dataset)
        return table


def _cost(table: Table) -> int:
    columns = len(table.schema) * _BYTES_PER_COLUMN
    return _BYTES_PER_DATASET + table.state.fragments * _BYTES_PER_FRAGMENT + columns
