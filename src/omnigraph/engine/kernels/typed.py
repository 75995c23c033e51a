"""Loose values of one type to typed rows: the same rules whether they came as JSON members or as Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.kernels.ids import new_ulids
from omnigraph.engine.kernels.rows import Grammar, RejectedRow, TypedRows
from omnigraph.language.catalog import TableType


def type_records(
    type_: TableType,
    records: Sequence[Mapping[str, object]],
    lines: Sequence[int],
    rejected: list[RejectedRow],
    *,
    grammar: Grammar = Grammar.STRICT,
    endpoints: tuple[Sequence[str], Sequence[str]] | None = None,
) -> TypedRows:
    """JSON-like members by property name (plus `id`) to typed rows; `endpoints` are the `from` and `to` of edges.

    Bad rows are left out and appended to `rejected`. Dates may be texts or stored integers, as in the input grammar.
    """
    raise NotImplementedError


def type_batch(
    type_: TableType, batch: pa.RecordBatch, lines: pa.Array, rejected: list[RejectedRow], *, mint=new_ulids
) -> TypedRows:
    """Loosely typed Arrow columns by property name (plus `id`, and `from`/`to` for edges) to typed rows.

    What Spark, Parquet or CSV readers give: integers and floats of any width, texts for numbers, dates and
    timestamps, dictionaries. Columns that are absent are null. Bad rows are left out and appended to `rejected`.
    """
    raise NotImplementedError
