"""The one seam to the object store: a handful of operations, counted by kind, breakable for tests.

Only small control objects pass here (log, refs, schemas); pylance reads and writes table data. Every failure of the
store leaves as a StorageError whose kind says whether the operation may have happened.
"""

from __future__ import annotations

import os.path
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import obstore
from obstore import exceptions as oops

from omnigraph.errors import NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.disk.disk_cache import CachedFiles
from omnigraph.storage.local_disk import LocalDisk, reason_of, storage_failure
from omnigraph.storage.location import Location

if TYPE_CHECKING:
    from obstore import GetOptions

DELETED_AT_ONCE: Final = 1_000
"""How many objects a store deletes with one request."""

_PART_BYTES: Final = 8 << 20
"""Larger objects are read in parts of this size, several at once."""
_PARTS_AT_ONCE: Final = 12
_CHUNK_BYTES: Final = 256 << 10
"""What a reader in parts gets at a time."""

_KINDS: Final[tuple[tuple[StorageErrorKind, tuple[type[Exception], ...]], ...]] = (
    (StorageErrorKind.CONFIGURATION, (oops.PermissionDeniedError, oops.UnauthenticatedError, oops.NotSupportedError)),
    (StorageErrorKind.CONFIGURATION, (oops.UnknownConfigurationKeyError, oops.InvalidPathError)),
    (StorageErrorKind.PRECONDITION, (oops.PreconditionError, oops.AlreadyExistsError)),
    (StorageErrorKind.NOT_FOUND, (FileNotFoundError, oops.NotFoundError)),
    (StorageErrorKind.TRANSIENT, (oops.GenericError, TimeoutError, ConnectionError)),
)


