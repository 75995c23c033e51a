"""Loads beside Ladybug, Kuzu, DuckDB and SQLite: people, friendships by the keys of the people, then indexes.

    python -m benchmarks load [--scale 1] [--rounds 3] [--folder DIR] [--json FILE]

The files are those of `bench_query`, in Parquet. Every round begins with an empty store and a new process, whose most
memory is that of the whole load. Systems that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.contest import OURS, Timed, copied, in_turns, running
from benchmarks.graph_stores import graph_files, graph_systems
from benchmarks.graph_systems import KNOWS, PEOPLE, GraphSystem
from benchmarks.report import COLD, Goal, Report

ROUNDS, ROUNDS_OF_LARGE_LOADS = 3, 1
LARGE_SCALE = 2
STEPS = ("create", "load_people", "load_edges", "build_indexes")
MOST_JSON_EDGES = 1_000_000
MEGABYTE = 1 << 20


def measure(report: Report, options: argparse.Namespace, folder: Path) -> None:
    chosen = graph_systems()
    files = graph_files(folder, options.scale)
    people, edges = (pq.read_metadata(files / name).num_rows for name in (PEOPLE, KNOWS))
    rounds = options.rounds or (ROUNDS if options.scale <= LARGE_SCALE else ROUNDS_OF_LARGE_LOADS)
    report.begin("load", rounds, chosen, f"{people:,} people, {edges:,} friendships")
    from_parquet(report, chosen, files, edges)
    from_json(report, chosen, files, min(edges, MOST_JSON_EDGES))


def from_parquet(report: Report, chosen: Sequence[type[GraphSystem]], files: Path, edges: int) -> None:
    report.heading("from Parquet")
    taken: dict[str, list[list[Timed]]] = {contender.name: [] for contender in chosen}
    # Nobody warms up here: `in_turns` counts from the second round on, a load from the first.
    for _, contender in in_turns(chosen, "load", report.rounds - 1):
        with copied([], files, PEOPLE, KNOWS) as place, running(contender, place) as system:
            taken[contender.name].append([system.ask(step) for step in STEPS])
            system.ask("close")
    indexed = {c.name: c.build_indexes is not GraphSystem.build_indexes for c in chosen}
    for name, rounds in taken.items():
        _, people, links, indexes = ([steps[i] for steps in rounds] for i in range(len(STEPS)))
        report.add("load of the people", name, people, goal=COLD)
        report.add("load of friendships, per million", name, links, goal=COLD, parts=edges / 1e6)
        if indexed[name]:
            report.add("build of the indexes", name, indexes)
        whole = [Timed(None, sum(s.wall for s in steps), sum(s.cpu for s in steps)) for steps in rounds]
        report.add("load and indexes", name, whole, goal=COLD)
        peak = statistics.median(steps[-1].peak for steps in rounds) / MEGABYTE
        report.add_value("most memory of a load", name, peak, "MB", Goal(1024, "MB") if name == OURS else None)


def from_json(report: Report, chosen: Sequence[type[GraphSystem]], files: Path, edges: int) -> None:
    report.heading(f"{edges:,} friendships from lines of JSON")
    with copied([], files, PEOPLE, KNOWS) as shared:
        lines = shared / "knows.ndjson"
        write_lines(shared / KNOWS, lines, edges)
        for contender in chosen:
            with copied([], files, PEOPLE, KNOWS) as place, running(contender, place) as system:
                system.ask("create")
                system.ask("load_people")
                loaded = system.ask("load_json_edges", lines)
                system.ask("close")
            report.add("load of JSON friendships, per million", contender.name, [loaded], edges / 1e6, COLD)


def write_lines(file: Path, lines: Path, count: int) -> None:
    with lines.open("w") as written:
        for batch in pq.ParquetFile(file).iter_batches(columns=["source_slug", "target_slug"]):
            source, target = (column.to_pylist() for column in batch.slice(0, count).columns)
            for pair in zip(source, target, strict=True):
                written.write(json.dumps(dict(zip(("from", "to"), pair, strict=True))) + "\n")
            count -= len(source)
            if count <= 0:
                return
