"""Files of a graph on a local disk, in the order that survives a power cut, and the failures of disks and stores.

The object seam and staging call it. A file is written under a name that nobody lists, flushed, and only then linked to
its own name, which is the create-if-absent; then its directory is flushed. So a visible name always has its whole
content, and a call that returns has made a name that stays. A failure before the link means that nothing happened. A
failure after it is `StorageErrorKind.UNKNOWN`: the caller asks again, and gets only what the disk has confirmed.
Libraries report failures as text, which ends in `(os error 28)` or `status code: 403`; only that is relied on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.cache import RecentlyUsed

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_FULL: Final = re.compile(r"QuotaExceeded|StorageFull|InsufficientStorage", re.IGNORECASE)
_RUST_PLACE: Final = re.compile(r",? /[^\s,]+\.rs:\d+:\d+")
_DEBUG: Final = "\n\nDebug source"

_ROOM: Final = "free some space: `cleanup` removes what no retained commit needs"
_STORE_FULL: Final = (StorageErrorKind.FULL, f"the store is full, or over its quota; {_ROOM}")

_BY_ERRNO: Final[dict[int, tuple[StorageErrorKind, str]]] = {
    errno.ENOSPC: (StorageErrorKind.FULL, f"the disk is full; {_ROOM}"),
    errno.EDQUOT: (StorageErrorKind.FULL, f"the disk quota is used up; raise it, or {_ROOM}"),
    errno.EFBIG: (StorageErrorKind.FULL, "the file would exceed what the system or the user's limits allow"),
    errno.EACCES: (StorageErrorKind.CONFIGURATION, "access denied; give this user permission on the graph's files"),
    errno.EPERM: (StorageErrorKind.CONFIGURATION, "access denied; give this user permission on the graph's files"),
    errno.EROFS: (StorageErrorKind.CONFIGURATION, "the file system is read-only; mount it writable"),
    errno.ENOTDIR: (StorageErrorKind.CONFIGURATION, "a file stands where a directory should be"),
    errno.ENAMETOOLONG: (StorageErrorKind.CONFIGURATION, "the path is too long for this file system"),
    errno.EMFILE: (StorageErrorKind.CONFIGURATION, "too many open files; raise the limit (ulimit -n)"),
    errno.ENFILE: (StorageErrorKind.CONFIGURATION, "too many open files; raise the limit of the system"),
    errno.EXDEV: (StorageErrorKind.CONFIGURATION, "a graph has to lie on one file system"),
    errno.ENOENT: (StorageErrorKind.NOT_FOUND, ""),
    errno.EIO: (StorageErrorKind.PERMANENT, "the disk reports an error; check it before anything else is written"),
    **dict.fromkeys(
        (errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET),
        (StorageErrorKind.TRANSIENT, ""),
    ),
}

_ANSWERS_THAT_PASS: Final = frozenset({408, 425, 429})
"""Refusals of a request that the same server may take a moment later."""


def storage_failure(doing: str, error: BaseException) -> StorageError | None:
    """The failure that an error of a library reports; None when its text holds no number that would say so."""
    text = str(error).split(_DEBUG, 1)[0]
    if _FULL.search(text):
        diagnosis: tuple[StorageErrorKind, str] | None = _STORE_FULL
    elif (status := _STATUS.search(text)) is not None:
        diagnosis = _kind_of_status(int(status[1]), text)
    else:
        named = _OS_ERROR.search(text)
        number = getattr(error, "errno", None)
        if number is None and named is not None:
            number = int(named[1])
        diagnosis = None if number is None else _BY_ERRNO.get(number)
    if diagnosis is None:
        return None
    kind, remedy = diagnosis
    reason = reason_of(error)
    return StorageError(kind, f"{doing}: {remedy} ({reason})" if remedy else f"{doing}: {reason}")


def reason_of(error: BaseException) -> str:
    """The first line of an error for people, without the places in its library's source and its debug dump."""
    text = str(error).split(_DEBUG, 1)[0].strip().split("\n", 1)[0]
    return _RUST_PLACE.sub("", text).strip()


def _kind_of_status(status: int, text: str) -> tuple[StorageErrorKind, str]:
    if status == 507:
        return _STORE_FULL
    if status in (401, 403):
        return StorageErrorKind.CONFIGURATION, "access denied; check the credentials and what they may do there"
    if status == 404 and "NoSuchBucket" in text:
        return StorageErrorKind.CONFIGURATION, "the bucket does not exist"
    if status == 404:
        return StorageErrorKind.NOT_FOUND, ""
    if status in (409, 412):
        return StorageErrorKind.PRECONDITION, ""
    # S3 calls a connection that went idle a bad request.
    if status >= 500 or status in _ANSWERS_THAT_PASS or "RequestTimeout" in text:
        return StorageErrorKind.TRANSIENT, ""
    return StorageErrorKind.PERMANENT, "the store refused the request"


