"""Reciprocal rank fusion of two ranked row sequences.

Works on row ids alone: each arm says which node every one of its rows is about, and fusion says which rows remain.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.search.ranked_rows import Measures
from omnigraph.errors import BadRequestError
from omnigraph.storage.ordered import numbered
from omnigraph.storage.tables.rows import RowIds

DEFAULT_FUSION_K: Final = 60


class FusedRows(NamedTuple):
    """Which rows of the two arms remain, best first, and the fused score of each.

    `rows` index the concatenation of both arms: i < len(first) is row i of the first, the others follow.
    """

    rows: NDArray[np.int64]
    scores: Measures


def fuse(first: RowIds, second: RowIds, limit: int, k: int = DEFAULT_FUSION_K) -> FusedRows:
    """Reciprocal rank fusion of two arms, each given as the row id of the ranked node of every one of its rows.

    Nodes are numbered by first appearance in each arm and score the sum of 1 / (k + r + 1); ties keep the order of the
    first arm, then that of the second. The best `limit` nodes are kept with all their rows, in the order of the arm
    they come from (the first where it has them); cutting the rows to the limit is the caller's business.
    """
    if k <= 0:
        raise BadRequestError(f"the constant of rrf must be greater than zero, not {k}")
    both = np.concatenate((first, second))
    nodes, appearance, node_of_row = numbered(both)
    scores = np.zeros(nodes.size)
    for arm in (node_of_row[: first.size], node_of_row[first.size :]):
        present, start, _ = numbered(arm)
        by_rank = present[np.argsort(start)]
        scores[by_rank] += 1.0 / (k + np.arange(by_rank.size) + 1)
    kept = np.lexsort((appearance, -scores))[:limit]
    place = np.full(nodes.size, nodes.size)
    place[kept] = np.arange(kept.size)
    # A node comes from one arm: the one it appears in first, and only rows of that arm are emitted.
    from_first = appearance < first.size
    emitted = from_first[node_of_row] == (np.arange(both.size) < first.size)
    rows = np.flatnonzero(emitted & (place[node_of_row] < nodes.size))
    rows = rows[np.argsort(place[node_of_row[rows]], kind="stable")]
    return FusedRows(rows, scores[node_of_row[rows]])
