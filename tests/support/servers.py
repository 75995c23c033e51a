"""Real server processes: started with any flags on a port of their own, spoken to over sockets, ended by signals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import GIVE_UP, wait_until

WITHOUT_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For `verify=` of httpx clients: making one otherwise reads every certificate of the machine, 40 ms each time."""
REPOSITORY = Path(__file__).resolve().parents[2]
LISTENS = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(.+):(\d+)")


class ServerProcess:
    """One `omnigraph serve`, or another module that starts a server; use `served` or `start` to have it listening."""

    def __init__(
        self, *arguments: str, module: str = "omnigraph.cli.main", environment: Mapping[str, str] | None = None
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process fails, gone with this object)
        self.temporary = Path(tempfile.mkdtemp(prefix="served-"))
        """Where it puts its temporary files, which nobody removes when everybody is killed."""
        search = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": search, "TMPDIR": str(self.temporary), **(environment or {})},
        )
        self.host, self.port = "", 0
        self.lines: list[str] = []
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def wait_listening(self) -> ServerProcess:
        """Until it prints its address. Fails with what it wrote to stderr when it ends instead."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if (found := LISTENS.fullmatch(line.strip())) is not None:
                self.host, self.port = found[1], int(found[2])
                # Nobody reads on, so that a full pipe would hold up whoever writes to it.
                self._reader = threading.Thread(target=self._read_on, daemon=True)
                self._reader.start()
                return self
        raise AssertionError(f"the server ended with {self.process.wait()} and did not listen:\n{self.errors()}")

    def _read_on(self) -> None:
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=GIVE_UP)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def terminate(self) -> int:
        """SIGTERM; the exit code it then leaves with."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        code = self.process.wait(GIVE_UP)
        if self._reader is not None:
            self._reader.join(GIVE_UP)
        return code

    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return os.pread(self._errors.fileno(), 1 << 24, 0).decode(errors="replace")

    def workers(self) -> list[int]:
        """The process ids of its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sorted(int(pid) for pid in children if b"spawn_main" in _command_of(pid))


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def served(
    *arguments: str, module: str = "omnigraph.cli.main", environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server that listens, for the block; killed with its workers behind it if it still runs."""
    server = ServerProcess(*arguments, module=module, environment=environment)
    try:
        yield server.wait_listening()
    finally:
        orphans = server.workers() if server.process.poll() is None else []
        if server.process.poll() is None:
            server.kill()
        for pid in orphans:
            with_force(pid)
        assert server.process.stdout is not None
        if server._reader is not None:
            server._reader.join(GIVE_UP)
        server.process.stdout.close()
        shutil.rmtree(server.temporary)


def with_force(pid: int) -> None:
    """Kill a worker and wait until it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_until(lambda: not is_alive(pid), f"process {pid} is gone")


def refused(
    *arguments: str, module: str = "omnigraph.cli.main", environment: Mapping[str, str] | None = None
) -> tuple[int, str, Sequence[str]]:
    """Exit code, stderr and lines on stdout of a server that does not start."""
    server = ServerProcess(*arguments, module=module, environment=environment)
    output, _ = server.process.communicate(timeout=GIVE_UP)
    shutil.rmtree(server.temporary)
    return server.process.returncode, server.errors(), output.splitlines()
