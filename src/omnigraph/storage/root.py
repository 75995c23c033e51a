"""A graph's root: opening it, and the parts that hang on it. `creation.py` makes one.

Creating a graph: everything but its name first, then `graph.json`, from whose moment on the graph exists.

What an `init` writes before has names that nobody else can pick, so two racing inits can't mix and an interrupted one
leaves only unnamed garbage.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from omnigraph.errors import (
    AlreadyInitializedError,
    ConflictError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.language.catalog import Catalog
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.external_objects import ExternalObjects
from omnigraph.storage.identifiers import MAIN, new_commit_id, new_table_id, new_ulid, now_micros
from omnigraph.storage.location import Location
from omnigraph.storage.log.branches import Branches
from omnigraph.storage.log.cleanup_journal import JOURNAL_FOLDER, CleanupJournal, Pins
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.log.write_guard import CLOCK_OBJECT, WriteGuard, probe_create_if_absent
from omnigraph.storage.log.writer_queue import WriterQueue
from omnigraph.storage.models import (
    FORMAT_VERSION,
    BranchRef,
    Commit,
    GraphIdentity,
    LogEntry,
    SchemaDocument,
    TableState,
    decode,
    encode,
)
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables import Staging, TableReader
from omnigraph.storage.tables.maintenance import TableMaintenance
from omnigraph.storage.tracing import Trace

IDENTITY = "__manifest/graph.json"
_WORKERS = 16
_REMEMBERED_SCHEMAS = 64


class GraphRoot:
    """One open graph: its identity and the storage parts that share a store client, a Lance session and threads."""

    def __init__(self, objects: Objects, identity: GraphIdentity, trace: Trace) -> None:
        self.objects = objects
        self.identity = identity
        self.trace = trace
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="omnigraph")
        self.writer_queue = WriterQueue(objects, self.workers)
        self.guard = WriteGuard(objects, self.workers)
        self.log = GraphLog(objects, self.workers, self.writer_queue, self.guard)
        self.branches = Branches(objects, self.log, identity.main, identity.graph_id, trace, self.guard)
        self.reader = TableReader(objects.location)
        self.staging = Staging(self.reader, trace)
        self.table_maintenance = TableMaintenance(self.reader, self.staging)
        self.external = ExternalObjects(objects.location)
        self.pins = Pins(objects, self.workers)
        self.cleanup_journal = CleanupJournal(objects, self.workers)
        self._closing: list[Callable[[], None]] = []
        self._schemas: RecentlyUsed[str, SchemaDocument] = RecentlyUsed(_REMEMBERED_SCHEMAS)
        self._catalogs: RecentlyUsed[str, Catalog] = RecentlyUsed(_REMEMBERED_SCHEMAS)

    @property
    def location(self) -> Location:
        return self.objects.location

    def on_close(self, stop: Callable[[], None]) -> None:
        """Have something stopped that works on this graph in the background, before its threads end."""
        self._closing.append(stop)

    def close(self) -> None:
        while self._closing:
            self._closing.pop()()
        self.workers.shutdown(wait=True)

    def schema(self, digest: str) -> SchemaDocument:
        """An accepted schema by its digest. Content-addressed, so it is remembered without a check."""
        if (known := self._schemas.get(digest)) is None:
            known = self.stored_schema(digest)
            self._schemas[digest] = known
        return known

    def stored_schema(self, digest: str) -> SchemaDocument:
        """As `schema`, but always read from the store: for verification."""
        path = schema_path(digest)
        data = self.objects.get(path)
        if data is None:
            raise IntegrityError(path, "the schema of a commit is missing")
        if hashlib.sha256(data).hexdigest() != digest:
            raise IntegrityError(path, "its content does not match its digest")
        return decode(path, data, SchemaDocument)

    def catalog(self, digest: str) -> Catalog:
        """The compiled catalog of an accepted schema. Immutable, so it is shared."""
        if (known := self._catalogs.get(digest)) is None:
            known = Catalog.from_json(bytes(self.schema(digest).catalog), schema_path(digest))
            self._catalogs[digest] = known
        return known

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


def open_root(location: Location, trace: Trace | None = None) -> GraphRoot:
    objects = Objects(location)
    data = objects.get(IDENTITY)
    if data is None:
        raise NotFoundError(f"there is no graph at '{location.uri}'; create one with init")
    return GraphRoot(objects, decode(IDENTITY, data, GraphIdentity), trace or Trace())


def new_table_path(type_key: str) -> tuple[str, str]:
    """Where a new life of a type is stored, and its table id."""
    kind, _, name = type_key.partition(":")
    if kind not in ("node", "edge") or not name:
        raise ValueError(f"'{type_key}' is not a type key: write node:<Type> or edge:<Type>")
    table_id = new_table_id(name)
    return f"{kind}s/{table_id}", table_id


def schema_path(digest: str) -> str:
    return f"schemas/{digest}.json"


_OWN_DIRECTORIES = ("__manifest/", "schemas/", "nodes/", "edges/", "topology/")
_CLAIMS = 3


def create_root(
    location: Location,
    tables: Mapping[str, pa.Schema],
    *,
    source: str = "",
    catalog: bytes = b"null",
    actor: str | None = None,
    details: Mapping[str, str] | None = None,
    force: bool = False,
    trace: Trace | None = None,
) -> GraphRoot:
    """Make a graph with one empty table per type key and its first commit. All of it, or nothing is left behind.

    `force` accepts a root that holds files of an interrupted init; it never replaces a graph.
    """
    undo: list[Callable[[], None]] = []
    try:
        for directory in location.make_local_root():
            undo.append(_removing_directory(directory))
        return _create_root(location, tables, source, catalog, actor, details or {}, force, trace or Trace(), undo)
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(StorageError, OSError):
                step()
        raise


def _create_root(
    location: Location,
    tables: Mapping[str, pa.Schema],
    source: str,
    catalog: bytes,
    actor: str | None,
    details: Mapping[str, str],
    force: bool,
    trace: Trace,
    undo: list[Callable[[], None]],
) -> GraphRoot:
    objects = Objects(location)
    _refuse_used_root(objects, force)
    if location.is_local:
        # A disk without a free block takes no new folder, and cleanup must be able to write its record there.
        (location.local_root / JOURNAL_FOLDER).mkdir(parents=True, exist_ok=True)
    store_time = probe_create_if_absent(objects, f"__manifest/probe-{new_ulid()}")
    now = now_micros()
    main = BranchRef(format=FORMAT_VERSION, branch=MAIN, branch_id=new_ulid(), created_at=now, created_by=actor)
    identity = GraphIdentity(format=FORMAT_VERSION, graph_id=new_ulid(), created_at=now, main=main)
    root = GraphRoot(objects, identity, trace)
    undo.append(root.close)
    undo.append(lambda: objects.delete(CLOCK_OBJECT))
    root.guard.learn(store_time)

    def make(type_key: str) -> TableState:
        path, table_id = new_table_path(type_key)
        undo.append(_removing_objects(objects, path))
        state = root.staging.create(path, table_id, tables[type_key])
        trace.reach("init.table.after")
        return state

    states = dict(zip(tables, root.workers.map(make, tables), strict=True))
    digest = root.accept_schema(source, catalog)
    undo.append(lambda: objects.delete(schema_path(digest)))
    trace.reach("init.schema.after")
    undo.append(_removing_objects(objects, f"__manifest/log/{main.branch_id}"))
    undo.append(lambda: objects.delete(f"__manifest/hints/{main.branch_id}"))
    root.log.publish(_first_entry(identity, digest, states, details))
    trace.reach("init.genesis.after")
    try:
        _claim(objects, identity)
    except StorageError as error:
        if error.may_have_happened:
            undo[:] = [root.close]  # perhaps the graph exists, and somebody works with it already
        raise
    undo.clear()
    trace.reach("init.claim.after")
    return root


def _first_entry(
    identity: GraphIdentity, schema: str, tables: Mapping[str, TableState], details: Mapping[str, str]
) -> LogEntry:
    main, now = identity.main, identity.created_at
    commit = Commit(
        id=new_commit_id(1),
        kind="init",
        parents=(),
        authored_at=now,
        published_at=now,
        actor=main.created_by,
        details=dict(details),
    )
    return LogEntry(
        format=FORMAT_VERSION,
        graph_id=identity.graph_id,
        branch=MAIN,
        branch_id=main.branch_id,
        version=1,
        commit=commit,
        schema=schema,
        tables=dict(tables),
        table_versions=dict.fromkeys(tables, 1),
    )


def _claim(objects: Objects, identity: GraphIdentity) -> None:
    """The moment the graph exists. After a lost response the object itself says whose claim won."""
    if objects.claim(IDENTITY, encode(identity), _CLAIMS):
        return
    try:
        standing = objects.get(IDENTITY)
    except StorageError as error:
        raise StorageError(StorageErrorKind.UNKNOWN, f"it is open whose graph was created: {error}") from error
    if standing is None or decode(IDENTITY, standing, GraphIdentity).graph_id != identity.graph_id:
        raise AlreadyInitializedError(objects.location.uri)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a root holds where no graph opens: an example of what an init writes, and one of what it does not."""

    is_graph: bool
    own: str | None = None
    foreign: str | None = None


