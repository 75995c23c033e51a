"""What the processes that tests start have in common: how they speak, and how they die."""

from __future__ import annotations

import itertools
import os
import signal

from omnigraph.storage.tracing import Trace

KILL_AT = "OMNIGRAPH_KILL_AT"


def say(*words: object) -> None:
    """One line, flushed before the next step begins: what the parent reads is what has happened."""
    print(*words, flush=True)


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
