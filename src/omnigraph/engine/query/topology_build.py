"""Making adjacency arrays: from whole tables, or from an older build and the rows that changed since.

Called by the topology cache only. Endpoint ids are resolved to row ids here; an edge whose endpoint does not exist
is left out, which is what makes dangling ids disappear from traversals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.adjacency import Adjacency, of_edges, of_pairs, patched, without_ends
from omnigraph.engine.query.bindings import Indices, RowSpace
from omnigraph.engine.query.properties import one_array, row_ids_of
from omnigraph.storage.ordered import merged, places
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowChanges, row_changes, rows_by_id, rows_with

# Resolving builds a hash table over all node ids each time, so it is done for many edges at once.
_EDGES_PER_RESOLVE = 4_000_000
# Beyond this share of changed rows, or this many nodes whose lists changed, building anew is cheaper.
_CHANGED_SHARE = 4
_CHANGED_ROWS_AT_LEAST = 100_000
_CHANGED_NODES = 20_000

Tables: TypeAlias = "tuple[Table, Table, Table]"
"""An edge table, and the node tables of its sources and targets."""


@dataclass(frozen=True, slots=True)
class Both:
    """The two directions of a topology."""

    out: Adjacency
    back: Adjacency
    dangling: bool


def built(edges: Table, sources: Table, targets: Table, *, one_type: bool, with_edges: bool) -> Both:
    """From the tables themselves."""
    source_ids = _Ids.of(sources)
    target_ids = source_ids if one_type else _Ids.of(targets)
    left: list[NDArray[np.int32]] = []
    right: list[NDArray[np.int32]] = []
    columns = ["src", "dst", "id"] if with_edges else ["src", "dst"]
    batches: Iterable[pa.Table]
    if with_edges:
        # Edge ids decide the order of everything, so the whole table is read before anything is made of it.
        read = rows_by_id(edges, columns)
        batches = [read] if len(read) else []
    else:
        batches = _batches(edges, columns)
    with ThreadPoolExecutor(1) as beside:
        for batch in batches:
            # Arrow resolves one column on one core, and there are two columns.
            other = beside.submit(target_ids.positions, batch.column("dst"))
            left.append(source_ids.positions(batch.column("src")))
            right.append(other.result())
    source = np.concatenate(left) if left else np.empty(0, np.int32)
    target = np.concatenate(right) if right else np.empty(0, np.int32)
    whole = (source >= 0) & (target >= 0)
    dangling = not bool(whole.all())
    if not with_edges:
        if dangling:
            source, target = source[whole], target[whole]
        out = of_pairs(source_ids.space, target_ids.space, source, target)
        back = of_pairs(target_ids.space, source_ids.space, target, source)
        return Both(out, back, dangling)
    order = pc.array_sort_indices(one_array(read.column("id"))).to_numpy() if len(read) else np.empty(0, np.int64)
    order = order[whole[order]]
    ranks = np.arange(len(order))
    source, target, rows = source[order], target[order], row_ids_of(read)[order]
    return Both(
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
        read = rows_by_id(table, ["id"])
        return cls(RowSpace(row_ids_of(read)), one_array(read.column("id")))

    def positions(self, wanted: pa.ChunkedArray) -> NDArray[np.int32]:
        """The node of each id, -1 where there is none."""
        found = pc.fill_null(pc.index_in(wanted, value_set=self._ids), -1)
        return np.asarray(found.to_numpy(), np.int32)


def derived(base: tuple[Adjacency, Adjacency], dangling: bool, before: Tables, after: Tables) -> Both | None:
    """From the arrays of older versions of the same tables. None when too much changed, or in a way that can't be
    told from row ids (two branches numbered different nodes alike)."""
    edges = row_changes(before[0], after[0], ["src", "dst"], at_most=_changed_rows_limit(after[0]))
    sources = row_changes(before[1], after[1], ["id"], at_most=_changed_rows_limit(after[1]))
    targets = row_changes(before[2], after[2], ["id"], at_most=_changed_rows_limit(after[2]))
    if edges is None or sources is None or targets is None:
        return None
    if any(_renumbers(changes) or (dangling and len(changes.new)) for changes in (sources, targets)):
        return None
    out, back = base
    source_space, target_space = _extended(out.sources, sources), _extended(out.ends, targets)
    forward = _patched(out, source_space, target_space, after[0], edges, (after[1], after[2]), "src", "dst")
    backward = _patched(back, target_space, source_space, after[0], edges, (after[2], after[1]), "dst", "src")
    if forward is None or backward is None:
        return None
    lost = (_gone(source_space, sources), _gone(target_space, targets))
    if any(len(part) for part in lost):
        forward, backward = without_ends(forward, *lost), without_ends(backward, *reversed(lost))
        dangling = True
    return Both(forward, backward, dangling)


def _changed_rows_limit(table: Table) -> int:
    return max(_CHANGED_ROWS_AT_LEAST, table.state.rows // _CHANGED_SHARE)


def _renumbers(changes: RowChanges) -> bool:
    """Whether one row id names different nodes before and after."""
    return bool(places(row_ids_of(changes.old), row_ids_of(changes.new))[1].any())


def _extended(space: RowSpace, changes: RowChanges) -> RowSpace:
    """The old nodes and the new ones. Removed nodes keep their number and have no edges."""
    fresh = row_ids_of(changes.new)
    return RowSpace(merged(space.rows, fresh)) if len(fresh) else space


def _gone(space: RowSpace, changes: RowChanges) -> Indices:
    return space.positions(row_ids_of(changes.old))


def _patched(
    base: Adjacency,
    sources: RowSpace,
    ends: RowSpace,
    edges: Table,
    changes: RowChanges,
    nodes: tuple[Table, Table],
    near: str,
    far: str,
) -> Adjacency | None:
    """One direction. Where edges went away the lists they stood in are read again, since a parallel edge may remain;
    edges that were only added join what is there."""
    lost = pc.unique(changes.old.column(near))
    if len(lost) + len(changes.new) > _CHANGED_NODES:
        return None
    fresh = changes.new
    replaced = None
    if len(lost):
        touched = pc.unique(pa.chunked_array([*changes.old.column(near).chunks, *changes.new.column(near).chunks]))
        fresh = rows_with(edges, near, touched.to_pylist(), [near, far])
        known = sources.positions(row_ids_of(rows_with(nodes[0], "id", touched.to_pylist(), ["id"])))
        replaced = known[known >= 0]
    source = _resolved(nodes[0], fresh.column(near), sources)
    target = _resolved(nodes[1], fresh.column(far), ends)
    whole = (source >= 0) & (target >= 0)
    return patched(base, sources, ends, replaced, (source[whole], target[whole]))


def _resolved(nodes: Table, ids: pa.ChunkedArray, space: RowSpace) -> Indices:
    """The position of each node by its id, -1 where there is none."""
    found = rows_with(nodes, "id", pc.unique(ids).to_pylist(), ["id"])
    index = pc.fill_null(pc.index_in(ids, value_set=one_array(found.column("id"))), -1).to_numpy()
    if not len(found):
        return np.full(len(ids), -1, np.int64)
    return np.where(index < 0, -1, space.positions(row_ids_of(found))[index])
