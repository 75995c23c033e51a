"""The recall of approximate vector indexes: how many of the nearest vectors a search gets, measured on a sample.

Optimize calls it after a build. Some stored vectors are the queries; one pass over the table finds their nearest
vectors, and the index is asked for the same. Where the schema does not say how many partitions a search looks at, as
many are chosen as reach the target. What was measured is kept with the table version, so that nobody measures again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.search.vectors import distances
from omnigraph.language.catalog import Metric
from omnigraph.storage.models import VECTOR_INDEX_FORMAT, VectorIndexRecord
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import (
    APPROXIMATE_INDEX_KIND,
    IndexSpec,
    index_record,
    matrix_of,
    most_partitions,
    segment_ids,
    spec_at,
)
from omnigraph.storage.tables.maintenance import MaintenanceWork
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import ColumnIndex, index_of, nearest_rows

SAMPLE: Final = 64
NEAREST: Final = 10
TARGET: Final = 0.97
"""The recall that is looked for where the schema does not say how many partitions to look at."""

_FEWEST_PROBES: Final = 8
_GROWTH: Final = 1.5
_SPARE: Final = 8
_NUMBERS_PER_STEP: Final = 1 << 19
# Distances of equal vectors that were added up in another order.
_ROUNDING: Final = 1e-9


def measure_recall(root: GraphRoot, work: MaintenanceWork, specs: Sequence[IndexSpec]) -> MaintenanceWork:
    """The work with a record of every approximate index that was built, or whose number of probes was changed."""
    table = root.reader.open(work.staged.state)
    records = {spec.name: record for spec in specs if (record := _measure(table, spec)) is not None}
    return root.table_maintenance.keep_measures(work, records) if records else work


def _measure(table: Table, spec: IndexSpec) -> VectorIndexRecord | None:
    """What a search gets of an index now; None where that is on record, or exact."""
    if spec.vectors is None or spec_at(table, spec).kind != APPROXIMATE_INDEX_KIND:
        return None
    index = index_of(table, spec.column, APPROXIMATE_INDEX_KIND)
    if index is None:
        return None
    segments = segment_ids(table, spec.name)
    record, declared = index_record(table, spec.name), spec.vectors.probes
    if record is not None and record.segments == segments and record.declared_probes == declared:
        return None
    metric = Metric(spec.options["metric"])
    queries = _sample(table, spec.column)
    limits = _exact_limits(table, spec.column, metric, queries)
    probes, recall = 0, 0.0
    for probes in [declared] if declared is not None else _probe_counts(most_partitions(table, spec)):
        recall = _recall(table, spec.column, metric, index, probes, queries, limits)
        if recall >= TARGET:
            break
    return VectorIndexRecord(
        format=VECTOR_INDEX_FORMAT,
        partitions=spec.vectors.partitions,
        declared_probes=declared,
        probes=probes,
        recall=round(recall, 4),
        sample=len(queries.row_ids),
        rows=table.state.rows,
        segments=segments,
    )


def _probe_counts(partitions: int) -> Iterator[int]:
    """Numbers of partitions to try, all of them at last."""
    probes = _FEWEST_PROBES
    while probes < partitions:
        yield probes
        probes = int(probes * _GROWTH)
    yield partitions


class _Queries(NamedTuple):
    row_ids: RowIds
    vectors: NDArray[np.float32]


def _sample(table: Table, column: str) -> _Queries:
    """Vectors of rows that are spread over the table, always the same ones."""
    apart, passed, chosen = max(1, table.state.rows // SAMPLE), 0, [np.empty(0, np.int64)]
    for batch in table.batches([], row_ids=True):
        row_ids = row_ids_of(pa.table(batch))
        chosen.append(row_ids[-passed % apart :: apart])
        passed += len(row_ids)
    rows = table.select(np.concatenate(chosen)[:SAMPLE], [column])
    vectors = rows.column(column).combine_chunks()
    return _Queries(row_ids_of(rows)[np.asarray(vectors.is_valid())], matrix_of(vectors))


def _exact_limits(table: Table, column: str, metric: Metric, queries: _Queries) -> NDArray[np.float64]:
    """For each query, the distance of the last of its nearest vectors; the query itself is not one of them."""
    nearest = np.full((len(queries.row_ids), NEAREST), np.inf)
    wanted = queries.vectors.astype(np.float64)
    for batch in table.batches([column], row_ids=True):
        vectors = batch.column(column)
        row_ids, matrix = row_ids_of(pa.table(batch))[np.asarray(vectors.is_valid())], matrix_of(vectors)
        step = max(1, _NUMBERS_PER_STEP // matrix.shape[1])
        for start in range(0, len(matrix), step):
            apart = _all_distances(metric, wanted, matrix[start : start + step].astype(np.float64))
            apart[queries.row_ids[:, None] == row_ids[None, start : start + step]] = np.inf
            apart[np.isnan(apart)] = np.inf
            nearest = np.partition(np.concatenate((nearest, apart), axis=1), NEAREST - 1, axis=1)[:, :NEAREST]
    limits: NDArray[np.float64] = nearest.max(axis=1)
    return limits


def _all_distances(metric: Metric, queries: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every query to every vector."""
    inner: NDArray[np.float64] = queries @ matrix.T
    if metric is Metric.DOT:
        return _from_one(inner)
    squares = np.einsum("ij,ij->i", queries, queries)[:, None], np.einsum("ij,ij->i", matrix, matrix)[None, :]
    if metric is Metric.COSINE:
        with np.errstate(invalid="ignore", divide="ignore"):
            return _from_one(inner / np.sqrt(squares[0] * squares[1]))
    apart: NDArray[np.float64] = np.sqrt(np.maximum(0.0, squares[0] + squares[1] - 2 * inner))
    return apart


def _from_one(similarity: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - similarity


def _recall(
    table: Table,
    column: str,
    metric: Metric,
    index: ColumnIndex,
    probes: int,
    queries: _Queries,
    limits: NDArray[np.float64],
) -> float:
    """The share of the nearest vectors that searches of the index get."""
    hits = 0
    for row_id, query, limit in zip(queries.row_ids, queries.vectors, limits, strict=True):
        count = NEAREST + 1 + _SPARE
        rows = nearest_rows(table, column, query, count, metric.value, filter=None, index=index, probes=probes)
        others = row_ids_of(rows) != row_id
        matrix = matrix_of(rows.column(column).combine_chunks()).astype(np.float64)
        apart = distances(metric, query.astype(np.float64), matrix)[others]
        hits += min(NEAREST, int(np.count_nonzero(apart <= limit + _ROUNDING * max(1.0, abs(limit)))))
    return hits / (NEAREST * len(queries.row_ids)) if len(queries.row_ids) else 1.0
