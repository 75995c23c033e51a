"""Places: where a row of one table version stands, as one number that orders rows as the table does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PLACE: Final = "_place"
"""The fragment of a row in the upper half, its physical offset there in the lower."""

OFFSET_BITS: Final = 32
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1


def by_fragment(places: Iterable[int]) -> dict[int, list[int]]:
    """The offsets of each fragment, ascending and each once; fragments in order."""
    found: dict[int, set[int]] = {}
    for place in places:
        found.setdefault(place >> OFFSET_BITS, set()).add(place & _OFFSET_MASK)
    return {fragment: sorted(offsets) for fragment, offsets in sorted(found.items())}
