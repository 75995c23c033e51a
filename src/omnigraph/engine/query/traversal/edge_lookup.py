"""Finding neighbours by looking edges up: for a few nodes in a large graph this beats having all of it at hand.

Walks as many hops as asked from all given nodes at once, asking the edge table for the endpoints and the node table
for the ids it meets, and returns the small adjacency it saw. Called by `expand`, which runs on it like on any other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.traversal.adjacency import Adjacency, joined, of_edges, of_pairs
from omnigraph.engine.query.values.bindings import Indices, RowSpace
from omnigraph.engine.query.values.properties import one_array
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query.ir import Direction
from omnigraph.storage.ordered import merged
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, by_row_id, row_ids_of

_ENDS = {
    Direction.OUT: (("src", "dst"),),
    Direction.IN: (("dst", "src"),),
    Direction.BOTH: (("src", "dst"), ("dst", "src")),
}


def explored(
    nodes: RowIds,
    edge: EdgeType,
    direction: Direction,
    node_type: NodeType,
    end_type: NodeType,
    hops: int,
    variable: str,
    context: ReadContext,
    *,
    with_edges: bool = False,
) -> Adjacency:
    """Everything within `hops` of the nodes. `variable` is whose ids have perhaps been read already."""
    walk = _Walk(context.table(edge), context.table(end_type), with_edges)
    frontier = RowSpace.of(nodes)
    seen = frontier
    for _ in range(hops):
        if not len(frontier):
            break
        context.cancellation.check()
        ids = context.properties.located(context.table(node_type), variable, "id", frontier.rows).gathered()
        reached = walk.step(frontier, ids, direction)
        fresh = reached[~seen.contains(reached)]
        frontier, variable = RowSpace.of(fresh), f"{variable}+"
        seen = RowSpace(merged(seen.rows, frontier.rows))
    return walk.adjacency(nodes, one_type=edge.is_symmetric)


class _Walk:
    """What has been seen so far: one source and end per edge, by row id."""

    def __init__(self, edges: Table, ends: Table, with_edges: bool) -> None:
        self._edges = edges
        self._ends = ends
        self._with_edges = with_edges
        self._source: list[RowIds] = []
        self._end: list[RowIds] = []
        self._row: list[RowIds] = []
        self._id: list[pa.Array] = []

    def step(self, frontier: RowSpace, ids: pa.Array, direction: Direction) -> RowIds:
        """Look up the edges of the frontier; the row ids at their other ends."""
        reached = []
        columns = ["src", "dst", "id"] if self._with_edges else ["src", "dst"]
        for near, far in _ENDS[direction]:
            found = by_row_id(self._edges.rows_among(near, ids.to_pylist(), columns, row_ids=True))
            if near == "dst" and direction is Direction.BOTH:
                found = found.filter(pc.not_equal(found.column("src"), found.column("dst")))
            source = frontier.rows[pc.index_in(found.column(near), value_set=ids).to_numpy()]
            end = self._rows_of(found.column(far))
            whole = end >= 0
            self._source.append(source[whole])
            self._end.append(end[whole])
            if self._with_edges:
                self._row.append(row_ids_of(found)[whole])
                self._id.append(one_array(found.column("id")).filter(pa.array(whole)))
            reached.append(end[whole])
        return np.concatenate(reached)

    def _rows_of(self, ids: pa.ChunkedArray) -> RowIds:
        """The node of each id, -1 for a dangling one."""
        found = self._ends.rows_among("id", pc.unique(ids).to_pylist(), ["id"], row_ids=True)
        if not len(found):
            return np.full(len(ids), -1, np.int64)
        index = pc.fill_null(pc.index_in(ids, value_set=one_array(found.column("id"))), -1).to_numpy()
        return np.where(index < 0, -1, row_ids_of(found)[index])

    def adjacency(self, nodes: RowIds, *, one_type: bool) -> Adjacency:
        source, end = joined(self._source), joined(self._end)
        sources = RowSpace.of(np.concatenate((nodes, source, end) if one_type else (nodes, source)))
        ends = sources if one_type else RowSpace.of(end)
        at, to = sources.positions(source), ends.positions(end)
        if not self._with_edges:
            return of_pairs(sources, ends, at, to)
        ids = pa.concat_arrays(self._id) if self._id else pa.array([], pa.string())
        # An undirected edge was met from both sides and is one edge with one rank.
        order = pc.array_sort_indices(ids).to_numpy()
        ordered = joined(self._row)[order]
        starts = np.ones(len(order), dtype=bool)
        starts[1:] = ordered[1:] != ordered[:-1]
        ranks: Indices = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(starts) - 1
        return of_edges(sources, ends, at, to, ranks, ordered[starts])
