"""The header by which servers, gateways and providers say when they want to be asked again."""

from __future__ import annotations

import time


def retry_after_seconds(header: str | None) -> float | None:
    """The seconds that a `Retry-After` asks to wait, given as their number or as a date. None when it says nothing."""
    told = (header or "").strip()
    if told.isascii() and told.isdigit():
        return float(told)
    from email.utils import parsedate_to_datetime  # as large as the whole contract, and hardly ever needed

    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except ValueError:
        return None
