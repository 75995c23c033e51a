"""Which small fragments a write should fold into one, so that reads do not decay while nobody runs `optimize`.

Size-tiered: a fold takes fragments of similar size, so a row is rewritten a logarithmic number of times. Below
`FLOOR_BYTES` the number of requests is the cost and not the bytes, so everything that small counts as one tier. Such a
tier is written again by every fifth commit and every copy stays until cleanup, so the floor is low: at 1 MiB, 20,000
commits of 200 bytes would write 1,940 MB, at 64 KiB they write 148 MB and leave six fragments on average, not four.
Pure policy; the tables module carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FOLD_AT = 6
"""Fragments of one tier that trigger a fold. A table that is only appended to keeps at most five per tier."""
FLOOR_BYTES = 64 << 10
CEILING_BYTES = 64 << 20
"""Fragments above this are left to `optimize`."""


@dataclass(frozen=True, slots=True)
class FragmentSize:
    fragment_id: int
    bytes: int
    indexed: bool


def fragments_to_fold(fragments: Sequence[FragmentSize]) -> list[int]:
    """The ids of the smallest tier that is full, empty when none is.

    Fragments that an index covers are never touched: folding them would throw coverage away.
    """
    small = sorted(
        (f for f in fragments if not f.indexed and f.bytes <= CEILING_BYTES), key=lambda f: (f.bytes, f.fragment_id)
    )
    start = 0
    while start < len(small):
        end, total = start + 1, small[start].bytes
        while end < len(small) and small[end].bytes <= max(FLOOR_BYTES, total):
            total += small[end].bytes
            end += 1
        if end - start >= FOLD_AT:
            return sorted(f.fragment_id for f in small[start:end])
        start = end
    return []
