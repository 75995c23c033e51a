"""The graph log: one immutable, numbered object per commit of a branch, and the publish that creates the next one.

This is the commit protocol. The create-if-absent of `log/<branch_id>/<N+1>` is the only linearisation point of the
system; an entry is never rewritten, so everything read here may be cached. The caller decides what goes
into an entry; this module only decides whether it got its slot.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Executor

from omnigraph.errors import BranchNotFoundError, CommitOutcomeUnknownError, IntegrityError, StorageError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.log.write_guard import WriteGuard
from omnigraph.storage.log.writer_queue import WriterQueue
from omnigraph.storage.models import BranchRef, LogEntry, Tombstone, decode, encode
from omnigraph.storage.objects import Objects

_PROBES = 2
_PUBLISH_ATTEMPTS = 6
_CACHED_ENTRIES = 512
_CACHED_HEADS = 1_024
_LOOK_EVERY = 4


class GraphLog:
    """Reads and extends the logs of one graph. Safe to share between threads."""

    def __init__(self, objects: Objects, workers: Executor, writer_queue: WriterQueue, guard: WriteGuard) -> None:
        self._objects = objects
        self._workers = workers
        self._guard = guard
        self._entries: RecentlyUsed[tuple[str, int], LogEntry | Tombstone] = RecentlyUsed(_CACHED_ENTRIES)
        self._heads: RecentlyUsed[str, LogEntry | Tombstone] = RecentlyUsed(_CACHED_HEADS)
        self._hints = _Hints(objects, workers, writer_queue)
        self._lock = threading.Lock()

    # Reading

    def entry(self, branch_id: str, version: int) -> LogEntry | Tombstone | None:
        """The entry at one slot, None when the slot is still free."""
        entry = self._entries.get((branch_id, version))
        return entry if entry is not None else self.fetch(branch_id, version)

    def entries(self, places: Iterable[tuple[str, int]]) -> list[LogEntry | Tombstone | None]:
        """Several slots at once, in the order asked for."""
        return list(self._workers.map(lambda place: self.entry(*place), places))

    def slots(self, ref: BranchRef) -> list[int]:
        """The versions in a branch's own log, as a listing shows them."""
        names = (o.path.rsplit("/", 1)[-1].removesuffix(".json") for o in self._objects.below(_log_of(ref.branch_id)))
        return [int(name) for name in names if name.isdigit()]

    def head(self, ref: BranchRef) -> LogEntry:
        """The newest entry of a branch at some moment during this call."""
        newest = self.newest(ref)
        if isinstance(newest, Tombstone):
            raise BranchNotFoundError(ref.branch, "it was deleted")
        return newest

    def newest(self, ref: BranchRef) -> LogEntry | Tombstone:
        """Like `head`, but shows the tombstone of a deleted branch instead of refusing it."""
        head = self._heads.get(ref.branch_id)
        newest = self._cold_head(ref) if head is None else self._advance(ref, head)
        return self._remember_head(ref.branch_id, newest)

    def last_known(self, ref: BranchRef) -> LogEntry | None:
        """The newest entry of a branch that this handle has seen. No request; there may be newer ones."""
        head = self._heads.get(ref.branch_id)
        return head if isinstance(head, LogEntry) else None

    def _cold_head(self, ref: BranchRef) -> LogEntry | Tombstone:
        hinted = self._hints.read(ref.branch_id)
        if hinted is not None and hinted >= ref.first_own_version:
            # The commit after this one may have written no hint; then its successor is asked for at once, too.
            last = hinted + (2 if (hinted + 1) % _LOOK_EVERY == 0 else 1)
            entries = self.entries((ref.branch_id, version) for version in range(hinted, last + 1))
            newest = next((entry for entry in reversed(entries) if entry is not None), None)
            if newest is not None:
                return self._advance(ref, newest) if newest.version == last else newest
            # The hint names a slot that was never written: it is only a hint, the log itself decides.
            return self._newest_listed(ref, ref.first_own_version - 1) or self._fork_entry(ref)
        first = self.fetch(ref.branch_id, ref.first_own_version)
        return self._advance(ref, first) if first is not None else self._fork_entry(ref)

    def _fork_entry(self, ref: BranchRef) -> LogEntry:
        if ref.fork is None:
            raise IntegrityError(slot_path(ref.branch_id, 1), "the first commit of the graph is missing")
        entry = self.entry(ref.fork.branch_id, ref.fork.version)
        if not isinstance(entry, LogEntry):
            raise IntegrityError(
                slot_path(ref.fork.branch_id, ref.fork.version), f"the fork point of branch '{ref.branch}' is missing"
            )
        return entry

    def _advance(self, ref: BranchRef, entry: LogEntry | Tombstone) -> LogEntry | Tombstone:
        """Follow the log from a known entry: probe one slot, then a few at once, list when far behind."""
        following = None if isinstance(entry, Tombstone) else self.fetch(ref.branch_id, entry.version + 1)
        if following is None:
            return entry
        entry = following
        for following in self.entries((ref.branch_id, entry.version + i) for i in range(1, _PROBES + 1)):
            if following is None:
                return entry
            entry = following
        return self._newest_listed(ref, entry.version) or entry

    def _newest_listed(self, ref: BranchRef, after: int) -> LogEntry | Tombstone | None:
        last = None
        for stored in self._objects.below(_log_of(ref.branch_id), after=slot_path(ref.branch_id, max(after, 0))):
            last = stored.path
        if last is None:
            return None
        name = last.rsplit("/", 1)[-1].removesuffix(".json")
        if not name.isdigit():
            raise IntegrityError(last, "is not a log entry")
        return self.fetch(ref.branch_id, int(name))

    def fetch(self, branch_id: str, version: int) -> LogEntry | Tombstone | None:
        """As `entry`, but always read from the store."""
        path = slot_path(branch_id, version)
        data = self._objects.get(path)
        if data is None:
            return None
        entry: LogEntry | Tombstone = decode(path, data, LogEntry | Tombstone)  # type: ignore[arg-type]
        if entry.branch_id != branch_id or entry.version != version:
            raise IntegrityError(path, f"claims to be version {entry.version} of branch {entry.branch_id}")
        self._entries[branch_id, version] = entry
        return entry

    # Publishing

    def publish(self, entry: LogEntry | Tombstone) -> LogEntry | Tombstone:
        """Create the entry's slot. Returns the entry there now: `entry` itself, or that of the writer that won.

        No answer is not an answer, and neither is a disk that did not confirm what it did: the slot is asked again
        with the same bytes, so that repeating can't commit twice. Whatever is returned is durable. Only a store that
        never confirms leaves the outcome open; every other error means that nothing was published.
        """
        self._guard.check()
        path, data = slot_path(entry.branch_id, entry.version), encode(entry)
        for link in entry.commit.parents if isinstance(entry, LogEntry) else ():
            if link.branch_id != entry.branch_id:
                self.confirm(link.branch_id, link.version)
        in_doubt = False
        for attempt in range(1, _PUBLISH_ATTEMPTS + 1):
            last = attempt == _PUBLISH_ATTEMPTS
            try:
                if self._objects.create(path, data):
                    self._entries[entry.branch_id, entry.version] = entry
                    self._remember_head(entry.branch_id, entry)
                    self._hints.note(entry)
                    return entry
                stored = self.fetch(entry.branch_id, entry.version)
                if stored is not None:
                    self._remember_head(entry.branch_id, stored)
                    return stored
                # S3 also says that a slot is taken while another writer still tries to take it.
                if last:
                    raise IntegrityError(path, "exists and can't be read: the store does not keep create-if-absent")
            except StorageError as error:
                refused = not error.may_have_happened
                in_doubt = in_doubt or not refused
                if refused and (stored := self._after_refusal(entry, error, in_doubt)) is not None:
                    return stored
                if refused or last:
                    identity = entry.commit.id if isinstance(entry, LogEntry) else f"delete of {entry.branch}"
                    raise CommitOutcomeUnknownError(identity, str(error)) from error
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
        raise AssertionError("unreachable")

    def confirm(self, branch_id: str, version: int) -> None:
        """Make sure that an entry which was read is durable, before something durable refers to it or its existence is
        acknowledged: its own writer may have been stopped right after it made the entry visible."""
        self._objects.confirm(slot_path(branch_id, version))

    def _after_refusal(
        self, entry: LogEntry | Tombstone, refusal: StorageError, in_doubt: bool
    ) -> LogEntry | Tombstone | None:
        """The entry in a slot that the store refused to create. Raises the refusal if nothing was published; None when
        that is unknown.

        An earlier attempt may have happened: ours, without an answer, or one that the client repeated by itself. A disk
        that fails turns read-only between a link and its flush, and then refuses everything.
        """
        is_local = self._objects.location.is_local
        if is_local and not in_doubt:
            raise refusal
        try:
            stored = self.fetch(entry.branch_id, entry.version)
        except StorageError:
            stored, is_free = None, not in_doubt
        else:
            is_free = stored is None and (is_local or not in_doubt)
        if is_free:
            raise refusal
        return None if is_local and stored == entry else stored

    def _remember_head(self, branch_id: str, entry: LogEntry | Tombstone) -> LogEntry | Tombstone:
        """Heads only move forward, whatever order concurrent readers finish in."""
        with self._lock:
            head = self._heads.get(branch_id)
            if head is None or head.version < entry.version:
                self._heads[branch_id] = entry
                return entry
            return head


