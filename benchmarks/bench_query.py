"""Reads beside Ladybug, Kuzu, DuckDB and SQLite: the same people and friendships, the same questions, in turns.

    python -m benchmarks query [--scale 1] [--rounds 7] [--folder DIR] [--json FILE] [--long]

Scale 1 is 50,000 people with ten friends each. Systems that are not installed are left out (`pip install ladybug kuzu
duckdb`). How figures are made is described in `contest.py` and `report.py`, how each system is used in
`graph_systems.py`, and both, with the last figures, in docs/dev/benchmarks.md. `bench_write.py` has the first reads
after commits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contest import (
    OURS,
    THREADS,
    Running,
    Timed,
    all_running,
    command,
    copied,
    in_turns,
    place,
    running,
)
from benchmarks.graph_files import Questions
from benchmarks.graph_omnigraph import OmniGraph
from benchmarks.graph_stores import graph_systems, stored_graphs
from benchmarks.graph_systems import (
    IN_ORDER,
    KNOWS,
    PEOPLE,
    READS,
    THREADS_OF_LOOKUPS,
    GraphSystem,
    Params,
    meaning,
)
from benchmarks.report import COLD, WARM, Goal, Report

ROUNDS = 7
KEYS_PER_ROUND = 10
PEOPLE_OF_A_LONG_RUN = 200_000


@dataclass(frozen=True, slots=True)
class Case:
    """A read. `parts` questions of a round go to a system at once."""

    title: str
    name: str
    parts: int = 1


SMALL = (
    Case("key lookup", "person", KEYS_PER_ROUND),
    Case("equality on an indexed text", "mail", KEYS_PER_ROUND),
    Case("city = and age >, order, limit", "in_city"),
    Case("age >, order, limit", "older"),
    Case("count of age >=", "count_older"),
    Case("people within 1 hop", "hops1", KEYS_PER_ROUND),
    Case("people within 2 hops", "hops2", KEYS_PER_ROUND),
    Case("people within 3 hops", "hops3"),
    Case("people within 4 hops", "hops4"),
    Case("properties within 2 hops", "friends"),
)
WHOLE = (
    Case("group people by city", "cities"),
    Case("group friendships by city", "friends_by_city"),
    Case("group friendships by both cities", "city_pairs"),
    Case("2-hop paths of the whole graph", "paths"),
    Case("top ten degrees", "degrees"),
)
TRIANGLES = Case("all triangles", "triangles")
PROCESSES = (
    ("key lookup, new process", "person", Goal(450, "ms")),
    ("people within 2 hops, new process", "hops2", COLD),
    ("2-hop paths, new process", "paths", COLD),
)


def measure(report: Report, options: argparse.Namespace, folder: Path) -> None:
    chosen = graph_systems()
    built = stored_graphs(folder, options.scale, chosen)
    questions = Questions(built)
    rounds = options.rounds or ROUNDS
    facts = f"{questions.people:,} people with about ten friends each, {THREADS} threads for every system"
    report.begin("query", rounds, chosen, facts)
    with copied(chosen, built, PEOPLE, KNOWS) as copy:
        with all_running(chosen, copy) as systems:
            warm(report, systems, questions, long=options.long or questions.people <= PEOPLE_OF_A_LONG_RUN)
            threads(report, systems, questions)
        before_the_adjacency(report, chosen, copy, questions)
        new_processes(report, chosen, copy, questions)
    if importlib.util.find_spec("moto") is None:
        print("the requests to S3 are left out: pip install 'moto[s3,server]' boto3", flush=True)
    else:
        cold_on_s3(report, folder, min(options.scale, 1.0))


def warm(report: Report, systems: Sequence[Running], questions: Questions, *, long: bool) -> None:
    report.heading("warm, per question")
    for case in (*SMALL, *WHOLE):
        ask(report, systems, questions, case)
    if long:
        ask(report, systems, questions, TRIANGLES, rounds=2)
    everybody = f"all {questions.people:,} people"
    report.compare(f"{everybody}, to Arrow", systems, "arrow_size", [("everybody",)], goal=WARM)
    report.compare(f"{everybody}, to Python", systems, "size", [("everybody",)], goal=WARM)


def ask(
    report: Report, systems: Sequence[Running], questions: Questions, case: Case, rounds: int | None = None
) -> None:
    def means(answer: list[object]) -> list[object]:
        return [meaning(rows, in_order=case.name in IN_ORDER) for rows in answer]

    asked = [
        (case.name, [questions.params(*READS[case.name]) for _ in range(case.parts)]) for _ in range(report.rounds + 1)
    ]
    report.compare(case.title, systems, "read", asked, case.parts, goal=WARM, meaning=means, rounds=rounds)


def threads(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    report.heading(f"{THREADS_OF_LOOKUPS} threads at once, per lookup")
    each = 5 * KEYS_PER_ROUND
    asked = [([questions.keys(each) for _ in range(THREADS_OF_LOOKUPS)],) for _ in range(report.rounds + 1)]
    parts = THREADS_OF_LOOKUPS * each
    goal = Goal(1.0, by="wall")
    report.compare("key lookup, 16 threads", systems, "lookups_of_threads", asked, parts, goal=goal, meaning=means_all)


def means_all(answer: list[list[object]]) -> list[object]:
    return [meaning(rows) for some in answer for rows in some]


def before_the_adjacency(
    report: Report, chosen: Sequence[type[GraphSystem]], folder: Path, questions: Questions
) -> None:
    """The first traversal of a process that has looked up a key, where no process has traversed before."""
    report.heading("the first traversal of a process")
    for most in (1, 2, 3):
        taken: dict[str, list[Timed]] = {contender.name: [] for contender in chosen}
        keys = [questions.params("k") for _ in range(report.rounds + 1)]
        case = f"people within {most} hop{'s' * (most > 1)}, first traversal"
        answers: dict[int, dict[str, object]] = {}
        for i, contender in in_turns(chosen, case, min(report.rounds, 5)):
            contender.forget_derived(folder / contender.name)
            with running(contender, folder) as system:
                system.ask("open")
                system.ask("read", "person", [keys[i - 1]])
                timed = system.ask("read", f"hops{most}", [keys[i]])
            answers.setdefault(i, {})[contender.name] = meaning(timed.answer[0])
            if i:
                taken[contender.name].append(timed)
        report.check(case, answers)
        for name, times in taken.items():
            report.add(case, name, times, goal=COLD)


def new_processes(report: Report, chosen: Sequence[type[GraphSystem]], folder: Path, questions: Questions) -> None:
    report.heading("a new process: start, import, open, ask once, end")
    by_command = "key lookup, command line"
    rounds = min(report.rounds, 5)
    for title, name, goal in PROCESSES:
        taken: dict[str, list[Timed]] = {contender.name: [] for contender in chosen}
        params = [questions.params(*READS[name]) for _ in range(rounds + 1)]
        answers: dict[int, dict[str, object]] = {}
        for i, contender in in_turns(chosen, name, rounds):
            timed = command(program(contender, folder, name, params[i]))
            answers.setdefault(i, {})[contender.name] = meaning(json.loads(timed.answer))
            if i:
                taken[contender.name].append(timed)
        report.check(title, answers)
        for system, times in taken.items():
            report.add(title, system, times, goal=goal)
            if name == "person" and system != OURS:
                report.add(by_command, system, times)  # it is also what they need instead of our command
    lookups = [command(query_command(folder / OURS, questions.key())) for _ in range(rounds + 1)]
    report.add(by_command, OURS, lookups[1:], goal=Goal(400, "ms"))


def cold_on_s3(report: Report, folder: Path, scale: float) -> None:
    """Requests and rounds of a process that opens a graph and asks once. They don't depend on the size of the graph, of
    which there is at most scale 1, because the server keeps it in memory."""
    report.heading("a new process on S3, counted at the server")
    built = stored_graphs(folder, scale, [OmniGraph])
    key = json.dumps(Questions(built).params("k"))
    with copied([OmniGraph], built, PEOPLE, KNOWS) as copy:
        store = str(place(OmniGraph, copy))

        def count(case: str, name: str, requests: Goal | None, rounds: Goal | None) -> None:
            counted = json.loads(command([sys.executable, "-m", "benchmarks.cold_store", store, name, key]).answer)
            report.add_value(f"{case}, requests", OURS, counted["requests"], "requests", requests)
            report.add_value(f"{case}, serial rounds", OURS, counted["rounds"], "rounds", rounds)

        requests, rounds = Goal(14, "requests"), Goal(7, "rounds")
        count("key lookup, cold on S3", "person", requests, rounds)
        count("1 hop, cold on S3", "hops1", requests, rounds)
        count("2 hops, cold on S3", "hops2", None, None)
        with running(OmniGraph, copy) as system:
            system.ask("open")
            system.ask("read", "paths", [{}])
        count("1 hop, cold on S3, stored adjacency", "hops1", requests, rounds)


def program(contender: type[GraphSystem], folder: Path, name: str, params: Params) -> list[str]:
    """What somebody writes who wants one answer."""
    store, text = str(place(contender, folder)), contender.text(name)
    question = f"store, text, name, params = {store!r}, {text!r}, {name!r}, {dict(params)!r}"
    return [sys.executable, "-c", f"{question}{contender.PROGRAM}import json\nprint(json.dumps(rows))"]


def query_command(store: Path, key: str) -> list[str]:
    start = "import sys; from omnigraph.cli.main import main; sys.exit(main())"
    words = ["query", "-e", OmniGraph.text("person"), "--params", json.dumps({"k": key}), "--store", str(store)]
    return [sys.executable, "-c", start, *words]
