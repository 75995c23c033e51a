"""Running a read plan: operators from the leaves up, on one snapshot.

`ReadRun` walks the tree of `language.query.ir` for `read`. It passes down which variables are still needed and whether
rows are only counted, so that no operator makes columns or rows that nobody reads. Rows pass in pieces where that
bounds memory or lets a limit stop early. Operators on top of each other are walked in a loop, down to the leaf and up
again, so a long query needs no deep stack; only what is in braces recurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.bindings import Bindings, concatenate
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.aggregate import aggregate_rows
from omnigraph.engine.query.operators.expand import expand
from omnigraph.engine.query.operators.grouping import distinct_rows
from omnigraph.engine.query.operators.joins import (
    Assignments,
    KeyedRows,
    assign,
    equal_pairs,
    key_rows,
    lookup_scan,
    solution_variables,
    solved_rows,
    with_block,
    with_optional,
)
from omnigraph.engine.query.operators.projection import project, sorted_rows
from omnigraph.engine.query.operators.ranking import ScanArm, best_nodes, fuse, fuse_scans, rank_rows, rank_scan
from omnigraph.engine.query.operators.scan import names_one_node, scan, scan_candidates, scan_union
from omnigraph.engine.query.operators.stages import bind, no_rows, row_count, rows_to_find, take_limit, unwind
from omnigraph.engine.query.plans import (
    Equality,
    Join,
    Needed,
    PreparedPlan,
    Step,
    equality_of,
    input_below,
    ranked_scan,
    reads,
    row_wise_input,
    row_wise_leaf,
    shared_operator,
    shows_order,
    values_in,
    whole_input,
)
from omnigraph.engine.query.result import Measurement
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.errors import ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import distinct, is_member
from omnigraph.storage.tables.rows import RowIds

# Rows that go through a plan together: few at first, since each may become many and a limit may end it soon.
_FIRST_PIECE = 4_096
_PIECE = 1 << 20
_GROWTH = 8
# A start is worth looking at when so small a share of the ranked nodes' number satisfies its predicates.
_FEW_SHARE = 16
# From this share of a type on, ranking all of it costs no more.
_WHOLE_SHARE = 4

_ONE_EMPTY_ROW = Bindings({}, 1)


def run_rows(root: ir.ReadOperator, values: Sequence[ir.Value], context: ReadContext) -> Bindings:
    """All rows of an operator at once, binding what the values read."""
    return _Run(root, (*values_in(root), *values), context).rows(root, reads(values))


class ReadRun:
    """One execution of one plan."""

    def __init__(self, prepared: PreparedPlan, context: ReadContext) -> None:
        self._prepared = prepared
        self._context = context

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result, a batch at a time, each made when it is asked for."""
        root, context, prepared = self._prepared.plan.root, self._context, self._prepared
        run = _Run(root, prepared.stored_values, context)
        for rows in run.pieces(prepared.rows, passing=True):
            context.budget.hold(rows.nbytes)
            shown = context.profiler.operator(root) if isinstance(root, ir.Project) else nullcontext()
            with shown as entry:
                for batch in project(prepared.output, prepared.schema, rows, context):
                    if entry is not None:
                        entry.rows += len(batch)
                    yield batch
            context.budget.release(rows.nbytes)


