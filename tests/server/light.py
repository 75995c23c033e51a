"""A server without graphs, for tests of the process around the application.

    python -m tests.server.light SETTINGS

SETTINGS is a JSON object of `Settings`, `limits` of `ServerLimits`. `refuses` and `dies` name workers that don't boot.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omnigraph.errors import OmniGraphError, TooManyRequestsError
from omnigraph.server.reload import ServingSets
from omnigraph.server.runtime.context import WorkerContext
from omnigraph.server.runtime.supervisor import serve
from omnigraph.server.runtime.tracing import RequestRecord
from omnigraph.server.runtime.worker import Program
from omnigraph.server.settings import ServerLimits, Settings

ROOM = "OMNIGRAPH_TEST_ROOM"
"""A directory in which server and test leave each other files."""


def _in_python() -> None:
    while True:
        pass


STUCK = {
    "python": _in_python,
    "native": lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1),
    "alone": lambda: re.fullmatch(r"(a|aa)+b", "a" * 200),
}
"""Work that does not end by itself: in Python, in native code, and in native code that lets no other thread run."""


def boot(settings: Settings, revision: int | None) -> Any:
    room = Path(os.environ[ROOM])
    boots = len(list(room.glob("boot-*")))
    (room / f"boot-{os.getpid()}").write_text(json.dumps(revision))
    if (room / "take").exists() and not boots:
        globals()["taken"] = socket.create_server(("127.0.0.1", settings.port))
    if (room / "refuse").exists() and boots >= int((room / "refuse").read_text()):
        raise OmniGraphError("no healthy graphs")
    if (room / "die_once").exists() and boots == int((room / "die_once").read_text()):
        (room / "die_once").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return _serving(revision or 7), None


def _serving(revision: int) -> Any:
    closed = Path(os.environ[ROOM]) / f"closed-{os.getpid()}"
    return SimpleNamespace(graphs={}, state=None, revision=revision, cluster_root="here", close=closed.touch)


def newer_than(cluster_root: str) -> Any:
    """The newest revision is the one that the test has written into a file."""
    file = Path(os.environ[ROOM]) / "newest"

    def newer(revision: int) -> int | None:
        newest = int(file.read_text()) if file.exists() else 0
        return newest if newest > revision else None

    return newer


def renew(before: Any, has_tokens: bool, settings: Settings, revision: int) -> Any:
    """Builds what is served for as long as the test likes."""
    room = Path(os.environ[ROOM])
    (room / f"renewing-{os.getpid()}").touch()
    while not (room / f"go-{revision}").exists():
        time.sleep(0.005)
    if (room / f"go-{revision}").read_text() == "broken":
        raise OmniGraphError(f"revision {revision} is broken")
    return _serving(revision)


def application(states: ServingSets, tokens: None, context: WorkerContext) -> Any:
    room = Path(os.environ[ROOM])
    draining = asyncio.Event()
    context.draining.then(draining.set)

    async def respond(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body})

    async def until(name: str) -> None:
        while not (room / name).exists():
            await asyncio.sleep(0.005)

    async def live(receive: Any, send: Any) -> None:
        while (kind := (await receive())["type"]) != "lifespan.shutdown":
            await send({"type": f"{kind}.complete"})
        await asyncio.to_thread(context.close)
        await send({"type": f"{kind}.complete"})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        match scope["path"].strip("/").split("/"):
            case ["pid"]:
                await respond(send, 200, str(os.getpid()).encode())
            case ["revision"]:
                await respond(send, 200, f"{os.getpid()} {states.serving.revision}".encode())
            case ["metrics"]:
                await respond(send, 200, context.telemetry.metrics.text())
            case ["count", operation]:
                record = RequestRecord("r", scope["method"], operation, 200, 0.01)
                context.telemetry.metrics.count_request(record)
                await respond(send, 200, b"counted")
            case ["echo"]:
                body = b""
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if not message.get("more_body"):
                        break
                await respond(send, 200, body)
            case ["unread"]:
                await respond(send, 413, b"too much")
            case ["hold", name]:
                (room / f"{name}-began").touch()
                context.telemetry.metrics.in_flight.inc()
                await until(f"{name}-go")
                context.telemetry.metrics.in_flight.dec()
                await respond(send, 200, b"held")
            case ["write", actor, name]:
                try:
                    with context.budgets.admit(actor, 10):
                        (room / f"{name}-began").touch()
                        await until(f"{name}-go")
                except TooManyRequestsError as error:
                    await respond(send, 429, str(error).encode(), (b"retry-after", b"60"))
                else:
                    await respond(send, 200, b"written")
            case ["stream", end]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
                if end == "broken":
                    raise RuntimeError("it breaks off here")
                await send({"type": "http.response.body", "body": b"two\n"})
            case ["stuck", kind]:
                (room / "stuck").touch()
                for _ in range(8 if kind == "python" else 1):
                    asyncio.get_running_loop().run_in_executor(None, STUCK[kind])
                await until("never")
            case ["drained"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"waiting\n", "more_body": True})
                await draining.wait()
                await send({"type": "http.response.body", "body": b"ended\n"})
            case _:
                await respond(send, 404, b"")

    return app


class LightProgram(Program):
    boot = staticmethod(boot)
    application = staticmethod(application)
    renew = staticmethod(renew)
    newer_than = staticmethod(newer_than)


def settings_of(text: str) -> Settings:
    given = json.loads(text)
    limits = ServerLimits(**given.pop("limits", {}))
    return Settings(**{"store": "none", "port": 0, "limits": limits, **given})


if __name__ == "__main__":
    sys.exit(serve(settings_of(sys.argv[1]), LightProgram(print)))
