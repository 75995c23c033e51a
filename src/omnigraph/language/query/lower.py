"""Turns a resolved query into its plan, and refuses queries that typecheck but can't run.

`lower_query` is called when a query is about to be executed, never by lint: these refusals (mixed mutations, key
updates, sort keys without a meaning) belong to execution. The clauses of a `match` form a conjunction, so their order
carries no meaning: traversals fall into connected groups, each group is a scan followed by expansions, groups meet in
cross joins, and a predicate runs as soon as its variables exist. The catalog is not consulted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import Final

from omnigraph.errors import CompileError
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.resolved import OutputName, Refused
from omnigraph.language.source import DiagnosticSink, SourceText, TextSpan, did_you_mean

SingleRank = ir.NearestRank | ir.Bm25Rank

_MOST_STARTS: Final = 4


def lower_match(
    clauses: Sequence[resolved.Clause], rank: SingleRank | None = None, outer: tuple[str, ...] = ()
) -> ir.ReadOperator:
    """The rows of a match, in the order of `rank` when one is given. A negation sees the `outer` variables."""
    predicates = _Pending(_predicates(clauses))
    groups = _groups(clauses, outer)
    ranked = None if rank is None else rank.field.variable
    tree: ir.ReadOperator | None = None
    bound = set(outer)
    if outer:
        tree = _filter(ir.Outer(outer), predicates.take(outer, bound))
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
        tree = rows if tree is None else _filter(ir.CrossJoin(tree, rows), predicates.take(local, bound))
    # Without anything to scan there is one row: a match of filters over parameters is true once, or never.
    tree = _filter(tree or ir.Outer(()), predicates.rest())
    for clause in clauses:
        if isinstance(clause, resolved.Negation):
            correlated = tuple(sorted(bound & _variables_in(clause.clauses)))
            tree = ir.AntiJoin(tree, lower_match(clause.clauses, outer=correlated), correlated)
    return tree if rank is None else ir.Rank(tree, rank)


def _starts(clauses: Sequence[resolved.Clause], group: _Group) -> Iterator[ir.ReadOperator]:
    """The traversals of a group begun at others of its variables that have predicates: first those of which an equality
    speaks. Only a few, because each is a plan as large as the group."""
    own: dict[str, list[ir.Predicate]] = {}
    for predicate in _predicates(clauses):
        names = ir.predicate_variables(predicate)
        if len(names) == 1 and not names.isdisjoint(group.variables) and group.root not in names:
            own.setdefault(next(iter(names)), []).append(predicate)

    def has_equality(variable: str) -> bool:
        return any(isinstance(p, ir.Compare) and p.operator is ir.Operator.EQUAL for p in own[variable])

    for variable in sorted(own, key=has_equality, reverse=True)[:_MOST_STARTS]:
        predicates = _Pending(_predicates(clauses))
        root = ir.Scan(variable, group.variables[variable], tuple(predicates.take_only(variable)))
        yield _expand_all(root, group, {variable}, predicates)


def _filter(tree: ir.ReadOperator, predicates: Sequence[ir.Predicate]) -> ir.ReadOperator:
    return ir.Filter(tree, tuple(predicates)) if predicates else tree


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


def _predicates(clauses: Iterable[resolved.Clause]) -> Iterator[ir.Predicate]:
    for clause in clauses:
        match clause:
            case resolved.Binding():
                yield from clause.pins
            case resolved.Filter(predicate=ir.Compare() | ir.TextMatch() as predicate):
                yield predicate


def _variables_in(clauses: Iterable[resolved.Clause]) -> set[str]:
    """Every variable that the clauses of a negation speak of, at any depth."""
    variables: set[str] = set()
    for clause in clauses:
        match clause:
            case resolved.Binding():
                variables.add(clause.variable)
            case resolved.Traversal():
                variables |= {clause.source, clause.destination}
            case resolved.Filter(predicate=ir.Compare() | ir.TextMatch() as predicate):
                variables |= ir.predicate_variables(predicate)
            case resolved.Negation():
                variables |= _variables_in(clause.clauses)
    return variables


class _Group:
    """Variables that traversals connect, with the traversals that do it, in source order."""

    def __init__(self) -> None:
        self.variables: dict[str, NodeType] = {}
        self.traversals: list[resolved.Traversal] = []
        self.bindings: list[str] = []

    @property
    def root(self) -> str:
        """The first bound variable; a group without a binding starts where its first traversal does."""
        return self.bindings[0] if self.bindings else self.traversals[0].source


def _groups(clauses: Sequence[resolved.Clause], outer: tuple[str, ...]) -> list[_Group]:
    """The connected groups, by their first clause."""
    leader = _group_variables(clauses)
    groups: dict[str, _Group] = {}
    for clause in clauses:
        if isinstance(clause, resolved.Binding):
            group = groups.setdefault(leader[clause.variable], _Group())
            group.variables[clause.variable] = clause.type
            group.bindings.append(clause.variable)
        elif isinstance(clause, resolved.Traversal):
            group = groups.setdefault(leader[clause.source], _Group())
            group.variables[clause.source] = clause.source_type
            group.variables[clause.destination] = clause.destination_type
            group.traversals.append(clause)
    # A binding that only restates an outer variable has nothing to scan.
    return [g for g in groups.values() if g.traversals or not g.variables.keys() <= set(outer)]


def _group_variables(clauses: Iterable[resolved.Clause]) -> dict[str, str]:
    """Each variable with the representative of its group (union-find with path halving)."""
    parent: dict[str, str] = {}

    def find(variable: str) -> str:
        parent.setdefault(variable, variable)
        while parent[variable] != variable:
            parent[variable] = parent[parent[variable]]
            variable = parent[variable]
        return variable

    for clause in clauses:
        if isinstance(clause, resolved.Binding):
            find(clause.variable)
        elif isinstance(clause, resolved.Traversal):
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
        tree = _filter(expand, predicates.take(fresh, bound))
        if not expand.closing:
            make_ready(expand.destination)
    return tree


def _expand(tree: ir.ReadOperator, traversal: resolved.Traversal, bound: set[str], predicates: _Pending) -> ir.Expand:
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


MIXED = "D2"
UNSUPPORTED = "unsupported"


def lower_query(query: resolved.Query, source: SourceText) -> ir.Plan:
    """Return the plan. Raises `CompileError` with every reason why the query can't run."""
    findings = DiagnosticSink(source)
    plan = (
        _Read(query, query.body, findings).plan()
        if isinstance(query.body, resolved.Read)
        else _lower_writes(query, query.body, findings)
    )
    if plan is None:
        raise CompileError(findings.diagnostics)
    return plan


