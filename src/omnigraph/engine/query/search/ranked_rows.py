"""Candidates and ranked rows of a search, their total order, and reciprocal rank fusion.

Shared by the vector and the text search. It works on row ids and measures and knows neither distances nor tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import BadRequestError
from omnigraph.storage.integer_sets import distinct, factorize, find_positions
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of

Measures = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
"""The number of each node in a ranking, from 0; -1 for a node that is not ranked."""

_MEASURE_BITS: Final = 40


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows a search may choose from: those that satisfy `filter` and are listed in `rows`; None does not restrict.
    `filter` is a Lance predicate over physical columns, `rows` are stable row ids in any order."""

    filter: str | None = None
    rows: RowIds | None = None
    probes: int | None = None
    """How many partitions of an approximate index of vectors are looked at; None asks for the closest of all rows."""

    def read(self, table: Table, columns: list[str]) -> pa.Table:
        """The candidates with some of their columns and `_rowid`, in any order."""
        if self.rows is None:
            return table.read(columns, filter=self.filter, row_ids=True)
        return table.select(distinct(self.rows), columns, filter=self.filter)


EVERY_ROW = Candidates()


RanksOf: TypeAlias = Callable[[RowIds], NDArray[Any] | None]
"""The order of some rows by entity id, as a number for each; None when it is not known."""


class RankedRows(NamedTuple):
    """Rows best first, each with what the ranking measured: distance for `nearest`, score for `bm25`."""

    row_ids: RowIds
    values: Measures


NO_ROWS: Final = RankedRows(np.empty(0, np.int64), np.empty(0, np.float64))


def round_off(measures: Measures) -> Measures:
    """The first 40 bits of each number: sums of the same parts in another order then give the same measure."""
    mantissas, exponents = np.frexp(measures)
    shortened: Measures = np.ldexp(np.rint(np.ldexp(mantissas, _MEASURE_BITS)), exponents - _MEASURE_BITS)
    return shortened


def best_first(
    table: Table, row_ids: RowIds, costs: Measures, k: int | None = None, ranks_of: RanksOf | None = None
) -> NDArray[np.int64]:
    """Positions of the k cheapest rows in ascending order of cost, equal costs by entity id ascending. Ids are compared
    only for rows whose cost alone does not place them; they are read unless `ranks_of` knows their order."""
    chosen = np.arange(row_ids.size)
    if k is not None and k < row_ids.size:
        chosen = np.flatnonzero(costs <= np.partition(costs, k - 1)[k - 1])
    chosen = chosen[np.argsort(costs[chosen], kind="stable")]
    ordered = costs[chosen]
    equal_to_next = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.append(equal_to_next, False) | np.append(False, equal_to_next))
    if tied.size:
        by_id = None if ranks_of is None else ranks_of(row_ids[chosen[tied]])
        if by_id is None:
            by_id = rank_ids(table.select(row_ids[chosen[tied]], ["id"]), row_ids[chosen[tied]])
        chosen[tied] = chosen[tied[np.lexsort((by_id, ordered[tied]))]]
    return chosen[:k]


def rank_ids(rows: pa.Table, row_ids: RowIds) -> NDArray[Any]:
    """The number of each row in the order of the entity ids of `rows`, which hold all of them with `_rowid`."""
    # Arrow compares UTF-8, which is code point order.
    ranks = pc.rank(rows.column("id"), "ascending", tiebreaker="first").to_numpy()
    ordered: NDArray[Any] = ranks[positions_in(row_ids_of(rows), row_ids)]
    return ordered


def positions_in(stored: RowIds, wanted: RowIds) -> NDArray[np.int64]:
    """The position of each wanted row id among stored ones, which hold all of them in any order."""
    order = np.argsort(stored)
    return order[find_positions(stored[order], wanted)[0]]


DEFAULT_FUSION_K: Final = 60


def fused_scores(places: Sequence[Places], k: int) -> Measures:
    """The fused score of each node: the sum of 1 / (k + place + 1) over the arms that rank it."""
    scores = np.zeros(places[0].size)
    for arm in places:
        ranked = arm >= 0
        scores[ranked] += 1.0 / (k + arm[ranked] + 1)
    return scores


def best_fused(first: Places, second: Places, limit: int, k: int) -> tuple[NDArray[np.int64], Measures]:
    """The best `limit` of some distinct nodes with places in two arms: their positions and scores, best first. Ties
    keep the order of the first arm, then that of the second."""
    scores = fused_scores((first, second), k)
    best = np.lexsort((second, first, first < 0, -scores))[:limit]
    return best, scores[best]


def deciding_places(limit: int, k: int, *, other_is_cut: bool) -> int:
    """How many nodes at the beginning of an arm, together with those at the beginning of the other one, hold the best
    `limit` of both. An arm that is cut ranks no more than `limit` nodes."""
    return limit if other_is_cut else k + 2 * limit


def _places_by_appearance(arm: NDArray[np.int64], nodes: int) -> Places:
    """The places of numbered nodes in an arm, given as the node of each of its rows."""
    present, start, _ = factorize(arm)
    places = np.full(nodes, -1)
    places[present[np.argsort(start)]] = np.arange(present.size)
    return places


class FusedRows(NamedTuple):
    """Which rows of the two arms remain, best first, and the fused score of each. `rows` index the concatenation of
    both arms: i < len(first) is row i of the first, the others follow."""

    rows: NDArray[np.int64]
    scores: Measures


def fuse_ranks(first: RowIds, second: RowIds, limit: int, k: int = DEFAULT_FUSION_K) -> FusedRows:
    """Reciprocal rank fusion of two arms, each given as the row id of the ranked node of every one of its rows.

    Nodes are numbered by first appearance in each arm and score the sum of 1 / (k + r + 1); ties keep the order of the
    first arm, then that of the second. The best `limit` nodes are kept with all their rows, in the order of the arm
    they come from (the first where it has them); cutting the rows to the limit is the caller's business.
    """
    if k <= 0:
        raise BadRequestError(f"the constant of rrf must be greater than zero, not {k}")
    both = np.concatenate((first, second))
    nodes, appearance, node_of_row = factorize(both)
    places = [_places_by_appearance(arm, nodes.size) for arm in np.split(node_of_row, [first.size])]
    kept, scores = best_fused(places[0], places[1], limit, k)
    order = np.full(nodes.size, nodes.size)
    order[kept] = np.arange(kept.size)
    # A node comes from one arm: the one it appears in first, and only rows of that arm are emitted.
    from_first = appearance < first.size
    emitted = from_first[node_of_row] == (np.arange(both.size) < first.size)
    rows = np.flatnonzero(emitted & (order[node_of_row] < nodes.size))
    rows = rows[np.argsort(order[node_of_row[rows]], kind="stable")]
    return FusedRows(rows, scores[order[node_of_row[rows]]])
