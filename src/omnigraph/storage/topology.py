"""Adjacency arrays at rest: raw little-endian arrays and a small description, one folder per build.

Derived data: the engine writes a folder after a build and maps it after a restart; deleting any of it changes speed
and never an answer. The description is written last, so a folder without one is an unfinished build and is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import FormatVersionError, IntegrityError, StorageError
from omnigraph.storage.models import FORMAT_VERSION, TableState, decode, encode
from omnigraph.storage.objects import Objects

_ROOT: Final = "topology"
_DESCRIPTION: Final = "topology.json"


class StoredArray(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    length: int


class TopologyDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Which table versions the arrays were made from, and how to read them."""

    format: int
    shape: str
    edges: TableState
    sources: TableState
    targets: TableState
    dangling: bool
    arrays: tuple[StoredArray, ...]


class TopologyFiles:
    """The stored topologies of one graph."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def save(self, folder: str, description: TopologyDescription, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Best effort: a reader without write permission simply keeps its build in memory."""
        with contextlib.suppress(StorageError):
            for stored in description.arrays:
                data = np.ascontiguousarray(arrays[stored.name]).astype(stored.dtype, copy=False)
                # Only its size is checked before it is used, so a power cut must not leave it with other content.
                self._objects.put(f"{folder}/{stored.name}", data.tobytes(), durable=True)
            self._objects.put(f"{folder}/{_DESCRIPTION}", encode(description))

    def describe(self, folder: str) -> TopologyDescription | None:
        path = f"{folder}/{_DESCRIPTION}"
        data = self._objects.get(path)
        if data is None:
            return None
        try:
            return decode(path, data, TopologyDescription)
        except (FormatVersionError, IntegrityError):
            return None  # made by another version of OmniGraph: rebuilt, never guessed at

    def arrays(self, folder: str, description: TopologyDescription) -> dict[str, NDArray[Any]] | None:
        """The arrays, memory-mapped where the store is a disk. None when one is missing or cut short."""
        found: dict[str, NDArray[Any]] = {}
        for stored in description.arrays:
            array = self._array(f"{folder}/{stored.name}", np.dtype(stored.dtype), stored.length)
            if array is None:
                return None
            found[stored.name] = array
        return found

    def folders(self, edge_table_id: str) -> Iterator[str]:
        """Finished builds for an edge table, the newest first."""
        found = [o for o in self._objects.below(f"{_ROOT}/{edge_table_id}") if o.path.endswith(f"/{_DESCRIPTION}")]
        for stored in sorted(found, key=lambda o: (o.modified, o.path), reverse=True):
            yield stored.path.removesuffix(f"/{_DESCRIPTION}")

    def remove(self, folder: str) -> None:
        """Forget a build. Its description goes first, so that nobody begins to read what is half gone."""
        self._objects.delete(f"{folder}/{_DESCRIPTION}")
        self._objects.delete_all([stored.path for stored in self._objects.below(folder)])

    def _array(self, path: str, dtype: np.dtype[Any], length: int) -> NDArray[Any] | None:
        if not length:
            return np.empty(0, dtype)
        location = self._objects.location
        if location.is_local:
            file = location.local_root / path
            if not file.is_file() or file.stat().st_size != length * dtype.itemsize:
                return None
            # A plain array over the mapped pages: every slice of a memmap would be one again, which costs.
            return np.memmap(file, dtype, mode="r", shape=(length,)).view(np.ndarray)
        data = self._objects.get(path)
        return None if data is None or len(data) != length * dtype.itemsize else np.frombuffer(data, dtype)


def topology_folder(edge_table_id: str, name: str) -> str:
    return f"{_ROOT}/{edge_table_id}/{name}"


def described(
    shape: str, edges: TableState, sources: TableState, targets: TableState, dangling: bool, arrays: Mapping[str, Any]
) -> TopologyDescription:
    return TopologyDescription(
        format=FORMAT_VERSION,
        shape=shape,
        edges=edges,
        sources=sources,
        targets=targets,
        dangling=dangling,
        arrays=tuple(
            StoredArray(name, array.dtype.newbyteorder("<").str, len(array)) for name, array in arrays.items()
        ),
    )
