"""The storage root of a cluster: the objects beside its graphs, and the folders that the graphs are in.

The ledger, the payloads and the commands read and write through the `Objects` that are opened here. Only
`remove_graph_folder` deletes graph data, and only in folders whose names are never used again.
"""

from __future__ import annotations

import os.path
import re
import shutil
from typing import Any, Final

from omnigraph.cluster.resources import RESOURCE_ID, ClusterError
from omnigraph.errors import BadRequestError, NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects

CLUSTER_FOLDER: Final = "__cluster"
GRAPHS_FOLDER: Final = "graphs"
_GRAPH_MARKER: Final = "__manifest/graph.json"
_GRAPH_FOLDER: Final = re.compile(rf"(?P<id>{RESOURCE_ID.pattern})(?:\.(?P<generation>[1-9][0-9]*))?\.omni")


def open_root(root: str) -> Objects | None:
    """The objects of a storage root; None when it is a local directory that does not exist."""
    try:
        return Objects(Location.parse(root))
    except NotFoundError:
        return None
    except (BadRequestError, StorageError) as error:
        raise ClusterError.of("storage_root_invalid", "storage", str(error)) from None


def make_root(root: str) -> Objects:
    """Like `open_root`, but a local directory that does not exist is created."""
    try:
        location = Location.parse(root)
        location.make_local_root()
        return Objects(location)
    except (BadRequestError, StorageError) as error:
        raise ClusterError.of("storage_root_invalid", "storage", str(error)) from None


def object_names(objects: Objects, folder: str) -> list[str]:
    """The names of the objects below a folder, relative to it."""
    return [stored.path[len(folder) + 1 :] for stored in objects.below(folder)]


def graph_folder(graph_id: str, generation: int) -> str:
    """The folder of a graph below the storage root. Each generation of an id has its own folder, so a delayed removal
    of one generation can't touch the next."""
    return f"{GRAPHS_FOLDER}/{graph_id}{f'.{generation}' if generation > 1 else ''}.omni"


def graph_uri(root: str, graph_id: str, generation: int) -> str:
    return f"{root}/{graph_folder(graph_id, generation)}"


def graph_folders(objects: Objects) -> dict[tuple[str, int], str]:
    """The graph folders that exist, by id and generation."""
    try:
        folders = objects.folders(GRAPHS_FOLDER)
    except StorageError as problem:
        raise ClusterError.of("graph_observation_error", GRAPHS_FOLDER, str(problem)) from problem
    by_generation = {}
    for folder in folders:
        parts = _GRAPH_FOLDER.fullmatch(folder.removeprefix(f"{GRAPHS_FOLDER}/"))
        if parts is not None and folder == graph_folder(parts["id"], int(parts["generation"] or 1)):
            by_generation[parts["id"], int(parts["generation"] or 1)] = folder
    return by_generation


def normal_uri(uri: str) -> str:
    """One spelling for a location that people write in several ways."""
    return Location.parse(uri).uri


def resolved_uri(uri: str) -> str:
    """Like `normal_uri`, with the links of a local path followed."""
    location = Location.parse(uri)
    return os.path.realpath(location.local_root) if location.is_local else location.uri


def enclosing_cluster(graph: str) -> str | None:
    """The storage root of the cluster that contains the graph at this URI, links followed; None outside a cluster."""
    root, _, folder = resolved_uri(graph).rpartition(f"/{GRAPHS_FOLDER}/")
    if not root or _GRAPH_FOLDER.fullmatch(folder) is None:
        return None
    try:
        objects = Objects(Location.parse(root))
    except NotFoundError:
        return None
    return objects.location.uri if CLUSTER_FOLDER in objects.folders("") else None


def remove_graph_folder(objects: Objects, folder: str) -> None:
    """Remove a deleted graph, its marker first, so that a half-removed graph never opens. The name of the folder is
    never used again: a removal that is repeated, resumed much later or run twice at once does no harm."""
    objects.delete(f"{folder}/{_GRAPH_MARKER}")
    if not objects.location.is_local:
        objects.delete_all([stored.path for stored in objects.below(folder)])
        return
    # On a disk, directories and unfinished files are not objects, and the folder may be a link to another disk.
    path = objects.location.local_root / folder
    try:
        shutil.rmtree(os.path.realpath(path), onerror=_ignore_missing)
        if path.is_symlink():
            path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(StorageErrorKind.PERMANENT, f"delete {path}: {reason}") from error


def _ignore_missing(_: object, path: str, failure: Any) -> None:
    """Another process removes the same files."""
    error = failure[1]
    if not isinstance(error, FileNotFoundError):
        raise error
