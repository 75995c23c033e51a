"""Turns a resolved query into its plan, and refuses what typechecks and can't run.

`lower_query` is called when a query is about to be executed, never by lint: the refusals here (mixed mutations, key
updates, sort keys without a meaning) belong to execution. Nothing is looked up in the catalog any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors import CompileError
from omnigraph.language.query import ir
from omnigraph.language.query.lower.match import lower_match, refused_filters
from omnigraph.language.query.lower.writes import lower_writes
from omnigraph.language.query.resolved import (
    OutputName,
    Refused,
    ResolvedProjection,
    ResolvedQuery,
    ResolvedRead,
    ResolvedSort,
)
from omnigraph.language.query.syntax import Place
from omnigraph.language.source import DiagnosticSink, SourceText, did_you_mean

UNSUPPORTED = "unsupported"


def lower_query(query: ResolvedQuery, source: SourceText) -> ir.Plan:
    """The plan. Raises `CompileError` with everything that stands in the way of running the query."""
    findings = DiagnosticSink(source)
    plan = (
        _Read(query, query.body, findings).plan()
        if isinstance(query.body, ResolvedRead)
        else lower_writes(query, query.body, findings)
    )
    if plan is None:
        raise CompileError(findings.found)
    return plan


class _Read:
    """One read on its way into operators."""

    def __init__(self, query: ResolvedQuery, body: ResolvedRead, findings: DiagnosticSink) -> None:
        self._query = query
        self._body = body
        self._findings = findings

    def plan(self) -> ir.ReadPlan | None:
        body = self._body
        for filter_ in refused_filters(body.clauses):
            self._refuse(f"unsupported filter: {filter_.reason}", filter_.at)
        columns = self._columns()
        ranking = self._ranking()
        keys = () if self._ranks_alone(ranking) else self._sort_keys(ranking)
        self._check_fused_scores(ranking)
        if self._findings.found:
            return None
        return ir.ReadPlan(
            self._query.name,
            self._query.parameters,
            self._tree(columns, ranking, keys),
            tuple(ir.OutputColumn(column.name, column.value.type) for column in columns),
        )

    # ---- operators --------------------------------------------------------------------------------------

    def _tree(
        self, columns: Sequence[ir.AggregateColumn], ranking: ir.Ranking | None, keys: Sequence[ir.SortKey]
    ) -> ir.ReadOperator:
        rows = self._matched(ranking)
        if self._body.is_aggregate:
            if isinstance(ranking, ir.NearestRank) and not keys:
                rows = self._best_nodes(rows, ranking)
            grouped = ir.Aggregate(rows, tuple(columns))
            return self._limited(ir.Sort(grouped, tuple(keys), ()) if keys else grouped)
        if keys:
            rows = ir.Sort(rows, tuple(keys), self._tie_break())
        values = tuple(ir.Column(c.name, c.value) for c in columns if not isinstance(c.value, ir.AggregateValue))
        return ir.Project(self._limited(rows), values)

    def _limited(self, rows: ir.ReadOperator) -> ir.ReadOperator:
        return rows if self._body.limit is None else ir.Limit(rows, self._body.limit)

    def _matched(self, ranking: ir.Ranking | None) -> ir.ReadOperator:
        if not isinstance(ranking, ir.FusedRank):
            return lower_match(self._body.clauses, ranking)
        limit = self._body.limit
        assert limit is not None, "T21 asks for a limit"
        return ir.Fuse(self._arm(ranking.first), self._arm(ranking.second), ranking.variable, ranking, limit)

    def _arm(self, rank: ir.NearestRank | ir.Bm25Rank) -> ir.ReadOperator:
        rows = lower_match(self._body.clauses, rank)
        return self._best_nodes(rows, rank) if isinstance(rank, ir.NearestRank) else rows

    def _best_nodes(self, rows: ir.ReadOperator, rank: ir.NearestRank) -> ir.ReadOperator:
        """What the limit means where it does not cut the rows: every node has a distance, and so many count."""
        limit = self._body.limit
        assert limit is not None, "T17 and T21 ask for a limit"
        return ir.BestNodes(rows, rank.field.variable, limit)

    def _tie_break(self) -> tuple[str, ...]:
        """Every named variable, by the name of its id column."""
        return tuple(sorted((*self._body.nodes, *self._body.edges), key=lambda variable: f"{variable}.id"))

    # ---- columns ----------------------------------------------------------------------------------------

    def _columns(self) -> list[ir.AggregateColumn]:
        columns: list[ir.AggregateColumn] = []
        for projection in self._body.projections:
            if isinstance(projection.value, Refused):
                reason = projection.value.reason
                self._refuse(f"unsupported projection expression: {reason}", projection.value.at)
            else:
                columns.append(ir.AggregateColumn(projection.name, projection.value))
        return columns

    def _check_fused_scores(self, ranking: ir.Ranking | None) -> None:
        """A fused score exists only in the fusion that computes it."""
        for projection in self._body.projections:
            value = projection.value
            inner = value.argument if isinstance(value, ir.AggregateValue) else value
            if isinstance(inner, ir.Score) and isinstance(inner.rank, ir.FusedRank) and inner.rank != ranking:
                self._refuse(
                    "unsupported projection expression: a score of rrf() exists only in a query that orders by it",
                    projection.at,
                )

    # ---- order ------------------------------------------------------------------------------------------

    def _ranking(self) -> ir.Ranking | None:
        """What the first sort key ranks by: a rank call, or the name of one in its natural direction."""
        if not self._body.sort:
            return None
        first = self._body.sort[0]
        if isinstance(first.value, ir.Score):
            ranking = first.value.rank
        elif isinstance(first.value, OutputName):
            named = self._projection_named(first.value.name)
            if named is None or not isinstance(named[1].value, ir.Score):
                return None
            ranking = named[1].value.rank
            # Distances are best when small, scores when large; the other way round is a plain sort by value.
            if first.descending is isinstance(ranking, ir.NearestRank):
                return None
        else:
            return None
        if self._body.limit == 0 and not isinstance(ranking, ir.Bm25Rank):
            self._refuse("ranking by nearest() needs a limit of at least 1", first.at)
        return ranking

    def _ranks_alone(self, ranking: ir.Ranking | None) -> bool:
        """A rank call silences the sort keys after it; the name of a score is a value, whose ties they break."""
        sort = self._body.sort
        return ranking is not None and (len(sort) == 1 or not isinstance(sort[0].value, OutputName))

    def _sort_keys(self, ranking: ir.Ranking | None) -> list[ir.SortKey]:
        keys = [(self._sort_value(key, ranking), key) for key in self._body.sort]
        return [ir.SortKey(value, key.descending) for value, key in keys if value is not None]

    def _sort_value(self, key: ResolvedSort, ranking: ir.Ranking | None) -> ir.Value | None:
        value = key.value
        if isinstance(value, OutputName):
            return self._output_value(value, ranking)
        if isinstance(value, Refused):
            return self._unsortable(value.reason, value.at)
        if isinstance(value, ir.Score):
            return self._unsortable("a ranking must be the first sort key", key.at)
        if not isinstance(value, ir.PropertyValue):
            return self._unsortable("sort by a property or by the name of an output column", key.at)
        if value.type.list or value.type.is_vector:
            return self._unsortable(f"a {value.type} has no order", key.at)
        if not self._body.is_aggregate:
            return value
        for i, projection in enumerate(self._body.projections):
            if projection.alias is None and projection.value == value:
                return ir.OutputValue(i, value.type)
        reason = "beside an aggregate only what is returned can be sorted by; use the name of its column"
        return self._unsortable(reason, key.at)

    def _output_value(self, name: OutputName, ranking: ir.Ranking | None) -> ir.Value | None:
        found = self._projection_named(name.name)
        if found is None:
            names = [projection.name for projection in self._body.projections]
            suggestion = did_you_mean(name.name, names)
            self._findings.report(
                UNSUPPORTED, f"alias '{name.name}' not found", (name.at.start, name.at.end), suggestion=suggestion
            )
            return None
        index, projection = found
        value = projection.value
        if isinstance(value, Refused):
            return None  # reported as a projection
        if value.type.list or value.type.is_vector:
            return self._unsortable(f"a {value.type} has no order", name.at)
        if isinstance(value, ir.Score) and isinstance(value.rank, ir.FusedRank) and value.rank != ranking:
            return self._unsortable("rrf() ranks the best first: sort by it first, and descending", name.at)
        if self._body.is_aggregate or isinstance(value, ir.AggregateValue):
            return ir.OutputValue(index, value.type)
        return value

    def _projection_named(self, name: str) -> tuple[int, ResolvedProjection] | None:
        return next(((i, p) for i, p in enumerate(self._body.projections) if p.name == name), None)

    # ---- findings ---------------------------------------------------------------------------------------

    def _unsortable(self, reason: str, at: Place) -> ir.Value | None:
        """Report it; there is never a value to sort by."""
        self._refuse(f"unsupported ordering expression: {reason}", at)
        return None

    def _refuse(self, message: str, at: Place) -> None:
        self._findings.report(UNSUPPORTED, message, (at.start, at.end))
