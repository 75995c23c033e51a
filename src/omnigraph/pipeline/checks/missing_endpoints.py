"""Endpoints of edges that no node has: candidate keys found in one of two ways.

Where the ids of the nodes fit into the memory of a task, every task reads them all and looks up the edges that it reads
itself: only the candidates move. Otherwise ids and endpoints are shuffled into the same buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.bulk.key_hashes import Hashes, every_hash
from omnigraph.pipeline.checks.bucket_shuffle import Lane
from omnigraph.pipeline.checks.candidate_keys import candidates, candidates_by_task
from omnigraph.pipeline.checks.matching_ids import KnownIds, unknown
from omnigraph.pipeline.checks.table_frames import TableScan

# Bytes of ids in the memory of a task; building the lookup takes up to four times as much.
_MOST_HELD: Final = 96 << 20
_BATCH_ROWS: Final = 1 << 17
# Reading the ids should cost a task less than looking up its edges.
_EDGES_PER_ID: Final = 2
_LEAST_EDGES: Final = 1 << 20


def missing_endpoints(
    spark: SparkSession, edges: TableScan, ends: Mapping[str, str], nodes: Mapping[str, Sequence[TableScan]]
) -> DataFrame:
    """Candidates for ids that edges end in and that no node has.

    `ends` is the node type of each end, `nodes` where the ids of a type are; an id may be found there twice.
    """
    known = [scan for scans in nodes.values() for scan in scans]
    if sum(scan.rows * scan.bytes_per_row() for scan in known) > _MOST_HELD:
        return _exchanged(spark, edges, ends, nodes)
    rows_per_task = max(_LEAST_EDGES, _EDGES_PER_ID * sum(scan.rows for scan in known))
    return _looked_up(spark, edges, edges.groups(rows_per_task), ends, nodes)


def _looked_up(
    spark: SparkSession,
    edges: TableScan,
    groups: Sequence[tuple[int, ...]],
    ends: Mapping[str, str],
    nodes: Mapping[str, Sequence[TableScan]],
) -> DataFrame:
    def missing(number: int) -> Hashes:
        found: list[Hashes] = []
        for node, scans in nodes.items():
            known = KnownIds([column for scan in scans for column in _columns(scan, scan.fragment_ids, ["id"])])
            here = [end for end, name in ends.items() if name == node]
            found += known.missing(_columns(edges, groups[number], here))
        return every_hash(found)

    return candidates_by_task(spark, len(groups), missing)


def _exchanged(
    spark: SparkSession, edges: TableScan, ends: Mapping[str, str], nodes: Mapping[str, Sequence[TableScan]]
) -> DataFrame:
    scans = {f"{node} {number}": scan for node, found in nodes.items() for number, scan in enumerate(found)}
    lanes = [Lane(name, scan, ("id",)) for name, scan in scans.items()]
    lanes += [Lane(end, replace(edges, columns=(end,)), (end,)) for end in ends]

    def missing(rows: Mapping[str, pa.Table]) -> Hashes:
        def ids(node: str) -> pa.Array:
            return pa.concat_arrays([c for n in range(len(nodes[node])) for c in rows[f"{node} {n}"]["id"].chunks])

        return every_hash(unknown(rows[end][end], ids(node)) for end, node in ends.items())

    return candidates(spark, lanes, missing)


def _columns(scan: TableScan, fragments: Sequence[int], names: Sequence[str]) -> Iterator[pa.Array]:
    for batch in replace(scan, columns=tuple(names)).read(fragments, batch_rows=_BATCH_ROWS):
        yield from (batch.column(name) for name in names)
