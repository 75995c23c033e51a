"""What driver and executors of a run ask of the store: the same at any depth, on any branch, beside any types."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import run
from tests.conftest import Place
from tests.pipeline.library import SCHEMA, book, edge, ndjson, reader, records
from tests.storage.test_cost import settled
from tests.support.s3 import S3Server

MOST_REQUESTS = 90
SPREAD = 6
"""How much runs of equal cost may differ: a hint of the log arrives sooner or later, and Spark spreads tasks over
Python processes, each of which opens what it reads. A cost per commit or per type would be 14 more."""


def test_a_run_costs_the_same_at_any_depth_table_count_and_branch(
    s3_server: S3Server, s3_place: Place, tmp_path: Path, spark: SparkSession
) -> None:
    ndjson(tmp_path / "a.ndjson", [reader("cid"), book("2"), edge("Likes", "ann", "2"), edge("Likes", "cid", "1")])

    def cost(label: str, *, types: int = 1, depth: int = 0, branch: str = "main") -> int:
        others = "".join(f"node Other{n} {{ n: I64 }}\n" for n in range(types))
        with Graph.init(f"{s3_place.uri}/{label}", SCHEMA + others) as graph:
            graph.load("\n".join(map(json.dumps, [reader("ann"), book("1"), edge("Likes", "ann", "1")])), mode="append")
            for n in range(depth):
                graph.load(json.dumps({"type": "Other0", "data": {"n": n}}), mode="append")
            if branch != "main":
                graph.create_branch(branch)
            graph.snapshot(branch)
            log = settled(graph, s3_server, lambda: run(records(tmp_path), graph=graph, branch=branch, spark=spark))
            assert graph.maintenance.verify().clean
        return len(log)

    plain = cost("plain")
    assert cost("deep", depth=15, branch="nightly") <= plain + SPREAD
    assert cost("wide", types=15) <= plain + SPREAD
    assert plain <= MOST_REQUESTS
