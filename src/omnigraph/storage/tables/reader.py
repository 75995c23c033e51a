"""Opening immutable table versions, checking them against the log, and keeping the recent ones open.

Every part that reads a table calls `TableReader`. `(path, version)` never changes meaning, so open datasets are cached
without invalidation, under one byte bound. Lance trusts manifests and deletion vectors: a changed byte makes it read
another column, panic, or bring a row back. So the log holds digests of both, and the reader compares them; only on a
local disk, because an object store checks its objects and another read would cost a request.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import lance
from lance import Session  # type: ignore[attr-defined]
from msgspec.structs import replace

from omnigraph.errors import IntegrityError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState, manifest_path
from omnigraph.storage.tables.disk.local_copies import LocalCopies
from omnigraph.storage.tables.lance_errors import translate_errors
from omnigraph.storage.tables.rows import Table

_DIGEST_BYTES: Final = 16
_REMEMBERED_VECTORS: Final = 4_096
_CHANGED: Final = "was changed: it does not match its digest in the log"


class VersionDigests:
    """Takes and checks the digests of the versions of one graph. Deletion vectors are read once: they never change."""

    def __init__(self, location: Location) -> None:
        self._root: Path | None = location.local_root if location.is_local else None
        self._vectors: RecentlyUsed[str, bytes] = RecentlyUsed(_REMEMBERED_VECTORS)

    def add_to(self, state: TableState, fragments: Sequence[Any]) -> TableState:
        """The state of a new version with its digests. Its files were written a moment ago and are in memory still."""
        if self._root is None:
            return state
        with translate_errors(f"reading {state.path}"):
            manifest = _digest((self._root / manifest_path(state)).read_bytes()).hex()
            deletions = self._deletions(state, fragments)
        return replace(state, manifest=manifest, deletions=deletions)

    def check_manifest(self, state: TableState) -> None:
        """Before Lance reads it. A manifest that can't be read is left to Lance, which says why."""
        if self._root is not None and state.manifest is not None:
            with suppress(OSError):
                if _digest((self._root / manifest_path(state)).read_bytes()).hex() != state.manifest:
                    raise IntegrityError(manifest_path(state), f"the manifest of a table {_CHANGED}")

    def check_deletions(self, state: TableState, fragments: Sequence[Any]) -> None:
        """Before Lance reads any of them. One that is missing is left to Lance, too."""
        if self._root is not None and state.deletions is not None:
            with suppress(OSError):
                if self._deletions(state, fragments) != state.deletions:
                    names = _deletion_files(fragments)
                    path = f"{state.path}/{names[0] if len(names) == 1 else '_deletions/'}"
                    raise IntegrityError(path, f"the list of deleted rows {_CHANGED}")

    def _deletions(self, state: TableState, fragments: Sequence[Any]) -> str | None:
        assert self._root is not None
        parts = []
        for path in (f"{state.path}/{name}" for name in _deletion_files(fragments)):
            if (digest := self._vectors.get(path)) is None:
                digest = self._vectors[path] = _digest((self._root / path).read_bytes())
            parts.append(digest)
        return _digest(b"".join(parts)).hex() if parts else None


def _deletion_files(fragments: Sequence[Any]) -> list[str]:
    return sorted(name for fragment in fragments if (name := fragment.deletion_file()) is not None)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


_OPEN_BYTES = 64 << 20
# A writer leaves a version behind with each commit: without this, a busy table alone would fill the bound above.
_OPEN_VERSIONS = 16
_OPEN_COPIES = 64
_METADATA_CACHE_BYTES = 128 << 20
_INDEX_CACHE_BYTES = 1 << 30
# The cost of an open dataset: its manifest in memory, mostly the metadata of fragments and columns.
_BYTES_PER_DATASET = 16 << 10
_BYTES_PER_FRAGMENT = 1 << 10
_BYTES_PER_COLUMN = 1 << 10


class TableReader:
    """Opens table versions of one graph and keeps the most recent ones open."""

    def __init__(self, location: Location, copies: LocalCopies | None = None) -> None:
        self.location = location
        self._copies = copies
        self.session = Session(
            index_cache_size_bytes=_INDEX_CACHE_BYTES, metadata_cache_size_bytes=_METADATA_CACHE_BYTES
        )
        self.digests = VersionDigests(location)
        self._open: OrderedDict[str, OrderedDict[str, Table]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._opening: dict[tuple[str, ...], threading.Lock] = {}
        self._copied: RecentlyUsed[str, Table] = RecentlyUsed(_OPEN_COPIES)

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.location.options) or None

    def open(self, state: TableState) -> Table:
        """The version; threads that ask for it at the same time share its requests."""
        if (table := self._peek(state)) is not None:
            return table
        with self._only_one(state.path, state.version):
            table = self._peek(state)
            return self.keep(self._load(state)) if table is None else table

    def open_to_read(self, state: TableState) -> Table:
        """The same for a reader that never writes from it: a copy on this machine is read, if there is one."""
        if self._copies is None:
            return self.open(state)
        place = f"{state.path}@{state.version}"
        with self._only_one("copy", place):
            table = self._copied.get(place)
            if table is None or table._dataset.has_left_copy:
                dataset = self._copies.open(state, self.session, partial(self.open, state))
                if dataset is None:
                    table = self.open(state)
                    if state.rows:
                        self._copies.note_use(table)
                else:
                    table = self._copied[place] = Table(state, dataset, self.location)
        return table

    @contextmanager
    def _only_one(self, *place: str) -> Iterator[None]:
        """One thread at a time opens a version; the others wait for it."""
        with self._lock:
            opening = self._opening.setdefault(place, threading.Lock())
        try:
            with opening:
                yield
        finally:
            with self._lock:
                self._opening.pop(place, None)

    def _peek(self, state: TableState) -> Table | None:
        with self._lock:
            versions = self._open.get(state.path)
            table = None if versions is None else versions.get(state.version)
            if versions is not None and table is not None:
                versions.move_to_end(state.version)
                self._open.move_to_end(state.path)
            return table

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
        self._bytes -= _cost(versions.popitem(last=False)[1])
        if not versions:
            del self._open[path]

    def open_tables(self) -> list[Table]:
        """The versions that are open now."""
        with self._lock:
            return [table for versions in self._open.values() for table in versions.values()]

    def requests(self) -> int:
        """Read requests sent for the tables that are open now."""
        return sum(table.requests()[0] for table in self.open_tables())

    def _load(self, state: TableState) -> Table:
        uri = self.location.child(state.path)
        self.digests.check_manifest(state)
        with translate_errors(f"opening {uri}", self.location, state):
            dataset = lance.dataset(
                uri, version=state.number, session=self.session, storage_options=self.storage_options
            )
            table = Table(state, dataset, self.location)
            # A damaged schema opens, and makes Lance panic when it is asked for.
            _ = table.schema
            self.digests.check_deletions(state, table._fragments())
        return table


def _cost(table: Table) -> int:
    return _BYTES_PER_DATASET + table.state.fragments * _BYTES_PER_FRAGMENT + len(table.schema) * _BYTES_PER_COLUMN
