"""A real S3 protocol server in a thread (moto, with short ways to its objects) that logs, delays and breaks requests.

Tests count requests from its log, count serial round trips by holding answers back until nobody does anything but wait
for them, and inject the failures a real store produces: 500s, 503s, and responses lost after the server did the work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import boto3
from moto.server import create_backend_app

from tests.support import s3_shortcuts
from tests.support.http_server import Answer, HttpServer
from tests.support.quiet import all_others_sleep

ACCESS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


def ensure_bucket(environment: Mapping[str, str], bucket: str) -> None:
    """Make a bucket on a server that may have it already."""
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        client.create_bucket(Bucket=bucket)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    status: int
    started: float
    ended: float
    round: int = 0
    """In which round it was answered, when answers come in rounds."""


@dataclass(frozen=True)
class Fault:
    """What to do to one request: answer `status` without doing it, or (`status=0`) do it and drop the connection."""

    status: int = 0


FaultRule = Callable[[str, str], Fault | None]


@dataclass
class RequestLog:
    requests: list[Request] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.requests)

    def lines(self) -> list[str]:
        first = self.requests[0].started if self.requests else 0.0
        return [
            f"{(r.started - first) * 1e3:7.1f} {(r.ended - first) * 1e3:7.1f} {r.round:2} "
            f"{r.method} {r.status} {r.path}?{r.query}"
            for r in self.requests
        ]

    def serial_rounds(self, *background: str) -> int:
        """How many answers had to come one after another, apart from requests with one of these words in them."""
        return len({r.round for r in self.requests if not any(word in r.path + r.query for word in background)})


class Rounds:
    """Holds requests back until every other thread of this process waits, and then lets all that have come pass.

    Who asks for two things at once gets both in one round, and who asks for the second when it has the first gets them
    in two, however slow the machine is. For clients in this process only.
    """

    def __init__(self) -> None:
        self.number = 0
        self._held = 0
        self._over = False
        self._changed = threading.Condition()
        self._opener = threading.Thread(target=self._open_rounds, name="s3-rounds", daemon=True)
        self._opener.start()

    def wait(self) -> int:
        """Wait for the next round; its number."""
        with self._changed:
            if not self._over:
                self._held += 1
                awaited = self.number + 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._over or self.number >= awaited)
            return self.number

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._opener.join()

    def _open_rounds(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._held)
                if self._over:
                    return
            if all_others_sleep():
                with self._changed:
                    self.number += 1
                    self._held = 0
                    self._changed.notify_all()


class S3Server:
    """Conditional writes are linearizable: requests take turns."""

    def __init__(self) -> None:
        self.fault: FaultRule | None = None
        self.concurrency: int | None = None
        self.keeps_conditions = True
        """Whether a PUT with `If-None-Match: *` is refused where an object is. Some gateways drop the header."""
        self.deletes_what_is_gone = True
        """Whether deleting an object that is not there succeeds, as Amazon's does. Some gateways say `NoSuchKey`."""
        # Not the dispatcher in front of it, which looks through the sources of all services at every request.
        self._app = create_backend_app("s3")
        self._turn = threading.Lock()
        self._logs: list[RequestLog] = []
        self._slots: threading.Semaphore | None = None
        self._rounds: Rounds | None = None
        self._server = HttpServer(self._serve)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to reach this server."""
        return {
            **ACCESS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
        }

    def create_bucket(self, name: str) -> None:
        self.client().create_bucket(Bucket=name)

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
        )

    @contextmanager
    def logged(self) -> Iterator[RequestLog]:
        log = RequestLog()
        self._logs.append(log)
        try:
            yield log
        finally:
            # By identity: two logs that saw the same requests are equal.
            self._logs = [other for other in self._logs if other is not log]

    @contextmanager
    def in_rounds(self) -> Iterator[None]:
        """Answer in rounds, and note at each request in which."""
        self._rounds = Rounds()
        try:
            yield
        finally:
            rounds, self._rounds = self._rounds, None
            rounds.end()

    @contextmanager
    def limited(self, concurrency: int) -> Iterator[None]:
        """At most `concurrency` requests are served at a time, as behind a small gateway."""
        self._slots = threading.Semaphore(concurrency)
        try:
            yield
        finally:
            self._slots = None

    @contextmanager
    def broken(self, rule: FaultRule) -> Iterator[None]:
        self.fault = rule
        try:
            yield
        finally:
            self.fault = None

    def close(self) -> None:
        self._server.close()

    def _serve(self, environ: dict[str, Any]) -> Answer | None:
        slots = self._slots
        if slots is None:
            return self._answer(environ)
        with slots:
            return self._answer(environ)

    def _answer(self, environ: dict[str, Any]) -> Answer | None:
        started = time.monotonic()
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        fault = self.fault(method, path) if self.fault else None
        rounds = self._rounds
        round_number = rounds.wait() if rounds else 0
        if fault is not None and fault.status:
            status, headers, body = f"{fault.status} Injected", [("Content-Length", "0")], b""
        else:
            status, headers, body = self._do(environ)
        query = environ.get("QUERY_STRING", "")
        record = Request(method, path, query, int(status[:3]), started, time.monotonic(), round_number)
        for log in list(self._logs):
            log.requests.append(record)
        if fault is not None and not fault.status:
            return None  # the work was done, the response is lost
        return status, headers, body

    def _do(self, environ: dict[str, Any]) -> Answer:
        """One request after another: moto checks `If-None-Match` and stores the object in two steps, S3 in one."""
        if not self.keeps_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._turn:
            if not self.deletes_what_is_gone and (refused := s3_shortcuts.refused_deletion(environ)) is not None:
                return refused
            return s3_shortcuts.answer(environ) or self.ask_moto(environ)

    def ask_moto(self, environ: dict[str, Any]) -> Answer:
        answer: dict[str, Any] = {}

        def capture(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            answer["status"], answer["headers"] = status, headers

        body = b"".join(self._app(environ, capture))
        return answer["status"], answer["headers"], body
