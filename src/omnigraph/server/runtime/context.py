"""What a worker gives its application: settings, budgets, logs, counters and traces, and the news that it ends.

`WorkerProcess` makes a `WorkerContext`. Tests pass a `Telemetry` of their own. Nothing here depends on HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.engine.observers import FIELDS
from omnigraph.server.admission import Budgets
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.metrics import Metrics
from omnigraph.server.runtime.tracing import UNMATCHED, RequestRecord, Tracing
from omnigraph.server.settings import Settings

Result = TypeVar("Result")
logger: Final = logging.getLogger("omnigraph.server")


class Telemetry:
    """A log line, counters and a span for each request. Handlers use the counters of `metrics` directly."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self.metrics = metrics
        self.tracing = tracing

    def begin_request(self, operation_id: str) -> None:
        self.metrics.in_flight.inc()

    def end_request(self, record: RequestRecord) -> None:
        if record.operation_id != UNMATCHED:
            self.metrics.in_flight.dec()
        self.metrics.count_request(record)
        self.tracing.describe(record)
        logs.log_request(record)

    def trace(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        """The part of a request that runs in a thread, with a span around it."""
        return self.tracing.within(f"{operation_id} engine", work)

    def log_decision(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
        logs.log_decision(request_id, actor, request, decision)

    def log_failure(self, record: RequestRecord, error: BaseException) -> None:
        """Log the cause of an internal error."""
        fields = {"request_id": record.request_id, "operation": record.operation_id}
        logger.error("request failed", exc_info=error, extra={FIELDS: fields})


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
    budgets: Budgets
    telemetry: Telemetry
    close: Callable[[], None]
    """Closes what the process opened; the last act of the application, in a thread."""
    draining: Draining = field(default_factory=Draining)
