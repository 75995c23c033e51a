"""A reference evaluator of read plans: nested loops over Python dicts, written to be obviously right and never fast.

It follows the words of the language specification operator by operator and shares nothing with the engine but the
plan itself, so the two can only agree by both being right. Search, paths and variables of several types are not
covered.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.dates import format_date, format_datetime
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction, MetaField
from omnigraph.language.query.value_types import EntityType, ListType, ValueType
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime

Entity = dict[str, Any]
Row = dict[str | int, Any]
"""What each variable is bound to; above an aggregate, its columns by their numbers. A null entity is None."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass
class ReferenceGraph:
    """Every entity of a graph as a dict of `@type`, `id` [, `src`, `dst`] and properties, dates as numbers."""

    entities: dict[str, list[Entity]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReferenceGraph:
        types: list[TableType] = [*snapshot.catalog.nodes.values(), *snapshot.catalog.edges.values()]
        return cls({type_.type_key: _entities(snapshot, type_) for type_ in types})

    def rows(self, plan: ir.ReadPlan, parameters: Mapping[str, Any]) -> list[list[Any]]:
        """The result as lists of JSON values, in order."""
        return _Evaluation(self, parameters).output(plan)


def _entities(snapshot: Snapshot, type_: TableType) -> list[Entity]:
    columns = {name: name for name in type_.system_columns} | {
        prop.column: prop.name for prop in type_.property_list if not prop.type.is_blob
    }
    read = snapshot.scan(type_.type_key, list(columns)).to_pylist()
    return [{"@type": type_.name, **{columns[column]: _plain(value) for column, value in row.items()}} for row in read]


def _plain(value: Any) -> Any:
    match value:
        case list():
            return [_plain(item) for item in value]
        case datetime.datetime():
            return (value - EPOCH) // datetime.timedelta(milliseconds=1)
        case datetime.date():
            return (value - EPOCH.date()).days
    return value


class _Evaluation:
    def __init__(self, graph: ReferenceGraph, parameters: Mapping[str, Any]) -> None:
        self._graph = graph
        self._parameters = parameters

    # ---- results ----------------------------------------------------------------------------------------

    def output(self, plan: ir.ReadPlan) -> list[list[Any]]:
        types = [column.type for column in plan.columns]
        return [
            [_json(value, type_) for value, type_ in zip(values, types, strict=True)]
            for values in self._records(plan.root, len(types))
        ]

    def _records(self, plan: ir.ReadOperator, width: int) -> list[list[Any]]:
        if isinstance(plan, ir.Project):
            return [[self._value(c.value, row) for c in plan.columns] for row in self._rows(plan.input, {})]
        return [[row[i] for i in range(width)] for row in self._rows(plan, {})]

    def _aggregate(self, plan: ir.Aggregate, rows: Sequence[Row]) -> list[Row]:
        groups: dict[Any, list[Row]] = {}
        if not plan.keys:
            groups[()] = []
        for row in rows:
            key = tuple(_identity(self._value(value, row)) for value in plan.keys)
            groups.setdefault(key, []).append(row)
        grouped: list[Row] = [
            {
                i: self._aggregated(c.value, rows)
                if isinstance(c.value, ir.AggregateValue)
                else self._value(c.value, rows[0])
                for i, c in enumerate(plan.columns)
            }
            for rows in groups.values()
        ]
        # -0.0 and 0.0 are one value, which is shown as the second.
        return [{i: v + 0.0 if isinstance(v, float) else v for i, v in row.items()} for row in grouped]

    def _aggregated(self, aggregate: ir.AggregateValue, rows: Sequence[Row]) -> Any:
        if aggregate.argument is None:
            return len(rows)
        values = [v for v in (self._value(aggregate.argument, row) for row in rows) if v is not None]
        if aggregate.distinct:
            values = list({_identity(value): value for value in reversed(values)}.values())[::-1]
        match aggregate.function:
            case AggregateFunction.COUNT:
                return len(values)
            case AggregateFunction.SUM:
                return sum(values) if values else None
            case AggregateFunction.AVG:
                return sum(values) / len(values) if values else None
            case AggregateFunction.MIN:
                return min(values, default=None)
            case AggregateFunction.MAX:
                return max(values, default=None)
            case AggregateFunction.COLLECT:
                return values
        raise AssertionError(aggregate)

    # ---- rows -------------------------------------------------------------------------------------------

    def _rows(self, plan: ir.ReadOperator, outer: Row) -> list[Row]:
        match plan:
            case ir.Scan():
                rows: Iterator[Row] = ({plan.variable: node} for node in self._graph.entities[plan.type.type_key])
                return [row for row in rows if self._holds(plan.predicates, row)]
            case ir.Outer():
                return [{variable: outer[variable] for variable in plan.variables}]
            case ir.Filter():
                return [row for row in self._rows(plan.input, outer) if self._holds(plan.predicates, row)]
            case ir.CrossJoin():
                right = self._rows(plan.right, outer)
                return [{**a, **b} for a in self._rows(plan.left, outer) for b in right]
            case ir.AntiJoin():
                return [row for row in self._rows(plan.input, outer) if not self._rows(plan.inner, row)]
            case ir.SemiJoin():
                return [row for row in self._rows(plan.input, outer) if self._rows(plan.inner, row)]
            case ir.BlockJoin():
                return [{**row, plan.output: self._block(plan, row)} for row in self._rows(plan.input, outer)]
            case ir.OptionalJoin():
                return [new for row in self._rows(plan.input, outer) for new in self._optional(plan, row)]
            case ir.Expand():
                found = (new for row in self._rows(plan.input, outer) for new in self._expanded(plan, row))
                return [row for row in found if self._holds(plan.predicates, row)]
            case ir.Unwind():
                rows = (
                    {**row, plan.variable: i} for row in self._rows(plan.input, outer) for i in self._items(plan, row)
                )
                return list(rows)
            case ir.Bind():
                rows = (
                    {c.variable: self._value(c.value, r) for c in plan.columns} for r in self._rows(plan.input, outer)
                )
                return list(rows)
            case ir.Distinct():
                rows = iter(reversed(self._rows(plan.input, outer)))
                return list({tuple(_identity(row[v]) for v in plan.variables): row for row in rows}.values())[::-1]
            case ir.UnionAll():
                return [row for part in plan.inputs for row in self._rows(part, outer)]
            case ir.Aggregate():
                return self._aggregate(plan, self._rows(plan.input, outer))
            case ir.Sort():
                return self._sorted(plan, self._rows(plan.input, outer))
            case ir.Limit():
                first = self._count(plan.offset)
                rows = iter(self._rows(plan.input, outer)[first:])
                return list(rows) if plan.count is None else list(rows)[: self._count(plan.count)]
        raise AssertionError(plan)

    def _count(self, count: ir.Count) -> int:
        return count if isinstance(count, int) else int(self._parameters[count.name])

    def _block(self, plan: ir.BlockJoin, row: Row) -> Any:
        matches = self._rows(plan.inner, row)
        return bool(matches) if plan.aggregate is None else self._aggregated(plan.aggregate, matches)

    def _optional(self, plan: ir.OptionalJoin, row: Row) -> list[Row]:
        matches = [{**row, **match} for match in self._rows(plan.inner, row)]
        return matches or [{**row, **{variable: None for variable, _ in plan.introduced}}]

    def _items(self, plan: ir.Unwind, row: Row) -> list[Any]:
        items: list[Any] | None = self._value(plan.items, row)
        return items or []

    def _sorted(self, plan: ir.Sort, rows: list[Row]) -> list[Row]:
        rows = sorted(rows, key=lambda row: [_sortable(row[tie.variable]) for tie in plan.tie_break])
        for key in reversed(plan.keys):
            # Python keeps equal elements in place in both directions.
            rows.sort(key=lambda row, value=key.value: _sortable(self._value(value, row)), reverse=key.descending)
            if key.nulls_first is not None:
                rows.sort(key=lambda row, k=key: (self._value(k.value, row) is None) is not k.nulls_first)
        return rows

    def _expanded(self, plan: ir.Expand, row: Row) -> Iterator[Row]:
        ends = {node["id"]: node for node in self._graph.entities[plan.destination_type.type_key]}
        if plan.min_hops > plan.max_hops or row[plan.source] is None:
            return
        start = row[plan.source]["id"]
        if plan.edge_variable is not None:
            for edge, far in sorted(self._incident(plan, start), key=lambda found: found[0]["id"]):
                if far in ends and (not plan.closing or row[plan.destination]["id"] == far):
                    yield {**row, plan.edge_variable: edge, plan.destination: ends[far]}
            return
        for far in self._search(plan, start):
            if far in ends and (not plan.closing or row[plan.destination]["id"] == far):
                yield {**row, plan.destination: ends[far]}

    def _incident(self, plan: ir.Expand, node: str) -> Iterator[tuple[Entity, str]]:
        for edge in self._graph.entities[plan.edge.type_key]:
            if plan.direction is not ir.Direction.IN and edge["src"] == node:
                yield edge, edge["dst"]
            elif plan.direction is not ir.Direction.OUT and edge["dst"] == node:
                yield edge, edge["src"]

    def _search(self, plan: ir.Expand, start: str) -> list[str]:
        """The breadth-first search of the specification, word for word."""
        same_type = plan.edge.is_symmetric
        frontier, seen = [start], {start} if same_type else set()
        out: dict[str, None] = {start: None} if plan.min_hops == 0 else {}
        hop = 0
        while frontier and hop < plan.max_hops:
            hop += 1
            following: list[str] = []
            for node in frontier:
                for _, other in self._incident(plan, node):
                    if same_type and other == start:
                        if hop == 1 and plan.min_hops <= 1:
                            out[other] = None
                    elif not same_type or other not in seen:
                        seen.add(other)
                        following.append(other)
                        if hop >= plan.min_hops:
                            out[other] = None
            frontier = following
        return list(out)

    # ---- values -----------------------------------------------------------------------------------------

    def _holds(self, predicates: Sequence[ir.Predicate], row: Row) -> bool:
        return all(self._value(predicate, row) is True for predicate in predicates)

    def _value(self, value: ir.Value, row: Row) -> Any:
        match value:
            case ir.PropertyValue():
                entity = row[value.variable]
                return None if entity is None else entity[value.prop.name]
            case ir.MetaValue():
                entity = row[value.variable]
                return None if entity is None else entity[_META[value.field]]
            case ir.EntityValue() | ir.VariableValue():
                return row[value.variable]
            case ir.OutputValue():
                return row[value.index]
            case ir.Constant():
                items = value.value if isinstance(value.value, tuple) else (value.value,)
                read = [_read(item, value.type) for item in items]
                return read if isinstance(value.value, tuple) else read[0]
            case ir.ParameterValue():
                return _read(self._parameters[value.name], value.type)
            case ir.Now():
                return _read(self._parameters[ir.NOW_PARAMETER], value.type)
            case ir.And() | ir.Or():
                outcomes = [self._value(operand, row) for operand in value.operands]
                decisive = isinstance(value, ir.Or)
                return decisive if decisive in outcomes else None if None in outcomes else not decisive
            case ir.IsNull():
                return (self._value(value.operand, row) is None) is not value.negated
        return self._of_operands(value, [self._value(operand, row) for operand in ir.operands_of(value)])

    def _of_operands(self, value: ir.Value, operands: list[Any]) -> Any:
        """What is null when an operand is, but for `coalesce` and a list."""
        if isinstance(value, ir.Call) and value.function == "coalesce":
            return next((operand for operand in operands if operand is not None), None)
        if isinstance(value, ir.ListOf):
            return operands
        if None in operands:
            return None
        match value:
            case ir.Not():
                return not operands[0]
            case ir.Compare(operator=compared):
                return TESTS[compared](*map(_comparable, operands))
            case ir.In():
                item, items = operands
                return True if item in items else None if None in items else False
            case ir.Negative():
                return -operands[0]
            case ir.Arithmetic():
                return {"+": operator.add, "-": operator.sub, "*": operator.mul}[value.operator.value](*operands)
            case ir.Call():
                return {"lower": str.lower, "upper": str.upper, "size": len}[value.function](*operands)
        raise AssertionError(value)


_META = {MetaField.ID: "id", MetaField.SRC: "src", MetaField.DST: "dst", MetaField.TYPE: "@type"}
TESTS: dict[ir.Operator, Callable[[Any, Any], bool]] = {
    ir.Operator.EQUAL: operator.eq,
    ir.Operator.NOT_EQUAL: operator.ne,
    ir.Operator.LESS: operator.lt,
    ir.Operator.LESS_OR_EQUAL: operator.le,
    ir.Operator.GREATER: operator.gt,
    ir.Operator.GREATER_OR_EQUAL: operator.ge,
    ir.Operator.SUBSTRING: operator.contains,
    ir.Operator.PREFIX: str.startswith,
    ir.Operator.MEMBER: operator.contains,
}


def _read(value: Any, type_: ValueType) -> Any:
    if isinstance(value, list):
        return [_read(item, type_) for item in value]
    scalar = type_.scalar if isinstance(type_, PropertyType) else None
    if isinstance(value, str) and scalar is Scalar.DATE:
        return parse_date(value)
    if isinstance(value, str) and scalar is Scalar.DATETIME:
        return parse_datetime(value)
    return value


def _comparable(value: Any) -> Any:
    """An entity by its type and id."""
    return (value["@type"], value["id"]) if isinstance(value, dict) else value


def _sortable(value: Any) -> tuple[bool, Any]:
    """Null before everything; texts by code point."""
    return (value is not None, _comparable(value) if value is not None else 0)


def _identity(value: Any) -> Any:
    """Equal for equal values, in groups and distinct rows."""
    return tuple(map(_identity, value)) if isinstance(value, list) else _comparable(value)


def _json(value: Any, type_: ValueType) -> Any:
    if value is None:
        return None
    match type_:
        case EntityType():
            return _object(value, next(member for member in type_.members if member.name == value["@type"]))
        case ListType():
            return [_json(item, type_.item) for item in value]
        case PropertyType(scalar=Scalar.DATE, list=False):
            return format_date(value)
        case PropertyType(scalar=Scalar.DATETIME, list=False):
            return format_datetime(value)
        case PropertyType(list=True):
            return [_json(item, type_.item) for item in value]
    return value


def _object(entity: Entity, type_: TableType) -> Any:
    """What a bare variable returns: system fields, and every property but blobs and vectors."""
    fields = [name for name in ("id", "src", "dst") if name in type_.system_columns]
    properties = (prop for prop in type_.property_list if not (prop.type.is_blob or prop.type.is_vector))
    return {
        "@id": entity["id"],
        "@type": type_.name,
        **{f"@{name}": entity[name] for name in fields[1:]},
        **{prop.name: _json(entity[prop.name], prop.type) for prop in properties},
    }
