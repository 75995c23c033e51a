"""Reports of a run: rejected rows with their origin and problems, stages, and the counts in the commit.

A run calls it. The row kernels reject rows before they are written; checks reject written rows by address. Both become
one frame with a row per rejected row, of which the driver reads only the first few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api.service.pipeline import Progress, RejectedSample, RowProblem, StageEvent
from omnigraph.engine.bulk.executor import EntityRecords
from omnigraph.errors import ConstraintError, ConstraintRule, RowsRejectedError
from omnigraph.pipeline.execution.ingest import TooManyRejectedError, unpacked_positions
from omnigraph.pipeline.sources.source_frames import RowIndex
from omnigraph.pipeline.spark.table_frames import in_chunks
from omnigraph.pipeline.spark.tasks import spark_schema

SAMPLES: Final = 10
"""How many rejected rows are shown."""
_PROBLEM: Final = pa.struct([("property", pa.string()), ("reason", pa.string()), ("rule", pa.string())])
_REJECTED: Final = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("type", pa.string()),
        ("id", pa.string()),
        ("problems", pa.list_(_PROBLEM)),
        ("record", pa.string()),
    ]
)
_LINE: Final = pa.field("line", pa.int64())


def rejected_by_kernels(source: str, outcomes: DataFrame) -> DataFrame:
    """Rejected rows of one source's ingest, with all problems of each."""
    problems = F.from_json("problems", spark_schema(_REJECTED)["problems"].dataType.simpleString()).alias("problems")
    rows = outcomes.where("kind = 'rejected'")
    return rows.select(F.lit(source).alias("source"), "row", "type", "id", problems, "record")


def rejected_by_checks(rejected: DataFrame, positions: DataFrame, records: EntityRecords) -> DataFrame:
    """Rows rejected by place (`_fragment`, `_offset`, `problems`) as rows of their sources. `positions` has one row per
    incoming fragment: `_fragment`, `source`, `positions`. `records` are those of the table version that has all
    incoming rows; executors read the rejected ones back."""

    def describe(rejected: pa.Table, positions: pa.Table) -> pa.Table:
        if not rejected.num_rows:
            return _REJECTED.empty_table()
        numbers = unpacked_positions(positions.column("positions")[0].as_py())
        rejected = rejected.sort_by("_offset")
        offsets = rejected.column("_offset").to_numpy()
        # A fragment that was just written has all of its rows, so offsets count them.
        entities = list(records.by_id([rejected.column("_fragment")[0].as_py()], offsets))
        columns = {
            "source": [positions.column("source")[0].as_py()] * len(offsets),
            "row": numbers[offsets],
            "type": [records.type.type_key] * len(offsets),
            "id": [entity_id for entity_id, _ in entities],
            "problems": rejected.column("problems"),
            "record": [line.decode() for _, line in entities],
        }
        return pa.table(columns, schema=_REJECTED)

    by_fragment = rejected.groupBy("_fragment").cogroup(positions.groupBy("_fragment"))
    return by_fragment.applyInArrow(describe, spark_schema(_REJECTED))


def samples(rejected: DataFrame, indexes: Mapping[str, RowIndex], limit: int) -> list[RejectedSample]:
    """The first rejected rows in input order."""

    def with_lines(batches: Any) -> Any:
        for batch in batches:
            yield batch.append_column(_LINE, pa.array(_lines(batch, indexes), _LINE.type))

    first = rejected.orderBy("source", "row", "type").limit(limit)
    rows = first.mapInArrow(with_lines, spark_schema(_REJECTED.append(_LINE))).collect()
    return [_sample(row.asDict(recursive=True), indexes) for row in rows]


def _lines(batch: pa.RecordBatch | pa.Table, indexes: Mapping[str, RowIndex]) -> list[int | None]:
    """The line of each rejected row. Runs where the files are: on an executor."""
    places = list(zip(batch.column("source").to_pylist(), batch.column("row").to_pylist(), strict=True))
    sources = {source for source, _ in places}
    lines = {source: indexes[source].lines(row for of, row in places if of == source) for source in sources}
    return [lines[source].get(row) for source, row in places]


def _sample(row: dict[str, Any], indexes: Mapping[str, RowIndex]) -> RejectedSample:
    file, number = indexes[row["source"]].position(row["row"])
    problems = tuple(RowProblem(p["property"], p["reason"], ConstraintRule(p["rule"])) for p in row["problems"])
    return RejectedSample.of(
        row["source"], file, number, row["type"] or None, row["id"], problems, row["record"], row.get("line")
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
        property=first.property,
        entity_id=first.entity_id,
        line=first.line or first.row,
    )


def too_many_rejected(text: str, source: str, row_index: Callable[[str], RowIndex]) -> ConstraintError | None:
    """The error behind a `TooManyRejectedError` of a task, within the text that Spark made of it; None without one."""
    _, marker, rest = text.partition(f"{TooManyRejectedError.__name__}: ")
    if not marker:
        return None
    index = row_index(source)
    row = {**json.loads(rest.split("\n", 1)[0]), "source": source, "record": None}
    first = _sample({**row, "line": index.lines([row["row"]]).get(row["row"])}, {source: index})
    message = f"more rows were rejected than max_rejected allows, such as: {first.message()}"
    fields = (first.type_key, first.property, first.entity_id, first.line or first.row)
    return ConstraintError(_rule(first.problems[0]), *fields, message=message)


def _rule(problem: RowProblem) -> ConstraintRule:
    if problem.rule is None:
        raise AssertionError("a problem that a run finds names its rule")
    return problem.rule


def with_positions(rejected: DataFrame, indexes: Mapping[str, RowIndex]) -> DataFrame:
    """The same rows with `file`, and the row and line within it, for the quarantine. One task reads the lines of each
    file that has any of them: once, unless there are so many rows that they come in parts."""

    def resolve(batches: Any) -> Any:
        for part in in_chunks(batches):
            lines = _lines(part, indexes)
            rows = ({**row, "line": line} for row, line in zip(part.to_pylist(), lines, strict=True))
            resolved = [_sample(row, indexes).quarantine_line() for row in rows]
            yield pa.RecordBatch.from_pylist(resolved, schema=_QUARANTINED)

    return rejected.coalesce(1).mapInArrow(resolve, spark_schema(_QUARANTINED))


_QUARANTINED: Final = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        _LINE,
        ("type", pa.string()),
        ("property", pa.string()),
        ("reason", pa.string()),
        _REJECTED.field("problems"),
        ("record", pa.string()),
    ]
)


class Stages:
    """Reports to a listener when stages begin and end, and adds their times up."""

    def __init__(self, listen: Progress | None) -> None:
        self._listen = listen or (lambda event: None)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = monotonic()
        self._listen(StageEvent.start_of(name, detail))
        yield
        took = monotonic() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + took
        self._listen(StageEvent.done(name, detail, took))
