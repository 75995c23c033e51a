"""What one operation may use: the ceilings that a handle is opened with."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_ROWS = 2_000_000
DEFAULT_BYTES = 512 << 20
DEFAULT_QUERY_MEMORY_BYTES = 4 << 30


class Limits(Struct, frozen=True):
    """What one write may hold in memory. Beyond it the input belongs to the Spark pipeline."""

    rows: int = DEFAULT_ROWS
    bytes: int = DEFAULT_BYTES
