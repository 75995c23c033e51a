"""Search inside a plan: text predicates, rankings over a scan or over rows, fusion, and the scores they leave behind.

Turns operators of the plan into calls of `search` and their answers back into bindings. How a search finds its rows
is not known here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query import search
from omnigraph.engine.query.bindings import Bindings, RowSpace, concatenate
from omnigraph.engine.query.context import NodeScores, ReadContext
from omnigraph.engine.query.search import Candidates, RankedRows
from omnigraph.engine.query.search.embedder import query_vector
from omnigraph.errors import BadRequestError
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.rows import RowIds

_NO_ROWS = RankedRows(np.empty(0, np.int64), np.empty(0, np.float64))


def matching_rows(
    predicate: ir.TextMatch, rows: RowIds | None, context: ReadContext, *, filter: str | None = None
) -> RowIds:
    """Row ids, ascending, of the nodes whose text matches, among `rows` and those that satisfy `filter`."""
    text = context.constant(predicate.query)
    if text is None or not context.has_column(predicate.field):
        return np.empty(0, np.int64)
    edits = None if predicate.max_edits is None else context.constant(predicate.max_edits)
    return search.text_match(
        context.table(predicate.field.owner),
        predicate.field.prop.column,
        str(text),
        predicate.function,
        None if edits is None else int(edits),  # type: ignore[arg-type]
        _candidates(rows, filter),
        budget=context.budget,
    )


def ranked_nodes(
    rank: ir.NearestRank | ir.Bm25Rank,
    keep: int | None,
    rows: RowIds | None,
    context: ReadContext,
    *,
    filter: str | None = None,
) -> RankedRows:
    """The nodes that have a rank, best first, among `rows` and those that satisfy `filter`."""
    query = context.constant(rank.query)
    if query is None or not context.has_column(rank.field):
        return _NO_ROWS
    table, prop = context.table(rank.field.owner), rank.field.prop
    candidates = _candidates(rows, filter)
    if isinstance(rank, ir.Bm25Rank):
        visible = context.visible_rows(rank.field.owner)
        return search.bm25(table, prop.column, str(query), candidates, keep, visible, budget=context.budget)
    vector = context.query_vectors.get(rank)
    if vector is None:
        if isinstance(query, str):
            vector = query_vector(context.embedder, rank.field.owner.name, prop, query)
        else:
            vector = np.asarray(query, np.float32)
        context.query_vectors[rank] = vector
    return search.nearest(table, prop.column, prop.distance, vector, keep, candidates, budget=context.budget)


def leaves_out_invisible(rank: ir.NearestRank | ir.Bm25Rank) -> bool:
    """Whether a ranking leaves out invisible rows by itself: one that counts words has to."""
    return isinstance(rank, ir.Bm25Rank)


def rank_scan(
    plan: ir.Rank,
    keep: int | None,
    rows: RowIds | None,
    filter: str | None,
    context: ReadContext,
    *,
    some: bool = False,
) -> Bindings:
    """A ranking of the nodes of a scan, whose predicates have become `rows` and `filter`: of `some` of them, or all."""
    ranked = ranked_nodes(plan.rank, keep, rows, context, filter=filter)
    # Beyond the best ones there are others that have a score too.
    complete = not some and (keep is None or len(ranked.row_ids) < keep)
    context.scores[plan.rank] = _scores(ranked, complete=complete)
    return Bindings({plan.rank.field.variable: ranked.row_ids}, len(ranked.row_ids))


def rank_rows(plan: ir.Rank, rows: Bindings, context: ReadContext) -> Bindings:
    """Rows in the order of the node that one of their variables is bound to; rows without a rank go."""
    bound = rows.rows[plan.rank.field.variable]
    ranked = ranked_nodes(plan.rank, None, RowSpace.of(bound).rows, context)
    context.scores[plan.rank] = _scores(ranked, complete=True)
    ranks = _ranks(ranked.row_ids, bound)
    order = np.argsort(ranks, kind="stable")
    return rows.take(order[np.count_nonzero(ranks < 0) :])


def best_nodes(rows: Bindings, variable: str, count: int) -> Bindings | None:
    """The rows of the first `count` nodes of a variable; None when they have fewer."""
    nodes, first, node_of_row = factorize(rows.rows[variable])
    if len(nodes) < count:
        return None
    rank_of = np.empty(len(nodes), np.int64)
    rank_of[np.argsort(first)] = np.arange(len(nodes))
    return rows.where(rank_of[node_of_row] < count)


def fuse(plan: ir.Fuse, first: Bindings, second: Bindings, context: ReadContext) -> Bindings:
    """Reciprocal rank fusion of two runs of the same match."""
    k = None if plan.rank.k is None else context.constant(plan.rank.k)
    if plan.rank.k is not None and (not isinstance(k, int) or k <= 0):
        raise BadRequestError("the constant k of rrf() must be greater than zero")
    result = search.fuse(
        first.rows[plan.variable],
        second.rows[plan.variable],
        plan.limit,
        search.DEFAULT_FUSION_K if not isinstance(k, int) else k,
    )
    rows = concatenate([first, second]).take(result.rows)
    ranked = RankedRows(rows.rows[plan.variable], result.scores)
    context.scores[plan.rank] = _scores(ranked, complete=True)
    return rows


def scores_of(rank: ir.Ranking, rows: RowIds, context: ReadContext) -> NodeScores:
    """What the ranking measures for the nodes. One that also orders the query has been computed already."""
    scores = context.scores.get(rank)
    if scores is not None and (scores.complete or scores.space.contains(rows).all()):
        return scores
    assert not isinstance(rank, ir.FusedRank), "a fused score exists only where the plan fuses"
    return _scores(ranked_nodes(rank, None, RowSpace.of(rows).rows, context), complete=True)


def _scores(ranked: RankedRows, *, complete: bool) -> NodeScores:
    rows, first, _ = factorize(ranked.row_ids)
    return NodeScores(RowSpace(rows), np.asarray(ranked.values, np.float64)[first], complete)


def _ranks(ranked: RowIds, rows: RowIds) -> NDArray[np.int64]:
    """The position of each row in a ranking, -1 without one."""
    space = RowSpace.of(ranked)
    rank_at = np.empty(len(space), np.int64)
    rank_at[space.positions(ranked)] = np.arange(len(ranked))
    positions = space.positions(rows)
    return np.where(positions < 0, -1, rank_at[positions]) if len(space) else positions


def _candidates(rows: RowIds | None, filter: str | None) -> Candidates:
    return Candidates(filter, None if rows is None else rows)
