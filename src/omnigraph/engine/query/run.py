"""Running a read plan: operators from the leaves up, on one snapshot.

`ReadRun` walks the tree of `language.query.ir` for `read`. It passes down which variables are still needed and whether
rows are only counted, so that no operator makes columns or rows that nobody reads. Rows pass in pieces where that
bounds memory or lets a limit stop early. The functions before it inspect a plan without running it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.query.bindings import Bindings, concatenate
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.aggregate import aggregate_rows
from omnigraph.engine.query.operators.expand import expand
from omnigraph.engine.query.operators.projection import project, sorted_rows, sorted_table
from omnigraph.engine.query.operators.ranking import best_nodes, fuse, rank_rows, rank_scan
from omnigraph.engine.query.operators.scan import filter_rows, names_one_node, scan, scan_candidates
from omnigraph.engine.query.result import OperatorProfile
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction
from omnigraph.storage.integer_sets import distinct, is_member
from omnigraph.storage.tables.rows import RowIds


def inputs_of(plan: ir.ReadOperator) -> tuple[ir.ReadOperator, ...]:
    match plan:
        case ir.Scan() | ir.Outer():
            return ()
        case ir.CrossJoin():
            return (plan.left, plan.right)
        case ir.AntiJoin():
            return (plan.input, plan.inner)
        case ir.Fuse():
            return (plan.first, plan.second)
        case _:
            return (plan.input,)


def plan_levels(plan: ir.ReadOperator) -> Iterator[tuple[ir.ReadOperator, int]]:
    """Every operator before its inputs, and how many are above it. A loop: a plan is as deep as a query is long."""
    waiting = [(plan, 0)]
    while waiting:
        operator, depth = waiting.pop()
        yield operator, depth
        waiting += [(below, depth + 1) for below in reversed(inputs_of(operator))]


def binders(plan: ir.ReadOperator) -> Iterator[tuple[str, NodeType | EdgeType]]:
    """Every variable with the type of what it is bound to."""
    for operator, _ in plan_levels(plan):
        match operator:
            case ir.Scan():
                yield operator.variable, operator.type
            case ir.Expand():
                yield operator.destination, operator.destination_type
                if operator.edge_variable is not None:
                    yield operator.edge_variable, operator.edge


def values_in(plan: ir.ReadOperator) -> Iterator[ir.Value]:
    """Every value that some operator reads."""
    for operator, _ in plan_levels(plan):
        match operator:
            case ir.Scan() | ir.Expand() | ir.Filter():
                for predicate in operator.predicates:
                    if isinstance(predicate, ir.Compare):
                        yield from (predicate.left, predicate.right)
                    else:
                        yield predicate.field
            case ir.Sort():
                yield from (key.value for key in operator.keys)
            case ir.Project():
                yield from (column.value for column in operator.columns)
            case ir.Aggregate():
                for column in operator.columns:
                    yield column.value.argument if isinstance(column.value, ir.AggregateValue) else column.value


def property_values(part: object) -> Iterator[ir.PropertyValue]:
    """Every property that a plan names, anywhere: in values, predicates, rankings, sort keys."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ir.PropertyValue):
            yield part
        elif isinstance(part, tuple):
            waiting += reversed(part)
        elif isinstance(part, Struct) and type(part).__module__ == ir.__name__:
            waiting += [getattr(part, name) for name in reversed(part.__struct_fields__)]


_ARROWS = {ir.Direction.OUT: "-[{}]->", ir.Direction.IN: "<-[{}]-", ir.Direction.BOTH: "-[{}]-"}


