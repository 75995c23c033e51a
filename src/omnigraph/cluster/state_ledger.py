"""The ledger: one immutable, numbered object per state of a cluster, and the lock of the running command.

`__cluster/state/<revision>.json`. The newest revision is the state. Creating revision N+1 if it is absent is the only
way to change the state, so two writers that started at N can't both succeed, and nothing is ever overwritten. The lock
only tells people that a command is running; it protects nothing.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from omnigraph.cluster.configuration import storage_root
from omnigraph.cluster.resources import ClusterError, error, graph_address
from omnigraph.cluster.state import State, decode_state, encode_state
from omnigraph.cluster.storage_root import CLUSTER_FOLDER, graph_uri, object_names, open_root
from omnigraph.errors import BadRequestError, FormatVersionError, IntegrityError, StorageError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects

STATE_FOLDER: Final = f"{CLUSTER_FOLDER}/state"
_OTHER_FORMAT: Final = f"{CLUSTER_FOLDER}/state.json"
_ATTEMPTS: Final = 5
_REVISION: Final = re.compile(r"([1-9][0-9]{0,17})\.json")


def revision_path(revision: int) -> str:
    """The path of a revision below the storage root."""
    return f"{STATE_FOLDER}/{revision}.json"


@dataclass(frozen=True, slots=True)
class LedgerRevision:
    """A recorded revision."""

    state: State
    text: bytes = field(repr=False)

    @property
    def revision(self) -> int:
        return self.state.state_revision

    @property
    def path(self) -> str:
        return revision_path(self.revision)

    @property
    def state_cas(self) -> str:
        """The digest of the text, different for every revision."""
        return f"sha256:{hashlib.sha256(self.text).hexdigest()}"


class Ledger:
    """The revisions of one cluster. Safe to share between threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def newest(self) -> LedgerRevision | None:
        """The newest revision at some moment during this call; None when there is none yet."""
        revisions = self.revisions()
        if revisions:
            if (revision := self.revision(revisions[-1])) is None:
                message = "it is listed but can't be read; read the ledger again"
                raise ClusterError.of("state_read_error", revision_path(revisions[-1]), message)
            return revision
        if self._read(_OTHER_FORMAT) is not None:
            message = (
                "this ledger was written by another implementation; export its graphs there and load them into a new "
                "cluster"
            )
            raise ClusterError.of("unsupported_state_version", _OTHER_FORMAT, message)
        return None

    def revision(self, revision: int) -> LedgerRevision | None:
        """The revision with this number; None when it does not exist."""
        data = self._read(revision_path(revision))
        return None if data is None else _decode_revision(revision, data)

    def revisions(self) -> list[int]:
        """The numbers of all revisions, oldest first."""
        try:
            names = object_names(self._objects, STATE_FOLDER)
        except StorageError as error:
            raise ClusterError.of("state_read_error", STATE_FOLDER, str(error)) from error
        return sorted(int(match[1]) for match in map(_REVISION.fullmatch, names) if match is not None)

    def newer_than(self, revision: int) -> int | None:
        """The newest revision if it is newer than this one, else None. Costs one read while there is none."""
        return None if self._objects.get(revision_path(revision + 1)) is None else self.revisions()[-1]

    def create(self, state: State, after: LedgerRevision | None) -> LedgerRevision:
        """Create the revision after the one that the caller has read (None: there was none).

        Its number and operation id are assigned here. Raises `state_cas_mismatch`, with nothing written, when another
        writer has created that revision. Raises `state_write_error` when the store failed; the message says whether the
        revision may have been created.
        """
        revision = 1 if after is None else after.revision + 1
        stamped = msgspec.structs.replace(state, state_revision=revision, operation_id=secrets.token_hex(16))
        made = LedgerRevision(stamped, encode_state(stamped))
        if (standing := self._create(made, is_first=after is None)) is not None:
            raise _overtaken(after, standing)
        return made

    def refuse_overtaken(self, after: LedgerRevision) -> None:
        """Raises `state_cas_mismatch` when another writer has created the next revision: graphs that were observed
        since may already follow that one, and must not be compared with the one before."""
        if (standing := self.revision(after.revision + 1)) is not None:
            raise _overtaken(after, standing)

    def _create(self, made: LedgerRevision, *, is_first: bool) -> LedgerRevision | None:
        """Create a revision; None on success, else the revision of the faster writer."""
        answered = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                created = self._objects.claim(made.path, made.text)
                answered = True
                # A store that ignores the condition would lose states silently. It is checked once per ledger, with the
                # same bytes, so that a wrong response does no harm.
                if created and is_first and self._objects.claim(made.path, made.text):
                    place = self._objects.location.uri
                    message = f"the store of '{place}' does not honour create-if-absent; a cluster can't be safe there"
                    raise ClusterError.of("state_write_error", made.path, message)
                if created:
                    return None
                text = self._objects.get(made.path)
            except StorageError as error:
                is_open = answered or error.may_have_happened
                doubt = "; it may have been written, read the ledger again" if is_open else ""
                raise ClusterError.of("state_write_error", made.path, f"{error}{doubt}") from error
            # A response can be lost and the request repeated: then the existing revision is this one.
            if text is not None:
                return None if text == made.text else _decode_revision(made.revision, text)
            # S3 also reports a conflict while another writer is still creating the object.
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
        message = "the store reports both that it exists and that it does not"
        raise ClusterError.of("state_write_error", made.path, message)

    def _read(self, path: str) -> bytes | None:
        try:
            return self._objects.get(path)
        except StorageError as error:
            raise ClusterError.of("state_read_error", path, str(error)) from error


