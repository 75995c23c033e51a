"""The law that no input is slower than about linear, judged by processor time: a busy machine must not matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from omnigraph.errors import CompileError

GROWTH = 8
ALLOWED = 24
"""Eight times the input takes eight times as long when linear and sixty-four times when quadratic."""


def assert_about_linear(action: Callable[[str], object], grow: Callable[[int], str], size: int) -> None:
    """A single reading may be disturbed; a law that fails three times in a row is broken."""
    for _ in range(3):
        small, large = _least(action, grow(size)), _least(action, grow(GROWTH * size))
        if large < ALLOWED * small + 0.01:
            return
    raise AssertionError(f"{GROWTH} times the input took {large / small:.0f} times as long")


def _least(action: Callable[[str], object], text: str) -> float:
    best = float("inf")
    for attempt in range(3):
        varied = text + " " * attempt  # a fresh text: no cache may answer
        started = time.thread_time()
        with suppress(CompileError):
            action(varied)
        best = min(best, time.thread_time() - started)
    return best
