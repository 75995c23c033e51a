"""The server against the same graph in this process: point reads, one-edge writes, and workers against each other.

    python -m benchmarks http [--rounds 7] [--reads 300] [--writes 40]

Each figure is a median over rounds in which everybody takes turns. Reads go over one kept connection, as a client of a
service does; the throughput is that of 16 connections from two other processes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import omnigraph

PEOPLE = 10_000
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
FIND = "query find($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
JSON = {"Content-Type": "application/json"}


class Connection:
    """One kept connection to a server."""

    def __init__(self, address: str) -> None:
        self._http = http.client.HTTPConnection(address, timeout=60)

    def post(self, operation: str, query: str, params: dict[str, str]) -> dict[str, object]:
        self._http.request("POST", f"/graphs/g/{operation}", json.dumps({"query": query, "params": params}), JSON)
        response = self._http.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status} {body.decode()}")
        answer: dict[str, object] = json.loads(body)
        return answer


@contextmanager
def serving(graph: Path, workers: int) -> Iterator[str]:
    """A server of its own process; the address it listens on."""
    command = [sys.executable, "-m", "omnigraph.cli.main", "serve", "--store", str(graph), "--bind", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--unauthenticated", "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if line.startswith("OMNIGRAPH_LISTEN_ADDR=")), None)
        if line is None:
            raise RuntimeError("the server did not start")
        yield line.strip().partition("=")[2]
    finally:
        process.terminate()
        process.wait()


def median_ms(work: Callable[[int], object], count: int) -> float:
    """The middle of `count` calls, in milliseconds."""
    times = []
    for i in range(count):
        began = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def reads_of_one_client(address: str, connections: int, seconds: float) -> int:
    """How many point reads some connections of one process get in a while."""
    until = time.perf_counter() + seconds

    def read(_: int) -> int:
        connection, done = Connection(address), 0
        while time.perf_counter() < until:
            connection.post("query", FIND, {"name": f"p{done % PEOPLE}"})
            done += 1
        return done

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(read, range(connections)))


def reads_per_second(clients: concurrent.futures.Executor, address: str, seconds: float = 3.0) -> float:
    done = clients.map(reads_of_one_client, [address] * 2, [8] * 2, [seconds] * 2)
    return sum(done) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_http")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reads", type=int, default=300)
    parser.add_argument("--writes", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder) / "g"
        graph = omnigraph.init(location, SCHEMA)
        graph.load(
            "\n".join(json.dumps({"type": "Person", "data": {"name": f"p{i}", "age": i % 90}}) for i in range(PEOPLE)),
            mode="append",
        )
        graph.maintenance.optimize()
        with serving(location, 1) as one, serving(location, 2) as two:
            _latencies(graph, one, asked.rounds, asked.reads, asked.writes)
            _throughput(one, two, asked.rounds)


def _latencies(graph: omnigraph.Graph, address: str, rounds: int, reads: int, writes: int) -> None:
    connection = Connection(address)
    found: dict[str, list[float]] = {"read": [], "http read": [], "write": [], "http write": []}
    for turn in range(rounds + 1):
        measured = {
            "read": median_ms(lambda i: graph.query(FIND, params={"name": f"p{i}"}), reads),
            "http read": median_ms(lambda i: connection.post("query", FIND, {"name": f"p{i}"}), reads),
            "write": median_ms(lambda i, at=turn: graph.mutate(LINK, a=f"p{i}", b=f"p{at}"), writes),
            "http write": median_ms(
                lambda i, at=turn: connection.post("mutate", LINK, {"a": f"p{i}", "b": f"p{at}"}), writes
            ),
        }
        if turn:  # the first round warms up
            for name, value in measured.items():
                found[name].append(value)
    middle = {name: statistics.median(values) for name, values in found.items()}
    for kind in ("read", "write"):
        own, over = middle[kind], middle[f"http {kind}"]
        print(
            f"point {kind}: {own:.2f} ms in process, {over:.2f} ms over HTTP: +{over - own:.2f} ms, {over / own:.2f}x"
        )


def _throughput(one: str, two: str, rounds: int) -> None:
    found: dict[str, list[float]] = {one: [], two: []}
    # Started before anything is measured, and not forked: this process has an open graph.
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as clients:
        for turn in range(rounds + 1):
            for address in (one, two) if turn % 2 else (two, one):
                measured = reads_per_second(clients, address)
                if turn:  # the first round warms up
                    found[address].append(measured)
    single, double = (statistics.median(found[address]) for address in (one, two))
    print(f"reads per second, 16 connections: {single:.0f} with 1 worker, {double:.0f} with 2: {double / single:.2f}x")


if __name__ == "__main__":
    main()
