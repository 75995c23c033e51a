"""Shortest paths, all of them, and trails, as the language defines them, in each of the two ways of finding
neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.operators import walks
from omnigraph.engine.query.read import ReadOptions
from omnigraph.errors import QueryCancelledError, ResourceLimitError
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, node
from tests.engine.visibilities import visibility_on

READERS = """
node Reader { slug: String @key  age: I32? }
node Book { slug: String @key }
edge Follows: Reader -> Reader { since: I32? }
edge Likes: Reader -> Reader
edge Borrowed: Reader -> Book
"""
FOLLOWS = {"e1": "ab", "e2": "bc", "e3": "ca", "e4": "cd", "e5": "dd", "e6": "ab"}


@pytest.fixture(params=["indexed", "csr"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(MODE_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    lines = [node("Reader", slug, age=10 * i) for i, slug in enumerate("abcd")] + [node("Book", "k")]
    lines += [edge("Follows", *ends, id=name, since=int(name[1])) for name, ends in FOLLOWS.items()]
    lines += [edge("Likes", "a", "d", id="l1"), edge("Likes", "d", "b", id="e0"), edge("Borrowed", "d", "k", id="o1")]
    with Graph.init(tmp_path_factory.mktemp("readers") / "g", READERS) as graph:
        graph.load("\n".join(lines), mode="append")
        yield graph


def query(graph: Graph, match: str, tail: str, **options: Any) -> list[dict[str, Any]]:
    return graph.query(f"query q() {{ match {{ {match} }} {tail} }}", **options).rows()


def edges_of(graph: Graph, match: str, **options: Any) -> list[str]:
    """The edges of each path `$p`, in the order of the rows."""
    rows = query(graph, match, "return { $p }", **options)
    return [" ".join(edge["@id"] for edge in row["p"]["edges"]) for row in rows]


FROM_A, FROM_D = '$a: Reader { slug: "a" }', '$a: Reader { slug: "d" }'
TO_A, TO_D = '$b: Reader { slug: "a" }', '$b: Reader { slug: "d" }'
PATHS = [
    (f"{FROM_A}  {TO_D}  path $p: shortest $a follows $b", ["e1 e2 e4"]),
    (f"{FROM_A}  path $p: shortest $a follows $b  {TO_D}", ["e1 e2 e4"]),
    (f"{FROM_A}  {TO_D}  path $p: all_shortest $a follows $b", ["e1 e2 e4", "e6 e2 e4"]),
    (f"{FROM_A}  path $p: trails $a follows{{1,2}} $b", ["e1", "e1 e2", "e6", "e6 e2"]),
    (f"{FROM_A}  path $p: trails $a follows{{4,4}} $b", ["e1 e2 e3 e6", "e1 e2 e4 e5", "e6 e2 e3 e1", "e6 e2 e4 e5"]),
    (f"{FROM_A}  path $p: trails $a follows{{5,}} $b", []),
    (f"{FROM_A}  {TO_A}  path $p: shortest $a follows{{0,}} $b", [""]),
    (f"{FROM_A}  {TO_A}  path $p: shortest $a follows{{1,}} $b", []),
    (f"{FROM_D}  {TO_D}  path $p: shortest $a follows{{1,}} $b", ["e5"]),
    (f"{FROM_A}  {TO_D}  path $p: shortest $a follows{{4,}} $b", []),
    (f"{FROM_A}  {TO_D}  path $p: shortest $a follows{{1,2}} $b", []),
    (f"{FROM_A}  path $p: shortest $a follows $b", ["e1", "e1 e2", "e1 e2 e4"]),
    (f"{FROM_A}  path $p: all_shortest $a follows{{2,2}} $b", ["e1 e2", "e6 e2"]),
    (f"{FROM_A}  path $p: shortest $b follows $a", ["e3", "e2 e3"]),
    (f"{FROM_D}  path $p: shortest $a <follows> $b", ["e4", "e4 e2", "e4 e3", "e5"]),
    (f"{FROM_A}  {TO_A}  path $p: trails $a follows{{0,}} $b", ["", "e1 e2 e3", "e6 e2 e3"]),
    (f"{FROM_A}  {TO_D}  path $p: shortest $a (follows | likes) $b", ["l1"]),
    (f"{FROM_A}  path $p: shortest $a (follows | likes){{2,2}} $b", ["e1 e2"]),
    (f"{FROM_D}  {TO_A}  path $p: shortest $a (follows | likes) $b", ["e0 e2 e3"]),
    (f"{FROM_A}  {TO_D}  path $p: shortest $a follows $b each $f $_ {{ $f.since > 1 }}", ["e6 e2 e4"]),
    (f'{FROM_A}  {TO_D}  path $p: shortest $a follows $b each $_ $n {{ $n.slug != "c" }}', []),
    (f'{FROM_A}  path $p: trails $a follows{{1,}} $b each $_ $n {{ $n.slug != "c" }}', ["e1", "e6"]),
    (f'{FROM_A}  $k: *  path $p: shortest $a * $k  $k.@type = "Book"', ["l1 o1"]),
]


@pytest.mark.parametrize("many_ends", [False, True], ids=["both sides", "one side"])
@pytest.mark.parametrize(("match", "expected"), PATHS)
def test_paths(
    readers: Graph, match: str, expected: list[str], many_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many_ends:
        monkeypatch.setattr(walks, "_ENDS_PER_START", 0)
    assert sorted(edges_of(readers, match)) == sorted(expected)
    assert query(readers, match, "return { count($p) as n }") == [{"n": len(expected)}]
    assert query(readers, match, "return { count(*) as n }") == [{"n": len(expected)}]
    assert len(query(readers, match, "return { $b.@id }" if "$k" not in match else "return { $k.@id }")) == (
        len(expected)
    )


def test_a_path_is_an_object_with_its_nodes_and_edges(readers: Graph) -> None:
    (row,) = query(readers, f"{FROM_A}  {TO_D}  path $p: shortest $a follows $b", "return { $p, length($p) as n }")
    assert (row["n"], row["p"]["length"]) == (3, 3)
    assert [part["slug"] for part in row["p"]["nodes"]] == list("abcd")
    assert [(part["@type"], part["since"]) for part in row["p"]["edges"]] == [
        ("Follows", 1),
        ("Follows", 2),
        ("Follows", 4),
    ]
    parts = "return { map($n in nodes($p) : $n.slug) as nodes, start($p) as s, end($p) as t, length($p) as n }"
    (row,) = query(readers, f"{FROM_A}  {TO_A}  path $p: shortest $a follows{{0,}} $b", parts)
    assert (row["nodes"], row["s"]["slug"], row["t"]["slug"], row["n"]) == (["a"], "a", "a", 0)


def test_edges_of_several_types_come_by_type_name_and_then_by_id(readers: Graph) -> None:
    """e0 is a Likes, so it comes behind every Follows."""
    found = edges_of(readers, f"{FROM_D}  path $p: trails $a (likes | follows){{1,2}} $b")
    assert sorted(found) == ["e0", "e0 e2", "e5", "e5 e0"]
    both = '$a: Reader { slug: "c" }  $b: Reader { slug: "b" }  path $p: all_shortest $a (likes | follows) $b'
    assert edges_of(readers, both) == ["e3 e1", "e3 e6", "e4 e0"]
    assert edges_of(readers, both.replace("all_shortest", "shortest")) == ["e3 e1"]


def test_rows_keep_their_order_and_share_what_starts_alike(readers: Graph) -> None:
    text = """query q() {
        match { $a: Reader  $o: Reader  $o.age < 20 } return { $a, $o } order { $a.slug desc, $o.slug }
        then match { path $p: trails $a follows{1,1} $b } return { $a.slug as a, $o.slug as o, edges($p) as e }
    }"""
    rows = [(row["a"], row["o"], row["e"][0]["@id"]) for row in readers.query(text).rows()]
    assert rows == [
        (start, other, name) for start in "dcba" for other in "ab" for name, ends in FOLLOWS.items() if ends[0] == start
    ]


def test_paths_of_optional_matches_are_null_without_one(readers: Graph) -> None:
    match = "$a: Reader  optional { path $p: shortest $a borrowed{1,1} $k }"
    rows = query(readers, match, "return { $a.slug as a, length($p) as n, $p is null as none } order { a }")
    assert [(row["a"], row["n"], row["none"]) for row in rows] == [(s, None, True) for s in "abc"] + [("d", 1, False)]
    later = "$a: Reader  optional { $a borrowed $k }  optional { path $p: shortest $k borrowed{1,1} $r }"
    rows = query(readers, later, "return { $a.slug as a, length($p) as n } order { a }")
    assert [(row["a"], row["n"]) for row in rows] == [("a", None), ("b", None), ("c", None), ("d", 1)]


def test_paths_group_and_count_by_what_they_are(readers: Graph) -> None:
    match = f"$o: Reader  {FROM_A}  {TO_D}  path $p: all_shortest $a follows $b"
    assert query(readers, match, "return { count(distinct $p) as n, count($p) as m }") == [{"n": 2, "m": 8}]
    groups = query(readers, match, "return { $p, count($o) as n }")
    assert [(len(row["p"]["edges"]), row["n"]) for row in groups] == [(3, 4), (3, 4)]


def test_what_is_invisible_is_on_no_path(readers: Graph, tmp_path: Path) -> None:
    chosen = {"edge:Follows": ("since > 1", lambda _: True)}
    snapshot = readers.snapshot()
    hidden = snapshot.restricted_to(visibility_on(readers.catalog, chosen))
    text = f"query q() {{ match {{ {FROM_A}  {TO_D}  path $p: all_shortest $a follows $b }} return {{ $p }} }}"
    assert len(snapshot.query(text).rows()) == 2
    (row,) = hidden.query(text).rows()
    assert [part["@id"] for part in row["p"]["edges"]] == ["e6", "e2", "e4"]
    no_c = snapshot.restricted_to(visibility_on(readers.catalog, {"node:Reader": ("age != 20", lambda _: True)}))
    assert no_c.query(text).rows() == []


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Forty steps with two edges each: 2^40 trails lead from the first to the last."""
    lines = [node("Reader", f"r{i:02d}") for i in range(41)]
    lines += [edge("Follows", f"r{i:02d}", f"r{i + 1:02d}", id=f"{i:02d}{side}") for i in range(40) for side in "xy"]
    with Graph.init(tmp_path_factory.mktemp("ladder") / "g", READERS) as graph:
        graph.load("\n".join(lines), mode="append")
        yield graph


