"""How many streams of one graph may be open at a time: exports, baselines and streamed results."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final

from omnigraph.errors import ResourceLimitError

_PATIENCE_SECONDS: Final = 0.25


class StreamSlots:
    """Slots per graph in this process. A stream that finds none waits a moment for one that ends."""

    def __init__(self, per_graph: int) -> None:
        self._per_graph = per_graph
        self._open: Counter[str] = Counter()
        self._changed = threading.Condition()

    def take(self, graph_id: str) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        with self._changed:
            while self._open[graph_id] >= self._per_graph:
                if not self._changed.wait(until - time.monotonic()):
                    raise ResourceLimitError(
                        "stream_export_slots",
                        self._per_graph,
                        self._open[graph_id] + 1,
                        "try again when a stream of this graph has ended, or raise --streams-per-graph",
                    )
            self._open[graph_id] += 1

    def give_back(self, graph_id: str) -> None:
        with self._changed:
            self._open[graph_id] -= 1
            self._changed.notify_all()

    def open_streams(self) -> int:
        with self._changed:
            return self._open.total()
