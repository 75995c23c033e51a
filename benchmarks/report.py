"""What comparisons measured: a table for each benchmark, and a summary of ours beside the best peer and the goal.

    python -m benchmarks.report FIGURES [EARLIER]

prints the summary of a file that `--json` wrote, beside our figures of an earlier run.

A figure is the median over the rounds. Ratios are made of CPU, which is what a question costs, on a busy machine too;
wall seconds stand beside it. Where a case is about throughput, its goal says that wall seconds count.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.contest import OURS, Contender, Running, Timed, in_turns, machine

SECONDS_PER_CASE = 12.0
"""A system that has taken so long for a case, and has a figure, is not asked again."""
LEAST_BETWEEN = 1.0
"""Milliseconds of CPU between two questions that are shown. Below it is the pipe to this process."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What our figure should be at most: so many times that of the best peer, or of the case `beside` of ours, or with
    a unit the figure itself; or at least, where more is better."""

    limit: float
    unit: str = ""
    at_least: bool = False
    beside: str = ""
    by: Literal["cpu", "wall"] = "cpu"

    def __str__(self) -> str:
        if self.unit:
            return f"{'at least ' if self.at_least else ''}{self.limit:g} {self.unit}"
        return f"{self.limit:g} x {self.beside or 'peer'}{', wall' if self.by == 'wall' else ''}"


WARM, COLD = Goal(1.0), Goal(1.5)
"""COLD: for the first question of a process and the first after a commit, too."""


@dataclass(slots=True)
class Figure:
    """One system in one case. `value` is a figure that isn't a time."""

    benchmark: str
    heading: str
    case: str
    system: str
    cpu_ms: float | None = None
    wall_ms: float | None = None
    between_ms: float | None = None
    value: float | None = None
    unit: str = ""
    refused: str | None = None
    counts: bool = True
    """Whether our goal is about this figure, if it is that of a peer."""

    def by(self, kind: str) -> float | None:
        if self.value is not None:
            return self.value
        return self.wall_ms if kind == "wall" else self.cpu_ms

    def text(self) -> str:
        if self.refused is not None:
            return "–"
        if self.value is not None:
            return f"{_number(self.value)} {self.unit}"
        behind = f" (+{_number(self.between_ms)})" if (self.between_ms or 0) > LEAST_BETWEEN else ""
        return f"{_number(self.cpu_ms)} / {_number(self.wall_ms)}{behind}"


