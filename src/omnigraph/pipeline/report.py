"""What a run tells: per type what was read, taken and changed, per stage how long it took, and the commit.

Built by `run` and shown by every face; the wire form has stable names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from omnigraph.pipeline.rejections import RejectedSample
from omnigraph.pipeline.sources import shown_path


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A stage of a run began (`seconds` is None) or ended."""

    stage: str
    detail: str = ""
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"stage": self.stage, "state": "started" if self.seconds is None else "done"}
        if self.detail:
            told["detail"] = self.detail
        return told if self.seconds is None else {**told, "seconds": round(self.seconds, 3)}


Progress: TypeAlias = Callable[[StageEvent], None]


class Stages:
    """Tells a listener when stages begin and end, and adds their times up."""

    def __init__(self, listen: Progress | None) -> None:
        self._listen = listen
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = monotonic()
        self._tell(StageEvent(name, detail))
        yield
        took = monotonic() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + took
        self._tell(StageEvent(name, detail, took))

    def _tell(self, event: StageEvent) -> None:
        if self._listen is not None:
            self._listen(event)


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """Rows of one type. `superseded` rows had a later row with their id in the same input."""

    type_key: str
    read: int = 0
    rejected: int = 0
    superseded: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def accepted(self) -> int:
        return self.read - self.rejected

    def to_dict(self) -> dict[str, Any]:
        return {
            "type_key": self.type_key,
            "read": self.read,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "superseded": self.superseded,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
        }


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """One run. `commit_id` is None for a dry run; `replayed` when an earlier run had done the same already."""

    pipeline: str
    run_id: str
    run_key: str | None
    graph: str
    branch: str
    mode: str
    types: tuple[TypeCounts, ...] = ()
    rejected: int = 0
    samples: tuple[RejectedSample, ...] = ()
    quarantine: str | None = None
    commit_id: str | None = None
    version: int | None = None
    branch_created: bool = False
    dry_run: bool = False
    replayed: bool = False
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    spark_ui: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "run_id": self.run_id,
            "run_key": self.run_key,
            "graph": self.graph,
            "branch": self.branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "dry_run": self.dry_run,
            "replayed": self.replayed,
            "commit_id": self.commit_id,
            "version": self.version,
            "types": [counts.to_dict() for counts in self.types],
            "rejected": self.rejected,
            "rejected_samples": [sample.to_dict() for sample in self.samples],
            "quarantine": self.quarantine,
            "seconds": round(self.seconds, 3),
            "stages": {name: round(seconds, 3) for name, seconds in self.stages.items()},
            "spark_ui": self.spark_ui,
        }

    def lines(self) -> Iterator[str]:
        """The report as text for a terminal."""
        yield f"{self.pipeline} → {shown_path(self.graph)}, branch {self.branch}, mode {self.mode}"
        if self.types:
            yield ""
            yield from _table(self.types)
        if self.samples:
            yield ""
            shown = "" if len(self.samples) >= self.rejected else f", the first {len(self.samples)}"
            yield f"{_counted(self.rejected, 'row')} rejected{shown}:"
            yield from _aligned([(f"  {s.place()}", s.type_key or "", s.reason) for s in self.samples], right=())
        if self.quarantine:
            yield f"all of them are in {shown_path(self.quarantine)}"
        yield ""
        yield self._outcome()

    def _outcome(self) -> str:
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.stages.items())
        took = f"{self.seconds:.1f} s" + (f" ({stages})" if stages else "")
        if self.dry_run:
            return f"dry run on {self.branch}: nothing was written, {took}"
        if self.replayed:
            return f"already done: commit {self.commit_id} on {self.branch} holds this run, {took}"
        made = " (new branch)" if self.branch_created else ""
        return f"commit {self.commit_id} on {self.branch}{made}, version {self.version}, {took}"


def _table(types: tuple[TypeCounts, ...]) -> Iterator[str]:
    """A row per type and their sum. What no type has is no column, except for what a reader looks for."""
    columns = ["read", "accepted", "rejected", "inserted", "updated"]
    columns += [name for name in ("deleted", "superseded") if any(getattr(t, name) for t in types)]
    rows = [(t.type_key, *(f"{getattr(t, name):,}" for name in columns)) for t in types]
    total = ("total", *(f"{sum(getattr(t, name) for t in types):,}" for name in columns))
    yield from _aligned([("type", *columns), *rows, total], right=range(1, len(columns) + 1))


def _aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in cells).rstrip()


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def recorded(counts: tuple[TypeCounts, ...]) -> str:
    """Counts as they are stored in the commit."""
    return json.dumps([c.to_dict() for c in counts], separators=(",", ":"))


def from_record(text: str) -> tuple[TypeCounts, ...]:
    stored = json.loads(text)
    return tuple(TypeCounts(**{k: v for k, v in row.items() if k != "accepted"}) for row in stored)
