"""How systems are compared: each in a process of its own, taking turns, round by round, on the same questions.

A contender is a class with a method per case. The parent makes one process per contender and asks them for one case
at a time, in an order that changes from round to round, so that whatever disturbs the machine disturbs everybody alike.
The first round warms everybody up and is not counted. CPU seconds are those of all threads of the process and of its
children. `report.py` makes figures of what is measured here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

OURS = "omnigraph"
SPAWN = multiprocessing.get_context("spawn")
THREADS = os.cpu_count() or 1
"""Every system may use all cores."""


class NotOfferedError(Exception):
    """A system does not have such a feature, with the reason; its figure is then left out and the reason is shown."""


class Contender:
    """One system. `build` makes its data from files, once; `open` is what a user's process does first."""

    name = ""
    module = ""
    sets_goals = True
    """Whether our goals are about this system. Otherwise its figures are only shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def is_installed(cls) -> bool:
        """Without an import: libraries of two systems may not agree to be in one process."""
        return not cls.module or importlib.util.find_spec(cls.module) is not None

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.module)

    def build(self) -> Any: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    @classmethod
    def other_ways(cls, call: str, arguments: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Other ways to ask this system for the same: by name, the arguments to give instead. The report shows each of
        them, and the best one counts."""
        return {}

    @classmethod
    def forget_derived(cls, folder: Path) -> None:
        """Remove from closed data what earlier reads derived from it and stored."""


class Ours(Contender):
    name = OURS

    @classmethod
    def version(cls) -> str:
        import omnigraph

        return omnigraph.__version__


class SqliteLibrary(Contender):
    """It comes with Python, and with a B-tree that can't be beaten while few rows are touched: it sets no goals."""

    name = "sqlite"
    sets_goals = False

    @classmethod
    def version(cls) -> str:
        import sqlite3

        return sqlite3.sqlite_version


@dataclass(frozen=True, slots=True)
class Timed:
    """What one call answered and cost. `between` is CPU that the process used since its last answer, in the background;
    `peak` is the most memory that the process has ever had, in bytes."""

    answer: Any
    wall: float
    cpu: float
    refused: str | None = None
    between: float = 0.0
    peak: int = 0


def cpu_seconds() -> float:
    """Of this process, all its threads, and its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_memory() -> int:
    """Of this process, in bytes. `ru_maxrss` would begin with what the parent had."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1 << 10)


def _serve(connection: Connection, contender: type[Contender], folder: Path) -> None:
    system = contender(folder)
    opened = False
    last = cpu_seconds()
    while (message := connection.recv()) is not None:
        call, arguments = message
        opened = opened or call == "open"
        answer, refused = None, None
        wall, cpu = time.perf_counter(), cpu_seconds()
        between = cpu - last
        try:
            answer = getattr(system, call)(*arguments)
        except NotOfferedError as reason:
            refused = str(reason)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        connection.send(Timed(answer, wall, cpu, refused, between, peak_memory()))
        last = cpu_seconds()
    if opened:
        system.close()


class Running:
    """A contender in its process."""

    def __init__(self, contender: type[Contender], folder: Path) -> None:
        self.name = contender.name
        self.contender = contender
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, contender, folder), daemon=False)
        self._process.start()
        theirs.close()

    def ask(self, call: str, *arguments: Any) -> Timed:
        self._connection.send((call, arguments))
        try:
            timed = self._connection.recv()
        except EOFError:
            sys.exit(f"{self.name} failed; its message is above")
        assert isinstance(timed, Timed)
        return timed

    def end(self) -> None:
        with contextlib.suppress(OSError):  # it has failed, and said why
            self._connection.send(None)
        self._process.join()


def place(contender: type[Contender], folder: Path) -> Path:
    """Where a contender keeps its data; whether that is a file or a folder is its own affair."""
    return folder / contender.name.replace(", ", "-").replace(" ", "-")


def stored(contender: type[Contender], folder: Path) -> list[Path]:
    """The files and folders of a contender there."""
    data = place(contender, folder)
    return [path for path in (data, *(data.with_name(data.name + log) for log in (".wal", "-wal"))) if path.exists()]


@contextlib.contextmanager
def running(contender: type[Contender], folder: Path) -> Iterator[Running]:
    """One contender in a new process, not opened."""
    process = Running(contender, place(contender, folder))
    try:
        yield process
    finally:
        process.end()


@contextlib.contextmanager
def all_running(contenders: Sequence[type[Contender]], folder: Path) -> Iterator[list[Running]]:
    """Every contender, opened."""
    with contextlib.ExitStack() as stack:
        systems = [stack.enter_context(running(contender, folder)) for contender in contenders]
        for system in systems:
            system.ask("open")
        yield systems


@contextlib.contextmanager
def copied(contenders: Sequence[type[Contender]], folder: Path, *shared: str) -> Iterator[Path]:
    """A folder with copies of the contenders' data and of some shared files, without anything that reads derived."""
    with tempfile.TemporaryDirectory(prefix="copy-", dir=folder) as name:
        copy = Path(name)
        for contender in contenders:
            for path in stored(contender, folder):
                if path.is_dir():
                    shutil.copytree(path, copy / path.name)
                else:
                    shutil.copy2(path, copy / path.name)
            contender.forget_derived(place(contender, copy))
        for file in shared:
            (copy / file).symlink_to((folder / file).resolve())
        yield copy


def command(words: Sequence[str]) -> Timed:
    """A program from its start to its end: a new process. The answer is its output."""
    # As installed programs run: with their compiled sources kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall, cpu = time.perf_counter(), cpu_seconds()
    own = time.process_time()
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    cpu = cpu_seconds() - cpu - (time.process_time() - own)
    wall = time.perf_counter() - wall
    if done.returncode:
        sys.exit(f"{words[0]} failed: {done.stderr}")
    return Timed(done.stdout, wall, cpu)


def built(contender: type[Contender], folder: Path, *files: str) -> Timed | None:
    """Build the data of a contender, unless it is there. An interrupted build leaves nothing."""
    if stored(contender, folder):
        return None
    print(f"- building the store of {contender.name}", file=sys.stderr, flush=True)
    with copied([], folder, *files) as unfinished:
        with running(contender, unfinished) as system:
            timed = system.ask("build")
        for path in stored(contender, unfinished):
            path.rename(folder / path.name)
    return timed


def in_turns(systems: Sequence[Any], seed: str, rounds: int) -> Iterator[tuple[int, Any]]:
    """Every system once in each round, in an order that changes; round 0 warms up."""
    shuffled = random.Random(seed)
    for i in range(rounds + 1):
        for system in shuffled.sample(list(systems), len(systems)):
            yield i, system


AnyContender = TypeVar("AnyContender", bound=Contender)


def installed(contenders: Sequence[type[AnyContender]]) -> list[type[AnyContender]]:
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


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amount of data")
    parser.add_argument("--rounds", type=int, help="how often everything is asked; each benchmark has a default")
    parser.add_argument("--folder", type=Path, help="where the data goes, and stays; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--long", action="store_true", help="also what takes minutes at a large scale: all triangles")
    return parser
