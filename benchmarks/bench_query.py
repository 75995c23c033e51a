"""Reads against their peers, on the same data, in the same run: ratios that a release must keep.

    python benchmarks/bench_query.py [--nodes 1000000] [--degree 10] [--folder DIR] [--keep]

Peers: a raw pylance filtered scan (point lookup), Kuzu (traversals), DuckDB (aggregates over a join). A peer that is
not installed is skipped. Each figure is the best of several runs; "restart" is the first query of a new process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.engine.graph import Graph
from omnigraph.engine.publish import Intent, PublishPlan, WriteTxn

SCHEMA = """
node Person { slug: String @key  age: I32  city: String }
edge Knows: Person -> Person
"""

LOOKUP = "query q($k: String) { match { $p: Person { slug: $k } } return { $p.age, $p.city } }"
HOPS = "query q($k: String) { match { $p: Person { slug: $k }  $p knows%s $x } return { count($x) as n } }"
TWO_HOP_COUNT = "query q() { match { $a: Person  $a knows $b  $b knows $c } return { count($c) as n } }"
NEIGHBOUR_NAMES = (
    "query q($k: String) { match { $p: Person { slug: $k }  $p knows{1,2} $x } return { $x.slug, $x.age } }"
)
BY_CITY = (
    "query q() { match { $a: Person  $a knows $b } "
    "return { $b.city as city, count($a) as n, avg($a.age) as age } order { city } }"
)


def make_tables(nodes: int, degree: int) -> tuple[pa.Table, pa.Table]:
    random = np.random.default_rng(7)
    names = pa.array([f"person-{i:08d}" for i in range(nodes)])
    people = pa.table(
        {
            "id": names,
            "age": pa.array(random.integers(1, 99, nodes), pa.int32()),
            "city": pa.array([f"city-{i:03d}" for i in random.integers(0, 200, nodes)]),
            "slug": names,
        }
    )
    count = nodes * degree
    source, target = random.integers(0, nodes, count), random.integers(0, nodes, count)
    knows = pa.table(
        {
            "id": pa.array([f"e{i:09d}" for i in range(count)]),
            "src": names.take(pa.array(source)),
            "dst": names.take(pa.array(target)),
        }
    )
    return people, knows


def make_graph(folder: Path, people: pa.Table, knows: pa.Table) -> Graph:
    graph = Graph.init(folder, SCHEMA)
    rows = {"node:Person": people, "edge:Knows": knows}

    def prepare(txn: WriteTxn) -> PublishPlan:
        staged = {}
        for key, table in rows.items():
            schema = txn.snapshot.table(key).schema
            stage = txn.root.staging.append(txn.state(key), table.select(schema.names).cast(schema))
            for column in ("id", "slug") if key.startswith("node:") else ("id", "src", "dst"):
                stage = txn.root.staging.build_index(stage.state, column, "BTREE", f"{column}_btree")
            staged[key] = stage
        return PublishPlan(staged=staged)

    graph.commit("main", prepare, Intent(kind="load"))
    return graph


def best(run: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the fastest of several runs."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


class Report:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, ours: float, peer: str, theirs: float | None, target: float) -> None:
        ratio = None if theirs is None else ours / theirs
        self.rows.append({"case": name, "ours_ms": ours * 1000, "peer": peer, "ratio": ratio, "target": target})
        shown = "peer not installed" if ratio is None else f"{peer} {theirs * 1000:10.2f} ms   ratio {ratio:6.2f}"  # type: ignore[operator]
        print(f"{name:34s} ours {ours * 1000:10.2f} ms   {shown}   (target {target:g})", flush=True)


@contextlib.contextmanager
def kuzu_on(folder: Path, people: Path, pairs: Path) -> Iterator[Any | None]:
    try:
        import kuzu
    except ImportError:
        yield None
        return
    location = folder / "kuzu"
    fresh = not location.exists()
    database = kuzu.Database(str(location))
    connection = kuzu.Connection(database)
    if fresh:
        connection.execute("CREATE NODE TABLE Person(slug STRING, age INT32, city STRING, PRIMARY KEY (slug))")
        connection.execute("CREATE REL TABLE Knows(FROM Person TO Person)")
        connection.execute(f'COPY Person FROM "{people}"')
        connection.execute(f'COPY Knows FROM "{pairs}"')
    yield connection
    connection.close()
    database.close()


def kuzu_hops(connection: Any, key: str, hops: int) -> int:
    text = (
        f"MATCH (a:Person {{slug: $k}})-[:Knows* SHORTEST 1..{hops}]->(b:Person) RETURN count(b.slug)"
        if hops > 1
        else "MATCH (a:Person {slug: $k})-[:Knows]->(b:Person) RETURN count(DISTINCT b.slug)"
    )
    return int(connection.execute(text, {"k": key}).get_next()[0])


def kuzu_two_hop_count(connection: Any) -> int:
    text = "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person) RETURN count(*)"
    return int(connection.execute(text).get_next()[0])


def traversals(graph: Graph, keys: list[str], kuzu: Any | None, report: Report, label: str, times: int) -> None:
    for hops in (1, 2, 3, 4):
        text = HOPS % ("" if hops == 1 else f"{{1,{hops}}}")
        ours = best(lambda t=text: [graph.query(t, params={"k": k}) for k in keys], times) / len(keys)
        theirs = None
        if kuzu is not None:
            theirs = best(lambda h=hops: [kuzu_hops(kuzu, k, h) for k in keys], times) / len(keys)
        report.add(f"{hops} hops, {label}", ours, "kuzu", theirs, 1.0)
    ours = best(lambda: graph.query(TWO_HOP_COUNT), max(1, times - 2))
    theirs = None if kuzu is None else best(lambda: kuzu_two_hop_count(kuzu), max(1, times - 2))
    report.add(f"2-hop count, {label}", ours, "kuzu", theirs, 1.0)


def lookups(graph: Graph, keys: list[str], report: Report) -> None:
    table = graph.snapshot().table("node:Person")

    def raw() -> None:
        for key in keys:
            table.read(["age", "city"], filter=f"slug = '{key}'")

    ours = best(lambda: [graph.query(LOOKUP, params={"k": k}) for k in keys]) / len(keys)
    report.add("point lookup by key", ours, "pylance", best(raw) / len(keys), 3.0)


def aggregates(graph: Graph, people: Path, knows: Path, report: Report) -> None:
    theirs = None
    with contextlib.suppress(ImportError):
        import duckdb

        tables = {"people": pq.read_table(people), "knows": pq.read_table(knows, columns=["src", "dst"])}
        connection = duckdb.connect()
        for name, table in tables.items():
            connection.register(name, table)
        text = (
            "SELECT b.city, count(*), avg(a.age) FROM (SELECT DISTINCT src, dst FROM knows) k "
            "JOIN people a ON a.slug = k.src JOIN people b ON b.slug = k.dst GROUP BY b.city ORDER BY b.city"
        )
        theirs = best(lambda: connection.execute(text).fetchall(), 3)
        plain = text.replace("(SELECT DISTINCT src, dst FROM knows)", "knows")
        plainly = best(lambda: connection.execute(plain).fetchall(), 3)
        report.add("1-hop aggregate", best(lambda: graph.query(BY_CITY), 3), "duckdb", plainly, 2.0)
    report.add("1-hop aggregate, distinct pairs", best(lambda: graph.query(BY_CITY), 3), "duckdb", theirs, 2.0)


def restart(folder: Path, keys: list[str]) -> None:
    """In a process of its own: the first query of every kind, ours and Kuzu's."""
    script = [sys.executable, __file__, "--folder", str(folder), "--after-restart", json.dumps(keys[:1])]
    subprocess.run(script, check=True, env=os.environ)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--after-restart", type=json.loads)
    chosen = parser.parse_args()
    folder: Path = chosen.folder or Path(tempfile.mkdtemp(prefix="bench-query-"))
    report = Report()
    files = folder / "people.parquet", folder / "knows.parquet", folder / "pairs.parquet"
    if chosen.after_restart:
        with Graph.open(folder / "graph") as graph, kuzu_on(folder, files[0], files[2]) as kuzu:
            # The grammar is part of starting the process, as Kuzu's own is; no data is read by explaining.
            graph.explain(HOPS % "", params={"k": ""})
            traversals(graph, chosen.after_restart, kuzu, report, "after restart", 1)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "graph").exists():
        graph = Graph.open(folder / "graph")
    else:
        people, knows = make_tables(chosen.nodes, chosen.degree)
        pq.write_table(people.select(["slug", "age", "city"]), files[0])
        pq.write_table(knows, files[1])
        pq.write_table(knows.select(["src", "dst"]), files[2])
        graph = make_graph(folder / "graph", people, knows)
    random = np.random.default_rng(11)
    keys = [f"person-{i:08d}" for i in random.integers(0, graph.snapshot().count("node:Person"), 20)]
    with kuzu_on(folder, files[0], files[2]) as kuzu:
        started = time.perf_counter()
        graph.query(TWO_HOP_COUNT)
        print(f"first use of the topology: {time.perf_counter() - started:.2f} s", flush=True)
        lookups(graph, keys, report)
        traversals(graph, keys, kuzu, report, "warm", 3)
    aggregates(graph, files[0], files[1], report)
    graph.close()
    restart(folder, keys)
    if not chosen.keep and chosen.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
