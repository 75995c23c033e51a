"""Making adjacency arrays from whole tables.

Called by the topology cache only. Endpoint ids are resolved to row ids here; an edge whose endpoint does not exist
is left out, which is what makes dangling ids disappear from traversals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.traversal.adjacency import of_edges, of_pairs
from omnigraph.engine.query.traversal.layered import Neighbours
from omnigraph.engine.query.values.bindings import RowSpace
from omnigraph.engine.query.values.properties import one_array
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import by_row_id, row_ids_of

# Resolving builds a hash table over all node ids each time, so it is done for many edges at once.
_EDGES_PER_RESOLVE = 4_000_000

Tables: TypeAlias = "tuple[Table, Table, Table]"
"""An edge table, and the node tables of its sources and targets."""


@dataclass(frozen=True, slots=True)
class TwoWays:
    """The two directions of an edge type. `dangling`: some edge names a node that does not exist, and was left out."""

    out: Neighbours
    back: Neighbours
    dangling: bool


def built(
    edges: Table, sources: Table, targets: Table, *, one_type: bool, with_edges: bool, check: Callable[[], None]
) -> TwoWays:
    """From the tables themselves. `check` is called between steps and may raise."""
    source_ids = _Ids.of(sources)
    target_ids = source_ids if one_type else _Ids.of(targets)
    left: list[NDArray[np.int32]] = []
    right: list[NDArray[np.int32]] = []
    columns = ["src", "dst", "id"] if with_edges else ["src", "dst"]
    batches: Iterable[pa.Table]
    if with_edges:
        # Edge ids decide the order of everything, so the whole table is read before anything is made of it.
        read = by_row_id(edges.read(columns, row_ids=True))
        batches = [read] if len(read) else []
    else:
        batches = _batches(edges, columns)
    with ThreadPoolExecutor(1) as beside:
        for batch in batches:
            check()
            # Arrow resolves one column on one core, and there are two columns.
            other = beside.submit(target_ids.positions, batch.column("dst"))
            left.append(source_ids.positions(batch.column("src")))
            right.append(other.result())
    source = np.concatenate(left) if left else np.empty(0, np.int32)
    target = np.concatenate(right) if right else np.empty(0, np.int32)
    check()
    whole = (source >= 0) & (target >= 0)
    dangling = not bool(whole.all())
    if not with_edges:
        if dangling:
            source, target = source[whole], target[whole]
        out = of_pairs(source_ids.space, target_ids.space, source, target)
        check()
        back = of_pairs(target_ids.space, source_ids.space, target, source)
        return TwoWays(out, back, dangling)
    order = pc.array_sort_indices(one_array(read.column("id"))).to_numpy() if len(read) else np.empty(0, np.int64)
    order = order[whole[order]]
    ranks = np.arange(len(order))
    source, target, rows = source[order], target[order], row_ids_of(read)[order]
    return TwoWays(
        of_edges(source_ids.space, target_ids.space, source, target, ranks, rows),
        of_edges(target_ids.space, source_ids.space, target, source, ranks, rows),
        dangling,
    )


def _batches(table: Table, columns: list[str]) -> Iterator[pa.Table]:
    """The rows in pieces large enough to resolve at once."""
    pending: list[pa.RecordBatch] = []
    waiting = 0
    for batch in table.batches(columns):
        pending.append(batch)
        waiting += len(batch)
        if waiting >= _EDGES_PER_RESOLVE:
            yield pa.Table.from_batches(pending)
            pending, waiting = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


class _Ids:
    """The ids of a node table in row id order."""

    def __init__(self, space: RowSpace, ids: pa.Array) -> None:
        self.space = space
        self._ids = ids

    @classmethod
    def of(cls, table: Table) -> _Ids:
        read = by_row_id(table.read(["id"], row_ids=True))
        return cls(RowSpace(row_ids_of(read)), one_array(read.column("id")))

    def positions(self, wanted: pa.ChunkedArray) -> NDArray[np.int32]:
        """The node of each id, -1 where there is none."""
        found = pc.fill_null(pc.index_in(wanted, value_set=self._ids), -1)
        return np.asarray(found.to_numpy(), np.int32)
