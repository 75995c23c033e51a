"""Reads of a graph in an object store by a process that has just begun: requests and rounds, counted at the server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.storage.cache import SHARED_MEMORY
from omnigraph.storage.disk.disk_cache import DiskCache, DiskCacheSettings
from tests.conftest import Place
from tests.engine.query_graphs import edge, node
from tests.support.costs import settle
from tests.support.feature_queries import RECORDS as FEATURE_RECORDS
from tests.support.feature_queries import SCHEMA as FEATURE_SCHEMA
from tests.support.feature_queries import STORED
from tests.support.processes import Process, start_together
from tests.support.s3 import RequestLog, S3Server

SCHEMA = """
node Person { slug: String @key  age: I32? }
edge Knows: Person -> Person
"""
PEOPLE = [f"p{number:03}" for number in range(200)]
PEOPLE_LINES = [node("Person", name, age=number) for number, name in enumerate(PEOPLE)]
LOOKUP = "query q($k: String) { match { $p: Person { slug: $k } } return { $p.age as age } }"
HOP = "query q($k: String) { match { $p: Person { slug: $k }  $p knows $x } return { count($x) as n } }"

LOOKUP_COST = (9, 7)
HOP_COST = (13, 6)
"""Requests, and rounds of them: what a cold process pays for its first read."""
COPIED_COST = (5, 4)
"""The same where this machine has copies of the tables: what can have changed, and one look per table whether the
version still exists."""


@pytest.fixture(scope="module")
def shared_uri(s3_server: S3Server) -> Iterator[str]:
    """A graph that no test changes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        bucket = f"remote-reads-{uuid.uuid4().hex[:12]}"
        s3_server.create_bucket(bucket)
        yield make(f"s3://{bucket}/graph")


@pytest.fixture
def uri(s3_place: Place, shared_uri: str) -> str:
    """That graph, in the environment of a test."""
    return shared_uri


@pytest.fixture
def own_uri(s3_place: Place) -> str:
    return make(s3_place.uri)


def make(uri: str) -> str:
    lines = [edge("Knows", PEOPLE[0], name) for name in PEOPLE[1:8]]
    lines += [edge("Knows", a, b) for a, b in zip(PEOPLE[1:], [*PEOPLE[3:], *PEOPLE[:2]], strict=True)]
    with Graph.init(uri, SCHEMA) as graph, pytest.MonkeyPatch.context() as patch:
        for part in (PEOPLE_LINES[:100], PEOPLE_LINES[100:], lines):  # a version whose commit writes a hint
            graph.load("\n".join(part), mode="append")
        graph.maintenance.optimize()
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")  # which stores the topology
        graph.query(HOP, k=PEOPLE[0])
    return uri


def cold(
    server: S3Server, uri: str, query: str, *, in_rounds: bool = False, **params: object
) -> tuple[list[dict[str, object]], RequestLog]:
    """The rows of the first query of a process, and what it asked the store."""
    SHARED_MEMORY.clear()
    with server.logged() as log, server.in_rounds() if in_rounds else nullcontext():
        graph = Graph.open(uri)
        rows = [dict(row) for row in graph.query(query, **params)]
    settle(graph)
    if (copies := graph._workspace.root.copies) is not None:
        copies.wait()
    graph.close()
    return rows, log


@pytest.mark.parametrize(("query", "row", "cost"), [(LOOKUP, {"age": 0}, LOOKUP_COST), (HOP, {"n": 7}, HOP_COST)])
def test_the_first_read_of_a_process_waits_for_few_answers(
    s3_server: S3Server, uri: str, query: str, row: dict[str, int], cost: tuple[int, int]
) -> None:
    rows, log = cold(s3_server, uri, query, in_rounds=True, k=PEOPLE[0])
    assert rows == [row]
    assert (len(log), log.serial_rounds()) == cost, log.lines()


def test_the_parts_of_a_topology_are_read_in_one_round(s3_server: S3Server, uri: str) -> None:
    _, log = cold(s3_server, uri, HOP, in_rounds=True, k=PEOPLE[0])
    parts = [r for r in log.requests if "/topology/" in r.path and not r.path.endswith(".json")]
    assert len(parts) > 1
    assert len({r.round for r in parts}) == 1, log.lines()


