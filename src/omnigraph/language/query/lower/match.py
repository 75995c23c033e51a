"""Turns the clauses of a `match` into an operator tree.

Clauses form a conjunction, so their order carries no meaning here: traversals fall into connected groups, each
group is a scan followed by expansions, groups meet in cross joins, and a predicate runs as soon as its variables
exist. Called by `lower` for the outer match; negations come back here, the outer row being their first leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import Final

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.resolved import (
    Refused,
    ResolvedBinding,
    ResolvedClause,
    ResolvedFilter,
    ResolvedNegation,
    ResolvedTraversal,
)

SingleRank = ir.NearestRank | ir.Bm25Rank

_MOST_STARTS: Final = 4


def lower_match(clauses: Sequence[ResolvedClause], rank: SingleRank | None = None) -> ir.ReadOperator:
    """The rows of a match, in the order of `rank` when one is given."""
    return _conjunction(clauses, (), rank)


def refused_filters(clauses: Iterable[ResolvedClause]) -> Iterator[Refused]:
    """The filters that typecheck and can't run, at any depth."""
    for clause in clauses:
        if isinstance(clause, ResolvedFilter) and isinstance(clause.predicate, Refused):
            yield clause.predicate
        elif isinstance(clause, ResolvedNegation):
            yield from refused_filters(clause.clauses)


def _conjunction(clauses: Sequence[ResolvedClause], outer: tuple[str, ...], rank: SingleRank | None) -> ir.ReadOperator:
    predicates = _Pending(_predicates(clauses))
    groups = _groups(clauses, outer)
    ranked = None if rank is None else rank.field.variable
    tree: ir.ReadOperator | None = None
    bound = set(outer)
    if outer:
        tree = _filtered(ir.Outer(outer), predicates.take(outer, bound))
        for group in [group for group in groups if not bound.isdisjoint(group.variables)]:
            groups.remove(group)
            tree = _expand_all(tree, group, bound, predicates)
    # The ranked group leads: a cross join keeps the order of its left side.
    groups.sort(key=lambda group: group.root != ranked)
    for group in groups:
        root = group.root
        rows: ir.ReadOperator = ir.Scan(root, group.variables[root], tuple(predicates.take_only(root)))
        if rank is not None and root == ranked:
            rows, rank = ir.Rank(rows, rank, tuple(_starts(clauses, group))), None
        local = {root}
        rows = _expand_all(rows, group, local, predicates)
        bound |= local
        tree = rows if tree is None else _filtered(ir.CrossJoin(tree, rows), predicates.take(local, bound))
    # Without anything to scan there is one row: a match of filters over parameters is true once, or never.
    tree = _filtered(tree or ir.Outer(()), predicates.rest())
    for clause in clauses:
        if isinstance(clause, ResolvedNegation):
            correlated = tuple(sorted(bound & _mentioned(clause.clauses)))
            tree = ir.AntiJoin(tree, _conjunction(clause.clauses, correlated, None), correlated)
    return tree if rank is None else ir.Rank(tree, rank)


def _starts(clauses: Sequence[ResolvedClause], group: _Group) -> Iterator[ir.ReadOperator]:
    """The traversals of a group begun at others of its variables that have predicates: first those of which an equality
    speaks. Only a few, because each is a plan as large as the group."""
    own: dict[str, list[ir.Predicate]] = {}
    for predicate in _predicates(clauses):
        names = ir.predicate_variables(predicate)
        if len(names) == 1 and not names.isdisjoint(group.variables) and group.root not in names:
            own.setdefault(next(iter(names)), []).append(predicate)
    for variable in sorted(own, key=lambda name: not any(map(_is_equality, own[name])))[:_MOST_STARTS]:
        predicates = _Pending(_predicates(clauses))
        root = ir.Scan(variable, group.variables[variable], tuple(predicates.take_only(variable)))
        yield _expand_all(root, group, {variable}, predicates)


def _is_equality(predicate: ir.Predicate) -> bool:
    return isinstance(predicate, ir.Compare) and predicate.operator is ir.Operator.EQUAL


def _filtered(tree: ir.ReadOperator, predicates: Sequence[ir.Predicate]) -> ir.ReadOperator:
    return ir.Filter(tree, tuple(predicates)) if predicates else tree


# ---- predicates -----------------------------------------------------------------------------------------


class _Pending:
    """Predicates waiting for their variables, found by the variable that came last."""

    def __init__(self, predicates: Iterable[ir.Predicate]) -> None:
        self._waiting: dict[int, tuple[ir.Predicate, frozenset[str]]] = {}
        self._mentioning: dict[str, list[int]] = {}
        for i, predicate in enumerate(predicates):
            names = ir.predicate_variables(predicate)
            self._waiting[i] = (predicate, names)
            for name in names:
                self._mentioning.setdefault(name, []).append(i)

    def take(self, fresh: Iterable[str], bound: AbstractSet[str]) -> list[ir.Predicate]:
        """Those that speak of something `fresh` and of nothing that is not bound, in source order."""
        candidates = {i for name in fresh for i in self._mentioning.get(name, ()) if i in self._waiting}
        ready = sorted(i for i in candidates if self._waiting[i][1] <= bound)
        return [self._waiting.pop(i)[0] for i in ready]

    def take_only(self, variable: str) -> list[ir.Predicate]:
        """Those that speak of this variable alone."""
        return self.take((variable,), {variable})

    def rest(self) -> list[ir.Predicate]:
        """What speaks of no variable decides about every row alike."""
        return [predicate for predicate, _ in self._waiting.values()]


