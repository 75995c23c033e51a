"""Starting real processes that work on a graph, and reading what they acknowledged."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.child import DYING, KILL_AT

REPOSITORY = Path(__file__).resolve().parents[2]
BORN_OFTEN = (
    "tests.storage.writer",
    "tests.engine.keeper",
    "tests.engine.fleet",
    "tests.engine.writer",
    "tests.torture.worker",
)


class Process:
    """A process that runs `main(*arguments)` of a module; see `tests.support.nursery` and, for `kill_at`, `child`."""

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None, kill_at: str = ""
    ) -> None:
        told, tell = os.pipe()
        hear, said = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process fails, gone with this object)
        wanted = ["start", module, arguments, {**os.environ, **(environment or {}), KILL_AT: kill_at}]
        descriptors = [told, said, self._errors.fileno()]
        self.pid = ask_nursery(wanted, descriptors)
        os.close(told)
        os.close(said)
        self.stdin = os.fdopen(tell, "w")
        self.stdout = os.fdopen(hear)
        self.returncode: int | None = None

    def wait_ready(self) -> None:
        line = self.stdout.readline()
        if line.strip() != "ready":
            self.wait()
            raise AssertionError(f"the process did not start: {line}{self.errors()}")

    def go(self) -> None:
        self.tell("go")

    def tell(self, line: str) -> None:
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if self.returncode is None:
            self.returncode = ask_nursery(["wait", self.pid])
            self.stdin.close()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def next_acknowledged(self) -> list[str]:
        """The next line it prints, split into words. Waits for it."""
        line = self.stdout.readline()
        if not line.strip():
            self.wait()
            raise AssertionError(f"the process ended with {self.returncode}:\n{self.errors()}")
        return line.split()

    def kill_when_dying(self) -> list[list[str]]:
        """What it acknowledged until it said that it is dying, which is when it is killed. May run in a thread."""
        said = []
        for line in self.stdout:
            if line.strip() == DYING:
                self.kill()
            else:
                said.append(line.split())
        return said

    def acknowledged(self) -> list[list[str]]:
        """The lines it printed until it ended and that nobody has read yet, split into words."""
        output = self.stdout.read()
        self.stdout.close()
        self.wait()
        if self.returncode not in (0, -9):
            raise AssertionError(f"the process failed with {self.returncode}:\n{self.errors()}")
        return [line.split() for line in output.splitlines() if line.strip()]


def start_together(processes: list[Process]) -> None:
    """Let every process begin at the same moment."""
    for process in processes:
        process.wait_ready()
    for process in processes:
        process.go()


@cache
def nursery() -> socket.socket:
    here, there = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.nursery", str(there.fileno()), *BORN_OFTEN],
        pass_fds=[there.fileno()],
        env=environment,
        cwd=REPOSITORY,
    )
    there.close()
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def ask_nursery(request: list[Any], descriptors: list[int] | None = None) -> int:
    line = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(nursery(), [line], descriptors or [])
    nursery().sendall(line[sent:])
    return int(nursery().makefile().readline())


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has reached the process, and no SIGCONT since."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False