def _lower_writes(query: resolved.Query, writes: resolved.Writes, findings: DiagnosticSink) -> ir.WritePlan | None:
    """The plan, or None after the findings say why there is none."""
    deletes = [s for s in writes.statements if isinstance(s.plan, ir.DeleteNodes | ir.DeleteEdges)]
    if deletes and len(deletes) < len(writes.statements):
        message = f"query '{query.name}' holds both inserts/updates and deletes; split into separate mutations"
        findings.report(MIXED, message, deletes[0].at)
        return None
    for statement in writes.statements:
        for message, at in _refusals(statement):
            findings.report(UNSUPPORTED, message, at)
    if findings.diagnostics:
        return None
    return ir.WritePlan(query.name, query.parameters, tuple(statement.plan for statement in writes.statements))


def _refusals(statement: resolved.Write) -> Iterator[tuple[str, TextSpan]]:
    """What typechecks in a statement and can't run. An embedded vector may be left out of an insert, but it is computed
    only when the schema says so; a key is never updated."""
    plan = statement.plan
    if isinstance(plan, ir.InsertNode):
        assigned = {assignment.property.name for assignment in plan.assignments}
        for prop in plan.type.properties.values():
            is_supplied = prop.embed is not None and not prop.embed.on_write
            if is_supplied and not prop.type.nullable and prop.name not in assigned:
                named = f"missing required property '{plan.type.name}.{prop.name}'"
                remedy = "unless the schema says @embed(..., on_write=true)"
                yield f"{named}: vectors are not computed on insert, {remedy}", statement.at
    elif isinstance(plan, ir.UpdateNodes):
        for assignment, at in zip(plan.assignments, statement.assigned_at, strict=True):
            if assignment.property.name in plan.type.key:
                named = f"cannot update @key property '{plan.type.name}.{assignment.property.name}'"
                yield f"{named}; delete the node and insert it anew", at


def _refused_filters(clauses: Iterable[resolved.Clause]) -> Iterator[Refused]:
    """The filters that typecheck and can't run, at any depth."""
    for clause in clauses:
        if isinstance(clause, resolved.Filter) and isinstance(clause.predicate, Refused):
            yield clause.predicate
        elif isinstance(clause, resolved.Negation):
            yield from _refused_filters(clause.clauses)


