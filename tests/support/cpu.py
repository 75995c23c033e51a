"""What tests cost: `./dev test --cpu` ends with the CPU seconds of directories, and of the dearest tests and fixtures.

A busy machine stretches the wall clock but hardly the CPU time, so this is the figure to compare. It includes the
processes that a test starts, also those that outlive it (a JVM, a nursery), through /proc.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

TICK = os.sysconf("SC_CLK_TCK")


def seconds_used() -> float:
    """CPU seconds of this process, of all processes it has waited for, and of those that live below it."""
    own = os.times()
    return sum(own[:4]) + sum(_ticks(pid) for pid in _descendants("self")) / TICK


def _descendants(pid: str) -> Iterator[str]:
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:
            continue  # it ended just now; its parent has its seconds
        for child in children:
            yield child
            yield from _descendants(child)


def _ticks(pid: str) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


class CpuTable:
    """In a worker: measures. In the process that reports: adds up what came with the reports, and prints it."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._born = time.monotonic()
        self._phases: dict[str, float] = {}
        self._fixtures: Counter[str] = Counter()
        self._nested: list[float] = []
        self.tests: Counter[str] = Counter()
        self.fixtures: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._fixtures.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        began = seconds_used()
        self._nested.append(0.0)
        try:
            return (yield)
        finally:
            took = seconds_used() - began
            self._fixtures[fixturedef.argname] += took - self._nested.pop()
            if self._nested:
                self._nested[-1] += took

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._measured("setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._measured("call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._measured("teardown"))

    def _measured(self, phase: str) -> Generator[None, object, object]:
        began = seconds_used()
        try:
            return (yield)
        finally:
            self._phases[phase] = seconds_used() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        report.cpu = self._phases.pop(call.when, 0.0)
        report.cpu_fixtures = dict(self._fixtures) if call.when == "setup" else {}
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid] += getattr(report, "cpu", 0.0)
        self.fixtures.update(getattr(report, "cpu_fixtures", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        directories: Counter[str] = Counter()
        for test, seconds in self.tests.items():
            directories[test.partition("::")[0].rpartition("/")[0]] += seconds
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        write(f"{sum(self.tests.values()):8.1f}  tests, with what they started")
        write(f"{seconds_used():8.1f}  everything: collection, imports and workers as well")
        write(f"{time.monotonic() - self._born:8.1f}  wall clock")
        for title, figures in (("directory", directories), ("fixture", self.fixtures), ("test", self.tests)):
            write(f"by {title}")
            for name, seconds in figures.most_common(self._rows):
                if seconds >= 0.05:
                    write(f"{seconds:8.2f}  {name}")
