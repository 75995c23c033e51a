"""A one-edge insert on a local disk, with its endpoint checks, at growing history depth.

    python benchmarks/bench_insert.py [--depth N] [--samples N] [--json]

Two ratios, both taken in one run: the median at depth N over the median at depth 1 (an insert must not slow down with
history), and an insert over one raw pylance append of the same row to a bare dataset (what the graph adds: a query,
two endpoint probes, a commit entry, and the flushes that make an acknowledged commit survive a power cut).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable

import lance
import pyarrow as pa

from omnigraph import Graph

SCHEMA = """
node Page { path: String @key }
node Tag { name: String @key }
edge Links: Page -> Tag { weight: I32? }
"""
INSERT = "query link($f: String, $t: String) { insert Links { from: $f, to: $t, weight: 1 } }"
NODES = 10_000
ALLOWED_GROWTH = 1.5


def new_graph(directory: str) -> Graph:
    graph = Graph.init(f"{directory}/graph", SCHEMA)
    records = [{"type": "Page", "data": {"path": f"p{i}"}} for i in range(NODES)]
    records += [{"type": "Tag", "data": {"name": f"t{i}"}} for i in range(NODES)]
    graph.load("\n".join(json.dumps(record) for record in records), mode="append")
    return graph


def medians(work: Callable[[int], object], samples: int) -> float:
    """Milliseconds, the median over `samples` runs."""
    times = []
    for i in range(samples):
        started = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def bare_appends(directory: str) -> Callable[[int], object]:
    schema = pa.schema([("id", pa.string()), ("src", pa.string()), ("dst", pa.string()), ("weight", pa.int32())])
    uri = f"{directory}/bare"
    lance.write_dataset(schema.empty_table(), uri, schema=schema)

    def append(i: int) -> None:
        row = {"id": f"e{i}", "src": f"p{i}", "dst": f"t{i}", "weight": 1}
        lance.write_dataset(pa.Table.from_pylist([row], schema=schema), uri, mode="append")

    return append


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=500)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory, new_graph(directory) as graph:

        def insert(i: int) -> None:
            graph.mutate(INSERT, "link", {"f": f"p{i * 31 % NODES}", "t": f"t{i * 17 % NODES}"})

        bare = bare_appends(directory)
        for i in range(5):
            insert(i)
            bare(i)
        shallow = medians(insert, options.samples)
        beside = medians(bare, options.samples)
        while graph.snapshot().version < options.depth:
            insert(graph.snapshot().version)
        deep = medians(insert, options.samples)

    growth = deep / shallow
    report = {
        "insert_ms_shallow": round(shallow, 2),
        "insert_ms_deep": round(deep, 2),
        "bare_append_ms": round(beside, 2),
        "depth": options.depth,
        "deep_over_shallow": round(growth, 3),
        "insert_over_bare_append": round(shallow / beside, 3),
        "allowed_growth": ALLOWED_GROWTH,
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"one-edge insert at depth 1:    {shallow:7.2f} ms (median of {options.samples})")
    print(f"one-edge insert at depth {options.depth:4}: {deep:7.2f} ms, {growth:.2f}x (allowed {ALLOWED_GROWTH}x)")
    print(f"bare pylance append:           {beside:7.2f} ms, the insert is {shallow / beside:.2f}x of it")


if __name__ == "__main__":
    main()
