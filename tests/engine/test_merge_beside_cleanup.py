"""A merge must not name table versions that a cleanup is taking back."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoricalVersionReclaimedError

SCHEMA = "node Person { name: String @key }"
ANN = '{"type": "Person", "data": {"name": "ann"}}'


def test_a_slow_merge_of_main_looks_for_what_a_cleanup_is_deleting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    graph.create_branch("side")
    graph.load(ANN, mode="append")
    going = graph.snapshot().entry.tables["node:Person"]
    record = graph.root.reclaims.open({going.path: [going.version]})
    monkeypatch.setattr("omnigraph.engine.merge.merging.forked_at_once", lambda began: False)

    with pytest.raises(HistoricalVersionReclaimedError):
        graph.merge("main", "side")
    assert graph.snapshot("side").count("node:Person") == 0

    graph.root.objects.delete(record)
    assert graph.merge("main", "side").outcome == "fast_forward"
    assert graph.snapshot("side").count("node:Person") == 1
