"""Repair: foreign movement of a table's attached head is found, classified, and taken in only by consent."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.maintenance import RepairReport, TableRepaired
from omnigraph.errors import BadRequestError
from tests.engine.library import SCHEMA, book, content, load, loan, reader


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    load(graph, [book("b1"), reader("r1", name="Ann"), loan("r1", "b1")])
    return graph


def folder(graph: Graph, type_key: str) -> str:
    return f"{graph.uri}/{graph.snapshot().entry.tables[type_key].path}"


def append_foreign(graph: Graph, *cards: str, **extra: object) -> None:
    schema = pa.schema(
        [pa.field(n, pa.string(), nullable=False) for n in ("id", "card")] + [pa.field("name", pa.string())]
    )
    rows = [{"id": card, "card": card, "name": "foreign", **extra} for card in cards]
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), folder(graph, "node:Reader"), mode="append")


def row(report: RepairReport, type_key: str = "node:Reader") -> TableRepaired:
    return next(r for r in report.datasets if r.type_key == type_key)


def outcome(report: RepairReport, type_key: str = "node:Reader") -> tuple[str, str]:
    found = row(report, type_key)
    return found.classification.value, found.action.value


def test_a_graph_nobody_else_touched_has_no_drift(graph: Graph) -> None:
    told = wire.to_builtins(graph.maintenance.repair())
    assert list(told) == ["uri", "confirm", "force", "graph_manifest_version", "datasets"]
    assert [r["type_key"] for r in told["datasets"]] == ["edge:Borrowed", "node:Book", "node:Reader"]
    for found in told["datasets"]:
        assert (found["classification"], found["action"], found["operations"]) == ("no_drift", "no_op", [])
        assert found["dataset_version_id"] == found["lance_head_version"]
        assert found["published_dataset_version"] == graph.snapshot().table_versions()[found["type_key"]]


def test_force_needs_confirm(graph: Graph) -> None:
    with pytest.raises(BadRequestError):
        graph.maintenance.repair(force=True)


def test_foreign_rows_are_shown_refused_then_taken_in(graph: Graph) -> None:
    append_foreign(graph, "r8", "r9")
    before = graph.snapshot().commit_id
    shown = graph.maintenance.repair()
    assert outcome(shown) == ("suspicious", "preview")
    assert (row(shown).operations, row(shown).foreign_rows, row(shown).lance_head_version) == (("Append",), 2, "2")
    assert outcome(graph.maintenance.repair(confirm=True)) == ("suspicious", "refused")
    assert graph.snapshot().commit_id == before
    assert sorted(content(graph, "node:Reader")) == ["r1"]
    forced = graph.maintenance.repair(confirm=True, force=True, actor="ann")
    assert outcome(forced) == ("suspicious", "forced")
    assert forced.graph_manifest_version == graph.snapshot().version
    assert sorted(content(graph, "node:Reader")) == ["r1", "r8", "r9"]
    assert graph.snapshot().entry.commit.actor == "ann"
    assert outcome(graph.maintenance.repair()) == ("verified_maintenance", "preview"), "nothing is missing any more"
    assert outcome(graph.maintenance.repair(confirm=True)) == ("verified_maintenance", "healed")


def test_rows_against_the_schema_are_refused_and_leave_no_trace(graph: Graph) -> None:
    append_foreign(graph, "r8", id="not-the-key")
    before = graph.snapshot().commit_id
    report = graph.maintenance.repair(confirm=True, force=True)
    assert outcome(report) == ("suspicious", "refused")
    assert row(report).error
    assert report.refused == 1
    assert graph.snapshot().commit_id == before


def test_maintenance_by_another_tool_is_harmless(graph: Graph) -> None:
    dataset = lance.dataset(folder(graph, "node:Book"))
    dataset.update_config({"note": "by another tool"})
    assert outcome(graph.maintenance.repair(), "node:Book") == ("verified_maintenance", "preview")


def test_what_can_not_be_opened_is_reported_and_never_guessed(graph: Graph) -> None:
    state = graph.snapshot().entry.tables["node:Book"]
    data = next(name for name in graph.snapshot().table("node:Book").files() if name.startswith("data/"))
    os.remove(Path(folder(graph, "node:Book")) / data)
    report = Graph.open(graph.uri).maintenance.repair()
    assert outcome(report, "node:Book") == ("unverifiable", "refused")
    assert data in str(row(report, "node:Book").error)
    assert row(report, "node:Book").dataset_version_id == state.version
    assert row(report, "node:Book").published_dataset_version == graph.snapshot().table_versions()["node:Book"]
    assert outcome(report) == ("no_drift", "no_op")


def test_writes_go_on_beside_a_foreign_head(graph: Graph) -> None:
    append_foreign(graph, "r8")
    load(graph, [reader("r2")])
    graph.maintenance.optimize()
    assert sorted(content(graph, "node:Reader")) == ["r1", "r2"]
    assert graph.maintenance.verify().clean
