"""Reads against Kuzu, DuckDB and SQLite: the same people and friendships, the same questions, in turns.

    python -m benchmarks query [--scale 1] [--rounds 7] [--folder DIR] [--json FILE]

Scale 1 is 50,000 people with ten friends each. Systems that are not installed are left out (`pip install kuzu duckdb`).
How figures are made is told in `contest.py`, how each system is used in `graph_systems.py`, and both, with the last
figures, in docs/dev/benchmarks.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contest import Report, Running, Timed, all_running, arguments, installed, machine, restarted, workplace
from benchmarks.graph_systems import KNOWS, PEOPLE, SYSTEMS, Edge, GraphSystem, KuzuShortest

PEOPLE_AT_SCALE_1, FRIENDS = 50_000, 10
KEYS_PER_RUN = 5
SECONDS_PER_READ = 0.03


def slug(number: int) -> str:
    return f"person-{number:08d}"


def mail(number: int) -> str:
    return f"{number * 7919 % 1_000_003}.{number}@example.org"


def make_files(folder: Path, people: int) -> None:
    """Nobody befriends anybody twice, or oneself, so that every system counts the same."""
    drawn = np.random.default_rng(7)
    source, target = (drawn.integers(0, people, people * FRIENDS) for _ in range(2))
    pairs = np.unique(np.stack((source, target), axis=1)[source != target], axis=0)
    pairs = pairs[drawn.permutation(len(pairs))]
    slugs = pa.array([slug(i) for i in range(people)])
    table = {
        "number": pa.array(range(people)),
        "slug": slugs,
        "mail": [mail(i) for i in range(people)],
        "age": pa.array(drawn.integers(1, 99, people), pa.int32()),
        "city": [f"city-{i:03d}" for i in drawn.integers(0, 200, people)],
    }
    pq.write_table(pa.table(table), folder / PEOPLE)
    ends = {"source": pairs[:, 0], "target": pairs[:, 1]}
    texts = {f"{name}_slug": slugs.take(pa.array(numbers)) for name, numbers in ends.items()}
    pq.write_table(pa.table({**ends, **texts}), folder / KNOWS)


class Questions:
    """The same ones for everybody, other ones in every round."""

    def __init__(self, folder: Path, people: int) -> None:
        self.people = people
        self.drawn = random.Random(11)
        knows = pq.read_table(folder / KNOWS, columns=["source", "target"])
        self.known = set(zip(knows["source"].to_pylist(), knows["target"].to_pylist(), strict=True))

    def keys(self, count: int) -> list[str]:
        return [slug(self.drawn.randrange(self.people)) for _ in range(count)]

    def mails(self, count: int) -> list[str]:
        return [mail(self.drawn.randrange(self.people)) for _ in range(count)]

    def new_edges(self, count: int) -> list[Edge]:
        found: list[Edge] = []
        while len(found) < count:
            pair = self.drawn.randrange(self.people), self.drawn.randrange(self.people)
            if pair[0] != pair[1] and pair not in self.known:
                self.known.add(pair)
                found.append((slug(pair[0]), slug(pair[1])))
        return found


def warm(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    report.heading("warm, per question")

    def ask(case: str, call: str, *rest: object, parts: int = KEYS_PER_RUN, of: Sequence[Running] = systems) -> None:
        draw = questions.mails if call == "by_mail" else questions.keys
        report.compare(case, of, call, [(draw(parts), *rest) for _ in range(report.rounds + 1)], parts)

    # These differ from plain Kuzu in how they traverse, and in nothing else.
    plainly = [system for system in systems if system.name != KuzuShortest.name]
    ask("point lookup by key", "lookup", of=plainly)
    ask("equality on an indexed text", "by_mail", of=plainly)
    for most in (1, 2, 3, 4):
        ask(f"people within {most} hops", "hops", most, parts=KEYS_PER_RUN if most < 4 else 1)
    rows = [tuple(questions.keys(1)) for _ in range(report.rounds + 1)]
    report.compare("key and age of people within 2 hops", systems, "friends_of_friends", rows)
    report.compare("2-hop paths of the whole graph", plainly, "paths", [()])
    report.compare("1-hop aggregate of the whole graph", plainly, "by_city", [()])


def after_commits(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    """One edge is committed; then the first read comes, of people the commit has nothing to do with."""
    report.heading("after a commit of one edge, the first read")
    for most in (1, 2, 3):
        commits: dict[str, list[Timed]] = {system.name: [] for system in systems}
        reads: dict[str, list[Timed]] = {system.name: [] for system in systems}
        for i in range(report.rounds + 1):
            edge, keys = questions.new_edges(1), questions.keys(1)
            for system in questions.drawn.sample(list(systems), len(systems)):
                committed, read = system.ask("befriend", edge), system.ask("hops", keys, most)
                if i:
                    commits[system.name].append(committed)
                    reads[system.name].append(read)
        for system in systems:
            report.add(f"people within {most} hops, after a commit", system.name, reads[system.name])
        if most == 3:
            for system in systems:
                report.add("the commit itself", system.name, commits[system.name])


def beside_a_writer(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    """Somebody else commits an edge about every 50 ms: another process where a system allows that, else a thread, whose
    CPU is then part of the figure."""
    report.heading("while somebody else commits about 20 edges a second")
    edges = questions.new_edges(100_000)
    for system in systems:
        system.ask("begin_writing", edges)
        reads = []
        for _ in range(10 * report.rounds):
            time.sleep(SECONDS_PER_READ)
            reads.append(system.ask("hops", questions.keys(1), 2))
        system.ask("stop_writing")
        report.add("people within 2 hops, beside a writer", system.name, reads)


def after_restarts(report: Report, chosen: Sequence[type[GraphSystem]], folder: Path, questions: Questions) -> None:
    report.heading("in a new process: start, import, open, ask once, end")
    cases = {
        "point lookup, new process": ("lookup", []),
        "people within 2 hops, new process": ("hops", [2]),
        "2-hop paths, new process": ("paths", None),
    }
    for case, (call, rest) in cases.items():
        taken: dict[str, list[Timed]] = {system.name: [] for system in chosen}
        for _ in range(min(report.rounds, 5)):
            asked = [] if rest is None else [questions.keys(1), *rest]
            for system in questions.drawn.sample(list(chosen), len(chosen)):
                taken[system.name].append(restarted(system, folder, call, asked))
        for system in chosen:
            report.add(case, system.name, taken[system.name])


def main() -> None:
    options = arguments(__doc__ or "", rounds=7).parse_args()
    with workplace(options.folder) as folder:
        chosen = installed(SYSTEMS)
        people = round(PEOPLE_AT_SCALE_1 * options.scale)
        print(f"{machine()}; {people} people with about {FRIENDS} friends each; medians of {options.rounds} rounds")
        report = Report(options.rounds)
        if not (folder / PEOPLE).exists():
            make_files(folder, people)
            report.build(chosen, folder)
        questions = Questions(folder, people)
        with all_running(chosen, folder) as systems:
            warm(report, systems, questions)
            plainly = [system for system in systems if system.name != KuzuShortest.name]
            after_commits(report, plainly, questions)
            beside_a_writer(report, plainly, questions)
        after_restarts(report, [c for c in chosen if c is not KuzuShortest], folder, questions)
        if options.json:
            report.save(options.json)


if __name__ == "__main__":
    main()
