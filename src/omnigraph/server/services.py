"""What the application asks of the process around it: to count, to log, and to admit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from omnigraph.api.access import AccessRequest, Decision

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was answered, as logs and metrics tell it: never a token, a value or a row."""

    request_id: str
    operation_id: str
    method: str
    status: int
    seconds: float
    graph_id: str | None = None
    actor: str | None = None
    received_bytes: int = 0
    sent_bytes: int = 0
    broke_off: bool = False


class Admission(Protocol):
    """How much one actor may have under way, in all processes of the server together."""

    def admitted(self, actor: str | None, size: int) -> AbstractContextManager[None]:
        """Count a request while it runs, or raise TooManyRequestsError."""
        ...


class Observer(Protocol):
    """Logs, counters and traces."""

    def began(self, operation_id: str) -> None: ...
    def around(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        """The part of a request that is done in a thread, with whatever watches it."""
        ...

    def answered(self, record: RequestRecord) -> None: ...
    def decided(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None: ...
    def failed(self, request_id: str, operation_id: str, error: BaseException) -> None:
        """Something broke inside; the log keeps the cause."""
        ...

    def stream_opened(self, graph_id: str) -> None: ...
    def stream_closed(self, graph_id: str) -> None: ...
    def committed(self, graph_id: str) -> None: ...
    def conflicted(self, graph_id: str) -> None: ...
    def exposition(self) -> bytes:
        """Everything counted so far, as Prometheus reads it."""
        ...