class Interceptor(Protocol):
    """Sees every request. Raising in `before` means it never reached the store; in `after`, its answer was lost."""

    def before(self, kind: str, path: str) -> None: ...

    def after(self, kind: str, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    path: str
    size: int
    modified: datetime


class Objects:
    """Control objects below one graph root. Safe to share between threads."""

    def __init__(self, location: Location) -> None:
        if location.is_local and not os.path.isdir(location.local_root):
            raise NotFoundError(f"there is no graph at '{location.uri}': no such directory")
        self.location = location
        self.interceptor: Interceptor | None = None
        self.cache: CachedFiles | None = None
        """Files of the graph on this machine, once it is known which graph it is."""
        try:
            self._store = location.open_store()
        except oops.GenericError as error:
            if location.is_local and not os.path.exists(location.local_root):  # it was removed a moment ago
                raise NotFoundError(f"there is no graph at '{location.uri}': no such directory") from error
            raise
        self._disk = LocalDisk(location.prefix) if location.is_local else None
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._deleting = threading.Lock()
        # Its threads wait for the store and for nothing else, so a thread that waits for them is answered.
        self._part_readers = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="omnigraph-parts")

    @property
    def counts(self) -> dict[str, int]:
        """Requests so far by kind: get, create, put, delete, list."""
        with self._counting:
            return dict(self._counts)

    def get(self, path: str) -> bytes | None:
        """The bytes of an object, None when it does not exist. Every read of a branch's head asks for an entry that is
        rarely there: on a disk that is one system call, without the store's client and its threads."""
        if self._disk is not None:
            with self._request("get", path):
                return self._disk.read(path)
        pair = self.get_with_time(path)
        return None if pair is None else pair[0]

    def get_with_time(self, path: str) -> tuple[bytes, datetime] | None:
        """The same, and when it was written, by the store's clock."""
        with self._request("get", path):
            try:
                response = obstore.get(self._store, path)
                return bytes(response.bytes()), response.meta["last_modified"]
            except (FileNotFoundError, oops.NotFoundError) as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes | None]:
        """Several objects of known sizes, all at once. None for one that is missing or has another size."""
        parts = [
            self._part_readers.submit(self._read_part, path, size, start)
            for path, size in sizes.items()
            for start in range(0, max(size, 1), _PART_BYTES)
        ]
        contents: dict[str, bytes | None] = {}
        remaining = iter(parts)
        for path, size in sizes.items():
            own = [next(remaining).result() for _ in range(0, max(size, 1), _PART_BYTES)]
            whole = None if None in own else own[0] if len(own) == 1 else b"".join(part or b"" for part in own)
            contents[path] = whole if whole is not None and len(whole) == size else None
        return contents

    def read_in_parts(self, path: str, size: int) -> Iterator[bytes]:
        """The content of an object of known size as it arrives, so that a reader may stop at any time. Fewer bytes when
        it is missing or shorter."""
        for start in range(0, size, _PART_BYTES):
            options: GetOptions = {} if size <= _PART_BYTES else {"range": (start, min(start + _PART_BYTES, size))}
            try:
                with self._request("get", path):
                    response = obstore.get(self._store, path, options=options)
                    yield from map(bytes, response.stream(min_chunk_size=_CHUNK_BYTES))
            except StorageError as error:
                if error.kind is StorageErrorKind.NOT_FOUND:
                    return
                raise

    def _read_part(self, path: str, size: int, start: int) -> bytes | None:
        if size <= _PART_BYTES:
            return self.get(path)
        try:
            with self._request("get", path):
                return bytes(obstore.get_range(self._store, path, start=start, end=min(start + _PART_BYTES, size)))
        except StorageError:
            # A range behind the end of an object is refused in many ways.
            if self.size(path) != size:
                return None
            raise

    def read_ranges(self, path: str, size: int, starts: Sequence[int], ends: Sequence[int]) -> list[bytes] | None:
        """Some ranges of an object of known size; near ones come together. None when the object is missing or has
        another size."""
        try:
            with self._request("get", path):
                ranges = obstore.get_ranges(self._store, path, starts=list(starts), ends=list(ends))
                return [bytes(part) for part in ranges]
        except StorageError:
            # A range behind the end of an object is refused in many ways.
            if self.size(path) != size:
                return None
            raise

    def size(self, path: str) -> int | None:
        """The size of an object, None when it does not exist."""
        with self._request("get", path):
            try:
                return int(obstore.head(self._store, path)["size"])
            except (FileNotFoundError, oops.NotFoundError):
                return None

    def exists(self, path: str) -> bool:
        with self._request("get", path):
            try:
                obstore.head(self._store, path)
            except (FileNotFoundError, oops.NotFoundError):
                return False
            return True

    def modified_at(self, path: str) -> datetime:
        """When an object that is there was written, by the store's clock."""
        with self._request("get", path):
            return obstore.head(self._store, path)["last_modified"]

    def create(self, path: str, data: bytes) -> bool:
        """Create-if-absent. False when the object exists already, which after a lost response may be our own doing.
        Either answer is durable. Of an error, `may_have_happened` says whether the object may exist nevertheless."""
        with self._request("create", path):
            if self._disk is not None:
                return self._disk.create(path, data)
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except oops.AlreadyExistsError:
                return False
            return True

    def claim(self, path: str, data: bytes, attempts: int = 3) -> bool:
        """As `create`, asked again while it is open whether it happened. Once it was open, no later refusal closes it:
        the error of this call then says so too."""
        in_doubt: StorageError | None = None
        for _ in range(attempts):
            try:
                return self.create(path, data)
            except StorageError as error:
                if not error.may_have_happened:
                    raise in_doubt or error from error
                in_doubt = error
        assert in_doubt is not None
        raise in_doubt

    def put(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Write or replace. Nobody's correctness depends on the content, unless it is `durable`: then it is whole
        whenever it is there, also after a power cut."""
        with self._request("put", path):
            if self._disk is not None:
                self._disk.put(path, data, durable=durable)
            else:
                obstore.put(self._store, path, data, use_multipart=False)

    def delete(self, path: str) -> None:
        """Idempotent: deleting what is not there succeeds."""
        with self._request("delete", path):
            try:
                obstore.delete(self._store, path)
            except (FileNotFoundError, oops.BaseError) as error:
                if not _is_gone(error):
                    raise

    def delete_all(self, paths: Sequence[str]) -> None:
        """As `delete`, for many objects; one request per `DELETED_AT_ONCE` where the store can do that. One batch at a
        time: on a disk each keeps ten threads busy, and sixteen tables may be swept at once."""
        for start in range(0, len(paths), DELETED_AT_ONCE):
            batch = list(paths[start : start + DELETED_AT_ONCE])
            try:
                with self._deleting, self._request("delete", batch[0]):
                    obstore.delete(self._store, batch)
            except StorageError as error:
                if not _is_gone(error.__cause__):
                    raise
                for path in batch:
                    self.delete(path)

    def folders(self, prefix: str) -> list[str]:
        """The folders directly below a prefix, sorted."""
        with self._request("list", prefix):
            listing = obstore.list_with_delimiter(self._store, prefix)
        return sorted(path.rstrip("/") for path in listing["common_prefixes"])

    def below(self, prefix: str, after: str | None = None) -> Iterator[StoredObject]:
        """Objects below a directory-like prefix, in path order, beginning behind `after`. One request per 1,000."""
        pages = obstore.list(self._store, prefix, offset=after, chunk_size=1_000)
        objects: list[StoredObject] = []
        is_last = False
        while not is_last:
            with self._request("list", prefix):
                page = next(pages, ())
            objects += [StoredObject(m["path"], m["size"], m["last_modified"]) for m in page]
            is_last = len(page) < 1_000
        # S3 answers in path order, a local directory does not.
        objects.sort(key=lambda o: o.path)
        yield from objects

    def sample(self) -> list[str]:
        """Some of the paths below the root, empty only when there is nothing at all. One request."""
        with self._request("list", ""):
            page = next(obstore.list(self._store, chunk_size=1_000), ())
        return [m["path"] for m in page]

    def confirm(self, path: str) -> None:
        """Make sure that an object which was read is durable. Nothing to do where reading it proves that."""
        if self._disk is not None:
            self._disk.confirm(path)

    def set_aside(self, path: str, away: str) -> None:
        """Give an object another name. Only a local disk can leave one that was never finished."""
        if self._disk is None:
            raise StorageError(StorageErrorKind.CONFIGURATION, f"{path}: only files of a local disk can be set aside")
        with self._request("put", path):
            self._disk.set_aside(path, away)

    def remove_unfinished(self, before: datetime) -> None:
        """Remove temporary files of processes that died, if they are older. Only a local disk has any."""
        if self._disk is not None:
            with self._request("delete", ""):
                self._disk.remove_unfinished(before)

    @contextmanager
    def _request(self, kind: str, path: str) -> Iterator[None]:
        with self._counting:
            self._counts[kind] += 1
        try:
            if self.interceptor is not None:
                self.interceptor.before(kind, path)
            yield
            if self.interceptor is not None:
                self.interceptor.after(kind, path)
        except (oops.BaseError, OSError) as error:
            raise self._to_storage_error(kind, path, error) from error

    def _to_storage_error(self, kind: str, path: str, error: Exception) -> StorageError:
        where = f"{kind} {self.location.uri}/{path}"
        if "NoSuchBucket" in str(error):
            message = f"bucket '{self.location.bucket}' does not exist (of {self.location.uri})"
            return StorageError(StorageErrorKind.CONFIGURATION, message)
        if (failed := storage_failure(where, error)) is not None:
            return failed
        kind_of_failure = next(
            (kind for kind, errors in _KINDS if isinstance(error, errors)), StorageErrorKind.PERMANENT
        )
        return StorageError(kind_of_failure, f"{where}: {reason_of(error)}")


def _is_gone(error: BaseException | None) -> bool:
    """Whether a deletion failed because there was nothing to delete any more: some gateways refuse that."""
    if "NoSuchBucket" in str(error):
        return False
    return isinstance(error, FileNotFoundError | oops.NotFoundError) or "(code: NoSuchKey)" in str(error)
