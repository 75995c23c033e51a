"""What is measured, over all workers, also over the death of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import omnigraph
from omnigraph.server.catalog import Served
from omnigraph.server.runtime.metrics import Metrics, forget_dead_workers
from omnigraph.server.runtime.tracing import RequestRecord
from omnigraph.storage.cache import ByteBoundCache, Lookups
from omnigraph.storage.log.writer_queue import FairLocks
from tests.server.conftest import LightServer, Room
from tests.server.test_workers import asked, fetched
from tests.support.costs import settle
from tests.support.waiting import wait_until


def samples(text: str | bytes) -> dict[tuple[str, ...], float]:
    """Values by name and labels, such as `("omnigraph_commits_total", "graph=kb")`."""
    text = text if isinstance(text, str) else text.decode()
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_commits_and_refusals_are_counted() -> None:
    metrics = Metrics()
    metrics.in_flight.inc()
    metrics.count_request(RequestRecord("r1", "POST", "query", 200, 0.004))
    metrics.count_request(RequestRecord("r2", "BREW\x01coffee", "query", 405, 0.004))
    for counter in (metrics.commits, metrics.conflicts, metrics.streams):
        counter.labels("kb").inc()
    metrics.count_refusal("bytes")
    found = samples(metrics.text())
    assert found["omnigraph_requests_total", "method=POST", "operation=query", "status=200"] == 1
    assert found["omnigraph_requests_total", "method=OTHER", "operation=query", "status=405"] == 1
    assert found["omnigraph_request_seconds_bucket", "le=0.0025", "operation=query"] == 0
    assert found["omnigraph_request_seconds_bucket", "le=0.005", "operation=query"] == 2
    assert found[("omnigraph_requests_in_flight",)] == 1
    assert found["omnigraph_commits_total", "graph=kb"] == found["omnigraph_conflicts_total", "graph=kb"] == 1
    assert found["omnigraph_admission_refusals_total", "cap=bytes"] == 1
    assert found["omnigraph_streams_open", "graph=kb"] == 1


def test_what_graphs_caches_and_locks_count_is_taken_over(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "kb", "node Person { name: String @key }") as graph:
        metrics = Metrics()
        metrics.serve({"kb": Served("kb", graph)}, None)
        metrics.refresh()
        before = samples(metrics.text())
        graph.mutate('query add() { insert Person { name: "Ada" } }')
        settle(graph)
        after = samples(metrics.text())
        counts = graph._workspace.root.objects.counts
    asked_for = ("omnigraph_branch_lock_requests_total",)
    assert after[asked_for] - before[asked_for] == 1
    assert {
        labels[1].removeprefix("kind="): int(value)
        for (name, *labels), value in after.items()
        if name == "omnigraph_store_requests_total"
    } == counts
    assert after["omnigraph_cache_limit_bytes", "cache=topologies"] > 0


class Maintainer:
    looks = 3
    last_error: Exception | None = ValueError("no")


def test_maintenance_shows_per_graph() -> None:
    metrics = Metrics()
    metrics.watch_maintenance({"kb": Maintainer()})
    assert samples(metrics.text())["omnigraph_upkeep_runs_total", "graph=kb"] == 0
    metrics._look_at_engine()
    found = samples(metrics.text())
    assert found["omnigraph_upkeep_runs_total", "graph=kb"] == 3
    assert found["omnigraph_upkeep_failing", "graph=kb"] == 1


def test_a_cache_counts_how_often_it_helped() -> None:
    cache: ByteBoundCache[str] = ByteBoundCache(100)
    cache.get("a")
    cache.keep("a", "value", 5)
    cache.get("a")
    cache.get("a")
    assert cache.lookups == Lookups(hits=2, misses=1)


def test_a_lock_counts_who_waited_for_it() -> None:
    locks = FairLocks()
    with locks.hold("main"):
        waiter = threading.Thread(target=lambda: locks.hold("main").__enter__())
        waiter.start()
        wait_until(lambda: locks.waits.asked == 2, "the other one waits")
    waiter.join()
    assert (locks.waits.asked, locks.waits.waited) == (2, 1)
    assert locks.waits.seconds > 0


def test_workers_are_summed_and_the_dead_are_dropped_from_gauges_only(light: LightServer, room: Room) -> None:
    server = light(workers=2)
    for _ in range(20):
        fetched(server, "/count/query")  # shared out among both

    def found() -> dict[tuple[str, ...], float]:
        return samples(fetched(server, "/metrics"))

    counted = ("omnigraph_requests_total", "method=GET", "operation=query", "status=200")
    assert found()[counted] == 20
    assert found()[("omnigraph_workers",)] == 2
    with asked(server, "/hold/a"):
        wait_until(lambda: room.has("a-began"), "the request is under way")
        assert found()[("omnigraph_requests_in_flight",)] == 1
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.errors().count("serves again") == 2, "both were replaced")
    assert found()[counted] == 20
    assert found()[("omnigraph_requests_in_flight",)] == 0
    assert found()[("omnigraph_workers",)] == 2
    fetched(server, "/count/query")
    assert found()[counted] == 21
    assert server.terminate() == 0


def test_gauges_of_the_dead_are_dropped_and_their_counters_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"gauge_livesum_{dead.pid}.db", f"gauge_livesum_{os.getpid()}.db", f"counter_{dead.pid}.db"):
        (tmp_path / name).touch()
    forget_dead_workers(str(tmp_path))
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == [f"counter_{dead.pid}.db", f"gauge_livesum_{os.getpid()}.db"]
