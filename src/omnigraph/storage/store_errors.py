"""Failures of the disk or the object store: their kind, and what the reader can do about them.

The object seam and `lance_errors` call it. Both libraries below report errors as text. A local one ends in `(os error
28)`, a remote one in `status code: 403`; nothing else of the text is relied on, except the names that S3 servers give
to a full store.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from omnigraph.errors import StorageError, StorageErrorKind

_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_FULL: Final = re.compile(r"QuotaExceeded|StorageFull|InsufficientStorage", re.IGNORECASE)
_RUST_PLACE: Final = re.compile(r",? /[^\s,]+\.rs:\d+:\d+")
_DEBUG: Final = "\n\nDebug source"

_ROOM: Final = "free some space: `cleanup` removes what no retained commit needs"

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
    errno.EINTR: (StorageErrorKind.TRANSIENT, ""),
    errno.EAGAIN: (StorageErrorKind.TRANSIENT, ""),
    errno.ETIMEDOUT: (StorageErrorKind.TRANSIENT, ""),
    errno.ECONNREFUSED: (StorageErrorKind.TRANSIENT, ""),
    errno.ECONNRESET: (StorageErrorKind.TRANSIENT, ""),
    errno.EIO: (StorageErrorKind.PERMANENT, "the disk reports an error; check it before anything else is written"),
}

_ANSWERS_THAT_PASS: Final = frozenset({408, 425, 429})
"""Refusals of a request that the same server may take a moment later."""


def storage_failure(doing: str, error: BaseException) -> StorageError | None:
    """The failure that an error of a library reports; None when its text holds no number that would say so."""
    found = _kind_of(error)
    if found is None:
        return None
    kind, remedy = found
    reason = reason_of(error)
    return StorageError(kind, f"{doing}: {remedy} ({reason})" if remedy else f"{doing}: {reason}")


def reason_of(error: BaseException) -> str:
    """The first line of an error for people, without the places in its library's source and its debug dump."""
    text = str(error).split(_DEBUG, 1)[0].strip().split("\n", 1)[0]
    return _RUST_PLACE.sub("", text).strip()


def _kind_of(error: BaseException) -> tuple[StorageErrorKind, str] | None:
    text = str(error).split(_DEBUG, 1)[0]
    if _FULL.search(text):
        return StorageErrorKind.FULL, f"the store is full, or over its quota; {_ROOM}"
    if (status := _STATUS.search(text)) is not None:
        return _kind_of_status(int(status[1]), text)
    number = getattr(error, "errno", None)
    if number is None and (found := _OS_ERROR.search(text)) is not None:
        number = int(found[1])
    return _BY_ERRNO.get(number) if number is not None else None


def _kind_of_status(status: int, text: str) -> tuple[StorageErrorKind, str]:
    if status == 507:
        return StorageErrorKind.FULL, f"the store is full, or over its quota; {_ROOM}"
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
