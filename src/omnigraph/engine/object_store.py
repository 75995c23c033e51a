"""Small objects below a location that is no graph itself: what a cluster keeps beside its graphs.

The rooms above the engine reach the store through here alone. Whatever an object says is their business; that a name
is taken once, and stays once it is taken, is the store's.
"""

from __future__ import annotations

import os.path

from omnigraph.errors import NotFoundError
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

    def folders(self) -> list[str]:
        """The folders directly below the root."""
        return self._objects.folders("")


def normal_uri(uri: str) -> str:
    """One spelling for a place that people write in several ways."""
    return Location.parse(uri).uri


def real_place(uri: str) -> str:
    """As `normal_uri`, with the links of a local path followed: two names of one place become one."""
    location = Location.parse(uri)
    return os.path.realpath(location.local_root) if location.is_local else location.uri
