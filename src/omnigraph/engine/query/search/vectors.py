"""Exact nearest-neighbour search over the vectors of one table version.

Lance proposes, with or without an index, in single precision; the proposals are measured again in double precision
and accepted only when no row outside them can be closer. So an index changes how fast an answer comes and never the
answer, its order or its distances.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.search.ranked_rows import (
    EVERY_ROW,
    Candidates,
    Measures,
    RankedRows,
    best_first,
    candidate_rows,
    settled,
)
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Metric
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import VECTOR_INDEX_KIND
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import DISTANCE, ColumnIndex, index_of, nearest_rows

# A bound of the relative error of Lance's single precision sums, generous for thousands of dimensions.
_PROPOSAL_ERROR: Final = 1e-5
_SPARE_PROPOSALS: Final = 8
# From this share of the table on, reading every vector once is no slower than asking for so many.
_SCAN_SHARE: Final = 4
_ROWS_PER_STEP: Final = 16 << 10


def nearest(
    table: Table,
    column: str,
    metric: Metric,
    vector: NDArray[np.float32],
    k: int | None,
    candidates: Candidates = EVERY_ROW,
) -> RankedRows:
    """The k candidates closest to `vector`, all of them when k is None; ties by entity id ascending.

    Rows without a vector have no rank, and neither has a vector of length zero under `cosine`. The distance is the
    Euclidean one for `l2`, 1 - cosine for `cosine` and 1 - inner product for `dot`.
    """
    if k is not None and k <= 0:
        raise BadRequestError("nearest needs a limit of at least 1")
    query = np.asarray(vector, np.float32)
    dimension = table.schema.field(column).type.list_size
    if query.shape != (dimension,):
        raise BadRequestError(f"nearest compares vectors of {dimension} numbers, the query has {query.size}")
    if not np.isfinite(query).all():
        raise BadRequestError("nearest needs a vector of finite numbers")
    if k is not None and candidates.rows is None and k * _SCAN_SHARE < table.state.rows:
        return _proposed(table, column, metric, query, k, candidates.filter)
    return _measured(table, metric, query, candidate_rows(table, candidates, [column]), column, k)


def _proposed(
    table: Table, column: str, metric: Metric, query: NDArray[np.float32], k: int, filter: str | None
) -> RankedRows:
    index = _usable_index(table, column, metric)
    asked = k + _SPARE_PROPOSALS
    while True:
        rows = nearest_rows(table, column, query, asked, metric.value, filter=filter, index=index, columns=[column])
        ranked = _measured(table, metric, query, rows, column, k)
        if rows.num_rows < asked:
            return ranked
        # Rows not proposed are at least as far, by Lance's arithmetic, as the last one that was.
        last = rows.column(DISTANCE).to_numpy().astype(np.float64).max()
        if ranked.values[-1] < _certain(metric, query, rows.column(column), last):
            return ranked
        asked *= 4
        if asked * _SCAN_SHARE >= table.state.rows:
            return _measured(table, metric, query, candidate_rows(table, Candidates(filter), [column]), column, k)


def _certain(metric: Metric, query: NDArray[np.float32], vectors: pa.ChunkedArray, proposed: float) -> float:
    """A distance that no row beyond a proposed distance of Lance can have. Its `l2` is the square of ours."""
    match metric:
        case Metric.L2:
            return float(np.sqrt(proposed * (1 - _PROPOSAL_ERROR)))
        case Metric.COSINE:
            return proposed - _PROPOSAL_ERROR
        case Metric.DOT:
            _, matrix = _matrix(vectors)
            scale = float(np.linalg.norm(query)) * float(np.linalg.norm(matrix, axis=1).max(initial=0.0))
            return proposed - _PROPOSAL_ERROR * (1 + scale)


def _usable_index(table: Table, column: str, metric: Metric) -> ColumnIndex | None:
    """An index of another metric would be ignored by Lance, loudly; one of another kind would not be exact."""
    index = index_of(table, column, VECTOR_INDEX_KIND)
    return index if index is not None and index.parameters.get("metric_type", "").lower() == metric.value else None


def _measured(
    table: Table, metric: Metric, query: NDArray[np.float32], rows: pa.Table, column: str, k: int | None
) -> RankedRows:
    """The k closest of some rows by their stored vectors."""
    present, matrix = _matrix(rows.column(column))
    row_ids: RowIds = row_ids_of(rows)[present]
    distances = np.empty(row_ids.size, np.float64)
    for start in range(0, row_ids.size, _ROWS_PER_STEP):
        step = slice(start, start + _ROWS_PER_STEP)
        distances[step] = _distances(metric, query.astype(np.float64), matrix[step].astype(np.float64))
    ranked = ~np.isnan(distances)
    row_ids, distances = row_ids[ranked], distances[ranked]
    order = best_first(table, row_ids, distances, k)
    return RankedRows(row_ids[order], distances[order])


def _matrix(column: pa.ChunkedArray) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which rows have a vector, and those vectors as the rows of a matrix."""
    combined = column.combine_chunks()
    present = ~np.asarray(combined.is_null())
    vectors = combined.drop_null()
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    return present, flat.reshape(len(vectors), combined.type.list_size)


def _distances(metric: Metric, query: Measures, matrix: NDArray[np.float64]) -> Measures:
    """Row by row in one fixed order of summation, so that equal vectors are at equal distances wherever they stand."""
    if metric is Metric.L2:
        apart = matrix - query
        return settled(np.sqrt(np.einsum("ij,ij->i", apart, apart)))
    inner = np.einsum("ij,j->i", matrix, query)
    if metric is Metric.COSINE:
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix) * np.einsum("j,j->", query, query))
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = inner / lengths
    return 1.0 - settled(inner)