@pytest.fixture
def by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any stored topology counts as large, and reading all of it as slow."""
    monkeypatch.setattr("omnigraph.engine.query.traversal.neighbours._FETCH_PER_BYTE", 1e-4)
    monkeypatch.setattr("omnigraph.engine.query.traversal.topology.FETCHED_BYTES", 0)


@pytest.mark.usefixtures("by_ranges")
@pytest.mark.parametrize("pattern", ["$p knows $x", "$x knows $p", "$p knows{1,3} $x", "$x knows{2,2} $p"])
def test_the_neighbours_of_a_few_nodes_are_ranges_of_a_large_topology(
    s3_server: S3Server, uri: str, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    query = f"query q($k: String) {{ match {{ $p: Person {{ slug: $k }}  {pattern} }} return {{ $x.slug as x }} }}"
    rows, log = cold(s3_server, uri, query, k=PEOPLE[0])
    files = {r.path.rsplit("/", 1)[1].rsplit(".", 1)[0] for r in log.requests if "/topology/" in r.path}
    way = "in" if pattern.endswith("$p") else "out"
    assert files == {"topology", f"{way}.offsets", f"{way}.targets"}
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    expected, _ = cold(s3_server, uri, query, k=PEOPLE[0])
    assert sorted(row["x"] for row in rows) == sorted(row["x"] for row in expected)
    assert rows


@pytest.mark.usefixtures("by_ranges")
def test_ranges_that_cost_more_than_the_whole_end_with_the_whole(s3_server: S3Server, uri: str) -> None:
    SHARED_MEMORY.clear()
    with Graph.open(uri) as graph:
        origins = ["".join(graph.profile(HOP, k=name).lines()) for name in PEOPLE[:20]]
    by_ranges = ["ranges of the stored topology" in origin for origin in origins]
    assert by_ranges == sorted(by_ranges, reverse=True)
    assert {*by_ranges} == {True, False}


@pytest.mark.usefixtures("by_ranges")
@pytest.mark.parametrize("name", ["out.offsets", "out.targets"])
def test_ranges_that_are_not_there_are_found_in_other_ways(s3_server: S3Server, own_uri: str, name: str) -> None:
    with Graph.open(own_uri) as graph:
        objects = graph._workspace.root.objects
        (stored,) = [each for each in objects.below("topology") if name in each.path]
        objects.put(stored.path, b"\x00" * 4)
    assert cold(s3_server, own_uri, HOP, k=PEOPLE[0])[0] == [{"n": 7}]


def test_a_reader_sees_the_commit_that_came_before_its_question(s3_server: S3Server, own_uri: str) -> None:
    """Whatever was read ahead."""
    with Graph.open(own_uri) as reader, Graph.open(own_uri) as writer:
        assert list(reader.query(HOP, k=PEOPLE[0])) == [{"n": 7}]
        writer.load(edge("Knows", PEOPLE[0], PEOPLE[9]), mode="append")
        assert list(reader.query(HOP, k=PEOPLE[0])) == [{"n": 8}]
    PROCESS_TOPOLOGIES.clear()


# With a cache on this machine's disk


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_place: Place) -> Path:
    """The directory of a cache, which is empty."""
    monkeypatch.setenv("OMNIGRAPH_DISK_CACHE", str(tmp_path))
    return tmp_path / "store-1"


def contents(log: RequestLog) -> list[str]:
    """The immutable files that were read."""
    return [r.path for r in log.requests if r.method == "GET" and "/__manifest/" not in r.path]


@pytest.mark.parametrize(("query", "row"), [(LOOKUP, {"age": 0}), (HOP, {"n": 7})])
def test_the_second_process_reads_every_file_from_its_own_disk(
    s3_server: S3Server, uri: str, cache: Path, query: str, row: dict[str, int]
) -> None:
    cold(s3_server, uri, query, k=PEOPLE[0])
    rows, log = cold(s3_server, uri, query, in_rounds=True, k=PEOPLE[0])
    assert rows == [row]
    assert contents(log) == []
    assert (len(log), log.serial_rounds()) == COPIED_COST, log.lines()


def test_large_files_come_in_parts(s3_server: S3Server, uri: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which several are read at once, or one after another for the disk."""
    monkeypatch.setattr("omnigraph.storage.objects._PART_BYTES", 1_000)
    for origin in ("of the store", "of the disk"):
        rows, log = cold(s3_server, uri, HOP, k=PEOPLE[0])
        assert rows == [{"n": 7}], origin
        assert (contents(log) == []) is (origin == "of the disk")
    for file in (file for file in cache.glob("*/nodes/*/*/**/*") if file.suffix == ".lance"):
        stored = Graph.open(uri)._workspace.root.objects.get("/".join(file.relative_to(cache).parts[1:]))
        assert file.read_bytes() == stored