def _predicates(clauses: Iterable[ResolvedClause]) -> Iterator[ir.Predicate]:
    for clause in clauses:
        match clause:
            case ResolvedBinding():
                yield from clause.pins
            case ResolvedFilter(predicate=ir.Compare() | ir.TextMatch() as predicate):
                yield predicate


def _mentioned(clauses: Iterable[ResolvedClause]) -> set[str]:
    """Every variable that the clauses of a negation speak of, at any depth."""
    found: set[str] = set()
    for clause in clauses:
        match clause:
            case ResolvedBinding():
                found.add(clause.variable)
            case ResolvedTraversal():
                found |= {clause.source, clause.destination}
            case ResolvedFilter(predicate=ir.Compare() | ir.TextMatch() as predicate):
                found |= ir.predicate_variables(predicate)
            case ResolvedNegation():
                found |= _mentioned(clause.clauses)
    return found


# ---- groups ---------------------------------------------------------------------------------------------


class _Group:
    """Variables that traversals connect, with the traversals that do it, in source order."""

    def __init__(self) -> None:
        self.variables: dict[str, NodeType] = {}
        self.traversals: list[ResolvedTraversal] = []
        self.bindings: list[str] = []

    @property
    def root(self) -> str:
        """The first bound variable; a group without a binding starts where its first traversal does."""
        return self.bindings[0] if self.bindings else self.traversals[0].source


def _groups(clauses: Sequence[ResolvedClause], outer: tuple[str, ...]) -> list[_Group]:
    """The connected groups, by their first clause."""
    leader = _connected(clauses)
    groups: dict[str, _Group] = {}
    for clause in clauses:
        if isinstance(clause, ResolvedBinding):
            group = groups.setdefault(leader[clause.variable], _Group())
            group.variables[clause.variable] = clause.type
            group.bindings.append(clause.variable)
        elif isinstance(clause, ResolvedTraversal):
            group = groups.setdefault(leader[clause.source], _Group())
            group.variables[clause.source] = clause.source_type
            group.variables[clause.destination] = clause.destination_type
            group.traversals.append(clause)
    # A binding that only restates an outer variable has nothing to scan.
    return [g for g in groups.values() if g.traversals or not g.variables.keys() <= set(outer)]


def _connected(clauses: Iterable[ResolvedClause]) -> dict[str, str]:
    """Each variable with the representative of its group (union-find with path halving)."""
    parent: dict[str, str] = {}

    def find(variable: str) -> str:
        parent.setdefault(variable, variable)
        while parent[variable] != variable:
            parent[variable] = parent[parent[variable]]
            variable = parent[variable]
        return variable

    for clause in clauses:
        if isinstance(clause, ResolvedBinding):
            find(clause.variable)
        elif isinstance(clause, ResolvedTraversal):
            parent[find(clause.destination)] = find(clause.source)
    return {variable: find(variable) for variable in parent}


def _expand_all(tree: ir.ReadOperator, group: _Group, bound: set[str], predicates: _Pending) -> ir.ReadOperator:
    """Walk every traversal of a group from what is bound; `bound` grows along the way.

    A test goes before an expansion, because it can only remove rows; otherwise source order decides.
    """
    touching: dict[str, list[int]] = {}
    for i, traversal in enumerate(group.traversals):
        for variable in {traversal.source, traversal.destination}:
            touching.setdefault(variable, []).append(i)
    ready: list[tuple[bool, int]] = []
    pending = dict(enumerate(group.traversals))

    def make_ready(variable: str) -> None:
        for i in touching.get(variable, ()):
            traversal = group.traversals[i]
            opens = not {traversal.source, traversal.destination} <= bound
            heappush(ready, (opens, i))

    for variable in group.variables.keys() & bound:
        make_ready(variable)
    while pending:
        _, i = heappop(ready)
        if i not in pending:
            continue
        expand = _expand(tree, pending.pop(i), bound, predicates)
        fresh = {expand.destination, expand.edge_variable or expand.destination}
        tree = _filtered(expand, predicates.take(fresh, bound))
        if not expand.closing:
            make_ready(expand.destination)
    return tree


def _expand(tree: ir.ReadOperator, traversal: ResolvedTraversal, bound: set[str], predicates: _Pending) -> ir.Expand:
    source, destination, end = traversal.source, traversal.destination, traversal.destination_type
    direction = traversal.direction
    closing = source in bound and destination in bound
    if source not in bound:
        source, destination, end = destination, source, traversal.source_type
        direction = direction.flipped
    own = predicates.take_only(destination)
    bound.add(destination)
    if traversal.edge_variable is not None:
        own += predicates.take_only(traversal.edge_variable)
        bound.add(traversal.edge_variable)
    return ir.Expand(
        input=tree,
        source=source,
        edge=traversal.edge,
        direction=direction,
        min_hops=traversal.min_hops,
        max_hops=traversal.max_hops,
        destination=destination,
        destination_type=end,
        edge_variable=traversal.edge_variable,
        closing=closing,
        predicates=tuple(own),
    )
