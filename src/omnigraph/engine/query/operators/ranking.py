"""Search inside a plan: text predicates, rankings over a scan or over rows, fusion, and the scores they leave behind.

Turns operators of the plan into calls of `search` and their answers back into bindings. How a search finds its rows
is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from omnigraph.engine.query.bindings import Bindings, Indices, concatenate, member_column
from omnigraph.engine.query.context import NodeScores, ReadContext
from omnigraph.engine.query.search.embedder import query_vector
from omnigraph.engine.query.search.ranked_rows import (
    DEFAULT_FUSION_K,
    NO_ROWS,
    Candidates,
    Places,
    RankedRows,
    best_fused,
    deciding_places,
    fuse_ranks,
)
from omnigraph.errors import BadRequestError
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import distinct, factorize, find_positions
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

if TYPE_CHECKING:
    from omnigraph.engine.query.search.bm25 import TextRanking


def matching_rows(predicate: ir.TextMatch, candidates: Candidates, context: ReadContext) -> RowIds:
    """Row ids, ascending, of the candidates whose text matches."""
    from omnigraph.engine.query.search.text import text_match  # imported by searches alone: most queries have none

    field, text = _of_one_type(predicate.field), context.constant(predicate.query)
    if text is None or not context.has_column(field):
        return np.empty(0, np.int64)
    edits = None if predicate.max_edits is None else context.constant(predicate.max_edits)
    most = None if edits is None else int(edits)  # type: ignore[arg-type]
    table, column = context.table(field.owner), field.prop.column
    return text_match(table, column, str(text), predicate.function, most, candidates, budget=context.budget)


def ranked_nodes(
    rank: ir.NearestRank | ir.Bm25Rank, keep: int | None, candidates: Candidates, context: ReadContext
) -> RankedRows:
    """The candidates that have a rank, best first."""
    if isinstance(rank, ir.Bm25Rank):
        ranking = _text_ranking(rank, candidates, context)
        return NO_ROWS if ranking is None else ranking.best(keep)
    field, query = _of_one_type(rank.field), context.constant(rank.query)
    if query is None or not context.has_column(field):
        return NO_ROWS
    from omnigraph.engine.query.search.vectors import nearest

    table, prop = context.table(field.owner), field.prop
    vector = context.query_vectors.get(rank)
    if vector is None:
        if isinstance(query, str):
            vector = query_vector(context.embedder, field.owner.name, prop, query)
        else:
            vector = np.asarray(query, np.float32)
        context.query_vectors[rank] = vector
    return nearest(table, prop.column, prop.distance, vector, keep, candidates, budget=context.budget)


def _text_ranking(
    rank: ir.Bm25Rank, candidates: Candidates, context: ReadContext, *, with_places: bool = False
) -> TextRanking | None:
    """The ranking of the candidates by a text; None without a text to compare."""
    field, query = _of_one_type(rank.field), context.constant(rank.query)
    if query is None or not context.has_column(field):
        return None
    from omnigraph.engine.query.search.bm25 import TextRanking

    return TextRanking(
        context.table(field.owner),
        field.prop.column,
        str(query),
        candidates,
        context.visible_rows(field.owner),
        with_places=with_places,
        budget=context.budget,
        note=context.profiler.note,
    )


def _of_one_type(field: ir.PropertyValue | ir.UnionProperty) -> ir.PropertyValue:
    """A search looks at one table; several types are searched one after the other."""
    assert isinstance(field, ir.PropertyValue)
    return field


def rank_scan(
    plan: ir.Rank, keep: int | None, candidates: Candidates, context: ReadContext, *, some: bool = False
) -> Bindings:
    """A ranking of the nodes of a scan, whose predicates have become `candidates`: of `some` of them, or all."""
    ranked = ranked_nodes(plan.rank, keep, candidates, context)
    context.scores[plan.rank] = _scores(ranked)
    return Bindings({plan.rank.field.variable: ranked.row_ids}, len(ranked.row_ids))


def rank_rows(plan: ir.Rank, rows: Bindings, context: ReadContext) -> Bindings:
    """Rows in the order of the node that one of their variables is bound to; rows without a rank go, and so do those
    without a node."""
    bound = rows.rows[plan.rank.field.variable]
    if isinstance(plan.rank.field, ir.UnionProperty):
        ranks = _ranks_of_members(plan.rank, rows, context)
    else:
        ranked = ranked_nodes(plan.rank, None, Candidates(rows=distinct(bound[bound >= 0])), context)
        scores = context.scores[plan.rank] = _scores(ranked)
        positions = scores.space.positions(bound)
        ranks = np.where(positions < 0, -1, np.append(np.argsort(ranked.row_ids), -1)[positions])
    present = np.flatnonzero(ranks >= 0)
    return rows.take(present[np.argsort(ranks[present], kind="stable")])


def _ranks_of_members(rank: ir.NearestRank | ir.Bm25Rank, rows: Bindings, context: ReadContext) -> Indices:
    """The rank of the node of each row among those of all types together: by measure, then type name, then id; -1 for
    none."""
    bound, members = rows.rows[rank.field.variable], _members(rank, rows)
    measures, ties, node = [np.empty(0)], [np.empty(0, np.int64)], np.full(rows.length, -1, np.int64)
    counted = 0
    for number, part in sorted(_parts_of(rank), key=lambda each: _of_one_type(each[1].field).owner.name):
        own = (members == number) & (bound >= 0)
        ranked = ranked_nodes(part, None, Candidates(rows=distinct(bound[own])), context)
        context.scores[part] = _scores(ranked)
        space = RowSpace(np.sort(ranked.row_ids))
        place = np.append(np.argsort(ranked.row_ids), -1)[space.positions(bound[own])]
        node[own] = np.where(place < 0, -1, place + counted)
        measures.append(np.asarray(ranked.values, np.float64))
        ties.append(np.arange(counted, counted + len(ranked.row_ids)))
        counted += len(ranked.row_ids)
    order = np.lexsort((np.concatenate(ties), np.concatenate(measures)))
    rank_of = np.full(counted + 1, -1, np.int64)
    rank_of[order] = np.arange(counted)
    return rank_of[node]


def _members(rank: ir.NearestRank | ir.Bm25Rank, rows: Bindings) -> Indices:
    return rows.rows[member_column(rank.field.variable)]


def _parts_of(rank: ir.NearestRank | ir.Bm25Rank) -> list[tuple[int, ir.NearestRank]]:
    """A ranking of several types, as one of each type that has the property, with the number of the type."""
    assert isinstance(rank.field, ir.UnionProperty)
    return [(i, ir.NearestRank(part, rank.query)) for i, part in enumerate(rank.field.parts) if part is not None]


def best_nodes(rows: Bindings, variable: str, count: int) -> Bindings | None:
    """The rows of the first `count` nodes of a variable; None when they have fewer."""
    nodes, first, node_of_row = factorize(rows.rows[variable])
    if len(nodes) < count:
        return None
    rank_of = np.empty(len(nodes), np.int64)
    rank_of[np.argsort(first)] = np.arange(len(nodes))
    return rows.where(rank_of[node_of_row] < count)


def fuse(plan: ir.Fuse, count: int, first: Bindings, second: Bindings, context: ReadContext) -> Bindings:
    """Reciprocal rank fusion of two runs of the same match: the rows of the best nodes, `count` of them."""
    k = _fusion_constant(plan, context)
    fused = fuse_ranks(first.rows[plan.variable], second.rows[plan.variable], count, k)
    rows = concatenate([first, second]).take(fused.rows)
    ranked = RankedRows(rows.rows[plan.variable], fused.scores)
    context.scores[plan.rank] = _scores(ranked)
    return rows


def _fusion_constant(plan: ir.Fuse, context: ReadContext) -> int:
    k = DEFAULT_FUSION_K if plan.rank.k is None else context.constant(plan.rank.k)
    if not isinstance(k, int) or k <= 0:
        raise BadRequestError("the constant k of rrf() must be greater than zero")
    return k


class ScanArm:
    """An arm of a fusion that ranks the nodes of a scan: those at its beginning, and the places of others."""

    def __init__(
        self,
        rank: ir.NearestRank | ir.Bm25Rank,
        plan: ir.Fuse,
        count: int,
        candidates: Candidates,
        context: ReadContext,
    ) -> None:
        """`count` is how many of the best nodes the fusion keeps. An arm by distance ends there."""
        arms = plan.rank.first, plan.rank.second
        other_is_cut = isinstance(arms[0] if rank is arms[1] else arms[1], ir.NearestRank)
        self._text: TextRanking | None = None
        if isinstance(rank, ir.NearestRank):
            self.beginning = ranked_nodes(rank, count, candidates, context)
        else:
            deciding = deciding_places(count, _fusion_constant(plan, context), other_is_cut=other_is_cut)
            text = _text_ranking(rank, candidates, context, with_places=True)
            self.beginning = NO_ROWS if text is None else text.best(deciding)
            if self.beginning.row_ids.size == deciding:
                self._text = text
        context.scores[rank] = _scores(self.beginning)

    def places(self, nodes: RowIds) -> Places:
        """The place of each node in the arm."""
        places = np.full(nodes.size, -1)
        order = np.argsort(self.beginning.row_ids)
        positions, present = find_positions(self.beginning.row_ids[order], nodes)
        places[present] = order[positions[present]]
        if self._text is not None:
            places[~present] = self._text.places(nodes[~present])
        return places


def fuse_scans(plan: ir.Fuse, count: int, first: ScanArm, second: ScanArm, context: ReadContext) -> Bindings:
    """Reciprocal rank fusion of two rankings of the same nodes: the best `count` of those that can be among them."""
    nodes = distinct(np.concatenate((first.beginning.row_ids, second.beginning.row_ids)))
    best, scores = best_fused(first.places(nodes), second.places(nodes), count, _fusion_constant(plan, context))
    context.profiler.note(f"candidates: {nodes.size} nodes at the beginnings of both arms")
    context.scores[plan.rank] = _scores(RankedRows(nodes[best], scores))
    return Bindings({plan.variable: nodes[best]}, best.size)


def scores_of(rank: ir.Ranking, rows: RowIds, context: ReadContext) -> NodeScores:
    """The scores of the nodes, of which negative ones are null. What a ranking has measured already is
    not measured again, though it may have been one of another stage: a measure depends on the node alone."""
    scores, rows = context.scores.get(rank), rows[rows >= 0]
    if isinstance(rank, ir.FusedRank):
        assert scores is not None, "a fused score exists only where the plan fuses"
        return scores
    missing = distinct(rows if scores is None else rows[~scores.space.contains(rows)])
    if scores is not None and not len(missing):
        return scores
    measured = ranked_nodes(rank, None, Candidates(rows=missing), context)
    if scores is None:
        return _scores(measured)
    rows = np.concatenate((scores.space.rows, measured.row_ids))
    return _scores(RankedRows(rows, np.concatenate((scores.values, measured.values))))


def _scores(ranked: RankedRows) -> NodeScores:
    rows, first, _ = factorize(ranked.row_ids)
    return NodeScores(RowSpace(rows), np.asarray(ranked.values, np.float64)[first])