def test_nothing_that_can_change_is_kept(s3_server: S3Server, uri: str, cache: Path) -> None:
    cold(s3_server, uri, HOP, k=PEOPLE[0])
    kept = {file.relative_to(cache).parts[1] for file in cache.glob("*/*/**/*") if file.is_file()}
    assert kept == {"nodes", "schemas", "topology"}


def test_a_commit_is_seen_and_only_its_files_are_fetched(s3_server: S3Server, own_uri: str, cache: Path) -> None:
    cold(s3_server, own_uri, LOOKUP, k=PEOPLE[0])
    (data,) = cache.glob("*/nodes/*/data/*.lance")
    with Graph.open(own_uri, storage_options={"disk_cache": "off"}) as writer:
        writer.load(node("Person", "p000", age=77), mode="merge")
    rows, _ = cold(s3_server, own_uri, LOOKUP, k=PEOPLE[0])
    assert rows == [{"age": 77}]
    rows, log = cold(s3_server, own_uri, LOOKUP, k=PEOPLE[0])
    assert (rows, contents(log)) == ([{"age": 77}], [])
    assert data in cache.glob("*/nodes/*/data/*.lance")


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("nodes/*/data/*", "cut short"),
        ("nodes/*/_indices/*/*", "gone"),
        ("nodes/*/_versions/d*.manifest", "changed"),
        ("nodes/*/_versions/d*.copy", "changed"),
        ("schemas/*", "changed"),
        ("topology/*/*/topology.json", "cut short"),
        ("topology/*/*/out.offsets*", "changed"),
    ],
)
def test_a_damaged_file_is_noticed_and_fetched_again(
    s3_server: S3Server, uri: str, cache: Path, pattern: str, damage: str
) -> None:
    cold(s3_server, uri, HOP, k=PEOPLE[0])
    file = next(file for file in sorted(cache.glob(f"*/{pattern}")) if file.stat().st_size > 100)
    content = file.read_bytes()
    if damage == "cut short":
        os.truncate(file, len(content) // 2)
    elif damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-20] + b"!" + content[-19:])
    assert cold(s3_server, uri, HOP, k=PEOPLE[0])[0] == [{"n": 7}]
    assert file.read_bytes() == content
    assert contents(cold(s3_server, uri, HOP, k=PEOPLE[0])[1]) == []


def test_a_file_that_goes_away_while_its_version_is_open_is_read_from_the_store(
    s3_server: S3Server, uri: str, cache: Path
) -> None:
    cold(s3_server, uri, LOOKUP, k=PEOPLE[0])
    with Graph.open(uri) as graph:
        snapshot = graph.snapshot()
        assert snapshot.table("node:Person")._dataset.uri.startswith("s3://")
        for file in cache.glob("*/nodes/*/*/**/*.lance"):
            file.unlink()
        assert snapshot.scan("node:Person", ["age"], "slug = 'p005'").to_pylist() == [{"age": 5}]
        assert list(graph.query(LOOKUP, k=PEOPLE[6])) == [{"age": 6}]
        assert snapshot.count("node:Person", "age < 7") == 7


