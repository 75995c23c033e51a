"""Pins: places in main's history that a write in flight builds on.

Cleanup may release any version of main but the head. A branch made from main, and a merge of main into a branch, name
table versions of a commit that stops being the head while they work. They pin it first: an empty object whose name
says from which version on main must stay. Cleanup keeps what a pin names as if a branch stood there. The protocol
that makes this safe is in docs/dev/protocol.md; a pin that its writer left behind is ignored after the grace period,
when that writer would refuse to publish.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from omnigraph.errors import StorageError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.objects import Objects

_PINS: Final = "__manifest/pins"
_NAME = re.compile(r"[0-9A-Z]{26}\.(\d+)-(\d*)")


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
        self._releasing: set[str] = set()

    @contextlib.contextmanager
    def hold(self, first: int, last: int | None = None) -> Iterator[None]:
        """Keep versions of main from cleanup while the block runs. Only what is looked at inside it is held."""
        path = f"{_PINS}/{new_ulid()}.{first}-{'' if last is None else last}"
        self._objects.put(path, b"")
        try:
            yield
        finally:
            self._releasing.add(path)
            try:
                self._workers.submit(self._release, path)
            except RuntimeError:  # the handle is closing
                self._release(path)

    def _release(self, path: str) -> None:
        with contextlib.suppress(StorageError):  # it is ignored after the grace period
            self._objects.delete(path)
        self._releasing.discard(path)

    def pending(self) -> bool:
        """Whether a pin is still being removed in the background."""
        return bool(self._releasing)

    def standing(self) -> list[Pin]:
        """Every pin, also those that were left behind."""
        pins = []
        for stored in self._objects.below(_PINS):
            if (found := _NAME.fullmatch(stored.path.removeprefix(f"{_PINS}/"))) is not None:
                last = int(found[2]) if found[2] else None
                pins.append(Pin(stored.path, int(found[1]), last, stored.modified))
        return pins

    def forget(self, pins: list[Pin]) -> None:
        """Remove pins that nobody can rely on any more."""
        self._objects.delete_all([pin.path for pin in pins])
