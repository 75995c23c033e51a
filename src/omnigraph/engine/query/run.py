"""Running a read plan: operators from the leaves up, on one snapshot.

`ReadRun` walks the tree of `language.query.ir`. It passes down which variables anything above still reads and whether
rows are only counted there, so that expansions carry no column and make no row that nobody looks at. Rows flow through
in pieces where that bounds memory or lets a limit stop early.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.aggregate import aggregated
from omnigraph.engine.query.operators.expand import expand
from omnigraph.engine.query.operators.filter import filtered
from omnigraph.engine.query.operators.order import sorted_rows, sorted_table
from omnigraph.engine.query.operators.project import output_schema, projected
from omnigraph.engine.query.operators.ranking import fused, leaves_out_unseen, rank_rows, rank_scan
from omnigraph.engine.query.operators.scan import scan, scan_candidates
from omnigraph.engine.query.plan_tree import binders, label, values_in
from omnigraph.engine.query.values.bindings import Bindings, concatenated
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction

# Rows that go through a plan together: few at first, since each may become many and a limit may end it soon.
_FIRST_PIECE = 4_096
_PIECE = 1 << 20
_GROWTH = 8

_ONE_EMPTY_ROW = Bindings({}, 1)


class ReadRun:
    """One execution of one plan."""

    def __init__(self, plan: ir.ReadPlan, context: ReadContext) -> None:
        self._plan = plan
        self._context = context
        self._values = tuple(values_in(plan.root))
        self._owners = dict(binders(plan.root))
        self._given: dict[int, Bindings] = {}
        self._kept: dict[int, Bindings] = {}
        self._depth = 0
        self.schema = output_schema(plan)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result, a batch at a time, each made when it is asked for."""
        root = self._plan.root
        if not isinstance(root, ir.Project):
            yield from self._table(root).to_batches()
            return
        needed = {name for column in root.columns for name in ir.variables_of(column.value)}
        for rows in self._pieces(root.input, needed):
            with self._context.profiler.operator(root, label(root)) as entry:
                for batch in projected(root, self.schema, rows, self._context):
                    entry.rows += len(batch)
                    yield batch

    # ---- aggregate rows ---------------------------------------------------------------------------------

    def _table(self, plan: ir.ReadOperator, limit: int | None = None) -> pa.Table:
        """Operators from the aggregate up, which work on few rows of values."""
        with self._context.profiler.operator(plan, label(plan)) as entry:
            match plan:
                case ir.Limit():
                    count = plan.count if limit is None else min(limit, plan.count)
                    table = self._table(plan.input, count).slice(0, count)
                case ir.Sort():
                    table = sorted_table(plan.keys, self._table(plan.input), limit)
                case ir.Aggregate():
                    read = [c.value for c in plan.columns if not _counts_rows(c.value)]
                    values = [v.argument if isinstance(v, ir.AggregateValue) else v for v in read]
                    needed = {name for value in values for name in ir.variables_of(value)}
                    table = aggregated(plan, self._rows(plan.input, needed, folding=True), self._context)
                case _:
                    raise AssertionError(f"{type(plan).__name__} does not stand above an aggregate")
            entry.rows = len(table)
            return table

    # ---- bound rows -------------------------------------------------------------------------------------

    def _rows(
        self, plan: ir.ReadOperator, needed: AbstractSet[str], *, folding: bool = False, limit: int | None = None
    ) -> Bindings:
        """The rows of an operator, binding at least `needed`. `limit`: so many of the first rows are enough."""
        if (given := self._given.get(id(plan))) is not None:
            return given
        self._context.cancellation.check()
        with self._context.profiler.operator(plan, label(plan)) as entry:
            rows = self._operator(plan, frozenset(needed), folding, limit)
            self._context.budget.step(rows.nbytes)
            entry.rows += rows.length
            return rows

    def _operator(self, plan: ir.ReadOperator, needed: frozenset[str], folding: bool, limit: int | None) -> Bindings:
        context = self._context
        match plan:
            case ir.Scan():
                return scan(plan, self._values, context, limit=limit)
            case ir.Outer():
                return _ONE_EMPTY_ROW
            case ir.Expand():
                below = needed | {n for p in plan.predicates for n in ir.predicate_variables(p)}
                below -= {plan.edge_variable, plan.destination}
                below |= {plan.source, plan.destination} if plan.closing else {plan.source}
                rows = self._rows(plan.input, below, folding=folding)
                return expand(plan, rows, needed, folding, context)
            case ir.Filter():
                below = needed | {n for p in plan.predicates for n in ir.predicate_variables(p)}
                return filtered(self._rows(plan.input, below, folding=folding), plan.predicates, context)
            case ir.CrossJoin():
                return self._crossed(plan, needed, folding)
            case ir.AntiJoin():
                return self._without(plan, needed, folding)
            case ir.Rank():
                return self._ranked(plan, needed, limit)
            case ir.Fuse():
                both = needed | {plan.variable}
                first, second = self._rows(plan.first, both), self._rows(plan.second, both)
                return fused(plan, first.only(both), second.only(both), context)
            case ir.Sort():
                return self._sorted(plan, needed, limit)
            case ir.Limit():
                return self._limited(plan, needed)
        raise AssertionError(f"{type(plan).__name__} yields no bindings")

    def _crossed(self, plan: ir.CrossJoin, needed: frozenset[str], folding: bool) -> Bindings:
        left = self._rows(plan.left, needed, folding=folding)
        # The right side does not depend on the left one, so pieces of the left share it.
        right = self._kept.get(id(plan.right))
        if right is None:
            right = self._kept[id(plan.right)] = self._rows(plan.right, needed, folding=folding)
        if folding and not right.rows.keys() & needed:
            return left.weighted(np.full(left.length, right.total))
        if folding and not left.rows.keys() & needed:
            return right.weighted(np.full(right.length, left.total))
        right = right.only(needed)
        width = len(left.rows) + len(right.rows) + 2
        self._context.budget.step(left.length * right.length * 8 * width)
        rows = left.take(np.repeat(np.arange(left.length), right.length))
        other = right.take(np.tile(np.arange(right.length), left.length))
        rows = rows.binding(other.rows)
        return rows if other.weights is None else rows.weighted(other.weights)

    def _without(self, plan: ir.AntiJoin, needed: frozenset[str], folding: bool) -> Bindings:
        """Rows are numbered in a column of their own, which travels through the inner plan like a variable; the
        numbers that come out have a solution."""
        rows = self._rows(plan.input, needed | set(plan.correlated), folding=folding)
        if not rows.length:
            return rows
        self._depth += 1
        tag = f"#outer:{self._depth}"
        outer = Bindings({v: rows.rows[v] for v in plan.correlated} | {tag: np.arange(rows.length)}, rows.length)
        leaf = _outer_leaf(plan.inner)
        if leaf is not None:
            self._given[id(leaf)] = outer
        inner = self._rows(plan.inner, {tag}, folding=True)
        self._depth -= 1
        if tag not in inner.rows:
            return rows.slice(0, 0) if inner.length else rows
        alone = np.ones(rows.length, dtype=bool)
        alone[inner.rows[tag]] = False
        return rows.where(alone)

    def _ranked(self, plan: ir.Rank, needed: frozenset[str], limit: int | None) -> Bindings:
        if isinstance(plan.input, ir.Scan):
            keep = plan.keep if plan.keep is not None else limit
            rows, filter_ = scan_candidates(plan.input, self._context, sighted=not leaves_out_unseen(plan.rank))
            if filter_ is not None:
                self._context.profiler.note(f"prefilter: {filter_}")
            return rank_scan(plan, keep, rows, filter_, self._context)
        return rank_rows(plan, self._rows(plan.input, needed | {plan.rank.field.variable}), self._context)

    def _sorted(self, plan: ir.Sort, needed: frozenset[str], limit: int | None) -> Bindings:
        below = needed | set(plan.tie_break) | {n for key in plan.keys for n in ir.variables_of(key.value)}
        rows = self._rows(plan.input, below)
        return sorted_rows(plan, rows, self._owners, limit, self._context)

    def _limited(self, plan: ir.Limit, needed: frozenset[str]) -> Bindings:
        if not plan.count:
            return Bindings({variable: np.empty(0, np.int64) for variable in needed}, 0)
        parts: list[Bindings] = []
        missing = plan.count
        for rows in self._pieces(plan.input, needed, limit=plan.count):
            parts.append(rows.slice(0, missing))
            missing -= parts[-1].length
            if not missing:
                break
        return concatenated(parts)

    # ---- pieces -----------------------------------------------------------------------------------------

    def _pieces(
        self, plan: ir.ReadOperator, needed: AbstractSet[str], *, limit: int | None = None
    ) -> Iterator[Bindings]:
        """The rows of an operator, at least one piece. Where every operator below treats rows one by one, the rows of
        the leaf go through in pieces."""
        leaf = _row_wise_leaf(plan)
        if leaf is None or leaf is plan:
            yield self._rows(plan, needed, limit=limit)
            return
        whole = self._rows(leaf, self._owners.keys())
        size, start = _FIRST_PIECE, 0
        while True:
            piece = self._given[id(leaf)] = whole.slice(start, start + size)
            if limit is None and whole.length:
                self._context.share = piece.length / whole.length
            rows = self._rows(plan, needed)
            yield rows
            # As many rows come out of a piece as may go in, however many each of them becomes.
            start, size = (
                start + size,
                min(_PIECE, size * _GROWTH, max(1, piece.length * _PIECE // max(1, rows.length))),
            )
            if start >= whole.length:
                break
        self._context.share = 1.0
        del self._given[id(leaf)]


def _counts_rows(value: ir.Value | ir.AggregateValue) -> bool:
    """`count($x)`: every row has an `$x`, so nobody needs to know which."""
    return (
        isinstance(value, ir.AggregateValue)
        and value.function is AggregateFunction.COUNT
        and isinstance(value.argument, ir.NodeId)
    )


def _outer_leaf(plan: ir.ReadOperator) -> ir.Outer | None:
    """The leaf through which a negation reads its outer row: the leftmost one."""
    while not isinstance(plan, ir.Outer):
        match plan:
            case ir.Expand() | ir.Filter() | ir.AntiJoin():
                plan = plan.input
            case ir.CrossJoin():
                plan = plan.left
            case _:
                return None
    return plan


def _row_wise_leaf(plan: ir.ReadOperator) -> ir.ReadOperator | None:
    """The scan or ranking below operators that each extend, keep or drop one row at a time."""
    while True:
        match plan:
            case ir.Expand() | ir.Filter() | ir.AntiJoin():
                plan = plan.input
            case ir.CrossJoin():
                plan = plan.left
            case ir.Scan() | ir.Rank():
                return plan
            case _:
                return None
