"""Another process that applies a cluster, and may be killed before its n-th write."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.support.child import say
from tests.support.cluster_files import ClusterFiles
from tests.support.every_store import Death, watched


class Killed(Death):
    def before(self, kind: str, path: str) -> None:
        self.seen += self.meant(kind, path)
        if self.seen >= self.nth:
            os.kill(os.getpid(), signal.SIGKILL)


def main(directory: str, nth: str) -> None:
    """Without a number it lives, and waits for the word to begin."""
    if not nth:
        say("ready")
        sys.stdin.readline()
        report = ClusterFiles(Path(directory)).apply()
        say("converged" if report.converged else "late", *" ".join(map(str, report.diagnostics)).split())
        return
    with watched(Killed(int(nth))):
        ClusterFiles(Path(directory)).apply()
    say("lived")
