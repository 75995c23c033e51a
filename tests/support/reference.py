"""A reference evaluator of read plans: nested loops over Python dicts, written to be obviously right and never fast.

It follows the words of the language specification operator by operator and shares nothing with the engine but the
plan itself, so the two can only agree by both being right. Search is not covered.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.dates import format_date, format_datetime
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction
from omnigraph.language.types import Scalar
from omnigraph.language.values import parse_date, parse_datetime

Entity = dict[str, Any]
Row = dict[str, Entity]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass
class ReferenceGraph:
    """Every entity of a graph as a dict of `id` [, `src`, `dst`] and properties, dates as numbers."""

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
    return [{columns[column]: _plain(value) for column, value in row.items()} for row in read]


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
            [_json(value, type_.scalar) for value, type_ in zip(values, types, strict=True)]
            for values in self._records(plan.root)
        ]

    def _records(self, plan: ir.ReadOperator) -> list[list[Any]]:
        match plan:
            case ir.Project():
                return [[self._value(c.value, row) for c in plan.columns] for row in self._rows(plan.input, {})]
            case ir.Limit():
                return self._records(plan.input)[: plan.count]
            case ir.Sort():
                records = self._records(plan.input)
                for key in reversed(plan.keys):
                    assert isinstance(key.value, ir.OutputValue)
                    index = key.value.index
                    records.sort(key=lambda r, i=index: _sortable(r[i]), reverse=key.descending)
                    # Python keeps equal elements in place in both directions.
                return records
            case ir.Aggregate():
                return self._aggregate(plan)
        raise AssertionError(plan)

    def _aggregate(self, plan: ir.Aggregate) -> list[list[Any]]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        if not plan.keys:
            groups[()] = []
        for row in self._rows(plan.input, {}):
            key = tuple(_hashable(self._value(value, row)) for value in plan.keys)
            groups.setdefault(key, []).append(row)
        found = [
            [
                self._aggregated(c.value, rows)
                if isinstance(c.value, ir.AggregateValue)
                else self._value(c.value, rows[0])
                for c in plan.columns
            ]
            for rows in groups.values()
        ]
        # -0.0 and 0.0 are one value, which is shown as the second.
        return [[value + 0.0 if isinstance(value, float) else value for value in row] for row in found]

    def _aggregated(self, aggregate: ir.AggregateValue, rows: Sequence[Row]) -> Any:
        values = [v for v in (self._value(aggregate.argument, row) for row in rows) if v is not None]
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
            case ir.Expand():
                found = (new for row in self._rows(plan.input, outer) for new in self._expanded(plan, row))
                return [row for row in found if self._holds(plan.predicates, row)]
            case ir.Sort():
                return self._sorted(plan, self._rows(plan.input, outer))
            case ir.Limit():
                return self._rows(plan.input, outer)[: plan.count]
        raise AssertionError(plan)

    def _sorted(self, plan: ir.Sort, rows: list[Row]) -> list[Row]:
        rows = sorted(rows, key=lambda row: [row[variable]["id"] for variable in plan.tie_break])
        for key in reversed(plan.keys):
            rows.sort(key=lambda row, value=key.value: _sortable(self._value(value, row)), reverse=key.descending)
        return rows

    def _expanded(self, plan: ir.Expand, row: Row) -> Iterator[Row]:
        ends = {node["id"]: node for node in self._graph.entities[plan.destination_type.type_key]}
        start = row[plan.source]["id"]
        if plan.min_hops > plan.max_hops:
            return
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
        out: dict[str, None] = {}
        for hop in range(1, plan.max_hops + 1):
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
        return all(isinstance(p, ir.Compare) and self._compare(p, row) for p in predicates)

    def _compare(self, predicate: ir.Compare, row: Row) -> bool:
        left, right = self._value(predicate.left, row), self._value(predicate.right, row)
        if left is None or right is None:
            return False
        match predicate.operator:
            case ir.Operator.EQUAL:
                return bool(left == right)
            case ir.Operator.NOT_EQUAL:
                return bool(left != right)
            case ir.Operator.LESS:
                return bool(_sortable(left) < _sortable(right))
            case ir.Operator.LESS_OR_EQUAL:
                return bool(_sortable(left) <= _sortable(right))
            case ir.Operator.GREATER:
                return bool(_sortable(left) > _sortable(right))
            case ir.Operator.GREATER_OR_EQUAL:
                return bool(_sortable(left) >= _sortable(right))
            case ir.Operator.SUBSTRING | ir.Operator.MEMBER:
                return right in left
            case ir.Operator.PREFIX:
                return bool(left.startswith(right))

    def _value(self, value: ir.Value, row: Row) -> Any:
        match value:
            case ir.PropertyValue():
                return row[value.variable][value.prop.name]
            case ir.NodeId():
                return row[value.variable]["id"]
            case ir.Constant():
                items = value.value if isinstance(value.value, tuple) else (value.value,)
                read = [_read(item, value.type.scalar) for item in items]
                return read if isinstance(value.value, tuple) else read[0]
            case ir.ParameterValue():
                return _read(self._parameters[value.name], value.type.scalar)
            case ir.Now():
                return _read(self._parameters[ir.NOW_PARAMETER], Scalar.DATETIME)
        raise AssertionError(value)


def _read(value: Any, scalar: Scalar) -> Any:
    if isinstance(value, list):
        return [_read(item, scalar) for item in value]
    if isinstance(value, str) and scalar is Scalar.DATE:
        return parse_date(value)
    if isinstance(value, str) and scalar is Scalar.DATETIME:
        return parse_datetime(value)
    return value


def _sortable(value: Any) -> tuple[bool, Any]:
    """Null before everything; texts by code point."""
    return (value is not None, value if value is not None else 0)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _json(value: Any, scalar: Scalar) -> Any:
    if isinstance(value, list):
        return [_json(item, scalar) for item in value]
    if value is not None and scalar is Scalar.DATE:
        return format_date(value)
    if value is not None and scalar is Scalar.DATETIME:
        return format_datetime(value)
    return value
