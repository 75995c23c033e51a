"""Building the adjacency of an edge type from its tables, or from an older adjacency and the rows that changed.

Called by the topology cache only. Endpoint ids are resolved to row ids here, and an edge whose endpoint does not exist
is left out. `derive` reads only rows that differ between two versions; None means that building anew is better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Indices, RowSpace, extend_space
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.traversal.adjacency import Neighbours, Pairs, change_layer, of_edges, of_pairs
from omnigraph.storage.integer_sets import find_positions, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import by_row_id, row_ids_of
from omnigraph.storage.tables.version_diff import RowChanges, VersionDiff

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


def build(
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
        positions = pc.fill_null(pc.index_in(wanted, value_set=self._ids), -1)
        return np.asarray(positions.to_numpy(), np.int32)


# Beyond this share of changed rows, or this many rows that went away, building anew is cheaper.
_CHANGED_SHARE: Final = 4
_CHANGED_ROWS_AT_LEAST: Final = 100_000
_LOST_ROWS: Final = 20_000
# Removed nodes keep their numbers. Once they are this many beside as many living ones, they are worth getting rid of.
_REMOVED_NODES: Final = 1 << 16

_ENDS: Final = ["src", "dst"]


def rows_to_read(before: Tables, after: Tables) -> int | None:
    """How many rows lie between two states, by their manifests. None when they are too many to derive one."""
    total = 0
    for old, new, columns in zip(before, after, (_ENDS, ["id"], ["id"]), strict=True):
        rows = VersionDiff.of(old, new, columns, columns).row_count
        if rows > _most_rows(new):
            return None
        total += rows
    return total


def derive(older: TwoWays, before: Tables, after: Tables) -> TwoWays | None:
    """The older topology brought to the state of `after`. None when too much changed, or in a way that is not known
    from row ids: two branches numbered different nodes alike, or nodes in between."""
    edges = _changes(before[0], after[0], _ENDS)
    sources = _changes(before[1], after[1], ["id"])
    one_type = after[1].key == after[2].key
    targets = sources if one_type else _changes(before[2], after[2], ["id"])
    if edges is None or sources is None or targets is None:
        return None
    if len(edges.old) + len(sources.old) + len(targets.old) > _LOST_ROWS:
        return None
    source_space = _space(older.out.sources, sources, after[1])
    target_space = source_space if one_type else _space(older.out.ends, targets, after[2])
    if source_space is None or target_space is None:
        return None

    fresh = pa.concat_tables(
        [
            edges.new.select(_ENDS),
            _naming(after[0], "src", sources, older.dangling),
            _naming(after[0], "dst", targets, older.dangling),
        ]
    )
    lost = _without_parallels(edges.old, after[0])
    near, far = ([table.column(name) for table in (fresh, lost)] for name in _ENDS)
    if one_type:
        places_ = _resolve(after[1], source_space, [*near, *far])
    else:
        places_ = [*_resolve(after[1], source_space, near), *_resolve(after[2], target_space, far)]
    added, is_whole = _existing_pairs(places_[0], places_[2])
    dropped, _ = _existing_pairs(places_[1], places_[3])
    gone = _join(
        dropped,
        _pairs_of(older.out, _removed_positions(source_space, sources)),
        _pairs_of(older.back, _removed_positions(target_space, targets)).reversed(),
    )
    return TwoWays(
        change_layer(older.out, source_space, target_space, gone, added),
        change_layer(older.back, target_space, source_space, gone.reversed(), added.reversed()),
        older.dangling or not is_whole,
    )


def _changes(old: Table, new: Table, columns: list[str]) -> RowChanges | None:
    """In which rows two versions differ; None when they are too many to be read."""
    diff = VersionDiff.of(old, new, columns, columns)
    return None if diff.row_count > _most_rows(new) else diff.changes(columns)


def _most_rows(table: Table) -> int:
    return max(_CHANGED_ROWS_AT_LEAST, table.state.rows // _CHANGED_SHARE)


def _space(space: RowSpace, changes: RowChanges, nodes: Table) -> RowSpace | None:
    """The old nodes and the new ones behind them. Removed nodes keep their number and have no edges."""
    fresh = row_ids_of(changes.new)
    if find_positions(row_ids_of(changes.old), fresh)[1].any():
        return None  # one row id names different nodes before and after
    larger = extend_space(space, fresh)
    if larger is None or len(larger) - nodes.state.rows > max(nodes.state.rows, _REMOVED_NODES):
        return None
    return larger


def _removed_positions(space: RowSpace, changes: RowChanges) -> Indices:
    return space.positions(row_ids_of(changes.old))


def _naming(edges: Table, column: str, changes: RowChanges, dangling: bool) -> pa.Table:
    """Unchanged edges that yet lead elsewhere now: those that name a removed node, which another
    of the same id may have replaced, and where edges dangle those that name a new one."""
    ids = [changes.old.column("id"), *([changes.new.column("id")] if dangling else [])]
    named = pc.unique(pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string()))
    return edges.rows_among(column, named.to_pylist(), _ENDS)


def _without_parallels(lost: pa.Table, edges: Table) -> pa.Table:
    """The edges that went away and left no other one between the same ends."""
    if not len(lost):
        return lost
    sources, targets = (pc.unique(lost.column(name)) for name in _ENDS)
    still = edges.rows_among("src", sources.to_pylist(), _ENDS)

    def codes(table: pa.Table) -> Indices:
        source = pc.fill_null(pc.index_in(table.column("src"), value_set=sources), -1).to_numpy().astype(np.int64)
        target = pc.fill_null(pc.index_in(table.column("dst"), value_set=targets), -1).to_numpy().astype(np.int64)
        return np.where((source < 0) | (target < 0), -1, source * len(targets) + target)

    return lost.filter(pa.array(~is_member(codes(lost), codes(still))))


def _resolve(nodes: Table, space: RowSpace, columns: Sequence[pa.ChunkedArray]) -> list[Indices]:
    """The position of each node by its id, -1 where there is none: one lookup for all columns."""
    together = pc.unique(pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()))
    matches = by_row_id(nodes.rows_among("id", together.to_pylist(), ["id"], row_ids=True))
    at = np.append(space.positions(row_ids_of(matches)), -1)
    ids = one_array(matches.column("id"))
    return [at[pc.fill_null(pc.index_in(column, value_set=ids), -1).to_numpy()] for column in columns]


def _existing_pairs(sources: Indices, ends: Indices) -> tuple[Pairs, bool]:
    """The pairs both ends of which exist, and whether those are all."""
    existing = (sources >= 0) & (ends >= 0)
    return Pairs(sources[existing], ends[existing]), bool(existing.all())


def _pairs_of(adjacency: Neighbours, nodes: Indices) -> Pairs:
    """All pairs that begin at these nodes."""
    counts, at = adjacency.entries_of(nodes)
    return Pairs(np.repeat(nodes, counts), adjacency.targets_at(at).astype(np.int64))


def _join(*parts: Pairs) -> Pairs:
    return Pairs(np.concatenate([part.sources for part in parts]), np.concatenate([part.ends for part in parts]))
