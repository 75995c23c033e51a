"""A provider of embeddings over real HTTP, in both wire formats, that misbehaves as it is told.

Answers come from the mock's vectors, so a test knows what a text is worth. Faults wait in a queue: each request takes
the next one, and is answered properly when there is none.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from omnigraph.embeddings.provider import MockProvider, Role, unit_vector


def vector_of(text: str, dimension: int) -> list[float]:
    """What the server answers for a text, which is what a client makes of it too: its length is 1."""
    (drawn,) = MockProvider().embed([text], dimension, Role.QUERY)
    return unit_vector(drawn, dimension).tolist()


@dataclass
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def contents(self) -> list[dict[str, Any]]:
        return self.body.get("requests", [self.body])

    @property
    def texts(self) -> list[str]:
        if "input" in self.body:
            return list(self.body["input"])
        return [content["content"]["parts"][0]["text"] for content in self.contents]

    @property
    def dimension(self) -> int:
        return int(self.body["dimensions"] if "input" in self.body else self.contents[0]["outputDimensionality"])


@dataclass
class Reply:
    """A reply other than the proper one; `body` is sent as it is, or as JSON."""

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut_off: bool = False
    endless: bool = False


Fault = Reply | Callable[[Asked], "Reply | None"]
"""A reply, or what makes one of the request; None is a reply that never comes."""


class EmbeddingServer:
    """What was asked, and what goes wrong next. `always` is a fault of every request that no other fault takes."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.released = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    @property
    def paid(self) -> Counter[str]:
        """How often each text was answered or could have been."""
        return Counter(text for asked in self.asked for text in asked.texts)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        asked = Asked(handler.path, {k.lower(): v for k, v in handler.headers.items()}, body)
        with self._lock:
            self.asked.append(asked)
            fault = self.faults.popleft() if self.faults else self.always
        reply = fault(asked) if callable(fault) else fault
        if reply is None:
            if fault is not None:
                self.released.wait()
                return
            reply = proper(asked)
        content = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        if reply.endless:
            self._drip(handler, content)
            return
        handler.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content) + (1 if reply.cut_off else 0)))
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = handler.close_connection or reply.cut_off

    def _drip(self, handler: BaseHTTPRequestHandler, content: bytes) -> None:
        """The content over and over, until the client has had enough of it."""
        handler.close_connection = True
        handler.send_response(200)
        handler.end_headers()
        with suppress(ConnectionError):
            while not self.released.wait(0.005):
                handler.wfile.write(content)


def proper(asked: Asked) -> Reply:
    """The reply of a provider that does its work."""
    vectors = [vector_of(text, asked.dimension) for text in asked.texts]
    if asked.path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return Reply(body={"data": data[::-1], "usage": {"total_tokens": 3 * len(vectors)}})
    if asked.path.endswith(":embedContent"):
        return Reply(body={"embedding": {"values": vectors[0]}})
    return Reply(body={"embeddings": [{"values": vector} for vector in vectors]})


def never(asked: Asked) -> None:
    """No reply until the server ends."""


def refusing_batches(asked: Asked) -> Reply:
    if len(asked.texts) > 1:
        return Reply(400, {"error": {"message": "input must be one string"}})
    return proper(asked)


def vectors(*given: list[float], indexes: list[int] | None = None) -> Reply:
    """The reply of an OpenAI-compatible provider with these vectors."""
    places = range(len(given)) if indexes is None else indexes
    return Reply(body={"data": [{"index": i, "embedding": v} for i, v in zip(places, given, strict=True)]})


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.http.shutdown()
        thread.join()
        server.http.server_close()
