"""OpenTelemetry spans of requests, if an exporter is configured and its packages are installed; otherwise nothing.

`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns it on; the other `OTEL_*` variables have
their usual meaning. The `traceparent` of a caller is continued. Without a configuration nothing is imported.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Result = TypeVar("Result")


UNMATCHED: Final = "unknown"
"""The operation of a request that no route takes."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class RequestRecord:
    """One request, for logs, metrics and traces: never a token, a value or a row. It is filled while the request is
    answered."""

    request_id: str
    method: str
    operation_id: str = UNMATCHED
    status: int = 0
    seconds: float = 0.0
    graph_id: str | None = None
    actor: str | None = None
    received_bytes: int = 0
    sent_bytes: int = 0
    broke_off: bool = False

    @property
    def method_label(self) -> str:
        """The method as a label: a caller may send any word."""
        return self.method if self.method in _METHODS else "OTHER"


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONTINUED: Final = (b"traceparent", b"tracestate")
_WITHOUT_TEXTS: Final[dict[str, Any]] = {"record_exception": False, "set_status_on_exception": False}
"""The text of an exception may quote data: the log has its class."""

logger: Final = logging.getLogger("omnigraph.server")


class Tracing:
    """The tracing of a server without an exporter: it does nothing."""

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

    def wrap(self, application: ASGIApp) -> ASGIApp:
        """The application with a span around each request, below the caller's if it sent one."""
        return application

    def within(self, name: str, work: Callable[[], Result]) -> Callable[[], Result]:
        """The work with a span below that of the request, in any thread."""
        return work

    def describe(self, record: RequestRecord) -> None:
        """Describe the request in its span."""

    def close(self) -> None:
        """Send the spans that are left."""


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

    def wrap(self, application: ASGIApp) -> ASGIApp:
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

    def describe(self, record: RequestRecord) -> None:
        span = self._current()
        span.update_name(record.operation_id)
        span.set_attribute("http.request.method", record.method_label)
        span.set_attribute("http.response.status_code", record.status)
        span.set_attribute("omnigraph.request_id", record.request_id)
        if record.graph_id is not None:
            span.set_attribute("omnigraph.graph", record.graph_id)

    def close(self) -> None:
        self._provider.shutdown()
