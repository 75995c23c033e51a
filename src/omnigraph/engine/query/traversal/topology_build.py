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

from omnigraph.engine.query.bindings import Indices
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.traversal.adjacency import Neighbours, Pairs, change_layer, of_edges, of_pairs, pairs_of
from omnigraph.engine.rows.end_ids import PLAIN, IdForm
from omnigraph.storage.integer_sets import find_positions, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.memory.row_space import RowSpace, extend_space
from omnigraph.storage.tables.memory.text_positions import TextPositions
from omnigraph.storage.tables.rows import ROW_ID_FIELD, RowIds, by_row_id, row_ids_of
from omnigraph.storage.tables.version_diff import RowChanges, VersionDiff

# Edges whose ends are looked up together: enough for the cost of a call not to matter, little beside the result.
_EDGES_PER_RESOLVE = 1 << 18

Forms: TypeAlias = tuple[IdForm, IdForm]
"""How the source and the target of an edge hold the ids of their nodes."""
_PLAIN_FORMS: Final[Forms] = (PLAIN, PLAIN)

Tables: TypeAlias = "tuple[Table, Table, Table]"
"""An edge table, and the node tables of its sources and targets."""


@dataclass(frozen=True, slots=True)
class TwoWays:
    """The two directions of an edge type. `dangling`: some edge names a node that does not exist, and was left out."""

    out: Neighbours
    back: Neighbours
    dangling: bool


def build(
    edges: Table,
    sources: Table,
    targets: Table,
    *,
    forms: Forms = _PLAIN_FORMS,
    one_type: bool,
    with_edges: bool,
    check: Callable[[], None],
) -> TwoWays:
    """From the tables themselves. `check` is called between steps and may raise."""
    near, source_ids = _node_ids(sources)
    far, target_ids = (near, source_ids) if one_type else _node_ids(targets)
    from_ids = TextPositions(forms[0].store(source_ids))
    to_ids = from_ids if one_type and forms[0] == forms[1] else TextPositions(forms[1].store(target_ids))
    left, right = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    batches: Iterable[pa.Table]
    if with_edges:
        # Edge ids decide the order of everything, so the whole table is read before anything is made of it.
        read = by_row_id(edges.read([*_ENDS, "id"], row_ids=True))
        batches = [read] if len(read) else []
    else:
        batches = _batches(edges, _ENDS)
    with ThreadPoolExecutor(1) as beside:
        for batch in batches:
            check()
            # A column is looked up on one core, and there are two columns.
            other = beside.submit(to_ids.find, batch.column("dst"))
            left.append(from_ids.find(batch.column("src")))
            right.append(other.result())
    source, target = np.concatenate(left), np.concatenate(right)
    check()
    whole = (source >= 0) & (target >= 0)
    dangling = not bool(whole.all())
    if not with_edges:
        if dangling:
            source, target = source[whole], target[whole]
        out = of_pairs(near, far, source, target)
        check()
        return TwoWays(out, of_pairs(far, near, target, source), dangling)
    order = pc.array_sort_indices(one_array(read.column("id"))).to_numpy() if len(read) else np.empty(0, np.int64)
    if forms == _PLAIN_FORMS:
        order = order[whole[order]]
    # Of an edge type with an interface at an end, all topologies number the same edges.
    rows, existing = row_ids_of(read)[order], order[whole[order]]
    ranks = np.flatnonzero(whole[order])
    source, target = source[existing], target[existing]
    out = of_edges(near, far, source, target, ranks, rows)
    return TwoWays(out, of_edges(far, near, target, source, ranks, rows), dangling)


def _batches(table: Table, columns: list[str]) -> Iterator[pa.Table]:
    """The rows in pieces large enough to resolve at once."""
    pending: list[pa.RecordBatch] = []
    waiting = 0
    for batch in table.batches(columns):
        pending.append(batch)
        waiting += len(batch)
        if waiting >= _EDGES_PER_RESOLVE:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending, waiting = [], 0
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _node_ids(table: Table) -> tuple[RowSpace, pa.Array]:
    """The nodes of a table and their ids, in row id order."""
    read = by_row_id(table.read(["id"], row_ids=True))
    return RowSpace(row_ids_of(read)), one_array(read.column("id"))


