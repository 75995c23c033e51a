"""Reports of a run: rejected rows with their origin and problems, stages, and the counts in the commit.

A run calls it. The row kernels reject rows before they are written; checks reject written rows by address. Both become
one frame with a row per rejected row, of which the driver reads only the first few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api import wire
from omnigraph.api.service.pipeline import Progress, RejectedSample, RowProblem, StageEvent, TypeCounts
from omnigraph.engine.bulk.executor import EntityRecords
from omnigraph.errors import ConstraintError, ConstraintRule, RowsRejectedError
from omnigraph.pipeline.execution.ingest import TooManyRejectedError
from omnigraph.pipeline.sources.source_frames import RowIndex

SAMPLES: Final = 10
"""How many rejected rows are shown."""
_PART_BYTES: Final = 64 << 20
_PROBLEMS: Final = "array<struct<property:string,reason:string,rule:string>>"
REJECTED_SCHEMA: Final = f"source string, row long, type string, id string, problems {_PROBLEMS}, record string"
_PROBLEMS_ARROW: Final = pa.list_(
    pa.struct([("property", pa.string()), ("reason", pa.string()), ("rule", pa.string())])
)
_REJECTED_ARROW: Final = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("type", pa.string()),
        ("id", pa.string()),
        ("problems", _PROBLEMS_ARROW),
        ("record", pa.string()),
    ]
)


def rejected_by_kernels(source: str, outcomes: DataFrame) -> DataFrame:
    """Rejected rows of one source's ingest, with all problems of each."""
    problems = F.from_json("problems", _PROBLEMS).alias("problems")
    rows = outcomes.where("kind = 'rejected'")
    return rows.select(F.lit(source).alias("source"), "row", "type", "id", problems, "record")


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Reads rejected rows back on an executor, from the table version that has all incoming rows."""

    records: EntityRecords

    def __call__(self, rejected: pa.Table, positions: pa.Table) -> pa.Table:
        from omnigraph.pipeline.execution.ingest import unpacked_positions

        if not rejected.num_rows:
            return _REJECTED_ARROW.empty_table()
        numbers = unpacked_positions(positions.column("positions")[0].as_py())
        source = positions.column("source")[0].as_py()
        rejected = rejected.sort_by("_offset")
        offsets = rejected.column("_offset").to_numpy()
        # A fragment that was just written has all of its rows, so offsets count them.
        entities = list(self.records.by_id([rejected.column("_fragment")[0].as_py()], offsets))
        return pa.table(
            [
                [source] * len(offsets),
                numbers[offsets],
                [self.records.type.type_key] * len(offsets),
                [entity_id for entity_id, _ in entities],
                rejected.column("problems"),
                [line.decode() for _, line in entities],
            ],
            schema=_REJECTED_ARROW,
        )


def rejected_by_checks(rejected: DataFrame, positions: DataFrame, rows: RejectedRows) -> DataFrame:
    """Rows rejected by place (`_fragment`, `_offset`, `problems`) as rows of their sources.

    `positions` has one row per incoming fragment: `_fragment`, `source`, `positions`.
    """

    def describe(rejected: pa.Table, positions: pa.Table) -> pa.Table:
        return rows(rejected, positions)

    return rejected.groupBy("_fragment").cogroup(positions.groupBy("_fragment")).applyInArrow(describe, REJECTED_SCHEMA)


def samples(rejected: DataFrame, indexes: Mapping[str, RowIndex], limit: int) -> list[RejectedSample]:
    """The first rejected rows in input order."""

    def with_lines(batches: Any) -> Any:
        for batch in batches:
            lines = _lines(batch, indexes)
            yield batch.append_column("line", pa.array(lines, pa.int64()))

    first = rejected.orderBy("source", "row", "type").limit(limit)
    rows = first.mapInArrow(with_lines, f"{REJECTED_SCHEMA}, line long").collect()
    return [_sample(row.asDict(recursive=True), indexes) for row in rows]


def _lines(batch: pa.RecordBatch, indexes: Mapping[str, RowIndex]) -> list[int | None]:
    """The line of each rejected row. Runs where the files are: on an executor."""
    places = list(zip(batch.column("source").to_pylist(), batch.column("row").to_pylist(), strict=True))
    found = {
        source: indexes[source].lines(row for of, row in places if of == source) for source in {of for of, _ in places}
    }
    return [found[source].get(row) for source, row in places]


def _sample(row: dict[str, Any], indexes: Mapping[str, RowIndex]) -> RejectedSample:
    at = indexes[row["source"]].position(row["row"])
    problems = tuple(RowProblem(p["property"], p["reason"], ConstraintRule(p["rule"])) for p in row["problems"])
    return RejectedSample.of(
        at.source, at.file, at.row, row["type"] or None, row["id"], problems, row["record"], row.get("line")
    )


def rows_rejected(total: int, shown: Sequence[RejectedSample], allowed: int) -> RowsRejectedError:
    """The error that ends a run because of its rejected rows; its fields are those of the first."""
    first = shown[0]
    return RowsRejectedError(
        total,
        [sample.message() for sample in shown],
        allowed,
        rule=_rule(first.problems[0]),
        type_key=first.type_key,
        property=first.problems[0].property,
        entity_id=first.entity_id,
        line=first.line or first.row,
    )


def too_many_rejected(text: str, source: str, row_index: Callable[[str], RowIndex]) -> ConstraintError | None:
    """The error behind a `TooManyRejectedError` of a task, within the text that Spark made of it; None without one."""
    _, found, rest = text.partition(f"{TooManyRejectedError.__name__}: ")
    if not found:
        return None
    index = row_index(source)
    row = {**json.loads(rest.split("\n", 1)[0]), "source": source, "record": None}
    first = _sample({**row, "line": index.lines([row["row"]]).get(row["row"])}, {source: index})
    problem = first.problems[0]
    message = f"more rows were rejected than max_rejected allows, such as: {first.message()}"
    return ConstraintError(
        _rule(problem), first.type_key, problem.property, first.entity_id, first.line or first.row, message=message
    )


def _rule(problem: RowProblem) -> ConstraintRule:
    if problem.rule is None:
        raise AssertionError("what a run found wrong with a row names the rule")
    return problem.rule


def with_positions(rejected: DataFrame, indexes: Mapping[str, RowIndex]) -> DataFrame:
    """The same rows with `file`, and the row and line within it, for the quarantine. One task reads each file that has
    any of them for its lines: once, unless there are very many rows, which it takes in parts."""

    def resolve(batches: Any) -> Any:
        for batch in _in_parts(batches):
            lines = _lines(batch, indexes)
            rows = ({**row, "line": line} for row, line in zip(batch.to_pylist(), lines, strict=True))
            resolved = [_sample(row, indexes).quarantined() for row in rows]
            yield pa.RecordBatch.from_pylist(resolved, schema=_QUARANTINE_ARROW)

    return rejected.coalesce(1).mapInArrow(resolve, QUARANTINE_SCHEMA)


def _in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches put together, up to a size."""
    waiting: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        waiting.append(batch)
        nbytes += batch.nbytes
        if nbytes >= _PART_BYTES:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, nbytes = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


QUARANTINE_SCHEMA: Final = (
    "source string, file string, row long, line long, type string, property string, reason string, "
    f"problems {_PROBLEMS}, record string"
)
_QUARANTINE_ARROW: Final = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("line", pa.int64()),
        ("type", pa.string()),
        ("property", pa.string()),
        ("reason", pa.string()),
        ("problems", _PROBLEMS_ARROW),
        ("record", pa.string()),
    ]
)


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


def counts_to_record(counts: tuple[TypeCounts, ...]) -> str:
    """Counts as they are stored in the commit."""
    return wire.encode(list(counts)).decode()


def counts_from_record(text: str) -> tuple[TypeCounts, ...]:
    return wire.decode(text, tuple[TypeCounts, ...])
