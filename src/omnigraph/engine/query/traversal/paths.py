"""Shortest paths: one or all of them, from many starts at once, to everything in reach or between two ends.

A path of least length is found by the distances of `search`; of several the smallest is the one whose sequence of edge
numbers is smallest. Paths that begin alike share their beginnings in a `PathTree`. Works on any `HopSource`; `walks`
calls it and binds what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import LARGEST_COUNT, UNCOUNTABLE, Counts, Indices, Mask, added_up, total
from omnigraph.engine.query.traversal.adjacency import list_bounds, spread
from omnigraph.engine.query.traversal.search import Accept, HopRange, HopSource, OwnedHops, SearchContext, next_frontier
from omnigraph.storage.integer_sets import distinct, factorize, find_positions, is_member

_NONE = np.empty(0, np.int64)


class Sequences(NamedTuple):
    """Paths written out: the nodes and the edges of each, one path after the other. A path of n edges has n + 1
    nodes."""

    lengths: Indices
    nodes: Indices
    edges: Indices


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths, each with the start that owns it. They are the ways from the roots of a tree to some of its places.

    Place i of the tree is the node `nodes[i]`, to which the edge `edges[i]` leads from place `parents[i]`; roots have
    -1 instead.
    """

    nodes: Indices
    edges: Indices
    parents: Indices
    owners: Indices
    places: Indices
    lengths: Indices

    @property
    def ends(self) -> Indices:
        """The last node of each path."""
        return self.nodes[self.places]

    def take(self, chosen: Indices) -> Paths:
        """Some of the paths."""
        owners, places, lengths = self.owners[chosen], self.places[chosen], self.lengths[chosen]
        return Paths(self.nodes, self.edges, self.parents, owners, places, lengths)

    def owned_by(self, owners: Indices) -> Paths:
        """The same paths, each owned by what stands at the number of its owner."""
        return Paths(self.nodes, self.edges, self.parents, owners[self.owners], self.places, self.lengths)

    def write_out(self, context: SearchContext) -> Sequences:
        """All paths, each as a sequence of its own."""
        steps = int(self.lengths.sum())
        context.work.spend(steps)
        context.budget.step((2 * steps + 4 * len(self.places)) * 8)
        nodes, edges = np.empty(steps + len(self.places), np.int64), np.empty(steps, np.int64)
        # The longest first: those that have a step left are always the beginning.
        order = np.argsort(-self.lengths, kind="stable")
        left, at = self.lengths[order], self.places[order]
        first_nodes = list_bounds(self.lengths + 1)[:-1][order]
        first_edges = list_bounds(self.lengths)[:-1][order]
        for step in range(int(left[0]) if len(left) else 0, 0, -1):
            context.cancellation.check()
            active = int(np.searchsorted(-left, -step, side="right"))
            here = at[:active]
            nodes[first_nodes[:active] + step] = self.nodes[here]
            edges[first_edges[:active] + step - 1] = self.edges[here]
            at[:active] = self.parents[here]
        nodes[first_nodes] = self.nodes[at]
        return Sequences(self.lengths, nodes, edges)


