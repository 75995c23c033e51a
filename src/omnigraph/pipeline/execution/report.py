"""How a run tells of its stages, and how its counts are kept in the commit. The report is `omnigraph.api.service.pipeline`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from omnigraph.api import wire
from omnigraph.api.service.pipeline import Progress, StageEvent, TypeCounts


class Stages:
    """Tells a listener when stages begin and end, and adds their times up."""

    def __init__(self, listen: Progress | None) -> None:
        self._listen = listen
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = monotonic()
        self._tell(StageEvent.started(name, detail))
        yield
        took = monotonic() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + took
        self._tell(StageEvent.done(name, detail, took))

    def _tell(self, event: StageEvent) -> None:
        if self._listen is not None:
            self._listen(event)


def recorded(counts: tuple[TypeCounts, ...]) -> str:
    """Counts as they are stored in the commit."""
    return wire.encode(list(counts)).decode()


def from_record(text: str) -> tuple[TypeCounts, ...]:
    return wire.decode(text, tuple[TypeCounts, ...])
