"""Traversals over several edge types, between variables of several types, with conditions on hops, and with paths.

`run` calls `expand_walk` and `path_expand`. Both search a `WalkGraph` from each distinct start once, and give every row
what its start reached. `expand` keeps the traversals over one edge type, which need none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.bindings import Bindings, Counts, Indices, added_up, member_column, readable
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.traversal.paths import (
    Paths,
    Sequences,
    ShortestPaths,
    all_shortest_paths,
    join_paths,
    paths_between,
    shortest_paths,
)
from omnigraph.engine.query.traversal.search import bounded_parts, starts_at_once
from omnigraph.engine.query.traversal.trails import Trails, find_trails
from omnigraph.engine.query.traversal.walk_graph import WalkGraph, with_start
from omnigraph.engine.query.traversal.walk_rows import WalkPart
from omnigraph.engine.query.value_columns import PATH, list_array, list_offsets, references
from omnigraph.engine.query.values.predicates import filter_rows
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import PathMode
from omnigraph.storage.integer_sets import factorize

# States that searches for paths get to together at most: each may become a node of a tree of paths.
_STATES_AT_ONCE = 1 << 22
# So many ends of one start are searched for from both sides, each by itself; more of them are found by one search.
_ENDS_PER_START = 8
# Numbers of the paths in a piece, each of which takes so many bytes until it is shown.
_NUMBERS_PER_PIECE = 1 << 18
_BYTES_PER_NUMBER: Final = 256
# How rows that search for trails together become more.
_GROWTH: Final = 8
_MOST_ROWS: Final = 1 << 14


def expand_walk(
    plan: ir.ExpandWalk, rows: Bindings, needed: AbstractSet[str], counts_only: bool, context: ReadContext
) -> Bindings:
    """The rows of `plan` over `rows`, binding at least the `needed` variables. With `counts_only` the result is only
    counted, so an end that no later operator reads may become a weight."""
    walk, edge_variable = plan.walk, plan.edge_variable
    rows = with_start(walk, rows)
    looked_at = _looked_at(plan, needed)
    if not rows.length or walk.min_hops > walk.max_hops:
        return _without_rows(plan, rows, edge_variable)
    graph = WalkGraph(walk, rows, context, with_edges=edge_variable is not None)
    try:
        part = WalkPart(graph, slice(0, rows.length), _wanted_ends(plan, graph, rows))
        reached = part.reach(context, with_edges=edge_variable is not None)
        matches, kept = part.match(reached.owners, reached.ends), rows.only(looked_at)
        binds_end = not plan.closing and walk.destination in looked_at
        if counts_only and not binds_end and edge_variable not in looked_at:
            return filter_rows(kept.with_weights(matches.counts), plan.predicates, context)
        total = int(matches.counts.sum())
        context.budget.step(rows.nbytes + total * 8 * (len(kept.rows) + 5 + (kept.weights is not None)))
        expanded = kept.each(matches.counts, context.cancellation.check)
        if binds_end:
            columns = graph.bind_nodes(walk.destination, walk.destination_members, reached.ends[matches.at])
            expanded = expanded.binding(columns)
        if edge_variable is not None and edge_variable in looked_at:
            expanded = expanded.binding(graph.bind_edges(edge_variable, reached.edges[matches.at]))
        return filter_rows(expanded, plan.predicates, context)
    finally:
        graph.release()


def path_expand(
    plan: ir.PathExpand, rows: Bindings, needed: AbstractSet[str], counts_only: bool, context: ReadContext
) -> Iterator[Bindings]:
    """The rows of `plan` over `rows`, in order, at least one piece, each made when it is asked for. What is only
    counted comes in one piece."""
    walk = plan.walk
    rows = with_start(walk, rows)
    looked_at = _looked_at(plan, needed)
    if not rows.length or walk.min_hops > walk.max_hops:
        yield _without_rows(plan, rows, plan.path)
        return
    if plan.mode is PathMode.SHORTEST and plan.path not in looked_at:
        same_rows = ir.ExpandWalk(plan.input, walk, None, plan.closing, plan.predicates)
        yield expand_walk(same_rows, rows, needed, counts_only, context)
        return
    graph = WalkGraph(walk, rows, context, with_edges=True)
    try:
        finder = _PathFinder(plan, graph, rows, looked_at, context)
        if counts_only:
            yield finder.count_rows()
            return
        is_empty = True
        for piece in finder.pieces():
            yield finder.bind(piece)
            is_empty = False
        if is_empty:
            yield _without_rows(plan, rows, plan.path)
    finally:
        graph.release()


def _looked_at(plan: ir.ExpandWalk | ir.PathExpand, needed: AbstractSet[str]) -> set[str]:
    return set(needed) | {name for p in plan.predicates for name in ir.predicate_variables(p)}


def _wanted_ends(plan: ir.ExpandWalk | ir.PathExpand, graph: WalkGraph, rows: Bindings) -> Indices | None:
    """The node that each row of a closing traversal has to reach; -1 if it is null or out of reach."""
    if not plan.closing:
        return None
    return graph.positions(plan.walk.destination, plan.walk.destination_members, rows)


def _without_rows(plan: ir.ExpandWalk | ir.PathExpand, rows: Bindings, variable: str | None) -> Bindings:
    """No rows, with all columns that there would be. `variable` is that of the edge or the path."""
    walk = plan.walk
    names = [] if variable is None else [variable]
    if isinstance(plan, ir.ExpandWalk) and variable is not None and len(walk.edge_members) > 1:
        names.append(member_column(variable))
    if not plan.closing:
        names.append(walk.destination)
        if len(walk.destination_members) > 1:
            names.append(member_column(walk.destination))
    return rows.slice(0, 0).binding({name: np.empty(0, np.int64) for name in names})


class _Piece(NamedTuple):
    """Rows of a path operator: the row that each extends, its end, the position of its path among the bound values if
    paths are bound, and how many rows it stands for."""

    rows: Indices
    ends: Indices
    paths: Indices
    weights: Counts


class _PathFinder:
    """One run of a path operator over some rows."""

    def __init__(
        self, plan: ir.PathExpand, graph: WalkGraph, rows: Bindings, looked_at: set[str], context: ReadContext
    ) -> None:
        self._plan = plan
        self._graph = graph
        self._kept = rows.only(looked_at)
        self._binds_end = not plan.closing and plan.walk.destination in looked_at
        self._binds_path = plan.path in looked_at
        self._wanted = _wanted_ends(plan, graph, rows)
        self._context = context

    def pieces(self) -> Iterator[_Piece]:
        """The rows of the operator, in the order of the rows that they extend."""
        if self._plan.mode is PathMode.TRAILS:
            return self._pieces_of_trails()
        return self._pieces_of_shortest()

    def bind(self, piece: _Piece, *, weighted: bool = False) -> Bindings:
        """The bindings of a piece. Without weights, what stands for several rows becomes as many."""
        walk, rows, ends = self._plan.walk, piece.rows, piece.ends
        total = len(rows) if weighted else int(readable(piece.weights).sum())
        self._context.budget.step(total * 8 * (len(self._kept.rows) + 5))
        if total != len(rows):  # only without paths
            rows, ends = np.repeat(rows, piece.weights), np.repeat(ends, piece.weights)
        bindings = self._kept.take(rows)
        if self._binds_end:
            bindings = bindings.binding(self._graph.bind_nodes(walk.destination, walk.destination_members, ends))
        if self._binds_path:
            bindings = bindings.binding({self._plan.path: piece.paths})
        if weighted:
            bindings = bindings.with_weights(piece.weights)
        return filter_rows(bindings, self._plan.predicates, self._context)

    def count_rows(self) -> Bindings:
        """All rows at once, where what nobody reads has become a weight."""
        if self._binds_end or self._binds_path:
            pieces, held = [_NO_PIECE], 0
            for piece in self.pieces():
                pieces.append(piece)
                held += sum(array.nbytes for array in piece)
                self._context.budget.step(2 * held)
            return self.bind(_Piece(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))), weighted=True)
        weights: Counts = np.zeros(self._kept.length, np.int64)
        for piece in self.pieces():
            if len(piece.rows):
                first, last = int(piece.rows[0]), int(piece.rows[-1])
                weights[first : last + 1] += added_up(piece.rows - first, piece.weights, last + 1 - first)
        return filter_rows(self._kept.with_weights(weights), self._plan.predicates, self._context)

    # ---- shortest paths ---------------------------------------------------------------------------------

    def _pieces_of_shortest(self) -> Iterator[_Piece]:
        """Rows search together as long as their searches fit: one piece of them after the other."""
        size, length = max(1, len(self._graph.nodes)), self._kept.length
        most = max(1, min(starts_at_once(size, self._context), _STATES_AT_ONCE // size))
        at_once = length if len(self._graph.origins) <= most else most
        for first in range(0, length, at_once):
            part = WalkPart(self._graph, slice(first, min(length, first + at_once)), self._wanted)
            pairs = 0 if self._wanted is None else len(part.pairs[0])
            if self._wanted is not None and not pairs:
                continue
            if self._wanted is not None and pairs <= _ENDS_PER_START * len(part.starts):
                yield from self._pieces_between(part)
            elif self._plan.mode is PathMode.SHORTEST:
                paths = shortest_paths(part.hops(), part.starts, part.hop_range, part.accept, self._context)
                yield from self._pieces_of_paths(part, paths)
            else:
                every = all_shortest_paths(part.hops(), part.starts, part.hop_range, part.accept, self._context)
                yield from self._pieces_of_all(part, [every], np.arange(len(part.starts)))

    def _pieces_between(self, part: WalkPart) -> Iterator[_Piece]:
        """The paths from each start to its end, searched from both sides."""
        starts, ends = part.pairs
        at_once = starts_at_once(2 * len(self._graph.nodes), self._context)
        every: list[ShortestPaths] = []
        for first in range(0, len(starts), at_once):
            own, far = starts[first : first + at_once], ends[first : first + at_once]
            between = paths_between(
                part.hops(own), part.hops_back(own), part.starts[own], far, part.hop_range, self._context
            )
            every += [paths.owned_by(np.arange(first, first + len(own))) for paths in between]
        yield from self._pieces_of_all(part, every, starts)

    def _pieces_of_all(self, part: WalkPart, every: Sequence[ShortestPaths], origins: Indices) -> Iterator[_Piece]:
        """All shortest paths, or the first for each owner. `origins` are those of the owners."""
        first_only = self._plan.mode is PathMode.SHORTEST
        if self._binds_path:
            paths = join_paths([shortest.paths(self._context, first_only=first_only) for shortest in every])
            yield from self._pieces_of_paths(part, paths.owned_by(origins))
        else:
            owners, ends, counts = (np.concatenate(a) for a in zip(*(s.count() for s in every), strict=True))
            yield self._piece_of(part, origins[owners], ends, weights=counts)

    def _pieces_of_paths(self, part: WalkPart, paths: Paths) -> Iterator[_Piece]:
        """The paths of the rows, as many at a time as are well written out together."""
        whole = self._piece_of(part, paths.owners, paths.ends)
        for some in bounded_parts(2 * paths.lengths[whole.paths] + 1, self._numbers_per_piece):
            chosen, _, of_row = factorize(whole.paths[some])
            positions = self._bind_paths(paths.take(chosen).write_out(self._context))
            yield _Piece(whole.rows[some], whole.ends[some], positions[of_row], whole.weights[some])

    # ---- trails -----------------------------------------------------------------------------------------

    def _pieces_of_trails(self) -> Iterator[_Piece]:
        """The trails of a few rows at a time, of more rows when there are few trails. Those of a single row come in
        any number of pieces."""
        first, count = 0, 1
        while first < self._kept.length:
            part = WalkPart(self._graph, slice(first, min(self._kept.length, first + count)), self._wanted)
            if part.rows.stop - first == 1:
                produced = 0
                for piece in self._stream_trails(part):
                    produced += len(piece.rows)
                    yield piece
            else:
                whole = self._collect_trails(part)
                if whole is None:
                    count = 1
                    continue
                produced = len(whole.rows)
                yield whole
            first = part.rows.stop
            if produced * _GROWTH <= self._numbers_per_piece // _GROWTH:
                count = min(count * _GROWTH, _MOST_ROWS)

    def _stream_trails(self, part: WalkPart) -> Iterator[_Piece]:
        trails: list[Trails] = []
        numbers = 0
        for some in self._find_trails(part):
            trails.append(some)
            numbers += some.nbytes // 8
            if numbers >= self._numbers_per_piece:
                yield self._piece_of_trails(part, trails)
                trails, numbers = [], 0
        if trails:
            yield self._piece_of_trails(part, trails)

    def _collect_trails(self, part: WalkPart) -> _Piece | None:
        """The trails of several rows, which follow each other in the order of the rows. None if there are too many to
        wait for them: then each row is taken by itself, and what was looked at counts once."""
        trails: list[Trails] = []
        numbers, spent = 0, self._context.work.spent
        for some in self._find_trails(part):
            trails.append(some)
            numbers += some.nbytes // 8
            if numbers >= self._numbers_per_piece:
                self._context.work.spent = spent
                return None
        return self._piece_of_trails(part, trails)

    def _find_trails(self, part: WalkPart) -> Iterator[Trails]:
        return find_trails(part.hops(), part.starts, part.hop_range, part.accept, self._context)

    def _piece_of_trails(self, part: WalkPart, trails: Sequence[Trails]) -> _Piece:
        none = np.empty(0, np.int64)
        owners = np.concatenate([none, *(some.owners for some in trails)])
        ends = np.concatenate([none, *(some.ends for some in trails)])
        if not self._binds_path:
            return self._piece_of(part, owners, ends)
        lengths = np.concatenate([none, *(np.full(len(some.owners), some.length) for some in trails)])
        self._context.work.spend(int(lengths.sum()))
        nodes = np.concatenate([none, *(some.nodes.reshape(-1) for some in trails)])
        edges = np.concatenate([none, *(some.edges.reshape(-1) for some in trails)])
        return self._piece_of(part, owners, ends, self._bind_paths(Sequences(lengths, nodes, edges)))

    # ---- pieces -----------------------------------------------------------------------------------------

    @property
    def _numbers_per_piece(self) -> int:
        return max(1, min(_NUMBERS_PER_PIECE, self._context.budget.available // _BYTES_PER_NUMBER))

    def _piece_of(
        self,
        part: WalkPart,
        owners: Indices,
        ends: Indices,
        paths: Indices | None = None,
        weights: Counts | None = None,
    ) -> _Piece:
        """The results of each row of a part, of those that origins own."""
        matches = part.match(owners, ends)
        self._context.budget.step(6 * 8 * int(matches.counts.sum()))
        at = matches.at
        rows = np.repeat(np.arange(part.rows.start, part.rows.stop), matches.counts)
        ones: Counts = np.ones(len(at), np.int64)
        return _Piece(rows, ends[at], at if paths is None else paths[at], ones if weights is None else weights[at])

    def _bind_paths(self, paths: Sequences) -> Indices:
        """The positions of paths among the bound values."""
        type_, graph = self._plan.path_type, self._graph
        self._context.budget.step(6 * 8 * (len(paths.nodes) + len(paths.edges)))
        assert graph.edges is not None
        nodes = references(graph.node_members(type_.nodes.members, paths.nodes), graph.nodes.rows_at(paths.nodes))
        edges = references(graph.edge_members(type_.edges.members, paths.edges), graph.edges.rows_at(paths.edges))
        lists = [list_array(list_offsets(paths.lengths + 1), nodes), list_array(list_offsets(paths.lengths), edges)]
        values = pa.StructArray.from_arrays(lists, fields=list(PATH))
        return self._context.bound.add(self._plan.path, type_, values)


_NO_PIECE: Final = _Piece(*(np.empty(0, np.int64) for _ in _Piece._fields))
