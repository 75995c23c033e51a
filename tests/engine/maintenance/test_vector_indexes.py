"""Indexes of many vectors: when they are built and built anew, and what is on record about them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph import IndexStatus
from omnigraph.engine.bulk.jobs import IndexBuild
from omnigraph.engine.maintenance.declared_indexes import declared_indexes
from omnigraph.errors import IntegrityError
from omnigraph.graph import Graph
from omnigraph.language.catalog import VectorIndex
from omnigraph.storage.models import VECTOR_INDEX_FORMAT, VectorIndexRecord
from omnigraph.storage.tables.indexes import IndexSpec, index_record, partition_count, stored_index
from tests.engine import vector_graphs as vectors
from tests.engine.vector_graphs import clustered, rows, schema
from tests.support.lance_tables import lance_of

COUNT = 1_200
NAME = "vec_vector"


def status(graph: Graph, **point: object) -> IndexStatus:
    indexes = graph.maintenance.index_status(**point).indexes  # type: ignore[arg-type]
    return next(index for index in indexes if index.property == "vec")


def kinds(graph: Graph) -> dict[str, str]:
    table = lance_of(graph.snapshot().table("node:Doc"))
    return {index.name: index.index_type for index in table.describe_indices()}


def record(graph: Graph) -> VectorIndexRecord:
    measured = index_record(graph.snapshot().table("node:Doc"), NAME)
    assert measured is not None
    return measured


def test_what_was_measured_is_kept_with_the_table(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    measured = record(graph)
    assert kinds(graph)[NAME] == "IVF_SQ"
    assert measured.rows == COUNT
    assert measured.sample == 64
    assert measured.recall >= 0.9
    graph.load(rows(clustered(10), start=COUNT), type="Doc", mode="append")
    assert record(omnigraph.open(tmp_path / "g")) == measured
    at_first = status(graph, version=1)
    assert (at_first.covered_rows, at_first.stale_rows, at_first.pending) == (0, 0, None)


def test_status_tells_what_is_covered_and_pending(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", schema())
    graph.load(rows(clustered(COUNT)), type="Doc", mode="append")
    before = status(graph)
    assert (before.kind, before.covered_rows, before.stale_rows) == ("vector", 0, COUNT)
    assert (before.pending, before.recall, before.size_bytes) == ("not built yet", None, None)
    graph.maintenance.optimize()
    graph.load(rows(clustered(10), start=COUNT), type="Doc", mode="append")
    graph.mutate("query q() { delete Doc where n < 5 }")
    built = status(graph)
    assert (built.covered_rows, built.stale_rows, built.approximate, built.pending) == (COUNT - 5, 10, True, None)
    assert (built.recall or 0) >= 0.9
    assert (built.size_bytes or 0) > 0
    graph.maintenance.optimize()
    assert status(graph).stale_rows == 0


def test_small_types_keep_an_exact_index_and_get_the_other_when_they_grow(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", 400)
    assert kinds(graph)[NAME] == "IVF_FLAT"
    assert not status(graph).approximate
    graph.load(rows(clustered(COUNT), start=400), type="Doc", mode="append")
    assert status(graph).pending == "built with other parameters, or for another size of the type"
    graph.maintenance.optimize()
    assert kinds(graph)[NAME] == "IVF_SQ"
    assert status(graph).pending is None


def test_an_index_outlives_a_small_shrinkage_of_its_type(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    graph.mutate("query q() { delete Doc where n >= 400 }")
    graph.maintenance.optimize()
    assert kinds(graph)[NAME] == "IVF_SQ"
    graph.mutate("query q() { delete Doc where n >= 200 }")
    graph.maintenance.optimize()
    assert kinds(graph)[NAME] == "IVF_FLAT"


def test_changed_parameters_wait_for_the_next_optimize(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    first = record(graph)
    plan = graph.schema.plan(schema(parameters="exact_rows=500, partitions=3, probes=2"))
    assert plan.supported
    assert [type(step).__name__ for step in plan.steps] == ["UpdatePropertyMetadata"]
    graph.schema.apply(schema(parameters="exact_rows=500, partitions=3, probes=2"))
    assert record(graph) == first
    assert status(graph).pending == "built with other parameters, or for another size of the type"
    graph.maintenance.optimize()
    second = record(graph)
    assert (second.partitions, second.probes) == (3, 2)
    assert second.segments != first.segments
    assert status(graph).probes == 2


def test_changed_probes_are_measured_without_a_build(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    first = record(graph)
    graph.schema.apply(schema(parameters="exact_rows=500, probes=1"))
    assert status(graph).pending == "recall not measured yet"
    graph.maintenance.optimize()
    second = record(graph)
    assert second.segments == first.segments
    assert second.probes == second.declared_probes == 1
    assert second.recall <= first.recall


def test_an_optimized_graph_is_left_alone(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    assert graph.maintenance.optimize().commit is None


def test_new_rows_get_a_segment_and_another_measurement(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", COUNT)
    first = record(graph)
    graph.load(rows(clustered(600, seed=8), start=COUNT), type="Doc", mode="append")
    assert graph.maintenance.ensure_indices() == []
    second = record(graph)
    assert len(second.segments) == 2
    assert set(first.segments) < set(second.segments)
    assert second.rows == COUNT + 600


def test_a_writer_meanwhile_does_not_undo_the_measurement(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", schema())
    graph.load(rows(clustered(COUNT)), type="Doc", mode="append")
    written: list[str] = []

    def write(*_: object) -> None:
        if not written:
            written.append("once")
            omnigraph.open(tmp_path / "g").load(rows(clustered(5), start=COUNT), type="Doc", mode="append")

    report = graph.maintenance.optimize(progress=write)
    assert report.commit is not None
    assert record(graph).rows == COUNT
    assert status(graph).stale_rows == 5


@pytest.mark.parametrize(
    ("declared", "rows_", "total", "partitions"),
    [(None, 1_000_000, 1_000_000, 1_000), (None, 1_000, 1_000, 3), (None, 10, 10, 1), (64, 50_000, 100_000, 32)],
)
def test_partitions_grow_with_the_rows(declared: int | None, rows_: int, total: int, partitions: int) -> None:
    spec = IndexSpec("vec", "IVF_SQ", NAME, {}, VectorIndex(partitions=declared))
    assert partition_count(spec, rows_, total) == partitions


def test_a_record_of_a_later_release_is_not_read() -> None:
    text = f'{{"format":{VECTOR_INDEX_FORMAT + 1},"other":1}}'
    assert VectorIndexRecord.from_json(text, "t") is None
    with pytest.raises(IntegrityError, match="not the record of an index"):
        VectorIndexRecord.from_json('{"format":1}', "t")


def test_executors_build_approximate_segments(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", schema())
    graph.load(rows(clustered(COUNT)), type="Doc", mode="append")
    workspace, snapshot = graph._workspace, graph.snapshot()
    type_ = snapshot.catalog.nodes["Doc"]
    build = IndexBuild(workspace, {"node:Doc": (type_, snapshot.state_of(type_))})
    states = build.stage([task() for task in build.tasks])
    table = workspace.root.reader.open(states["node:Doc"])
    (spec,) = (spec for spec in declared_indexes(type_) if spec.is_vector)
    stored = stored_index(table, spec)
    assert stored is not None
    assert (stored.kind, stored.rows.unindexed_rows, stored.is_measured) == ("IVF_SQ", 0, False)
