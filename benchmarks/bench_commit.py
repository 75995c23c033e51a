"""A one-row commit at growing history depth, beside a raw pylance append of the same row to a plain dataset."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
SAMPLES = 40


def row(name: str) -> pa.Table:
    return pa.table({"id": [name], "n": [1]}, schema=SCHEMA)


def p50(work: Callable[[int], object]) -> float:
    times = []
    for i in range(SAMPLES):
        started = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def append(graph: Graph, name: str) -> None:
    def prepare(txn: WriteTxn) -> PublishPlan:
        return PublishPlan(txn.stage({"node:Row": lambda state: txn.root.staging.append(state, row(name))}))

    graph._workspace.commit("main", prepare, Intent(kind="load"))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        graph = Graph(Workspace(create_root(Location.parse(f"{directory}/graph"), {"node:Row": SCHEMA})))
        plain = lance.write_dataset(row("first"), f"{directory}/plain")
        medians = {}
        for depth in (1, 100, 500):
            while graph.snapshot().version < depth:
                append(graph, f"deep-{graph.snapshot().version}")
            medians[depth] = p50(lambda i, depth=depth: append(graph, f"{depth}-{i}"))
        peer = p50(lambda i: lance.write_dataset(row(f"p{i}"), plain, mode="append"))
        print(f"raw pylance append, p50: {peer:.2f} ms")
        for depth, milliseconds in medians.items():
            ratio, growth = milliseconds / peer, milliseconds / medians[1]
            print(f"commit at depth {depth}, p50: {milliseconds:.2f} ms = {ratio:.2f}x raw, {growth:.2f}x depth 1")
        graph.close()