_TEMPORARY: Final = re.compile(r".+#\d+")
"""Names that the store's listings never show; unfinished files of the store's own have such names too."""

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})

_REMEMBERED_FOLDERS: Final = 1 << 14
_FLUSHES_AT_ONCE: Final = 4


class LocalDisk:
    """The directory of one graph. Safe to share between threads and processes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._flushed: RecentlyUsed[str, bool] = RecentlyUsed(_REMEMBERED_FOLDERS)
        self._flushers = ThreadPoolExecutor(_FLUSHES_AT_ONCE, thread_name_prefix="omnigraph-flush")

    def read(self, path: str) -> bytes | None:
        """The content of a file, None when there is none. A name never shows a part of its content."""
        try:
            with open(os.path.join(self._root, path), "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError:
            return None

    def create(self, path: str, data: bytes) -> bool:
        """Create-if-absent. False when the name is taken; then, too, its file is on disk."""
        target = os.path.join(self._root, path)
        with self._temporary(target, data, durable=True) as temporary:
            created = self._link(temporary, target)
        self.confirm(path)
        return created

    def confirm(self, path: str) -> None:
        """Make an existing name durable: its maker may have died before that."""
        folder = os.path.dirname(os.path.join(self._root, path))
        try:
            flush(folder)
        except OSError as error:
            raise StorageError(
                StorageErrorKind.UNKNOWN,
                f"{self._root}/{path}: the disk did not confirm that the name stays ({reason_of(error)})",
            ) from error

    def put(self, path: str, data: bytes, *, durable: bool) -> None:
        """Write or replace. Readers see the old or the new content, never a part; `durable` content is whole after a
        power cut if the name is there."""
        target = os.path.join(self._root, path)
        with self._temporary(target, data, durable=durable) as temporary:
            os.replace(temporary, target)

    def set_aside(self, path: str, away: str) -> None:
        """Take a name away and keep the file under another one."""
        source, target = os.path.join(self._root, path), os.path.join(self._root, away)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
        self._flush_above(os.path.dirname(target))
        flush(os.path.dirname(target))
        flush(os.path.dirname(source))

    def make_durable(self, paths: Iterable[str]) -> None:
        """Flush files that somebody else wrote, their names, and those of every folder above them. Nothing refers to
        them yet, so their order does not matter: all at once, they share a flush of the device."""
        files = [os.path.join(self._root, path) for path in paths]
        folders = {os.path.dirname(file) for file in files}
        above = {folder for each in folders for folder in self._not_flushed(each)}
        list(self._flushers.map(flush, {*files, *folders, *map(os.path.dirname, above)}))
        for folder in above:
            self._flushed[folder] = True

    def remove_unfinished(self, before: datetime) -> None:
        """Remove what processes that died left of files they had not finished, if that was before a moment."""
        for folder, _, names in os.walk(self._root):
            for name in filter(_TEMPORARY.fullmatch, names):
                with contextlib.suppress(FileNotFoundError):
                    file = os.path.join(folder, name)
                    if os.stat(file).st_mtime < before.timestamp():
                        os.unlink(file)

    @contextlib.contextmanager
    def _temporary(self, target: str, data: bytes, *, durable: bool) -> Iterator[str]:
        """A temporary file beside the target, which is then as durable as its folder."""
        folder = os.path.dirname(target)
        temporary = f"{target}#{secrets.randbits(62)}"
        try:
            descriptor = _create_file(temporary)
        except FileNotFoundError:
            gone = folder
            while gone != self._root and gone.startswith(self._root):
                self._flushed.pop(gone)
                gone = os.path.dirname(gone)
            os.makedirs(folder, exist_ok=True)
            descriptor = _create_file(temporary)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(descriptor, left) :]
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if durable:
                self._flush_above(folder)
            yield temporary
        finally:
            with contextlib.suppress(OSError):  # the name no longer matters; cleanup removes it
                os.unlink(temporary)

    def _link(self, temporary: str, target: str) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if os.stat(temporary).st_nlink > 1:
                return True  # over a network, an answer can be lost and the repetition refused
            if error.errno not in _NO_HARD_LINKS:
                raise
            raise StorageError(
                StorageErrorKind.CONFIGURATION,
                f"create {target}: this file system refuses hard links, and a graph needs them to create a file only "
                f"if it is absent; put the graph on another file system ({reason_of(error)})",
            ) from error
        return True

    def _flush_above(self, folder: str) -> None:
        """Make the folder's own name stay, and those above it."""
        above = self._not_flushed(folder)
        for name in reversed(above):
            flush(os.path.dirname(name))
            self._flushed[name] = True

    def _not_flushed(self, folder: str) -> list[str]:
        """This folder and those above it, the root excepted, whose names this process has not flushed yet. A folder is
        never renamed, so once is enough."""
        above = []
        while folder != self._root and not self._flushed.get(folder):
            above.append(folder)
            folder = os.path.dirname(folder)
        return above


def flush(path: str) -> None:
    """Force a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
