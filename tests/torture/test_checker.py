"""The judge of the torture runner notices what it is there for: each test makes one fault by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from tests.support.log_entries import get_commit
from tests.torture.checker import Checker
from tests.torture.shapes import FIRST, rendered

ADA, BOB = ({"type": "Person", "data": {"name": name, "n": 1}} for name in ("ada", "bob"))
LOAD_ADA = {"kind": "load", "branch": "main", "args": {"mode": "append", "records": [ADA]}}
PEOPLE = {"reading": "people", "params": {}, "names": {}, "at": {"branch": "main"}}


class Court:
    """A graph, a trace that a test writes, and what the judge makes of the two."""

    def __init__(self, directory: Path) -> None:
        (directory / "trace").mkdir()
        self.directory = directory
        self.graph = Graph.init(directory / "graph", rendered(FIRST), actor="init")
        self.trace("init", {"kind": "init", "branch": "main", "args": {"document": FIRST}})

    def trace(self, op: str, begun: dict[str, Any], **ended: Any) -> None:
        with (self.directory / "trace" / "w.jsonl").open("a") as trace:
            trace.write(json.dumps({"op": op, **begun, "began": 0.0}) + "\n")
            if ended:
                trace.write(json.dumps({"op": op, "ended": 1.0, **ended}) + "\n")

    def load(self, op: str, *records: Any, branch: str = "main") -> str:
        lines = "\n".join(json.dumps(record) for record in records)
        return self.graph.load(lines, mode="append", branch=branch, actor=op).commit.graph_commit_id

    def findings(self) -> list[str]:
        checker = Checker(self.graph, self.directory)
        with Graph.open(self.graph.uri) as fresh:
            checker.settle(fresh)
        return sorted(checker.findings.found)


@pytest.fixture
def court(tmp_path: Path) -> Court:
    return Court(tmp_path)


def _sound(court: Court) -> None:
    commit = court.load("w-1", ADA)
    court.trace("w-1", LOAD_ADA, outcome="done", commit=commit)
    court.trace("w-2", {"kind": "query", "args": PEOPLE}, outcome="done", read=commit, answer={"ada": 1})


def _other_content(court: Court) -> None:
    court.trace("w-1", LOAD_ADA, outcome="done", commit=court.load("w-1", BOB))


def _not_in_history(court: Court) -> None:
    court.trace("w-1", LOAD_ADA, outcome="done", commit="01M7J7EF85000001D51P9N2XGZ")


def _failed_and_in_history(court: Court) -> None:
    court.load("w-1", ADA)
    court.trace("w-1", LOAD_ADA, outcome="refused", error="KeyConflictError")


def _twice(court: Court) -> None:
    court.graph.create_branch("a")
    court.load("w-1", ADA, branch="a")
    court.load("w-1", ADA)
    court.trace("w-1", LOAD_ADA, outcome="died")


def _wrong_answer(court: Court) -> None:
    commit = court.load("w-1", ADA)
    court.trace("w-1", LOAD_ADA, outcome="done", commit=commit)
    court.trace("w-2", {"kind": "query", "args": PEOPLE}, outcome="done", read=commit, answer={})


def _raw_error(court: Court) -> None:
    court.trace("w-1", LOAD_ADA, outcome="raw", error="ValueError", message="oops")


def _lost_file(court: Court) -> None:
    court.trace("w-1", LOAD_ADA, outcome="done", commit=court.load("w-1", ADA))
    court.findings()
    for path in (court.directory / "graph" / "nodes").glob("*/_versions/*"):
        path.unlink()


def _skipped_by_the_feed(court: Court) -> None:
    first, second = court.load("w-1", ADA), court.load("w-2", BOB)
    court.trace("w-1", LOAD_ADA, outcome="done", commit=first)
    load_bob = {**LOAD_ADA, "args": {"mode": "append", "records": [BOB]}}
    court.trace("w-2", load_bob, outcome="done", commit=second)
    genesis = get_commit(court.graph, first).commit.parents[0].commit_id
    poll = {"kind": "poll", "branch": "main", "args": {}}
    court.trace("w-3", poll, outcome="done", stream="s", baseline=genesis, content="")
    block = {"commit": second, "parent": first, "changes": [["Person", "bob", "insert"]]}
    court.trace("w-4", poll, outcome="done", stream="s", blocks=[block])


FAULTS: list[tuple[Callable[[Court], None], list[str]]] = [
    (_sound, []),
    (_other_content, ["load: other content than expected"]),
    (_not_in_history, ["load: acknowledged, and not in history"]),
    (_failed_and_in_history, ["load: failed with KeyConflictError, and is in history"]),
    (_twice, ["load: one operation, several commits"]),
    (_wrong_answer, ["query: another answer than expected to people"]),
    (_raw_error, ["load gives ValueError at ?: oops"]),
    (_lost_file, ["can't read the head of #: HistoricalVersionReclaimedError"]),
    (_skipped_by_the_feed, ["baseline: other content than its commit", "feed: not every commit once and in order"]),
]


@pytest.mark.parametrize(("make", "expected"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_found(court: Court, make: Callable[[Court], None], expected: list[str]) -> None:
    make(court)
    assert [what for what in court.findings() if not what.startswith("verify:")] == expected
