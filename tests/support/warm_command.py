"""`omnigraph` for scripts that call it by the dozen: a process of its own each time, forked from one that has done the
imports, which take longer than most commands.

    python -m tests.support.warm_command SOCKET

`install` writes a program that hands its arguments, directory, environment and standard streams to that process and
exits with the code of the fork. The fork knows nothing of earlier ones: nothing but imports happens before it.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.nursery import next_request

REPOSITORY = Path(__file__).resolve().parents[2]

CLIENT = """\
#!{python} -IS
import json, os, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
line = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n"
sent = socket.send_fds(server, [line], [0, 1, 2])
server.sendall(line[sent:])
sys.exit(int(server.recv(16)))
"""


@contextmanager
def installed(program: Path) -> Iterator[Path]:
    """While this lasts, `program` is the command line of this source tree."""
    address = f"{program}.socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(16)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_command", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}",
            },
        )
        program.write_text(CLIENT.format(python=sys.executable, address=address))
        program.chmod(0o755)
        try:
            yield program
        finally:
            server.kill()
            server.wait()


def main(listening: str) -> None:
    warnings.filterwarnings("ignore", "lance is not fork-safe")
    import omnigraph.cli.main
    import omnigraph.cluster.commands.apply
    import omnigraph.graph  # noqa: F401  (what almost every command imports when it runs)

    gc.freeze()  # so that no fork looks for garbage here
    listener = socket.socket(fileno=int(listening))
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _serve(client)
        client.close()
        while _reaped():
            pass


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _serve(client: socket.socket) -> None:
    """Run one command in a fork, and tell who asked how it ended."""
    request = next_request(client)
    if request is None:
        os._exit(0)
    (arguments, directory, environment), descriptors = request
    pid = os.fork()
    if pid == 0:
        client.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["omnigraph", *arguments]
        code = 0
        try:
            sys.modules["omnigraph.cli.main"].main()
        except SystemExit as exit:
            code = int(exit.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    client.sendall(f"{code % 256}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
