"""What merging costs: a fast-forward and a three-way merge, beside plain loads of the same rows in the same run.

    python benchmarks/bench_merge.py [--rows N] [--changed N] [--json]

The peer of a three-way merge is a load that writes the changed rows once more: a merge has to find them, judge them and
write them. The peer of a fast-forward is a load of one row. Ratios, because machines differ; best of several runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
edge Knows: Person -> Person { since: I32? }
"""
RUNS = 3


def people(first: int, count: int, age: int) -> str:
    return "\n".join(
        json.dumps({"type": "Person", "data": {"name": f"p{i:08d}", "age": age, "email": f"{i}@example.org"}})
        for i in range(first, first + count)
    )


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(rows: int, changed: int) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, Graph.init(Path(folder) / "graph", SCHEMA) as graph:
        graph.load(people(0, rows, 1), mode="append")
        for run in range(RUNS):
            ahead, side = f"ahead-{run}", f"side-{run}"
            graph.create_branch(ahead)
            graph.load(people(rows + run, 1, run), mode="append", branch=ahead)
            note(times, "fast_forward", lambda ahead=ahead: graph.merge(ahead))
            graph.create_branch(side)
            graph.load(people(run * changed, changed, 10 + run), mode="merge", branch=side)
            note(times, "load_one", lambda run=run: graph.load(people(2 * rows + run, 1, 0), mode="append"))
            note(times, "diff", lambda side=side: graph.diff("main", side))
            note(times, "three_way", lambda side=side: graph.merge(side))
            note(
                times,
                "load_changed",
                lambda run=run: graph.load(people(run * changed, changed, 50 + run), mode="merge"),
            )
    best = {name: min(taken) for name, taken in times.items()}
    return {
        "rows": rows,
        "changed": changed,
        **{f"{name}_ms": round(value * 1e3, 2) for name, value in best.items()},
        "fast_forward_over_load_one": round(best["fast_forward"] / best["load_one"], 2),
        "three_way_over_load_changed": round(best["three_way"] / best["load_changed"], 2),
    }


def note(times: dict[str, list[float]], name: str, work: Callable[[], object]) -> None:
    times.setdefault(name, []).append(seconds(work))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--changed", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured = measure(arguments.rows, arguments.changed)
    if arguments.json:
        print(json.dumps(measured))
        return
    for name, value in measured.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    main()
