"""Answers within a budget: as many items as fit, and a token that continues exactly where they ended.

A token is short, because a model has to repeat it. It names the commits that the first page read and how many items
were delivered; everything else is asked for again, and a digest tells whether it was. Nothing is kept between pages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
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

    digest: str
    pins: tuple[str, ...] = ()
    delivered: int = 0

    @classmethod
    def of(cls, tool: str, arguments: Any, continuation: str | None) -> Place:
        asked = {name: value for name, value in msgspec.to_builtins(arguments).items() if name != "continuation"}
        digest = hashlib.sha256(msgspec.json.encode([tool, asked], order="sorted")).hexdigest()[:8]
        if continuation is None:
            return cls(digest)
        found = _TOKEN.fullmatch(continuation.strip())
        if found is None or found[2] != digest:
            raise BadRequestError(
                f"continuation '{continuation[:80]}' does not belong to this call; repeat the arguments of the first "
                "call exactly and add the continuation of its answer, or leave the continuation out to start again"
            )
        return cls(digest, tuple(found[3].split(".")[1:]), int(found[1]))

    @property
    def pin(self) -> str | None:
        return self.pins[0] if self.pins else None

    def token(self, pins: Iterable[str], delivered: int) -> str:
        return ".".join(["c1", str(delivered), self.digest, *pins])

    def page(
        self, terms: Terms, head: Mapping[str, Any], name: str, items: Iterable[Any], pins: Iterable[str] = ()
    ) -> dict[str, Any]:
        """An answer with the members of `head` and, as member `name`, the items from here on that fit."""
        room = terms.max_bytes - len(wire.encode(head))
        taken: list[Any] = []
        remaining = islice(items, self.delivered, None)
        for item, size in _sized(remaining):
            if taken and size > room:
                return {
                    **head,
                    name: taken,
                    "continuation": self.token(pins, self.delivered + len(taken)),
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