def _index_of(wanted: pa.ChunkedArray, ids: pa.Array) -> NDArray[np.int32]:
    """The position of each wanted id, -1 where there is none."""
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1).to_numpy(), np.int32)


# Beyond this share of changed rows, or this many rows that went away, building anew is cheaper.
_CHANGED_SHARE: Final = 4
_CHANGED_ROWS_AT_LEAST: Final = 100_000
_LOST_ROWS: Final = 20_000
# Removed nodes keep their numbers. Once they are this many beside as many living ones, they are worth getting rid of.
_REMOVED_NODES: Final = 1 << 16

_ENDS: Final = ["src", "dst"]


def rows_to_read(before: Tables, after: Tables) -> int | None:
    """How many rows lie between two states, by their manifests. None when they are too many to derive one."""
    appended = after[0].appended_to(before[0])
    total = 0 if appended is None else len(appended)
    for old, new, columns in zip(before, after, (_ENDS, ["id"], ["id"]), strict=True):
        if old.key == new.key or (appended is not None and new is after[0]):
            continue
        rows = VersionDiff.of(old, new, columns, columns).row_count
        if rows > _most_rows(new):
            return None
        total += rows
    return total


def derive(older: TwoWays, before: Tables, after: Tables, forms: Forms = _PLAIN_FORMS) -> TwoWays | None:
    """The older topology brought to the state of `after`. None when too much changed, or in a way that is not known
    from row ids: two branches numbered different nodes alike, or nodes in between."""
    edges = _edge_changes(before[0], after[0])
    if edges is not None and not len(edges.old) and [t.key for t in before[1:]] == [t.key for t in after[1:]]:
        return _add_edges(older, edges.new, after, forms)
    sources = _changes(before[1], after[1], ["id"])
    one_type = after[1].key == after[2].key
    targets = sources if one_type else _changes(before[2], after[2], ["id"])
    if edges is None or sources is None or targets is None:
        return None
    if len(edges.old) + len(sources.old) + len(targets.old) > _LOST_ROWS:
        return None
    near = _space(older.out.sources, sources, after[1])
    far = near if one_type else _space(older.out.ends, targets, after[2])
    if near is None or far is None:
        return None

    ends = zip(_ENDS, (sources, targets), forms, strict=True)
    named = [_edges_at(after[0], *end, older.dangling) for end in ends]
    fresh = pa.concat_tables([edges.new.select(_ENDS), *named])
    lost = _without_parallels(edges.old, after[0])
    near_ids, far_ids = (
        [form.read(table.column(name)) for table in (fresh, lost)] for name, form in zip(_ENDS, forms, strict=True)
    )
    if one_type:
        rows = rows_by_id(after[1], [*near_ids, *far_ids])
    else:
        rows = [*rows_by_id(after[1], near_ids), *rows_by_id(after[2], far_ids)]
    added, is_whole = _existing_pairs(near.positions(rows[0]), far.positions(rows[2]))
    dropped, _ = _existing_pairs(near.positions(rows[1]), far.positions(rows[3]))
    leaving = pairs_of(older.out, near.positions(row_ids_of(sources.old)))
    arriving = pairs_of(older.back, far.positions(row_ids_of(targets.old))).reverse()
    gone = dropped.join(leaving, arriving)
    return TwoWays(
        change_layer(older.out, near, far, gone, added),
        change_layer(older.back, far, near, gone.reverse(), added.reverse()),
        older.dangling or not is_whole,
    )