def leftovers(location: Location) -> Leftovers:
    try:
        return _leftovers(Objects(location))
    except NotFoundError:  # no such directory, perhaps only since a moment ago
        return Leftovers(False)


def _leftovers(objects: Objects) -> Leftovers:
    if objects.get(IDENTITY) is not None:
        return Leftovers(True)
    found = objects.sample()
    foreign = (path for path in found if not path.startswith(_OWN_DIRECTORIES))
    return Leftovers(False, found[0] if found else None, next(foreign, None))


def _refuse_used_root(objects: Objects, force: bool) -> None:
    uri = objects.location.uri
    left = _leftovers(objects)
    if left.is_graph:
        raise AlreadyInitializedError(uri)
    if left.foreign is not None:
        raise ConflictError(f"'{uri}' is not empty (it holds '{left.foreign}'); choose an empty location for the graph")
    if left.own is not None and not force:
        raise ConflictError(
            f"'{uri}' holds leftovers of an interrupted init (such as '{left.own}') and no graph; "
            "use force to create the graph there"
        )


def _removing_objects(objects: Objects, prefix: str) -> Callable[[], None]:
    def remove() -> None:
        for stored in objects.below(prefix):
            objects.delete(stored.path)
        if objects.location.is_local:
            # Object stores have no directories; on a disk the emptied ones would stay behind.
            shutil.rmtree(objects.location.local_root / prefix, ignore_errors=True)
            with contextlib.suppress(OSError):
                (objects.location.local_root / prefix).parent.rmdir()

    return remove


def _removing_directory(directory: Path) -> Callable[[], None]:
    def remove() -> None:
        if (directory / IDENTITY).exists():
            return  # another init was faster: what is empty here is part of its graph
        for child in (JOURNAL_FOLDER, "__manifest/log", "__manifest/hints", "__manifest", "schemas", "nodes", "edges"):
            with contextlib.suppress(OSError):
                os.rmdir(directory / child)
        os.rmdir(directory)

    return remove
