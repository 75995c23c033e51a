"""Carries calls out, one after another: sends requests, waits between attempts, and hands out streams as they come."""

from __future__ import annotations

import time
from typing import TypeVar

import httpx

from omnigraph.client.answers import Answer
from omnigraph.client.messages import Reply, Request, Steps, Upload
from omnigraph.client.patience import Attempts
from omnigraph.client.settings import Settings

Result = TypeVar("Result")


class Transport:
    """One pool of connections to one server. Safe to share between threads."""

    def __init__(self, settings: Settings, *, encrypted: bool) -> None:
        self._settings = settings
        self._client = httpx.Client(**settings.client_options(encrypted=encrypted))

    def close(self) -> None:
        self._client.close()

    def run(self, steps: Steps[Result]) -> Result:
        """Carry out a call to its result."""
        try:
            request = next(steps)
            while True:
                request = steps.send(self.exchange(request))
        except StopIteration as end:
            result: Result = end.value
            return result

    def exchange(self, request: Request) -> Reply:
        """One request with as many attempts as are safe, and the whole answer."""
        attempts = self._attempts(request)
        while True:
            try:
                reply = self._once(request, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    return reply
            time.sleep(pause or 0.0)

    def open(self, request: Request) -> Answer:
        """The same for an answer that is taken in pieces. Once it has begun, it is not asked for again."""
        attempts = self._attempts(request)
        while True:
            try:
                response = self._sent(request, attempts)
                if response.status_code == 200:
                    return Answer(self._settings.reply(response.status_code, response.headers), response)
                reply = self._whole(response, attempts)
            except httpx.RequestError as error:
                pause: float | None = attempts.after_failure(error)
            else:
                pause = attempts.after_reply(reply)
                if pause is None:
                    raise reply.failure()
            time.sleep(pause or 0.0)

    def _attempts(self, request: Request) -> Attempts:
        return Attempts(request, self._settings.timeout, self._settings.retries)

    def _once(self, request: Request, attempts: Attempts) -> Reply:
        return self._whole(self._sent(request, attempts), attempts)

    def _sent(self, request: Request, attempts: Attempts) -> httpx.Response:
        attempts.received = 0
        content = request.content.pieces() if isinstance(request.content, Upload) else request.content
        timeout = self._settings.timeouts(request, attempts.seconds_left)
        made = self._client.build_request(
            request.verb, request.url, content=content, headers=request.headers, timeout=timeout
        )
        return self._client.send(made, stream=True)

    def _whole(self, response: httpx.Response, attempts: Attempts) -> Reply:
        try:
            chunks = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                attempts.received += len(chunk)
                attempts.check_time()
        finally:
            response.close()
        return self._settings.reply(response.status_code, response.headers, b"".join(chunks))
