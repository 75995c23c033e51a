"""Local copies of table versions: the files that a version names, fetched in the background and opened as a dataset.

Lance reads its files itself, from one directory or one store, so a version is read from the disk when all of its files
are there. `TableReader` asks for the copy of a version that is only read. Versions share files, so the copy of the next
version is what a commit added. A copy is complete when its list exists: the list is written last. Sizes are compared
whenever a copy is opened, and manifests and lists of deleted rows by digest, because Lance trusts them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, Final

import lance
import msgspec
from lance.blob import BlobType

from omnigraph.errors import FormatVersionError, IntegrityError, OmniGraphError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.disk.disk_cache import CachedFiles
from omnigraph.storage.models import FORMAT_VERSION, TableState, decode, encode, manifest_name, manifest_path
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables.disk.copied_dataset import CopiedDataset
from omnigraph.storage.tables.lance_errors import LANCE_ERRORS
from omnigraph.storage.tables.rows import Table

_DIGEST_BYTES: Final = 16
_FETCHED_AT_ONCE: Final = 3
_SMALL_BYTES: Final = 16 << 20
"""Larger files are fetched once a version has been used again: a process that asks one question reads less."""
_LARGEST_SHARE: Final = 2
"""A version that needs more than this part of the cache is not copied."""
_REMEMBERED_TABLES: Final = 1_024
_REMEMBERED_FILES: Final = 4_096


class CopiedFile(msgspec.Struct, frozen=True):
    """A file of a version by its name in the table. Small files that Lance trusts have a digest."""

    name: str
    size: int
    digest: str | None = None


class CopyList(msgspec.Struct, frozen=True, kw_only=True):
    """What a complete copy of a version consists of."""

    format: int
    files: tuple[CopiedFile, ...]


class LocalCopies:
    """The local copies of the tables of one graph. Safe to share between threads."""

    def __init__(self, objects: Objects, files: CachedFiles) -> None:
        self._objects = objects
        self._files = files
        self._coordinator = ThreadPoolExecutor(1, thread_name_prefix="omnigraph-copy")
        self._fetchers = ThreadPoolExecutor(_FETCHED_AT_ONCE, thread_name_prefix="omnigraph-fetch")
        self._stopped = threading.Event()
        self._uses: RecentlyUsed[str, int] = RecentlyUsed(_REMEMBERED_TABLES)
        self._seen: RecentlyUsed[str, bool] = RecentlyUsed(_REMEMBERED_TABLES)
        self._trusted: RecentlyUsed[str, CopiedFile] = RecentlyUsed(_REMEMBERED_FILES)
        self._segments: RecentlyUsed[str, tuple[CopiedFile, ...]] = RecentlyUsed(_REMEMBERED_TABLES)

    def open(self, state: TableState, session: Any, remote: Callable[[], Table]) -> CopiedDataset | None:
        """The local copy of a version. None when it is not complete, or when the store has no such version any more:
        what a cleanup reclaimed is gone, wherever copies of it may be."""
        if not self._is_complete(state) or not self._objects.exists(manifest_path(state)):
            return None
        try:
            folder = self._files.path(state.path)
            local = lance.dataset(str(folder), version=state.number, session=session)
            location = self._objects.location
            uri, options = location.child(state.path), dict(location.options) or None
            return CopiedDataset(local, folder, uri, options, lambda: remote()._dataset, lambda: self._give_up(state))
        except LANCE_ERRORS:
            self._give_up(state)
            return None

    def note_use(self, table: Table) -> None:
        """Somebody reads a version from the store. The first version of a table that a process reads is copied, and any
        other one that is read again."""
        uses = (self._uses.get(table.key) or 0) + 1
        self._uses[table.key] = uses
        is_first = self._seen.get(table.state.path) is None
        self._seen[table.state.path] = True
        if (uses == 1 and is_first) or uses == 2:
            self._submit(self._coordinator, lambda: self._copy(table, with_large=uses > 1))

    def wait(self) -> None:
        """Until everything that was begun is done."""
        self._coordinator.submit(lambda: None).result()

    def close(self) -> None:
        """Stop after the parts that are being fetched. The next process goes on from there."""
        self._stopped.set()
        self._coordinator.shutdown(wait=True, cancel_futures=True)
        self._fetchers.shutdown(wait=True, cancel_futures=True)

    # Copying

    def _copy(self, table: Table, *, with_large: bool) -> None:
        try:
            if any(isinstance(field.type, BlobType) for field in table.schema):
                return  # large blobs are in files that no manifest names
            files = self._list_files(table)
            if sum(file.size for file in files) * _LARGEST_SHARE > self._files.cache.limit:
                return
            wanted = [file for file in files if with_large or file.size <= _SMALL_BYTES]
            there = list(self._fetchers.map(lambda file: self._fetch(table.state, file), wanted))
            if len(wanted) == len(files) and all(there):
                complete = encode(CopyList(format=FORMAT_VERSION, files=tuple(files)))
                self._files.add(_list_path(table.state), [complete], len(complete))
        except (OmniGraphError, RuntimeError, *LANCE_ERRORS):
            return  # the reader of the table learns what is wrong with it

    def _fetch(self, state: TableState, file: CopiedFile) -> bool:
        path = f"{state.path}/{file.name}"
        if self._files.find(path, file.size) is not None:
            return True
        if self._stopped.is_set():
            return False
        parts = takewhile(lambda _: not self._stopped.is_set(), self._objects.read_in_parts(path, file.size))
        return self._files.add(path, parts, file.size)

    def _list_files(self, table: Table) -> list[CopiedFile]:
        """Every file that the version needs, the smallest first. Manifests do not tell the sizes of some."""
        state, files, trusted = table.state, [], [f"_versions/{manifest_name(table.state.number)}"]
        for fragment in table._fragments():
            for file in fragment.metadata.files:
                name = f"data/{file.path}"
                size = file.file_size_bytes or self._objects.size(f"{state.path}/{name}")
                files.append(CopiedFile(name, size or 0))
            if (deletions := fragment.deletion_file()) is not None:
                trusted.append(deletions)
        for index in table._described_indexes():
            for segment in index.segments:
                files += self._segment_files(state.path, str(segment.uuid))
        files += [self._fetch_trusted(state.path, name) for name in trusted]
        return sorted(files, key=lambda file: file.size)

    def _segment_files(self, folder: str, uuid: str) -> tuple[CopiedFile, ...]:
        if (files := self._segments.get(uuid)) is None:
            listed = self._objects.below(f"{folder}/_indices/{uuid}")
            files = tuple(CopiedFile(stored.path.removeprefix(f"{folder}/"), stored.size) for stored in listed)
            self._segments[uuid] = files
        return files

    def _fetch_trusted(self, folder: str, name: str) -> CopiedFile:
        """A manifest or a list of deleted rows: read whole, kept, and described with its digest."""
        path = f"{folder}/{name}"
        if (file := self._trusted.get(path)) is None or self._files.find(path, file.size) is None:
            if (data := self._objects.get(path)) is None:
                raise IntegrityError(path, "is missing")
            file = self._trusted[path] = CopiedFile(name, len(data), _digest(data))
            if self._files.find(path, file.size) is None:
                self._files.add(path, [data], file.size)
        return file

    # Opening

    def _is_complete(self, state: TableState) -> bool:
        data = self._files.read(_list_path(state))
        if data is None:
            return False
        try:
            files = decode(_list_path(state), data, CopyList).files
        except (FormatVersionError, IntegrityError):
            files = ()
        if files and all(self._is_whole(f"{state.path}/{file.name}", file) for file in files):
            return True
        self._give_up(state)
        return False

    def _is_whole(self, path: str, file: CopiedFile) -> bool:
        if file.digest is None:
            return self._files.find(path, file.size) is not None
        data = self._files.read(path)
        if data is not None and _digest(data) != file.digest:
            self._files.discard(path)
            return False
        return data is not None

    def _give_up(self, state: TableState) -> None:
        """Forget that a copy is complete. Its next reader has the missing files fetched again."""
        self._files.discard(_list_path(state))
        self._uses.pop(f"{state.path}@{state.version}")
        self._seen.pop(state.path)

    def _submit(self, executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        if not self._stopped.is_set():
            executor.submit(work)


def _list_path(state: TableState) -> str:
    return f"{state.path}/_versions/{manifest_name(state.number)}.copy"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
