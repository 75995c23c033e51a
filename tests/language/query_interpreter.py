"""A slow, literal reading of the operator tree over a graph of Python dicts.

It exists to show that a plan alone says what a query means: it sees no syntax and no catalog. Text analysis is
reduced to lower-cased words and BM25 to the number of shared words; everything else follows the docstrings of `ir`.
"""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.language.query import ir
from omnigraph.language.query.syntax import AggregateFunction, TextFunction
from tests.support.edit_distance import levenshtein

Row = dict[Any, Any]


@dataclass(frozen=True)
class StoredEdge:
    id: str
    source: str
    target: str
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToyGraph:
    nodes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    edges: Mapping[str, Sequence[StoredEdge]]


_COMPARISONS: dict[ir.Operator, Callable[[Any, Any], bool]] = {
    ir.Operator.EQUAL: python.eq,
    ir.Operator.NOT_EQUAL: python.ne,
    ir.Operator.LESS: python.lt,
    ir.Operator.LESS_OR_EQUAL: python.le,
    ir.Operator.GREATER: python.gt,
    ir.Operator.GREATER_OR_EQUAL: python.ge,
    ir.Operator.SUBSTRING: lambda left, right: right in left,
    ir.Operator.MEMBER: lambda left, right: right in left,
    ir.Operator.PREFIX: lambda left, right: left.startswith(right),
}