def test_a_question_that_is_wrong_gives_no_copy_up(s3_server: S3Server, uri: str, cache: Path) -> None:
    cold(s3_server, uri, LOOKUP, k=PEOPLE[0])
    with Graph.open(uri) as graph, pytest.raises(ValueError, match="nonsense"):
        graph.snapshot().scan("node:Person", ["age"], "nonsense = 1")
    assert contents(cold(s3_server, uri, LOOKUP, k=PEOPLE[0])[1]) == []


def test_a_version_that_was_reclaimed_is_gone_wherever_it_was_copied(
    s3_server: S3Server, own_uri: str, cache: Path
) -> None:
    with Graph.open(own_uri) as graph:
        before = graph.snapshot()
        before.scan("node:Person")
        graph._workspace.root.copies.wait()
        graph.load(node("Person", "p000", age=77), mode="merge")
        graph.maintenance.cleanup(keep_versions=1, grace=timedelta(0))
    with Graph.open(own_uri) as graph, pytest.raises(HistoricalVersionReclaimedError):
        graph.snapshot(version=before.version).scan("node:Person")


def test_a_cache_without_room_changes_nothing_but_the_cost(
    s3_server: S3Server, own_uri: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1 << 20
    monkeypatch.setenv("OMNIGRAPH_DISK_CACHE_MIB", "1")
    many = [node("Person", f"q{number:05}", age=number % 100) for number in range(12_000)]
    with Graph.open(own_uri) as graph:
        graph.load("\n".join(many), mode="append")
        graph.maintenance.optimize()
    for query, row in ((LOOKUP, {"age": 0}), (HOP, {"n": 7}), (LOOKUP, {"age": 0})):
        assert cold(s3_server, own_uri, query, k=PEOPLE[0])[0] == [row]
        assert sum(file.stat().st_size for file in cache.glob("*/**/*") if file.is_file()) <= limit


def test_a_cache_that_can_not_be_written_changes_nothing_but_the_cost(
    s3_server: S3Server, uri: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file where the directory should be")
    for _ in range(2):
        rows, log = cold(s3_server, uri, HOP, k=PEOPLE[0])
        assert rows == [{"n": 7}]
        assert contents(log)


def test_processes_share_a_cache_that_is_being_filled(s3_server: S3Server, uri: str, cache: Path) -> None:
    """And cleared, again and again."""
    environment = {**s3_server.environment, "OMNIGRAPH_DISK_CACHE": str(cache.parent)}
    readers = [Process("tests.engine.remote_reader", uri, LOOKUP, "5", environment=environment) for _ in range(2)]
    start_together(readers)
    shared = DiskCache(DiskCacheSettings(cache, 1 << 30))
    for _ in range(20):
        shared.clear()
    assert [words for reader in readers for words in reader.acknowledged()] == [["[{'age':", "0}]"]] * 10
    assert cold(s3_server, uri, LOOKUP, k=PEOPLE[0])[0] == [{"age": 0}]


@pytest.fixture
def features(s3_place: Place, cache: Path) -> Iterator[Graph]:
    """A graph for every feature of the language, with indexes and some rows that were changed; all of it was copied."""
    with Graph.init(s3_place.uri, FEATURE_SCHEMA) as graph:
        graph.load(FEATURE_RECORDS, mode="append")
        graph.maintenance.optimize()
        for example in STORED:
            graph.query(example.text, params=example.params)
        graph._workspace.root.copies.wait()
    SHARED_MEMORY.clear()
    with Graph.open(s3_place.uri) as graph:
        yield graph


def test_every_feature_reads_the_same_from_copies(s3_server: S3Server, features: Graph) -> None:
    with s3_server.logged() as log:
        rows = {example.name: features.query(example.text, params=example.params).rows() for example in STORED}
    assert rows == {example.name: example.rows for example in STORED}
    assert [path for path in contents(log) if "/data/" in path] == []


def test_every_feature_reads_the_same_while_copies_lose_files(features: Graph, cache: Path) -> None:
    files = sorted(file for file in cache.glob("*/*/*/*/**/*.lance"))
    chance = Random(1)
    for example in STORED:
        SHARED_MEMORY.clear()
        for file in chance.sample(files, 2):
            file.unlink(missing_ok=True)
        assert features.query(example.text, params=example.params).rows() == example.rows, example.name
