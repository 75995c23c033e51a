"""Caches in memory: those of one handle, bounded by number, and those that a process shares, bounded by bytes.

Everything that a handle remembers per branch, commit, schema or table version is in a `RecentlyUsed` or has a bound of
its own. Derived data is in `SHARED_MEMORY`: it is named by immutable content, so all handles of a process share it and
nothing goes stale. `uses` reports how much each part holds, `lookups` its hits. Forgetting a value costs a request or
time, and never a result.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from omnigraph.errors import BadRequestError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """At most `most` values; the one that was not asked for longest goes first. Safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def __setitem__(self, key: Key, value: Value) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def pop(self, key: Key) -> Value | None:
        with self._lock:
            return self._values.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


class Part(Protocol):
    """One cache: its byte limit, how much it holds, and how to empty it."""

    limit: int
    lookups: Lookups

    def held_bytes(self) -> int: ...

    def clear(self) -> None: ...


@dataclass(slots=True)
class Lookups:
    """How often something was looked for, and found. For people to read: threads may lose one now and then."""

    hits: int = 0
    misses: int = 0

    def count(self, hits: int, misses: int) -> None:
        self.hits += hits
        self.misses += misses


class Use(NamedTuple):
    """Bytes held, of how many at most."""

    held: int
    limit: int


PartType = TypeVar("PartType", bound=Part)
Kept = TypeVar("Kept")


class SharedMemory:
    """The caches of a process by name."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def add(self, name: str, part: PartType) -> PartType:
        if name in self._parts:
            raise ValueError(f"there is a cache named '{name}' already")
        self._parts[name] = part
        return part

    def uses(self) -> dict[str, Use]:
        return {name: Use(part.held_bytes(), part.limit) for name, part in sorted(self._parts.items())}

    def lookups(self) -> dict[str, Lookups]:
        return {name: part.lookups for name, part in sorted(self._parts.items())}

    def clear(self) -> None:
        for part in self._parts.values():
            part.clear()


SHARED_MEMORY: Final = SharedMemory()


def bytes_from_environment(variable: str, default: int) -> int:
    """The limit of a part that a variable of the environment sets."""
    text = os.environ.get(variable, "").strip()
    if text and not text.isdecimal():
        raise BadRequestError(f"{variable} is '{text}'; write a number of bytes, such as {default}, or 0 for none")
    return int(text) if text else default


class ByteBoundCache(Generic[Kept]):
    """The most recently used values under a byte limit. Keys name immutable content, so nothing ever goes stale."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lookups = Lookups()
        self._values: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Kept | None:
        with self._lock:
            entry = self._values.get(key)
            self.lookups.count(int(entry is not None), int(entry is None))
            if entry is None:
                return None
            self._values.move_to_end(key)
            return entry[0]

    def keep(self, key: Hashable, value: Kept, nbytes: int) -> Kept:
        """Remember a value of so many bytes, unless it alone is over the limit."""
        with self._lock:
            if key not in self._values and nbytes <= self.limit:
                self._values[key] = value, nbytes
                self._bytes += nbytes
                while self._bytes > self.limit:
                    self._bytes -= self._values.popitem(last=False)[1][1]
        return value

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def held_bytes(self) -> int:
        return self._bytes

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._bytes = 0
