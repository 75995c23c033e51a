"""Files of remote graphs on this machine's disk, so that no process reads them twice over a network.

The object seam, stored topologies and local copies of tables call it. Only files that never change under their name are
kept; what can change (refs, hints, heads, records of cleanup) never gets here. All processes of a user share one
directory: a file appears whole by a rename, the bytes in it are counted under a lock of the kernel, and the files used
longest ago make room. Nothing here may fail a read: a cache that can't be read or written is as good as an empty one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.errors import BadRequestError
from omnigraph.storage.cache import Lookups

try:
    import fcntl
except ImportError:  # processes can't share the directory here, so there is none
    fcntl = None  # type: ignore[assignment]

VARIABLE: Final = "OMNIGRAPH_DISK_CACHE"
SIZE_VARIABLE: Final = "OMNIGRAPH_DISK_CACHE_MIB"
OPTION: Final = "disk_cache"
SIZE_OPTION: Final = "disk_cache_mib"

_DEFAULT_MIB: Final = 4096
_OFF: Final = frozenset({"0", "false", "no", "off"})
_LAYOUT: Final = "store-1"
_UNFINISHED: Final = "new"
_TOTAL: Final = "held"
_KEPT_WHEN_FULL: Final = 0.9
_NOTED_EVERY: Final = 60.0
"""Seconds between notes that a file is in use."""
_ABANDONED_AFTER: Final = 3600.0
_KEPT_AT_ONCE: Final = 2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskCacheSettings:
    """Where the cache is, and how many bytes it may take."""

    directory: Path
    limit: int


def disk_cache_settings(environment: Mapping[str, str], options: Mapping[str, str]) -> DiskCacheSettings | None:
    """The cache that options ask for, or else the environment; None when they switch it off or no home is set."""
    named = options.get(OPTION, environment.get(VARIABLE, "")).strip()
    size = options.get(SIZE_OPTION, environment.get(SIZE_VARIABLE, "")).strip() or str(_DEFAULT_MIB)
    if not size.isdecimal():
        raise BadRequestError(f"'{size}' is not a size of the disk cache; write mebibytes, such as 4096, or 0 for none")
    caches, home = environment.get("XDG_CACHE_HOME", "").strip(), environment.get("HOME", "").strip()
    if named.lower() in _OFF or not int(size) or fcntl is None or not (named or caches or home):
        return None
    parent = Path(named).expanduser() if named else Path(caches or Path(home, ".cache"), "omnigraph")
    return DiskCacheSettings(parent / _LAYOUT, int(size) << 20)


class DiskCache:
    """The files below one directory. Safe to share between threads and processes."""

    def __init__(self, settings: DiskCacheSettings) -> None:
        self.limit = settings.limit
        self.directory = settings.directory
        self.lookups = Lookups()
        self._can_write = True

    def find(self, name: str, size: int) -> Path | None:
        """The file of that name, None where there is none. One of another size is damaged and is removed."""
        file = self.directory / name
        try:
            state = file.stat()
        except OSError:
            self.lookups.count(0, 1)
            return None
        if state.st_size != size:
            self.discard(name)
            self.lookups.count(0, 1)
            return None
        if time.time() - state.st_mtime > _NOTED_EVERY:
            with suppress(OSError):
                os.utime(file)
        self.lookups.count(1, 0)
        return file

    def read(self, name: str) -> bytes | None:
        """The content of a small file, None where there is none. The caller checks it."""
        try:
            file = self.find(name, (self.directory / name).stat().st_size)
            return None if file is None else file.read_bytes()
        except OSError:
            self.lookups.count(0, 1)
            return None

    def add(self, name: str, parts: Iterable[bytes], size: int) -> bool:
        """Keep a file of this size, if the parts have it. Whether the file is there now."""
        if not self._can_write or size > self.limit:
            return False
        try:
            temporary = self._reserve(size)
            if temporary is None:
                return False
            is_used = False
            try:
                is_used = self._write(temporary, self.directory / name, parts, size)
            finally:
                if not is_used:
                    temporary.unlink(missing_ok=True)
                    self._release(size)
            return is_used or (self.directory / name).exists()
        except OSError as error:
            self._can_write = False
            text = "files can't be kept in %s (%s): they are read from the store again; %s names another directory"
            logger.warning(text, self.directory, error, VARIABLE)
            return False

    def discard(self, name: str) -> None:
        """Remove a file that is damaged."""
        file = self.directory / name
        with suppress(OSError):
            size = file.stat().st_size
            file.unlink()
            self._release(size)

    def held_bytes(self) -> int:
        """How many bytes there are, counted file by file."""
        with suppress(OSError):
            if self.directory.is_dir():
                with self._lock_directory():
                    return self._count()
        return 0

    def noted_bytes(self) -> int:
        """The same as the last writer noted it, without counting."""
        try:
            with open(self.directory / _TOTAL, "rb") as file:
                return _Total(file.fileno()).read() or 0
        except OSError:
            return 0

    def clear(self) -> int:
        """Remove every file; how many bytes that were. Processes that read them go back to the store."""
        if not self.directory.is_dir():
            return 0
        with self._lock_directory() as total:
            before = self._count()
            total.write(self._evict(0))
        return before

    # Room

    def _reserve(self, size: int) -> Path | None:
        """An unfinished file that takes up the room of a new one, None when it does not fit. It has its size from the
        beginning, so that writers at the same time do not exceed the limit together."""
        with self._lock_directory() as total:
            held = total.read()
            if held is None:
                held = self._count()
            if held + size > self.limit:
                held = self._evict(min(int(self.limit * _KEPT_WHEN_FULL), self.limit - size))
            if held + size > self.limit:
                total.write(held)
                return None
            folder = self.directory / _UNFINISHED
            folder.mkdir(exist_ok=True)
            temporary = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
            try:
                with open(temporary, "xb") as file:
                    file.truncate(size)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            total.write(held + size)
            return temporary

    def _release(self, size: int) -> None:
        with suppress(OSError), self._lock_directory() as total:
            held = total.read()
            if held is not None:
                total.write(max(0, held - size))

    def _evict(self, most: int) -> int:
        """Remove the files that were used longest ago until so many bytes are left; how many are left."""
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        abandoned = time.time() - _ABANDONED_AFTER
        for used, size, path in files:
            is_unfinished = os.path.basename(os.path.dirname(path)) == _UNFINISHED
            if (held <= most and not is_unfinished) or (is_unfinished and used > abandoned):
                continue
            with suppress(OSError):
                os.unlink(path)
                held -= size
        return held

    def _count(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """When each file was used, its size, and its path."""
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(folder, name)
                if folder != str(self.directory):
                    with suppress(OSError):  # another process removed it
                        state = os.stat(path)
                        yield state.st_mtime, state.st_size, path

    def _write(self, temporary: Path, target: Path, parts: Iterable[bytes], size: int) -> bool:
        """Whether the unfinished file became the target. Flushed first: after a power cut a file may have its size and
        not its bytes."""
        with open(temporary, "r+b") as file:
            written = sum(file.write(part) for part in parts)
            file.flush()
            os.fsync(file.fileno())
        if written != size:
            return False
        with self._lock_directory():  # or a count that goes on would meet it in neither place
            if target.exists():
                return False
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, target)
            return True

    @contextmanager
    def _lock_directory(self) -> Iterator[_Total]:
        """Alone among all processes. The lock goes with the process that holds it."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.directory / _TOTAL, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield _Total(file.fileno())


