"""The numbers that a server keeps of itself, as Prometheus reads them at `GET /metrics`, summed over all workers.

Labels are operation ids, methods, statuses, graph ids and names of ours: never anything that a caller sent. Each worker
writes its numbers to files of a directory that all workers read, in the format of `prometheus_client`. The counters of
a worker that died still count; its gauges are dropped by the worker that is asked next.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values

from omnigraph.server.runtime.tracing import UNMATCHED, RequestRecord

if TYPE_CHECKING:
    from omnigraph.engine.maintenance.maintainer import Maintainer
    from omnigraph.server.catalog import Served

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
_PID: Final = re.compile(r"\d+")


class Metrics:
    """The numbers of one worker. Workers put theirs together in `directory`; without one they stay in memory."""

    def __init__(self, *, directory: str | None = None) -> None:
        self._graphs: Mapping[str, Served] = {}
        self._maintainers: Mapping[str, Maintainer] = {}
        self._seen: dict[tuple[Any, ...], float] = {}
        self._directory = directory
        self._refreshing = threading.Lock()  # the event loop and `GET /metrics` both do it
        if directory is None:
            values.ValueClass = values.MutexValue
        else:
            os.environ[_DIRECTORY] = directory
            values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests answered.", "operation", "method", "status")
        self._latency = Histogram(
            "omnigraph_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["operation"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.in_flight = self._gauge("requests_in_flight", "Requests being answered.")
        self._refusals = self._counter("admission_refusals", "Requests refused because enough was under way.", "cap")
        self.commits = self._counter("commits", "Commits made by requests.", "graph")
        self.conflicts = self._counter("conflicts", "Writes that lost to another one.", "graph")
        self._store = self._counter("store_requests", "Requests for control objects of a graph.", "graph", "kind")
        self._cache_bytes = self._gauge("cache_bytes", "Bytes that a cache holds.", "cache")
        self._cache_limit = self._gauge("cache_limit_bytes", "Bytes that a cache may hold.", "cache")
        self._lookups = self._counter("cache_lookups", "Lookups in a cache.", "cache", "outcome")
        # Workers share the disk of their machine.
        self._disk_bytes = self._gauge("disk_cache_bytes", "Bytes of remote graphs on this disk.", mode="livemax")
        self._disk_limit = self._gauge("disk_cache_limit_bytes", "Bytes that may be there.", mode="livemax")
        self._lock_asked = self._counter("branch_lock_requests", "Writes that asked for the lock of their branch.")
        self._lock_waits = self._counter("branch_lock_waits", "Writes that waited for another one in the same worker.")
        self._lock_seconds = self._counter("branch_lock_wait_seconds", "Time that writes waited for others.")
        self.streams = self._gauge("streams_open", "Answers that are being streamed.", "graph")
        self._workers = self._gauge("workers", "Workers that serve.")
        self._maintenance_runs = self._counter("upkeep_runs", "Looks at a graph by background maintenance.", "graph")
        self._maintenance_failing = self._gauge("upkeep_failing", "Whether the last look at a graph failed.", "graph")
        self._revision = self._gauge(
            "revision", "The applied revision that is served, the oldest of all workers.", mode="livemin"
        )
        self._behind = self._gauge("workers_behind", "Workers that could not take over a newer applied state.")
        self._changes = self._counter("state_changes", "Applied states that were to be served.", "outcome")
        self._workers.set(1)
        self._latency.labels(UNMATCHED)  # every file is open before the first request

    def count_request(self, record: RequestRecord) -> None:
        self._requests.labels(record.operation_id, record.method_label, str(record.status)).inc()
        self._latency.labels(record.operation_id).observe(record.seconds)

    def count_refusal(self, cap: str) -> None:
        """Count a refusal of admission."""
        self._refusals.labels(cap).inc()

    # Read from the engine

    def serve(self, graphs: Mapping[str, Served], revision: int | None) -> None:
        """Read the counts of these graphs from now on. They begin at 0 when a graph is opened again."""
        with self._refreshing:
            for graph, served in graphs.items():
                if graph in self._graphs and self._graphs[graph].opened is not served.opened:
                    self._forget_counts(self._store, graph)
            self._graphs = graphs
        if revision is not None:
            self._behind.set(0)
            self._revision.set(revision)
            self._changes.labels("served").inc()

    def count_failed_state(self) -> None:
        """Count a newer applied state that can't be served."""
        self._behind.set(1)
        self._changes.labels("failed").inc()

    def watch_maintenance(self, maintainers: Mapping[str, Maintainer]) -> None:
        with self._refreshing:
            for graph in maintainers:
                if maintainers[graph] is not self._maintainers.get(graph):
                    self._forget_counts(self._maintenance_runs, graph)
                self._maintenance_runs.labels(graph)
            self._maintainers = maintainers

    def refresh(self) -> None:
        """Take over what graphs, caches and locks have counted. Workers do it every few seconds, and when asked."""
        if self._graphs:
            with self._refreshing:
                self._look_at_engine()

    def _look_at_engine(self) -> None:
        from omnigraph.engine.workspace import disk_caches_of_process, shared_memory, waits_of_writers

        memory = shared_memory()

        for graph, served in self._graphs.items():
            for kind, count in served.graph._workspace.root.objects.counts.items():
                self._raise_to(self._store, count, graph, kind)
        for cache, use in memory.uses().items():
            name = cache.replace(" ", "_")
            self._cache_bytes.labels(name).set(use.held)
            self._cache_limit.labels(name).set(use.limit)
        for cache, lookups in memory.lookups().items():
            name = cache.replace(" ", "_")
            self._raise_to(self._lookups, lookups.hits, name, "hit")
            self._raise_to(self._lookups, lookups.misses, name, "miss")
        disk_caches = disk_caches_of_process()
        self._disk_bytes.set(max((cache.noted_bytes() for cache in disk_caches), default=0))
        self._disk_limit.set(max((cache.limit for cache in disk_caches), default=0))
        for name, lookups in (("disk", cache.lookups) for cache in disk_caches[:1]):
            self._raise_to(self._lookups, lookups.hits, name, "hit")
            self._raise_to(self._lookups, lookups.misses, name, "miss")
        waits = waits_of_writers()
        self._raise_to(self._lock_asked, waits.asked)
        self._raise_to(self._lock_waits, waits.waited)
        self._raise_to(self._lock_seconds, waits.seconds)
        for graph, maintainer in self._maintainers.items():
            self._raise_to(self._maintenance_runs, maintainer.looks, graph)
            self._maintenance_failing.labels(graph).set(maintainer.last_error is not None)

    def text(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        self.refresh()
        registry = self._registry
        if self._directory is not None:
            forget_dead_workers(self._directory)
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, self._directory)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _raise_to(self, counter: Counter, total: float, *labels: str) -> None:
        """Bring a counter to what somebody else has counted in this process so far."""
        key = (counter, *labels)
        if (more := total - self._seen.get(key, 0)) > 0:
            (counter.labels(*labels) if labels else counter).inc(more)
            self._seen[key] = total

    def _forget_counts(self, counter: Counter, graph: str) -> None:
        self._seen = {key: seen for key, seen in self._seen.items() if key[:2] != (counter, graph)}

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"omnigraph_{name}", help_, labels, registry=self._registry)

    def _gauge(
        self, name: str, help_: str, *labels: str, mode: Literal["livesum", "livemin", "livemax"] = "livesum"
    ) -> Gauge:
        return Gauge(f"omnigraph_{name}", help_, labels, registry=self._registry, multiprocess_mode=mode)


def forget_dead_workers(directory: str) -> None:
    """Drop the gauges of workers that have died: they have no requests in flight any more."""
    for file in Path(directory).glob("gauge_*.db"):
        pid = int(_PID.findall(file.name)[-1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with suppress(FileNotFoundError):  # another worker was asked at the same moment
                multiprocess.mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]
        except PermissionError:
            pass  # it runs, as another user
