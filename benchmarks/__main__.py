"""Run every benchmark, or those whose names are given: `./dev bench commit`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(wanted: list[str]) -> None:
    names = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"unknown benchmark '{unknown[0]}'; there are: {', '.join(names)}")
    for name in wanted or names:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
