"""The command line, stopped as soon as it has told that a stage is over: an interrupt comes at that very point.

python -m tests.pipeline.interrupted STAGE ARGUMENT ...
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys

from omnigraph.cli.main import main


class StopsAfter(io.TextIOWrapper):
    """Standard output; this process stops when it has written the line of the stage, until somebody sends SIGCONT."""

    stage = ""
    _told = False

    def write(self, text: str) -> int:
        self._told = self._told or (text.startswith("{") and json.loads(text).get("stage") == self.stage)
        return super().write(text)

    def flush(self) -> None:
        super().flush()
        if self._told:
            self._told = False
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    sys.stdout = StopsAfter(sys.stdout.detach())
    sys.stdout.stage = sys.argv[1]
    main(sys.argv[2:])
