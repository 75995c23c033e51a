"""The bundled example does what its README says."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import run
from tests.pipeline.library import rejected_rows
from tests.support.processes import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "pipeline"


def test_the_library_is_loaded_embedded_and_indexed_and_its_bad_rows_are_kept(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    runpy.run_path(str(EXAMPLE / "generate.py"))["main"](tmp_path / "data")
    shutil.copy(EXAMPLE / "library.yaml", tmp_path)
    graph = Graph.init(tmp_path / "library.omni", (EXAMPLE / "schema.pg").read_text())

    report = run(tmp_path / "library.yaml", spark=spark)

    inserted = {counts.type_key: counts.inserted for counts in report.types if counts.inserted}
    assert inserted == {
        "edge:Borrowed": 3983,
        "edge:Recommends": 797,
        "edge:WrittenBy": 899,
        "node:Author": 160,
        "node:Book": 899,
        "node:Reader": 1496,
    }
    assert report.rejected == 27
    assert report.quarantine is not None
    assert len(rejected_rows(report.quarantine)) >= 27
    books = graph.snapshot().table("node:Book")
    assert books.count("embedding IS NULL") == 0
    assert {i.name for i in books.dataset.describe_indices()} >= {"id_btree", "abstract_full_text", "embedding_vector"}
    assert run(tmp_path / "library.yaml", spark=spark).replayed