class _Read:
    """One read on its way into operators."""

    def __init__(self, query: resolved.Query, body: resolved.Read, findings: DiagnosticSink) -> None:
        self._query = query
        self._body = body
        self._findings = findings

    def plan(self) -> ir.ReadPlan | None:
        body = self._body
        for filter_ in _refused_filters(body.clauses):
            self._refuse(f"unsupported filter: {filter_.reason}", filter_.at)
        columns = self._columns()
        ranking = self._ranking()
        keys = self._sort_keys(ranking)
        self._check_fused_scores(ranking)
        if self._findings.diagnostics:
            return None
        return ir.ReadPlan(
            self._query.name,
            self._query.parameters,
            self._tree(columns, ranking, keys),
            tuple(ir.OutputColumn(column.name, column.value.type) for column in columns),
        )

    def _tree(
        self, columns: Sequence[ir.AggregateColumn], ranking: ir.Ranking | None, keys: Sequence[ir.SortKey]
    ) -> ir.ReadOperator:
        rows = self._match_rows(ranking)
        if self._body.is_aggregate:
            if isinstance(ranking, ir.NearestRank) and not keys:
                rows = self._best_nodes(rows, ranking)
            grouped = ir.Aggregate(rows, tuple(columns))
            return self._limit(ir.Sort(grouped, tuple(keys), ()) if keys else grouped)
        if keys:
            # Ties are broken by every named variable, in the order of the names of their id columns.
            variables = sorted((*self._body.nodes, *self._body.edges), key=lambda variable: f"{variable}.id")
            rows = ir.Sort(rows, tuple(keys), tuple(variables))
        values = tuple(ir.Column(c.name, c.value) for c in columns if not isinstance(c.value, ir.AggregateValue))
        return ir.Project(self._limit(rows), values)

    def _limit(self, rows: ir.ReadOperator) -> ir.ReadOperator:
        return rows if self._body.limit is None else ir.Limit(rows, self._body.limit)

    def _match_rows(self, ranking: ir.Ranking | None) -> ir.ReadOperator:
        if not isinstance(ranking, ir.FusedRank):
            return lower_match(self._body.clauses, ranking)
        arms = []
        for rank in (ranking.first, ranking.second):
            rows = lower_match(self._body.clauses, rank)
            arms.append(self._best_nodes(rows, rank) if isinstance(rank, ir.NearestRank) else rows)
        assert self._body.limit is not None, "T21 asks for a limit"
        return ir.Fuse(arms[0], arms[1], ranking.variable, ranking, self._body.limit)

    def _best_nodes(self, rows: ir.ReadOperator, rank: ir.NearestRank) -> ir.ReadOperator:
        """What the limit means where it does not cut the rows: every node has a distance, and so many count."""
        assert self._body.limit is not None, "T17 and T21 ask for a limit"
        return ir.BestNodes(rows, rank.field.variable, self._body.limit)

    def _columns(self) -> list[ir.AggregateColumn]:
        columns: list[ir.AggregateColumn] = []
        for projection in self._body.projections:
            if isinstance(projection.value, Refused):
                self._refuse(f"unsupported projection expression: {projection.value.reason}", projection.value.at)
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

    def _sort_keys(self, ranking: ir.Ranking | None) -> list[ir.SortKey]:
        """A rank call silences the sort keys after it; the name of a score is a value, whose ties they break."""
        sort = self._body.sort
        if ranking is not None and (len(sort) == 1 or not isinstance(sort[0].value, OutputName)):
            return []
        keys = [(self._sort_value(key, ranking), key) for key in sort]
        return [ir.SortKey(value, key.descending) for value, key in keys if value is not None]

    def _sort_value(self, key: resolved.Sort, ranking: ir.Ranking | None) -> ir.Value | None:
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
        column = self._projection_named(name.name)
        if column is None:
            suggestion = did_you_mean(name.name, [projection.name for projection in self._body.projections])
            self._findings.report(UNSUPPORTED, f"alias '{name.name}' not found", name.at, suggestion=suggestion)
            return None
        index, projection = column
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

    def _projection_named(self, name: str) -> tuple[int, resolved.Projection] | None:
        return next(((i, p) for i, p in enumerate(self._body.projections) if p.name == name), None)

    def _unsortable(self, reason: str, at: TextSpan) -> ir.Value | None:
        """Report it; there is never a value to sort by."""
        self._refuse(f"unsupported ordering expression: {reason}", at)
        return None

    def _refuse(self, message: str, at: TextSpan) -> None:
        self._findings.report(UNSUPPORTED, message, at)