@dataclass(slots=True)
class Report:
    figures: list[Figure] = field(default_factory=list)
    goals: dict[tuple[str, str], Goal] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)
    only_shown: list[str] = field(default_factory=list)
    """The systems that our goals are not about."""
    rounds: int = 1
    _benchmark: str = ""
    _heading: str = ""

    def begin(self, benchmark: str, rounds: int, chosen: Sequence[type[Contender]], facts: str) -> None:
        self._benchmark, self.rounds = benchmark, rounds
        self.facts = self.facts or [machine()]
        versions = ", ".join(f"{contender.name} {contender.version()}" for contender in chosen)
        self.facts.append(f"{benchmark}: {facts}; {versions}; medians of {rounds} rounds")
        self.only_shown += [c.name for c in chosen if not c.sets_goals and c.name not in self.only_shown]

    def heading(self, text: str) -> None:
        self._heading = text
        print(f"- {text}", file=sys.stderr, flush=True)

    def add(
        self,
        case: str,
        system: str,
        timed: Sequence[Timed],
        parts: float = 1,
        goal: Goal | None = None,
        *,
        counts: bool = True,
    ) -> None:
        """The medians of one system in one case, of which each run consisted of that many alike parts."""
        figure = Figure(self._benchmark, self._heading, case, system, counts=counts)
        if (refused := next((t.refused for t in timed if t.refused is not None), None)) is not None:
            figure.refused = refused
        else:
            figure.cpu_ms = statistics.median(t.cpu for t in timed) / parts * 1e3
            figure.wall_ms = statistics.median(t.wall for t in timed) / parts * 1e3
            figure.between_ms = statistics.median(t.between for t in timed) * 1e3
        self._keep(figure, goal)

    def add_value(self, case: str, system: str, value: float, unit: str, goal: Goal | None = None) -> None:
        """A figure that isn't a time: megabytes, requests, a recall."""
        self._keep(Figure(self._benchmark, self._heading, case, system, value=value, unit=unit), goal)

    def _keep(self, figure: Figure, goal: Goal | None) -> None:
        self.figures.append(figure)
        if goal is not None:
            self.goals[figure.benchmark, figure.case] = goal
        shown = figure.refused or figure.text()
        print(f"  {figure.case:44} {figure.system:24} {shown}", file=sys.stderr, flush=True)

    def compare(
        self,
        case: str,
        systems: Sequence[Running],
        call: str,
        questions: Sequence[Sequence[Any]],
        parts: int = 1,
        *,
        goal: Goal | None = None,
        meaning: Callable[[Any], Any] | None = lambda answer: answer,
        rounds: int | None = None,
        changes: bool = False,
        beside: Collection[str] = (),
    ) -> None:
        """Ask everybody the same, round by round: question `i` in round `i`. What the answers mean has to be the same
        for all; `None` where ties and approximation leave them open. Systems in `beside` are shown, but set no goal.
        What `changes` the data is done by everybody in every round, however long it takes."""
        ways = [(system, way) for system in systems for way in _ways(system, call, questions[0])]
        taken: dict[str, list[Timed]] = {_label(*way): [] for way in ways}
        most = math.inf if changes else SECONDS_PER_CASE
        spent = dict.fromkeys(taken, 0.0)
        answers: dict[int, dict[str, Any]] = {}
        for i, (system, way) in in_turns(ways, case, rounds or self.rounds):
            label = _label(system, way)
            if taken[label] and (spent[label] > most or taken[label][0].refused is not None):
                continue
            timed = system.ask(call, *_ways(system, call, questions[i % len(questions)])[way])
            spent[label] += timed.wall
            if i or timed.refused is not None:
                taken[label].append(timed)
            if meaning is not None and timed.refused is None:
                answers.setdefault(i, {})[label] = meaning(timed.answer)
        self.check(case, answers)
        for label, times in taken.items():
            self.add(case, label, times, parts, goal, counts=label not in beside)

    @staticmethod
    def check(case: str, answers: Mapping[int, Mapping[str, Any]]) -> None:
        """Whether everybody answered the same: by question and by system."""
        for question in answers.values():
            texts = {label: json.dumps(answer) for label, answer in question.items()}
            if len(set(texts.values())) > 1:
                shown = "\n".join(f"{label}: {text[:400]}" for label, text in texts.items())
                sys.exit(f"{case}: the answers differ\n{shown}")

    @classmethod
    def read(cls, path: Path) -> Report:
        """What `save` wrote."""
        document = json.loads(path.read_text())
        report = cls([Figure(**figure) for figure in document["figures"]])
        report.goals = {(goal.pop("benchmark"), goal.pop("case")): Goal(**goal) for goal in document["goals"]}
        report.facts, report.only_shown = document["facts"], document["only_shown"]
        return report

    def save(self, path: Path) -> None:
        figures = [asdict(figure) for figure in self.figures]
        goals = [{"benchmark": name, "case": case, **asdict(goal)} for (name, case), goal in self.goals.items()]
        summary = [asdict(line) for line in self.summary()]
        facts = {"facts": self.facts, "only_shown": self.only_shown}
        path.write_text(json.dumps({**facts, "figures": figures, "goals": goals, "summary": summary}, indent=1))

    def summary(self) -> Iterator[Line]:
        """Every case of ours, beside the best peer or the case that its goal names."""
        for benchmark, case in dict.fromkeys((f.benchmark, f.case) for f in self.figures):
            figures = [f for f in self.figures if (f.benchmark, f.case) == (benchmark, case) and f.refused is None]
            goal = self.goals.get((benchmark, case))
            ours = next((f for f in figures if f.system == OURS), None)
            if ours is not None:
                yield self._line(ours, [f for f in figures if not f.system.startswith(OURS)], goal)

    def _line(self, ours: Figure, others: Sequence[Figure], goal: Goal | None) -> Line:
        by = goal.by if goal else "cpu"
        peers = [f for f in others if f.counts and f.system not in self.only_shown]
        if goal is not None and goal.beside:
            peers = [f for f in self.figures if f.case == goal.beside and f.system == OURS]
        best_of = max if goal is not None and goal.at_least else min
        best = best_of(peers, key=lambda f: f.by(by) or 0.0, default=None)
        shown = {f.system: f.by(by) or 0.0 for f in others if f.system in self.only_shown}
        figure, theirs = ours.by(by) or 0.0, best.by(by) if best else None
        ratio = figure / theirs if theirs else None
        judged = figure if goal and goal.unit else ratio
        name = "" if best is None else (goal.beside if goal and goal.beside else best.system)
        missed = None
        if goal is not None and judged is not None:
            missed = judged < goal.limit if goal.at_least else judged > goal.limit
        unit, aim = ours.unit or "ms", str(goal) if goal else ""
        return Line(ours.benchmark, ours.case, figure, theirs, unit, name, ratio, aim, missed, shown)

    def print_table(self, benchmark: str) -> None:
        """Milliseconds of CPU / wall, and in brackets the CPU of background work between two questions."""
        figures = [f for f in self.figures if f.benchmark == benchmark]
        systems = list(dict.fromkeys(f.system for f in figures))
        print(f"\n{benchmark}: CPU / wall milliseconds (+ CPU in the background)\n")
        _print_row("", *systems)
        _print_row("---", *("---:" for _ in systems))
        for case in dict.fromkeys(f.case for f in figures):
            cells = {f.system: f.text() for f in figures if f.case == case}
            _print_row(case, *(cells.get(system, "") for system in systems))
        for reason in dict.fromkeys(f"{f.system}, {f.case}: {f.refused}" for f in figures if f.refused):
            print(f"\n{reason}")

    def print_summary(self, earlier: Report | None = None) -> None:
        before = {(line.benchmark, line.case): line.ours for line in earlier.summary()} if earlier else {}
        print("\n" + "\n".join(self.facts) + "\n")
        more = ["before"] if earlier else []
        numbers = ["---:"] * len(self.only_shown)
        _print_row("work", *more, "ours", "best peer", "", "ratio", "goal", "", *self.only_shown)
        _print_row("---", *["---:"] * len(more), "---:", "---:", "---", "---:", "---", "---", *numbers)
        lines = list(self.summary())
        heading = ""
        for line in lines:
            if line.benchmark != heading:
                heading = line.benchmark
                _print_row(f"**{heading}**", *[""] * (len(more) + 6 + len(self.only_shown)))
            theirs = "" if line.theirs is None else f"{_number(line.theirs)} {line.unit}"
            ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
            cells = [_number(before.get((line.benchmark, line.case)))] if earlier else []
            cells += [f"{_number(line.ours)} {line.unit}", theirs, line.peer, ratio, line.goal]
            shown = [_number(line.only_shown.get(system)) for system in self.only_shown]
            _print_row(line.case, *cells, "MISSED" if line.missed else "", *shown)
        missed, judged = ([line for line in lines if line.missed in whether] for whether in ((True,), (True, False)))
        print(f"\n{len(missed)} of {len(judged)} goals are missed")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary. `missed` is unknown where there isn't a goal, or nothing to compare with."""

    benchmark: str
    case: str
    ours: float
    theirs: float | None
    unit: str
    peer: str
    ratio: float | None
    goal: str
    missed: bool | None
    only_shown: dict[str, float]


def _ways(system: Running, call: str, question: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The ways to ask a system a question; its first one doesn't have a name."""
    return {"": question, **system.contender.other_ways(call, question)}


def _label(system: Running, way: str) -> str:
    return f"{system.name}, {way}" if way else system.name


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    latest, *first = (Report.read(Path(word)) for word in sys.argv[1:])
    latest.print_summary(*first)
