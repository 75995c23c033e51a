"""When nothing can happen any more until somebody outside acts: a fact about threads, on a machine of any speed.

Linux says of every thread whether it sleeps and how often it was switched to. When all others sleep, and a moment later
(in which whoever waits for the interpreter gets it) still sleep without having run, this process does nothing more.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

LOOKS = 5
BETWEEN_LOOKS = 0.003

_STATUS = re.compile(
    r"^State:\s*(\S).*^voluntary_ctxt_switches:\s*(\d+)\s*^nonvoluntary_ctxt_switches:\s*(\d+)",
    re.MULTILINE | re.DOTALL,
)


def all_others_sleep() -> bool:
    first = _others()
    if first is None:
        return False
    for _ in range(LOOKS - 1):
        time.sleep(BETWEEN_LOOKS)
        if _others() != first:
            return False
    return True


def _others() -> dict[str, tuple[str, ...]] | None:
    """How often each other thread ran; None when one runs, or could."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if task.name == str(threading.get_native_id()):
            continue
        try:
            status = _STATUS.search((task / "status").read_text())
        except OSError:
            return None  # it ended just now
        if status is None or status[1] != "S":
            return None
        found[task.name] = status.groups()
    return found
