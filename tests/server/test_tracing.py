"""Traces: sent to a collector when one is configured, nothing at all otherwise."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from omnigraph.server.runtime.tracing import RequestRecord, Tracing

PARENT = "0af7651916cd43dd8448eb211c80319c"


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        sent = ExportTraceServiceRequest.FromString(body)
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{running.server_address[1]}")
        yield running
        running.shutdown()
        thread.join()


def test_a_request_is_a_span_below_the_callers_with_the_engine_below_it(collector: Collector) -> None:
    import os

    tracing = Tracing.of(os.environ)

    async def answer(scope: object, receive: object, send: object) -> None:
        work = tracing.within("query engine", lambda: 42)
        assert await asyncio.get_running_loop().run_in_executor(None, work) == 42
        tracing.describe(RequestRecord("r1", "POST", "query", 200, 0.01, graph_id="kb"))

    async def refuse(scope: object, receive: object, send: object) -> None:
        raise ValueError("planted-row")

    headers = [(b"traceparent", f"00-{PARENT}-b7ad6b7169203331-01".encode()), (b"authorization", b"Bearer planted")]
    scope = {"type": "http", "method": "POST", "path": "/planted", "headers": headers}
    asyncio.run(tracing.wrap(answer)(scope, None, None))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="planted"):
        asyncio.run(tracing.wrap(refuse)(scope, None, None))  # type: ignore[arg-type]
    tracing.close()
    engine, request, failed = collector.spans
    assert (engine.name, request.name) == ("query engine", "query")
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT}
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert engine.parent_span_id == request.span_id
    attributes = {attribute.key: attribute.value for attribute in request.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["omnigraph.graph"].string_value == "kb"
    assert b"planted" not in b"".join(span.SerializeToString() for span in collector.spans)
    assert failed.name == "request"


def test_without_a_configuration_nothing_is_loaded_and_nothing_is_in_the_way() -> None:
    script = (
        "import sys\n"
        "from omnigraph.server.runtime.tracing import Tracing\n"
        "tracing, application = Tracing.of({'OTEL_SERVICE_NAME': 'x'}), object()\n"
        "assert tracing.wrap(application) is application\n"
        "assert tracing.within('x', len) is len\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