class _Total:
    """The bytes of all files, as the last writer left the number. It may be too large: a process can die between
    taking room and using it. The next eviction counts again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int | None:
        text = os.pread(self._descriptor, 32, 0)
        return int(text) if text.isdigit() else None

    def write(self, held: int) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(held).encode(), 0)


class CachedFiles:
    """The files of one graph in the cache, by their paths below its root. Graphs that are copies of each other may go
    on differently, so the address is a part of the name."""

    def __init__(self, cache: DiskCache, uri: str, graph_id: str) -> None:
        self.cache = cache
        self._keepers = ThreadPoolExecutor(_KEPT_AT_ONCE, thread_name_prefix="omnigraph-keep")
        self._folder = hashlib.sha256(f"{graph_id}\n{uri}".encode()).hexdigest()[:32]

    def path(self, path: str) -> Path:
        return self.cache.directory / self._folder / path

    def find(self, path: str, size: int) -> Path | None:
        return self.cache.find(f"{self._folder}/{path}", size)

    def read(self, path: str) -> bytes | None:
        return self.cache.read(f"{self._folder}/{path}")

    def add(self, path: str, parts: Iterable[bytes], size: int) -> bool:
        return self.cache.add(f"{self._folder}/{path}", parts, size)

    def keep(self, path: str, data: bytes) -> None:
        """Add content that was read, in the background."""
        with suppress(RuntimeError):  # the handle is closing
            self._keepers.submit(self.add, path, [data], len(data))

    def discard(self, path: str) -> None:
        self.cache.discard(f"{self._folder}/{path}")

    def wait(self) -> None:
        """Until everything that is to be kept is."""
        everybody = threading.Barrier(_KEPT_AT_ONCE)
        for arrived in [self._keepers.submit(everybody.wait) for _ in range(_KEPT_AT_ONCE)]:
            arrived.result()

    def close(self) -> None:
        self._keepers.shutdown(wait=True)


_CACHES: Final[dict[DiskCacheSettings, DiskCache]] = {}


def shared_disk_cache(settings: DiskCacheSettings) -> DiskCache:
    """The cache of this process with these settings."""
    return _CACHES.setdefault(settings, DiskCache(settings))


def disk_caches() -> list[DiskCache]:
    """The caches that handles of this process use."""
    return list(_CACHES.values())
