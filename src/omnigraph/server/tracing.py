"""OpenTelemetry spans of requests, when an exporter is configured and its packages are installed; else nothing.

`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns it on, the other `OTEL_*` variables mean
what they mean everywhere. A caller's `traceparent` is continued. Without a configuration nothing is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONTINUED: Final = (b"traceparent", b"tracestate")

logger: Final = logging.getLogger("omnigraph.server")


class Span(Protocol):
    def set_attribute(self, key: str, value: str | int | float | bool) -> None: ...


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

    def request(
        self, operation: str, method: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> AbstractContextManager[Span | None]:
        """The span of one request, below the caller's if it sent one. Set `http.response.status_code` on it."""
        return nullcontext()

    def call(self, name: str) -> AbstractContextManager[Span | None]:
        """A span of what is done within a request, such as the engine's part."""
        return nullcontext()

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

    def request(
        self, operation: str, method: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> AbstractContextManager[Span | None]:
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _CONTINUED}
        attributes: dict[str, Any] = {"http.request.method": method, "omnigraph.operation": operation}
        # The texts of exceptions may quote data: a span tells that there was one, and the log its class.
        return self._tracer.start_as_current_span(
            operation,
            context=self._propagator.extract(carrier),
            kind=self._server,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def call(self, name: str) -> AbstractContextManager[Span | None]:
        return self._tracer.start_as_current_span(
            name, kind=self._internal, record_exception=False, set_status_on_exception=False
        )

    def close(self) -> None:
        self._provider.shutdown()