class _Hints:
    """The last version seen of each branch, written in the background: it saves probing and is never believed. Every
    fourth commit looks for others who wait in the queue instead, so that a commit stays at one background request. A
    hint that is one behind costs the next opening of the graph one request more."""

    def __init__(self, objects: Objects, workers: Executor, writer_queue: WriterQueue) -> None:
        self._objects = objects
        self._workers = workers
        self._writer_queue = writer_queue
        self._newest: dict[str, LogEntry | Tombstone] = {}
        """By branch, while its hint is being written."""
        self._lock = threading.Lock()

    def read(self, branch_id: str) -> int | None:
        data = self._objects.get(_hint(branch_id))
        text = data.decode("ascii", "replace").strip() if data else ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None

    def note(self, entry: LogEntry | Tombstone) -> None:
        """A burst of commits writes few hints: one is in flight per branch, and it writes the newest number."""
        branch_id = entry.branch_id
        with self._lock:
            pending = self._newest.get(branch_id)
            if pending is None or pending.version < entry.version:
                self._newest[branch_id] = entry
        if pending is None:
            try:
                self._workers.submit(self._write, branch_id)
            except RuntimeError:  # the handle is closing; a hint may go unwritten
                with self._lock:
                    self._newest.pop(branch_id, None)

    def _write(self, branch_id: str) -> None:
        written = None
        while True:
            with self._lock:
                newest = self._newest[branch_id]
                if newest is written:
                    del self._newest[branch_id]
                    return
            if newest.version % _LOOK_EVERY == 0:
                self._writer_queue.look(newest.branch)
            else:
                with contextlib.suppress(StorageError):  # the next commit writes a newer one
                    self._objects.put(_hint(branch_id), str(newest.version).encode())
            written = newest


def _log_of(branch_id: str) -> str:
    return f"__manifest/log/{branch_id}"


def slot_path(branch_id: str, version: int) -> str:
    """The path of an entry."""
    return f"{_log_of(branch_id)}/{version:020d}.json"


def _hint(branch_id: str) -> str:
    return f"__manifest/hints/{branch_id}"
