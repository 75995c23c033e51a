"""How long a write may be in flight, and the watch that every write carries.

Files that no commit names yet, and pins, are safe from cleanup for the grace period. A write that took half of it
refuses to publish, so that what it staged can't have been taken for garbage. Pure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Self

from omnigraph.api.maintenance import GRACE
from omnigraph.errors import WriteExpiredError

LONGEST_WRITE: Final = GRACE / 2


@dataclass(frozen=True, slots=True)
class WriteAge:
    """When a write began, by two clocks: one stands still while some machines sleep, the other can be turned."""

    running: float
    wall: float

    @classmethod
    def beginning_now(cls) -> Self:
        return cls(running_seconds(), time.time())

    @property
    def seconds(self) -> float:
        return max(running_seconds() - self.running, time.time() - self.wall)

    def refuse_overdue(self) -> None:
        """Call right before a write becomes visible."""
        if self.seconds > LONGEST_WRITE.total_seconds():
            raise WriteExpiredError(self.seconds / 86_400, LONGEST_WRITE.total_seconds() / 86_400)


def running_seconds() -> float:
    """Seconds that also pass while the machine is suspended, where the system counts them."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)
