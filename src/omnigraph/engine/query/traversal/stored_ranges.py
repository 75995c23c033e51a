"""Neighbours of a few nodes, read as ranges of a large stored topology.

Called by `neighbours` for a store behind a network, where the whole topology would take long and every lookup in a
table several rounds: here a hop takes two, one for the bounds of the lists and one for the lists. What ranges have cost
counts towards reading the whole. Row ids that are not a range, and lists that contradict each other, are left to other
ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Self

import numpy as np

from omnigraph.engine.query.traversal.adjacency import Adjacency, of_pairs, walk
from omnigraph.engine.query.traversal.topology import FETCHED_BYTES, PROCESS_TOPOLOGIES, Shape, TopologyKey
from omnigraph.errors import IntegrityError
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Direction
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.rows import RowIds
from omnigraph.storage.topology import TopologyDescription, TopologyFiles

MOST_NODES: Final = 512
"""Lists of so many nodes are read by ranges."""
MOST_HOPS: Final = 4

_WAYS: Final = {Direction.OUT: ("out",), Direction.IN: ("in",), Direction.BOTH: ("out", "in")}


class StoredRanges(NamedTuple):
    """A stored topology whose nodes are numbered by their row ids, from a first one on."""

    files: TopologyFiles
    folder: str
    description: TopologyDescription
    first_source: int
    first_target: int

    @classmethod
    def of(cls, root: GraphRoot, key: TopologyKey) -> Self | None:
        """Of a topology that is too large to be read ahead; None where the store has none, or memory a near one."""
        if root.location.is_local or key.shape is not Shape.NEIGHBOURS or PROCESS_TOPOLOGIES.has_near(key):
            return None
        description = PROCESS_TOPOLOGIES.find_stored(root, key)
        if description is None or description.nbytes <= FETCHED_BYTES:
            return None
        files = TopologyFiles(root.objects)
        first = {stored.name: stored.first for stored in description.arrays}
        first_source, first_target = first.get("sources"), first.get("targets")
        if first_source is None or first_target is None or files.are_at_hand(key.folder, description):
            return None
        return cls(files, key.folder, description, first_source, first_target)

    def explore(self, plan: ir.Expand, nodes: RowIds, check: Callable[[], None]) -> Adjacency | None:
        """Everything within reach of the nodes; None when the files do not fit their description. `check` is called
        before each step and may raise."""

        def step(frontier: RowIds) -> tuple[RowIds, RowIds]:
            check()
            parts = [self._read(way, frontier) for way in _WAYS[plan.direction]]
            sources, ends = zip(*parts, strict=True)
            return np.concatenate(sources), np.concatenate(ends)

        try:
            return of_pairs(*walk(nodes, plan.max_hops, step, one_type=plan.edge.is_symmetric))
        except IntegrityError:
            return None

    def _read(self, way: str, nodes: RowIds) -> tuple[RowIds, RowIds]:
        near, far = self.first_source, self.first_target
        near, far = (far, near) if way == "in" else (near, far)
        counts, targets = self.files.neighbours(self.folder, self.description, way, nodes - near)
        return np.repeat(nodes, counts), targets.astype(np.int64) + far
