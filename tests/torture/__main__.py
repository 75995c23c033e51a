"""`python -m tests.torture`: torture a graph for some minutes and tell what was found."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from omnigraph import Graph
from tests.torture.choices import CHOOSING
from tests.torture.runner import Settings, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--store", help="where graphs are made: a directory or s3://bucket/prefix; default: the run's own"
    )
    parser.add_argument("--seed", default=None, help="all random choices come from it; a new one is made and printed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--round", type=float, default=20.0, help="seconds between two complete checks")
    parser.add_argument("--nemesis", type=float, default=2.0, help="seconds between two signals; 0 sends none")
    parser.add_argument(
        "--traps", type=float, default=0.12, help="share of writes that stop or die at a point of their own"
    )
    parser.add_argument("--rest", type=float, default=0.05, help="longest rest of a worker between two operations")
    parser.add_argument("--grace", type=float, default=60.0, help="grace period of cleanups in seconds")
    parser.add_argument(
        "--weight", action="append", default=[], metavar="KIND=FACTOR", help=f"of {', '.join(CHOOSING)}"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory of the run also when nothing was found")
    given = parser.parse_args()
    seed = given.seed or secrets.token_hex(4)
    directory = Path(tempfile.mkdtemp(prefix=f"torture-{seed}-"))
    store = (
        given.store.rstrip("/") + f"/torture-{seed}-{secrets.token_hex(3)}" if given.store else str(directory / "graph")
    )
    print(f"seed {seed}, directory {directory}, graph {store}", flush=True)
    settings = Settings(
        uri=store,
        directory=str(directory),
        seed=seed,
        length=given.minutes * 60,
        workers=given.workers,
        round=given.round,
        nemesis=given.nemesis,
        traps=given.traps,
        rest=given.rest,
        grace=given.grace,
        weights={kind: float(factor) for kind, _, factor in (w.partition("=") for w in given.weight)},
    )
    report = run(settings, tell=lambda line: print(line, flush=True))
    print("\n".join(report.lines()))
    if report.clean and not given.keep:
        shutil.rmtree(directory)
        remove(store)
        return 0
    print(f"\nseed {seed}: settings, traces and report are in {directory}, the graph is {store}")
    return 0 if report.clean else 1


def remove(store: str) -> None:
    """Nobody needs a graph in which nothing was found."""
    if "://" not in store:
        shutil.rmtree(store, ignore_errors=True)
        return
    with Graph.open(store) as graph:
        objects = graph._workspace.root.objects
        objects.delete_all([stored.path for stored in objects.below("")])


if __name__ == "__main__":
    sys.exit(main())
