"""What the processes that tests start have in common: how they speak, and how they die."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable

from omnigraph import Graph
from omnigraph.storage.log.tracing import Trace

KILL_AT = "OMNIGRAPH_KILL_AT"
STEP, SOON_AFTER_STEP, DYING = "step", "soon after step", "dying"


def say(*words: object) -> None:
    """One line, written before the next step begins: what the parent reads is what has happened."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def killing_trace() -> Trace:
    """Kills this process the n-th time it passes the point that `OMNIGRAPH_KILL_AT=<point>:<n>` names, if it is set."""
    trace = Trace()
    point, _, count = os.environ.get(KILL_AT, "").partition(":")
    passes = itertools.count(1)

    def observe(reached: str) -> None:
        if reached == point and next(passes) == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    trace.observer = observe
    return trace


class Steps:
    """Counts all that can be seen of a handle's progress: points it passes, requests it begins and ends."""

    def __init__(self, graph: Graph, at: Callable[[int], None] = lambda step: None) -> None:
        self._numbers = itertools.count(1)
        self._at = at
        self.count = 0
        graph._workspace.root.trace.observer = self.step
        graph._workspace.root.objects.interceptor = self

    def step(self, *what: str) -> None:
        self.count = next(self._numbers)
        self._at(self.count)

    before = after = step


def die_at_a_step(graph: Graph) -> None:
    """`OMNIGRAPH_KILL_AT=step:<n>` kills this process at its n-th step. With `soon after step:<n>` it says that it is
    dying and goes on: whoever hears it kills it, in the midst of whatever it does by then, native code included."""
    kind, _, number = os.environ.get(KILL_AT, "").partition(":")

    def at(step: int) -> None:
        if step == int(number) and kind == STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        elif step == int(number):
            say(DYING)

    if kind in (STEP, SOON_AFTER_STEP):
        Steps(graph, at)
