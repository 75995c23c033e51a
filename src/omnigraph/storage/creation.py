"""Creating a graph: its tables, schema and first commit, and then `graph.json`, from whose moment on the graph exists.

`Workspace.init` calls it. Everything that an init writes before `graph.json` has a name that nobody else can pick, so
two racing inits never mix, and an interrupted one leaves only garbage that no commit names. An init that fails removes
the folders it made, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import AlreadyInitializedError, ConflictError, NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage import models
from omnigraph.storage.identifiers import MAIN, new_commit_id, new_ulid, now_micros
from omnigraph.storage.location import Location
from omnigraph.storage.log.cleanup_journal import JOURNAL_FOLDER
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.log.write_guard import CLOCK_OBJECT, probe_create_if_absent
from omnigraph.storage.objects import Objects
from omnigraph.storage.root import IDENTITY, GraphRoot, new_table_path, schema_path

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
    `force` accepts a root that holds files of an interrupted init; it never replaces a graph."""
    trace = trace or Trace()
    with contextlib.ExitStack() as undo:
        for directory in location.make_local_root():
            undo.callback(_remove_directory, directory)
        objects = Objects(location)
        _refuse_used_root(objects, force)
        if location.is_local:
            # A disk without a free block takes no new folder, and cleanup must be able to write its record there.
            (location.local_root / JOURNAL_FOLDER).mkdir(parents=True, exist_ok=True)
        store_time = probe_create_if_absent(objects, f"__manifest/probe-{new_ulid()}")
        now = now_micros()
        main = models.BranchRef(
            format=models.FORMAT_VERSION, branch=MAIN, branch_id=new_ulid(), created_at=now, created_by=actor
        )
        identity = models.GraphIdentity(format=models.FORMAT_VERSION, graph_id=new_ulid(), created_at=now, main=main)
        root = GraphRoot(objects, identity, trace)
        undo.callback(root.close)
        undo.callback(_delete, objects, CLOCK_OBJECT)
        root.guard.learn(store_time)

        def make(type_key: str) -> models.TableState:
            path, table_id = new_table_path(type_key)
            undo.callback(_delete_below, objects, path)
            state = root.staging.create(path, table_id, tables[type_key])
            trace.reach("init.table.after")
            return state

        states = dict(zip(tables, root.workers.map(make, tables), strict=True))
        digest = root.accept_schema(source, catalog)
        undo.callback(_delete, objects, schema_path(digest))
        trace.reach("init.schema.after")
        undo.callback(_delete_below, objects, f"__manifest/log/{main.branch_id}")
        undo.callback(_delete, objects, f"__manifest/hints/{main.branch_id}")
        root.log.publish(_first_entry(identity, digest, states, details or {}))
        trace.reach("init.genesis.after")
        try:
            _claim(objects, identity)
        except StorageError as error:
            if error.may_have_happened:
                undo.pop_all()  # perhaps the graph exists, and somebody works with it already
                root.close()
            raise
        undo.pop_all()
    trace.reach("init.claim.after")
    return root


def _first_entry(
    identity: models.GraphIdentity, schema: str, tables: dict[str, models.TableState], details: Mapping[str, str]
) -> models.LogEntry:
    main, now = identity.main, identity.created_at
    commit = models.Commit(
        id=new_commit_id(1),
        kind="init",
        parents=(),
        authored_at=now,
        published_at=now,
        actor=main.created_by,
        details=dict(details),
    )
    return models.LogEntry(
        format=models.FORMAT_VERSION,
        graph_id=identity.graph_id,
        branch=MAIN,
        branch_id=main.branch_id,
        version=1,
        commit=commit,
        schema=schema,
        tables=tables,
        table_versions=dict.fromkeys(tables, 1),
    )


def _claim(objects: Objects, identity: models.GraphIdentity) -> None:
    """The moment the graph exists. After a lost response the object itself says whose claim won."""
    if objects.claim(IDENTITY, models.encode(identity), _CLAIMS):
        return
    try:
        stored = objects.get(IDENTITY)
    except StorageError as error:
        raise StorageError(StorageErrorKind.UNKNOWN, f"it is open whose graph was created: {error}") from error
    if stored is None or models.decode(IDENTITY, stored, models.GraphIdentity).graph_id != identity.graph_id:
        raise AlreadyInitializedError(objects.location.uri)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Files at a location without a graph: an example of those that an init writes, and of others."""

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
    paths = objects.sample()
    foreign = (path for path in paths if not path.startswith(_OWN_DIRECTORIES))
    return Leftovers(False, paths[0] if paths else None, next(foreign, None))


def _refuse_used_root(objects: Objects, force: bool) -> None:
    uri, left = objects.location.uri, _leftovers(objects)
    if left.is_graph:
        raise AlreadyInitializedError(uri)
    if left.foreign is not None:
        raise ConflictError(f"'{uri}' is not empty (it holds '{left.foreign}'); choose an empty location for the graph")
    if left.own is not None and not force:
        raise ConflictError(
            f"'{uri}' holds leftovers of an interrupted init (such as '{left.own}') and no graph; "
            "use force to create the graph there"
        )


def _delete(objects: Objects, path: str) -> None:
    with contextlib.suppress(StorageError):
        objects.delete(path)


def _delete_below(objects: Objects, prefix: str) -> None:
    with contextlib.suppress(StorageError, OSError):
        for stored in objects.below(prefix):
            objects.delete(stored.path)
        if objects.location.is_local:
            # Object stores have no directories; on a disk the emptied ones would stay behind.
            shutil.rmtree(objects.location.local_root / prefix, ignore_errors=True)
            (objects.location.local_root / prefix).parent.rmdir()


def _remove_directory(directory: Path) -> None:
    if (directory / IDENTITY).exists():
        return  # another init was faster, and the empty folders are part of its graph
    for child in (JOURNAL_FOLDER, "__manifest/log", "__manifest/hints", "__manifest", "schemas", "nodes", "edges", ""):
        with contextlib.suppress(OSError):
            os.rmdir(directory / child)
