"""Questions about a plan that need no row: what its operators read, and which of them take their rows one by one.

`run` asks before it runs an operator, `read` before it runs a plan. Nothing here is executed, and everything is a loop:
a plan is as deep as a query is long.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from omnigraph.engine.query.bindings import output_variable
from omnigraph.engine.query.objects import output_schema
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction, MetaField
from omnigraph.language.query.value_types import EntityType, is_integer, is_scalar

Needed: TypeAlias = frozenset[str]
"""The variables that have to be bound in the rows of an operator."""

Join: TypeAlias = ir.AntiJoin | ir.SemiJoin | ir.BlockJoin | ir.OptionalJoin
"""What runs an inner plan for its outer rows."""


def reads(values: Iterable[ir.Value]) -> Needed:
    """The variables that values depend on; the columns of an aggregate are variables too."""
    names: set[str] = set()
    for value in values:
        names.update(ir.variables_of(value))
        names.update(output_variable(part.index) for part in ir.walk(value) if isinstance(part, ir.OutputValue))
    return frozenset(names)


def _parts(part: object) -> Iterator[Struct]:
    """A part of a plan and all that it is made of, each once."""
    seen: set[int] = set()
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += reversed(part)
        elif isinstance(part, Struct) and type(part).__module__.startswith(ir.__name__) and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += [getattr(part, name) for name in reversed(part.__struct_fields__)]


def property_values(part: object) -> Iterator[ir.PropertyValue]:
    """Every property that a plan names, anywhere: in values, predicates, rankings, sort keys."""
    return (value for value in _parts(part) if isinstance(value, ir.PropertyValue))


def values_in(plan: ir.ReadOperator) -> Iterator[ir.Value]:
    """Every stored value that some operator reads, for a scan that reads it along. What a ranking measures is not
    among them: it reads its nodes itself."""
    parts = list(_parts(plan))
    ranked = {id(part.field) for part in parts if isinstance(part, ir.NearestRank | ir.Bm25Rank)}
    for part in parts:
        if isinstance(part, ir.PropertyValue | ir.MetaValue) and id(part) not in ranked:
            yield part
        elif isinstance(part, ir.Column) and isinstance(part.value, ir.EntityValue):
            yield from _object_values(part.value)


def _object_values(entity: ir.EntityValue) -> Iterator[ir.Value]:
    """What an entity shows where it is returned."""
    fields = (MetaField.ID, MetaField.SRC, MetaField.DST) if entity.type.is_edge else (MetaField.ID,)
    yield from (ir.MetaValue(entity.variable, entity.type.members, field) for field in fields)
    if len(entity.type.members) == 1:
        owner = entity.type.members[0]
        yield from (ir.PropertyValue(entity.variable, owner, prop) for prop in owner.shown_properties)


class Step(NamedTuple):
    """An operator on the way down a plan: what has to be bound in its rows, whether they are only counted, how many of
    the first ones are enough, and all that is read of them, where rows that agree in it may become one."""

    operator: ir.ReadOperator
    needed: Needed
    counts_only: bool = False
    limit: int | None = None
    values: tuple[ir.Value, ...] | None = None


class PreparedPlan:
    """A plan with what follows from it alone. It is made once per compiled query and shared by all its runs."""

    def __init__(self, plan: ir.ReadPlan) -> None:
        root = plan.root
        self.plan = plan
        self.schema = output_schema(plan.columns)
        self.stored_values = tuple(values_in(root))
        below: ir.ReadOperator = root
        if isinstance(root, ir.Project):
            below, self.output = root.input, tuple(column.value for column in root.columns)
        else:
            self.output = tuple(ir.OutputValue(i, column.type) for i, column in enumerate(plan.columns))
        self.rows = Step(below, reads(self.output))
        """The operator whose rows become the columns of the result."""
        limits = (operator for operator, _ in ir.plan_levels(root))
        self.limits = tuple(each for each in limits if isinstance(each, ir.Limit | ir.BestNodes | ir.Fuse))

    @cached_property
    def named(self) -> tuple[ir.PropertyValue, ...]:
        """The properties that the plan names, anywhere."""
        return tuple(property_values(self.plan.root))


def row_wise_input(step: Step) -> Step | None:
    """The input whose rows an operator extends, keeps or drops one by one; None for one that does something else."""
    plan, needed = step.operator, step.needed
    match plan:
        case ir.Expand() if (first := first_of_intersection(plan)) is not None:
            own = needed | reads(plan.predicates) | reads(first.predicates) | {plan.source, plan.destination}
            return Step(first.input, (own | {first.source}) - {first.destination}, step.counts_only)
        case ir.Expand():
            below = (needed | reads(plan.predicates)) - {plan.edge_variable, plan.destination}
            below |= {plan.source, plan.destination} if plan.closing else {plan.source}
        case ir.ExpandWalk() | ir.PathExpand():
            below = _below_walk(plan, needed)
        case ir.Filter():
            below = needed | reads(plan.predicates)
            if equality_of(plan) is not None:
                assert isinstance(plan.input, ir.CrossJoin)
                return Step(plan.input.left, below, step.counts_only)
        case ir.CrossJoin():
            return Step(plan.left, needed, step.counts_only)
        case ir.AntiJoin() | ir.SemiJoin():
            below = needed.union(plan.correlated)
        case ir.BlockJoin():
            below = (needed - {plan.output}).union(plan.correlated)
        case ir.OptionalJoin():
            below = (needed - {variable for variable, _ in plan.introduced}).union(plan.correlated)
        case ir.Unwind():
            below = (needed - {plan.variable}) | reads([plan.items])
        case ir.Bind():
            below = reads(column.value for column in plan.columns if column.variable in needed)
        case _:
            return None
    return Step(plan.input, below, step.counts_only)


def first_of_intersection(plan: ir.Expand) -> ir.Expand | None:
    """The traversal right below one that closes a pattern over the node that it binds: both together find the common
    neighbours of two nodes. None for every other traversal."""
    first = plan.input
    if not plan.closing or not isinstance(first, ir.Expand) or first.closing:
        return None
    is_one_hop = all((each.min_hops, each.max_hops, each.edge_variable) == (1, 1, None) for each in (plan, first))
    ends = {plan.source, plan.destination}
    return first if is_one_hop and len(ends) == 2 and first.destination in ends else None


def _below_walk(plan: ir.ExpandWalk | ir.PathExpand, needed: Needed) -> Needed:
    each = plan.walk.each
    own = {plan.walk.destination, plan.path if isinstance(plan, ir.PathExpand) else plan.edge_variable}
    below = (needed | reads(plan.predicates)) - own
    if each is not None:
        below |= reads(each.conditions) - {each.edge, each.node}
    return below | ({plan.walk.source, plan.walk.destination} if plan.closing else {plan.walk.source})


def whole_input(step: Step) -> Step | None:
    """The input of an operator that needs all of its rows at once; None for a leaf, and for one with several inputs."""
    plan, needed = step.operator, step.needed
    match plan:
        case ir.Rank() if not ranks_scan(plan):
            return Step(plan.input, needed | {plan.rank.field.variable})
        case ir.Sort():
            ties = {tie.variable for tie in plan.tie_break}
            return Step(plan.input, needed | ties | reads(key.value for key in plan.keys))
        case ir.Distinct():
            return Step(plan.input, needed.union(name for name, _ in plan.variables))
        case ir.Aggregate():
            columns = [c.value for i, c in enumerate(plan.columns) if output_variable(i) in needed]
            values = [*plan.keys, *(value for value in columns if not counts_rows(value))]
            counts_only = not any(map(shows_order, values))
            whole = None if any(map(adds_floats, values)) else tuple(values)
            return Step(plan.input, reads(values), counts_only=counts_only, values=whole)
    return None


def ranks_scan(plan: ir.ReadOperator) -> bool:
    """Whether an operator is a ranking that can give more of its nodes as they are asked for."""
    return isinstance(plan, ir.Rank) and isinstance(plan.input, ir.Scan)


def ranked_scan(arm: ir.ReadOperator) -> ir.Rank | None:
    """The ranking of an arm of a fusion that is nothing else: of a scan, cut to its best nodes if it is by distance."""
    rank = arm.input if isinstance(arm, ir.BestNodes) else arm
    if not isinstance(rank, ir.Rank) or not isinstance(rank.input, ir.Scan):
        return None
    return rank if isinstance(arm, ir.BestNodes) is isinstance(rank.rank, ir.NearestRank) else None


def shows_order(value: ir.Value | None) -> bool:
    """Whether the order of rows shows in an aggregate of them; rows that are only counted may be merged."""
    return isinstance(value, ir.AggregateValue) and value.function is AggregateFunction.COLLECT


def adds_floats(value: ir.Value) -> bool:
    """Whether an aggregate adds floats, so that the order of its rows and their weights show in the last digits."""
    if not isinstance(value, ir.AggregateValue) or value.argument is None:
        return False
    match value.function:
        case AggregateFunction.SUM | AggregateFunction.AVG:
            return not is_integer(value.argument.type)
        case AggregateFunction.STDEV | AggregateFunction.STDEVP:
            return True
    return False


def stored_values(values: Iterable[ir.Value]) -> dict[str, list[ir.PropertyValue]] | None:
    """The stored values, by variable, that some values are made of; None when these depend on anything else of a row,
    or on a value that is not a single number, text or time."""
    stored: dict[str, dict[str, ir.PropertyValue]] = {}
    for part in (part for value in values for part in ir.walk(value)):
        if isinstance(part, ir.PropertyValue) and is_scalar(part.prop.type):
            stored.setdefault(part.variable, {})[part.prop.column] = part
        elif isinstance(part, _OF_ROWS):
            return None
    return {variable: list(properties.values()) for variable, properties in stored.items()}


_OF_ROWS: Final = (
    ir.PropertyValue,
    ir.UnionProperty,
    ir.MetaValue,
    ir.EntityValue,
    ir.VariableValue,
    ir.OutputValue,
    ir.TextMatch,
    ir.Score,
)


def counts_rows(value: ir.Value) -> bool:
    """`count(*)`, and `count($x)` where every row has an `$x`: no value is needed for them."""
    if not isinstance(value, ir.AggregateValue) or value.function is not AggregateFunction.COUNT or value.distinct:
        return False
    return value.argument is None or (isinstance(value.argument, ir.EntityValue) and not value.argument.type.nullable)


def input_below(step: Step) -> Step | None:
    """The leftmost input of an operator of any kind."""
    plan, needed = step.operator, step.needed
    match plan:
        case ir.Limit():
            return Step(plan.input, needed)
        case ir.BestNodes():
            return Step(plan.input, needed | {plan.variable})
        case ir.Fuse():
            return Step(plan.first, needed | {plan.variable})
        case ir.UnionAll():
            return Step(plan.inputs[0], needed)
    return row_wise_input(step) or whole_input(step)


def row_wise_leaf(step: Step, stop: Container[int] = (), *, streams: bool = False) -> Step:
    """The first operator below those that treat rows one by one, or whose id is in `stop`. With `streams`, one that
    makes its rows bit by bit counts too."""
    while id(step.operator) not in stop and not (streams and isinstance(step.operator, ir.PathExpand)):
        if (below := row_wise_input(step)) is None:
            break
        step = below
    return step


def shared_operator(plan: ir.Fuse, needed: Needed) -> Step | None:
    """The uppermost operator that the arms of a fusion have in common, such as an earlier stage, and what both of them
    need of its rows."""
    first = {id(step.operator): step for step in _leftmost(Step(plan.first, needed | {plan.variable}))}
    for step in _leftmost(Step(plan.second, needed | {plan.variable})):
        if (own := first.get(id(step.operator))) is not None:
            return Step(step.operator, step.needed | own.needed)
    return None


def _leftmost(step: Step | None) -> Iterator[Step]:
    while step is not None:
        yield step
        step = input_below(step)


def entity_of(value: ir.Value) -> tuple[str, EntityType] | None:
    """The variable and the type of a value that is a bound entity, also of one that is a column of an aggregate."""
    if isinstance(value, ir.EntityValue):
        return value.variable, value.type
    if isinstance(value, ir.OutputValue) and isinstance(value.type, EntityType):
        return output_variable(value.index), value.type
    return None


def _binds(operator: ir.ReadOperator) -> Iterator[str | None]:
    """The variables that an operator itself binds."""
    match operator:
        case ir.Scan() | ir.TypeUnionScan() | ir.Unwind():
            yield operator.variable
        case ir.Expand():
            yield from (operator.destination, operator.edge_variable)
        case ir.ExpandWalk():
            yield from (operator.walk.destination, operator.edge_variable)
        case ir.PathExpand():
            yield from (operator.walk.destination, operator.path)
        case ir.BlockJoin():
            yield operator.output
        case ir.OptionalJoin():
            yield from (variable for variable, _ in operator.introduced)
        case ir.Bind():
            yield from (column.variable for column in operator.columns)


class Equality(NamedTuple):
    """A condition above a cross join that makes a value of the left rows equal one of the right rows."""

    join: ir.CrossJoin
    left: ir.Value
    right: ir.Value


def equality_of(plan: ir.Filter) -> Equality | None:
    """The equality by which the sides of a cross join below a filter meet, if there is one."""
    join = plan.input
    if not isinstance(join, ir.CrossJoin):
        return None
    beyond = _bound_in(join.right)
    for predicate in plan.predicates:
        if isinstance(predicate, ir.Compare) and predicate.operator is ir.Operator.EQUAL:
            for left, right in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                own, other = reads([left]), reads([right])
                if own and other and own.isdisjoint(beyond) and other <= beyond and _is_key(left) and _is_key(right):
                    return Equality(join, left, right)
    return None


def _is_key(value: ir.Value) -> bool:
    return isinstance(value.type, EntityType) or is_scalar(value.type)


def _bound_in(plan: ir.ReadOperator) -> Needed:
    """The variables that the operators of a side of a cross join bind."""
    return frozenset(name for operator in _operators(plan) for name in _binds(operator) if name is not None)


def _operators(plan: ir.ReadOperator) -> Iterator[ir.ReadOperator]:
    return (operator for operator, _ in ir.plan_levels(plan))