def label(plan: ir.ReadOperator) -> str:
    """What an operator does, in a few words."""
    match plan:
        case ir.Scan():
            return f"Scan ${plan.variable}: {plan.type.name}" + _tests(plan.predicates)
        case ir.Outer():
            return "Outer " + ", ".join(f"${v}" for v in plan.variables)
        case ir.Expand():
            edge = (f"${plan.edge_variable}:" if plan.edge_variable else "") + plan.edge.name
            hops = "" if (plan.min_hops, plan.max_hops) == (1, 1) else f"{{{plan.min_hops},{plan.max_hops}}}"
            arrow = _ARROWS[plan.direction].format(edge + hops)
            kind = "Close" if plan.closing else "Expand"
            return f"{kind} ${plan.source} {arrow} ${plan.destination}" + _tests(plan.predicates)
        case ir.CrossJoin():
            return "CrossJoin"
        case ir.Filter():
            return "Filter" + _tests(plan.predicates)
        case ir.AntiJoin():
            return "AntiJoin on " + ", ".join(f"${v}" for v in plan.correlated)
        case ir.Rank():
            return f"Rank by {_text(plan.rank)}"
        case ir.BestNodes():
            return f"BestNodes {plan.count} of ${plan.variable}"
        case ir.Fuse():
            return f"Fuse {_text(plan.rank.first)} and {_text(plan.rank.second)}, best {plan.limit}"
        case ir.Sort():
            keys = [f"{_text(key.value)}{' desc' if key.descending else ''}" for key in plan.keys]
            return "Sort by " + ", ".join((*keys, *(f"${v}.id" for v in plan.tie_break)))
        case ir.Limit():
            return f"Limit {plan.count}"
        case ir.Project() | ir.Aggregate():
            return f"{type(plan).__name__} " + ", ".join(column.name for column in plan.columns)


def _tests(predicates: tuple[ir.Predicate, ...]) -> str:
    return " where " + " and ".join(map(_text, predicates)) if predicates else ""


def _text(part: ir.Value | ir.Ranking | ir.Predicate) -> str:
    match part:
        case ir.Compare():
            return f"{_text(part.left)} {part.operator.value} {_text(part.right)}"
        case ir.PropertyValue():
            return f"${part.variable}.{part.prop.name}"
        case ir.NodeId():
            return f"${part.variable}"
        case ir.ParameterValue():
            return f"${part.name}"
        case ir.Constant():
            return repr(part.value)
        case ir.Now():
            return "now()"
        case ir.TextMatch():
            return f"{part.function.value}({_text(part.field)}, {_text(part.query)})"
        case ir.Score():
            return _text(part.rank)
        case ir.OutputValue():
            return f"column {part.index + 1}"
        case ir.NearestRank():
            return f"nearest({_text(part.field)}, {_text(part.query)})"
        case ir.Bm25Rank():
            return f"bm25({_text(part.field)}, {_text(part.query)})"
        case ir.FusedRank():
            return f"rrf({_text(part.first)}, {_text(part.second)})"


