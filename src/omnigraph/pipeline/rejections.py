"""Rows that can't be taken, wherever that was found out, and what is told about them.

The row kernels refuse rows before they are written; the checks refuse rows that were written already and say so by
place. Both end up as one frame of (source, row number, reason), which never visits the driver as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api import wire
from omnigraph.api.pipeline import RejectedSample, RowProblem
from omnigraph.errors import RowsRejectedError
from omnigraph.language.catalog import TableType
from omnigraph.pipeline.sources import RowIndex
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState

_PROBLEMS: Final = "array<struct<property:string,reason:string>>"
REJECTED_SCHEMA: Final = f"source string, row long, type string, problems {_PROBLEMS}, record string, checked boolean"
_PROBLEMS_ARROW: Final = pa.list_(pa.struct([("property", pa.string()), ("reason", pa.string())]))
_REJECTED_ARROW: Final = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("type", pa.string()),
        ("problems", _PROBLEMS_ARROW),
        ("record", pa.string()),
        ("checked", pa.bool_()),
    ]
)


def refused_by_kernels(source: str, outcomes: DataFrame) -> DataFrame:
    """Rejected rows of one source's ingest, with all problems of each."""
    return outcomes.where("kind = 'rejected'").select(
        F.lit(source).alias("source"), "row", "type", F.from_json("problems", _PROBLEMS).alias("problems"), "record",
        F.lit(False).alias("checked"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """What an executor needs to tell of rows that were written, in the version that has them all."""

    location: Location
    type: TableType
    state: TableState

    def __call__(self, refused: pa.Table, positions: pa.Table) -> pa.Table:
        from omnigraph.engine.entities import TypeState
        from omnigraph.engine.export import entity_lines
        from omnigraph.pipeline.ingest import unpacked_positions
        from omnigraph.storage.tables import TableReader
        from omnigraph.storage.tables.distributed import fragment_row_ids

        if not refused.num_rows:
            return _REJECTED_ARROW.empty_table()
        numbers = unpacked_positions(positions.column("positions")[0].as_py())
        source = positions.column("source")[0].as_py()
        refused = refused.sort_by("_offset")
        offsets = refused.column("_offset").to_numpy()
        rows = TypeState(TableReader(self.location), self.type, self.state)
        # A fragment that was just written has all of its rows, so offsets count its row ids.
        row_ids = fragment_row_ids(rows.table, [refused.column("_fragment")[0].as_py()])[offsets]
        return pa.table(
            [
                [source] * len(offsets),
                numbers[offsets],
                [self.type.type_key] * len(offsets),
                refused.column("problems"),
                [line.decode() for line in entity_lines(rows, row_ids)],
                [True] * len(offsets),
            ],
            schema=_REJECTED_ARROW,
        )


def refused_by_checks(refused: DataFrame, positions: DataFrame, rows: RefusedRows) -> DataFrame:
    """Rows refused by place (`_fragment`, `_offset`, `problems`) as rows of their sources.

    `positions` has one row per incoming fragment: `_fragment`, `source`, `positions`.
    """

    def describe(refused: pa.Table, positions: pa.Table) -> pa.Table:
        return rows(refused, positions)

    return refused.groupBy("_fragment").cogroup(positions.groupBy("_fragment")).applyInArrow(describe, REJECTED_SCHEMA)


def samples(rejected: DataFrame, indexes: Mapping[str, RowIndex], limit: int) -> list[RejectedSample]:
    """The first rejected rows in input order."""
    rows = rejected.orderBy("source", "row", "type").limit(limit).collect()
    return [_sample(row.asDict(recursive=True), indexes) for row in rows]


def _sample(row: dict[str, Any], indexes: Mapping[str, RowIndex]) -> RejectedSample:
    at = indexes[row["source"]].position(row["row"])
    problems = tuple(RowProblem(problem["property"], problem["reason"]) for problem in row["problems"])
    return RejectedSample.of(at.source, at.file, at.row, row["type"] or None, problems, row["record"], row["checked"])


def rows_rejected(total: int, shown: Sequence[RejectedSample], allowed: int) -> RowsRejectedError:
    """The end of a run because of its rows."""
    first = shown[0] if shown else None
    conflict = None
    # Of the checks, only those of ids blame the id.
    if first is not None and first.checked and first.property == "id" and first.type_key and first.record:
        conflict = (first.type_key, str(json.loads(first.record)["data"]["id"]))
    return RowsRejectedError(total, [sample.message() for sample in shown], allowed, conflict)


def with_positions(rejected: DataFrame, indexes: Mapping[str, RowIndex]) -> DataFrame:
    """The same rows with `file` and the row within it, for the quarantine."""

    def resolve(batches: Any) -> Any:
        for batch in batches:
            resolved = [wire.to_builtins(_sample(row, indexes)) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(resolved, schema=_QUARANTINE_ARROW)

    return rejected.mapInArrow(resolve, QUARANTINE_SCHEMA)


QUARANTINE_SCHEMA: Final = (
    f"source string, file string, row long, type string, property string, reason string, problems {_PROBLEMS}, "
    "record string"
)
_QUARANTINE_ARROW: Final = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("type", pa.string()),
        ("property", pa.string()),
        ("reason", pa.string()),
        ("problems", _PROBLEMS_ARROW),
        ("record", pa.string()),
    ]
)
