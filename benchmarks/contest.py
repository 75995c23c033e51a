"""How systems are compared: each in a process of its own, taking turns, round by round, on the same questions.

A contender is a class with a method per case. The parent makes one process per contender and asks them for one case
at a time, in an order that changes from round to round, so that whatever disturbs the machine disturbs everybody alike.
A figure is the median over the rounds; the first round warms everybody up and is not counted. CPU seconds are those of
all threads of the process and are what ratios are made of: they are what a question costs, on a busy machine too. Wall
seconds stand beside them. All contenders must give the same answers, or the run fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


class NotOfferedError(Exception):
    """A system has no such feature, with the reason; its figure is then left out and the reason is shown."""


class Contender:
    """One system. `build` makes its data from files, once; `open` is what a user's process does first."""

    name = ""
    module = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def is_installed(cls) -> bool:
        if not cls.module:
            return True
        with contextlib.suppress(ImportError):
            __import__(cls.module)
            return True
        return False

    def build(self) -> Any: ...

    def open(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Timed:
    """What one call answered and cost."""

    answer: Any
    wall: float
    cpu: float
    refused: str | None = None


def _serve(connection: Connection, contender: type[Contender], folder: Path) -> None:
    system = contender(folder)
    opened = False
    while (asked := connection.recv()) is not None:
        call, arguments = asked
        opened = opened or call == "open"
        answer, refused = None, None
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            answer = getattr(system, call)(*arguments)
        except NotOfferedError as reason:
            refused = str(reason)
        connection.send(Timed(answer, time.perf_counter() - wall, time.process_time() - cpu, refused))
    if opened:
        system.close()


class Running:
    """A contender in its process."""

    def __init__(self, contender: type[Contender], folder: Path) -> None:
        self.name = contender.name
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, contender, folder), daemon=False)
        self._process.start()
        theirs.close()

    def ask(self, call: str, *arguments: Any) -> Timed:
        self.begin(call, *arguments)
        return self.finish()

    def begin(self, call: str, *arguments: Any) -> None:
        self._connection.send((call, arguments))

    def finish(self) -> Timed:
        found = self._connection.recv()
        assert isinstance(found, Timed)
        return found

    def end(self) -> None:
        with contextlib.suppress(OSError):  # it has failed, and said why
            self._connection.send(None)
        self._process.join()


def place(contender: type[Contender], folder: Path) -> Path:
    """Where a contender keeps its data; whether that is a file or a folder is its own affair."""
    return folder / contender.name.replace(", ", "-").replace(" ", "-")


@contextlib.contextmanager
def all_running(contenders: Sequence[type[Contender]], folder: Path) -> Iterator[list[Running]]:
    """Every contender, opened."""
    running = [Running(contender, place(contender, folder)) for contender in contenders]
    try:
        for system in running:
            system.ask("open")
        yield running
    finally:
        for system in running:
            system.end()


@dataclass
class Report:
    """What was measured, printed as it comes."""

    rounds: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        print(f"\n{text}\n{'':44} {'system':22} {'cpu ms':>10} {'wall ms':>10} {'our cpu / theirs':>17}", flush=True)

    def add(self, case: str, system: str, timed: Sequence[Timed], parts: int = 1) -> None:
        """The medians of one system in one case of which each run consisted of that many alike parts."""
        if timed[0].refused is not None:
            row: dict[str, Any] = {"case": case, "system": system, "refused": timed[0].refused}
            print(f"{case:44} {system:22} {timed[0].refused}", flush=True)
        else:
            cpu, wall = (statistics.median(getattr(t, kind) for t in timed) / parts * 1e3 for kind in ("cpu", "wall"))
            row = {"case": case, "system": system, "cpu_ms": cpu, "wall_ms": wall}
            ours = next((r["cpu_ms"] for r in self.rows if r["case"] == case and "cpu_ms" in r), None)
            ratio = f"{ours / cpu:16.2f}x" if ours is not None and cpu else ""
            row["our_cpu_over_theirs"] = ours / cpu if ours is not None and cpu else None
            print(f"{case:44} {system:22} {cpu:10.2f} {wall:10.2f} {ratio:>17}", flush=True)
        self.rows.append(row)

    def compare(
        self,
        case: str,
        systems: Sequence[Running],
        call: str,
        questions: Sequence[Sequence[Any]],
        parts: int = 1,
        *,
        same_answers: bool = True,
    ) -> None:
        """Ask everybody the same, round by round: question `i` in round `i`. Ours has to be the first system."""
        taken: dict[str, list[Timed]] = {system.name: [] for system in systems}
        shuffled = random.Random(case)
        for i in range(self.rounds + 1):
            question = questions[i % len(questions)]
            answers = {}
            for system in shuffled.sample(list(systems), len(systems)):
                timed = system.ask(call, *question)
                if timed.refused is None:
                    answers[system.name] = timed.answer
                if i or timed.refused is not None:
                    taken[system.name].append(timed)
            if same_answers and len({json.dumps(answer) for answer in answers.values()}) > 1:
                sys.exit(f"{case}: the answers differ: {answers}")
        for system in systems:
            self.add(case, system.name, taken[system.name], parts)

    def build(self, contenders: Sequence[type[Contender]], folder: Path) -> None:
        """Let everybody load the files, one after the other."""
        self.heading("building: load as the system likes it, then its indexes")
        for contender in contenders:
            process = Running(contender, place(contender, folder))
            self.add("build", contender.name, [process.ask("build")])
            process.end()

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"machine": machine(), "rounds": self.rounds, "rows": self.rows}, indent=1))


def restarted(contender: type[Contender], folder: Path, call: str, arguments: Sequence[Any]) -> Timed:
    """A new process from its start to its end: interpreter, import, open, one question."""
    program = (
        "import sys, json; from pathlib import Path; "
        f"from {contender.__module__} import {contender.__name__} as System; "
        f"system = System(Path({str(place(contender, folder))!r})); system.open(); "
        f"print('answer', json.dumps(system.{call}(*json.loads(sys.argv[1])))); system.close()"
    )
    before, wall = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, json.dumps(arguments)], capture_output=True, text=True)
    wall, after = time.perf_counter() - wall, os.times()
    if done.returncode:
        if "NotOfferedError" in done.stderr:
            return Timed(None, 0, 0, done.stderr.strip().rsplit("NotOfferedError: ", 1)[-1])
        sys.exit(f"{contender.name}: {done.stderr}")
    answer = next(line for line in done.stdout.splitlines() if line.startswith("answer "))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Timed(json.loads(answer.removeprefix("answer ")), wall, cpu)


def installed(contenders: Sequence[type[Contender]]) -> list[type[Contender]]:
    for contender in contenders:
        if not contender.is_installed():
            print(f"{contender.name} is not installed and left out: pip install {contender.module}", flush=True)
    return [contender for contender in contenders if contender.is_installed()]


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


@contextlib.contextmanager
def workplace(folder: Path | None) -> Iterator[Path]:
    """Where the data goes: a folder that stays, or one for this run alone."""
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        chosen = folder or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amount of data")
    parser.add_argument("--rounds", type=int, default=rounds, help="how often everything is asked")
    parser.add_argument("--folder", type=Path, help="where the data goes, and stays; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser
