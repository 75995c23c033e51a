"""Lookups of ids in Arrow columns: ids that occur twice, and endpoints of edges that no node has.

The rules call it on executors. Where the ids of the nodes fit into the memory of a task, every task reads them all and
looks up the edges that it reads itself, so that only candidates move. Otherwise ids and endpoints are exchanged into
the same buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.bulk.executor import PLACE
from omnigraph.pipeline.checks.candidate_keys import Lane, candidates, candidates_by_task
from omnigraph.pipeline.spark.table_frames import TableScan
from omnigraph.storage.tables.memory.key_hashes import (
    Hashes,
    among,
    buckets_of,
    every_hash,
    frequent_hashes,
    key_hashes,
)

REPEAT, TAKEN, REPLACED = "repeat", "taken", "replaced"
"""The role of a row whose id another row has: a new row that another new one replaces, a new row whose id is stored, a
stored row that a new one may replace."""

ROLE: Final = pa.field("role", pa.string())
STORED: Final = pa.field("stored", pa.bool_())

_NO_IDS: Final = pa.array([], pa.string())
_IDS_PER_BUCKET: Final = 32 << 10
_LEAST_WAITING: Final = 32 << 20


def met_ids(new: pa.Table, stored: pa.Table, *, keep_last: bool) -> pa.Table:
    """New and stored rows whose id a new row holds as well, each with its `role`."""
    rows = _together(new, stored)
    is_stored = rows.column(STORED.name).to_numpy()
    codes = rows.column("id").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    distinct = int(codes.max()) + 1 if len(codes) else 0
    # Per id the new row that stays, the first or the last in input order; -1 for an id without new rows. Of several
    # values for one index the last assignment stays.
    kept = np.full(distinct, -1, np.int64)
    new_rows = np.flatnonzero(~is_stored)
    order = new_rows[np.argsort(rows.column(PLACE).to_numpy()[new_rows], kind="stable")][:: 1 if keep_last else -1]
    kept[codes[order]] = order
    is_kept = np.zeros(len(codes), np.bool_)
    is_kept[kept[kept >= 0]] = True
    in_the_way = np.zeros(distinct, np.bool_)
    in_the_way[codes[is_stored]] = True
    roles = np.full(len(codes), REPEAT, object)
    roles[is_kept & in_the_way[codes]] = TAKEN
    roles[is_stored] = REPLACED
    meets = np.where(is_stored, (kept >= 0)[codes], ~is_kept | in_the_way[codes])
    marked = rows.drop_columns([STORED.name]).append_column(ROLE, pa.array(roles, pa.string()))
    return marked.filter(pa.array(meets))


def _together(new: pa.Table, stored: pa.Table) -> pa.Table:
    """New and stored rows whose id another row may hold; `STORED` tells which they are."""
    marked = [
        rows.append_column(STORED, pa.array(np.full(rows.num_rows, value)))
        for rows, value in ((new, False), (stored, True))
    ]
    rows = pa.concat_tables(marked, promote_options="default").combine_chunks()
    if not rows.num_rows:
        return rows
    hashes = key_hashes([rows.column("id").combine_chunks()])
    return rows.filter(pa.array(among(hashes, frequent_hashes(hashes, 1))))


def unknown(values: pa.ChunkedArray, ids: pa.Array) -> Hashes:
    """Hashes of the values that are none of the ids."""
    left = values.filter(pc.invert(pc.is_in(values, value_set=ids)))
    return every_hash(key_hashes([chunk]) for chunk in left.chunks if len(chunk))


class KnownIds:
    """Ids to look many others up in: in buckets, so that a processor's cache has all that a lookup needs."""

    def __init__(self, chunks: Sequence[pa.Array]) -> None:
        buckets = 1 + sum(map(len, chunks)) // _IDS_PER_BUCKET
        split = [_split(chunk, buckets) for chunk in chunks]
        self._ids = [pa.concat_arrays([_NO_IDS, *parts]) for parts in zip(*split, strict=True)] or [_NO_IDS]
        # A lookup prepares all ids of a bucket, so it should be worth that.
        self._enough = max(_LEAST_WAITING, 2 * sum(ids.nbytes for ids in self._ids))

    def find_missing(self, values: Iterable[pa.Array]) -> Iterator[Hashes]:
        """Hashes of the values that are none of the ids; some may come more than once."""
        waiting: list[list[pa.Array]] = []
        size = 0
        for chunk in values:
            waiting.append(_split(chunk, len(self._ids)))
            size += chunk.nbytes
            if size >= self._enough:
                yield from self._look_up(waiting)
                waiting, size = [], 0
        yield from self._look_up(waiting)

    def _look_up(self, waiting: Sequence[Sequence[pa.Array]]) -> Iterator[Hashes]:
        for bucket, ids in enumerate(self._ids):
            yield unknown(pa.chunked_array([parts[bucket] for parts in waiting], pa.string()), ids)