class Interpreter:
    def __init__(self, graph: ToyGraph, parameters: Mapping[str, Any]) -> None:
        self.graph = graph
        self.parameters = parameters

    def run(self, plan: ir.ReadPlan) -> list[tuple[Any, ...]]:
        return [row["columns"] for row in self.rows(plan.root, {})]

    # ---- values -----------------------------------------------------------------------------------------

    def value(self, value: ir.Value, row: Row) -> Any:
        match value:
            case ir.PropertyValue():
                return self._property(value, row[value.variable])
            case ir.NodeId():
                return row[value.variable]
            case ir.ParameterValue():
                return self.parameters[value.name]
            case ir.Constant():
                return list(value.value) if isinstance(value.value, tuple) else value.value
            case ir.Now():
                return self.parameters[ir.NOW_PARAMETER]
            case ir.TextMatch():
                return self._matches(value, row)
            case ir.Score(rank=ir.FusedRank()):
                return row["fused"]
            case ir.Score(rank=rank):
                return self._score(rank, row)
            case ir.OutputValue():
                return row["columns"][value.index]

    def _property(self, value: ir.PropertyValue, bound: Any) -> Any:
        if isinstance(bound, StoredEdge):
            return bound.properties.get(value.prop.name)
        return self.graph.nodes[value.owner.name][bound].get(value.prop.name)

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

    def holds(self, predicate: ir.Predicate, row: Row) -> bool:
        if isinstance(predicate, ir.TextMatch):
            return bool(self.value(predicate, row))
        left, right = self.value(predicate.left, row), self.value(predicate.right, row)
        return left is not None and right is not None and _COMPARISONS[predicate.operator](left, right)

    def all_hold(self, predicates: Iterable[ir.Predicate], row: Row) -> bool:
        return all(self.holds(predicate, row) for predicate in predicates)

    # ---- operators --------------------------------------------------------------------------------------

    def rows(self, op: ir.ReadOperator, outer: Row) -> list[Row]:
        match op:
            case ir.Scan():
                scanned: list[Row] = [{op.variable: node} for node in sorted(self.graph.nodes[op.type.name])]
                return [row for row in scanned if self.all_hold(op.predicates, row)]
            case ir.Outer():
                return [{variable: outer[variable] for variable in op.variables}]
            case ir.Expand():
                return [longer for row in self.rows(op.input, outer) for longer in self._expanded(op, row)]
            case ir.CrossJoin():
                rights = self.rows(op.right, outer)
                return [left | right for left in self.rows(op.left, outer) for right in rights]
            case ir.Filter():
                return [row for row in self.rows(op.input, outer) if self.all_hold(op.predicates, row)]
            case ir.AntiJoin():
                kept = self.rows(op.input, outer)
                reduced = [{variable: row[variable] for variable in op.correlated} for row in kept]
                return [row for row, seen in zip(kept, reduced, strict=True) if not self.rows(op.inner, seen)]
            case ir.Rank():
                return self._ranked(op, outer)
            case ir.BestNodes():
                return self._best_nodes(op, outer)
            case ir.Fuse():
                return self._fused(op, outer)
            case ir.Sort():
                return self._sorted(op, outer)
            case ir.Limit():
                return self.rows(op.input, outer)[: op.count]
            case ir.Project():
                rows = self.rows(op.input, outer)
                return [row | {"columns": tuple(self.value(c.value, row) for c in op.columns)} for row in rows]
            case ir.Aggregate():
                return self._aggregated(op, outer)

    def _expanded(self, op: ir.Expand, row: Row) -> list[Row]:
        source = row[op.source]
        if op.edge_variable is None:
            reached: list[tuple[str, Row]] = [(node, {}) for node in self._reachable(op, source)]
        else:
            name = op.edge_variable
            reached = [(node, {name: edge}) for edge, node in self._incident(op, source)]
        existing = self.graph.nodes[op.destination_type.name]
        longer = [
            row | {op.destination: node} | bound
            for node, bound in reached
            if node in existing and (not op.closing or row[op.destination] == node)
        ]
        return [candidate for candidate in longer if self.all_hold(op.predicates, candidate)]

    def _incident(self, op: ir.Expand, node: str) -> list[tuple[StoredEdge, str]]:
        found: list[tuple[StoredEdge, str]] = []
        for edge in sorted(self.graph.edges[op.edge.name], key=lambda e: e.id):
            if op.direction is not ir.Direction.IN and edge.source == node:
                found.append((edge, edge.target))
            elif op.direction is not ir.Direction.OUT and edge.target == node:
                found.append((edge, edge.source))
        return found

    def _reachable(self, op: ir.Expand, start: str) -> list[str]:
        symmetric = op.edge.is_symmetric
        frontier, seen = [start], {start} if symmetric else set()
        reached: dict[str, None] = {}
        for hop in range(1, op.max_hops + 1):
            following: list[str] = []
            for node in frontier:
                for _, neighbour in self._incident(op, node):
                    if symmetric and neighbour == start:
                        if hop == 1 and op.min_hops <= 1:
                            reached[neighbour] = None
                    elif not symmetric or neighbour not in seen:
                        seen.add(neighbour)
                        following.append(neighbour)
                        if hop >= op.min_hops:
                            reached[neighbour] = None
            frontier = following
        return list(reached)

    def _ranked(self, op: ir.Rank, outer: Row) -> list[Row]:
        scored = [(self._score(op.rank, row), row) for row in self.rows(op.input, outer)]
        sign = 1 if isinstance(op.rank, ir.NearestRank) else -1
        variable = op.rank.field.variable
        found = [(sign * score, row[variable], row) for score, row in scored if score is not None]
        found.sort(key=lambda entry: entry[:2])
        return [row for _, _, row in found]

    def _best_nodes(self, op: ir.BestNodes, outer: Row) -> list[Row]:
        rows = self.rows(op.input, outer)
        best = list(dict.fromkeys(row[op.variable] for row in rows))[: op.count]
        return [row for row in rows if row[op.variable] in best]

    def _fused(self, op: ir.Fuse, outer: Row) -> list[Row]:
        arms = [self.rows(op.first, outer), self.rows(op.second, outer)]
        k = 60 if op.rank.k is None else self.value(op.rank.k, {})
        scores: dict[str, float] = {}
        for arm in arms:
            for position, node in enumerate(dict.fromkeys(row[op.variable] for row in arm)):
                scores[node] = scores.get(node, 0.0) + 1 / (k + position + 1)
        best = sorted(scores, key=lambda node: -scores[node])[: op.limit]
        fused: list[Row] = []
        for node in best:
            own = [row for row in arms[0] if row[op.variable] == node]
            own = own or [row for row in arms[1] if row[op.variable] == node]
            fused += [row | {"fused": scores[node]} for row in own]
        return fused

    def _sorted(self, op: ir.Sort, outer: Row) -> list[Row]:
        rows = self.rows(op.input, outer)
        for variable in reversed(op.tie_break):
            rows.sort(key=lambda row: _entity_id(row[variable]))
        for key in reversed(op.keys):
            rows.sort(key=lambda row: _nulls_first(self.value(key.value, row)), reverse=key.descending)
        return rows

    def _aggregated(self, op: ir.Aggregate, outer: Row) -> list[Row]:
        groups: dict[tuple[Any, ...], list[Row]] = {} if op.keys else {(): []}
        for row in self.rows(op.input, outer):
            groups.setdefault(tuple(self.value(key, row) for key in op.keys), []).append(row)
        results: list[Row] = []
        for keys, rows in groups.items():
            remaining = iter(keys)
            columns = tuple(
                self._aggregate(column.value, rows) if isinstance(column.value, ir.AggregateValue) else next(remaining)
                for column in op.columns
            )
            results.append({"columns": columns})
        return results

    def _aggregate(self, aggregate: ir.AggregateValue, rows: list[Row]) -> Any:
        values = [v for v in (self.value(aggregate.argument, row) for row in rows) if v is not None]
        if aggregate.function is AggregateFunction.COUNT:
            return len(values)
        if not values:
            return None
        match aggregate.function:
            case AggregateFunction.SUM:
                return sum(values)
            case AggregateFunction.AVG:
                return sum(values) / len(values)
            case AggregateFunction.MIN:
                return min(values)
            case _:
                return max(values)


def _entity_id(bound: Any) -> str:
    return bound.id if isinstance(bound, StoredEdge) else bound


def _nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def _words(text: str) -> set[str]:
    return set(text.lower().split())
