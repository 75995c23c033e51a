"""Where ids come from: derived from keys, given explicitly, or minted."""

from __future__ import annotations

import pyarrow as pa


def new_ulids(count: int) -> pa.Array:
    """Fresh ULIDs as a string column."""
    raise NotImplementedError
