"""The cleanup journal and pins: which part of main's history a cleanup is about to delete, and which a write relies on.

A journal record is an empty object whose name says that everything below a version may go, of all tables or of one. It
is written before the cleanup's last look at branches and pins, and stays until all of that is deleted. A pin is an
empty object whose name says from which version on main must stay; branches made from main and merges of main write one
before they name table versions of an old commit, and then look for records: one of the two always sees the other
(docs/dev/protocol.md). The record of a cleanup that died is taken over and finished by the next one, never just
removed, because its owner may only be asleep; a pin left behind is ignored after the grace period, when its writer
would refuse to publish. Records have no content, so that a full disk can still be cleaned.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.models import LogEntry, manifest_path, reclaimed_error
from omnigraph.storage.objects import Objects, StoredObject

JOURNAL_FOLDER: Final = "__manifest/reclaims"
_TAKEN: Final = ".taken"
_CLOCK: Final = ".clock"
_CLOCK_READ_WITHIN: Final = timedelta(hours=1)
_RECORD_NAME = re.compile(r"[0-9A-Z]{26}\.below-(\d+)(?:\.((?:nodes|edges)\.[0-9a-f]+))?")


def _list_matches(
    objects: Objects, folder: str, pattern: re.Pattern[str]
) -> Iterator[tuple[StoredObject, re.Match[str]]]:
    for stored in objects.below(folder):
        if (name := pattern.fullmatch(stored.path.removeprefix(f"{folder}/"))) is not None:
            yield stored, name


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """Main's versions below `below` may be deleted, of one table folder or of all."""

    path: str
    below: int
    folder: str | None


class CleanupJournal:
    """The records of one graph."""

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self._objects = objects
        self._workers = workers

    def open(self, below: int, folders: Iterable[str] | None = None) -> list[JournalRecord]:
        """Record that main's versions below one are about to be deleted, of all tables or of these."""
        records = []
        for folder in [None] if folders is None else sorted(folders):
            suffix = "" if folder is None else f".{folder.replace('/', '.')}"
            record = JournalRecord(f"{JOURNAL_FOLDER}/{new_ulid()}.below-{below}{suffix}", below, folder)
            self._objects.create(record.path, b"")
            records.append(record)
        return records

    def records(self) -> list[JournalRecord]:
        return [
            JournalRecord(stored.path, int(name[1]), name[2].replace(".", "/", 1) if name[2] else None)
            for stored, name in _list_matches(self._objects, JOURNAL_FOLDER, _RECORD_NAME)
        ]

    def take_over(self) -> list[JournalRecord]:
        """The records of others, which from now on their owners leave to the caller."""
        records = self.records()
        for record in records:
            self._objects.create(f"{record.path}{_TAKEN}", b"")
        return records

    def are_ours(self, records: Iterable[JournalRecord]) -> bool:
        """Whether records are still there and nobody has taken them over."""
        paths = {stored.path for stored in self._objects.below(JOURNAL_FOLDER)}
        return all(record.path in paths and f"{record.path}{_TAKEN}" not in paths for record in records)

    def close(self, records: Sequence[JournalRecord]) -> None:
        """Remove records whose data is gone."""
        self._objects.delete_all([record.path for record in records])
        # Last: an owner that finds its record without this mark believes that it may delete.
        self._objects.delete_all([f"{record.path}{_TAKEN}" for record in records])

    def store_time(self) -> datetime:
        """The clock of the store: the time it gives to an object that is written now."""
        path = f"{JOURNAL_FOLDER}/{new_ulid()}{_CLOCK}"
        self._objects.create(path, b"")
        clocks = {o.path: o.modified for o in self._objects.below(JOURNAL_FOLDER) if o.path.endswith(_CLOCK)}
        if path not in clocks:
            raise StorageError(
                StorageErrorKind.CONFIGURATION,
                f"the store of '{self._objects.location.uri}' does not list an object that was just written; "
                "cleanup needs listings that are up to date",
            )
        now = clocks[path]
        left_behind = [other for other, written in clocks.items() if written < now - _CLOCK_READ_WITHIN]
        self._objects.delete_all([path, *left_behind])
        return now

    def refuse(self, entry: LogEntry) -> None:
        """HistoricalVersionReclaimedError when a commit of main lost table data, or is about to. Call it while the
        commit is pinned, before anything names its versions."""
        records, states = self.records(), list(entry.tables.values())
        for state in states:
            if any(entry.version < record.below and record.folder in (None, state.path) for record in records):
                raise reclaimed_error(state)
        manifests = self._workers.map(self._objects.exists, map(manifest_path, states))
        for state, exists in zip(states, manifests, strict=True):
            if not exists:
                raise reclaimed_error(state)


_PINS: Final = "__manifest/pins"
_PIN_NAME = re.compile(r"[0-9A-Z]{26}\.(\d+)-(\d*)")


@dataclass(frozen=True, slots=True)
class Pin:
    """Main's versions from `first` to `last`, or to the head. `since` is the store's time."""

    path: str
    first: int
    last: int | None
    since: datetime


class Pins:
    """The pins of one graph."""

    def __init__(self, objects: Objects, workers: Executor) -> None:
        self._objects = objects
        self._workers = workers

    @contextlib.contextmanager
    def hold(self, first: int, last: int | None = None) -> Iterator[None]:
        """Keep versions of main from cleanup while the block runs. Only what is looked at inside it is held."""
        path = f"{_PINS}/{new_ulid()}.{first}-{'' if last is None else last}"
        self._objects.put(path, b"")
        try:
            yield
        finally:
            try:
                self._workers.submit(self._release, path)
            except RuntimeError:  # the handle is closing
                self._release(path)

    def _release(self, path: str) -> None:
        with contextlib.suppress(StorageError):  # it is ignored after the grace period
            self._objects.delete(path)

    def all(self) -> list[Pin]:
        """Every pin, also those that were left behind."""
        return [
            Pin(stored.path, int(name[1]), int(name[2]) if name[2] else None, stored.modified)
            for stored, name in _list_matches(self._objects, _PINS, _PIN_NAME)
        ]

    def forget(self, pins: list[Pin]) -> None:
        """Remove pins that nobody can rely on any more."""
        self._objects.delete_all([pin.path for pin in pins])
