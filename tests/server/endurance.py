"""What only shows after long: memory over many requests, and what idle connections cost.

python -m tests.server.endurance --requests 100000 --idle 10000
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import resource
import socket
import sys
import tempfile
from pathlib import Path

import omnigraph
from tests.support.servers import ServerProcess, served

SCHEMA = "node Person { name: String @key  age: I32? }"
FIND = "query find($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
ADD = "query add($name: String) { insert Person { name: $name } }"
PEOPLE = 2_000


def memory_of(server: ServerProcess) -> int:
    """Bytes that its processes hold for themselves."""
    held = 0
    for pid in [server.pid, *server.workers()]:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        held += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))
    return held


def ask(server: ServerProcess, requests: int, connections: int = 4) -> None:
    """So many requests, nearly all of them reads, over kept connections."""

    def some(number: int) -> None:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
        for i in range(requests // connections):
            body = {"query": FIND, "params": {"name": f"p{i % PEOPLE}"}}
            if i % 500 == 499:
                connection.request("POST", "/graphs/g/export", "{}", {"Content-Type": "application/json"})
            else:
                connection.request("POST", "/graphs/g/query", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(some, range(connections)))


def idle(server: ServerProcess, count: int) -> list[socket.socket]:
    """Connections that had one answer and are kept."""
    kept = []
    for _ in range(count):
        connection = server.connect()
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        kept.append(connection)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.endurance", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--idle", type=int, default=10_000)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    store = f"{tempfile.mkdtemp(prefix='endurance-')}/g"
    with omnigraph.init(store, SCHEMA) as graph:
        people = (json.dumps({"type": "Person", "data": {"name": f"p{i}"}}) for i in range(PEOPLE))
        graph.load("\n".join(people), mode="append")
    flags = ("--store", store, "--bind", "127.0.0.1:0", "--unauthenticated", "--keep-alive-seconds", "3600")
    with served("serve", *flags) as server:
        ask(server, 5_000)
        before = memory_of(server)
        told = []
        for _ in range(5):
            ask(server, given.requests // 5)
            told.append(memory_of(server))
        grown = [(held - before) >> 20 for held in told]
        print(
            f"memory: {before >> 20} MiB after 5,000 requests, then {grown} MiB more, each after {given.requests // 5}"
        )
        before = memory_of(server)
        kept = idle(server, given.idle)
        held = memory_of(server)
        ask(server, 200)
        print(f"{given.idle} idle connections: {(held - before) / given.idle / 1024:.1f} KiB each; still answering")
        for connection in kept:
            connection.close()
        return server.terminate()


if __name__ == "__main__":
    sys.exit(main())
