"""What the process of a server has beside its application: settings, admission, metrics, tracing, and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omnigraph.server.admission import Admission
from omnigraph.server.metrics import Metrics
from omnigraph.server.settings import Settings
from omnigraph.server.tracing import Tracing


class Draining:
    """Whether the server was told to end, and who wants to know."""

    def __init__(self) -> None:
        self.began = False
        self._told: list[Callable[[], None]] = []

    def then(self, tell: Callable[[], None]) -> None:
        """Call this in the event loop when the server begins to end."""
        self._told.append(tell)

    def begin(self) -> None:
        self.began = True
        for tell in self._told:
            tell()


@dataclass(frozen=True, slots=True)
class Surroundings:
    settings: Settings
    admission: Admission
    metrics: Metrics
    tracing: Tracing
    draining: Draining = field(default_factory=Draining)
