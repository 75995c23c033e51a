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
    """A disturbance only makes a reading longer: the large input is read again until it was quick enough once."""
    small, large = grow(size), grow(GROWTH * size)
    little = min(_seconds(action, small, reading) for reading in range(3))
    best = float("inf")
    for reading in range(9):
        best = min(best, _seconds(action, large, reading))
        if best < ALLOWED * little + 0.01:
            return
        little = min(little, _seconds(action, small, 3 + reading))
    raise AssertionError(f"{GROWTH} times the input took {best / little:.0f} times as long")


def _seconds(action: Callable[[str], object], text: str, reading: int) -> float:
    varied = text + " " * reading  # a fresh text: no cache may answer
    started = time.thread_time()
    with suppress(CompileError):
        action(varied)
    return time.thread_time() - started
