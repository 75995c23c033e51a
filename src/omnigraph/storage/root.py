"""An open graph root: its identity, and the storage parts that share one store client, one Lance session and threads.

The engine opens a root once per graph handle and reaches the log, branches, tables and schemas through it; `creation`
makes new ones. It never deletes table data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from omnigraph.errors import IntegrityError
from omnigraph.language.catalog import Catalog
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.disk.disk_cache import CachedFiles, shared_disk_cache
from omnigraph.storage.external_objects import ExternalObjects
from omnigraph.storage.identifiers import new_table_id
from omnigraph.storage.location import Location
from omnigraph.storage.log.branches import IDENTITY as IDENTITY
from omnigraph.storage.log.branches import LogRoot
from omnigraph.storage.log.cleanup_journal import CleanupJournal, Pins
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.models import FORMAT_VERSION, GraphIdentity, SchemaDocument, TableState, decode, encode
from omnigraph.storage.objects import Objects

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.tables import TableReader
    from omnigraph.storage.tables.disk.local_copies import LocalCopies
    from omnigraph.storage.tables.maintenance import TableMaintenance
    from omnigraph.storage.tables.staging import Staging

_REMEMBERED_SCHEMAS = 64


class _Writers(NamedTuple):
    """The parts of an open graph that write tables."""

    staging: Staging
    maintenance: TableMaintenance


class GraphRoot(LogRoot):
    """One open graph: its identity and the storage parts that share a store client, a Lance session and threads. Lance
    is imported by the first operation that needs a table, and what writes tables by the first one that writes."""

    def __init__(self, objects: Objects, identity: GraphIdentity, trace: Trace) -> None:
        super().__init__(objects, identity, trace)
        if (settings := objects.location.disk_cache) is not None:
            cache = shared_disk_cache(settings)
            objects.cache = CachedFiles(cache, objects.location.uri, identity.graph_id)
        self.copies: LocalCopies | None = None
        self._reader: TableReader | None = None
        self._writers: _Writers | None = None
        self._opening = threading.RLock()
        self.external = ExternalObjects(objects.location)
        self.pins = Pins(objects, self.workers)
        self.cleanup_journal = CleanupJournal(objects, self.workers)
        self._closing = contextlib.ExitStack()
        self._schemas: RecentlyUsed[str, SchemaDocument] = RecentlyUsed(_REMEMBERED_SCHEMAS)
        self._catalogs: RecentlyUsed[str, Catalog] = RecentlyUsed(_REMEMBERED_SCHEMAS)

    @property
    def reader(self) -> TableReader:
        """Made once: all threads share one Lance session."""
        if (reader := self._reader) is None:
            from omnigraph.storage.tables import TableReader
            from omnigraph.storage.tables.disk.local_copies import LocalCopies

            with self._opening:
                if (reader := self._reader) is None:
                    if self.objects.cache is not None:
                        self.copies = LocalCopies(self.objects, self.objects.cache)
                    reader = self._reader = TableReader(self.objects.location, self.copies)
        return reader

    @property
    def staging(self) -> Staging:
        return self._table_writers().staging

    @property
    def table_maintenance(self) -> TableMaintenance:
        return self._table_writers().maintenance

    def _table_writers(self) -> _Writers:
        if (writers := self._writers) is None:
            from omnigraph.storage.tables.maintenance import TableMaintenance
            from omnigraph.storage.tables.staging import Staging

            with self._opening:
                if (writers := self._writers) is None:
                    staging = Staging(self.reader, self.trace)
                    writers = self._writers = _Writers(staging, TableMaintenance(self.reader, staging))
        return writers

    @property
    def location(self) -> Location:
        return self.objects.location

    def on_close(self, stop: Callable[[], None]) -> None:
        """Have something stopped that works on this graph in the background, before its threads end."""
        self._closing.callback(stop)

    def close(self) -> None:
        self._closing.close()
        if self.copies is not None:
            self.copies.close()
        if self.objects.cache is not None:
            self.objects.cache.close()
        super().close()

    def in_background(self, read: Callable[[], object]) -> None:
        """Read something before it is needed. Nobody learns of a failure: the one who needs it reads it again."""
        with contextlib.suppress(RuntimeError):  # the handle is closing
            self.workers.submit(read)

    def schema(self, digest: str) -> SchemaDocument:
        """An accepted schema by its digest. Content-addressed, so it is remembered without a check."""
        if (document := self._schemas.get(digest)) is None:
            document = self._schemas[digest] = self._schema_on_disk(digest) or self.stored_schema(digest)
        return document

    def stored_schema(self, digest: str) -> SchemaDocument:
        """As `schema`, but always read from the store: for verification."""
        path = schema_path(digest)
        data = self.objects.get(path)
        if data is None:
            raise IntegrityError(path, "the schema of a commit is missing")
        if hashlib.sha256(data).hexdigest() != digest:
            raise IntegrityError(path, "its content does not match its digest")
        document = decode(path, data, SchemaDocument)
        if self.objects.cache is not None:
            self.objects.cache.keep(path, data)
        return document

    def _schema_on_disk(self, digest: str) -> SchemaDocument | None:
        """The schema that this machine's disk has."""
        cache, path = self.objects.cache, schema_path(digest)
        data = None if cache is None else cache.read(path)
        if cache is None or data is None:
            return None
        if hashlib.sha256(data).hexdigest() != digest:
            cache.discard(path)
            return None
        return decode(path, data, SchemaDocument)

    def catalog(self, digest: str) -> Catalog:
        """The compiled catalog of an accepted schema. Immutable, so it is shared."""
        if (cached := self._catalogs.get(digest)) is None:
            cached = self._catalogs[digest] = Catalog.from_json(bytes(self.schema(digest).catalog), schema_path(digest))
        return cached

    def accept_schema(self, source: str, catalog: bytes) -> str:
        """Store a schema and return its digest. Storing the same one twice is the same object."""
        document = SchemaDocument(
            format=FORMAT_VERSION, graph_id=self.identity.graph_id, source=source, catalog=msgspec.Raw(catalog)
        )
        data = encode(document)
        digest = hashlib.sha256(data).hexdigest()
        self.objects.create(schema_path(digest), data)
        return digest

    def create_table(self, type_key: str, schema: pa.Schema) -> TableState:
        """A new, empty table for a life of a type. Invisible until a log entry names it."""
        path, table_id = new_table_path(type_key)
        return self.staging.create(path, table_id, schema)

    def table_folders(self) -> list[str]:
        """Every table folder below the root, also those that no commit names."""
        return [folder for kind in ("nodes", "edges") for folder in self.objects.folders(kind)]

    def drop_derived_files(self) -> None:
        """Remove the adjacency that is derived from edge tables; the next traversal builds it again."""
        self.objects.delete_all([stored.path for stored in self.objects.below("topology")])

    def remove_empty_folders(self, folders: Iterable[str]) -> None:
        """On a disk, folders outlive the files that were deleted from them. A folder that is not empty stays."""
        if self.location.is_local:
            for folder in folders:
                with contextlib.suppress(OSError):
                    os.rmdir(self.location.local_root / folder)


def new_table_path(type_key: str) -> tuple[str, str]:
    """Where a new life of a type is stored, and its table id."""
    kind, _, name = type_key.partition(":")
    if kind not in ("node", "edge") or not name:
        raise ValueError(f"'{type_key}' is not a type key: write node:<Type> or edge:<Type>")
    table_id = new_table_id(name)
    return f"{kind}s/{table_id}", table_id


def schema_path(digest: str) -> str:
    return f"schemas/{digest}.json"
