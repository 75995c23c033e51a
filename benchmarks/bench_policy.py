"""What rules cost: a decision, and restricted reads beside the same unrestricted reads.

Reads take turns, open and narrowed, so that a busy machine is busy for both; medians of many rounds, and the ratio of
the two. The budgets are ratios for reads and microseconds for decisions.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import omnigraph
from omnigraph import Graph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.policy.gate import PolicyGate, load_gate

MOST_FOR_A_HOP = 1.3
MOST_CACHED, MOST_UNCACHED = 50e-6, 1e-3
"""Seconds of a decision that was made before, and of one that was not."""

SCHEMA = """
node Person { name: String @key  region: String @index  level: I32  bio: String? @index }
edge Knows: Person -> Person { since: I32 }
"""
RULES = """
version: 1
groups: {eu: [ana], staff: [lea]}
protected_branches: [main]
rules:
  - id: eu
    allow:
      actors: {group: eu}
      actions: [read]
      rows: {Person: region = "eu" or name = $actor}
      hide: {Person: [level]}
  - id: staff
    allow: {actors: {group: staff}, actions: [read]}
"""
QUERIES = {
    "point": "query q($n: String) { match { $p: Person { name: $n } } return { $p.name as n, $p.bio as b } }",
    "1 hop": "query q($n: String) { match { $p: Person { name: $n } $p knows $q } return { $q.name, $q.bio } }",
    "2 hops": "query q($n: String) { match { $p: Person { name: $n }  $p knows{1,2} $q } return { count($q) as c } }",
    "scan": 'query q() { match { $p: Person { region: "eu" } } return { count($p) as c } }',
    "search": 'query q() { match { $p: Person } return { $p.name as n } order { bm25($p.bio, "lake") } limit 10 }',
}
WORDS = ("graph", "lake", "ocean", "robot", "station", "world")


def records(people: int, degree: int) -> Iterator[str]:
    chosen = random.Random(7)
    for i in range(people):
        data = {
            "name": f"p{i}",
            "region": chosen.choice(("eu", "us")),
            "level": i % 9,
            "bio": " ".join(chosen.choices(WORDS, k=4)),
        }
        yield json.dumps({"type": "Person", "data": data})
    for i in range(people * degree):
        ends = chosen.randrange(people), chosen.randrange(people)
        yield json.dumps(
            {"edge": "Knows", "from": f"p{ends[0]}", "to": f"p{ends[1]}", "data": {"id": f"k{i}", "since": i % 30}}
        )


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def reads(whole: Graph, restricted: Graph, people: int, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Per query, the median of an open and of a narrowed read."""
    keys = [
        row["n"] for row in restricted.query("query q() { match { $p: Person } return { $p.name as n } limit 400 }")
    ]
    for name, text in QUERIES.items():
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + 5):
            key = {"n": keys[number % len(keys)]} if "$n" in text else {}
            turns = [(0, whole), (1, restricted)]
            for which, graph in turns if number % 2 else reversed(turns):
                spent = seconds(lambda graph=graph, key=key, text=text: graph.query(text, "q", key).rows())  # type: ignore[misc]
                if number >= 5:
                    taken[which].append(spent)
        yield name, statistics.median(taken[0]), statistics.median(taken[1])


def decisions(rounds: int) -> tuple[float, float]:
    """Medians of a decision that is remembered, and of one that Cedar has to make."""
    request = AccessRequest(PolicyAction.READ, "main")
    gate = load_gate(RULES, "graph", "rules", "kb")
    gate.decide("ana", request)
    cached = [seconds(lambda: gate.decide("ana", request)) for _ in range(rounds * 20)]
    fresh: list[PolicyGate] = [load_gate(RULES, "graph", "rules", "kb") for _ in range(rounds)]
    uncached = [seconds(lambda each=each: each.decide("ana", request)) for each in fresh]  # type: ignore[misc]
    return statistics.median(cached), statistics.median(uncached)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--people", type=int, default=50_000)
    options.add_argument("--degree", type=int, default=8)
    options.add_argument("--rounds", type=int, default=101)
    given = options.parse_args()
    over = []
    cached, uncached = decisions(given.rounds)
    print(f"decision     {cached * 1e6:8.1f} us cached, {uncached * 1e6:8.1f} us not")
    over += ["decision"] if cached > MOST_CACHED or uncached > MOST_UNCACHED else []
    with tempfile.TemporaryDirectory() as folder:
        place, rules = Path(folder) / "g", Path(folder) / "rules.yaml"
        rules.write_text(RULES)
        with omnigraph.init(place, SCHEMA) as graph:
            graph.load("\n".join(records(given.people, given.degree)), mode="append")
            graph.maintenance.ensure_indices()
        with (
            omnigraph.open(place, policy=rules, actor="lea") as whole,
            omnigraph.open(place, policy=rules, actor="ana") as restricted,
        ):
            for name, plain, slow in reads(whole, restricted, given.people, given.rounds):
                print(f"{name:<12} {plain * 1e3:8.2f} ms open, {slow * 1e3:8.2f} ms narrowed = {slow / plain:.2f}x")
                over += [name] if name == "1 hop" and slow > MOST_FOR_A_HOP * plain else []
    print(f"over budget: {', '.join(over)}" if over else "within budget")


if __name__ == "__main__":
    main()
