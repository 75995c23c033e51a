"""The one thing asked of a store: that creating an object fails where one is. `init` asks, and so may anybody."""

from __future__ import annotations

from datetime import datetime

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import Objects


def probe_create_if_absent(objects: Objects, path: str) -> None:
    """Raises where the store fails it. A gateway that ignores the condition would lose commits silently."""
    try:
        first, second = objects.create(path, b"1"), objects.create(path, b"2")
        if not first or second or objects.get(path) != b"1":
            raise StorageError(
                StorageErrorKind.CONFIGURATION,
                f"the store of '{objects.location.uri}' does not honour create-if-absent; a graph can't be safe there",
            )
    finally:
        objects.delete(path)


def store_time(objects: Objects, path: str) -> datetime:
    """What time it is by the clock of the store."""
    objects.put(path, b"")
    try:
        return objects.modified(path)
    finally:
        objects.delete(path)