def _overtaken(after: LedgerRevision | None, standing: LedgerRevision) -> ClusterError:
    expected = "no state" if after is None else f"revision {after.revision} ({after.state_cas})"
    message = (
        f"another writer has changed the state since {expected} was read, and created revision {standing.revision} "
        f"({standing.state_cas}); nothing was written, run the command again"
    )
    return ClusterError.of("state_cas_mismatch", standing.path, message)


def _decode_revision(revision: int, data: bytes) -> LedgerRevision:
    path = revision_path(revision)
    try:
        state = decode_state(path, data)
    except FormatVersionError as error:
        raise ClusterError.of("unsupported_state_version", path, str(error)) from None
    except IntegrityError as error:
        raise ClusterError.of("invalid_state_json", path, error.reason) from None
    if state.state_revision != revision:
        raise ClusterError.of("invalid_state_json", path, f"it claims to be revision {state.state_revision}")
    return LedgerRevision(state, data)


LOCK_PATH: Final = f"{CLUSTER_FOLDER}/lock.json"
LOCK_VERSION: Final = 1
_LOCK_ATTEMPTS: Final = 3


class Lock(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    lock_id: str
    operation: str
    created_at: str
    pid: int

    @property
    def age_seconds(self) -> int | None:
        try:
            return max(0, int(time.time() - datetime.fromisoformat(self.created_at).timestamp()))
        except ValueError:
            return None

    def __str__(self) -> str:
        age = self.age_seconds
        duration = "" if age is None else f", held for {age} s"
        return f"id={self.lock_id}, operation={self.operation}, pid={self.pid}{duration}"


class LockHeldError(ClusterError):
    """Another command holds the lock."""

    def __init__(self, holder: Lock) -> None:
        message = (
            f"another command is running ({holder}); wait for it, or run `omnigraph cluster force-unlock "
            f"{holder.lock_id}` if it died"
        )
        super().__init__([error("state_lock_held", LOCK_PATH, message)])
        self.holder = holder


class _Versioned(Struct):
    version: int


def timestamp() -> str:
    """The current time in the form of the ledger."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_lock(objects: Objects) -> Lock | None:
    """The lock, None when there is none. Raises `ClusterError` when it can't be read."""
    try:
        data = objects.get(LOCK_PATH)
    except StorageError as problem:
        raise ClusterError.of("state_lock_read_error", LOCK_PATH, str(problem)) from problem
    if data is None:
        return None
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != LOCK_VERSION:
            message = f"it has version {version}, and this omnigraph knows version {LOCK_VERSION}"
            raise ClusterError.of("unsupported_state_lock_version", LOCK_PATH, message)
        return msgspec.json.decode(data, type=Lock)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        message = f"it is not a lock ({problem}); remove the file when no command is running"
        raise ClusterError.of("invalid_state_lock", LOCK_PATH, message) from None


def acquire(objects: Objects, operation: str) -> Lock:
    """Acquire the lock. Raises `LockHeldError` when another command holds it."""
    lock = Lock(LOCK_VERSION, new_ulid(), operation, timestamp(), os.getpid())
    for _ in range(_LOCK_ATTEMPTS):
        try:
            if objects.claim(LOCK_PATH, msgspec.json.encode(lock)):
                return lock
        except StorageError as problem:
            raise ClusterError.of("state_lock_error", LOCK_PATH, str(problem)) from problem
        holder = read_lock(objects)
        if holder is not None and holder.lock_id == lock.lock_id:
            return lock  # the response to our own request was lost
        if holder is not None:
            raise LockHeldError(holder)
    raise ClusterError.of("state_lock_error", LOCK_PATH, "the lock appears and disappears; run the command again")


def release(objects: Objects, lock: Lock) -> None:
    """Release the lock, if it is still ours. Raises `ClusterError`."""
    try:
        holder = read_lock(objects)
        if holder is not None and holder.lock_id == lock.lock_id:
            objects.delete(LOCK_PATH)
    except StorageError as problem:
        message = f"the lock stays ({problem}); run `omnigraph cluster force-unlock {lock.lock_id}`"
        raise ClusterError.of("state_lock_error", LOCK_PATH, message) from problem


@dataclass(frozen=True, slots=True)
class AppliedState:
    """A state, and the objects it was read from."""

    objects: Objects
    state: State

    @property
    def root(self) -> str:
        return self.objects.location.uri

    def graph_uri(self, graph_id: str) -> str:
        return graph_uri(self.root, graph_id, self.state.generation(graph_id))

    def select_graphs(self, graph_id: str | None) -> list[str]:
        """The graph with this id; without an id, all graphs."""
        graph_ids = self.state.graph_ids
        if graph_id is None:
            return graph_ids
        if graph_id not in graph_ids:
            applied = ", ".join(graph_ids) or "none"
            message = f"graph '{graph_id}' is not applied in cluster '{self.root}'; applied: {applied}"
            raise ClusterError.of("graph_not_applied", graph_address(graph_id), message)
        return [graph_id]

    def one_graph(self, graph_id: str | None) -> str:
        """The graph with this id; without an id, the only graph."""
        graph_ids = self.select_graphs(graph_id)
        if not graph_ids:
            raise BadRequestError(
                f"cluster '{self.root}' has no applied graphs; declare one and run `omnigraph cluster apply`"
            )
        if len(graph_ids) > 1:
            graphs = f"{len(graph_ids)} graphs: {', '.join(graph_ids)}"
            raise BadRequestError(f"cluster '{self.root}' has {graphs}; pass --graph <id>")
        return graph_ids[0]


def read_applied(source: str, revision: int | None = None, *, is_root: bool = False) -> AppliedState:
    """The newest state, or that of one revision. `source` is a configuration directory or a URI; with `is_root` it is
    the storage root itself. Raises `ClusterError`."""
    root = source if is_root else storage_root(source)
    objects = open_root(root)
    if objects is not None:
        ledger = Ledger(objects)
        recorded = ledger.newest() if revision is None else ledger.revision(revision)
        if recorded is not None:
            return AppliedState(objects, recorded.state)
    path = STATE_FOLDER if revision is None else revision_path(revision)
    message = f"'{root}' holds no state of a cluster; import and apply one first"
    raise ClusterError.of("cluster_state_missing", path, message)


def follow_ledger(root: str) -> Callable[[int], int | None]:
    """`Ledger.newer_than` of the cluster at this storage root."""
    return Ledger(Objects(Location.parse(root))).newer_than
