"""A slow, literal reading of the operator tree over a graph of Python dicts: what every plan is compared with.

It sees no syntax and no catalog, follows the docstrings of `ir` operator by operator, and shares nothing with the
engine but the plan itself, so the two can only agree by both being right. Text analysis is reduced to lower-cased
words, and BM25 to the number of shared words.
"""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction, ListFunction, MetaField, PathMode, TextFunction
from omnigraph.language.query.value_types import ListType, RecordType, ValueType
from omnigraph.language.types import FLOATS, PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime

from .edit_distance import levenshtein
from .interpreter_functions import FUNCTIONS, Day, Instant, calculate, deviation, integer, percentile
from .toy_graph import Entity, Path, ToyGraph, Walk, join, reachable, shortest, trails

Row = dict[str, Any]
_COLUMNS = "columns"
_FUSED = "fused score"

_ORDERS: dict[ir.Operator, Callable[[Any, Any], bool]] = {
    ir.Operator.LESS: python.lt,
    ir.Operator.LESS_OR_EQUAL: python.le,
    ir.Operator.GREATER: python.gt,
    ir.Operator.GREATER_OR_EQUAL: python.ge,
    ir.Operator.SUBSTRING: python.contains,
    ir.Operator.MEMBER: python.contains,
    ir.Operator.PREFIX: str.startswith,
}


