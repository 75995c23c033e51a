"""A topology from an older one of the same tables and the rows that changed since.

Reads what differs between the two versions and nothing else, and lays it over the older arrays. Called by the
topology cache; None means that building anew is the better or the only way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.traversal.layered import Neighbours, Pairs, changed
from omnigraph.engine.query.traversal.topology_build import Tables, TwoWays
from omnigraph.engine.query.values.bindings import Indices, RowSpace, grown
from omnigraph.engine.query.values.properties import one_array
from omnigraph.storage.ordered import contained, places
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import by_row_id, row_ids_of
from omnigraph.storage.tables.version_diff import RowChanges, VersionDiff

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


def derived(older: TwoWays, before: Tables, after: Tables) -> TwoWays | None:
    """The older topology brought to the state of `after`. None when too much changed, or in a way that can't be told
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
        places_ = _resolved(after[1], source_space, [*near, *far])
    else:
        places_ = [*_resolved(after[1], source_space, near), *_resolved(after[2], target_space, far)]
    added, is_whole = _known(places_[0], places_[2])
    dropped, _ = _known(places_[1], places_[3])
    gone = _joined(
        dropped,
        _pairs_of(older.out, _removed(source_space, sources)),
        _pairs_of(older.back, _removed(target_space, targets)).reversed(),
    )
    return TwoWays(
        changed(older.out, source_space, target_space, gone, added),
        changed(older.back, target_space, source_space, gone.reversed(), added.reversed()),
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
    if places(row_ids_of(changes.old), fresh)[1].any():
        return None  # one row id names different nodes before and after
    larger = grown(space, fresh)
    if larger is None or len(larger) - nodes.state.rows > max(nodes.state.rows, _REMOVED_NODES):
        return None
    return larger


def _removed(space: RowSpace, changes: RowChanges) -> Indices:
    return space.positions(row_ids_of(changes.old))


def _naming(edges: Table, column: str, changes: RowChanges, dangling: bool) -> pa.Table:
    """Stored edges that nobody touched and that yet lead elsewhere now: those that name a removed node, which another
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

    return lost.filter(pa.array(~contained(codes(lost), codes(still))))


def _resolved(nodes: Table, space: RowSpace, columns: Sequence[pa.ChunkedArray]) -> list[Indices]:
    """The position of each node by its id, -1 where there is none: one lookup for all columns."""
    together = pc.unique(pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()))
    found = by_row_id(nodes.rows_among("id", together.to_pylist(), ["id"], row_ids=True))
    at = np.append(space.positions(row_ids_of(found)), -1)
    ids = one_array(found.column("id"))
    return [at[pc.fill_null(pc.index_in(column, value_set=ids), -1).to_numpy()] for column in columns]


def _known(sources: Indices, ends: Indices) -> tuple[Pairs, bool]:
    """The pairs both ends of which exist, and whether those are all."""
    known = (sources >= 0) & (ends >= 0)
    return Pairs(sources[known], ends[known]), bool(known.all())


def _pairs_of(adjacency: Neighbours, nodes: Indices) -> Pairs:
    """All pairs that begin at these nodes."""
    counts, at = adjacency.entries_of(nodes)
    return Pairs(np.repeat(nodes, counts), adjacency.targets_at(at).astype(np.int64))


def _joined(*parts: Pairs) -> Pairs:
    return Pairs(np.concatenate([part.sources for part in parts]), np.concatenate([part.ends for part in parts]))
