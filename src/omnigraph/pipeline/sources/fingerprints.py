"""Fingerprints of input files: equal contents have equal digests, whatever the files are called.

A run uses them to recognise inputs that were loaded before. Tasks hash contents in small pieces. A digest that was made
before is found by the file's name, size and times in a cache of the user. The cache only saves work: a file so young
that it may still change without a trace is never entered.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.pipeline.sources.input_files import InputFile, Listing
from omnigraph.pipeline.spark.tasks import consecutive_groups, texts_of

SETTLED_SECONDS: Final = 60.0
"""Ticks of file systems and differences between clocks are far below; a file that is older than this has settled."""

_HASHED_HERE: Final = 8 << 20  # less is hashed sooner than a job begins
_HASHED_PER_TASK: Final = 256 << 20
# A file of another store reaches a task as one value.
_LARGEST_VALUE: Final = 256 << 20
_MOST_ENTRIES: Final = 1_000_000


@dataclass
class Digests:
    """Digests of files; `hashed_bytes` counts what had to be read for them."""

    spark: SparkSession
    cache: DigestCache | None = None
    settled_seconds: float = SETTLED_SECONDS
    hashed_bytes: int = field(default=0, init=False)

    def fingerprint(self, listing: Listing, *, names: bool = False) -> str:
        """The contents of some files, in no order, with what their directories add to them; `names` if they matter."""
        digests = self.of(listing.files)
        lines = sorted(
            f"{file.size} {digest} {file.partition!r}{' ' + file.uri if names else ''}"
            for file, digest in zip(listing.files, digests, strict=True)
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def of(self, files: Sequence[InputFile]) -> list[str]:
        before = [_identity(file) for file in files]
        cached = self.cache.find([name for name in before if name]) if self.cache else {}
        missing = [n for n, name in enumerate(before) if name is None or name not in cached]
        began = time.time()
        made = dict(zip(missing, self._hash([files[n] for n in missing]), strict=True))
        if self.cache:
            settled = (n for n in missing if began - _last_change(files[n]) > self.settled_seconds)
            self.cache.keep({name: made[n] for n in settled if (name := before[n]) and name == _identity(files[n])})
        return [made.get(n) or cached[name or ""] for n, name in enumerate(before)]

    def _hash(self, files: Sequence[InputFile]) -> list[str]:
        local = [n for n, file in enumerate(files) if file.path is not None]
        elsewhere = [n for n, file in enumerate(files) if file.path is None and file.size <= _LARGEST_VALUE]
        self.hashed_bytes += sum(files[n].size for n in (*local, *elsewhere))
        if sum(files[n].size for n in local) <= _HASHED_HERE:
            by_number = {n: _digest(files[n]) for n in local}
        else:
            groups = consecutive_groups([files[n].size for n in local], _HASHED_PER_TASK)
            tasks = [partial(_digests, [files[local[n]] for n in group]) for group in groups]
            digests = " ".join(texts_of(self.spark, tasks)).split()
            by_number = dict(zip(local, digests, strict=True))
        if elsewhere:
            contents = self.spark.read.format("binaryFile").load([files[n].uri for n in elsewhere])
            by_uri: dict[str, str] = dict(contents.select("path", F.sha2("content", 256)).collect())
            by_number |= {n: by_uri[files[n].uri] for n in elsewhere}
        # A large file of another store is known by its name, size and time alone.
        return [by_number.get(n) or f"{file.uri} {file.modified}" for n, file in enumerate(files)]


def _digests(files: Sequence[InputFile]) -> str:
    return " ".join(map(_digest, files))


def _digest(file: InputFile) -> str:
    sha = hashlib.sha256()
    for piece in file.raw_pieces():
        sha.update(piece)
    return sha.hexdigest()


def _identity(file: InputFile) -> str | None:
    """A text that changes whenever the content does; None for a file that this machine does not have. Times can be set
    back, but not that of the last change of an inode."""
    if file.path is None:
        return f"{file.uri}\t{file.size}\t{file.modified}"
    try:
        stat = os.stat(file.path)
    except OSError:
        return None
    numbers = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)
    return "\t".join([platform.node(), file.path, *map(str, numbers)])


def _last_change(file: InputFile) -> float:
    if file.path is None:
        return file.modified
    stat = os.stat(file.path)
    return max(stat.st_mtime, stat.st_ctime)


@dataclass(frozen=True, slots=True)
class DigestCache:
    """Digests by identity, in a small database that may be deleted at any time and shared by processes."""

    file: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> DigestCache:
        home = environment.get("OMNIGRAPH_HOME", "").strip()
        directory = Path(home).expanduser() if home else Path.home() / ".omnigraph"
        return cls(directory / "cache" / "digests.sqlite")

    def find(self, identities: Sequence[str]) -> dict[str, str]:
        digests: dict[str, str] = {}
        with contextlib.suppress(sqlite3.Error, OSError), contextlib.closing(self._open()) as database:
            for identity in identities:
                row = database.execute("select digest from digests where identity = ?", (identity,)).fetchone()
                if row is not None:
                    digests[identity] = str(row[0])
        return digests

    def keep(self, digests: Mapping[str, str]) -> None:
        with contextlib.suppress(sqlite3.Error, OSError), contextlib.closing(self._open()) as database:
            now = int(time.time())
            rows = [(identity, digest, now) for identity, digest in digests.items()]
            database.executemany("insert or replace into digests values (?, ?, ?)", rows)
            oldest = "select identity from digests order by made desc limit -1 offset ?"
            database.execute(f"delete from digests where identity in ({oldest})", (_MOST_ENTRIES,))
            database.commit()

    def _open(self) -> sqlite3.Connection:
        """Errors are ignored: without a cache that can be used, everything is hashed."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.file, timeout=1.0)
        database.execute("create table if not exists digests (identity text primary key, digest text, made integer)")
        return database
