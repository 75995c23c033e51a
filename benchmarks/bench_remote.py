"""A large result over HTTP: as Arrow, as JSON, and without HTTP, in turns.

python -m benchmarks remote [--rows 1000000] [--rounds 3]

Each way ends where a program has the rows: a table of Arrow, batches of one, or a list of dictionaries from JSON. The
server is a process of its own; CPU is that of client and server together.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa

import omnigraph
from benchmarks.bench_http import serving

SCHEMA = "node Reading { key: String @key  sensor: String  value: F64  at: DateTime  count: I64 }"
ALL = """query readings() {
  match { $r: Reading }
  return { $r.key as key, $r.sensor as sensor, $r.value as value, $r.at as at, $r.count as count }
}"""
_BATCH = 1_000_000


def made(place: Path, rows: int) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        for start in range(0, rows, _BATCH):
            numbers = range(start, min(start + _BATCH, rows))
            table = pa.table(
                {
                    "key": [f"k{n:09d}" for n in numbers],
                    "sensor": [f"sensor-{n % 997}" for n in numbers],
                    "value": [n * 0.5 for n in numbers],
                    "at": pa.array([n * 1000 for n in numbers], pa.timestamp("ms", tz="UTC")),
                    "count": list(numbers),
                }
            )
            graph.load(table, type="Reading", mode="append")


def cpu_of(server: int) -> float:
    """CPU seconds of this process and of the server."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return own.ru_utime + own.ru_stime + (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "g"
        made(place, given.rows)
        with serving(place, 1) as address, omnigraph.open(place) as here:
            pid = _listening(address)
            there = omnigraph.connect(f"http://{address}", graph="g", timeout=600)
            plain = httpx.Client(timeout=600)
            body = {"query": ALL}

            def as_json() -> int:
                rows: list[dict[str, object]] = plain.post(f"{there.uri}/query", json=body).json()["rows"]
                return len(rows)

            def streamed() -> int:
                return sum(batch.num_rows for batch in there.stream(ALL))

            ways: dict[str, Callable[[], int]] = {
                "in process": lambda: here.query(ALL).to_arrow().num_rows,
                "Arrow over HTTP": lambda: there.query(ALL).to_arrow().num_rows,
                "Arrow, streamed": streamed,
                "JSON over HTTP": as_json,
            }
            _compare(ways, given.rows, given.rounds, pid)


def _compare(ways: dict[str, Callable[[], int]], rows: int, rounds: int, server: int) -> None:
    walls: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        order = list(ways)
        random.Random(turn).shuffle(order)
        for name in order:
            began, before = time.perf_counter(), cpu_of(server)
            if (found := ways[name]()) != rows:
                raise RuntimeError(f"{name}: {found} rows, {rows} expected")
            if turn:  # the first round warms up
                walls[name].append(time.perf_counter() - began)
                costs[name].append(cpu_of(server) - before)
    print(f"{rows:,} rows of 5 columns, medians of {rounds} rounds, seconds")
    print(f"{'':18}{'wall':>8}{'CPU':>8}{'CPU over in process':>22}")
    least = statistics.median(costs["in process"])
    for name in ways:
        wall, cost = statistics.median(walls[name]), statistics.median(costs[name])
        print(f"{name:18}{wall:8.2f}{cost:8.2f}{cost / least:21.1f}x")


def _listening(address: str) -> int:
    """The process that listens at an address of this machine."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    socket = next(f"socket:[{line[9]}]" for line in lines if line[1].endswith(f":{port}") and line[3] == "0A")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(handle.readlink()) == socket for handle in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise RuntimeError(f"nobody listens at {address}")


if __name__ == "__main__":
    main()
