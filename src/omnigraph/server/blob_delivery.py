"""How a blob is delivered: preconditions and ranges of HTTP, in the order in which they are evaluated.

Pure: from the headers of a request, the tag and the length of the value, to the status and the part that is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import BlobRangeError
from omnigraph.server.entity_tags import is_this_strong_tag, matches_strongly, matches_weakly

_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.IGNORECASE | re.ASCII)
_LARGEST_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """The bytes from `start` up to, not including, `end` are sent, unless the status says that nothing is."""

    status: int
    start: int = 0
    end: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start


def delivery(headers: Mapping[str, str], tag: str, length: int, *, is_head: bool) -> Delivery:
    """What a request for a value gets. A range that the value does not have is a `BlobRangeError`."""
    if (wanted := headers.get("if-match")) is not None and not matches_strongly(wanted, tag):
        return Delivery(412)
    if (known := headers.get("if-none-match")) is not None and matches_weakly(known, tag):
        return Delivery(304, 0, length)
    whole = Delivery(200, 0, length)
    if is_head or (asked := headers.get("range")) is None:
        return whole
    if (of := headers.get("if-range")) is not None and not is_this_strong_tag(of, tag):
        return whole
    part = _part(asked, length)
    return whole if part is None else Delivery(206, *part)


def _part(header: str, length: int) -> tuple[int, int] | None:
    """The range as start and end; None for one that is malformed, which HTTP says to ignore."""
    found = _RANGE.fullmatch(header)
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(number) if number else None for number in found.groups())
    if (first or 0) > _LARGEST_NUMBER or (last or 0) >= _LARGEST_NUMBER:
        return None
    if first is None:
        size = min(last or 0, length)
        if size == 0:
            raise BlobRangeError(length, length, length)
        return length - size, length
    if last is not None and last < first:
        return None
    end = length if last is None else last + 1
    if first >= length:
        raise BlobRangeError(first, end, length)
    return first, min(end, length)
