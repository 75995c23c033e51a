"""Where the processes that tests start by the hundred are born.

Importing Arrow and Lance takes longer than what such a process does, so one process imports them once and forks the
others. Each is a process of its own, with its own memory, store clients and threads, and dies of SIGKILL like any
other. Nothing but imports may happen here before a fork, because threads don't survive it.

    python -m tests.support.nursery FD MODULE ...

Requests come over the socket FD as lines of JSON. `["start", module, arguments, environment]`, sent with the
descriptors to use as standard input, output and error, is answered with the process id; `["wait", pid]` with the
return code.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import socket
import sys
import warnings
from typing import Any


def next_request(parent: socket.socket) -> tuple[list[Any], list[int]] | None:
    """One line of JSON and the descriptors that came with it; None when nobody is left to ask."""
    line, descriptors = b"", []
    while not line.endswith(b"\n"):
        part, passed, _, _ = socket.recv_fds(parent, 1 << 16, 3)
        if not part:
            return None
        line += part
        descriptors += passed
    return json.loads(line), descriptors


def live(module: str, arguments: list[str], environment: dict[str, str], descriptors: list[int]) -> None:
    """The life of a forked process: it ends as any Python program ends, when `main` is through or raises."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    faulthandler.enable()
    importlib.import_module(module).main(*arguments)


def main(descriptor: str, *modules: str) -> None:
    warnings.filterwarnings("ignore", "lance is not fork-safe")  # once it has worked; here it was only imported
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # a process looks for garbage when it ends; none of it is here
    parent = socket.socket(fileno=int(descriptor))
    while (request := next_request(parent)) is not None:
        (what, *details), descriptors = request
        if what == "start":
            pid = os.fork()
            if pid == 0:
                parent.close()
                live(*details, descriptors)
                return
            for number in descriptors:
                os.close(number)
            answer = pid
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(details[0], 0)[1])
        parent.sendall(f"{answer}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
