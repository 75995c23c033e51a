"""Writes beside Ladybug, Kuzu, DuckDB and SQLite, and the first reads after them.

    python -m benchmarks write [--scale 1] [--rounds 5] [--folder DIR] [--json FILE]

The graph is that of `bench_query`: 50,000 people with ten friends each at scale 1. Besides there is a type with 5,000
properties. All systems commit durably. Each inserts many rows the way its authors recommend: SQLite with `executemany`,
DuckDB from an Arrow table, Kuzu with `UNWIND`; ours with a statement for each row in one mutation, and with `load`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import wide_systems
from benchmarks.contest import THREADS, Contender, Running, Timed, all_running, copied, in_turns, installed, running
from benchmarks.graph_files import Questions
from benchmarks.graph_stores import graph_systems, stored_graphs
from benchmarks.graph_systems import KNOWS, PEOPLE, meaning
from benchmarks.report import COLD, WARM, Goal, Report
from benchmarks.wide_systems import SIZES, WIDE_ROWS

ROUNDS = 5
COMMITS_PER_ROUND = 5
UPDATES, MERGES, ROWS_PER_MERGE = 100, 4, 10_000
INSERTS = (400, 2_000)
PROPERTIES_AT_SCALE_1 = 5_000
READS_BESIDE_A_WRITER, SECONDS_PER_READ = 30, 0.03
ONE, MANY = Goal(8, "ms"), Goal(2.0)
"""Of one row, and of many inserts."""
CLEAN = "properties within 2 hops, clean"


def measure(report: Report, options: argparse.Namespace, folder: Path) -> None:
    chosen = graph_systems()
    built = stored_graphs(folder, options.scale, chosen)
    questions = Questions(built)
    facts = f"{questions.people:,} people with about ten friends each, {THREADS} threads for every system"
    report.begin("write", options.rounds or ROUNDS, chosen, facts)
    with copied(chosen, built, PEOPLE, KNOWS) as copy, all_running(chosen, copy) as systems:
        after_commits(report, systems, questions)
        beside_a_writer(report, systems, questions)
        # Anew: what is read after updates is compared with what is read before any.
    with copied(chosen, built, PEOPLE, KNOWS) as copy, all_running(chosen, copy) as systems:
        after_updates(report, systems, questions)
        inserts(report, systems, questions)
    wide(report, folder, round(PROPERTIES_AT_SCALE_1 * min(options.scale, 1)))


def means(answer: list[Any]) -> list[Any]:
    return [meaning(rows) for rows in answer]


def after_commits(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    """One edge is committed; then the first read comes, of people the commit has nothing to do with."""
    report.heading("after a commit of one edge, the first read")
    commits: dict[str, list[Timed]] = {system.name: [] for system in systems}
    for most in (1, 2, 3):
        case = f"people within {most} hop{'s' * (most > 1)}, after a commit"
        reads: dict[str, list[Timed]] = {system.name: [] for system in systems}
        asked = [(questions.new_edges(1), [questions.params("k")]) for _ in range(report.rounds + 1)]
        answers: dict[int, dict[str, Any]] = {}
        for i, system in in_turns(systems, case, report.rounds):
            edge, key = asked[i]
            committed, read = system.ask("write", "befriend", edge), system.ask("read", f"hops{most}", key)
            answers.setdefault(i, {})[system.name] = means(read.answer)
            if i:
                commits[system.name].append(committed)
                reads[system.name].append(read)
        report.check(case, answers)
        for name, times in reads.items():
            report.add(case, name, times, goal=COLD)
    for name, times in commits.items():
        report.add("commit of one edge", name, times)


def beside_a_writer(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    """Somebody else commits an edge about every 50 ms: another process where a system allows that, else a thread, whose
    CPU is then part of the figure."""
    report.heading("while somebody else commits about 20 edges a second")
    edges = questions.new_edges(1_000)
    asked = [[questions.params("k")] for _ in range(READS_BESIDE_A_WRITER)]
    for system in systems:
        system.ask("begin_writing", edges)
        reads = []
        for key in asked:
            time.sleep(SECONDS_PER_READ)
            reads.append(system.ask("read", "hops2", key))
        system.ask("stop_writing")
        report.add("people within 2 hops, beside a writer", system.name, reads, goal=COLD)


def after_updates(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    report.heading("updates and deletes by key, and reads after them")

    def read(case: str, goal: Goal) -> None:
        asked = [("friends", [questions.params("k")]) for _ in range(report.rounds + 1)]
        report.compare(case, systems, "read", asked, goal=goal, meaning=means)

    def write(case: str, name: str, questions_of_a_round: list[list[dict[str, Any]]], goal: Goal) -> None:
        asked = [(name, some) for some in questions_of_a_round]
        report.compare(case, systems, "write", asked, COMMITS_PER_ROUND, goal=goal, changes=True)

    read(CLEAN, WARM)
    rounds = range(report.rounds + 1)
    write("update of one row by key", "age", [updates(questions, COMMITS_PER_ROUND) for _ in rounds], ONE)
    report.heading(f"after {UPDATES} updates of one row")
    many = updates(questions, UPDATES)
    for system in systems:
        system.ask("write", "age", many)
    after = Goal(1.2, beside=CLEAN)
    read(f"properties within 2 hops, after {UPDATES} updates", after)
    rows = min(ROWS_PER_MERGE, questions.people // 5)
    report.heading(f"after {MERGES} merges of {rows:,} rows")
    merges = [(questions.changed_people(rows),) for _ in range(MERGES)]
    case, last = f"merge of {rows:,} rows", MERGES - 1
    report.compare(case, systems, "update_people", merges, goal=COLD, rounds=last, changes=True)
    read(f"properties within 2 hops, after {MERGES} merges", after)
    removed = questions.some_people(COMMITS_PER_ROUND * len(rounds))
    each = [[{"k": key} for key in removed[i :: len(rounds)]] for i in rounds]
    write("delete of one row by key", "remove", each, ONE)
    read("properties within 2 hops, after deletes", after)


def updates(questions: Questions, count: int) -> list[dict[str, Any]]:
    return [questions.params("k", "a") for _ in range(count)]


def inserts(report: Report, systems: Sequence[Running], questions: Questions) -> None:
    report.heading("inserts")
    rounds = range(report.rounds + 1)
    each = [(questions.new_people(COMMITS_PER_ROUND),) for _ in rounds]
    report.compare("insert of one row", systems, "insert_each", each, COMMITS_PER_ROUND, goal=ONE, changes=True)
    for count in INSERTS:
        many = [(questions.new_people(count),) for _ in rounds]
        report.compare(f"{count:,} inserts in one transaction", systems, "insert_people", many, goal=MANY, changes=True)
        many = [(questions.new_people(count),) for _ in rounds]
        report.compare(f"{count:,} rows in one load", systems, "load_new_people", many, goal=MANY, changes=True)


def wide(report: Report, folder: Path, properties: int) -> None:
    """Built anew in every run, because it is changed."""
    chosen: list[type[Contender]] = list(installed(wide_systems.SYSTEMS))
    report.heading(f"a type with {properties:,} properties, {WIDE_ROWS} rows")
    with copied([], folder) as place:
        (place / SIZES).write_text(json.dumps({"properties": properties}))
        for contender in chosen:
            with running(contender, place) as system:
                system.ask("build")
        with all_running(chosen, place) as systems:
            for system in systems:
                report.add("wide rows, load", system.name, [system.ask("load_wide")])
            changes = [(i % WIDE_ROWS, i * 97 % properties, i) for i in range(report.rounds + 1)]
            report.compare("wide rows, update of one property", systems, "update_wide", changes, changes=True)
            rows = [(i % WIDE_ROWS,) for i in range(report.rounds + 1)]
            report.compare("wide rows, one row", systems, "read_wide", rows)
            report.compare("wide rows, all as JSON", systems, "export_wide", [()])
