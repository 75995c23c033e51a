"""What a query did: a tree of operators with rows, time, store requests and how each went about its work.

Filled by `run` while a query runs and shown by `--profile`; measuring requests costs a little, so it happens only
for a query that asked for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.api import queries as contract


@dataclass(slots=True)
class OperatorProfile:
    """One operator. Times and requests include those of its inputs."""

    operator: str
    rows: int = 0
    seconds: float = 0.0
    requests: int = 0
    notes: list[str] = field(default_factory=list)
    inputs: list[OperatorProfile] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def measured(self) -> contract.OperatorProfile:
        """What was measured, as it is shown to others."""
        entries = [self]
        for entry in entries:
            entries += entry.inputs
        made: dict[int, contract.OperatorProfile] = {}
        for entry in reversed(entries):
            made[id(entry)] = contract.OperatorProfile(
                entry.operator,
                entry.rows,
                round(entry.seconds * 1000, 3),
                entry.requests,
                tuple(entry.notes),
                tuple(made[id(child)] for child in entry.inputs),
            )
        return made[id(self)]

    def lines(self, depth: int = 0) -> Iterator[str]:
        """A readable tree, the last operator first."""
        return self.measured.lines(depth)


class Profiler:
    """Builds the tree. An operator that runs again for the next piece of its input adds to its first entry."""

    def __init__(self, requests: Callable[[], int] | None = None, *, discreet: bool = False) -> None:
        """`discreet` is for readers who see a part of the graph: requests and notes would tell of the rest."""
        requests = None if discreet else requests
        self._discreet = discreet
        self.detailed = requests is not None
        """Whether somebody will look: notes that cost something to find out are for them alone."""
        self._requests = requests or (lambda: 0)
        self._top = OperatorProfile("query")
        self._open = [self._top]
        self._known: dict[tuple[int, int], OperatorProfile] = {}

    @property
    def root(self) -> OperatorProfile:
        return self._top

    @contextmanager
    def operator(self, plan: object, label: str) -> Iterator[OperatorProfile]:
        parent = self._open[-1]
        key = (id(parent), id(plan))
        entry = self._known.get(key)
        if entry is None:
            entry = self._known[key] = OperatorProfile(label)
            parent.inputs.append(entry)
        requests, started = self._requests(), time.perf_counter()
        self._open.append(entry)
        try:
            yield entry
        finally:
            self._open.pop()
            seconds, requests = time.perf_counter() - started, self._requests() - requests
            entry.seconds += seconds
            entry.requests += requests
            if parent is self._top:
                # The query is the sequence of these: it takes what they take, and gives what the last one gives.
                parent.rows = entry.rows
                parent.seconds += seconds
                parent.requests += requests

    def note(self, text: str) -> None:
        """Something worth knowing about the operator that runs now."""
        if not self._discreet:
            self._open[-1].note(text)
