"""Whether a ranking by vectors is exact or approximate, and why: decided once, for a run and for `explain` alike.

A ranking is approximate where it asks for some of the nodes of a large type that has an approximate index, unless the
query says `exact: true`. Rankings of rows that other operators found, and of all nodes, compare every vector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from omnigraph.api.values import count_noun
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.search.ranked_rows import EVERY_ROW, Candidates
from omnigraph.engine.query.search.vectors import ApproximateSearch, approximate_search
from omnigraph.language.catalog import IndexKind
from omnigraph.language.query import ir
from omnigraph.storage.tables.rows import row_ids_of

# Of so few nodes that pass a filter all vectors are compared.
_FEW_ROWS: Final = 16_384
_FEW_SHARE: Final = 16


class VectorSearch(NamedTuple):
    """How the nodes of a scan are ranked, in words, and the candidates with that decision."""

    candidates: Candidates
    text: str
    is_approximate: bool = False


def vector_search(
    rank: ir.NearestRank, limit: int | None, candidates: Candidates, context: ReadContext
) -> VectorSearch:
    """How the best `limit` nodes of one type are found, all of them when that is None."""
    field = rank.field
    assert isinstance(field, ir.PropertyValue)
    reason = _reason_for_exactness(rank, field, limit, candidates, context)
    if reason is None:
        assert limit is not None
        table, prop = context.table(field.owner), field.prop
        matches = None if candidates.filter is None else table.count(candidates.filter)
        search = approximate_search(table, prop.column, prop.distance, limit, matches)
        if search is not None and matches is not None and matches <= min(_FEW_ROWS, table.state.rows // _FEW_SHARE):
            rows = row_ids_of(table.read([], filter=candidates.filter, row_ids=True))
            return VectorSearch(Candidates(rows=rows), f"nearest: exact, {count_noun(matches, 'node')} to compare")
        if search is not None:
            return VectorSearch(replace(candidates, probes=search.probes), _describe(search), True)
        reason = _reason_without_search(field)
    return VectorSearch(candidates, f"nearest: exact, {reason}")


def describe_search(operator: ir.Rank, rank: ir.NearestRank, context: ReadContext) -> str:
    """How a ranking begins in a plan that is not run, for a small limit."""
    if isinstance(rank.field, ir.UnionProperty) or not isinstance(operator.input, ir.Scan):
        return "nearest: exact, it ranks the nodes that are found below"
    return vector_search(rank, 1, EVERY_ROW, context).text


def _reason_for_exactness(
    rank: ir.NearestRank, field: ir.PropertyValue, limit: int | None, candidates: Candidates, context: ReadContext
) -> str | None:
    """Why an index may not be asked; None if it may."""
    if rank.exact:
        return "as the query says"
    if candidates.rows is not None:
        return "among the nodes that pass its conditions"
    if limit is None:
        return "all nodes are ranked"
    if not context.has_column(field):
        return "nothing is stored"
    rows, exact_rows = context.table(field.owner).state.rows, field.prop.vector_index.exact_rows
    if rows <= exact_rows:
        return f"{field.owner.name} has at most {count_noun(exact_rows, 'node')}"
    return None


def _reason_without_search(field: ir.PropertyValue) -> str:
    if IndexKind.VECTOR not in field.owner.index_kinds(field.prop.name):
        return f"{field.owner.name}.{field.prop.name} has no @index"
    return "no approximate index is built, or the limit is too large for one"


def _describe(search: ApproximateSearch) -> str:
    recall = "recall not measured yet" if search.recall is None else f"measured recall {search.recall:.2f}"
    where = f"{count_noun(search.probes, 'partition')} of {count_noun(search.segments, 'segment')} are looked at"
    return f"nearest: approximate, {where} ({recall}); exact: true compares all vectors"
