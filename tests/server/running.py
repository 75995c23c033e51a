"""A server of this process: the real application behind a real socket, for tests of what HTTP clients observe.

    with running({"kb": graph}) as server:
        server.client.post("/graphs/kb/query", json={"query": QUERY})

Processes, workers and signals are tested with `tests.support.servers`, which starts the command.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from prometheus_client import Counter as CounterMetric
from prometheus_client import Gauge

from omnigraph import Graph
from omnigraph.api.governance import AccessRequest, Decision, Gate
from omnigraph.cluster.serving import ClusterQuery
from omnigraph.policy.gate import WITHOUT_RULES
from omnigraph.server.admission import Budgets, Cap
from omnigraph.server.app import Application
from omnigraph.server.catalog import RuntimeState, Served, Serving, StoredQuerySource
from omnigraph.server.http.call import Services
from omnigraph.server.http.origins import with_origins
from omnigraph.server.loader import offered_queries, stored_queries
from omnigraph.server.mcp_mount import LoadEndpoint
from omnigraph.server.reload import ServingSets
from omnigraph.server.runtime.context import Telemetry
from omnigraph.server.runtime.metrics import Metrics
from omnigraph.server.runtime.supervisor import http_options
from omnigraph.server.runtime.tracing import RequestRecord, Tracing
from omnigraph.server.settings import ServerLimits
from omnigraph.server.tokens import TokenEntry, Tokens
from tests.support.servers import WITHOUT_TLS
from tests.support.waiting import wait_until

Metric = CounterMetric | Gauge


class Recorder(Telemetry):
    """Keeps what the server says of itself, for tests to look at."""

    def __init__(self) -> None:
        super().__init__(Metrics(), Tracing())
        self.records: list[RequestRecord] = []
        self.decisions: list[tuple[str | None, AccessRequest, Decision]] = []
        self.failures: list[BaseException] = []
        self.begun: Counter[str] = Counter()
        self.go_on: threading.Event | None = None
        """What handlers wait for before they begin, if anything."""

    def begin_request(self, operation_id: str) -> None:
        self.begun[operation_id] += 1

    def trace(self, operation_id: str, work: Callable[[], Any]) -> Callable[[], Any]:
        go_on = self.go_on
        return work if go_on is None else lambda: go_on.wait() and work()

    def end_request(self, record: RequestRecord) -> None:
        self.records.append(record)

    def log_decision(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
        self.decisions.append((actor, request, decision))

    def log_failure(self, record: RequestRecord, error: BaseException) -> None:
        self.failures.append(error)

    def count(self, counter: Metric) -> int:
        """The sum of a counter or gauge over its labels."""
        [family] = counter.collect()
        return sum(int(sample.value) for sample in family.samples if not sample.name.endswith("_created"))

    def record_of(self, request_id: str) -> RequestRecord:
        """A request is recorded when its answer is out, so the client may know sooner."""
        wait_until(lambda: any(r.request_id == request_id for r in self.records), f"{request_id} is recorded")
        [record] = [r for r in self.records if r.request_id == request_id]
        return record


class Unlimited(Budgets):
    """Admits every write; what is refused has tests of its own."""

    def admit(self, actor: str | None, size: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@dataclass
class RunningServer:
    """`client` keeps connections; `recorder` has what was logged and counted."""

    url: str
    client: httpx.Client
    recorder: Recorder
    application: Application
    services: Services

    def open_streams(self) -> int:
        return self.services.budgets._counts[Cap.STREAMS, None, ""]

    def feeds(self) -> int:
        return self.services.budgets._counts[Cap.FEEDS, None, ""]

    def graph(self, graph_id: str = "kb") -> str:
        return f"{self.url}/graphs/{graph_id}"


@contextlib.contextmanager
def running(
    graphs: Mapping[str, Graph],
    *,
    tokens: Mapping[str, str] | None = None,
    gates: Mapping[str, Gate] | None = None,
    server_gate: Gate = WITHOUT_RULES,
    queries: str = "",
    limits: ServerLimits | None = None,
    origins: tuple[str, ...] = (),
    owned_by_cluster: bool = False,
    agents: LoadEndpoint | None = None,
    budgets: Budgets | None = None,
    wrap: Callable[[Application], Application] = lambda application: application,
    version: str = "0.0.0-test",
) -> Iterator[RunningServer]:
    """Serve some graphs. `tokens` maps actors to tokens; without any the server is open."""
    recorder, limits = Recorder(), limits or ServerLimits()
    served = {
        graph_id: _served(graph_id, graph, (gates or {}).get(graph_id, WITHOUT_RULES), queries, owned_by_cluster)
        for graph_id, graph in graphs.items()
    }
    state = RuntimeState.OPEN
    if tokens:
        state = RuntimeState.POLICY_ENABLED if gates else RuntimeState.DEFAULT_DENY
    serving = Serving(served, state, server_gate)
    services = Services(ServingSets(serving), limits, budgets or Unlimited(limits), recorder, version)
    application = wrap(
        Application(services, Tokens([TokenEntry(*pair) for pair in (tokens or {}).items()]), agents, origins)
    )
    server = uvicorn.Server(uvicorn.Config(with_origins(application, origins), **http_options(limits)))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server listens")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=120, verify=WITHOUT_TLS) as client:
            yield RunningServer(url, client, recorder, application, services)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextlib.contextmanager
def faultless(graphs: Mapping[str, Graph], **options: Any) -> Iterator[RunningServer]:
    """As `running`, for tests that may ask for anything: in the end the server has not failed once."""
    with running(graphs, **options) as server:
        yield server
        assert not server.recorder.failures, "what clients ask for is never a fault"


def _served(graph_id: str, graph: Graph, gate: Gate, queries: str, owned_by_cluster: bool) -> Served:
    stored = _stored(graph, queries)
    governed = graph._with_gate(gate).with_queries(offered_queries(stored))
    return Served(graph_id, governed, stored, owned_by_cluster)


def _stored(graph: Graph, text: str) -> Mapping[str, StoredQuerySource]:
    if not text:
        return {}
    names = [
        line.split("(")[0].removeprefix("query ").strip() for line in text.splitlines() if line.startswith("query ")
    ]
    return stored_queries([ClusterQuery("kb", name, text) for name in names], graph.snapshot())
