"""Adjacency arrays at rest: raw little-endian arrays and a small description, one folder per build.

The engine writes a folder after a build and maps it after a restart. The data is derived: deleting it costs time and
never a result. The description is written last, so a folder without one is an unfinished build. Arrays have checksums,
because a changed bit is a wrong neighbour, and the checksum is part of the file name, so that two processes never mix
their files.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from omnigraph.errors import FormatVersionError, IntegrityError, StorageError
from omnigraph.storage.models import FORMAT_VERSION, TableState, decode, encode
from omnigraph.storage.objects import Objects

_ROOT: Final = "topology"
_DESCRIPTION: Final = "topology.json"

REVISION: Final = 2
"""Of the files here. Builds of another revision are ignored, and made again when they are needed."""


class StoredArray(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    length: int
    crc32: int

    @property
    def file(self) -> str:
        return f"{self.name}.{self.crc32:08x}"


class TopologyDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Which table versions the arrays were made from, and how to read them. `crc32` is that of all the rest."""

    format: int
    revision: int
    shape: str
    edges: TableState
    sources: TableState
    targets: TableState
    dangling: bool
    arrays: tuple[StoredArray, ...]
    crc32: int = 0

    def with_checksum(self) -> TopologyDescription:
        return replace(self, crc32=zlib.crc32(encode(replace(self, crc32=0))))


class TopologyFiles:
    """The stored topologies of one graph."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def save(
        self,
        folder: str,
        shape: str,
        edges: TableState,
        sources: TableState,
        targets: TableState,
        dangling: bool,
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        """Best effort: a reader without write permission simply keeps its build in memory."""
        data = {
            name: np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            for name, array in arrays.items()
        }
        description = TopologyDescription(
            format=FORMAT_VERSION,
            revision=REVISION,
            shape=shape,
            edges=edges,
            sources=sources,
            targets=targets,
            dangling=dangling,
            arrays=tuple(StoredArray(name, array.dtype.str, len(array), _crc32(array)) for name, array in data.items()),
        )
        with contextlib.suppress(StorageError):
            for stored in description.arrays:
                self._objects.put(f"{folder}/{stored.file}", data[stored.name].tobytes(), durable=True)
            self._objects.put(f"{folder}/{_DESCRIPTION}", encode(description.with_checksum()))

    def describe(self, folder: str) -> TopologyDescription | None:
        data = self._objects.get(f"{folder}/{_DESCRIPTION}")
        # A description that is damaged, or of another version of OmniGraph, means a new build.
        return None if data is None else _parse_description(data)

    def arrays(self, folder: str, description: TopologyDescription) -> dict[str, NDArray[Any]] | None:
        """The arrays, memory-mapped where the store is a disk. None when one is missing or damaged."""
        arrays: dict[str, NDArray[Any]] = {}
        for stored in description.arrays:
            if (array := self._array(f"{folder}/{stored.file}", stored)) is None:
                return None
            arrays[stored.name] = array
        return arrays

    def damage(self, folder: str) -> tuple[str, str] | None:
        """The first file of a build that is damaged, and what is wrong with it. Reads all of them."""
        path = f"{folder}/{_DESCRIPTION}"
        data = self._objects.get(path)
        if data is None or _is_of_another_revision(data):
            return None
        if (description := _parse_description(data)) is None:
            return path, "the description of a topology was changed"
        for stored in description.arrays:
            if self._array(f"{folder}/{stored.file}", stored) is None:
                if self._objects.get(path) != data:
                    return None  # the build was removed or replaced meanwhile
                return f"{folder}/{stored.file}", "an array of a topology is missing or was changed"
        return None

    def folders(self, edge_table_id: str | None = None) -> list[str]:
        """Finished builds for an edge table, or for all of them, the newest first."""
        prefix = _ROOT if edge_table_id is None else f"{_ROOT}/{edge_table_id}"
        descriptions = [o for o in self._objects.below(prefix) if o.path.endswith(f"/{_DESCRIPTION}")]
        descriptions.sort(key=lambda o: (o.modified, o.path), reverse=True)
        return [stored.path.removesuffix(f"/{_DESCRIPTION}") for stored in descriptions]

    def remove(self, folder: str) -> None:
        """Forget a build. Its description goes first, so that no reader begins with a part of it."""
        self._objects.delete(f"{folder}/{_DESCRIPTION}")
        self._objects.delete_all([stored.path for stored in self._objects.below(folder)])

    def _array(self, path: str, stored: StoredArray) -> NDArray[Any] | None:
        dtype, size = np.dtype(stored.dtype), stored.length * np.dtype(stored.dtype).itemsize
        if not size:
            return np.empty(0, dtype)
        location = self._objects.location
        array: NDArray[Any]
        if location.is_local:
            file = location.local_root / path
            if not file.is_file() or file.stat().st_size != size:
                return None
            # A plain array over the mapped pages: every slice of a memmap would be one again, which costs.
            array = np.memmap(file, dtype, mode="r", shape=(stored.length,)).view(np.ndarray)
        else:
            data = self._objects.get(path)
            if data is None or len(data) != size:
                return None
            array = np.frombuffer(data, dtype)
        return array if _crc32(array) == stored.crc32 else None


def _parse_description(data: bytes) -> TopologyDescription | None:
    try:
        description = decode(_DESCRIPTION, data, TopologyDescription)
    except (FormatVersionError, IntegrityError):
        return None
    return description if description.revision == REVISION and description == description.with_checksum() else None


def _is_of_another_revision(data: bytes) -> bool:
    """Whether another version of OmniGraph wrote a description. The first revision did not say which it was."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    stated = document.get("revision", 1) if isinstance(document, dict) else None
    return isinstance(stated, int) and stated != REVISION


def _crc32(array: NDArray[Any]) -> int:
    return zlib.crc32(array.view(np.uint8).data)


def topology_folder(edge_table_id: str, name: str) -> str:
    return f"{_ROOT}/{edge_table_id}/{name}"
