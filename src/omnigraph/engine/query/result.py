"""The result of a query: an Arrow table or stream with typed columns, and the profile of its operators.

`QueryResult` holds all rows, `QueryStream` one batch at a time; both are Arrow streams to any library that reads one.
`run` fills the profile. Requests are measured only for a query that asks for its profile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.api import queries as contract
from omnigraph.api.enums import Integers
from omnigraph.api.queries import ArrowBatches, QueryRows, ReadPoint, json_rows, rendering_parts
from omnigraph.api.values import Columns
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.language.query.ir import OutputColumn, ReadOperator, operator_text
from omnigraph.language.query.value_types import display


@dataclass(slots=True)
class OperatorProfile:
    """One operator, or what is measured instead of one. Times and requests include those of its inputs."""

    measured: ReadOperator | str
    rows: int = 0
    seconds: float = 0.0
    requests: int = 0
    notes: list[str] = field(default_factory=list)
    inputs: list[OperatorProfile] = field(default_factory=list)

    @property
    def operator(self) -> str:
        """What it does, in a few words."""
        return self.measured if isinstance(self.measured, str) else operator_text(self.measured)

    @property
    def report(self) -> contract.OperatorProfile:
        """What was measured, as it is shown to others."""
        entries = [self]
        for entry in entries:
            entries += entry.inputs
        reports: dict[int, contract.OperatorProfile] = {}
        for entry in reversed(entries):
            millis, notes = round(entry.seconds * 1000, 3), tuple(entry.notes)
            inputs = tuple(reports[id(child)] for child in entry.inputs)
            report = contract.OperatorProfile(entry.operator, entry.rows, millis, entry.requests, notes, inputs)
            reports[id(entry)] = report
        return reports[id(self)]

    def lines(self, depth: int = 0) -> Iterator[str]:
        """A readable tree, the last operator first."""
        return self.report.lines(depth)


class Measurement:
    """One run of an operator. A class and not a generator: every operator of every query has one."""

    __slots__ = ("_profiler", "entry", "parent", "requests", "started")

    def __init__(self, profiler: Profiler, parent: OperatorProfile, entry: OperatorProfile, requests: int) -> None:
        self._profiler = profiler
        self.parent = parent
        self.entry = entry
        self.requests = requests
        self.started = time.perf_counter()

    def end(self) -> None:
        self._profiler.end(self)

    def __enter__(self) -> OperatorProfile:
        return self.entry

    def __exit__(self, *_: object) -> None:
        self._profiler.end(self)


class Profiler:
    """Builds the tree. An operator that runs again for the next piece of its input adds to its first entry."""

    def __init__(self, requests: Callable[[], int] | None = None, *, restricted: bool = False) -> None:
        """`restricted` is for restricted readers: requests and notes would reveal invisible rows."""
        requests = None if restricted else requests
        self._redacted = restricted
        self.detailed = requests is not None
        """Whether the caller asked for a profile: expensive notes are made only then."""
        self._requests = requests or (lambda: 0)
        self.root = OperatorProfile("query")
        self._open = [self.root]
        self._known: dict[tuple[int, int], OperatorProfile] = {}

    def operator(self, plan: ReadOperator) -> Measurement:
        """The measurement of an operator that runs now; it lasts until it is ended or its `with` block is left."""
        parent = self._open[-1]
        key = (id(parent), id(plan))
        entry = self._known.get(key)
        if entry is None:
            entry = self._known[key] = OperatorProfile(plan)
            parent.inputs.append(entry)
        self._open.append(entry)
        return Measurement(self, parent, entry, self._requests())

    def end(self, measurement: Measurement) -> None:
        """Add what was measured to the entry, which is the one that was opened last."""
        self._open.pop()
        parent, entry = measurement.parent, measurement.entry
        seconds, requests = time.perf_counter() - measurement.started, self._requests() - measurement.requests
        entry.seconds += seconds
        entry.requests += requests
        if parent is self.root:
            # The query is the sequence of these: it takes what they take, and gives what the last one gives.
            parent.rows = entry.rows
            parent.seconds += seconds
            parent.requests += requests

    def note(self, text: str) -> None:
        """Something worth knowing about the operator that runs now."""
        if not self._redacted and text not in (notes := self._open[-1].notes):
            notes.append(text)


@dataclass(frozen=True, repr=False)
class QueryResult(QueryRows):
    """The rows of one query, in order.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    query_name: str
    target: ReadPoint
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    table: pa.Table
    profile: OperatorProfile

    @property
    def typed_columns(self) -> Columns:
        """The columns with their types, as the schema language writes them."""
        return [(column.name, display(column.type)) for column in self.output]


@dataclass(frozen=True, repr=False)
class QueryStream(ArrowBatches):
    """The rows of one query, made as they are asked for. The snapshot stays pinned meanwhile.

    Iterating gives Arrow record batches. A stream is read once, by whichever of its methods comes first.
    """

    query_name: str
    target: ReadPoint
    graph_commit_id: str
    output: tuple[OutputColumn, ...]
    schema: pa.Schema
    profile: OperatorProfile
    _batches: Iterator[pa.RecordBatch]
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """What the query may use: code that renders its rows asks it too."""

    @property
    def typed_columns(self) -> Columns:
        """The columns with their types, as the schema language writes them."""
        return [(column.name, display(column.type)) for column in self.output]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]:
        """A dictionary per row, one after another."""
        for batch in self._batches:
            for part in rendering_parts(batch):
                self.budget.check()
                yield from json_rows(part, self.columns, integers)

    def reader(self) -> pa.RecordBatchReader:
        """For everything that consumes Arrow streams: DuckDB, Polars, a Flight server, a Parquet writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `reader`, for libraries that ask for it themselves."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def collect(self) -> QueryResult:
        """Everything that is left of it, in memory: it counts against that of the query like all that it keeps."""
        batches = []
        for batch in self._batches:
            self.budget.hold(batch.nbytes)
            batches.append(batch)
        table = pa.Table.from_batches(batches, self.schema)
        return QueryResult(self.query_name, self.target, self.graph_commit_id, self.output, table, self.profile)