def join_paths(parts: Sequence[Paths]) -> Paths:
    """All paths of several trees."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Paths(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
    first = list_bounds(np.array([len(part.nodes) for part in parts]))
    parents = [np.where(part.parents < 0, -1, part.parents + at) for part, at in zip(parts, first, strict=False)]
    places = [part.places + at for part, at in zip(parts, first, strict=False)]
    return Paths(
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([part.edges for part in parts]),
        np.concatenate(parents),
        np.concatenate([part.owners for part in parts]),
        np.concatenate(places),
        np.concatenate([part.lengths for part in parts]),
    )


class _Tree:
    """A tree of paths that grows, and the paths in it that are reported."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._places: list[tuple[Indices, Indices, Indices]] = []
        self._reported: list[tuple[Indices, Indices, Indices]] = []
        self.size = 0

    def add(self, nodes: Indices, edges: NDArray[Any] | None, parents: Indices | None) -> Indices:
        """New places, by number. Roots have no edge and no parent."""
        none = np.full(len(nodes), -1, np.int64)
        wide = none if edges is None else edges.astype(np.int64)
        self._places.append((nodes, wide, none if parents is None else parents))
        first, self.size = self.size, self.size + len(nodes)
        self._context.budget.step(self.size * 3 * 8)
        return np.arange(first, self.size)

    def report(self, owners: Indices, places: Indices, length: int) -> None:
        self._reported.append((owners, places, np.full(len(places), length)))

    def paths(self) -> Paths:
        """By owner, then by length, in the order of their reports."""
        if not self._places:
            return join_paths([])
        columns = [np.concatenate(parts) for parts in zip(*self._places, strict=True)]
        reports = [np.concatenate(parts) for parts in zip(*self._reported, strict=True)] or [_NONE, _NONE, _NONE]
        order = np.argsort(reports[0], kind="stable")
        return Paths(*columns, *(column[order] for column in reports))


class _Meetings(NamedTuple):
    """Hops in a search: the states they lead to, which state of the frontier each begins at, and their edges."""

    keys: Indices
    origins: Indices
    edges: Indices

    def take(self, chosen: Indices) -> _Meetings:
        return _Meetings(self.keys[chosen], self.origins[chosen], self.edges[chosen])


def _follow(graph: HopSource, frontier: Indices) -> Iterator[_Meetings]:
    size = graph.size
    owner, node = np.divmod(frontier, size)
    for hops in graph.follow(owner, node):
        assert hops.edges is not None
        keys = (owner * size)[hops.origins] + hops.targets
        yield _Meetings(keys, hops.origins, hops.edges.astype(np.int64))


def _join(parts: Sequence[_Meetings]) -> _Meetings:
    return _Meetings(*(np.concatenate(arrays) for arrays in zip(_Meetings(_NONE, _NONE, _NONE), *parts, strict=True)))


def shortest_paths(graph: HopSource, starts: Indices, hops: HopRange, accept: Accept, context: SearchContext) -> Paths:
    """The smallest path of least length from each start to each node that `search` reports and `accept` keeps."""
    size, tree = graph.size, _Tree(context)
    context.budget.step(len(starts) * size)
    visited = context.marks(len(starts) * size)
    # In the order of the smallest path to each state: what is met first is met by the smallest path.
    frontier, places = np.arange(len(starts)) * size + starts, tree.add(starts, None, None)
    visited[frontier] = True
    marked = [frontier]
    if hops.least == 0:
        _report(tree, 0, frontier, places, size, accept)
    try:
        for hop in range(1, hops.most + 1):
            met = _first_meetings(graph, frontier, visited, with_loops=hop == hops.least == 1)
            if not len(met.keys):
                break
            fresh = tree.add(met.keys % size, met.edges, places[met.origins])
            if hop >= hops.least:
                _report(tree, hop, met.keys, fresh, size, accept)
            is_loop = met.keys == frontier[met.origins]
            frontier, places = met.keys[~is_loop], fresh[~is_loop]
            marked.append(frontier)
    finally:
        for keys in marked:
            visited[keys] = False
    return tree.paths()


def _first_meetings(graph: HopSource, frontier: Indices, visited: Mask, *, with_loops: bool) -> _Meetings:
    """The first hop to each state that was not visited yet, which is marked, and to each state by its own self loop."""
    fresh = []
    for met in _follow(graph, frontier):
        wanted = ~visited[met.keys]
        if with_loops:
            wanted |= met.keys == frontier[met.origins]
        candidates = np.flatnonzero(wanted)
        first = met.take(candidates[np.sort(factorize(met.keys[candidates]).first)])
        visited[first.keys] = True
        fresh.append(first)
    return _join(fresh)


