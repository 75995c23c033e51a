"""Nearest-neighbour search over the vectors of one table version.

Lance proposes, with or without an index, in single precision; the proposals are measured again in double precision.
An exact search accepts them only when no row outside them can be closer. Vectors whose squares single precision can't
hold are measured here from the start. So an index changes how fast an answer comes and never the answer, its order or
its distances. The one exception is an approximate index of many vectors, where the caller allows it: it may miss some
of the closest rows, and never gives fewer rows than there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.ranked_rows import EVERY_ROW, Candidates, Measures, RankedRows, best_first, round_off
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Metric
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import (
    APPROXIMATE_INDEX_KIND,
    VECTOR_INDEX_KIND,
    VectorLengths,
    index_record,
    matrix_of,
)
from omnigraph.storage.tables.rows import ROW_ID, RowIds, row_ids_of
from omnigraph.storage.tables.search import (
    DISTANCE,
    ColumnIndex,
    FragmentContent,
    fragment_contents,
    index_of,
    nearest_rows,
    stored_vectors,
)

# A bound of the relative error of Lance's single precision sums, generous for thousands of dimensions.
_PROPOSAL_ERROR: Final = 1e-5
# What each squared difference may lack because it is too small for single precision.
_LOST_SQUARE: Final = 2.0**-126
_SPARE_PROPOSALS: Final = 8
DEFAULT_PROBES: Final = 32
"""Partitions that are looked at where the build of an index has not measured how many that takes."""
# The limit that builds measure with. Larger ones have rows in more partitions: a hundred times in thirty times as many.
_MEASURED_LIMIT: Final = 10
_PROBE_GROWTH: Final = 0.75
# From this share of the table on, reading every vector once is no slower than asking for so many.
_SCAN_SHARE: Final = 4
# Numbers of vectors that are measured between two questions whether to go on, and what each of them takes meanwhile.
_NUMBERS_PER_STEP: Final = 1 << 17
_STEP_BYTES: Final = 24
_MEASURED_BYTES: Final = 4 * 8
_SPARE_MEASURES: Final = 16 << 10
_LENGTH_BYTES: Final = 4 << 20
_BYTES_PER_LENGTHS: Final = 256

_LENGTHS: Final[ByteBoundCache[VectorLengths]] = SHARED_MEMORY.add("vector lengths", ByteBoundCache(_LENGTH_BYTES))


def nearest(
    table: Table,
    column: str,
    metric: Metric,
    vector: NDArray[np.float32],
    k: int | None,
    candidates: Candidates = EVERY_ROW,
    *,
    budget: MemoryBudget | None = None,
) -> RankedRows:
    """The k candidates closest to `vector`, all of them when k is None; ties by entity id ascending. Rows without a
    vector have no rank, and neither has a vector of length zero under `cosine`. The distance is the Euclidean one for
    `l2`, 1 - cosine for `cosine` and 1 - inner product for `dot`."""
    if k is not None and k <= 0:
        raise BadRequestError("nearest needs a limit of at least 1")
    query = np.asarray(vector, np.float32)
    dimension = table.schema.field(column).type.list_size
    if query.shape != (dimension,):
        raise BadRequestError(f"nearest compares vectors of {dimension} numbers, the query has {query.size}")
    if not np.isfinite(query).all():
        raise BadRequestError("nearest needs a vector of finite numbers")
    closest = _Closest(metric, query, k, budget or MemoryBudget())
    if k is None or candidates.rows is not None or _measures_all(table, k):
        return _measure(table, column, closest, candidates)
    if not VectorLengths.of(query.reshape(1, -1)).are_ordinary:
        return _measure(table, column, closest, candidates)
    if candidates.probes is not None:
        ranked = _probe(table, column, closest, k, candidates)
        if ranked.values.size == k:
            return ranked
        return _measure(table, column, _Closest(metric, query, k, closest.budget), candidates)
    if metric is Metric.L2:
        return _propose(table, column, closest, k, candidates)
    # Under the other metrics a row that single precision can't measure is missing from what Lance proposes, silently.
    fragments = {fragment: _LENGTHS.get(_name(fragment, column)) for fragment in fragment_contents(table)}
    if None in fragments.values() and candidates.filter is None:
        # Measures all rows and learns how long the vectors are: the next query need not read them all.
        for fragment in fragments:
            _read_fragment(table, column, fragment, closest.budget, closest)
        return closest.rank(table)
    lengths = VectorLengths()
    for fragment, cached in fragments.items():
        lengths |= _read_fragment(table, column, fragment, closest.budget) if cached is None else cached
    if lengths.are_ordinary:
        return _propose(table, column, closest, k, candidates, lengths.greatest)
    return _measure(table, column, closest, candidates)


def _measures_all(table: Table, k: int) -> bool:
    """Whether so many rows of a table are wanted that searching costs as much as reading every vector."""
    return k * _SCAN_SHARE >= table.state.rows


class ApproximateSearch(NamedTuple):
    """How an approximate index is asked: how many segments it has, the partitions of each that are looked at before a
    search may end, and the recall that was measured when it was built."""

    segments: int
    probes: int
    recall: float | None


def approximate_search(
    table: Table, column: str, metric: Metric, k: int, matches: int | None = None
) -> ApproximateSearch | None:
    """How the closest k rows are found, of `matches` rows that pass a filter; None without an approximate index, and
    where so many rows are wanted that all are compared."""
    if _measures_all(table, k):
        return None
    index = _index_of(table, column, metric, APPROXIMATE_INDEX_KIND)
    if index is None:
        return None
    record = index_record(table, index.name)
    probes, recall = (DEFAULT_PROBES, None) if record is None else (record.probes, record.recall)
    # The k closest of a tenth of the rows are as far apart as the 10 k closest of all.
    wanted = k if matches is None else k * table.state.rows / max(1, matches)
    scale = max(1.0, wanted / _MEASURED_LIMIT) ** _PROBE_GROWTH
    return ApproximateSearch(len(index.segments), int(probes * scale), recall)


def _index_of(table: Table, column: str, metric: Metric, kind: str) -> ColumnIndex | None:
    """The index of a kind; None for one of another metric, which Lance would ignore, loudly."""
    index = index_of(table, column, kind)
    return index if index is not None and index.parameters.get("metric_type", "").lower() == metric.value else None


def _probe(table: Table, column: str, closest: _Closest, k: int, candidates: Candidates) -> RankedRows:
    """The k closest that an approximate index proposes, and the rows outside it. More are asked for than are wanted,
    because its distances have errors."""
    metric, count = closest.metric, k + max(_SPARE_PROPOSALS, k // 4)
    rows = nearest_rows(
        table,
        column,
        closest.query,
        count,
        metric.value,
        filter=candidates.filter,
        index=_index_of(table, column, metric, APPROXIMATE_INDEX_KIND),
        probes=candidates.probes,
    )
    return closest.take(rows, column).rank(table)


def _propose(
    table: Table, column: str, closest: _Closest, k: int, candidates: Candidates, longest: float = 0.0
) -> RankedRows:
    """The k closest by what Lance proposes; no vector of the table is longer than `longest`, if the metric asks."""
    metric, query = closest.metric, closest.query
    index = _index_of(table, column, metric, VECTOR_INDEX_KIND)
    count = k + _SPARE_PROPOSALS
    while count * _SCAN_SHARE < table.state.rows:
        rows = nearest_rows(table, column, query, count, metric.value, filter=candidates.filter, index=index)
        ranked = _Closest(metric, query, k, closest.budget).take(rows, column).rank(table)
        if rows.num_rows < count:
            if metric is Metric.L2 and index is not None:
                break  # an index leaves out what is too far for single precision
            return ranked
        # Rows not proposed are at least as far, by Lance's arithmetic, as the last one that was.
        last = rows.column(DISTANCE).to_numpy().astype(np.float64).max()
        certain = _certain(metric, query, last, longest)
        if ranked.values.size >= k and ranked.values[-1] < certain:
            return ranked
        if not certain > 0 and metric is Metric.L2:
            break  # all of them are as close as single precision can tell
        count *= 4
    return _measure(table, column, closest, candidates)


def _certain(metric: Metric, query: NDArray[np.float32], proposed: float, longest: float) -> float:
    """A distance that no row beyond a proposed distance of Lance can have. Its `l2` is the square of ours."""
    if not np.isfinite(proposed):
        return -np.inf  # the sums of some proposals overflowed, so their order means nothing
    match metric:
        case Metric.L2:
            return float(np.sqrt(max(0.0, proposed * (1 - _PROPOSAL_ERROR) - query.size * _LOST_SQUARE)))
        case Metric.COSINE:
            return proposed - _PROPOSAL_ERROR
        case Metric.DOT:
            return proposed - _PROPOSAL_ERROR * (1 + float(np.linalg.norm(query.astype(np.float64))) * longest)


class _Closest:
    """The closest of the rows that it is given, by their stored vectors and in double precision."""

    def __init__(self, metric: Metric, query: NDArray[np.float32], k: int | None, budget: MemoryBudget) -> None:
        self.metric = metric
        self.query = query
        self.budget = budget
        self._k = k
        self._row_ids: list[RowIds] = [np.empty(0, np.int64)]
        self._distances: list[Measures] = [np.empty(0, np.float64)]
        self._size = 0

    def take(self, rows: pa.Table, column: str) -> _Closest:
        """Rows with their `_rowid`, with a vector or without one."""
        vectors = rows.column(column).combine_chunks()
        return self.measure(row_ids_of(rows)[np.asarray(vectors.is_valid())], matrix_of(vectors))

    def measure(self, row_ids: RowIds, matrix: NDArray[np.float32]) -> _Closest:
        """The same for rows that all have a vector."""
        query = self.query.astype(np.float64)
        for step in _steps(matrix):
            self.budget.step(matrix.nbytes + _NUMBERS_PER_STEP * _STEP_BYTES + self._size * _MEASURED_BYTES)
            apart = distances(self.metric, query, matrix[step].astype(np.float64))
            ranked = ~np.isnan(apart)
            self._row_ids.append(row_ids[step][ranked])
            self._distances.append(apart[ranked])
            self._size += self._distances[-1].size
            if self._k is not None and self._size > self._k * 4 + _SPARE_MEASURES:
                # What can still be among the best k is kept: their ids break the ties of the last one.
                held, measured = self._all()
                near = measured <= np.partition(measured, self._k - 1)[self._k - 1]
                self._row_ids, self._distances = [held[near]], [measured[near]]
                self._size = self._distances[0].size
        return self

    def rank(self, table: Table) -> RankedRows:
        row_ids, measured = self._all()
        order = best_first(table, row_ids, measured, self._k)
        return RankedRows(row_ids[order], measured[order])

    def _all(self) -> tuple[RowIds, Measures]:
        return np.concatenate(self._row_ids), np.concatenate(self._distances)


def _measure(table: Table, column: str, closest: _Closest, candidates: Candidates) -> RankedRows:
    """The k closest candidates by their stored vectors, read a batch at a time unless they are listed."""
    if candidates.rows is not None:
        return closest.take(candidates.read(table, [column]), column).rank(table)
    for batch in table.batches([column], filter=candidates.filter, row_ids=True):
        closest.budget.step(batch.nbytes)
        closest.take(pa.table(batch), column)
    return closest.rank(table)


def _read_fragment(
    table: Table, column: str, fragment: FragmentContent, budget: MemoryBudget, closest: _Closest | None = None
) -> VectorLengths:
    """The lengths of a fragment's vectors, remembered; its living rows are measured on the way."""
    lengths = VectorLengths()
    for batch in stored_vectors(table, column, fragment.fragment_id):
        vectors = batch.column(column)
        matrix = matrix_of(vectors)
        for step in _steps(matrix):
            budget.step(batch.nbytes + _NUMBERS_PER_STEP * _STEP_BYTES)
            lengths |= VectorLengths.of(matrix[step])
        if closest is not None:
            ids = batch.column(ROW_ID).filter(vectors.is_valid())
            living = np.asarray(ids.is_valid())
            closest.measure(ids.drop_null().to_numpy().astype(np.int64), matrix[living])
    return _LENGTHS.keep(_name(fragment, column), lengths, _BYTES_PER_LENGTHS)


def _steps(matrix: NDArray[np.float32]) -> Iterator[slice]:
    """The rows of a matrix, as many at a time as are measured in an instant."""
    rows = max(1, _NUMBERS_PER_STEP // matrix.shape[1])
    for start in range(0, len(matrix), rows):
        yield slice(start, start + rows)


def _name(fragment: FragmentContent, column: str) -> tuple[str, ...]:
    """Lengths are those of the files, deleted rows included: the deletions are left out of the name."""
    return (*fragment.name[:-1], column)


def distances(metric: Metric, query: Measures, matrix: NDArray[np.float64]) -> Measures:
    """Row by row in one fixed order of summation, so that equal vectors are at equal distances in any table."""
    if metric is Metric.L2:
        apart = matrix - query
        return round_off(np.sqrt(np.einsum("ij,ij->i", apart, apart)))
    inner = np.einsum("ij,j->i", matrix, query)
    if metric is Metric.COSINE:
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix) * np.einsum("j,j->", query, query))
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = inner / lengths
    return 1.0 - round_off(inner)