def _split(values: pa.Array, buckets: int) -> list[pa.Array]:
    chosen = buckets_of(key_hashes([values]), buckets)
    grouped = values.take(pa.array(np.argsort(chosen, kind="stable")))
    counts = np.bincount(chosen, minlength=buckets)
    return [grouped.slice(end - count, count) for end, count in zip(np.cumsum(counts), counts, strict=True)]


# Bytes of ids in the memory of a task; building the lookup takes up to four times as much.
_MOST_HELD: Final = 96 << 20
_BATCH_ROWS: Final = 1 << 17
# Reading the ids should cost a task less than looking up its edges.
_EDGES_PER_ID: Final = 2
_LEAST_EDGES: Final = 1 << 20


Ends: TypeAlias = Mapping[str, str]
NodeIds: TypeAlias = Mapping[str, Sequence[TableScan]]


def missing_endpoints(spark: SparkSession, edges: TableScan, ends: Ends, nodes: NodeIds) -> DataFrame:
    """Candidates for ids that edges end in and that no node has. `ends` is the node type of each end, `nodes` where the
    ids of a type are; an id may be found there twice."""
    id_scans = [scan for scans in nodes.values() for scan in scans]
    if sum(scan.table.rows * scan.bytes_per_row() for scan in id_scans) > _MOST_HELD:
        return _missing_by_exchange(spark, edges, ends, nodes)
    rows_per_task = max(_LEAST_EDGES, _EDGES_PER_ID * sum(scan.table.rows for scan in id_scans))
    return _missing_by_lookup(spark, edges, edges.groups(rows_per_task), ends, nodes)


def _missing_by_lookup(
    spark: SparkSession, edges: TableScan, groups: Sequence[tuple[int, ...]], ends: Ends, nodes: NodeIds
) -> DataFrame:
    def find_missing(number: int) -> Hashes:
        hashes: list[Hashes] = []
        for node, scans in nodes.items():
            ids = KnownIds([column for scan in scans for column in _columns(scan, scan.table.fragment_ids, ["id"])])
            here = [end for end, name in ends.items() if name == node]
            hashes += ids.find_missing(_columns(edges, groups[number], here))
        return every_hash(hashes)

    return candidates_by_task(spark, len(groups), find_missing)


def _missing_by_exchange(spark: SparkSession, edges: TableScan, ends: Ends, nodes: NodeIds) -> DataFrame:
    scans = {f"{node} {number}": scan for node, id_scans in nodes.items() for number, scan in enumerate(id_scans)}
    lanes = [Lane(name, scan, ("id",)) for name, scan in scans.items()]
    lanes += [Lane(end, replace(edges, columns=(end,)), (end,)) for end in ends]

    def find_missing(rows: Mapping[str, pa.Table]) -> Hashes:
        def ids(node: str) -> pa.Array:
            return pa.concat_arrays([c for n in range(len(nodes[node])) for c in rows[f"{node} {n}"]["id"].chunks])

        return every_hash(unknown(rows[end][end], ids(node)) for end, node in ends.items())

    return candidates(spark, lanes, find_missing)


def _columns(scan: TableScan, fragments: Sequence[int], names: Sequence[str]) -> Iterator[pa.Array]:
    for batch in replace(scan, columns=tuple(names)).read(fragments, batch_rows=_BATCH_ROWS):
        yield from (batch.column(name) for name in names)
