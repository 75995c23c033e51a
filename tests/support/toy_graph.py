"""A graph of Python dicts, and the ways through it: what distances, shortest paths and trails are, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.language.query import ir
from omnigraph.language.query.syntax import PathMode


@dataclass(frozen=True)
class StoredEdge:
    id: str
    source: str
    target: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str | None, str | None] = (None, None)
    """Those of the source and the target, where an end is an interface."""

    def leads(self, source: str, target: str) -> bool:
        """Whether it may lead from a node of one type to a node of another."""
        return all(own in (None, name) for own, name in zip(self.types, (source, target), strict=True))


@dataclass(frozen=True)
class ToyGraph:
    nodes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    edges: Mapping[str, Sequence[StoredEdge]]


@dataclass(frozen=True, order=True)
class Entity:
    """A node or an edge: what variables are bound to."""

    type: str
    id: str

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class Path:
    nodes: tuple[Entity, ...]
    edges: tuple[Entity, ...] = ()

    def __str__(self) -> str:
        return " ".join(edge.id for edge in self.edges)


Hops = Callable[[Entity], list[tuple[Entity, Entity]]]


@dataclass(frozen=True)
class Step:
    """A way to take a hop: along, against or either way of an edge type, from one node type to another."""

    edge: str
    direction: ir.Direction
    start: str
    end: str

    def arrivals(self, edge: StoredEdge, node: Entity) -> list[Entity]:
        """Where a stored edge leads from a node; a self loop leads there once."""
        if self.direction is not ir.Direction.IN and edge.source == node.id and edge.leads(self.start, self.end):
            return [Entity(self.end, edge.target)]
        if self.direction is not ir.Direction.OUT and edge.target == node.id and edge.leads(self.end, self.start):
            return [Entity(self.end, edge.source)]
        return []


@dataclass(frozen=True)
class Walk:
    """What `Expand` and the operators over an `ir.Walk` have in common."""

    source: str
    steps: tuple[Step, ...]
    min_hops: int
    max_hops: int
    destination: str
    destination_types: frozenset[str]
    each: ir.Each | None

    @classmethod
    def of(cls, op: ir.Expand | ir.ExpandWalk | ir.PathExpand) -> Walk:
        if isinstance(op, ir.Expand):
            ends = (op.edge.from_type, op.edge.to_type)
            start, end = ends[::-1] if op.direction is ir.Direction.IN else ends
            step = Step(op.edge.name, op.direction, start, end)
            return cls(op.source, (step,), op.min_hops, op.max_hops, op.destination, frozenset({end}), None)
        walk = op.walk
        steps = tuple(Step(s.edge.name, s.direction, s.start.name, s.end.name) for s in walk.steps)
        members = frozenset(member.name for member in walk.destination_members)
        return cls(walk.source, steps, walk.min_hops, walk.max_hops, walk.destination, members, walk.each)


def reachable(walk: Walk, start: Entity, hops: Hops) -> list[Entity]:
    """The nodes whose distance is within the bounds, word for word as the language says it."""
    frontier, seen = [start], {start}
    reached: dict[Entity, None] = {start: None} if walk.min_hops == 0 else {}
    hop = 0
    while frontier and hop < walk.max_hops:
        hop += 1
        following: list[Entity] = []
        for node in frontier:
            for _, arrival in hops(node):
                if arrival == node == start and hop == 1:
                    if walk.min_hops <= 1:
                        reached[arrival] = None
                elif arrival not in seen:
                    seen.add(arrival)
                    following.append(arrival)
                    if hop >= walk.min_hops:
                        reached[arrival] = None
        frontier = following
    return list(reached)


def shortest(walk: Walk, start: Entity, hops: Hops, mode: PathMode) -> Iterator[Path]:
    """For every node within the bounds its paths of least length: the one whose edges are smallest, or all."""
    for node in reachable(walk, start, hops):
        found = [Path((start,))] if node == start and walk.min_hops == 0 else []
        level = [Path((start,))]
        while not found:
            level = [_extended(path, *hop) for path in level for hop in hops(path.nodes[-1])]
            found = [path for path in level if path.nodes[-1] == node]
        found.sort(key=lambda path: path.edges)
        yield from found if mode is PathMode.ALL_SHORTEST else found[:1]


def trails(walk: Walk, start: Entity, hops: Hops, mode: PathMode) -> Iterator[Path]:
    """Every walk without a repeated edge."""
    waiting = [Path((start,))]
    while waiting:
        path = waiting.pop()
        if walk.min_hops <= len(path.edges):
            yield path
        if len(path.edges) < walk.max_hops:
            waiting += [_extended(path, *hop) for hop in hops(path.nodes[-1]) if hop[0] not in path.edges]


def _extended(path: Path, edge: Entity, node: Entity) -> Path:
    return Path((*path.nodes, node), (*path.edges, edge))


def join(parts: Sequence[Any]) -> Path:
    """A path made of nodes, edges and paths whose ends meet."""
    nodes: list[Entity] = []
    edges: list[Entity] = []
    for part in parts:
        if isinstance(part, Path):
            nodes += part.nodes[1:] if len(nodes) > len(edges) else part.nodes
            edges += part.edges
        else:
            (edges if len(nodes) > len(edges) else nodes).append(part)
    return Path(tuple(nodes), tuple(edges))
