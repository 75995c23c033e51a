"""The demo is what a newcomer sees first: it must work from end to end, and what it prints must be true."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from omnigraph import Graph
from tests.support.lance_tables import lance_of
from tests.support.processes import REPOSITORY


def test_files_become_a_graph_that_is_searched_branched_and_merged(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.syspath_prepend(REPOSITORY / "examples/library")
    printed = io.StringIO()

    runpy.run_path(str(REPOSITORY / "examples/library/demo.py"))["main"](
        tmp_path, Console(file=printed, width=160, highlight=False), spark
    )

    shown = " ".join(printed.getvalue().split())
    graph = Graph.open(tmp_path / "library.omni")
    loaded = graph.snapshot(version=2)
    assert {key: loaded.count(key) for key in loaded.types()} == {
        "edge:Borrowed": 3967,
        "edge:Recommends": 2986,
        "edge:WrittenBy": 899,
        "node:Author": 160,
        "node:Book": 899,
        "node:Reader": 1496,
    }
    assert "edge:Borrowed 4,000 3,967 33 3,967" in shown
    assert "54 bad rows went to the quarantine" in shown
    for reason in (
        "readers-1.csv:14 invalid enum value 'moon' for Reader.district",
        "readers-0.csv:101 property 'joined': invalid Date literal '2020-02-31'",
        "readers-1.csv:234 @unique violation on Reader.email: value 'bo@example.org' held by 'C00001' and 'C00700'",
        "readers-2.csv:367 the record is malformed",
        "part-0.parquet:18 @check violation on Book.isbn",
        "recommendations.ndjson:3001 'to' must be a string, the id of a node",
    ):
        assert reason in shown
    assert f"Commit {loaded.commit_id} on main, version 2." in shown
    assert "The same files again: recognised, nothing was done." in shown

    books = loaded.table("node:Book")
    assert books.count("embedding IS NULL") == 0
    built = {index.name for index in lance_of(books).describe_indices()}
    assert built >= {"id_btree", "abstract_full_text", "profile_vector", "embedding_vector"}

    assert "From the Station to the Orbit 6" in shown
    assert "Tide before Harbour Nils Jansen-Berg 182 0.103" in shown
    assert "nearest embedding: From the Wolf to the Seed (978-000123), distance 0.000" in shown
    assert "west 886 427 101" in shown
    assert "Merged review/titles into main: merged." in shown
    assert graph.list_branches() == ["main"]
    now, then = graph.entity("node:Book", "978-000123"), graph.entity("node:Book", "978-000123", version=2)
    assert now is not None
    assert then is not None
    assert (now["title"], then["title"]) == (f"{then['title']} (Second Edition)", "From the Wolf to the Seed")
    assert graph.snapshot().count("edge:Borrowed") == 3968
    assert "clean." in shown
