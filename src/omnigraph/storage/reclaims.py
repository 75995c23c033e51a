"""What a cleanup is about to delete, written down before it deletes.

A branch may be created from an old commit at the very moment a cleanup decides that nobody needs it. Each side writes
first and then looks at what the other wrote: cleanup records the table versions it will delete, waits a moment and
lists the branches again; a new branch that did not fork from a head just seen looks for such records. One of
them always sees the other. A record goes when its sweep is complete; one left by a crash is finished by the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from omnigraph.storage.identifiers import new_ulid, now_micros
from omnigraph.storage.models import FORMAT_VERSION, TableState, decode, encode
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables.reading import manifest_name, reclaimed

_RECLAIMS: Final = "__manifest/reclaims"

SETTLE_SECONDS: Final = 1.0
"""How long a cleanup waits before it lists the branches again; a fork of a head that took less needs no check."""


class ReclaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Table versions on their way out, by table folder."""

    format: int
    started_at: int
    versions: dict[str, tuple[str, ...]]


class Reclaims:
    """The records of one graph."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def open(self, versions: Mapping[str, Iterable[str]]) -> str:
        """Write down what is about to go; returns where."""
        path = f"{_RECLAIMS}/{new_ulid()}.json"
        record = ReclaimRecord(
            format=FORMAT_VERSION,
            started_at=now_micros(),
            versions={folder: tuple(numbers) for folder, numbers in versions.items()},
        )
        self._objects.create(path, encode(record))
        return path

    def close(self, path: str, *, abandoned_before: datetime) -> None:
        """The sweep is complete. Records of sweeps that ended without a word, long ago, go with it."""
        self._objects.delete(path)
        for stored in self._objects.below(_RECLAIMS):
            if stored.modified < abandoned_before:
                self._objects.delete(stored.path)

    def refuse(self, states: Iterable[TableState]) -> None:
        """HistoricalVersionReclaimedError when one of these versions is gone, or is about to go.

        For whoever names versions that are not those of a head just read: call it after a new branch stands, or
        right before a merge that adopts versions of its other side is published.
        """
        wanted = list(states)
        going: set[tuple[str, str]] = set()
        for stored in self._objects.below(_RECLAIMS):
            data = self._objects.get(stored.path)
            versions = decode(stored.path, data, ReclaimRecord).versions if data is not None else {}
            going |= {(folder, version) for folder, listed in versions.items() for version in listed}
        for state in wanted:
            manifest = f"{state.path}/_versions/{manifest_name(state.number)}"
            if (state.path, state.version) in going or not self._objects.exists(manifest):
                raise reclaimed(state)


def forked_at_once(since: float) -> bool:
    """Whether so little time passed since a head was read that no cleanup can have overlooked a fork of it."""
    return time.monotonic() - since < SETTLE_SECONDS
