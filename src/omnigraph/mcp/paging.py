"""Answers within a budget: as many items as fit, and a token that continues exactly where they ended.

A token is short, because a model has to repeat it. It names the commits that the first page read and how many items
were delivered; everything else is asked for again, and a digest tells whether it was. Nothing is kept between pages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from omnigraph.api import wire
from omnigraph.errors import BadRequestError
from omnigraph.mcp.terms import Terms

_TOKEN: Final = re.compile(r"c1\.(\d{1,12})\.([0-9a-f]{8})((?:\.[A-Za-z0-9_-]{1,64})*)")
_CUTS: Final = (4000, 1000, 250, 60, 20)
SHORTENED: Final = "an item larger than the whole answer may be was shortened: its cut values end in '…'"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a result a call stands: the commits that its first page read, none on the first page itself."""

    asked: bytes
    """A digest of the tool and its arguments."""
    pins: tuple[str, ...] = ()
    delivered: int = 0

    @classmethod
    def of(cls, tool: str, arguments: Any, continuation: str | None) -> Place:
        given = {name: value for name, value in msgspec.to_builtins(arguments).items() if name != "continuation"}
        first = cls(hashlib.sha256(msgspec.json.encode([tool, given], order="sorted")).digest())
        if continuation is None:
            return first
        found = _TOKEN.fullmatch(continuation.strip())
        if found is not None:
            place = cls(first.asked, tuple(found[3].split(".")[1:]), int(found[1]))
            if place.token(place.pins, place.delivered) == found[0]:
                return place
        raise BadRequestError(
            f"continuation '{continuation[:80]}' does not belong to this call; repeat the arguments of the first "
            "call exactly and add the continuation of its answer, or leave the continuation out to start again"
        )

    @property
    def pin(self) -> str | None:
        return self.pins[0] if self.pins else None

    def token(self, pins: Iterable[str], delivered: int) -> str:
        """The place after so many items. It tells a letter that was copied wrong from the right one."""
        position = (str(delivered), *pins)
        check = hashlib.sha256(self.asked + ".".join(position).encode()).hexdigest()[:8]
        return ".".join(["c1", position[0], check, *position[1:]])

    def page(
        self,
        terms: Terms,
        head: Mapping[str, Any],
        name: str,
        items: Iterable[Any],
        pins: Callable[[], Iterable[str]] = tuple,
    ) -> dict[str, Any]:
        """An answer with the members of `head` and, as member `name`, the items from here on that fit. Only a page
        that is continued asks for its pins."""
        room = terms.max_bytes - len(wire.encode(head))
        taken: list[Any] = []
        remaining = islice(items, self.delivered, None)
        for item, size in _sized(remaining):
            if taken and size > room:
                return {
                    **head,
                    name: taken,
                    "continuation": self.token(pins(), self.delivered + len(taken)),
                    "note": "there is more: call again with the same arguments and this continuation",
                }
            if size > room:
                item, head = shortened(item, room), {**head, "shortened": SHORTENED}
            taken.append(item)
            room -= size
        return {**head, name: taken}


def _sized(items: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    for item in items:
        built = wire.to_builtins(item)
        yield built, len(msgspec.json.encode(built)) + 1


def shortened(item: Any, room: int) -> Any:
    """An item that is too large by itself, with its long texts and lists cut until it fits, or is as short as it
    gets."""
    for cut in _CUTS:
        item = _cut(item, cut)
        if len(msgspec.json.encode(item)) <= room:
            break
    return item


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}…"
    if isinstance(value, dict):
        return {key: _cut(member, length) for key, member in value.items()}
    if isinstance(value, list):
        kept = [_cut(member, length) for member in value[: max(2, length // 8)]]
        return kept if len(kept) == len(value) else [*kept, f"{len(value) - len(kept)} more …"]
    return value
