"""Small graphs of several types with a history, and plans over them that are made by hand: for tests of walks.

A plan is run on bindings of all nodes of its source, so that what a walk yields can be compared row by row with the
reference, without the front end in between.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from omnigraph.engine.query.bindings import Bindings, member_column
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.walks import expand_walk, path_expand
from omnigraph.engine.query.read import DEFAULT_OPTIONS, ReadOptions, context_of
from omnigraph.engine.snapshot import Snapshot
from omnigraph.graph import Graph
from omnigraph.language.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction, EdgeStep
from omnigraph.language.query.row_filter import UNRESTRICTED, Visibility
from omnigraph.language.query.syntax import PathMode
from omnigraph.language.query.value_types import EntityType, PathType
from tests.engine.query_graphs import build_indexes, edge, node
from tests.engine.walk_reference import Entity, Hop

TRAVEL = """
node Person { slug: String @key  age: I32? }
node Place { slug: String @key  age: I32? }
node Thing { slug: String @key }
edge Knows: Person -> Person { w: I32? }
edge Likes: Person -> Person { w: I32? }
edge Visits: Person -> Place { w: I32? }
edge Owns: Place -> Person { w: I32? }
edge Near: Place -> Place { w: I32? }
"""
NODES = {"Person": ("ann", "bob", "cay", "dee"), "Place": ("ulm", "bonn", "ann"), "Thing": ("cup",)}
"""A place may have the id of a person."""
ENDS = {
    "Knows": ("Person", "Person"),
    "Likes": ("Person", "Person"),
    "Visits": ("Person", "Place"),
    "Owns": ("Place", "Person"),
    "Near": ("Place", "Place"),
}

Properties: TypeAlias = "dict[Entity, dict[str, Any]]"


@dataclass(frozen=True)
class Travel:
    """A graph, its edges as (type, id), source and target, and the properties of everything."""

    graph: Graph
    edges: dict[Entity, tuple[Entity, Entity]]
    properties: Properties

    def hops(self, steps: Sequence[EdgeStep]) -> list[Hop]:
        return [hop for step in steps for hop in self._hops_of(step)]

    def _hops_of(self, step: EdgeStep) -> Iterator[Hop]:
        for name, (source, target) in self.edges.items():
            if name[0] == step.edge.name:
                if step.direction is not Direction.IN:
                    yield Hop(name, source, target)
                if step.direction is Direction.IN or (step.direction is Direction.BOTH and source != target):
                    yield Hop(name, target, source)


def travel_graph(path: Path, seed: int) -> Travel:
    """A random graph that was loaded in pieces and indexed in part. Ids of edges descend, so that their order is never
    the one in which they were stored."""
    random_ = random.Random(seed)
    graph = Graph.init(path, TRAVEL)
    properties: Properties = {}
    for type_name, slugs in NODES.items():
        for slug in slugs:
            properties[type_name, slug] = {} if type_name == "Thing" else {"age": random_.choice((None, 1, 2, 3))}
    graph.load("\n".join(node(*name, **data) for name, data in properties.items()), mode="append")
    edges: dict[Entity, tuple[Entity, Entity]] = {}
    for _ in range(2):
        lines = []
        for _ in range(random_.randint(3, 7)):
            type_name = random_.choice(list(ENDS))
            name = type_name, f"e{99 - len(edges):02d}"
            ends = tuple((of, random_.choice(NODES[of])) for of in ENDS[type_name])
            edges[name] = ends[0], ends[1]
            properties[name] = {"w": random_.choice((None, 1, 2, 3))}
            lines.append(edge(type_name, ends[0][1], ends[1][1], id=name[1], **properties[name]))
        graph.load("\n".join(lines), mode="append")
        if random_.random() < 0.5:
            build_indexes(graph)
    return Travel(graph, edges, properties)


def steps_of(catalog: Catalog, *chosen: tuple[str, Direction]) -> tuple[EdgeStep, ...]:
    """Steps by edge type and direction; either direction of an edge type with two node types is two steps."""
    steps = []
    for name, direction in chosen:
        type_ = catalog.edges[name]
        near, far = catalog.nodes[type_.from_type], catalog.nodes[type_.to_type]
        both = direction is Direction.BOTH and near is not far
        for way in (Direction.OUT, Direction.IN) if both else (direction,):
            start, end = (far, near) if way is Direction.IN else (near, far)
            steps.append(EdgeStep(type_, way, start, end))
    return tuple(steps)


def walk_of(
    catalog: Catalog,
    steps: Sequence[EdgeStep],
    hops: tuple[int, int],
    *,
    sources: Sequence[str] = ("Person",),
    destinations: Sequence[str] = ("Person",),
    each: ir.Each | None = None,
) -> ir.Walk:
    """A walk from `$a` to `$b`."""
    passed = dict.fromkeys([*sources, *(step.start.name for step in steps), *(step.end.name for step in steps)])
    edge_types = {step.edge.name: step.edge for step in steps}
    return ir.Walk(
        "a",
        tuple(catalog.nodes[name] for name in sources),
        tuple(steps),
        *hops,
        "b",
        tuple(catalog.nodes[name] for name in destinations),
        tuple(edge_types.values()),
        tuple(catalog.nodes[name] for name in passed),
        each,
    )


NO_INPUT = ir.Outer(())


def path_plan(walk: ir.Walk, mode: PathMode, *, closing: bool = False) -> ir.PathExpand:
    type_ = PathType(EntityType(walk.node_members[::-1]), EntityType(walk.edge_members[::-1]))
    return ir.PathExpand(NO_INPUT, walk, mode, "p", type_, closing)


class Running:
    """One query on a snapshot, and the entities of the snapshot by type and row id."""

    def __init__(
        self, snapshot: Snapshot, *, visibility: Visibility = UNRESTRICTED, options: ReadOptions = DEFAULT_OPTIONS
    ) -> None:
        self.catalog = snapshot.catalog
        self.context: ReadContext = context_of(snapshot, snapshot.catalog, visibility, {}, options)
        self._ids: dict[str, dict[int, str]] = {}
        for type_ in (*self.catalog.nodes.values(), *self.catalog.edges.values()):
            read = snapshot.table(type_.type_key).read(["id"], row_ids=True).to_pylist()
            self._ids[type_.name] = {row["_rowid"]: row["id"] for row in read}

    def rows(self, **bound: tuple[Sequence[TableType], Sequence[Entity | None]]) -> Bindings:
        """Rows that bind variables to entities of some members; None is null."""
        columns: dict[str, Any] = {}
        length = 0
        for variable, (members, entities) in bound.items():
            names = [member.name for member in members]
            length = len(entities)
            columns[variable] = np.array([-1 if e is None else self._row_of(e) for e in entities], np.int64)
            if len(members) > 1:
                codes = [-1 if e is None else names.index(e[0]) for e in entities]
                columns[member_column(variable)] = np.array(codes, np.int64)
        return Bindings(columns, length)

    def _row_of(self, entity: Entity) -> int:
        return next(row for row, id_ in self._ids[entity[0]].items() if id_ == entity[1])

    def entities(self, rows: Bindings, variable: str, members: Sequence[TableType]) -> list[Entity]:
        """What a variable is bound to."""
        codes = rows.rows[member_column(variable)] if len(members) > 1 else np.zeros(rows.length, np.int64)
        pairs = zip(codes.tolist(), rows.rows[variable].tolist(), strict=True)
        return [self._entity(members, code, row) for code, row in pairs]

    def _entity(self, members: Sequence[TableType], code: int, row: int) -> Entity:
        name = members[code].name
        return name, self._ids[name][row]

    def paths(self, rows: Bindings, plan: ir.PathExpand) -> list[tuple[tuple[Entity, ...], tuple[Entity, ...]]]:
        """The nodes and edges of each path."""
        values = self.context.bound.locate(plan.path, plan.path_type, rows.rows[plan.path]).gather().to_pylist()
        types = plan.path_type
        return [
            (
                tuple(self._entity(types.nodes.members, part["member"], part["row"]) for part in value["nodes"]),
                tuple(self._entity(types.edges.members, part["member"], part["row"]) for part in value["edges"]),
            )
            for value in values
        ]

    def expand(self, plan: ir.ExpandWalk, rows: Bindings, needed: set[str], *, counts_only: bool = False) -> Bindings:
        return expand_walk(plan, rows, needed, counts_only, self.context)

    def find_paths(
        self, plan: ir.PathExpand, rows: Bindings, needed: set[str], *, counts_only: bool = False
    ) -> list[Bindings]:
        return list(path_expand(plan, rows, needed, counts_only, self.context))


def property_of(variable: str, type_: NodeType | EdgeType, name: str) -> ir.PropertyValue:
    return ir.PropertyValue(variable, type_, type_.properties[name])


def number_of(variable: str, members: Sequence[NodeType | EdgeType], name: str) -> ir.Value:
    """An I32 property of a variable of one or several types."""
    if len(members) == 1:
        return property_of(variable, members[0], name)
    parts = tuple(property_of(variable, type_, name) for type_ in members)
    return ir.UnionProperty(variable, parts, parts[0].type)


def holds(values: Mapping[str, Any], name: str, least: Any) -> bool:
    """`$x.name >= least`, where null is never true."""
    return values[name] is not None and least is not None and values[name] >= least
