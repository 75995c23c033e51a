"""Search on one table version: nearest vectors, text predicates, BM25 ranking and rank fusion.

Called by the operators of a read plan. Answers depend on the rows of the version alone, never on which indexes cover
them; nothing here decides where in a plan a search stands, and nothing here may write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.language.catalog import Metric
from omnigraph.language.query.syntax import TextFunction
from omnigraph.storage.tables import Table

DEFAULT_MAX_EDITS = 2
DEFAULT_FUSION_K = 60


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows a search may choose from: those that satisfy `filter` and are listed in `rows`; None does not restrict.

    `filter` is a Lance predicate over physical columns, `rows` are stable row ids in any order.
    """

    filter: str | None = None
    rows: NDArray[np.uint64] | None = None


EVERY_ROW = Candidates()


class RankedRows(NamedTuple):
    """Rows best first, each with what the ranking measured: distance for `nearest`, score for `bm25`."""

    row_ids: NDArray[np.uint64]
    values: NDArray[np.float64]


def nearest(
    table: Table,
    column: str,
    metric: Metric,
    vector: NDArray[np.float32],
    k: int | None,
    candidates: Candidates = EVERY_ROW,
) -> RankedRows:
    """The k candidates closest to `vector`, all of them when k is None; ties by entity id ascending.

    Rows without a vector have no rank. The distance is the Euclidean one for `l2`, 1 - cosine for `cosine` and
    1 - inner product for `dot`.
    """
    raise NotImplementedError


def text_match(
    table: Table,
    column: str,
    text: str,
    mode: TextFunction,
    max_edits: int | None = None,
    candidates: Candidates = EVERY_ROW,
) -> NDArray[np.uint64]:
    """Row ids, ascending, of the candidates whose analysed text shares a token with the analysed `text`.

    `fuzzy` accepts tokens within `max_edits` edits (2 when None); the other modes ignore it.
    """
    raise NotImplementedError


def bm25(
    table: Table,
    column: str,
    text: str,
    candidates: Candidates = EVERY_ROW,
    k: int | None = None,
) -> RankedRows:
    """The candidates that share a token with `text`, best BM25 score first, ties by entity id ascending.

    The statistics are those of the whole column, so a filter never changes a score. `k` keeps the best k; pass it
    whenever nothing between the ranking and the limit can drop rows, it saves scoring everything.
    """
    raise NotImplementedError


class FusedRows(NamedTuple):
    """Which rows of the two arms remain, best first, and the fused score of each.

    `rows` index the concatenation of both arms: i < len(first) is row i of the first, the others follow.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


def fuse(
    first: NDArray[np.uint64],
    second: NDArray[np.uint64],
    limit: int,
    k: int = DEFAULT_FUSION_K,
) -> FusedRows:
    """Reciprocal rank fusion of two arms, each given as the row id of the ranked node of every one of its rows.

    Nodes are numbered by first appearance in each arm and score the sum of 1 / (k + r + 1); ties keep the order of the
    first arm, then that of the second. The best `limit` nodes are kept with all their rows, in the order of the arm
    they come from (the first where it has them); cutting the rows to the limit is the caller's business.
    """
    raise NotImplementedError