class _Run:
    """The rows of one plan."""

    def __init__(self, root: ir.ReadOperator, values: Sequence[ir.Value], context: ReadContext) -> None:
        """`values` are what the plan reads of stored rows."""
        self._values = values
        self._context = context
        # The rows of leaves that are run for some rows at a time, by the id of the operator.
        self._leaf_rows: dict[int, Bindings] = {}
        # Right sides of cross joins, which do not depend on the left ones: pieces of these share them.
        self._right_rows: dict[int, Bindings] = {}
        self._right_keys: dict[int, KeyedRows] = {}
        # Whether an approximate ranking below the current limit had more nodes than it gave.
        self._is_cut = False
        # Whether that limit was too small before.
        self._is_repeated = False

    # ---- whole operators --------------------------------------------------------------------------------

    def rows(
        self, plan: ir.ReadOperator, needed: AbstractSet[str], *, counts_only: bool = False, limit: int | None = None
    ) -> Bindings:
        """The rows of an operator, binding at least `needed`. `limit`: so many of the first rows are enough."""
        running: list[tuple[Step, Measurement]] = []
        step: Step | None = Step(plan, frozenset(needed), counts_only, limit)
        rows: Bindings | None = None
        try:
            while step is not None and (rows := self._leaf_rows.get(id(step.operator))) is None:
                self._context.cancellation.check()
                running.append((step, self._context.profiler.operator(step.operator)))
                step = self._input(step)
            while running:
                step, measured = running[-1]
                rows = self._leaf(step) if rows is None else self._apply(step, rows)
                self._context.budget.step(rows.nbytes)
                measured.entry.rows += rows.length
                measured.end()
                running.pop()
        finally:
            for _, measured in reversed(running):
                measured.end()
        assert rows is not None
        return rows

    def _input(self, step: Step) -> Step | None:
        """The input that is run before an operator; None for a leaf, and for one that runs its inputs itself."""
        plan = step.operator
        match plan:
            case ir.Limit() | ir.BestNodes():
                # What lies between a limit and the leaf below goes through in pieces.
                leaf = self._leaf_below(step)
                if whole_input(leaf) is None and not isinstance(leaf.operator, ir.Limit | ir.BestNodes):
                    return None
                return leaf._replace(limit=rows_to_find(plan, self._context) if leaf.operator is plan.input else None)
            case ir.Fuse():
                return shared_operator(plan, step.needed)
            case ir.UnionAll():
                return Step(plan.inputs[0], step.needed)
        return row_wise_input(step) or whole_input(step)

    def _leaf_below(self, step: Step) -> Step:
        below = input_below(step)
        assert below is not None
        return row_wise_leaf(below, self._leaf_rows)

    def _leaf(self, step: Step) -> Bindings:
        """The rows of an operator without an input that was run before it."""
        plan, context = step.operator, self._context
        match plan:
            case ir.Scan():
                counts_only = step.counts_only and plan.variable not in step.needed
                return scan(plan, self._values, context, limit=step.limit, counts_only=counts_only)
            case ir.TypeUnionScan():
                return scan_union(plan, self._values, context, limit=step.limit)
            case ir.Outer():
                return _ONE_EMPTY_ROW
            case ir.Rank(input=ir.Scan() as nodes):
                before = self._is_cut
                rows = next(self._ranked_parts(plan, nodes, step.limit))
                self._is_cut = before  # nothing between the ranking and its limit drops a row
                return rows
            case ir.Limit() | ir.BestNodes():
                return self._first(step)
            case ir.Fuse():
                return self._fuse(plan, step.needed)
        raise AssertionError(f"{type(plan).__name__} is not a leaf")

    def _apply(self, step: Step, rows: Bindings) -> Bindings:
        """The rows of an operator over those of its input."""
        plan, needed, context = step.operator, step.needed, self._context
        match plan:
            case ir.Expand():
                return expand(plan, rows, needed, step.counts_only, context, step.values)
            case ir.ExpandWalk():
                from omnigraph.engine.query.operators.walks import expand_walk

                return expand_walk(plan, rows, needed, step.counts_only, context)
            case ir.PathExpand():
                from omnigraph.engine.query.operators.walks import path_expand

                return concatenate(list(path_expand(plan, rows, needed, step.counts_only, context)))
            case ir.Filter():
                return self._filter(plan, rows, step)
            case ir.CrossJoin():
                return self._cross(plan, rows, needed, step.counts_only)
            case ir.AntiJoin() | ir.SemiJoin() | ir.BlockJoin() | ir.OptionalJoin():
                return self._join(plan, rows, step)
            case ir.Unwind():
                return unwind(plan, rows, needed, step.counts_only, context)
            case ir.Bind():
                return bind(plan, rows, needed, context)
            case ir.Rank():
                return rank_rows(plan, rows, context)
            case ir.Sort():
                return sorted_rows(plan, rows, step.limit, context)
            case ir.Distinct():
                return distinct_rows([ir.as_variable(*each) for each in plan.variables], rows, context)
            case ir.Aggregate():
                return aggregate_rows(plan, rows, needed, context)
            case ir.Limit() | ir.BestNodes():
                with self._given(self._leaf_below(step).operator, rows):
                    return self._first(step)
            case ir.Fuse():
                shared = shared_operator(plan, needed)
                assert shared is not None
                with self._given(shared.operator, rows):
                    return self._fuse(plan, needed)
            case ir.UnionAll():
                others = (self.rows(part, needed).only(needed) for part in plan.inputs[1:])
                return concatenate([rows.only(needed), *others])
        raise AssertionError(f"{type(plan).__name__} takes no rows")

    @contextmanager
    def _given(self, leaf: ir.ReadOperator, rows: Bindings) -> Iterator[None]:
        """Meanwhile an operator has these rows, whatever it would do."""
        before = self._leaf_rows.get(id(leaf))
        self._leaf_rows[id(leaf)] = rows
        try:
            yield
        finally:
            if before is None:
                del self._leaf_rows[id(leaf)]
            else:
                self._leaf_rows[id(leaf)] = before

    def _first(self, step: Step) -> Bindings:
        """The rows that a limit, or the best nodes, take. An approximate ranking that was too short for that is made
        anew: a longer one may begin with other nodes."""
        plan, below, context = step.operator, input_below(step), self._context
        assert below is not None
        assert isinstance(plan, ir.Limit | ir.BestNodes)
        limit = rows_to_find(plan, context)
        before, mark = (self._is_cut, self._is_repeated), context.bound.mark()
        self._is_repeated = False
        while True:
            self._is_cut = False
            rows, is_full = self._take_first(step, self.pieces(below, limit=limit))
            if is_full or not self._is_cut or limit is None:
                self._is_cut, self._is_repeated = before
                return rows
            context.cancellation.check()
            context.bound.release(mark)
            limit, self._is_repeated = limit * _GROWTH, True

    def _take_first(self, step: Step, pieces: Iterator[Bindings]) -> tuple[Bindings, bool]:
        """The rows that a limit, or the best nodes, take of some pieces, and whether these are all that it may take. No
        more pieces are asked for than that takes."""
        plan, context = step.operator, self._context
        if isinstance(plan, ir.Limit):
            taken = take_limit(plan, pieces, step.needed, context)
            return taken, taken.length == row_count(plan.count, context)
        assert isinstance(plan, ir.BestNodes)
        count, parts = rows_to_find(plan, context), [no_rows(step.needed | {plan.variable})]
        # A piece holds whole nodes, so the last of them has all its rows.
        for rows in pieces:
            parts.append(rows)
            if count is not None and (best := best_nodes(concatenate(parts), plan.variable, count)) is not None:
                return best, True
        return concatenate(parts), False

    def _fuse(self, plan: ir.Fuse, needed: Needed) -> Bindings:
        both, count = needed | {plan.variable}, rows_to_find(plan, self._context)
        assert count is not None
        if not count:
            return no_rows(both)
        if ranked_scan(plan.first) is not None and ranked_scan(plan.second) is not None:
            first_arm, second_arm = (self._scan_arm(plan, arm, count) for arm in (plan.first, plan.second))
            return fuse_scans(plan, count, first_arm, second_arm, self._context)
        first, second = self.rows(plan.first, both), self.rows(plan.second, both)
        return fuse(plan, count, first.only(both), second.only(both), self._context)

    def _scan_arm(self, plan: ir.Fuse, arm: ir.ReadOperator, count: int) -> ScanArm:
        """An arm that is the ranking of a scan, run as far as the fusion needs it."""
        with self._context.profiler.operator(arm) as entry:
            if isinstance(arm, ir.BestNodes):
                ranked = self._scan_arm(plan, arm.input, count)
            else:
                assert isinstance(arm, ir.Rank)
                assert isinstance(arm.input, ir.Scan)
                candidates = self._candidates(arm, arm.input)
                if isinstance(arm.rank, ir.NearestRank):
                    from omnigraph.engine.query.search.approximation import vector_search

                    way = vector_search(arm.rank, count, candidates, self._context)
                    self._context.profiler.note(way.text)
                    candidates = way.candidates
                ranked = ScanArm(arm.rank, plan, count, candidates, self._context)
            entry.rows += ranked.beginning.row_ids.size
            return ranked

    # ---- joins ------------------------------------------------------------------------------------------

    def _cross(self, plan: ir.CrossJoin, left: Bindings, needed: Needed, counts_only: bool) -> Bindings:
        right = self._right(plan, needed, counts_only)
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

    def _right(self, plan: ir.CrossJoin, needed: Needed, counts_only: bool) -> Bindings:
        """The right side, which does not depend on the left one, so pieces of that share it."""
        right = self._right_rows.get(id(plan))
        if right is None:
            right = self._right_rows[id(plan)] = self.rows(plan.right, needed, counts_only=counts_only)
            self._context.bound.pin()
        return right

    def _filter(self, plan: ir.Filter, rows: Bindings, step: Step) -> Bindings:
        """The rows that pass. Those of a cross join are its left ones, which meet the right ones that agree in an
        equality of both sides."""
        equality, context = equality_of(plan), self._context
        if equality is None:
            return filter_rows(rows, plan.predicates, context)
        needed = step.needed | reads(plan.predicates)
        left = rows.only(needed)
        right = self._find_by_key(equality, left, needed, counts_only=step.counts_only)
        pairs = equal_pairs(equality.left, equality.right, left, right, context)
        return filter_rows(pairs, plan.predicates, context)

    def _find_by_key(self, equality: Equality, left: Bindings, needed: Needed, *, counts_only: bool) -> KeyedRows:
        """The right side of an equality: those rows of it that have a key of the left one, where these are few."""
        join, context = equality.join, self._context
        keyed = self._right_keys.get(id(join))
        nodes = row_wise_leaf(Step(join.right, needed)).operator
        if keyed is None and isinstance(nodes, ir.Scan):
            lookup = lookup_scan(nodes, equality.right, equality.left, left, context)
            if lookup is not None:
                with self._given(nodes, scan(lookup, self._values, context)):
                    right = self.rows(join.right, needed, counts_only=counts_only)
                return key_rows(equality.right, equality.left, right, context)
        if keyed is None:
            right = self._right(join, needed, counts_only)
            keyed = self._right_keys[id(join)] = key_rows(equality.right, equality.left, right, context)
        return keyed

    def _join(self, plan: Join, rows: Bindings, step: Step) -> Bindings:
        """Rows and the solutions of a block for each of them."""
        if isinstance(plan, ir.AntiJoin | ir.SemiJoin):
            if not rows.length:
                return rows
            assignments = assign(rows, plan.correlated, tag := f"#outer:{id(plan)}")
            solved = solved_rows(self._solve(plan, assignments, frozenset((tag,)), counts_only=True), assignments)
            return rows.where(solved if isinstance(plan, ir.SemiJoin) else ~solved)
        wanted = solution_variables(plan, step.needed)
        if not rows.length:
            own = wanted if isinstance(plan, ir.OptionalJoin) else {plan.output}
            return rows.binding(no_rows(own).rows)
        assignments = assign(rows, plan.correlated, tag := f"#outer:{id(plan)}")
        if isinstance(plan, ir.OptionalJoin):
            solutions = self._solve(plan, assignments, wanted | {tag}, counts_only=step.counts_only)
            return with_optional(plan, rows, solutions, assignments, step.needed, self._context)
        solutions = self._solve(plan, assignments, wanted | {tag}, counts_only=not shows_order(plan.aggregate))
        return with_block(plan, rows, solutions, assignments, self._context)

    def _solve(self, plan: Join, assignments: Assignments, needed: Needed, *, counts_only: bool) -> Bindings:
        """The solutions of a block, each with the tag of the assignment that it is for."""
        leaf = row_wise_leaf(Step(plan.inner, needed)).operator
        if not isinstance(leaf, ir.Outer):
            return self.rows(plan.inner, needed, counts_only=counts_only)
        with self._given(leaf, assignments.outer):
            return self.rows(plan.inner, needed, counts_only=counts_only)

    # ---- rankings ---------------------------------------------------------------------------------------

    def _ranked_parts(self, plan: ir.Rank, nodes: ir.Scan, limit: int | None) -> Iterator[Bindings]:
        """The nodes of a ranking in its order. With a limit as many at first, and more with every part: what is above
        may drop any of them, and takes what it needs. Together the parts are the whole ranking; an approximate one has
        a single part, and is made anew with a larger limit where that is not enough."""
        context = self._context
        near = self._near_nodes(plan, nodes, by_key=True)
        if near is None and self._is_repeated:
            near = self._near_nodes(plan, nodes, by_key=False)
        if near is not None:
            yield rank_scan(plan, None, Candidates(rows=near), context)
            return
        candidates = self._candidates(plan, nodes)
        if isinstance(plan.rank, ir.NearestRank):
            from omnigraph.engine.query.search.approximation import vector_search

            way = vector_search(plan.rank, limit, candidates, context)
            context.profiler.note(way.text)
            candidates = way.candidates
            if way.is_approximate:
                ranked = rank_scan(plan, limit, candidates, context)
                self._is_cut |= ranked.length == limit
                yield ranked
                return
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

    def _candidates(self, plan: ir.Rank, nodes: ir.Scan) -> Candidates:
        """What a ranking may choose from. One that counts words leaves out invisible rows by itself."""
        candidates = scan_candidates(nodes, self._context, visible_only=not isinstance(plan.rank, ir.Bm25Rank))
        if candidates.filter is not None:
            self._context.profiler.note(f"prefilter: {candidates.filter}")
        return candidates

    def _near_nodes(self, plan: ir.Rank, nodes: ir.Scan, *, by_key: bool) -> RowIds | None:
        """All nodes of a ranking that can have rows, found from another variable; None when that is not worth it. It is
        when few nodes of that variable satisfy its predicates: with `by_key` a single one, which its key names, else a
        small share, for which they are asked."""
        context = self._context
        total = context.table(nodes.type).state.rows
        for start in plan.starts:
            root = row_wise_leaf(Step(start, frozenset())).operator
            assert isinstance(root, ir.Scan)
            if names_one_node(root) is not by_key:
                continue
            few = total // _FEW_SHARE
            roots = scan(root, self._values, context, limit=None if by_key else few + 1)
            if not by_key and roots.length > few:
                continue
            with self._given(root, roots):
                reached = self.rows(start, {nodes.variable}, counts_only=True).rows[nodes.variable]
            near = distinct(reached)
            if len(near) * _WHOLE_SHARE <= total:
                context.profiler.note(f"candidates: {len(near)} nodes, reached from ${root.variable}")
                return near
        return None

    # ---- pieces -----------------------------------------------------------------------------------------

    def pieces(
        self, step: Step, *, limit: int | None = None, passing: bool = False, streams: bool = True
    ) -> Iterator[Bindings]:
        """The rows of an operator, at least one piece, each binding just what is needed. Where every operator below
        treats rows one by one, the rows of the leaf go through in pieces. `limit` is how many rows may turn out to be
        enough. With `passing`, nobody keeps a piece beyond the next one, so what it bound is forgotten. With `streams`,
        the uppermost operator that makes many rows of one gives them bit by bit."""
        leaf = row_wise_leaf(step, self._leaf_rows, streams=streams)
        alone = leaf.operator is step.operator
        for whole in self._leaf_parts(leaf, limit, alone=alone, passing=passing):
            if alone:
                yield whole.only(step.needed)
            else:
                yield from self._through(step, leaf.operator, whole, share=limit is None, passing=passing)
        self._context.share = 1.0

    def _through(
        self, step: Step, leaf: ir.ReadOperator, whole: Bindings, *, share: bool, passing: bool
    ) -> Iterator[Bindings]:
        """The rows of an operator over pieces of those of a leaf."""
        bound, work = self._context.bound, self._context.work
        start, size, most = 0, _FIRST_PIECE, _PIECE
        while True:
            piece, mark, spent = whole.slice(start, start + size), bound.mark(), work.spent
            if share and whole.length:
                self._context.share = piece.length / whole.length
            try:
                with self._given(leaf, piece):
                    # An operator without rows may bind more than it does with some, and pieces are put together.
                    rows = self.rows(step.operator, step.needed).only(step.needed)
            except ResourceLimitError as error:
                if piece.length <= 1 or error.resource != "query_memory_bytes":
                    raise
                # Rows may become any number of rows, and values be of any size: fewer of them may fit.
                bound.release(mark)
                work.spent = spent
                size = most = max(1, piece.length // _GROWTH)
                continue
            yield rows
            if passing:
                bound.release(mark)
            # As many rows come out of a piece as may go in, however many each of them becomes.
            start += size
            size = min(most, size * _GROWTH, max(1, piece.length * _PIECE // max(1, rows.length)))
            if start >= whole.length:
                return

    def _leaf_parts(self, leaf: Step, limit: int | None, *, alone: bool, passing: bool) -> Iterator[Bindings]:
        """The rows of the leaf of row-wise operators: all at once, or one input after the other, or as many as a limit
        turns out to need."""
        plan = leaf.operator
        if id(plan) in self._leaf_rows:
            yield self._leaf_rows[id(plan)]
        elif isinstance(plan, ir.UnionAll):
            inputs = (Step(part, leaf.needed) for part in plan.inputs)
            parts = (piece for part in inputs for piece in self.pieces(part, limit=limit, passing=passing))
            yield from self._measure(plan, parts)
        elif isinstance(plan, ir.PathExpand):
            from omnigraph.engine.query.operators.walks import path_expand

            below = row_wise_input(leaf)
            assert below is not None
            for rows in self.pieces(below, limit=limit, passing=passing, streams=False):
                mark = self._context.bound.mark()
                for part in self._measure(plan, path_expand(plan, rows, leaf.needed, False, self._context)):
                    yield part
                    if passing:
                        self._context.bound.release(mark)
        elif limit is not None and not alone and isinstance(plan, ir.Rank) and isinstance(plan.input, ir.Scan):
            yield from self._measure(plan, self._ranked_parts(plan, plan.input, limit))
        else:
            yield self.rows(plan, leaf.needed, limit=limit if alone else None)

    def _measure(self, plan: ir.ReadOperator, parts: Iterator[Bindings]) -> Iterator[Bindings]:
        """The parts of the rows of an operator, each measured while it is made."""
        while True:
            with self._context.profiler.operator(plan) as entry:
                part = next(parts, None)
                if part is None:
                    return
                self._context.budget.step(part.nbytes)
                entry.rows += part.length
            yield part