class Interpreter:
    def __init__(self, graph: ToyGraph, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters
        self._nodes = graph.nodes
        self._edges = {
            name: {Entity(name, edge.id): edge for edge in sorted(edges, key=lambda edge: edge.id)}
            for name, edges in graph.edges.items()
        }

    def run(self, plan: ir.ReadPlan) -> list[tuple[Any, ...]]:
        return [row[_COLUMNS] for row in self.rows(plan.root, {})]

    # ---- values -----------------------------------------------------------------------------------------

    def value(self, value: ir.Value, row: Row) -> Any:
        match value:
            case ir.PropertyValue():
                return self._properties(row[value.variable]).get(value.prop.name)
            case ir.UnionProperty():
                entity = row[value.variable]
                parts = [part for part in value.parts if part is not None and entity is not None]
                own = next((part for part in parts if part.owner.name == entity.type), None)
                return None if own is None else typed(self.value(own, row), value.type)
            case ir.MetaValue():
                return self._meta(value.field, row[value.variable])
            case ir.EntityValue() | ir.VariableValue():
                return row[value.variable]
            case ir.ParameterValue():
                return typed(self.parameters[value.name], value.type)
            case ir.Constant():
                return typed(value.value, value.type)
            case ir.Now():
                return typed(self.parameters[ir.NOW_PARAMETER], value.type)
            case ir.TextMatch():
                return self._matches(value, row)
            case ir.Score(rank=ir.FusedRank()):
                return row[_FUSED]
            case ir.Score(rank=rank):
                return self._score(rank, row)
            case ir.OutputValue():
                return row[_COLUMNS][value.index]
            case ir.ListForm():
                return self._list_form(value, row)
            case ir.Reduce():
                return self._reduced(value, row)
            case ir.Case():
                return self._case(value, row)
            case ir.And() | ir.Or():
                outcomes = [self.value(operand, row) for operand in value.operands]
                decisive = isinstance(value, ir.Or)
                return decisive if decisive in outcomes else None if None in outcomes else not decisive
        return self._calculated(value, [self.value(operand, row) for operand in ir.operands_of(value)])

    def _calculated(self, value: ir.Value, operands: list[Any]) -> Any:
        match value:
            case ir.IsNull():
                return (operands[0] is None) is not value.negated
            case ir.ListOf():
                return typed(operands, value.type)
            case ir.Record():
                return dict(zip((name for name, _ in value.type.fields), operands, strict=True))
            case ir.Call(function="coalesce"):
                return typed(next((operand for operand in operands if operand is not None), None), value.type)
            case ir.Call(function="nullif"):
                return None if are_equal(*operands) is True else operands[0]
        if None in operands:
            return None
        match value:
            case ir.Compare(operator=ir.Operator.EQUAL | ir.Operator.NOT_EQUAL):
                equal = are_equal(*operands)
                return None if equal is None else equal is (value.operator is ir.Operator.EQUAL)
            case ir.Compare():
                return _ORDERS[value.operator](*operands)
            case ir.Not():
                return not operands[0]
            case ir.In():
                outcomes = [are_equal(operands[0], item) for item in operands[1]]
                return True if True in outcomes else None if None in outcomes else False
            case ir.Arithmetic():
                return typed(calculate(value.operator.value, *operands), value.type)
            case ir.Negative():
                return -operands[0] if isinstance(operands[0], float) else integer(-operands[0])
            case ir.Call(function="keys", arguments=(ir.EntityValue(type=type_),)):
                member = next(each for each in type_.members if each.name == operands[0].type)
                shown = [p.name for p in member.property_list if not (p.type.is_blob or p.type.is_vector)]
                return [name for name in shown if self._properties(operands[0]).get(name) is not None]
            case ir.Call():
                return FUNCTIONS[value.function](*operands)
            case ir.Field():
                return operands[0][value.name]
            case ir.MakePath():
                return join(operands)
        raise AssertionError(f"{type(value).__name__} has no meaning here")

    def _properties(self, entity: Entity | None) -> Mapping[str, Any]:
        if entity is None:
            return {}
        edge = self._edges.get(entity.type, {}).get(entity)
        return self._nodes[entity.type][entity.id] if edge is None else edge.properties

    def _meta(self, field_: MetaField, entity: Entity | None) -> str | None:
        if entity is None:
            return None
        if field_ in (MetaField.ID, MetaField.TYPE):
            return entity.id if field_ is MetaField.ID else entity.type
        edge = self._edges[entity.type][entity]
        return edge.source if field_ is MetaField.SRC else edge.target

    def _matches(self, match: ir.TextMatch, row: Row) -> bool:
        text = self.value(match.field, row)
        wanted = self.value(match.query, row)
        if text is None or wanted is None:
            return False
        edits = 0
        if match.function is TextFunction.FUZZY:
            edits = 2 if match.max_edits is None else self.value(match.max_edits, row)
        return any(levenshtein(a, b) <= edits for a in _words(text) for b in _words(wanted))

    def _score(self, rank: ir.NearestRank | ir.Bm25Rank, row: Row) -> float | None:
        stored, query = self.value(rank.field, row), self.value(rank.query, row)
        if stored is None:
            return None
        if isinstance(rank, ir.NearestRank):
            return math.dist(stored, query)
        shared = len(_words(stored) & _words(query))
        return float(shared) if shared else None

    def _list_form(self, form: ir.ListForm, row: Row) -> Any:
        items = self.value(form.items, row)
        if items is None:
            return None
        rows = [row | {form.variable: item} for item in items]
        if form.condition is not None:
            rows = [each for each in rows if self.value(form.condition, each) is True]
        values = [self.value(form.body, each) for each in rows]
        match form.function:
            case ListFunction.MAP:
                return values
            case ListFunction.ALL:
                return False if False in values else None if None in values else True
            case ListFunction.SINGLE:
                return False if values.count(True) > 1 else None if None in values else values.count(True) == 1
        found = True if True in values else None if None in values else False
        return found if form.function is ListFunction.ANY or found is None else not found

    def _reduced(self, reduce: ir.Reduce, row: Row) -> Any:
        items = self.value(reduce.items, row)
        so_far = self.value(reduce.initial, row)
        for item in items or ():
            so_far = self.value(reduce.body, row | {reduce.accumulator: so_far, reduce.variable: item})
        return None if items is None else typed(so_far, reduce.type)

    def _case(self, case: ir.Case, row: Row) -> Any:
        operand = True if case.operand is None else self.value(case.operand, row)
        for branch in case.branches:
            test = self.value(branch.test, row)
            if test is not None and operand is not None and are_equal(test, operand) is True:
                return typed(self.value(branch.value, row), case.type)
        return None if case.otherwise is None else typed(self.value(case.otherwise, row), case.type)

    def all_hold(self, predicates: Iterable[ir.Predicate], row: Row) -> bool:
        return all(self.value(predicate, row) is True for predicate in predicates)

    # ---- operators --------------------------------------------------------------------------------------

    def rows(self, op: ir.ReadOperator, outer: Row) -> list[Row]:
        match op:
            case ir.Scan():
                scanned = ({op.variable: Entity(op.type.name, node)} for node in sorted(self._nodes[op.type.name]))
                return [row for row in scanned if self.all_hold(op.predicates, row)]
            case ir.TypeUnionScan():
                return [row for scan in op.scans for row in self.rows(scan, outer)]
            case ir.Outer():
                return [{variable: outer[variable] for variable in op.variables}]
            case ir.Expand() | ir.ExpandWalk() | ir.PathExpand():
                return [longer for row in self.rows(op.input, outer) for longer in self._expanded(op, row)]
            case ir.CrossJoin():
                rights = self.rows(op.right, outer)
                return [left | right for left in self.rows(op.left, outer) for right in rights]
            case ir.Filter():
                return [row for row in self.rows(op.input, outer) if self.all_hold(op.predicates, row)]
            case ir.AntiJoin() | ir.SemiJoin():
                keeps = isinstance(op, ir.SemiJoin)
                return [row for row in self.rows(op.input, outer) if bool(self._inner(op, row)) is keeps]
            case ir.BlockJoin():
                return [row | {op.output: self._block(op, row)} for row in self.rows(op.input, outer)]
            case ir.OptionalJoin():
                return [longer for row in self.rows(op.input, outer) for longer in self._optional(op, row)]
            case ir.UnionAll():
                return [row for part in op.inputs for row in self.rows(part, outer)]
            case ir.Fuse():
                return self._fused(op, outer)
            case _:
                return self._of_input(op, self.rows(op.input, outer))

    def _of_input(
        self,
        op: ir.Unwind | ir.Bind | ir.Distinct | ir.Rank | ir.BestNodes | ir.Sort | ir.Limit | ir.Project | ir.Aggregate,
        rows: list[Row],
    ) -> list[Row]:
        match op:
            case ir.Unwind():
                return [row | {op.variable: item} for row in rows for item in self.value(op.items, row) or ()]
            case ir.Bind():
                return [{c.variable: typed(self.value(c.value, row), c.type) for c in op.columns} for row in rows]
            case ir.Distinct():
                return list({_key(row[name] for name, _ in op.variables): row for row in reversed(rows)}.values())[::-1]
            case ir.Rank():
                return self._ranked(op, rows)
            case ir.BestNodes():
                best = list(dict.fromkeys(row[op.variable] for row in rows))
                best = best[: self._count(op.count) + self._count(op.offset)]
                return [row for row in rows if row[op.variable] in best]
            case ir.Sort():
                return self._sorted(op, rows)
            case ir.Limit():
                rows = rows[self._count(op.offset) :]
                return rows if op.count is None else rows[: self._count(op.count)]
            case ir.Project():
                return [row | {_COLUMNS: tuple(self.value(c.value, row) for c in op.columns)} for row in rows]
            case ir.Aggregate():
                return self._aggregated(op, rows)

    def _count(self, count: ir.Count) -> int:
        return count if isinstance(count, int) else int(self.parameters[count.name])

    # ---- blocks -----------------------------------------------------------------------------------------

    def _inner(self, op: ir.AntiJoin | ir.SemiJoin | ir.BlockJoin | ir.OptionalJoin, row: Row) -> list[Row]:
        return self.rows(op.inner, {variable: row[variable] for variable in op.correlated})

    def _block(self, op: ir.BlockJoin, row: Row) -> Any:
        matches = self._inner(op, row)
        return bool(matches) if op.aggregate is None else self._aggregate(op.aggregate, matches)

    def _optional(self, op: ir.OptionalJoin, row: Row) -> list[Row]:
        names = [name for name, _ in op.introduced]
        longer = [row | {name: match[name] for name in names} for match in self._inner(op, row)]
        return longer or [row | dict.fromkeys(names)]

    # ---- walks ------------------------------------------------------------------------------------------

    def _expanded(self, op: ir.Expand | ir.ExpandWalk | ir.PathExpand, row: Row) -> list[Row]:
        walk = Walk.of(op)
        source = row[walk.source]
        if source is None:
            return []
        if isinstance(op, ir.PathExpand):
            ways = trails if op.mode is PathMode.TRAILS else shortest
            paths = ways(walk, source, lambda node: self._hops(walk, node, row), op.mode)
            reached = [(path.nodes[-1], {op.path: path}) for path in paths]
        elif op.edge_variable is not None:
            hops = sorted(self._hops(walk, source, row), key=lambda hop: hop[0])
            reached = [(node, {op.edge_variable: edge}) for edge, node in hops]
        else:
            reached = [(node, {}) for node in reachable(walk, source, lambda node: self._hops(walk, node, row))]
        longer = [
            row | {walk.destination: node} | bound
            for node, bound in reached
            if node.type in walk.destination_types and (not op.closing or row[walk.destination] == node)
        ]
        return [candidate for candidate in longer if self.all_hold(op.predicates, candidate)]

    def _hops(self, walk: Walk, node: Entity, row: Row) -> list[tuple[Entity, Entity]]:
        """The edges that lead on from a node, each with where it leads."""
        return [
            (edge, arrival)
            for step in walk.steps
            if step.start == node.type
            for edge, stored in self._edges[step.edge].items()
            for arrival in step.arrivals(stored, node)
            if arrival.id in self._nodes[arrival.type] and self._is_taken(walk, edge, arrival, row)
        ]

    def _is_taken(self, walk: Walk, edge: Entity, arrival: Entity, row: Row) -> bool:
        if walk.each is None:
            return True
        return self.all_hold(walk.each.conditions, row | {walk.each.edge: edge, walk.each.node: arrival})

    # ---- order and groups -------------------------------------------------------------------------------

    def _ranked(self, op: ir.Rank, rows: list[Row]) -> list[Row]:
        scored = [(self._score(op.rank, row), row) for row in rows]
        sign = 1 if isinstance(op.rank, ir.NearestRank) else -1
        variable = op.rank.field.variable
        ranked = [(sign * score, row[variable], row) for score, row in scored if score is not None]
        ranked.sort(key=lambda entry: entry[:2])
        return [row for _, _, row in ranked]

    def _fused(self, op: ir.Fuse, outer: Row) -> list[Row]:
        arms = [self.rows(op.first, outer), self.rows(op.second, outer)]
        k = 60 if op.rank.k is None else self.value(op.rank.k, {})
        scores: dict[Entity, float] = {}
        for arm in arms:
            for position, node in enumerate(dict.fromkeys(row[op.variable] for row in arm)):
                scores[node] = scores.get(node, 0.0) + 1 / (k + position + 1)
        most = self._count(op.limit) + self._count(op.offset)
        fused: list[Row] = []
        for node in sorted(scores, key=lambda node: -scores[node])[:most]:
            own = [row for row in arms[0] if row[op.variable] == node]
            own = own or [row for row in arms[1] if row[op.variable] == node]
            fused += [row | {_FUSED: scores[node]} for row in own]
        return fused

    def _sorted(self, op: ir.Sort, rows: list[Row]) -> list[Row]:
        rows = list(rows)
        for variable in reversed([tie.variable for tie in op.tie_break]):
            rows.sort(key=lambda row: _nulls_first(row[variable]))
        for key in reversed(op.keys):
            rows.sort(key=lambda row: _nulls_first(self.value(key.value, row)), reverse=key.descending)
            if key.nulls_first is not None:
                rows.sort(key=lambda row: (self.value(key.value, row) is None) is not key.nulls_first)
        return rows

    def _aggregated(self, op: ir.Aggregate, rows: list[Row]) -> list[Row]:
        groups: dict[Any, list[Row]] = {} if op.keys else {(): []}
        for row in rows:
            groups.setdefault(_key(self.value(key, row) for key in op.keys), []).append(row)
        return [
            {
                _COLUMNS: tuple(
                    self._aggregate(column.value, members)
                    if isinstance(column.value, ir.AggregateValue)
                    else self.value(column.value, members[0])
                    for column in op.columns
                )
            }
            for members in groups.values()
        ]

    def _aggregate(self, aggregate: ir.AggregateValue, rows: list[Row]) -> Any:
        if aggregate.argument is None:
            return len(rows)
        values = [v for v in (self.value(aggregate.argument, row) for row in rows) if v is not None]
        if aggregate.distinct:
            values = list({_key([value]): value for value in reversed(values)}.values())[::-1]
        match aggregate.function:
            case AggregateFunction.COUNT:
                return len(values)
            case AggregateFunction.COLLECT:
                return values
        return _reduce(aggregate, values, self) if values else None


# ---- values ---------------------------------------------------------------------------------------------


def _reduce(aggregate: ir.AggregateValue, values: list[Any], interpreter: Interpreter) -> Any:
    match aggregate.function:
        case AggregateFunction.SUM:
            return math.fsum(values) if isinstance(values[0], float) else integer(sum(values))
        case AggregateFunction.AVG:
            return math.fsum(values) / len(values) if isinstance(values[0], float) else sum(values) / len(values)
        case AggregateFunction.MIN:
            return min(values)
        case AggregateFunction.MAX:
            return max(values)
        case AggregateFunction.STDEV | AggregateFunction.STDEVP:
            return deviation(values, of_sample=aggregate.function is AggregateFunction.STDEV)
    assert aggregate.fraction is not None
    fraction = interpreter.value(aggregate.fraction, {})
    return percentile(values, fraction, between=aggregate.function is AggregateFunction.PERCENTILE_CONT)


def typed(value: Any, type_: ValueType) -> Any:
    """A value as one of a type that it fits: texts become dates, numbers are widened."""
    if isinstance(value, tuple | list):
        item = type_.item if isinstance(type_, ListType | PropertyType) else type_
        return [typed(each, item) for each in value]
    if isinstance(value, dict) and isinstance(type_, RecordType):
        return {name: typed(value[name], field) for name, field in type_.fields}
    if value is None or not isinstance(type_, PropertyType):
        return value
    match type_.scalar:
        case Scalar.DATE:
            return Day(parse_date(value) if isinstance(value, str) else value)
        case Scalar.DATETIME:
            return Instant(parse_datetime(value) if isinstance(value, str) else value)
        case Scalar.I64:
            return integer(value)
    return float(value) if type_.scalar in FLOATS else value


def are_equal(left: Any, right: Any) -> bool | None:
    """Null where only an unknown item decides."""
    if left is None or right is None:
        return None
    if isinstance(left, dict):
        left, right = list(left.values()), list(right.values())
    if not isinstance(left, list):
        return bool(left == right)
    if len(left) != len(right):
        return False
    pairs = [are_equal(own, other) for own, other in zip(left, right, strict=True)]
    return False if False in pairs else None if None in pairs else True


def _key(values: Iterable[Any]) -> Any:
    """Equal for equal values of groups and distinct rows."""
    return tuple(map(_identity, values))


def _identity(value: Any) -> Any:
    match value:
        case list():
            return ("list", *map(_identity, value))
        case dict():
            return ("record", *map(_identity, value.values()))
    return value


def _nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, value.edges if isinstance(value, Path) else value)


def _words(text: str) -> set[str]:
    return set(text.lower().split())
