"""Run every benchmark, or those whose names are given; options go to each of them: `./dev bench query --scale 4`."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path


def main(given: list[str]) -> None:
    names = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    wanted = list(itertools.takewhile(lambda word: not word.startswith("-"), given))
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"unknown benchmark '{unknown[0]}'; there are: {', '.join(names)}")
    for name in wanted or names:
        print(f"== {name}", flush=True)
        sys.argv = [f"bench_{name}", *given[len(wanted) :]]
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
