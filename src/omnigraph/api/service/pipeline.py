"""Runs of pipelines: the events while they run, and the report at the end.

`omnigraph.pipeline` makes them; the command line and the server show them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field, structs

from omnigraph.api import wire
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.wire import LOCAL
from omnigraph.errors import ConstraintRule


class StageEvent(Struct, frozen=True, omit_defaults=True):
    """A stage of a run began, or ended after so many seconds."""

    stage: str
    state: Literal["started", "done"]
    detail: str = ""
    seconds: float | None = None

    @classmethod
    def start_of(cls, stage: str, detail: str = "") -> StageEvent:
        return cls(stage, "started", detail)

    @classmethod
    def done(cls, stage: str, detail: str, seconds: float) -> StageEvent:
        return cls(stage, "done", detail, round(seconds, 3))


Progress: TypeAlias = Callable[[StageEvent], None]


class SparkStarted(Struct, frozen=True):
    """The first stage of a run: starting Spark, and where its UI is when it has one."""

    stage: Literal["start"]
    state: Literal["done"]
    seconds: float
    spark_ui: str | None


class TypeCounts(Struct, frozen=True, kw_only=True):
    """Rows of one type. `superseded` rows had a later row with their id in the same input. `unchanged` ones say what is
    stored already. `nulled` names the properties that existing entities lost in a merge, because nothing was selected
    for them or their records left them out."""

    type_key: str
    read: int = 0
    accepted: int = 0
    rejected: int = 0
    superseded: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    nulled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        structs.force_setattr(self, "accepted", self.read - self.rejected)


class RowProblem(Struct, frozen=True):
    """One thing that is wrong with a row."""

    property: str | None
    reason: str
    rule: Annotated[ConstraintRule | None, LOCAL] = None


class RejectedSample(Struct, frozen=True, kw_only=True):
    """One rejected row: `row` of `file`, or of the source when it has no files. `line` is the line of the file that the
    row begins on, where rows have lines and the file can be read again. `problems` are all that was found."""

    source: str
    file: str | None
    row: int
    type_key: str | None = field(name="type")
    property: str | None
    reason: str
    problems: tuple[RowProblem, ...]
    record: str | None = None
    line: int | None = None
    entity_id: Annotated[str | None, LOCAL] = None

    @classmethod
    def of(
        cls,
        source: str,
        file: str | None,
        row: int,
        type_key: str | None,
        entity_id: str | None,
        problems: tuple[RowProblem, ...],
        record: str | None = None,
        line: int | None = None,
    ) -> RejectedSample:
        return cls(
            source=source,
            file=file,
            row=row,
            type_key=type_key,
            property=problems[0].property,
            reason="; ".join(problem.reason for problem in problems),
            problems=problems,
            record=record,
            line=line,
            entity_id=entity_id,
        )

    def place(self) -> str:
        """`file:line`, as editors take it, and the row where it differs; `file:row` where rows have no lines. A file
        below the working directory is named as it would be typed there."""
        file = display_path(self.file) if self.file else self.source
        row = f" (row {self.row})" if self.line not in (None, self.row) else ""
        return f"{file}:{self.line or self.row}{row}"

    def quarantine_line(self) -> dict[str, Any]:
        """The line of a quarantine: as in a report, and the rule of each problem."""
        return {**wire.to_builtins(self), "problems": [structs.asdict(problem) for problem in self.problems]}

    def message(self) -> str:
        row = f"row {self.row}"
        if self.line is not None:
            row = f"line {self.line}" if self.line == self.row else f"line {self.line} ({row})"
        where = f"{self.file or self.source}, {row}"
        return f"{where}: {self.type_key}: {self.reason}" if self.type_key else f"{where}: {self.reason}"


class PipelineReport(Struct, frozen=True, kw_only=True):
    """One run. `commit_id` is None for a dry run; `replayed` when an earlier run had done the same already."""

    pipeline: str
    run_id: str
    run_key: str | None
    graph: str
    branch: str
    branch_created: bool = False
    mode: str
    dry_run: bool = False
    replayed: bool = False
    commit_id: str | None = None
    version: int | None = None
    types: tuple[TypeCounts, ...] = ()
    rejected: int = 0
    samples: tuple[RejectedSample, ...] = field(default=(), name="rejected_samples")
    quarantine: str | None = None
    seconds: float = 0.0
    stages: dict[str, float] = {}
    spark_ui: str | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "seconds", round(self.seconds, 3))
        structs.force_setattr(self, "stages", {name: round(took, 3) for name, took in self.stages.items()})

    def lines(self) -> Iterator[str]:
        """The report as text for a terminal."""
        yield f"{self.pipeline} → {display_path(self.graph)}, branch {self.branch}, mode {self.mode}"
        if self.types:
            yield ""
            yield from _table(self.types)
        if self.samples:
            yield ""
            shown = "" if len(self.samples) >= self.rejected else f", the first {len(self.samples)}"
            yield f"{self.rejected:,} row{'' if self.rejected == 1 else 's'} rejected{shown}:"
            yield from _align([(f"  {s.place()}", s.type_key or "", s.reason) for s in self.samples], right=())
        if self.quarantine:
            yield f"all of them are in {display_path(self.quarantine)}"
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


def display_path(path: str) -> str:
    """A path below the working directory as it would be typed there; any other as it is."""
    return os.path.relpath(path) if path.startswith(f"{os.getcwd()}/") else path


def _table(types: tuple[TypeCounts, ...]) -> Iterator[str]:
    """A row per type and their sum. A count that is zero for every type may have no column."""
    columns = ["read", "accepted", "rejected", "inserted", "updated", "unchanged"]
    columns += [name for name in ("deleted", "superseded") if any(getattr(t, name) for t in types)]
    rows = [(t.type_key, *(f"{getattr(t, name):,}" for name in columns)) for t in types]
    total = ("total", *(f"{sum(getattr(t, name) for t in types):,}" for name in columns))
    yield from _align([("type", *columns), *rows, total], right=range(1, len(columns) + 1))


def _align(rows: Sequence[Sequence[str]], right: Collection[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in cells).rstrip()


class PipelineStep(Struct, frozen=True):
    """One step of a run and where it happens."""

    where: str
    what: str


class PipelinePlan(Struct, frozen=True, kw_only=True):
    """The steps of a run, in order, and the columns each source was found to have.

    `origins` say where each source comes from, `plan` where each step happens.
    """

    pipeline: str
    target: str
    sources: dict[str, tuple[str, ...]]
    steps: tuple[str, ...]
    origins: Annotated[dict[str, str], LOCAL] = {}
    plan: Annotated[tuple[PipelineStep, ...], LOCAL] = ()

    def lines(self) -> Iterator[str]:
        yield f"{self.pipeline} → {self.target}"
        yield ""
        yield "sources"
        widest = max(map(len, self.origins), default=0)
        for name, origin in self.origins.items():
            yield f"  {name:<{widest}}  {origin}"
            if columns := self.sources[name]:
                yield f"  {'':<{widest}}  columns  {', '.join(columns)}"
        yield ""
        yield "steps"
        places = max((len(step.where) for step in self.plan), default=0)
        for number, step in enumerate(self.plan, 1):
            yield f"  {number:>2}  {step.where:<{places}}  {step.what}"


class PipelineValidated(Struct, frozen=True):
    file: str
    pipeline: str
    valid: bool = True


class ServedPipeline(Struct, frozen=True):
    """A pipeline that a cluster has applied for a graph. `last_commit` is its newest run on its branch, None when it
    has not run, or long ago."""

    name: str
    branch: str
    digest: str
    last_commit: CommitReceipt | None

    WIRE_NAME: ClassVar[str] = "PipelineEntry"


class ServedPipelines(Struct, frozen=True):
    """Sorted by name."""

    pipelines: tuple[ServedPipeline, ...]

    WIRE_NAME: ClassVar[str] = "PipelineListOutput"


class ReembedOutcome(Struct, frozen=True):
    """How many rows got a vector. `commit` is None when there was none to embed."""

    embedded: int
    commit_id: str | None
    commit: Annotated[CommitReceipt | None, LOCAL] = None
