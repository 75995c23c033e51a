"""The parent process of a server: it has the socket, lets uvicorn supervise the workers, and returns the exit code.

`omnigraph serve` calls `serve`. uvicorn's own supervisor starts the workers, replaces those that die or do not react,
and passes signals on. This process must never load what opens graphs: a crash of that code may only end a worker.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from omnigraph.errors import OmniGraphError
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.listener import BACKLOG, bind
from omnigraph.server.runtime.run_directory import run_directory
from omnigraph.server.runtime.worker import Ending, Program, Worker
from omnigraph.server.settings import ServerLimits, Settings

REFUSED: Final = 1
_HEALTH_SECONDS: Final = 20
"""uvicorn replaces a worker that does not react for so long, and may need as long before it sees a signal."""

logger: Final = logging.getLogger("omnigraph.server")


def serve(settings: Settings, program: Program) -> int:
    """Run a server until a signal ends it; returns its exit code."""
    logs.configure()
    if settings.limits.header_seconds:
        logger.warning("--header-seconds has no effect: limit slow headers in the proxy (docs/user/server.md)")
    try:
        with bind(settings.host, settings.port) as listener, run_directory() as directory, _restore_signals():
            worker = Worker(settings, program, listener, directory)
            options = http_options(settings.limits)
            config = Config(worker, factory=True, workers=settings.workers, **options)
            supervisor = Multiprocess(config, [listener])
            with _end_in_time(supervisor, listener, Ending(settings.limits.drain_seconds)):
                supervisor.run()
            refusal = directory.refusal()
    except OmniGraphError as error:
        refusal = str(error)
    if refusal is not None:
        print(f"Error: {refusal}", file=sys.stderr, flush=True)
        return REFUSED
    failed = any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes)
    return REFUSED if failed else 0


def http_options(limits: ServerLimits) -> dict[str, Any]:
    """The options of uvicorn that our servers run with."""
    return {
        "interface": "asgi3",
        "lifespan": "on",
        "http": "h11",  # the one of uvicorn's parsers that limits headers
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": BACKLOG,
        "limit_concurrency": limits.connections,
        "h11_max_incomplete_event_size": limits.header_bytes,
        "timeout_keep_alive": limits.keep_alive_seconds,
        "timeout_graceful_shutdown": Ending(limits.drain_seconds).requests,
        "timeout_worker_healthcheck": _HEALTH_SECONDS,
    }


@contextmanager
def _end_in_time(supervisor: Multiprocess, listener: socket.socket, ending: Ending) -> Iterator[None]:
    """Once a signal has come: turn clients away, and kill the workers that have not ended in time."""
    ended = threading.Event()

    def watch() -> None:
        supervisor.should_exit.wait()
        listener.close()  # clients would queue where no worker accepts them
        if not ended.wait(ending.kill):
            for process in supervisor.processes:
                if process.exitcode is None:
                    logger.error("worker %s has not ended and is killed", process.pid)
                    process.kill()

    watcher = threading.Thread(target=watch, name="omnigraph-end", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def _restore_signals() -> Iterator[None]:
    """Give a program that runs a server back the signal handlers that it had before."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