FIRST_TO_LAST = '$a: Reader { slug: "r00" }  $b: Reader { slug: "r40" }  path $p: '


def test_trails_stream_and_a_limit_ends_them(ladder: Graph) -> None:
    """No more than a few pieces are made, of endlessly many."""
    text = f"query q() {{ match {{ {FIRST_TO_LAST}trails $a follows $b }} return {{ length($p) as n }} limit 20 }}"
    assert ladder.query(text).rows() == [{"n": 40}] * 20
    stream = ladder.stream(f"query q() {{ match {{ {FIRST_TO_LAST}trails $a follows $b }} return {{ $p }} }}")
    assert len(next(iter(stream))) > 0


@pytest.mark.parametrize("kind", ["trails", "all_shortest"])
def test_endlessly_many_paths_end_at_the_work_limit(ladder: Graph, kind: str) -> None:
    match = f"{FIRST_TO_LAST}{kind} $a follows $b"
    with pytest.raises(ResourceLimitError, match="traversal_work") as refused:
        query(ladder, match, "return { $p }", options=ReadOptions(traversal_work=100_000))
    assert refused.value.resource == "traversal_work"
    assert "raise the traversal work" in str(refused.value)


def test_shortest_paths_are_counted_without_making_them(ladder: Graph) -> None:
    match = f"{FIRST_TO_LAST}all_shortest $a follows $b"
    assert query(ladder, match, "return { count(*) as n }") == [{"n": 2**40}]
    assert edges_of(ladder, match.replace("all_shortest", "shortest")) == [" ".join(f"{i:02d}x" for i in range(40))]


def test_endless_searches_keep_their_deadline_and_their_memory(ladder: Graph) -> None:
    endless = f"{FIRST_TO_LAST}trails $a follows $b"
    soon = ReadOptions(cancellation=Cancellation(0.3), traversal_work=2**62)
    with pytest.raises(QueryCancelledError):
        query(ladder, endless, "return { count($p) as n }", options=soon)
    little = ReadOptions(memory_bytes=16 << 20, traversal_work=2**62)
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        query(ladder, endless, "return { $p }", options=little)
