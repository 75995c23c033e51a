"""Another process that writes to graphs, one request at a time.

Requests are JSON lines on standard input: a location, the name of a `Graph` method, and its arguments. Each is
answered with one JSON line, `{"commit": id}` or `{"error": class, "message": text}`, before the next is read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.errors import OmniGraphError

REPOSITORY = Path(__file__).resolve().parents[2]


class OtherProcess:
    """The parent's side of such a process."""

    def __init__(self) -> None:
        search = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": search, "OMNIGRAPH_TEST_QUICK_START": "1"},
            cwd=REPOSITORY,
        )
        assert self.answer() == {"ready": True}

    def ask(self, uri: str, method: str, *arguments: object, **options: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([uri, method, arguments, options]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def do(self, uri: str, method: str, *arguments: object, **options: object) -> dict[str, Any]:
        self.ask(uri, method, *arguments, **options)
        return self.answer()

    def close(self) -> None:
        self._process.communicate(timeout=60)


def main() -> None:
    open_graph = lru_cache(Graph.open)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        uri, method, arguments, options = json.loads(line)
        try:
            receipt = getattr(open_graph(uri), method)(*arguments, **options)
            commit = getattr(receipt, "commit", None)
            answer = {"commit": None if commit is None else commit.graph_commit_id}
        except OmniGraphError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
