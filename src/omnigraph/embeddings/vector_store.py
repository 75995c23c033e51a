"""A store of vectors that were paid for, on this machine, so that no text is paid for twice.

The client reads and writes it: one SQLite file of digests and vectors, shared by threads and processes, without texts
and keys. A damaged store costs money and never a result: a damaged entry is asked for again, a damaged file is put
aside, and a folder that can't be written is warned about once.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import logger

Result = TypeVar("Result")

CACHE: Final = "OMNIGRAPH_EMBED_CACHE"
CACHE_MIB: Final = "OMNIGRAPH_EMBED_CACHE_MIB"

_DEFAULT_MIB: Final = 1024
_NAME: Final = "embeddings-1.sqlite"
_OFF: Final = frozenset({"0", "false", "no", "off"})
_ASKED_AT_ONCE: Final = 500
_CHECK_BYTES: Final = 8
_ROW_OVERHEAD: Final = 100
_KEPT_WHEN_FULL: Final = 0.9
_NOTED_EVERY: Final = 3600
_INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections of a process that this one was forked from: never used here, and never closed, which would be use."""


def vector_key(provider: str, base_url: str, model: str, dimension: int, role: str, text: str) -> bytes:
    """A digest of everything that a vector depends on. `role` is empty where it makes no difference."""
    digest = hashlib.sha256()
    for part in (provider, base_url, model, str(dimension), role, text):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


class VectorStore:
    """Vectors by their keys in one file. With `limit_bytes`, those used longest ago make room for new ones."""

    def __init__(self, path: Path, limit_bytes: int | None = None) -> None:
        self.path = path
        self._limit = limit_bytes
        self._lock = threading.RLock()
        self._opened: tuple[int, sqlite3.Connection] | None = None
        self._inode = 0
        self._warned = False

    def find(self, keys: Sequence[bytes], dimension: int) -> dict[bytes, NDArray[np.float32]]:
        """The stored vectors of these keys that are undamaged."""
        vectors: dict[bytes, NDArray[np.float32]] = {}
        if not self.path.exists():
            return vectors
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            asked = partial(_read, keys=keys[start : start + _ASKED_AT_ONCE])
            for key, check, stored in self._within(asked) or ():
                if check == _check(key, stored) and len(stored) == 4 * dimension:
                    vectors[key] = np.frombuffer(stored, "<f4").astype(np.float32)
        return vectors

    def keep(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Store vectors; once this returns, they survive the death of this process."""
        if vectors:
            self._within(lambda db: self._write(db, vectors))

    def remove(self) -> None:
        """Delete the file. For a store that one job had for itself."""
        with self._lock:
            self.close()
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _write(self, db: sqlite3.Connection, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        now, encoded = int(time.time()), {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        rows = [(key, _check(key, stored), stored, now) for key, stored in encoded.items()]
        db.execute("BEGIN IMMEDIATE")
        with db:
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
            if self._limit is not None:
                _evict(db, self._limit)

    def _within(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """The result of the work; None when the file can't be used, which is warned about once."""
        with self._lock:
            for fresh in (False, True):
                try:
                    return work(self._connection())
                except sqlite3.DatabaseError as error:
                    self.close()
                    if fresh or isinstance(error, sqlite3.OperationalError):
                        self._warn(error)
                        return None
                    self._put_aside(error)
                except OSError as error:
                    self._warn(error)
                    return None
            raise AssertionError("unreachable")

    def _connection(self) -> sqlite3.Connection:
        """A connection of this process: one that a fork inherited is left alone."""
        if self._opened is not None and self._opened[0] != os.getpid():
            _INHERITED.append(self._opened[1])
            self._opened = None
        if self._opened is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._inode = self.path.stat().st_ino
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._opened = os.getpid(), db
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, "
                "checksum BLOB NOT NULL, vector BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID"
            )
            db.execute("CREATE INDEX IF NOT EXISTS vectors_by_use ON vectors (used)")
        return self._opened[1]

    def close(self) -> None:
        with self._lock:
            if self._opened is not None and self._opened[0] == os.getpid():
                with suppress(sqlite3.Error):
                    self._opened[1].close()
            self._opened = None

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """Keep a file that is not a database under another name, and begin a new one."""
        if not self.path.exists() or self.path.stat().st_ino != self._inode:
            return  # another process did so already, and has begun another one
        aside = self.path.with_name(f"{self.path.name}.damaged")
        logger.warning("the vectors in %s are damaged (%s): put aside as %s", self.path, error, aside.name)
        with suppress(FileNotFoundError):
            os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            text = "vectors can't be kept in %s (%s): texts may be paid for again; %s names another directory, or 'off'"
            logger.warning(text, self.path, error, CACHE)


def shared_store(environment: Mapping[str, str]) -> VectorStore | None:
    """The store that all processes of this user share; None when the environment switches it off or has no home."""
    named, caches, home, size = (environment.get(n, "").strip() for n in (CACHE, "XDG_CACHE_HOME", "HOME", CACHE_MIB))
    if named.lower() in _OFF or not (named or caches or home):
        return None
    directory = Path(named).expanduser() if named else Path(caches or Path(home, ".cache"), "omnigraph")
    mib = int(size) if size.isdecimal() and int(size) else _DEFAULT_MIB
    return VectorStore(directory / _NAME, mib << 20)


def _read(db: sqlite3.Connection, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    """The stored rows. Their time of use is updated at most once an hour, so that a lookup is rarely a write."""
    marks = ",".join("?" * len(keys))
    rows = db.execute(f"SELECT key, checksum, vector, used FROM vectors WHERE key IN ({marks})", keys).fetchall()
    now = int(time.time())
    if stale := [(now, key) for key, _, _, used in rows if used < now - _NOTED_EVERY]:
        db.execute("BEGIN IMMEDIATE")
        with db:
            db.executemany("UPDATE vectors SET used = ? WHERE key = ?", stale)
    return [(key, check, vector) for key, check, vector, _ in rows]


def _evict(db: sqlite3.Connection, limit: int) -> None:
    """Keep the pages in use below the limit. Pages that become free are used again, so the file does not grow."""
    numbers = ("page_size", "page_count", "freelist_count")
    page, pages, free = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in numbers)
    excess = (pages - free) * page - limit
    if excess <= 0:
        return
    to_free = excess + int(limit * (1 - _KEPT_WHEN_FULL))
    doomed: list[tuple[bytes]] = []
    for key, size in db.execute("SELECT key, length(vector) FROM vectors ORDER BY used"):
        doomed.append((key,))
        to_free -= size + _ROW_OVERHEAD
        if to_free <= 0:
            break
    db.executemany("DELETE FROM vectors WHERE key = ?", doomed)


def _check(key: bytes, stored: bytes) -> bytes:
    """SQLite has no checksums of its own; this one ties a vector to its key."""
    return hashlib.sha256(key + stored).digest()[:_CHECK_BYTES]
