"""Waiting for what must happen: as long as it takes, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

GIVE_UP = 600.0
"""Seconds. No machine is that slow; it is a fault when this is reached."""


def wait_until(condition: Callable[[], object], awaited: str) -> None:
    until = time.monotonic() + GIVE_UP
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"in {GIVE_UP:.0f} seconds it did not happen that {awaited}")
        time.sleep(0.005)
