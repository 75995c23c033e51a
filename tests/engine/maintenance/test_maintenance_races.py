"""Maintenance beside live processes: nothing written is lost, nothing readable breaks, and kills do no damage."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.storage.log.tracing import MAINTENANCE_POINTS
from tests.conftest import Place
from tests.engine.library import SCHEMA, book, content, load, loan, reader
from tests.support.processes import Process, start_together

WRITERS, ROUNDS = 5, 6


def start(place: Place, *arguments: str, kill_at: str = "") -> Process:
    return Process("tests.engine.keeper", place.uri, *arguments, environment=place.environment, kill_at=kill_at)


def run_together(place: Place, *commands: tuple[str, ...]) -> list[list[list[str]]]:
    processes = [start(place, *command) for command in commands]
    start_together(processes)
    return [process.acknowledged() for process in processes]


def expected(said: list[list[list[str]]]) -> dict[str, int]:
    """What the writers were told is in the graph: the last word on each book."""
    return {words[1]: int(words[2]) for lines in said for words in lines if words[0] == "wrote"}


def check(place: Place, said: list[list[list[str]]]) -> Graph:
    graph = Graph.open(place.uri)
    books = content(graph, "node:Book")
    assert {isbn: row["pages"] for isbn, row in books.items()} == expected(said)
    assert len(content(graph, "edge:Borrowed")) == len(content(graph, "node:Reader")) == len(books)
    table = graph.snapshot().table("node:Book")
    for isbn, pages in list(expected(said).items())[::7]:
        found = table.read(["id"], filter=f"pages = {pages} AND isbn = '{isbn}'").column("id").to_pylist()
        assert found == [isbn], "an index answers as the rows do"
    assert graph.maintenance.verify().clean
    return graph


def test_optimize_and_cleanup_beside_writers_and_readers(local_place: Place) -> None:
    Graph.init(local_place.uri, SCHEMA).close()
    commands = [("write", f"w{i}", str(ROUNDS)) for i in range(WRITERS)]
    said = run_together(local_place, *commands, ("tidy", "8", "4"), ("clean", "20", "3"), ("read", "r", "12"))
    check(local_place, said[:WRITERS])
    tidied, cleaned, read = said[WRITERS:]
    assert [words[0] for words in tidied] == ["tidied"] * 4
    assert [words[2] for words in cleaned] == ["0"] * 3, "no table failed"
    for words in read:
        assert words[0] == "reclaimed" or words[2] == "0", "a snapshot never shows a loan without its book"
    assert any(words[1] != "none" for words in tidied), "optimize gets through beside writers"


def test_two_maintainers_at_once(local_place: Place) -> None:
    graph = Graph.init(local_place.uri, SCHEMA)
    for i in range(6):
        load(graph, [book(f"b{i}", pages=i), reader(f"r{i}"), loan(f"r{i}", f"b{i}")])
    run_together(local_place, ("tidy", "a", "2"), ("tidy", "b", "2"), ("clean", "1", "2"), ("clean", "2", "2"))
    fresh = Graph.open(local_place.uri)
    assert {isbn: row["pages"] for isbn, row in content(fresh, "node:Book").items()} == {f"b{i}": i for i in range(6)}
    assert fresh.maintenance.verify().clean
    assert fresh.snapshot().entry.tables["node:Book"].fragments == 1


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        *((point, 1) for point in MAINTENANCE_POINTS),
        ("cleanup.delete.after", 2),
        ("cleanup.delete.after", 4),
        ("stage.commit.after", 1),
        ("stage.commit.after", 4),
        ("publish.before", 1),
    ],
)
def test_a_killed_keeper_leaves_a_whole_graph(local_place: Place, point: str, nth: int) -> None:
    graph = Graph.init(local_place.uri, SCHEMA)
    for i in range(5):
        load(graph, [book(f"b{i}", pages=i), reader(f"r{i}"), loan(f"r{i}", f"b{i}")])
    role = ("clean_all", "2", "3") if point in MAINTENANCE_POINTS else ("tidy", "t", "2")
    process = start(local_place, *role, kill_at=f"{point}:{nth}")
    start_together([process])
    process.acknowledged()
    assert process.returncode == -9
    fresh = Graph.open(local_place.uri)
    assert sorted(content(fresh, "node:Book")) == [f"b{i}" for i in range(5)]
    assert fresh.maintenance.verify().clean
    load(fresh, [book("after")])
    fresh.maintenance.optimize()
    fresh.maintenance.cleanup(keep_versions=1, grace=timedelta(0))
    again = Graph.open(local_place.uri)
    assert sorted(content(again, "node:Book")) == ["after", *(f"b{i}" for i in range(5))]
    assert again.maintenance.verify().clean
    named = {
        f"{s.path}/{n}"
        for s in again.snapshot().entry.tables.values()
        for n in again._workspace.root.reader.open(s).files()
    }
    data = {str(p.relative_to(local_place.uri)) for p in Path(local_place.uri).glob("*/*/data/*.lance")}
    assert data <= named, "the next cleanup finishes what the killed one began"