def _report(tree: _Tree, length: int, keys: Indices, places: Indices, size: int, accept: Accept) -> None:
    owners, nodes = np.divmod(keys, size)
    kept = accept(owners, nodes)
    tree.report(owners[kept], places[kept], length)


class _Level(NamedTuple):
    """The states at one distance, ascending, which of them are reported, and the hops that lead to them from the level
    before: from which of its states, to which of these, over which edge."""

    keys: Indices
    reported: Mask
    hops: _LevelHops


class _LevelHops(NamedTuple):
    origins: Indices
    targets: Indices
    edges: Indices


_NO_HOPS = _LevelHops(_NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class ShortestPaths:
    """All paths of least length to the reported states of some levels. `loops` are the self loops of the first level's
    states that are reported, as paths of one edge. `owners` are those of the states, by their number in the search."""

    size: int
    levels: Sequence[_Level]
    loops: _LevelHops
    owners: Indices

    def _ways(self) -> Iterator[Counts]:
        """How many paths lead to each state, level by level."""
        ways: Counts = np.ones(len(self.levels[0].keys), np.int64)
        yield ways
        for level in self.levels[1:]:
            ways = added_up(level.hops.targets, ways[level.hops.origins], len(level.keys))
            yield ways

    def owned_by(self, owners: Indices) -> ShortestPaths:
        """The same paths, each owned by what stands at the number of its owner."""
        return ShortestPaths(self.size, self.levels, self.loops, owners[self.owners])

    def count(self) -> tuple[Indices, Indices, Counts]:
        """The owner and the last node of each group of paths, and how many there are."""
        looped = np.bincount(self.loops.targets, minlength=len(self.levels[0].keys))
        keys, counts = [self.levels[0].keys[looped > 0]], [looped[looped > 0]]
        for level, ways in zip(self.levels, self._ways(), strict=True):
            keys.append(level.keys[level.reported])
            counts.append(ways[level.reported])
        owner, node = np.divmod(np.concatenate(keys), self.size)
        return self.owners[owner], node, np.concatenate(counts)

    def _steps(self) -> int:
        """How many edges all paths have together; when too many to count, the largest count."""
        steps = len(self.loops.edges)
        for length, (level, ways) in enumerate(zip(self.levels, self._ways(), strict=True)):
            of_level = total(ways[level.reported])
            if of_level == UNCOUNTABLE:
                return LARGEST_COUNT
            steps += of_level * length
        return steps

    def paths(self, context: SearchContext, *, first_only: bool) -> Paths:
        """The paths of each owner by length, then by their edges, a self loop before others; or only the first of each
        owner."""
        if not first_only:
            context.work.require(self._steps())
        tree = _Tree(context)
        needed = self._mark_needed()
        at = np.flatnonzero(needed[0])
        places = tree.add(self.levels[0].keys[at] % self.size, None, None)
        self._report(tree, 0, at, places)
        self._add_loops(tree, at, places, first_only=first_only)
        for length, level in enumerate(self.levels[1:], 1):
            context.cancellation.check()
            lists = _HopLists.of(level.hops, needed[length], len(self.levels[length - 1].keys), first_only=first_only)
            origins, hops = lists.from_states(at)
            at = level.hops.targets[hops]
            places = tree.add(level.keys[at] % self.size, level.hops.edges[hops], places[origins])
            self._report(tree, length, at, places)
        return tree.paths()

    def _mark_needed(self) -> list[Mask]:
        """The states of each level from which a reported one is reached."""
        needed = [level.reported.copy() for level in self.levels]
        needed[0][self.loops.targets] = True
        for length in range(len(self.levels) - 1, 0, -1):
            hops = self.levels[length].hops
            needed[length - 1][hops.origins[needed[length][hops.targets]]] = True
        return needed

    def _report(self, tree: _Tree, length: int, at: Indices, places: Indices) -> None:
        level = self.levels[length]
        kept = level.reported[at]
        tree.report(self.owners[level.keys[at[kept]] // self.size], places[kept], length)

    def _add_loops(self, tree: _Tree, at: Indices, places: Indices, *, first_only: bool) -> None:
        keys = self.levels[0].keys
        every = np.ones(len(keys), np.bool_)
        origins, hops = _HopLists.of(self.loops, every, len(keys), first_only=first_only).from_states(at)
        looped = tree.add(keys[at[origins]] % self.size, self.loops.edges[hops], places[origins])
        tree.report(self.owners[keys[at[origins]] // self.size], looped, 1)


class _HopLists(NamedTuple):
    """Hops of a level by the state they begin at, those of each in the order of their edges."""

    order: Indices
    bounds: Indices
    first_only: bool

    @classmethod
    def of(cls, hops: _LevelHops, needed: Mask, states: int, *, first_only: bool) -> _HopLists:
        """Of the hops that lead to needed states."""
        kept = np.flatnonzero(needed[hops.targets])
        origins, edges = hops.origins[kept], hops.edges[kept]
        later = (origins[1:] > origins[:-1]) | ((origins[1:] == origins[:-1]) & (edges[1:] > edges[:-1]))
        order = kept if later.all() else kept[np.lexsort((edges, origins))]
        return cls(order, list_bounds(np.bincount(origins, minlength=states)), first_only)

    def from_states(self, states: Indices) -> tuple[Indices, Indices]:
        """The hops from some states: which of them each begins at, and which hop of the level it is."""
        counts = self.bounds[states + 1] - self.bounds[states]
        if self.first_only:
            counts = np.minimum(counts, 1)
        return np.repeat(np.arange(len(states)), counts), self.order[spread(self.bounds[states], counts)]


def all_shortest_paths(
    graph: HopSource, starts: Indices, hops: HopRange, accept: Accept, context: SearchContext
) -> ShortestPaths:
    """All paths of least length from each start to each node that `search` reports and `accept` keeps."""
    size = graph.size
    context.budget.step(len(starts) * size)
    visited = context.marks(len(starts) * size)

    def level_of(keys: Indices, distance: int, met: _LevelHops) -> _Level:
        owner, node = np.divmod(keys, size)
        reported = accept(owner, node) if distance >= hops.least else np.zeros(len(keys), np.bool_)
        return _Level(keys, reported, met)

    frontier = np.arange(len(starts)) * size + starts
    levels, loops = [level_of(frontier, 0, _NO_HOPS)], _NO_HOPS
    visited[frontier] = True
    held = 0
    try:
        for hop in range(1, hops.most + 1):
            parts, looped = [], []
            for met in _follow(graph, frontier):
                parts.append(met.take(np.flatnonzero(~visited[met.keys])))
                if hop == hops.least == 1:
                    looped.append(met.take(np.flatnonzero(met.keys == frontier[met.origins])))
                held += 3 * parts[-1].keys.nbytes
                context.budget.step(held)
            if looped:
                loops = _accepted_loops(_join(looped), size, accept)
            met = _join(parts)
            if not len(met.keys):
                break
            frontier = distinct(met.keys)
            visited[frontier] = True
            targets = np.searchsorted(frontier, met.keys)
            levels.append(level_of(frontier, hop, _LevelHops(met.origins, targets, met.edges)))
    finally:
        for level in levels:
            visited[level.keys] = False
    return ShortestPaths(size, levels, loops, np.arange(len(starts)))


def _accepted_loops(loops: _Meetings, size: int, accept: Accept) -> _LevelHops:
    loops = loops.take(np.flatnonzero(accept(*np.divmod(loops.keys, size))))
    return _LevelHops(loops.origins, loops.origins, loops.edges)


class _Side:
    """One of the two searches that meet: its graph, its levels of states, and what it visited."""

    def __init__(self, graph: HopSource, starts: Indices, visited: Mask) -> None:
        self.graph = graph
        self.levels = [np.arange(len(starts)) * graph.size + starts]
        self._visited = visited
        self._marked = [self.levels[0]]
        visited[self.levels[0]] = True

    @property
    def frontier(self) -> Indices:
        return self.levels[-1]

    def advance(self) -> None:
        frontier, _ = next_frontier(self.graph, self.frontier, self._visited)
        self.levels.append(frontier)
        self._marked.append(frontier)

    def keep(self, owners: Indices) -> None:
        """Go on for these owners alone."""
        self.levels[-1] = self.frontier[is_member(self.frontier // self.graph.size, owners)]

    def clear(self) -> None:
        for keys in self._marked:
            self._visited[keys] = False


def paths_between(
    graph: HopSource, back: HopSource, starts: Indices, ends: Indices, hops: HopRange, context: SearchContext
) -> list[ShortestPaths]:
    """All paths of least length from each start to the end beside it, searched from both sides. `back` has the same
    hops the other way round."""
    same, other = np.flatnonzero(starts == ends), np.flatnonzero(starts != ends)
    own = starts[same]
    near = HopRange(hops.least, min(hops.least, hops.most, 1))
    loops = all_shortest_paths(OwnedHops(graph, same), own, near, lambda owner, node: node == own[owner], context)
    parts = [loops.owned_by(same)]
    size, count = graph.size, len(other)
    context.budget.step(2 * count * size)
    visited = context.marks(2 * count * size)
    sides = (
        _Side(OwnedHops(graph, other), starts[other], visited[: count * size]),
        _Side(OwnedHops(back, other), ends[other], visited[count * size :]),
    )
    try:
        for distance in range(1, hops.most + 1):
            side = min(sides, key=lambda side: len(side.frontier))
            if not len(side.frontier):
                break
            side.advance()
            met = _common(sides[0].frontier, sides[1].frontier)
            if len(met) and distance >= hops.least:
                parts.append(ShortestPaths(size, _levels_through(met, *sides), _NO_HOPS, other))
            # A pair is done when its sides have met, or one of them has nowhere to go.
            owners = [distinct(side.frontier // size) for side in sides]
            going = _common(*owners)
            going = going[~is_member(going, met // size)]
            for side in sides:
                side.keep(going)
    finally:
        for side in sides:
            side.clear()
    return parts


def _common(left: Indices, right: Indices) -> Indices:
    """The numbers of two ascending arrays that are in both."""
    return left[find_positions(right, left)[1]]


def _levels_through(met: Indices, near: _Side, far: _Side) -> list[_Level]:
    """The levels of all shortest paths that lead through the states where two searches met."""
    before = list(_hops_towards(met, near.levels[-2::-1], far.graph))
    after = list(_hops_towards(met, far.levels[-2::-1], near.graph))
    keys = [*(level for level, _ in reversed(before)), met, *(level for level, _ in after)]
    hops = [_NO_HOPS]
    # Hops of the near side were followed backwards: what they begin at is where they end.
    hops += [_LevelHops(targets, origins, edges) for _, (origins, targets, edges) in reversed(before)]
    hops += [way for _, way in after]
    last = len(keys) - 1
    return [
        _Level(states, np.full(len(states), length == last), way)
        for length, (states, way) in enumerate(zip(keys, hops, strict=True))
    ]


def _hops_towards(states: Indices, levels: Sequence[Indices], graph: HopSource) -> Iterator[tuple[Indices, _LevelHops]]:
    """From level to level, the states that hops from those before lead to, and these hops."""
    for level in levels:
        parts = _follow(graph, states)
        met = _join([part.take(np.flatnonzero(find_positions(level, part.keys)[1])) for part in parts])
        states = distinct(met.keys)
        yield states, _LevelHops(met.origins, np.searchsorted(states, met.keys), met.edges)
