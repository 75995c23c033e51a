"""Turns the clauses of a `match` into an operator tree.

Clauses form a conjunction, so their order carries no meaning here: traversals fall into connected groups, each
group is a scan followed by expansions, groups meet in cross joins, and a predicate runs as soon as its variables
exist. Called by `lower` for the outer match; negations come back here, the outer row being their first leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

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


def lower_match(
    clauses: Sequence[ResolvedClause], rank: SingleRank | None = None, keep: int | None = None
) -> ir.ReadOperator:
    """The rows of a match, in the order of `rank` when one is given; `keep` bounds a ranked scan."""
    return _conjunction(clauses, (), rank, keep)


def refused_filters(clauses: Iterable[ResolvedClause]) -> Iterator[Refused]:
    """The filters that typecheck and can't run, at any depth."""
    for clause in clauses:
        if isinstance(clause, ResolvedFilter) and isinstance(clause.predicate, Refused):
            yield clause.predicate
        elif isinstance(clause, ResolvedNegation):
            yield from refused_filters(clause.clauses)


def _conjunction(
    clauses: Sequence[ResolvedClause], outer: tuple[str, ...], rank: SingleRank | None, keep: int | None
) -> ir.ReadOperator:
    predicates = _Pending(_predicates(clauses))
    groups = _groups(clauses, outer)
    ranked = None if rank is None else rank.field.variable
    tree: ir.ReadOperator | None = None
    bound = set(outer)
    if outer:
        tree = _filtered(ir.Outer(outer), predicates.take(bound))
        for group in [group for group in groups if not bound.isdisjoint(group.variables)]:
            groups.remove(group)
            tree = _expand_all(tree, group, bound, predicates)
    # The ranked group leads: a cross join keeps the order of its left side.
    groups.sort(key=lambda group: group.root != ranked)
    for group in groups:
        root = group.root
        rows: ir.ReadOperator = ir.Scan(root, group.variables[root], tuple(predicates.take({root})))
        if rank is not None and root == ranked:
            rows, rank = ir.Rank(rows, rank, keep), None
        local = {root}
        rows = _expand_all(rows, group, local, predicates)
        bound |= local
        tree = rows if tree is None else _filtered(ir.CrossJoin(tree, rows), predicates.take(bound))
    # Without anything to scan there is one row: a match of filters over parameters is true once, or never.
    tree = _filtered(tree or ir.Outer(()), predicates.rest())
    for clause in clauses:
        if isinstance(clause, ResolvedNegation):
            correlated = tuple(sorted(bound & _mentioned(clause.clauses)))
            tree = ir.AntiJoin(tree, _conjunction(clause.clauses, correlated, None, None), correlated)
    return tree if rank is None else ir.Rank(tree, rank, None)


def _filtered(tree: ir.ReadOperator, predicates: Sequence[ir.Predicate]) -> ir.ReadOperator:
    return ir.Filter(tree, tuple(predicates)) if predicates else tree


# ---- predicates -----------------------------------------------------------------------------------------


class _Pending:
    """Predicates waiting for their variables."""

    def __init__(self, predicates: Iterable[ir.Predicate]) -> None:
        self._waiting = [(predicate, ir.predicate_variables(predicate)) for predicate in predicates]

    def take(self, bound: AbstractSet[str]) -> list[ir.Predicate]:
        """Those that speak of something, and only of what is bound."""
        ready = [predicate for predicate, names in self._waiting if names and names <= bound]
        self._waiting = [(p, names) for p, names in self._waiting if not names or not names <= bound]
        return ready

    def rest(self) -> list[ir.Predicate]:
        """What speaks of no variable decides about every row alike."""
        return [predicate for predicate, _ in self._waiting]


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
    """Walk every traversal of a group from what is bound; `bound` grows along the way."""
    pending = list(group.traversals)
    while pending:
        traversal = _next_traversal(pending, bound)
        pending.remove(traversal)
        tree = _expand(tree, traversal, bound, predicates)
        tree = _filtered(tree, predicates.take(bound))
    return tree


def _next_traversal(pending: Sequence[ResolvedTraversal], bound: AbstractSet[str]) -> ResolvedTraversal:
    """A test before an expansion, because it can only remove rows; otherwise the first that can start."""
    for traversal in pending:
        if traversal.source in bound and traversal.destination in bound:
            return traversal
    return next(t for t in pending if t.source in bound or t.destination in bound)


def _expand(
    tree: ir.ReadOperator, traversal: ResolvedTraversal, bound: set[str], predicates: _Pending
) -> ir.Expand:
    source, destination, end = traversal.source, traversal.destination, traversal.destination_type
    direction = traversal.direction
    closing = source in bound and destination in bound
    if source not in bound:
        source, destination, end = destination, source, traversal.source_type
        direction = direction.flipped
    own = predicates.take({destination})
    bound.add(destination)
    if traversal.edge_variable is not None:
        own += predicates.take({traversal.edge_variable})
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
