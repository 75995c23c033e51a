"""Another process that writes to graphs, one request at a time.

Requests are JSON lines on standard input: a location, the name of a `Graph` method, and its arguments. Each is
answered with one JSON line, `{"commit": id}` or `{"error": class, "message": text}`, before the next is read.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from operator import attrgetter
from typing import Any

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from tests.support.processes import Process


class OtherProcess:
    """The parent's side of such a process."""

    def __init__(self) -> None:
        self._process = Process("tests.engine.writer")
        assert self.answer() == {"ready": True}

    def ask(self, uri: str, method: str, *arguments: object, **options: object) -> None:
        self._process.tell(json.dumps([uri, method, arguments, options]))

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def do(self, uri: str, method: str, *arguments: object, **options: object) -> dict[str, Any]:
        self.ask(uri, method, *arguments, **options)
        return self.answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    open_graph = lru_cache(Graph.open)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        uri, method, arguments, options = json.loads(line)
        try:
            receipt = attrgetter(method)(open_graph(uri))(*arguments, **options)
            commit = getattr(receipt, "commit", None)
            answer = {"commit": None if commit is None else commit.graph_commit_id}
        except OmniGraphError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
