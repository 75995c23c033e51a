"""From the clauses of a match to the operators that yield its rows.

Clauses form a conjunction, so their order carries no meaning: traversals fall into connected groups, each group is a
scan followed by expansions, groups meet in cross joins, and a predicate runs as soon as its variables exist. Only
optional blocks have an order (`phases`). A block is a plan of its own with the outer row as its leaf; one that is a
value is computed right before the operator that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, TypeAlias

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.groups import Frontier, Group, connected_groups, expand
from omnigraph.language.query.lower.mentions import Blocks
from omnigraph.language.query.lower.phases import phases
from omnigraph.language.query.lower.predicates import Pending, restatement_tests, scan_of, split_filters
from omnigraph.language.query.value_types import EntityType, ValueType

SingleRank: TypeAlias = ir.NearestRank | ir.Bm25Rank

_MOST_STARTS: Final = 4


class Match:
    """The rows of a match while they grow: `plan` yields them (None: one empty row), `bound` is what they bind.

    `imported` are the variables that the rows below bind, as they bind them; `variables` all that the match mentions.
    """

    def __init__(
        self,
        blocks: Blocks,
        variables: Mapping[str, ValueType],
        plan: ir.ReadOperator | None = None,
        imported: Mapping[str, ValueType] | None = None,
    ) -> None:
        self._blocks = blocks
        self._plan = plan
        self.bound = set(imported or ())
        self._types = {**variables, **imported} if imported else variables
        self._rank: SingleRank | None = None

    @property
    def plan(self) -> ir.ReadOperator:
        """The rows so far. Each leaf is an object of its own: an executor tells operators apart by identity."""
        if self._plan is None:
            self._plan = ir.Outer(())
        return self._plan

    def branch(self) -> Match:
        """Another match over the same rows."""
        other = copy(self)
        other.bound = set(self.bound)
        return other

    def type_of(self, variable: str) -> ValueType:
        return self._types[variable]

    def put_on_top(self, plan: ir.ReadOperator, bound: Iterable[str] | None = None) -> None:
        """Go on with other rows, made from those so far. `bound` is what they bind, when that is something else."""
        self._plan = plan
        if bound is not None:
            self.bound = set(bound)

    # ---- clauses ----------------------------------------------------------------------------------------

    def add(self, clauses: Sequence[resolved.Clause], rank: SingleRank | None = None) -> None:
        """Extend the rows by all their matches, in the order of `rank` if there is one."""
        self._rank = rank
        clauses = split_filters(clauses)
        optional = [clause for clause in clauses if isinstance(clause, resolved.OptionalBlock)]
        if not optional:
            self._require(clauses)
        else:
            introduced = {name: type_ for block in optional for name, type_ in self._new_variables(block)}
            self._types = {**self._types, **introduced}
            ranked = None if rank is None else rank.field.variable
            first, *later = phases(clauses, self.bound, ranked, self._blocks.in_clause)
            self._require(first)
            for block, required in zip(optional, later, strict=True):
                self._join_optional(block)
                self._require(required)
        if self._rank is not None:
            self._plan = ir.Rank(self.plan, self._rank)

    def unwind(self, unwind: resolved.Unwind) -> None:
        self.compute((unwind.items,))
        self._plan = ir.Unwind(self.plan, unwind.items, unwind.variable, unwind.type)
        self.bound.add(unwind.variable)

    def _require(self, clauses: Sequence[resolved.Clause]) -> None:
        predicates = Pending(self._predicates(clauses))
        groups = connected_groups(clauses, self.bound)
        if self._plan is not None and self.bound:
            self._filter(predicates.take(self.bound, self.bound))
            for group in [group for group in groups if group.begins_at(self.bound)]:
                groups.remove(group)
                self._plan = self._expand_all(self.plan, group, self.bound, predicates)
        ranked = None if self._rank is None else self._rank.field.variable
        roots = [(group.root(), group) for group in groups]
        # The ranked group leads: a cross join keeps the order of its left side.
        for root, group in sorted(roots, key=lambda pair: pair[0] != ranked):
            self._add_group(root, group, predicates, clauses)
        # What mentions no variable is true for every row or for none.
        self._filter(predicates.take_constant())
        assert not predicates, "the checker lets no clause mention what the match does not bind"
        self._test_blocks(clauses)

    def _predicates(self, clauses: Iterable[resolved.Clause]) -> Iterator[ir.Predicate]:
        """The conditions that need no block."""
        for clause in clauses:
            if isinstance(clause, resolved.Binding):
                yield from restatement_tests(clause, self._types.get(clause.variable))
                yield from clause.pins
            elif isinstance(clause, resolved.Filter) and not self._blocks.within(clause.predicate):
                yield clause.predicate

    def _filter(self, predicates: Sequence[ir.Predicate]) -> None:
        if predicates:
            self._plan = _filter(self.plan, predicates)

    # ---- groups -----------------------------------------------------------------------------------------

    def _add_group(self, root: str, group: Group, predicates: Pending, clauses: Sequence[resolved.Clause]) -> None:
        rows, leads = self._scan(root, group, predicates), False
        if self._rank is not None and root == self._rank.field.variable:
            starts = self._starts(clauses, root, group) if isinstance(rows, ir.Scan) else ()
            rows, leads, self._rank = ir.Rank(rows, self._rank, tuple(starts)), True, None
        local = {root}
        rows = self._expand_all(rows, group, local, predicates)
        self.bound |= local
        if self._plan is None:
            self._plan = rows
            return
        self._plan = ir.CrossJoin(rows, self._plan) if leads else ir.CrossJoin(self._plan, rows)
        self._filter(predicates.take(local, self.bound))

    def _scan(self, variable: str, group: Group, predicates: Pending) -> ir.ReadOperator:
        type_ = self._types.get(variable)
        members: tuple[NodeType, ...] = group.variables[variable]
        if isinstance(type_, EntityType):
            members = tuple(member for member in type_.members if isinstance(member, NodeType))
        return scan_of(variable, members, predicates.take_only(variable))

    def _expand_all(self, rows: ir.ReadOperator, group: Group, bound: set[str], predicates: Pending) -> ir.ReadOperator:
        """Walk every traversal of a group from what is bound; `bound` grows along the way. Where nothing leads on, a
        variable that another traversal waits for is scanned."""
        frontier = Frontier(group, bound)
        while True:
            if (way := frontier.next_way()) is not None:
                fresh = way.fresh(bound)
                rows = _filter(expand(rows, way, bound, predicates), predicates.take(fresh, bound))
                frontier.reach(fresh)
            elif (root := frontier.missing_root()) is not None:
                scan = self._scan(root, group, predicates)
                bound.add(root)
                rows = _filter(ir.CrossJoin(rows, scan), predicates.take((root,), bound))
                frontier.reach((root,))
            else:
                return rows

    def _starts(self, clauses: Sequence[resolved.Clause], ranked: str, group: Group) -> Iterator[ir.ReadOperator]:
        """The traversals of a group begun at others of its variables that have predicates: first those which an
        equality mentions. Only a few, because each is a plan as large as the group."""
        if any(way.is_one_way or way.needs for way in group.ways):
            return
        own: dict[str, list[ir.Predicate]] = {}
        for predicate in self._predicates(clauses):
            names = ir.predicate_variables(predicate)
            if len(names) == 1 and not names.isdisjoint(group.variables) and ranked not in names:
                own.setdefault(next(iter(names)), []).append(predicate)

        def has_equality(variable: str) -> bool:
            return any(isinstance(p, ir.Compare) and p.operator is ir.Operator.EQUAL for p in own[variable])

        for variable in sorted(own, key=has_equality, reverse=True)[:_MOST_STARTS]:
            predicates = Pending(self._predicates(clauses))
            scan = self._scan(variable, group, predicates)
            if isinstance(scan, ir.Scan):
                yield self._expand_all(scan, group, {variable}, predicates)

    # ---- blocks -----------------------------------------------------------------------------------------

    def _test_blocks(self, clauses: Iterable[resolved.Clause]) -> None:
        """The conditions that need a block: as joins where the block is the whole condition."""
        tests: list[ir.Predicate] = []
        for clause in clauses:
            if isinstance(clause, resolved.Negation):
                inner, correlated = self._inner(clause.clauses, clause.variables)
                self._plan = ir.AntiJoin(self.plan, inner.plan, correlated)
            elif isinstance(clause, resolved.Filter) and self._blocks.within(clause.predicate):
                match clause.predicate:
                    case ir.VariableValue() as exists if self._is_exists(exists):
                        self._plan = ir.SemiJoin(self.plan, *self._inner_of_block(exists.variable))
                    case ir.Not(operand=ir.VariableValue() as exists) if self._is_exists(exists):
                        self._plan = ir.AntiJoin(self.plan, *self._inner_of_block(exists.variable))
                    case predicate:
                        tests.append(predicate)
        for test in tests:
            self.compute((test,))
            self._filter((test,))

    def compute(self, values: Iterable[ir.Value]) -> None:
        """Bind the blocks that the values read."""
        for value in values:
            for name in self._blocks.within(value):
                if name not in self.bound:
                    inner, correlated = self._inner_of_block(name)
                    self._plan = ir.BlockJoin(self.plan, inner, correlated, name, self._blocks[name].aggregate)
                    self.bound.add(name)

    def _is_exists(self, value: ir.VariableValue) -> bool:
        return value.variable in self._blocks and self._blocks[value.variable].aggregate is None

    def _join_optional(self, block: resolved.OptionalBlock) -> None:
        inner, correlated = self._inner(block.clauses, block.variables)
        introduced = self._new_variables(block)
        self._plan = ir.OptionalJoin(self.plan, inner.plan, correlated, introduced)
        self.bound.update(name for name, _ in introduced)

    def _new_variables(self, block: resolved.OptionalBlock) -> tuple[tuple[str, ValueType], ...]:
        """The variables that an optional block adds. Within a negation a variable may turn out to be bound outside,
        further down."""
        return tuple((name, type_) for name, type_ in block.introduced if name not in self.bound)

    def _inner_of_block(self, name: str) -> tuple[ir.ReadOperator, tuple[str, ...]]:
        block = self._blocks[name]
        inner, correlated = self._inner(block.clauses, block.variables, self._blocks.read_by(name))
        if block.aggregate is not None:
            inner.compute((block.aggregate,))
        return inner.plan, correlated

    def _inner(
        self,
        clauses: Sequence[resolved.Clause],
        variables: Mapping[str, ValueType],
        mentioned: Iterable[str] | None = None,
    ) -> tuple[Match, tuple[str, ...]]:
        """The match of a block over the outer row, and the variables that it reads of it."""
        names = self._blocks.in_clauses(clauses) if mentioned is None else mentioned
        correlated = tuple(sorted(self.bound.intersection(names)))
        imported = {name: self._types[name] for name in correlated if name in self._types}
        inner = Match(self._blocks, variables, ir.Outer(correlated), imported)
        inner.bound.update(correlated)
        inner.add(clauses)
        return inner, correlated


def _filter(rows: ir.ReadOperator, predicates: Sequence[ir.Predicate]) -> ir.ReadOperator:
    return ir.Filter(rows, tuple(predicates)) if predicates else rows
