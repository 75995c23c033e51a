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
from pathlib import Path
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

REVISION: Final = 3
"""Of the files here. Builds of another revision are ignored, and made again when they are needed."""
_ROW_IDS: Final = ("sources", "targets")
"""Arrays of row ids, which mostly ascend by one."""
_READABLE: Final = (2, REVISION)
"""Before the third revision, every array had a file."""


class StoredArray(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    dtype: str
    length: int
    crc32: int
    first: int | None = None
    """Of numbers that ascend by one: the first of them. Such an array has no file."""

    @property
    def file(self) -> str:
        return f"{self.name}.{self.crc32:08x}"

    @property
    def nbytes(self) -> int:
        """The size of its file."""
        return 0 if self.first is not None else self.length * np.dtype(self.dtype).itemsize

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> StoredArray:
        first = _first_of_range(array) if name in _ROW_IDS else None
        return cls(name, array.dtype.str, len(array), _crc32(array) if first is None else 0, first)


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

    @property
    def files(self) -> tuple[StoredArray, ...]:
        """The arrays that have a file to read: of one node table, sources and targets are the same rows."""
        repeated = "targets" if self.sources == self.targets else None
        return tuple(stored for stored in self.arrays if stored.nbytes and stored.name != repeated)

    @property
    def nbytes(self) -> int:
        """How much a reader has to read."""
        return sum(stored.nbytes for stored in self.files)

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
            arrays=tuple(StoredArray.of(name, array) for name, array in data.items()),
        )
        with contextlib.suppress(StorageError):
            for stored in description.files:
                self._objects.put(f"{folder}/{stored.file}", data[stored.name].tobytes(), durable=True)
            self._objects.put(f"{folder}/{_DESCRIPTION}", encode(description.with_checksum()))

    def describe(self, folder: str) -> TopologyDescription | None:
        path, cache = f"{folder}/{_DESCRIPTION}", self._objects.cache
        data = None if cache is None else cache.read(path)
        if cache is not None and data is not None:
            if (description := _parse_description(data)) is not None:
                return description
            cache.discard(path)
        data = self._objects.get(path)
        # A description that is damaged, or of another version of OmniGraph, means a new build.
        description = None if data is None else _parse_description(data)
        if cache is not None and data is not None and description is not None:
            cache.keep(path, data)
        return description

    def arrays(self, folder: str, description: TopologyDescription) -> dict[str, NDArray[Any]] | None:
        """The arrays, memory-mapped where they are on a disk. None when one is missing or damaged."""
        read = self._read_files(folder, description)
        arrays = {stored.name: array for stored, array in read.items() if array is not None}
        if len(arrays) < len(read):
            return None
        for stored in description.arrays:
            if stored.first is not None:
                arrays[stored.name] = np.arange(stored.first, stored.first + stored.length, dtype=stored.dtype)
            elif not stored.length:
                arrays[stored.name] = np.empty(0, stored.dtype)
        arrays.setdefault("targets", arrays["sources"])
        return arrays

    def are_at_hand(self, folder: str, description: TopologyDescription) -> bool:
        """Whether this machine has the arrays on its disk."""
        cache = self._objects.cache
        paths = ((f"{folder}/{stored.file}", stored.nbytes) for stored in description.files)
        return cache is not None and all(cache.find(path, size) is not None for path, size in paths)

    def neighbours(
        self, folder: str, description: TopologyDescription, way: str, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The neighbour lists of a few nodes, `out` or `in`: how long each is, and all of them one after another. Two
        requests. Only a store that checks what it keeps is asked for ranges: a checksum is that of a whole array."""
        by_name = {stored.name: stored for stored in description.arrays}
        offsets, targets = by_name[f"{way}.offsets"], by_name[f"{way}.targets"]
        if len(positions) and (positions.min() < 0 or positions.max() + 1 >= offsets.length):
            raise IntegrityError(f"{folder}/{offsets.file}", "is shorter than the table of its nodes")
        bounds = self._ranges(folder, offsets, positions, positions + 2).reshape(-1, 2).astype(np.int64)
        starts, ends = bounds[:, 0], bounds[:, 1]
        if len(bounds) and (bounds.min() < 0 or bounds.max() > targets.length or (starts > ends).any()):
            raise IntegrityError(f"{folder}/{offsets.file}", "does not fit the lists that it bounds")
        has_any = starts < ends
        return ends - starts, self._ranges(folder, targets, starts[has_any], ends[has_any])

    def _ranges(
        self, folder: str, stored: StoredArray, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[Any]:
        path, dtype = f"{folder}/{stored.file}", np.dtype(stored.dtype)
        if not len(starts):
            return np.empty(0, dtype)
        size = dtype.itemsize
        parts = self._objects.read_ranges(path, stored.nbytes, (starts * size).tolist(), (ends * size).tolist())
        data = b"".join(parts or ())
        if len(data) != int((ends - starts).sum()) * size:
            raise IntegrityError(path, "is missing or was cut short")
        return np.frombuffer(data, dtype)

    def damage(self, folder: str) -> tuple[str, str] | None:
        """The first file of a build that is damaged, and what is wrong with it. Reads all of them."""
        path = f"{folder}/{_DESCRIPTION}"
        data = self._objects.get(path)
        if data is None or _is_of_another_revision(data):
            return None
        if (description := _parse_description(data)) is None:
            return path, "the description of a topology was changed"
        for stored, array in self._read_files(folder, description).items():
            if array is None:
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

    def _read_files(self, folder: str, description: TopologyDescription) -> dict[StoredArray, NDArray[Any] | None]:
        """The arrays that have files, all read at once; None for one that is missing or damaged."""
        paths = {stored: f"{folder}/{stored.file}" for stored in description.files}
        if self._objects.location.is_local:
            return {stored: _verify(stored, self._map(path, stored)) for stored, path in paths.items()}
        arrays = {stored: self._map_cached(path, stored) for stored, path in paths.items()}
        missing = {path: stored for stored, path in paths.items() if arrays[stored] is None}
        contents = self._objects.read_all({path: stored.nbytes for path, stored in missing.items()})
        for path, stored in missing.items():
            data = contents[path]
            arrays[stored] = None if data is None else _verify(stored, np.frombuffer(data, stored.dtype))
            if data is not None and arrays[stored] is not None and self._objects.cache is not None:
                self._objects.cache.keep(path, data)
        return arrays

    def _map(self, path: str, stored: StoredArray) -> NDArray[Any] | None:
        return _map_array(self._objects.location.local_root / path, stored)

    def _map_cached(self, path: str, stored: StoredArray) -> NDArray[Any] | None:
        """The array in a file on this machine. One that was changed is removed, and read from the store again."""
        cache = self._objects.cache
        file = None if cache is None else cache.find(path, stored.nbytes)
        if cache is None or file is None:
            return None
        try:
            array = _verify(stored, _map_array(file, stored))
        except OSError:  # another process removed it
            return None
        if array is None:
            cache.discard(path)
        return array


def _map_array(file: Path, stored: StoredArray) -> NDArray[Any] | None:
    """The array in a file; None when the file is missing or has another size."""
    if not file.is_file() or file.stat().st_size != stored.nbytes:
        return None
    # A plain array over the mapped pages: every slice of a memmap would be one again, which costs.
    return np.memmap(file, np.dtype(stored.dtype), mode="r", shape=(stored.length,)).view(np.ndarray)


def _verify(stored: StoredArray, array: NDArray[Any] | None) -> NDArray[Any] | None:
    return array if array is not None and _crc32(array) == stored.crc32 else None


def _first_of_range(array: NDArray[Any]) -> int | None:
    """The first of numbers that ascend by one; None for any others."""
    if not len(array) or array.dtype.kind != "i" or int(array[-1]) - int(array[0]) != len(array) - 1:
        return None
    return int(array[0]) if bool((np.diff(array) == 1).all()) else None


def _parse_description(data: bytes) -> TopologyDescription | None:
    try:
        description = decode(_DESCRIPTION, data, TopologyDescription)
    except (FormatVersionError, IntegrityError):
        return None
    return description if description.revision in _READABLE and description == description.with_checksum() else None


def _is_of_another_revision(data: bytes) -> bool:
    """Whether another version of OmniGraph wrote a description. The first revision did not say which it was."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    stated = document.get("revision", 1) if isinstance(document, dict) else None
    return isinstance(stated, int) and stated not in _READABLE


def _crc32(array: NDArray[Any]) -> int:
    return zlib.crc32(array.view(np.uint8).data)


def topology_folder(edge_table_id: str, name: str) -> str:
    return f"{_ROOT}/{edge_table_id}/{name}"