def _add_edges(older: TwoWays, edges: pa.Table, after: Tables, forms: Forms) -> TwoWays:
    """The older topology with more edges between the same nodes: by far the most frequent commit."""
    near, far = older.out.sources, older.out.ends
    near_ids, far_ids = (form.read(edges.column(name)) for name, form in zip(_ENDS, forms, strict=True))
    if after[1].key == after[2].key:
        sources, ends = rows_by_id(after[1], [near_ids, far_ids])
    else:
        (sources,), (ends,) = rows_by_id(after[1], [near_ids]), rows_by_id(after[2], [far_ids])
    added, is_whole = _existing_pairs(near.positions(sources), far.positions(ends))
    none = Pairs(added.sources[:0], added.ends[:0])
    return TwoWays(
        change_layer(older.out, near, far, none, added),
        change_layer(older.back, far, near, none, added.reverse()),
        older.dangling or not is_whole,
    )


def _changes(old: Table, new: Table, columns: list[str]) -> RowChanges | None:
    """In which rows two versions differ; None when they are too many to be read."""
    if old.key == new.key:
        return _no_changes(new, columns)
    diff = VersionDiff.of(old, new, columns, columns)
    return None if diff.row_count > _most_rows(new) else diff.changes(columns)


def _edge_changes(old: Table, new: Table) -> RowChanges | None:
    """The same for an edge table, without row ids where edges were only added: nobody asks for those of edges. What
    this process has committed itself is not read again."""
    none = _no_changes(new, _ENDS)
    if old.key == new.key:
        return none
    if (appended := new.appended_to(old)) is not None:
        return RowChanges(none.old, appended.select(_ENDS))
    diff = VersionDiff.of(old, new, _ENDS, _ENDS)
    if not diff.only_adds or diff.row_count > _most_rows(new):
        return _changes(old, new, _ENDS)
    return RowChanges(none.old, diff.new_rows(_ENDS))


def _no_changes(table: Table, columns: list[str]) -> RowChanges:
    none = pa.schema([*(table.schema.field(name) for name in columns), ROW_ID_FIELD]).empty_table()
    return RowChanges(none, none)


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


def _edges_at(edges: Table, column: str, changes: RowChanges, form: IdForm, dangling: bool) -> pa.Table:
    """Unchanged edges that yet lead elsewhere now: those that name a removed node, which another
    of the same id may have replaced, and where edges dangle those that name a new one."""
    if not len(changes.old) and not (dangling and len(changes.new)):
        return _no_changes(edges, _ENDS).new.select(_ENDS)
    ids = [changes.old.column("id"), *([changes.new.column("id")] if dangling else [])]
    named = pc.unique(pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string()))
    return edges.rows_among(column, form.store(named).to_pylist(), _ENDS)


def _without_parallels(lost: pa.Table, edges: Table) -> pa.Table:
    """The edges that went away and left no other one between the same ends."""
    if not len(lost):
        return lost
    sources, targets = (pc.unique(lost.column(name)) for name in _ENDS)
    still = edges.rows_among("src", sources.to_pylist(), _ENDS)

    def codes(table: pa.Table) -> Indices:
        source = _index_of(table.column("src"), sources).astype(np.int64)
        target = _index_of(table.column("dst"), targets).astype(np.int64)
        return np.where((source < 0) | (target < 0), -1, source * len(targets) + target)

    return lost.filter(pa.array(~is_member(codes(lost), codes(still))))


def rows_by_id(nodes: Table, columns: Sequence[pa.ChunkedArray]) -> list[RowIds]:
    """The row of each node by its id, -1 where there is none or the id is null: one lookup for all columns."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    together = pc.unique(pa.chunked_array(chunks, pa.string())).drop_null()
    wanted = together.to_pylist()
    matches = nodes.rows_among("id", wanted, ["id"], row_ids=True)
    rows, ids = np.append(row_ids_of(matches), -1), one_array(matches.column("id"))
    return [rows[_index_of(column, ids)] for column in columns]


def _existing_pairs(sources: Indices, ends: Indices) -> tuple[Pairs, bool]:
    """The pairs both ends of which exist, and whether those are all."""
    existing = (sources >= 0) & (ends >= 0)
    return Pairs(sources[existing], ends[existing]), bool(existing.all())
