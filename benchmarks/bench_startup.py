"""What starting the command line costs, beside importing the library that every query needs.

CPU of whole processes, user and system, all threads; medians of rounds in which every command has its turn, so that a
busy machine is busy for all of them. The budgets are ratios to `import lance`, which imports pandas where it is
installed, and one figure: `--help` and `version` are for people who wait, what is in the log alone needs no Lance, and
a query must not notice the program around it. Tests count modules instead, which no machine changes.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_SECONDS_OF_HELP = 0.150
LANCE = "import lance"
MOST_OF_LANCE = {"branch list": 0.3, "commit list": 0.4, "list_branches()": 0.4, "query": 0.9, "open, query": 1.7}

SCHEMA = "node Person { name: String @key  age: I32? }\n"
RECORD = '{"type":"Person","data":{"name":"Ada","age":36}}\n'
QUERY = "query age($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
OPEN = "import omnigraph; graph = omnigraph.open('g.omni'); "


def cpu_of(command: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As installed programs run: with their compiled sources kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands() -> dict[str, list[str]]:
    omnigraph = [sys.executable, "-m", "omnigraph.cli.main"]
    return {
        "python": [sys.executable, "-c", "pass"],
        LANCE: [sys.executable, "-c", "import lance"],
        "--help": [*omnigraph, "--help"],
        "version": [*omnigraph, "version"],
        "branch list": [*omnigraph, "branch", "list", "--store", "g.omni"],
        "commit list": [*omnigraph, "commit", "list", "--store", "g.omni"],
        "list_branches()": [sys.executable, "-c", OPEN + "graph.list_branches()"],
        "query": [*omnigraph, "query", "-e", QUERY, "--params", '{"name":"Ada"}', "--store", "g.omni"],
        "open, query": [sys.executable, "-c", OPEN + f"graph.query({QUERY!r}, params={{'name': 'Ada'}}).to_arrow()"],
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=11)
    rounds = options.parse_args().rounds
    omnigraph = [sys.executable, "-m", "omnigraph.cli.main"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s.pg").write_text(SCHEMA)
        (folder / "d.jsonl").write_text(RECORD)
        cpu_of([*omnigraph, "init", "--schema", "s.pg", "g.omni"], folder)
        cpu_of([*omnigraph, "load", "g.omni", "--data", "d.jsonl", "--mode", "append"], folder)
        taken: dict[str, list[float]] = {name: [] for name in commands()}
        for number in range(rounds + 1):
            for name, command in commands().items():
                seconds = cpu_of(command, folder)
                if number:  # the first round fills the disk's cache
                    taken[name].append(seconds)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in median.items():
        print(f"{name:<15} {seconds * 1e3:6.0f} ms CPU = {seconds / median[LANCE]:.2f}x {LANCE!r}")
    slow = [name for name in ("--help", "version") if median[name] > MOST_SECONDS_OF_HELP]
    slow += [name for name, most in MOST_OF_LANCE.items() if median[name] > most * median[LANCE]]
    print(f"over budget: {', '.join(slow)}" if slow else "within budget")


if __name__ == "__main__":
    main()
