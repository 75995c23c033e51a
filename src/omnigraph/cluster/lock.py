"""The lock of a cluster: who works on it right now, so that people do not get in each other's way.

It is a courtesy and protects nothing. What a stalled or an unlocked command could do wrong is prevented by the ledger,
whose next revision is made once.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from omnigraph.cluster.diagnostics import ClusterError, error
from omnigraph.cluster.ledger import CLUSTER_FOLDER
from omnigraph.engine.object_store import ObjectStore, new_object_id
from omnigraph.errors import StorageError

LOCK_PATH: Final = f"{CLUSTER_FOLDER}/lock.json"
LOCK_VERSION: Final = 1
_ATTEMPTS: Final = 3


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
        aged = "" if age is None else f", held for {age} s"
        return f"id={self.lock_id}, operation={self.operation}, pid={self.pid}{aged}"


class LockHeldError(ClusterError):
    """Somebody else is at work."""

    def __init__(self, holder: Lock) -> None:
        message = (
            f"another command works on the cluster ({holder}); wait for it, or run `omnigraph cluster force-unlock "
            f"{holder.lock_id}` when it is gone"
        )
        super().__init__([error("state_lock_held", LOCK_PATH, message)])
        self.holder = holder


class _Versioned(Struct):
    version: int


def timestamp() -> str:
    """Now, as ledgers write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_lock(store: ObjectStore) -> Lock | None:
    """The lock that is held. Raises `ClusterError` when it can't be read."""
    try:
        data = store.read(LOCK_PATH)
    except StorageError as problem:
        raise ClusterError.of("state_lock_read_error", LOCK_PATH, str(problem)) from problem
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=_Versioned).version
        if found != LOCK_VERSION:
            message = f"it has version {found}, and this omnigraph knows version {LOCK_VERSION}"
            raise ClusterError.of("unsupported_state_lock_version", LOCK_PATH, message)
        return msgspec.json.decode(data, type=Lock)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        message = f"it is no lock ({problem}); remove the file when nobody works on the cluster"
        raise ClusterError.of("invalid_state_lock", LOCK_PATH, message) from None


def acquire(store: ObjectStore, operation: str) -> Lock:
    """Take the lock. Raises `ClusterError`, with who holds it when somebody does."""
    lock = Lock(LOCK_VERSION, new_object_id(), operation, timestamp(), os.getpid())
    for _ in range(_ATTEMPTS):
        try:
            if store.create(LOCK_PATH, msgspec.json.encode(lock)):
                return lock
        except StorageError as problem:
            raise ClusterError.of("state_lock_error", LOCK_PATH, str(problem)) from problem
        holder = read_lock(store)
        if holder is not None and holder.lock_id == lock.lock_id:
            return lock  # the answer to our own request was lost
        if holder is not None:
            raise LockHeldError(holder)
    raise ClusterError.of("state_lock_error", LOCK_PATH, "the lock comes and goes; run the command again")


def release(store: ObjectStore, lock: Lock) -> None:
    """Give the lock back, if it is still ours. Raises `ClusterError`."""
    try:
        holder = read_lock(store)
        if holder is not None and holder.lock_id == lock.lock_id:
            store.delete(LOCK_PATH)
    except StorageError as problem:
        message = f"the lock stays ({problem}); run `omnigraph cluster force-unlock {lock.lock_id}`"
        raise ClusterError.of("state_lock_error", LOCK_PATH, message) from problem
