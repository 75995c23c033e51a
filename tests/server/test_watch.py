"""`omnigraph-server --watch` under load, while its cluster is applied anew: states are swapped, and nobody notices it
but by what is served afterwards."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import httpx

from omnigraph.cluster.payloads import PayloadStore
from omnigraph.cluster.state import Resource
from tests.server.test_metrics import samples
from tests.server.test_workers import fetched
from tests.support.cluster_files import LARGER_SCHEMA, QUERIES, SCHEMA, ClusterFiles, Declared
from tests.support.clusters import Cluster
from tests.support.servers import WITHOUT_TLS, ServerProcess, served
from tests.support.waiting import wait_until

CLIENTS = 3
PAUSE = 0.02
"""Seconds between two requests of a client: enough of them fall into every swap, and the machine has other work."""
ADDED_WITH_EACH = 4


def declare(files: ClusterFiles, number: int) -> None:
    """The configuration with one more stored query, and with another schema from the second on."""
    named = QUERIES.replace("query find", f"query find{number}").replace("query add", f"query add{number}")
    schema = SCHEMA if number < 1 else LARGER_SCHEMA
    files.write({"kb": Declared(schema, {"own.gq": QUERIES, "more.gq": named})})


def applied(files: ClusterFiles) -> int:
    """The revision that an apply made."""
    report = files.apply("ana")
    assert report.converged, report.diagnostics
    return files.state.state_revision


def tear(files: ClusterFiles) -> int:
    """A revision with a query that fits no schema, as no apply would make it."""
    digest = PayloadStore(files.objects).write(
        "query.kb.torn", b"query torn() { match { $p: Nobody } return { $p.name } }"
    )
    return Cluster(files.root, files.objects).record(
        lambda known: known.update({"query.kb.torn": Resource(digest=digest)})
    )


class Load:
    """Clients that read and write until they are told to end; what they were answered."""

    def __init__(self, url: str) -> None:
        self.answers: Counter[int | str] = Counter()
        self.added: list[str] = []
        self._url = url
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        self._lock = threading.Lock()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int) -> None:
        """Wait for so many more answers."""
        so_far = self.answers.total()
        wait_until(lambda: self.answers.total() >= so_far + count, "clients are answered")

    def _run(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=600, verify=WITHOUT_TLS) as client:
            for turn in range(100_000):
                if self._ending.wait(PAUSE):
                    return
                name = f"p{number}-{turn}" if turn < ADDED_WITH_EACH else "p0-0"
                stored = "add" if turn < ADDED_WITH_EACH else "find"
                status = self._asked(client, stored, name)
                with self._lock:
                    self.answers[status] += 1
                    if stored == "add":
                        self.added.append(name)

    def _asked(self, client: httpx.Client, stored: str, name: str) -> int | str:
        try:
            return client.post(f"/graphs/kb/queries/{stored}", json={"params": {"name": name}}).status_code
        except httpx.TransportError as error:
            return f"{type(error).__name__}: {error}"


def counted(server: ServerProcess, name: str) -> float:
    """A number of all workers together."""
    return samples(fetched(server, "/metrics"))[(f"omnigraph_{name}",)]


def test_states_are_swapped_under_load_without_one_failed_request(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.write({"kb": Declared(SCHEMA, {"own.gq": QUERIES})})
    files.import_()
    applied(files)
    arguments = ("--cluster", files.source, "--bind", "127.0.0.1:0", "--unauthenticated", "--workers", "2", "--watch")
    with served("serve", *arguments) as server:
        with Load(server.url) as load:
            load.more(20)
            revision = 0
            for number in range(2):
                declare(files, number)
                revision = applied(files)
                wait_until(lambda: counted(server, "revision") == revision, "every worker serves it")  # noqa: B023
                load.more(20)

            torn = tear(files)
            wait_until(lambda: counted(server, "workers_behind") == 2, "every worker has tried")
            assert json.loads(fetched(server, "/readyz")) == {
                "status": "degraded",
                "graphs": 1,
                "quarantined": 0,
                "revision": revision,
                "unserved_revision": torn,
            }
            load.more(20)

            revision = applied(files)
            wait_until(lambda: counted(server, "revision") == revision, "every worker serves the mended state")
            assert counted(server, "workers_behind") == 0
            load.more(20)
        assert dict(load.answers) == {200: load.answers.total()}

        victim = server.workers()[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: "serves again" in server.errors(), "the worker is replaced")
        assert counted(server, "revision") == revision
        with httpx.Client(base_url=server.url, timeout=600, verify=WITHOUT_TLS) as client:
            listed = client.get("/graphs/kb/queries").json()["queries"]
            assert [query["name"] for query in listed] == ["add", "add1", "find", "find1"]
            assert client.post("/graphs/kb/queries/find1", json={"params": {"name": "p0-0"}}).json()["row_count"] == 1
            everybody = client.post(
                "/graphs/kb/query", json={"query": "query all() { match { $p: Person } return { $p.name as name } }"}
            )
            assert sorted(row["name"] for row in everybody.json()["rows"]) == sorted(load.added)
        assert "unknown node type 'Nobody'" in server.errors()
        assert server.terminate() == 0
