"""What the process of a server has beside its application: settings, admission, metrics, tracing, and when it ends.

What the application asks of the process around it: to count, to log, and to admit.

What the application tells of itself, as log lines, counters and spans.

OpenTelemetry spans of requests, when an exporter is configured and its packages are installed; else nothing.

`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns it on, the other `OTEL_*` variables mean
what they mean everywhere. A caller's `traceparent` is continued. Without a configuration nothing is imported.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.engine.observers import FIELDS
from omnigraph.server.admission import Admission
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.metrics import UNMATCHED, Metrics, method_label
from omnigraph.server.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


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


class AdmissionControl(Protocol):
    """How much one actor may have under way in this worker."""

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


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONTINUED: Final = (b"traceparent", b"tracestate")
_WITHOUT_TEXTS: Final[dict[str, Any]] = {"record_exception": False, "set_status_on_exception": False}
"""The text of an exception may quote data: the log has its class."""

logger: Final = logging.getLogger("omnigraph.server")


class Tracing:
    """No traces: every span is nothing."""

    @staticmethod
    def of(environment: Mapping[str, str]) -> Tracing:
        if not any(environment.get(name, "").strip() for name in _ENDPOINTS):
            return Tracing()
        if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return Tracing()
        try:
            return _Exported(environment)
        except ImportError:
            logger.warning("traces are configured and not sent: install omnigraph[tracing]")
            return Tracing()

    def traced(self, application: ASGIApp) -> ASGIApp:
        """The application with a span around each request, below the caller's if it sent one."""
        return application

    def within(self, name: str, work: Callable[[], Result]) -> Callable[[], Result]:
        """The work with a span of its own below that of the request, in whatever thread it is done."""
        return work

    def describe(self, operation: str, record: RequestRecord) -> None:
        """Say in the span of the request what it was about."""

    def close(self) -> None:
        """Send what is left."""


class _Exported(Tracing):
    def __init__(self, environment: Mapping[str, str]) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = {} if environment.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "omnigraph-server"}
        self._provider = TracerProvider(resource=Resource.create(named))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("omnigraph.server")
        self._propagator = TraceContextTextMapPropagator()
        self._server, self._internal = trace.SpanKind.SERVER, trace.SpanKind.INTERNAL
        self._current = trace.get_current_span

    def traced(self, application: ASGIApp) -> ASGIApp:
        async def with_span(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            carrier = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _CONTINUED}
            with self._tracer.start_as_current_span(
                "request", context=self._propagator.extract(carrier), kind=self._server, **_WITHOUT_TEXTS
            ):
                await application(scope, receive, send)

        return with_span

    def within(self, name: str, work: Callable[[], Result]) -> Callable[[], Result]:
        parent = contextvars.copy_context()

        def with_span() -> Result:
            with self._tracer.start_as_current_span(name, kind=self._internal, **_WITHOUT_TEXTS):
                return work()

        return lambda: parent.run(with_span)

    def describe(self, operation: str, record: RequestRecord) -> None:
        span = self._current()
        span.update_name(operation)
        span.set_attribute("http.request.method", method_label(record.method))
        span.set_attribute("http.response.status_code", record.status)
        span.set_attribute("omnigraph.request_id", record.request_id)
        if record.graph_id is not None:
            span.set_attribute("omnigraph.graph", record.graph_id)

    def close(self) -> None:
        self._provider.shutdown()


class Draining:
    """Whether the server was told to end, and who wants to know."""

    def __init__(self) -> None:
        self.began = False
        self._told: list[Callable[[], None]] = []

    def then(self, tell: Callable[[], None]) -> None:
        """Call this in the event loop when the server begins to end."""
        self._told.append(tell)

    def begin(self) -> None:
        self.began = True
        for tell in self._told:
            tell()


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the application of a worker gets from the process around it."""

    settings: Settings
    admission: Admission
    metrics: Metrics
    tracing: Tracing
    draining: Draining = field(default_factory=Draining)


class Observing:
    """The observer of a server that runs."""

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
