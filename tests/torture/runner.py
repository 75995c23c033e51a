"""A run from beginning to end: a graph, its workers, the nemesis and the judge, in rounds.

While a round lasts the workers work and the judge follows. Between rounds the workers rest, and everything they did
is accounted for. The run's directory holds the settings, the traces and the report, and the graph itself unless it
is somewhere else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from omnigraph import Graph
from tests.torture.checker import Checker
from tests.torture.findings import Finding
from tests.torture.nemesis import Nemesis, Victim
from tests.torture.shapes import FIRST, rendered

LONGEST_OPERATION = 600.0
"""How long an operation may take before it counts as stuck: a retried write alone may try for a minute."""


@dataclass(frozen=True)
class Settings:
    """All that decides a run. `grace` must be longer than any write takes, pauses included.

    `length`, `round` and `nemesis` are in seconds, or in commits that were judged: a run of so many commits does the
    same on a slow machine.
    """

    uri: str
    directory: str
    seed: str
    measure: Literal["seconds", "commits"] = "seconds"
    length: float = 60.0
    workers: int = 2
    round: float = 20.0
    nemesis: float = 2.0
    traps: float = 0.12
    rest: float = 0.05
    grace: float = 60.0
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Report:
    settings: Settings
    findings: list[Finding]
    figures: dict[str, int]

    @property
    def clean(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        told = [f"{name}: {count}" for name, count in sorted(self.figures.items())]
        for number, finding in enumerate(self.findings, 1):
            told += ["", f"finding {number} ({finding.count} times): {finding.what}", f"    {finding.example}"]
        return told


def run(
    settings: Settings, environment: Mapping[str, str] | None = None, tell: Callable[[str], None] = print
) -> Report:
    directory = Path(settings.directory)
    (directory / "trace").mkdir(parents=True)
    (directory / "settings.json").write_text(json.dumps(asdict(settings), indent=1))
    first = {"op": "init", "kind": "init", "branch": "main", "args": {"document": FIRST}, "began": time.time()}
    (directory / "trace" / "init.jsonl").write_text(json.dumps(first) + "\n")
    graph = Graph.init(settings.uri, rendered(FIRST), actor="init")
    checker = Checker(graph, directory)
    victims = [Victim(f"w{i}", directory / "settings.json", dict(environment or {})) for i in range(settings.workers)]
    judged = lambda: float(checker.judged["commits"])  # noqa: E731
    now = judged if settings.measure == "commits" else time.monotonic
    nemesis = Nemesis(victims, settings.seed, settings.nemesis, now)
    try:
        _rounds(settings, nemesis, checker, tell, now)
    finally:
        for victim in victims:
            victim.end()
    figures = dict(checker.judged) | {f"nemesis {what}": count for what, count in nemesis.done.items()}
    figures |= {"traps": checker.traces.traps, "deaths": checker.traces.deaths}
    report = Report(settings, list(checker.findings.found.values()), figures)
    (directory / "report.txt").write_text("\n".join(report.lines()) + "\n")
    return report


def _rounds(
    settings: Settings, nemesis: Nemesis, checker: Checker, tell: Callable[[str], None], now: Callable[[], float]
) -> None:
    until = now() + settings.length
    number = 0
    while now() < until:
        number += 1
        round_ends = min(until, now() + settings.round)
        _round(nemesis, checker, lambda ends=round_ends: now() >= ends)
        if stuck := nemesis.quiet(LONGEST_OPERATION):
            checker.findings.add("an operation does not end", stuck)
            return
        with Graph.open(settings.uri) as graph:
            checker.settle(graph)
        judged, found = checker.judged["commits"], len(checker.findings.found)
        tell(
            f"round {number}: {judged} commits judged, "
            f"{checker.judged['commits read in full']} of them read in full, {found} findings"
        )
        nemesis.resume()


def _round(nemesis: Nemesis, checker: Checker, is_over: Callable[[], bool]) -> None:
    over = threading.Event()
    failed: list[Exception] = []

    def follow() -> None:
        while not over.wait(0.2):
            try:
                checker.follow()
            except Exception as error:
                failed.append(error)
                return

    follower = threading.Thread(target=follow, name="judge")
    follower.start()
    try:
        while not (is_over() or failed):
            nemesis.act()
            time.sleep(0.005)
    finally:
        over.set()
        follower.join()
    if failed:
        raise failed[0]
