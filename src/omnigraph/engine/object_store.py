"""Small objects below a location that is no graph itself: what a cluster keeps beside its graphs.

The rooms above the engine reach the store through here alone. Whatever an object says is their business; that a name
is taken once, and stays once it is taken, is the store's.
"""

from __future__ import annotations

import os.path
import shutil
from typing import Any

from omnigraph.errors import NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects

_CLAIMS = 3


class ObjectStore:
    """The objects below one root. Safe to share between threads."""

    def __init__(self, location: Location) -> None:
        self._objects = Objects(location)

    @classmethod
    def open(cls, uri: str) -> ObjectStore:
        """The objects of a root; a local one must exist."""
        location = Location.parse(uri)
        if location.is_local and not os.path.isdir(location.local_root):
            raise NotFoundError(f"there is no directory '{location.uri}'")
        return cls(location)

    @classmethod
    def make(cls, uri: str) -> ObjectStore:
        """As `open`, with the local directory made if it is missing."""
        location = Location.parse(uri)
        location.make_local_root()
        return cls(location)

    @property
    def uri(self) -> str:
        return self._objects.location.uri

    def read(self, path: str) -> bytes | None:
        """The bytes of an object, None when there is none."""
        return self._objects.get(path)

    def create(self, path: str, data: bytes) -> bool:
        """Create-if-absent; either answer is durable. False may also be about our own object, when the store's first
        answer was lost: who has to know looks at what stands there."""
        return self._objects.claim(path, data, _CLAIMS)

    def replace(self, path: str, data: bytes) -> None:
        """Write or replace: only for objects whose name says what their content must be."""
        self._objects.put(path, data, durable=True)

    def names(self, folder: str) -> list[str]:
        """The names of the objects below a folder, relative to it."""
        return [stored.path[len(folder) + 1 :] for stored in self._objects.below(folder)]

    def folders(self, folder: str = "") -> list[str]:
        """The names of the folders directly below the root, or below a folder of it."""
        start = len(folder) + 1 if folder else 0
        return [path[start:] for path in self._objects.folders(folder)]

    def delete(self, path: str) -> None:
        """Remove an object; there may be none."""
        self._objects.delete(path)

    def remove_tree(self, folder: str, first: str) -> None:
        """Remove everything below a folder, one object before all others. For folders whose name is never used again:
        who was stopped in here and goes on much later then harms nobody. Several may do it at a time."""
        self._objects.delete(f"{folder}/{first}")
        location = self._objects.location
        if not location.is_local:
            self._objects.delete_all([stored.path for stored in self._objects.below(folder)])
            return
        # On a disk, directories and unfinished files are no objects, and the folder may be a link to another disk.
        path = location.local_root / folder
        try:
            shutil.rmtree(os.path.realpath(path), onerror=_unless_gone)
            if path.is_symlink():
                path.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(StorageErrorKind.PERMANENT, f"delete {path}: {reason}") from error


def _unless_gone(_: object, path: str, failure: Any) -> None:
    """Somebody else removes it too."""
    error = failure[1]
    if not isinstance(error, FileNotFoundError):
        raise error


def new_object_id() -> str:
    """A name that nobody else picks; later ones sort behind earlier ones."""
    return new_ulid()


def normal_uri(uri: str) -> str:
    """One spelling for a place that people write in several ways."""
    return Location.parse(uri).uri


def real_place(uri: str) -> str:
    """As `normal_uri`, with the links of a local path followed: two names of one place become one."""
    location = Location.parse(uri)
    return os.path.realpath(location.local_root) if location.is_local else location.uri


def is_local(uri: str) -> bool:
    """Whether a place is a path of this machine."""
    return Location.parse(uri).is_local
