"""What the workers wrote down: every operation that began, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.storage.models import LogEntry
from tests.torture.nemesis import records


@dataclass
class Deed:
    """One operation. Its outcome is `died` when the process did not live to see it."""

    begun: dict[str, Any]
    ended: dict[str, Any] = field(default_factory=dict)

    @property
    def op(self) -> str:
        return str(self.begun["op"])

    @property
    def kind(self) -> str:
        return str(self.begun["kind"])

    @property
    def args(self) -> dict[str, Any]:
        found: dict[str, Any] = self.begun["args"]
        return found

    @property
    def key(self) -> str | None:
        return self.begun.get("key")

    @property
    def outcome(self) -> str:
        return str(self.ended.get("outcome", "begun"))

    @property
    def error(self) -> str | None:
        return self.ended.get("error")

    @property
    def finished_at(self) -> float | None:
        return self.ended.get("ended")

    def place(self) -> str:
        """The innermost line of the product in the traceback."""
        frames = re.findall(r'src/omnigraph/(\S+)", line \d+, in (\S+)', self.ended.get("traceback", ""))
        return ":".join(frames[-1]) if frames else "?"

    def is_plain_repeat(self) -> bool:
        """A repeat of the same request, not another one under its key."""
        return not self.begun.get("abuse")

    def once(self, what: str) -> bool:
        """True the first time."""
        fresh = what not in self.begun.setdefault("judged", [])
        self.begun["judged"].append(what)
        return fresh

    def __str__(self) -> str:
        args = str(self.args)
        return f"{self.op} {self.kind} on {self.begun.get('branch')} {args[:300]}{'...' if len(args) > 300 else ''}"


class Traces:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._judged: set[str] = set()
        self.deeds: dict[str, Deed] = {}
        self.streams: dict[str, str] = {}
        self.traps = 0
        self.deaths = 0
        self._deaths: list[dict[str, Any]] = []

    def refresh(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            for record in self._new(path):
                self._take(record, path.stem)

    def _new(self, path: Path) -> Iterator[dict[str, Any]]:
        taken = self._read.get(path, 0)
        found = list(records(path))
        self._read[path] = len(found)
        yield from found[taken:]

    def _take(self, record: dict[str, Any], process: str) -> None:
        if "kind" in record:
            deed = self.deeds[record["op"]] = Deed(record)
            if "outcome" in record:  # a look that failed is told in one line
                deed.ended = record
        elif "op" in record:
            self.deeds[record["op"]].ended = record
        elif "died" in record:
            self.deaths += 1
            self._deaths.append({"process": process, **record})
            for deed in self.deeds.values():
                if not deed.ended and deed.op.rpartition("-")[0] == process:
                    deed.ended = {"outcome": "died", "ended": record["at"]}
        elif "trap" in record:
            self.traps += 1

    def take_deaths(self) -> list[dict[str, Any]]:
        taken, self._deaths = self._deaths, []
        return taken

    def take_finished(self) -> list[Deed]:
        """What is over and was not taken before, in the order in which it ended."""
        over = [d for d in self.deeds.values() if d.ended and d.op not in self._judged]
        self._judged |= {d.op for d in over}
        return sorted(over, key=lambda d: d.finished_at or 0)

    def first_kept(self, main: list[LogEntry]) -> int:
        """The oldest version of main that no cleanup, and no hard drop, may have released."""
        first = 1
        for deed in self.deeds.values():
            releasing = deed.kind in ("cleanup", "maintain") or (deed.kind == "schema" and deed.args["hard"])
            if not releasing:
                continue
            ended = deed.finished_at or float("inf")
            head = max(e.version for e in main if e.commit.published_at / 1e6 <= ended)
            keep = deed.args.get("keep", {"maintain": 5}.get(deed.kind, 1))
            first = max(first, head - keep + 1)
        return first
