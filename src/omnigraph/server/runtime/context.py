"""What a worker gives its application: settings, admission, logs, counters and traces, and the news that it ends.

`WorkerProcess` makes a `WorkerContext`; the application and its handlers use it through `Observer` and
`AdmissionControl`, so that tests can pass their own. Nothing here depends on HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.engine.observers import FIELDS
from omnigraph.server.admission import Admission
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.metrics import UNMATCHED, Metrics
from omnigraph.server.runtime.tracing import RequestRecord, Tracing
from omnigraph.server.settings import Settings

Result = TypeVar("Result")


class AdmissionControl(Protocol):
    """How much one actor may have under way in this worker."""

    def admit(self, actor: str | None, size: int) -> AbstractContextManager[None]:
        """Count a request while it runs, or raise TooManyRequestsError."""
        ...


class Observer(Protocol):
    """Logs, counters and traces."""

    def began(self, operation_id: str) -> None: ...
    def around(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        """The part of a request that runs in a thread, with the span around it."""
        ...

    def answered(self, record: RequestRecord) -> None: ...
    def decided(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None: ...
    def failed(self, request_id: str, operation_id: str, error: BaseException) -> None:
        """Log the cause of an internal error."""
        ...

    def stream_opened(self, graph_id: str) -> None: ...
    def stream_closed(self, graph_id: str) -> None: ...
    def committed(self, graph_id: str) -> None: ...
    def conflicted(self, graph_id: str) -> None: ...
    def exposition(self) -> bytes:
        """All numbers, in the text format of Prometheus."""
        ...


logger: Final = logging.getLogger("omnigraph.server")


class Draining:
    """Whether a signal has asked the server to end, and the callbacks for that moment."""

    def __init__(self) -> None:
        self.began = False
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> None:
        """Call this in the event loop when the server begins to end."""
        self._callbacks.append(callback)

    def begin(self) -> None:
        self.began = True
        for callback in self._callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the application of a worker gets from the process around it."""

    settings: Settings
    admission: Admission
    metrics: Metrics
    tracing: Tracing
    draining: Draining = field(default_factory=Draining)


class Observing:
    """The observer of a running server: a log line, counters and a span for each request."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def began(self, operation_id: str) -> None:
        self._metrics.began()

    def around(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        return self._tracing.within(f"{operation_id} engine", work)

    def answered(self, record: RequestRecord) -> None:
        operation = record.operation_id
        if operation != UNMATCHED:
            self._metrics.ended()
        self._metrics.answered(operation, record.method, record.status, record.seconds)
        self._tracing.describe(operation, record)
        logs.request(
            record.request_id,
            operation,
            record.status,
            record.seconds * 1000,
            graph=record.graph_id,
            actor=record.actor,
            received=record.received_bytes,
            sent=record.sent_bytes,
            broke_off=record.broke_off,
        )

    def decided(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
        logs.decision(
            request_id,
            request.action,
            decision.allowed,
            branch=request.branch,
            target_branch=request.target_branch,
            actor=actor,
            rule=decision.matched_rule_id,
        )

    def failed(self, request_id: str, operation_id: str, error: BaseException) -> None:
        fields = {"request_id": request_id, "operation": operation_id}
        logger.error("request failed", exc_info=error, extra={FIELDS: fields})

    def stream_opened(self, graph_id: str) -> None:
        self._metrics.stream_opened(graph_id)

    def stream_closed(self, graph_id: str) -> None:
        self._metrics.stream_closed(graph_id)

    def committed(self, graph_id: str) -> None:
        self._metrics.committed(graph_id)

    def conflicted(self, graph_id: str) -> None:
        self._metrics.conflicted(graph_id)

    def exposition(self) -> bytes:
        return self._metrics.text()
