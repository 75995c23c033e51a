"""The variables of a match that its traversals connect, and the ways from one to the next.

A traversal is a `Way` between two variables. Most can be walked from either end; one that binds a path or tests the
nodes it passes only from its source, and one whose conditions read other variables only after those are bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

from msgspec.structs import replace

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.predicates import Pending

_TRAVERSALS = (resolved.Traversal, resolved.WalkTraversal)


class Way:
    """One traversal of a group. `also_binds` is the edge variable or path that it binds beside its ends.

    `needs` are variables of other clauses that the conditions on its hops read. `reads_imported`: they also read some
    that the rows below bind.
    """

    __slots__ = ("also_binds", "clause", "destination", "is_one_way", "needs", "reads_imported", "source")

    def __init__(self, clause: resolved.Traversal | resolved.WalkTraversal, bound: AbstractSet[str]) -> None:
        self.clause = clause
        self.also_binds = clause.edge_variable
        self.needs: frozenset[str] = frozenset()
        self.is_one_way = self.reads_imported = False
        if isinstance(clause, resolved.Traversal):
            self.source, self.destination = clause.source, clause.destination
            return
        walk = clause.walk
        self.source, self.destination = walk.source, walk.destination
        if clause.path is not None:
            self.also_binds, self.is_one_way = clause.path, True
        if walk.each is not None:
            names = {name for test in walk.each.conditions for name in ir.variables_of(test)}
            self.is_one_way |= walk.each.node in names
            self.needs = frozenset(names - {walk.each.edge, walk.each.node} - bound)
            self.reads_imported = not names.isdisjoint(bound)

    @property
    def end_types(self) -> tuple[tuple[NodeType, ...], tuple[NodeType, ...]]:
        """The types of the source and of the destination."""
        clause = self.clause
        if isinstance(clause, resolved.Traversal):
            return (clause.source_type,), (clause.destination_type,)
        return clause.walk.source_members, clause.walk.destination_members

    def fresh(self, bound: AbstractSet[str]) -> list[str]:
        """The variables that it binds and that are not bound yet."""
        names = {self.source, self.destination, self.also_binds} - bound
        return [name for name in names if name is not None]

    def can_begin(self, bound: AbstractSet[str]) -> bool:
        if self.source not in bound and (self.is_one_way or self.destination not in bound):
            return False
        return self.needs <= bound


class Group:
    """Variables that traversals connect, with the types of each, and the traversals that do it, in source order."""

    def __init__(self) -> None:
        self.variables: dict[str, tuple[NodeType, ...]] = {}
        self.ways: list[Way] = []
        self.bindings: list[str] = []

    @property
    def has_one_way(self) -> bool:
        return any(way.is_one_way for way in self.ways)

    def begins_at(self, bound: AbstractSet[str]) -> bool:
        """Whether its traversals begin at rows that bind these variables, or read them on their way."""
        return not bound.isdisjoint(self.variables) or any(way.reads_imported for way in self.ways)

    def root(self) -> str:
        """The first binding, of those from which every traversal can be walked if there are any; a group without a
        binding starts where its first traversal does."""
        starts = [*self.bindings, *(way.source for way in self.ways)]
        if self.has_one_way:
            starts = [variable for variable in starts if Frontier(self, {variable}).covers_all()] or starts
        return starts[0]


class Frontier:
    """The ways of a group that are still to be walked, while `bound` grows.

    A test goes before an expansion, because it can only remove rows; otherwise source order decides.
    """

    def __init__(self, group: Group, bound: set[str]) -> None:
        self._group = group
        self._bound = bound
        self._waiting = dict(enumerate(group.ways))
        self._touching: dict[str, list[int]] = {}
        for i, way in self._waiting.items():
            for variable in {way.source, way.destination, *way.needs}:
                self._touching.setdefault(variable, []).append(i)
        self._ready: list[tuple[bool, int]] = []
        self.reach(self._touching.keys() & bound)

    def reach(self, variables: Iterable[str]) -> None:
        """These variables have become bound."""
        bound = self._bound
        for variable in variables:
            for i in self._touching.get(variable, ()):
                way = self._waiting.get(i)
                if way is not None and way.can_begin(bound):
                    is_expansion = way.source not in bound or way.destination not in bound
                    heappush(self._ready, (is_expansion, i))

    def next_way(self) -> Way | None:
        """The way to walk now; None when every one that is left waits for a variable."""
        while self._ready:
            _, i = heappop(self._ready)
            if (way := self._waiting.pop(i, None)) is not None:
                return way
        return None

    def missing_root(self) -> str | None:
        """A variable that no way leads to and another one waits for; None when all ways are walked."""
        if not self._waiting:
            return None
        waiting = self._waiting.values()
        # A traversal may even wait for its own destination.
        starts = (*self._group.bindings, *(way.source for way in waiting), *(way.destination for way in waiting))
        return next(variable for variable in starts if variable not in self._bound)

    def covers_all(self) -> bool:
        """Whether every way can be walked from here on. They count as walked then."""
        while (way := self.next_way()) is not None:
            fresh = way.fresh(self._bound)
            self._bound.update(fresh)
            self.reach(fresh)
        return not self._waiting


def connected_groups(clauses: Sequence[resolved.Clause], bound: AbstractSet[str]) -> list[Group]:
    """The connected groups, by their first clause. `bound` are the variables that the match is given."""
    ways = [Way(clause, bound) if isinstance(clause, _TRAVERSALS) else None for clause in clauses]
    leader = _leaders(clauses, ways)
    groups: dict[str, Group] = {}
    for clause, way in zip(clauses, ways, strict=True):
        if way is not None:
            group = groups.setdefault(leader[way.source], Group())
            group.variables[way.source], group.variables[way.destination] = way.end_types
            group.ways.append(way)
        elif isinstance(clause, resolved.Binding):
            group = groups.setdefault(leader[clause.variable], Group())
            group.variables[clause.variable] = clause.types
            group.bindings.append(clause.variable)
    # A binding that only restates a bound variable has nothing to scan.
    return [group for group in groups.values() if group.ways or not group.variables.keys() <= bound]


def _leaders(clauses: Sequence[resolved.Clause], ways: Sequence[Way | None]) -> dict[str, str]:
    """Each variable with the representative of its group (union-find with path halving)."""
    parent: dict[str, str] = {}

    def find(variable: str) -> str:
        parent.setdefault(variable, variable)
        while parent[variable] != variable:
            parent[variable] = parent[parent[variable]]
            variable = parent[variable]
        return variable

    for clause, way in zip(clauses, ways, strict=True):
        if way is not None:
            parent[find(way.destination)] = find(way.source)
        elif isinstance(clause, resolved.Binding):
            find(clause.variable)
    # A traversal that waits for a variable belongs to its group, though it does not lead there.
    needed = {name for way in ways if way is not None for name in way.needs}
    for way in ways if needed else ():
        if way is None:
            continue
        for name in {*way.needs, way.also_binds}:
            if name is not None and name in needed:
                parent[find(name)] = find(way.source)
    return {variable: find(variable) for variable in parent}


# ---- operators ------------------------------------------------------------------------------------------


def expand(
    rows: ir.ReadOperator, way: Way, bound: set[str], predicates: Pending
) -> ir.Expand | ir.ExpandWalk | ir.PathExpand:
    """Walk a way from an end that is bound to the other; `bound` grows by what it binds."""
    clause = way.clause
    closing = way.source in bound and way.destination in bound
    from_source = way.source in bound
    destination = way.destination if from_source else way.source
    own = predicates.take_only(destination)
    bound.add(destination)
    if way.also_binds is not None:
        if clause.edge_variable is not None:
            own += predicates.take_only(clause.edge_variable)
        bound.add(way.also_binds)
    if isinstance(clause, resolved.Traversal):
        return ir.Expand(
            input=rows,
            source=way.source if from_source else way.destination,
            edge=clause.edge,
            direction=clause.direction if from_source else clause.direction.flipped,
            min_hops=clause.min_hops,
            max_hops=clause.max_hops,
            destination=destination,
            destination_type=clause.destination_type if from_source else clause.source_type,
            edge_variable=clause.edge_variable,
            closing=closing,
            predicates=tuple(own),
        )
    walk = clause.walk if from_source else _turned_round(clause.walk)
    if clause.path is None:
        return ir.ExpandWalk(rows, walk, clause.edge_variable, closing, tuple(own))
    assert clause.mode is not None
    assert clause.path_type is not None
    return ir.PathExpand(rows, walk, clause.mode, clause.path, clause.path_type, closing, tuple(own))


def _turned_round(walk: ir.Walk) -> ir.Walk:
    """The walk from its destination to its source: the same hops, each the other way."""
    return replace(
        walk,
        source=walk.destination,
        source_members=walk.destination_members,
        steps=tuple(ir.EdgeStep(step.edge, step.direction.flipped, step.end, step.start) for step in walk.steps),
        destination=walk.source,
        destination_members=walk.source_members,
    )
