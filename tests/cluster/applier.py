"""Another process that applies a cluster and is killed before its n-th write."""

from __future__ import annotations

import os
import signal
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
    with watched(Killed(int(nth))):
        say("applied", ClusterFiles(Path(directory)).apply().converged)
