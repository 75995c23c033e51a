"""Rows that can't be taken, wherever that was found out, and what is told about them.

The row kernels refuse rows before they are written; the checks refuse rows that were written already and say so by
place. Both end up as one frame of (source, row number, reason), which never visits the driver as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.errors import RowsRejectedError
from omnigraph.pipeline.sources import RowIndex, shown_path
from omnigraph.storage.tables.distributed import TableAddress

REJECTED_SCHEMA: Final = (
    "source string, row long, type string, property string, reason string, record string, checked boolean"
)
_REJECTED_ARROW: Final = pa.schema(
    [("source", pa.string()), ("row", pa.int64())]
    + [(name, pa.string()) for name in ("type", "property", "reason", "record")]
    + [("checked", pa.bool_())]
)


@dataclass(frozen=True, slots=True)
class RejectedSample:
    """One refused row, for a person: `row` of `file`, or of the source when it has no files.

    `checked` rows were good by themselves and refused because of others; their record is the typed row.
    """

    source: str
    file: str | None
    row: int
    type_key: str | None
    property: str | None
    reason: str
    record: str | None = None
    checked: bool = False

    def place(self) -> str:
        """`file:row`, with a file below the working directory as it would be typed there."""
        return f"{shown_path(self.file) if self.file else self.source}:{self.row}"

    def message(self) -> str:
        where = f"{self.file or self.source}, row {self.row}"
        return f"{where}: {self.type_key}: {self.reason}" if self.type_key else f"{where}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "file": self.file,
            "row": self.row,
            "type": self.type_key,
            "property": self.property,
            "reason": self.reason,
            "record": self.record,
        }


def refused_by_kernels(source: str, outcomes: DataFrame) -> DataFrame:
    """Rejected rows of one source's ingest, one per problem."""
    schema = "array<struct<type:string,property:string,reason:string,stage:string>>"
    problems = outcomes.where("kind = 'rejected'").select(
        "row", "record", F.explode(F.from_json("problems", schema)).alias("problem")
    )
    return problems.select(
        F.lit(source).alias("source"), "row", "problem.type", "problem.property", "problem.reason", "record",
        F.lit(False).alias("checked"),
    )  # fmt: skip


def refused_by_checks(refused: DataFrame, positions: DataFrame, all_rows: TableAddress, type_key: str) -> DataFrame:
    """Rows refused by place (`_fragment`, `_offset`, `property`, `reason`) as rows of their sources.

    `positions` has one row per incoming fragment: `_fragment`, `source`, `positions`.
    """
    describe = _describing(all_rows, type_key)
    return refused.groupBy("_fragment").cogroup(positions.groupBy("_fragment")).applyInArrow(describe, REJECTED_SCHEMA)


def _describing(all_rows: TableAddress, type_key: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def describe(refused: pa.Table, positions: pa.Table) -> pa.Table:
        from omnigraph.pipeline.ingest import unpacked_positions
        from omnigraph.storage.tables.distributed import RowPlaces, take_rows

        if not refused.num_rows:
            return _REJECTED_ARROW.empty_table()
        numbers = unpacked_positions(positions.column("positions")[0].as_py())
        source = positions.column("source")[0].as_py()
        refused = refused.sort_by("_offset")
        offsets = refused.column("_offset").to_pylist()
        fragment = refused.column("_fragment")[0].as_py()
        columns = [f.name for f in all_rows.open().schema if not isinstance(f.type, pa.ExtensionType)]
        rows = take_rows(all_rows, RowPlaces(fragment, offsets), columns).to_pylist()
        return pa.table(
            [
                [source] * len(offsets),
                [int(numbers[offset]) for offset in offsets],
                [type_key] * len(offsets),
                refused.column("property"),
                refused.column("reason"),
                [json.dumps(row, default=str, ensure_ascii=False) for row in rows],
                [True] * len(offsets),
            ],
            schema=_REJECTED_ARROW,
        )

    return describe


def samples(rejected: DataFrame, indexes: Mapping[str, RowIndex], limit: int) -> list[RejectedSample]:
    """The first rejected rows in input order."""
    rows = rejected.orderBy("source", "row", "type", "property", "reason").limit(limit).collect()
    return [_sample(row.asDict(), indexes) for row in rows]


def _sample(row: dict[str, Any], indexes: Mapping[str, RowIndex]) -> RejectedSample:
    at = indexes[row["source"]].position(row["row"])
    type_key, property, reason, record = row["type"] or None, row["property"], row["reason"], row["record"]
    return RejectedSample(at.source, at.file, at.row, type_key, property, reason, record, row["checked"])


def rows_rejected(total: int, shown: Sequence[RejectedSample], allowed: int) -> RowsRejectedError:
    """The end of a run because of its rows."""
    first = shown[0] if shown else None
    conflict = None
    # Of the checks, only those of ids blame the id.
    if first is not None and first.checked and first.property == "id" and first.type_key and first.record:
        conflict = (first.type_key, str(json.loads(first.record)["id"]))
    return RowsRejectedError(total, [sample.message() for sample in shown], allowed, conflict)


def with_positions(rejected: DataFrame, indexes: Mapping[str, RowIndex]) -> DataFrame:
    """The same rows with `file` and the row within it, for the quarantine."""

    def resolve(batches: Any) -> Any:
        for batch in batches:
            resolved = [_sample(row, indexes).to_dict() for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(resolved, schema=_QUARANTINE_ARROW)

    return rejected.mapInArrow(resolve, QUARANTINE_SCHEMA)


QUARANTINE_SCHEMA: Final = (
    "source string, file string, row long, type string, property string, reason string, record string"
)
_QUARANTINE_ARROW: Final = pa.schema(
    [(name, pa.int64() if name == "row" else pa.string()) for name in
     ("source", "file", "row", "type", "property", "reason", "record")]
)  # fmt: skip
