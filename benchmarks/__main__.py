"""Run every benchmark, or those whose names are given: `./dev bench query search write load --scale 2`.

A benchmark that compares us with other systems has `measure`; those of one run share a folder and a report, which ends
with a summary. The others have `main` and options of their own.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

from benchmarks.contest import arguments, workplace
from benchmarks.report import Report


def main(words: list[str]) -> None:
    names = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    wanted = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    options = words[len(wanted) :]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"unknown benchmark '{unknown[0]}'; there are: {', '.join(names)}")
    modules = {name: importlib.import_module(f"benchmarks.bench_{name}") for name in wanted or names}
    compared = {name: module for name, module in modules.items() if hasattr(module, "measure")}
    if compared:
        compare(compared, options)
    for name in [name for name in modules if name not in compared]:
        print(f"== {name}", flush=True)
        sys.argv = [f"bench_{name}", *options]
        modules[name].main()


def compare(modules: dict[str, ModuleType], words: list[str]) -> None:
    options = arguments("\n".join(str(module.__doc__) for module in modules.values())).parse_args(words)
    report = Report()
    with workplace(options.folder) as folder:
        for name, module in modules.items():
            print(f"== {name}", file=sys.stderr, flush=True)
            module.measure(report, options, folder)
            report.print_table(name)
            if options.json:
                report.save(options.json)  # what is there, if a later benchmark fails
    report.print_summary()


if __name__ == "__main__":
    main(sys.argv[1:])
