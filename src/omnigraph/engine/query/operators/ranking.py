"""Search inside a plan: text predicates, rankings over a scan or over rows, fusion, and the scores they leave behind.

Turns operators of the plan into calls of `search` and their answers back into bindings. How a search finds its rows
is not known here.
"""

from __future__ import annotations

import numpy as np

from omnigraph.engine.query.bindings import Bindings, RowSpace, concatenate
from omnigraph.engine.query.context import NodeScores, ReadContext
from omnigraph.engine.query.search.embedder import query_vector
from omnigraph.engine.query.search.ranked_rows import DEFAULT_FUSION_K, Candidates, RankedRows, fuse_ranks
from omnigraph.engine.query.search.text import bm25, text_match
from omnigraph.engine.query.search.vectors import nearest
from omnigraph.errors import BadRequestError
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import distinct, factorize
from omnigraph.storage.tables.rows import RowIds

_NO_ROWS = RankedRows(np.empty(0, np.int64), np.empty(0, np.float64))


def matching_rows(predicate: ir.TextMatch, candidates: Candidates, context: ReadContext) -> RowIds:
    """Row ids, ascending, of the candidates whose text matches."""
    text = context.constant(predicate.query)
    if text is None or not context.has_column(predicate.field):
        return np.empty(0, np.int64)
    edits = None if predicate.max_edits is None else context.constant(predicate.max_edits)
    most = None if edits is None else int(edits)  # type: ignore[arg-type]
    table, column = context.table(predicate.field.owner), predicate.field.prop.column
    return text_match(table, column, str(text), predicate.function, most, candidates, budget=context.budget)


def ranked_nodes(
    rank: ir.NearestRank | ir.Bm25Rank, keep: int | None, candidates: Candidates, context: ReadContext
) -> RankedRows:
    """The candidates that have a rank, best first."""
    query = context.constant(rank.query)
    if query is None or not context.has_column(rank.field):
        return _NO_ROWS
    table, prop = context.table(rank.field.owner), rank.field.prop
    if isinstance(rank, ir.Bm25Rank):
        visible = context.visible_rows(rank.field.owner)
        return bm25(table, prop.column, str(query), candidates, keep, visible, budget=context.budget)
    vector = context.query_vectors.get(rank)
    if vector is None:
        if isinstance(query, str):
            vector = query_vector(context.embedder, rank.field.owner.name, prop, query)
        else:
            vector = np.asarray(query, np.float32)
        context.query_vectors[rank] = vector
    return nearest(table, prop.column, prop.distance, vector, keep, candidates, budget=context.budget)


def rank_scan(
    plan: ir.Rank, keep: int | None, candidates: Candidates, context: ReadContext, *, some: bool = False
) -> Bindings:
    """A ranking of the nodes of a scan, whose predicates have become `candidates`: of `some` of them, or all."""
    ranked = ranked_nodes(plan.rank, keep, candidates, context)
    # Beyond the best ones there are others that have a score too.
    complete = not some and (keep is None or len(ranked.row_ids) < keep)
    context.scores[plan.rank] = _scores(ranked, complete=complete)
    return Bindings({plan.rank.field.variable: ranked.row_ids}, len(ranked.row_ids))


def rank_rows(plan: ir.Rank, rows: Bindings, context: ReadContext) -> Bindings:
    """Rows in the order of the node that one of their variables is bound to; rows without a rank go."""
    bound = rows.rows[plan.rank.field.variable]
    ranked = ranked_nodes(plan.rank, None, Candidates(rows=distinct(bound)), context)
    scores = context.scores[plan.rank] = _scores(ranked, complete=True)
    positions = scores.space.positions(bound)
    present = np.flatnonzero(positions >= 0)
    ranks = np.argsort(ranked.row_ids)[positions[present]]
    return rows.take(present[np.argsort(ranks, kind="stable")])


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
    k = DEFAULT_FUSION_K if plan.rank.k is None else context.constant(plan.rank.k)
    if not isinstance(k, int) or k <= 0:
        raise BadRequestError("the constant k of rrf() must be greater than zero")
    fused = fuse_ranks(first.rows[plan.variable], second.rows[plan.variable], plan.limit, k)
    rows = concatenate([first, second]).take(fused.rows)
    ranked = RankedRows(rows.rows[plan.variable], fused.scores)
    context.scores[plan.rank] = _scores(ranked, complete=True)
    return rows


def scores_of(rank: ir.Ranking, rows: RowIds, context: ReadContext) -> NodeScores:
    """What the ranking measures for the nodes. One that also orders the query has been computed already."""
    scores = context.scores.get(rank)
    if scores is not None and (scores.complete or scores.space.contains(rows).all()):
        return scores
    assert not isinstance(rank, ir.FusedRank), "a fused score exists only where the plan fuses"
    return _scores(ranked_nodes(rank, None, Candidates(rows=distinct(rows)), context), complete=True)


def _scores(ranked: RankedRows, *, complete: bool) -> NodeScores:
    rows, first, _ = factorize(ranked.row_ids)
    return NodeScores(RowSpace(rows), np.asarray(ranked.values, np.float64)[first], complete)
