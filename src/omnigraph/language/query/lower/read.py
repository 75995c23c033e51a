"""From the stages of a read to its plan.

A stage is its match, what it makes of the rows (groups, distinct rows, an order, some of them) and a boundary: a `Bind`
of the columns that the next stage reads, or the `Project` that ends the plan. The rows that statements of a mutation
run for are made of the same parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec.structs import replace

from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.boundaries import columns_read, columns_read_by_feed, move_conditions_down
from omnigraph.language.query.lower.match import Match
from omnigraph.language.query.lower.mentions import Blocks
from omnigraph.language.query.lower.output import StageOutput, column_variables
from omnigraph.language.query.lower.predicates import split_filters
from omnigraph.language.query.value_types import ValueType

Types: TypeAlias = Mapping[str, ValueType]

_NO_TYPES: Types = {}


def lower_read(query: resolved.Query, body: resolved.Read) -> ir.ReadPlan:
    """The plan of a read."""
    stages = Stages(query)
    root = stages.result(body)
    return ir.ReadPlan(query.name, stages.parameters, root, body.columns)


class Stages:
    """The stages of one query on their way into operators."""

    def __init__(self, query: resolved.Query) -> None:
        self._blocks = Blocks(query.blocks)
        self._parameters = query.parameters
        self._counts: set[str] = set()

    @property
    def parameters(self) -> tuple[ir.QueryParameter, ...]:
        """Those of the query, with what the stages that are lowered by now use them for."""
        if not self._counts:
            return self._parameters
        return tuple(replace(p, counts_rows=True) if p.name in self._counts else p for p in self._parameters)

    def result(self, read: resolved.Read) -> ir.ReadOperator:
        """The top of a plan: it yields the columns of the read."""
        names = [column.name for column in read.columns]
        if len(read.chains) == 1:
            union, stages = _flatten(read.chains[0])
            if stages:
                return _project(self._last(union, stages), names)
        plan, types = self._union(read)
        columns = (ir.Column(name, ir.as_variable(*bound)) for name, bound in zip(names, types.items(), strict=True))
        return ir.Project(plan, tuple(columns))

    def feed(self, feed: resolved.Feed, values: Sequence[ir.Value]) -> ir.Bind:
        """The rows of a feed, with the variables that `values` read."""
        plan: ir.ReadOperator | None = None
        imported: Types = _NO_TYPES
        if feed.chain is not None:
            imported = {name: feed.imported[name] for name in columns_read_by_feed(feed, values, self._blocks)}
            plan = self._handed_on(feed.chain, imported)
        match, clauses = self._begin(feed, plan, imported)
        match.add(clauses)
        match.compute(values)
        columns = tuple(_columns_for(values, match))
        if isinstance(match.plan, ir.Bind) and match.bound == {column.variable for column in columns}:
            return match.plan
        return ir.Bind(match.plan, columns)

    # ---- stages -----------------------------------------------------------------------------------------

    def _last(self, union: resolved.Read | None, stages: Sequence[resolved.Stage]) -> StageOutput:
        """The last of the stages, of which the first begins with the rows of the union where there is one."""
        plan: ir.ReadOperator | None = None
        imported: Types = _NO_TYPES
        if union is not None:
            plan, imported = self._union(union)
        stages = move_conditions_down(stages, self._blocks)
        for stage, following in pairwise(stages):
            output = self._stage(stage, plan, imported)
            imported = {name: following.imported[name] for name in columns_read(following, self._blocks)}
            plan = output.bind_named(imported)
        return self._stage(stages[-1], plan, imported)

    def _stage(self, stage: resolved.Stage, plan: ir.ReadOperator | None, imported: Types) -> StageOutput:
        """A stage up to the rows that its limit leaves."""
        match, clauses = self._begin(stage, plan, imported)
        match = _add_ranked(match, clauses, stage)
        output = StageOutput(stage, match)
        if output.is_grouped:
            if isinstance(stage.ranking, ir.NearestRank) and not output.keys:
                _keep_best(match, stage.ranking, stage)
            output.group()
        if stage.distinct:
            output.make_distinct()
        output.sort()
        output.limit()
        self._counts |= {count.name for count in (stage.limit, stage.offset) if isinstance(count, ir.ParameterValue)}
        return output

    def _begin(
        self, stage: resolved.Stage | resolved.Feed, plan: ir.ReadOperator | None, imported: Types
    ) -> tuple[Match, Sequence[resolved.Clause]]:
        """The rows that a stage begins with, each once for every item of its lists, and the clauses that are left.
        Conditions on the columns of the stage before are tested before the lists multiply its rows."""
        match = Match(self._blocks, stage.variables, plan, imported)
        clauses: Sequence[resolved.Clause] = stage.clauses
        if stage.unwinds and imported:
            early = [clause for clause in split_filters(clauses) if self._is_about(clause, imported)]
            match.add(early)
            clauses = [clause for clause in split_filters(clauses) if not self._is_about(clause, imported)]
        for unwind in stage.unwinds:
            match.unwind(unwind)
        return match, clauses

    def _is_about(self, clause: resolved.Clause, imported: Types) -> bool:
        if not isinstance(clause, resolved.Filter):
            return False
        names = self._blocks.mentioned_by(clause.predicate)
        return bool(names) and names <= imported.keys()

    def _handed_on(self, chain: resolved.Chain, types: Types) -> ir.ReadOperator:
        """The rows of a chain, with those of its columns bound that `types` names."""
        union, stages = _flatten(chain)
        if stages:
            return self._last(union, stages).bind_named(types)
        assert union is not None, "a chain has stages or a read in braces"
        plan, own = self._union(union)
        return _bind_again(plan, [(name, own[name]) for name in types], types)

    # ---- unions -----------------------------------------------------------------------------------------

    def _union(self, read: resolved.Read) -> tuple[ir.ReadOperator, Types]:
        """All rows of all chains, bound to variables. What stands before the last `union` is free of duplicates,
        whichever of the words before it said so."""
        variables = column_variables(_last_projections(read))
        types = dict(zip(variables, (column.type for column in read.columns), strict=True))
        parts = [self._part(chain, types) for chain in read.chains]
        end = next((i + 1 for i in range(len(parts) - 1, 0, -1) if not read.keeps_all[i - 1]), 0)
        if end:
            parts[:end] = [ir.Distinct(ir.UnionAll(tuple(parts[:end])), tuple(types.items()))]
        return (parts[0] if len(parts) == 1 else ir.UnionAll(tuple(parts))), types

    def _part(self, chain: resolved.Chain, types: Types) -> ir.ReadOperator:
        """The rows of a chain, whose columns have the places and not always the names of those of the union."""
        union, stages = _flatten(chain)
        if stages:
            return self._last(union, stages).bind_in_order(types)
        assert union is not None, "a chain has stages or a read in braces"
        plan, own = self._union(union)
        return _bind_again(plan, own.items(), types)


def _bind_again(plan: ir.ReadOperator, columns: Iterable[tuple[str, ValueType]], types: Types) -> ir.ReadOperator:
    """Rows that bind `columns`, with the same values bound to `types`."""
    columns = tuple(columns)
    if columns == tuple(types.items()):
        return plan
    bound = zip(types.items(), columns, strict=True)
    return ir.Bind(plan, tuple(ir.BoundColumn(name, ir.as_variable(*column), type_) for (name, type_), column in bound))


def _add_ranked(match: Match, clauses: Sequence[resolved.Clause], stage: resolved.Stage) -> Match:
    """The match extended by the clauses of a stage, in the order of its ranking. A fusion ranks the same rows once for
    each of its arms; both stand on the rows that the stage begins with."""
    ranking = stage.ranking
    if not isinstance(ranking, ir.FusedRank):
        match.add(clauses, ranking)
        return match
    assert stage.limit is not None, "T21 asks for a limit"
    first, second = match, match.branch()
    for arm, rank in ((first, ranking.first), (second, ranking.second)):
        arm.add(clauses, rank)
        if isinstance(rank, ir.NearestRank):
            _keep_best(arm, rank, stage)
    first.put_on_top(ir.Fuse(first.plan, second.plan, ranking.variable, ranking, stage.limit, stage.offset))
    return first


def _keep_best(match: Match, rank: ir.NearestRank, stage: resolved.Stage) -> None:
    """Keep as many nodes as the limit says, where it does not cut the rows: every node has a distance."""
    assert stage.limit is not None, "T17 and T21 ask for a limit"
    match.put_on_top(ir.BestNodes(match.plan, rank.field.variable, stage.limit, stage.offset))


def _flatten(chain: resolved.Chain) -> tuple[resolved.Read | None, list[resolved.Stage]]:
    """All stages of a chain, those of a read in braces that is a chain itself included, and the union before them."""
    stages = list(chain.stages)
    head = chain.head
    while head is not None and len(head.chains) == 1:
        chain = head.chains[0]
        stages[:0] = chain.stages
        head = chain.head
    return head, stages


def _last_projections(read: resolved.Read) -> tuple[resolved.Projection, ...]:
    """The projections that name the columns of a read: those that the first of its chains ends with."""
    chain = read.chains[0]
    while not chain.stages:
        assert chain.head is not None, "a chain has stages or a read in braces"
        chain = chain.head.chains[0]
    return chain.stages[-1].projections


def _project(output: StageOutput, names: Iterable[str]) -> ir.ReadOperator:
    """The output columns of the last stage. Those of an `Aggregate` need no projection."""
    if output.is_grouped and output.are_columns_of_groups:
        return output.match.plan
    output.match.compute(output.values)
    columns = (ir.Column(name, value) for name, value in zip(names, output.values, strict=True))
    return ir.Project(output.match.plan, tuple(columns))


def _columns_for(values: Sequence[ir.Value], match: Match) -> Iterable[ir.BoundColumn]:
    """What statements read of the rows of their feed."""
    types = {
        part.variable: part.type for value in values for part in ir.walk(value) if isinstance(part, ir.VariableValue)
    }
    for name in dict.fromkeys(name for value in values for name in ir.variables_of(value)):
        type_ = types.get(name) or match.type_of(name)
        yield ir.BoundColumn(name, ir.as_variable(name, type_), type_)