# Rows that go through a plan together: few at first, since each may become many and a limit may end it soon.
_FIRST_PIECE = 4_096
_PIECE = 1 << 20
_GROWTH = 8
# A start is worth looking at when so small a share of the ranked nodes' number satisfies its predicates.
_FEW_SHARE = 16
# From this share of a type on, ranking all of it costs no more.
_WHOLE_SHARE = 4

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
        self.schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in plan.columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result, a batch at a time, each made when it is asked for."""
        root = self._plan.root
        if not isinstance(root, ir.Project):
            yield from self._table(root).to_batches()
            return
        needed = {name for column in root.columns for name in ir.variables_of(column.value)}
        budget = self._context.budget
        for rows in self._pieces(root.input, needed):
            budget.hold(rows.nbytes)
            with self._context.profiler.operator(root, label(root)) as entry:
                for batch in project(root, self.schema, rows, self._context):
                    entry.rows += len(batch)
                    yield batch
            budget.release(rows.nbytes)

    def _table(self, plan: ir.ReadOperator, limit: int | None = None) -> pa.Table:
        """Operators from the aggregate up, which work on few rows of values."""
        with self._context.profiler.operator(plan, label(plan)) as entry:
            match plan:
                case ir.Limit():
                    count = plan.count if limit is None else min(limit, plan.count)
                    table = self._table(plan.input, count).slice(0, count)
                case ir.Sort():
                    table = sorted_table(plan.keys, self._table(plan.input), limit, self._context.budget)
                case ir.Aggregate():
                    read = [c.value for c in plan.columns if not _counts_rows(c.value)]
                    inner = [v.argument if isinstance(v, ir.AggregateValue) else v for v in read]
                    needed = {name for value in inner for name in ir.variables_of(value)}
                    table = aggregate_rows(plan, self._rows(plan.input, needed, counts_only=True), self._context)
                case _:
                    raise AssertionError(f"{type(plan).__name__} is not an operator above an aggregate")
            entry.rows = len(table)
            return table

    def _rows(
        self, plan: ir.ReadOperator, needed: AbstractSet[str], *, counts_only: bool = False, limit: int | None = None
    ) -> Bindings:
        """The rows of an operator, binding at least `needed`. `limit`: so many of the first rows are enough. Operators
        on top of each other are walked in a loop, down to the leaf and up again: a long chain of traversals needs no
        deep stack."""
        waiting: list[tuple[ir.ReadOperator, frozenset[str], ExitStack, OperatorProfile]] = []
        operator, wanted = plan, frozenset(needed)
        with ExitStack() as unfinished:
            while (rows_given := self._given.get(id(operator))) is None:
                self._context.cancellation.check()
                running = unfinished.enter_context(ExitStack())
                entry = running.enter_context(self._context.profiler.operator(operator, label(operator)))
                waiting.append((operator, wanted, running, entry))
                if (below := _below(operator, wanted)) is None:
                    break
                operator, wanted = below
            rows = rows_given
            for operator, wanted, running, entry in reversed(waiting):
                if rows is None:
                    rows = self._leaf(operator, wanted, limit if operator is plan else None)
                else:
                    rows = self._extend(operator, rows, wanted, counts_only)
                self._context.budget.step(rows.nbytes)
                entry.rows += rows.length
                running.close()
        assert rows is not None
        return rows

    def _leaf(self, plan: ir.ReadOperator, needed: frozenset[str], limit: int | None) -> Bindings:
        """The rows of an operator that has no input, or needs all of it at once."""
        context = self._context
        match plan:
            case ir.Scan():
                return scan(plan, self._values, context, limit=limit)
            case ir.Outer():
                return _ONE_EMPTY_ROW
            case ir.Rank(input=ir.Scan() as nodes):
                return next(self._ranked_parts(plan, nodes, limit))
            case ir.Rank():
                return rank_rows(plan, self._rows(plan.input, needed | {plan.rank.field.variable}), context)
            case ir.BestNodes():
                return self._of_best_nodes(plan, needed)
            case ir.Fuse():
                both = needed | {plan.variable}
                first, second = self._rows(plan.first, both), self._rows(plan.second, both)
                return fuse(plan, first.only(both), second.only(both), context)
            case ir.Sort():
                below = needed | set(plan.tie_break) | {n for key in plan.keys for n in ir.variables_of(key.value)}
                return sorted_rows(plan, self._rows(plan.input, below), self._owners, limit, context)
            case ir.Limit():
                return self._limit(plan, needed)
        raise AssertionError(f"{type(plan).__name__} yields no bindings")

    def _extend(self, plan: ir.ReadOperator, rows: Bindings, needed: frozenset[str], counts_only: bool) -> Bindings:
        """The rows of an operator that extends, keeps or drops each of `rows`, those of its input."""
        match plan:
            case ir.Expand():
                return expand(plan, rows, needed, counts_only, self._context)
            case ir.Filter():
                return filter_rows(rows, plan.predicates, self._context)
            case ir.CrossJoin():
                return self._cross(plan, rows, needed, counts_only)
            case ir.AntiJoin():
                return self._without(plan, rows)
        raise AssertionError(f"{type(plan).__name__} extends no rows")

    def _cross(self, plan: ir.CrossJoin, left: Bindings, needed: frozenset[str], counts_only: bool) -> Bindings:
        # The right side does not depend on the left one, so pieces of the left share it.
        right = self._kept.get(id(plan.right))
        if right is None:
            right = self._kept[id(plan.right)] = self._rows(plan.right, needed, counts_only=counts_only)
        if counts_only and not right.rows.keys() & needed:
            return left.with_weights(np.full(left.length, right.total))
        if counts_only and not left.rows.keys() & needed:
            return right.with_weights(np.full(right.length, left.total))
        right = right.only(needed)
        self._context.budget.step(left.length * right.length * 8 * (len(left.rows) + len(right.rows) + 2))
        check = self._context.cancellation.check
        rows = left.each(np.full(left.length, right.length), check)
        other = right.times(left.length, check)
        rows = rows.binding(other.rows)
        return rows if other.weights is None else rows.with_weights(other.weights)

    def _without(self, plan: ir.AntiJoin, rows: Bindings) -> Bindings:
        """Rows are numbered in a column of their own, which travels through the inner plan like a variable; the
        numbers that come out have a solution."""
        if not rows.length:
            return rows
        self._depth += 1
        tag = f"#outer:{self._depth}"
        outer = Bindings({v: rows.rows[v] for v in plan.correlated} | {tag: np.arange(rows.length)}, rows.length)
        # A negation reads its outer row through its leftmost leaf.
        if isinstance(leaf := _row_wise_leaf(plan.inner), ir.Outer):
            self._given[id(leaf)] = outer
        inner = self._rows(plan.inner, {tag}, counts_only=True)
        self._depth -= 1
        if tag not in inner.rows:
            return rows.slice(0, 0) if inner.length else rows
        alone = np.ones(rows.length, dtype=bool)
        alone[inner.rows[tag]] = False
        return rows.where(alone)

    def _limit(self, plan: ir.Limit, needed: frozenset[str]) -> Bindings:
        if not plan.count:
            return Bindings({variable: np.empty(0, np.int64) for variable in needed}, 0)
        parts: list[Bindings] = []
        missing = plan.count
        for rows in self._pieces(plan.input, needed, limit=plan.count):
            parts.append(rows.slice(0, missing))
            missing -= parts[-1].length
            if not missing:
                break
        return concatenate(parts)

    def _of_best_nodes(self, plan: ir.BestNodes, needed: frozenset[str]) -> Bindings:
        parts: list[Bindings] = []
        # A piece holds whole nodes, so the last of them has all its rows.
        for rows in self._pieces(plan.input, needed | {plan.variable}, limit=plan.count):
            parts.append(rows)
            if (best := best_nodes(concatenate(parts), plan.variable, plan.count)) is not None:
                return best
        return concatenate(parts)

    def _ranked_parts(self, plan: ir.Rank, nodes: ir.Scan, limit: int | None) -> Iterator[Bindings]:
        """The nodes of a ranking in its order. With a limit as many at first, and more with every part: what is above
        may drop any of them, and takes what it needs. Together the parts are the whole ranking."""
        context = self._context
        near = self._near_nodes(plan, nodes, by_key=True)
        if near is not None:
            yield rank_scan(plan, None, Candidates(rows=near), context)
            return
        # A ranking that counts words leaves out invisible rows by itself.
        candidates = scan_candidates(nodes, context, visible_only=not isinstance(plan.rank, ir.Bm25Rank))
        if candidates.filter is not None:
            context.profiler.note(f"prefilter: {candidates.filter}")
        keep, offset = limit, 0
        while True:
            context.cancellation.check()
            ranked = rank_scan(plan, keep, candidates, context)
            yield ranked.slice(offset, ranked.length)
            if keep is None or ranked.length < keep:
                return
            if not offset and (near := self._near_nodes(plan, nodes, by_key=False)) is not None:
                # What was yielded is all that ranks before the rest of them.
                others = near[~is_member(near, ranked.rows[nodes.variable])]
                yield rank_scan(plan, None, Candidates(rows=others), context, some=True)
                return
            offset, keep = ranked.length, keep * _GROWTH
            if keep * _WHOLE_SHARE >= context.table(nodes.type).state.rows:
                keep = None

    def _near_nodes(self, plan: ir.Rank, nodes: ir.Scan, *, by_key: bool) -> RowIds | None:
        """All nodes of a ranking that can have rows, found from another variable; None when that is not worth it. It is
        when few nodes of that variable satisfy its predicates: with `by_key` a single one, which its key names, else a
        small share, for which they are asked."""
        context = self._context
        total = context.table(nodes.type).state.rows
        for start in plan.starts:
            root = _row_wise_leaf(start)
            assert isinstance(root, ir.Scan)
            if names_one_node(root) is not by_key:
                continue
            if not by_key:
                few = total // _FEW_SHARE
                nodes_found = scan(root, self._values, context, limit=few + 1)
                if nodes_found.length > few:
                    continue
                self._given[id(root)] = nodes_found
            reached = self._rows(start, {nodes.variable}, counts_only=True).rows[nodes.variable]
            self._given.pop(id(root), None)
            near = distinct(reached)
            if len(near) * _WHOLE_SHARE <= total:
                context.profiler.note(f"candidates: {len(near)} nodes, reached from ${root.variable}")
                return near
        return None

    def _pieces(
        self, plan: ir.ReadOperator, needed: AbstractSet[str], *, limit: int | None = None
    ) -> Iterator[Bindings]:
        """The rows of an operator, at least one piece, each binding just `needed`. Where every operator below treats
        rows one by one, the rows of the leaf go through in pieces."""
        leaf = _row_wise_leaf(plan)
        if not isinstance(leaf, ir.Scan | ir.Rank) or leaf is plan:
            yield self._rows(plan, needed, limit=limit).only(needed)
            return
        size = _FIRST_PIECE
        for whole in self._leaf_parts(leaf, limit):
            start = 0
            while True:
                piece = self._given[id(leaf)] = whole.slice(start, start + size)
                if limit is None and whole.length:
                    self._context.share = piece.length / whole.length
                # An operator without rows may bind more than it does with some, and pieces are put together.
                rows = self._rows(plan, needed).only(needed)
                del self._given[id(leaf)]
                yield rows
                # As many rows come out of a piece as may go in, however many each of them becomes.
                start += size
                size = min(_PIECE, size * _GROWTH, max(1, piece.length * _PIECE // max(1, rows.length)))
                if start >= whole.length:
                    break
        self._context.share = 1.0

    def _leaf_parts(self, leaf: ir.ReadOperator, limit: int | None) -> Iterator[Bindings]:
        """The rows of the leaf of row-wise operators: all at once, or as many as a limit turns out to need."""
        if limit is None or not isinstance(leaf, ir.Rank) or not isinstance(leaf.input, ir.Scan):
            yield self._rows(leaf, self._owners.keys())
            return
        parts = self._ranked_parts(leaf, leaf.input, limit)
        while True:
            with self._context.profiler.operator(leaf, label(leaf)) as entry:
                part = next(parts, None)
                if part is None:
                    return
                self._context.budget.step(part.nbytes)
                entry.rows += part.length
            yield part


def _counts_rows(value: ir.Value | ir.AggregateValue) -> bool:
    """`count($x)`: every row has an `$x`, so its value is not needed."""
    return (
        isinstance(value, ir.AggregateValue)
        and value.function is AggregateFunction.COUNT
        and isinstance(value.argument, ir.NodeId)
    )


def _below(plan: ir.ReadOperator, needed: frozenset[str]) -> tuple[ir.ReadOperator, frozenset[str]] | None:
    """The input whose rows an operator extends one by one, and the variables that have to be bound there."""
    match plan:
        case ir.Expand():
            below = needed | {name for p in plan.predicates for name in ir.predicate_variables(p)}
            below -= {plan.edge_variable, plan.destination}
            return plan.input, below | ({plan.source, plan.destination} if plan.closing else {plan.source})
        case ir.Filter():
            return plan.input, needed | {name for p in plan.predicates for name in ir.predicate_variables(p)}
        case ir.CrossJoin():
            return plan.left, needed
        case ir.AntiJoin():
            return plan.input, needed.union(plan.correlated)
    return None


def _row_wise_leaf(plan: ir.ReadOperator) -> ir.ReadOperator:
    """The first operator below those that each extend, keep or drop one row at a time."""
    while (below := _below(plan, frozenset())) is not None:
        plan, _ = below
    return plan
