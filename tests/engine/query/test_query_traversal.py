"""Traversal as specified, in each of the two ways of finding neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.graph import Graph
from tests.engine.query_graphs import build_indexes, edge, node

TRANSIT = """
node Stop { slug: String @key  zone: I32? }
node Line { slug: String @key }
edge Track: Stop -> Stop { km: F64? }
edge Serves: Line -> Stop
"""
ZONES = {"A": 1, "B": 1, "C": 2, "D": 2, "E": 3, "F": 3, "G": None}
TRACKS = [
    ("t1", "A", "B", 4.0),
    ("t2", "A", "C", 9.5),
    ("t3", "B", "C", 2.0),
    ("t4", "C", "D", 3.0),
    ("t5", "D", "A", 7.0),
    ("t6", "E", "E", 0.5),
    ("t7", "E", "F", None),
    ("t8", "A", "B", 5.5),
]

READERS = """
node Reader { slug: String @key }
node Book { slug: String @key  status: String? }
edge Follows: Reader -> Reader
edge Borrowed: Reader -> Book { on: I32? }
"""
FOLLOWS = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d"), ("a", "b")]


@pytest.fixture(scope="module", params=["indexed", "csr"], autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, request.param)
        yield request.param


@pytest.fixture(scope="module")
def transit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Half of the tracks are covered by an index, half came later."""
    lines = [node("Stop", slug, zone=zone) for slug, zone in ZONES.items()]
    lines += [node("Line", "A"), node("Line", "red")]
    tracks = [edge("Track", a, b, id=name, km=km) for name, a, b, km in TRACKS]
    serves = [edge("Serves", a, b) for a, b in (("A", "B"), ("red", "C"), ("red", "D"))]
    with Graph.init(tmp_path_factory.mktemp("transit") / "g", TRANSIT) as graph:
        graph.load("\n".join((*lines, *tracks[:4])), mode="append")
        build_indexes(graph)
        graph.load("\n".join((*tracks[4:], *serves)), mode="append")
        yield graph


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    lines = [node("Reader", slug) for slug in ("a", "b", "c", "d", "r1", "r2")]
    lines += [node("Book", "b1", status="lost"), node("Book", "b2", status="lent"), node("Book", "a")]
    lines += [edge("Follows", a, b) for a, b in FOLLOWS]
    lines += [edge("Borrowed", "r1", "b1", on=1), edge("Borrowed", "r1", "b1", on=2), edge("Borrowed", "r2", "b2")]
    with Graph.init(tmp_path_factory.mktemp("library") / "g", READERS) as graph:
        graph.load("\n".join(lines), mode="append")
        yield graph


def values(graph: Graph, match: str, returned: str, **params: str) -> list[Any]:
    """The rows of a query as tuples, or as plain values when there is one column."""
    declared = ", ".join(f"${name}: String" for name in params)
    result = graph.query(f"query q({declared}) {{ match {{ {match} }} return {{ {returned} }} }}", params=params)
    rows = [tuple(row.values()) for row in result.rows()]
    return [row[0] for row in rows] if len(result.columns) == 1 else rows


@pytest.mark.parametrize(
    ("start", "pattern", "expected"),
    [
        ("A", "$s track $t", "BC"),
        ("A", "$s track{1,3} $t", "BCD"),
        ("A", "$s track{2,2} $t", "D"),
        ("B", "$s track{2,3} $t", "AD"),
        ("B", "$s track{1,4} $t", "ACD"),
        ("E", "$s track{1,5} $t", "EF"),
        ("E", "$s track{2,5} $t", ""),
        ("C", "$s <track> $t", "ABD"),
        ("E", "$s <track> $t", "EF"),
        ("F", "$s <track>{1,2} $t", "E"),
        ("B", "$s <track>{1,2} $t", "ACD"),
        ("G", "$s track $t", ""),
        ("nowhere", "$s track $t", ""),
        ("A", "$t track $s", "D"),
    ],
)
def test_stops_within_reach(transit: Graph, start: str, pattern: str, expected: str) -> None:
    assert sorted(values(transit, f"$s: Stop {{ slug: $k }}  {pattern}", "$t.slug", k=start)) == list(expected)


@pytest.mark.parametrize(
    ("start", "pattern", "expected"),
    [
        ("a", "$x follows $y", ["b"]),
        ("a", "$x $f:follows $y", ["b", "b"]),
        ("a", "$x follows{1,3} $y", ["b", "c", "d"]),
        ("a", "$x follows{2,3} $y", ["c", "d"]),
        ("a", "$x follows{3,3} $y", ["d"]),
        ("a", "$x follows{4,4} $y", []),
        ("d", "$x follows $y", ["d"]),
        ("d", "$x follows{2,2} $y", []),
        ("c", "$x follows{1,5} $y", ["a", "b", "d"]),
        ("a", "$y follows $x", ["c"]),
        ("a", "$x <follows> $y", ["b", "c"]),
        ("b", "$x <follows>{2,2} $y", ["d"]),
    ],
)
def test_followers_within_reach(library: Graph, start: str, pattern: str, expected: list[str]) -> None:
    assert sorted(values(library, f"$x: Reader {{ slug: $k }}  {pattern}", "$y.slug", k=start)) == expected


LOOPS = [("a", "b"), ("b", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d"), ("d", "e"), ("e", "d"), ("f", "f")]
HOPS = [(0, 0), (0, 1), (0, 9), (1, 1), (1, 3), (2, 2), (2, 4), (3, 3), (4, 9)]


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Self loops at, before and behind other nodes; the later half of the edges came after the index."""
    edges = [edge("Follows", a, b) for a, b in LOOPS]
    with Graph.init(tmp_path_factory.mktemp("loops") / "g", READERS) as graph:
        graph.load("\n".join([*(node("Reader", slug) for slug in "abcdefg"), *edges[:4]]), mode="append")
        build_indexes(graph)
        graph.load("\n".join(edges[4:]), mode="append")
        yield graph


def distances(start: str, steps: list[tuple[str, str]]) -> dict[str, int]:
    """The shortest distance of everything that can be walked to, the start by its own self loop only."""
    known, frontier, hop = {start: 0}, {start}, 0
    while frontier:
        hop += 1
        frontier = {b for a, b in steps if a in frontier} - known.keys()
        known |= dict.fromkeys(frontier, hop)
    return known | {start: 1} if (start, start) in steps else {n: d for n, d in known.items() if n != start}


@pytest.mark.parametrize("pattern", ["$x follows{} $y", "$y follows{} $x", "$x <follows>{} $y"])
def test_hops_are_shortest_distances(loops: Graph, pattern: str) -> None:
    back = [(b, a) for a, b in LOOPS]
    steps = back if pattern.startswith("$y") else LOOPS if "<" not in pattern else LOOPS + back
    away = {start: distances(start, steps) for start in "abcdefg"}
    for least, most in HOPS:
        hops = pattern.replace("{}", f"{{{least},{most}}}")
        within = {start: {n for n, d in away[start].items() if least <= d <= most} for start in away}
        if least == 0:
            within = {start: reached | {start} for start, reached in within.items()}
        pairs = sorted((start, end) for start in within for end in within[start])
        assert sorted(values(loops, f"$x: Reader  {hops}", "$x.slug, $y.slug")) == pairs, hops
        counted = [(start, len(found)) for start, found in within.items() if found]
        assert sorted(values(loops, f"$x: Reader  {hops}", "$x.slug, count($y)")) == counted, hops
        # Both ends are bound: the traversal is a test of the same set.
        tested = f"$x: Reader  $y: Reader  $x.slug != $y.slug  {hops}"
        assert sorted(values(loops, tested, "$x.slug, $y.slug")) == [(a, b) for a, b in pairs if a != b], hops
        itself = hops.replace("$y", "$x")
        assert sorted(values(loops, f"$x: Reader  {itself}", "$x.slug")) == [a for a, b in pairs if a == b], hops
        nowhere = [start for start in within if not within[start]]
        assert sorted(values(loops, f"$x: Reader  not {{ {hops} }}", "$x.slug")) == nowhere, hops


def test_a_bound_edge_gives_one_row_per_edge_in_edge_id_order(transit: Graph) -> None:
    found = values(transit, "$s: Stop { slug: $k }  $s $e:track $t", "$t.slug, $e.km", k="A")
    assert found == [("B", 4.0), ("C", 9.5), ("B", 5.5)]


def test_an_undirected_bound_edge_meets_a_self_loop_once(transit: Graph) -> None:
    assert values(transit, "$s: Stop { slug: $k }  $s $e:<track> $t", "$e.km", k="E") == [0.5, None]


def test_a_bound_edge_without_matches_keeps_its_columns(transit: Graph) -> None:
    text = 'query q() { match { $s: Stop { slug: "G" }  $s $e:track $t } return { $e.km as km, $t.slug } }'
    result = transit.query(text)
    assert result.columns == ["km", "t.slug"]
    assert [str(field.type) for field in result.to_arrow().schema] == ["double", "string"]


@pytest.mark.parametrize(
    ("negation", "expected"),
    [
        ("not { $s track $x }", "FG"),
        ("not { $s <track> $x }", "G"),
        ("not { $s track{2,2} $x }", "EFG"),
        ("not { $s track $x  $x.zone = 2 }", "DEFG"),
        ("not { $s track $x  not { $x.zone = 2 } }", "BCFG"),
        ("not { $_ track $s }", "G"),
        ("not { $l: Line  $l serves $s }", "AEFG"),
        ("not { $l serves $s }", "AEFG"),
        ("not { $s.zone > 1 }", "ABG"),
        ("not { $s: Stop { zone: 3 } }", "ABCDG"),
        ("not { $s $e:track $x  $e.km > 5.0 }", "BCEFG"),
    ],
)
def test_negations(transit: Graph, negation: str, expected: str) -> None:
    assert sorted(values(transit, f"$s: Stop  {negation}", "$s.slug")) == list(expected)


def test_a_negation_is_decided_per_pair(library: Graph) -> None:
    found = values(library, '$r: Reader  $b: Book  not { $r borrowed $b }  $r.slug >= "r"', "$r.slug, $b.slug")
    assert sorted(found) == [("r1", "a"), ("r1", "b2"), ("r2", "a"), ("r2", "b1")]


def test_edges_between_two_types_do_not_chain(transit: Graph, library: Graph) -> None:
    for hops in ("{1,3}", "{2,2}", "{1,}"):
        with pytest.raises(CompileError, match="T5"):
            values(transit, f"$l: Line {{ slug: $k }}  $l serves{hops} $t", "$t.slug", k="A")
    assert values(transit, "$l: Line { slug: $k }  $l serves{1,1} $t", "$t.slug", k="A") == ["B"]
    assert sorted(values(library, "$r: Reader  $r borrowed $b", "$r.slug, $b.slug")) == [("r1", "b1"), ("r2", "b2")]


def test_a_reached_variable_can_be_reached_from_the_other_side(transit: Graph) -> None:
    assert values(transit, "$t: Stop { slug: $k }  $l serves $t", "$l.slug", k="D") == ["red"]
    found = values(transit, "$s: Stop { slug: $k }  $s track $t  $l serves $t", "$t.slug, $l.slug", k="A")
    assert sorted(found) == [("B", "A"), ("C", "red")]


def test_cycles_close(library: Graph) -> None:
    triangle = "$x: Reader  $x follows $y  $y follows $z  $z follows $x"
    assert sorted(values(library, triangle, "$x.slug, $y.slug, $z.slug")) == [
        ("a", "b", "c"),
        ("b", "c", "a"),
        ("c", "a", "b"),
        ("d", "d", "d"),
    ]
    assert values(library, "$x: Reader  $x follows $x", "$x.slug") == ["d"]
    assert values(library, "$x: Reader  $x follows{1,3} $x", "$x.slug") == ["d"]


def test_every_closing_traversal_is_tested_by_itself(library: Graph) -> None:
    """Two further traversals end at the same bound variable."""
    match = "$x: Reader { slug: $k }  $x follows $y  $z: Reader  $z follows $y  $x follows{1,2} $y  $y follows{1,2} $z"
    assert values(library, match, "$y.slug, $z.slug", k="c") == [("a", "c"), ("d", "d")]


def test_fan_out_multiplies_and_anonymous_ends_count(library: Graph) -> None:
    assert len(values(library, "$x: Reader { slug: $k }  $x follows $_  $x follows $_", "$x.slug", k="c")) == 4


def test_a_pin_on_a_reached_variable_filters_afterwards(library: Graph) -> None:
    match = '$r: Reader  $r borrowed $b  $b: Book { status: "lost" }'
    assert values(library, match, "$r.slug") == ["r1"]


def test_an_unknown_mode_is_refused(library: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "warp")
    with pytest.raises(BadRequestError, match="indexed, csr or auto"):
        values(library, "$r: Reader", "$r.slug")


NOT_FINITE = {
    "ends": "query q() { match { $a: Stop  $a track{1,HOPS} $b } return { $a.slug as a, $b.slug as b } }",
    "a count": "query q() { match { $a: Stop  $a track{1,HOPS} $b } return { $a.slug as a, count($b) as n } }",
    "closing": "query q() { match { $a: Stop  $b: Stop  $a track{1,HOPS} $b } return { $a.slug as a, $b.slug as b } }",
    "a negation": "query q() { match { $a: Stop  not { $a track{1,HOPS} $b  $b.zone = 2 } } return { $a.slug as a } }",
}


@pytest.mark.parametrize("chosen_by_cost", [False, True])
@pytest.mark.parametrize("kind", NOT_FINITE)
def test_a_search_ends_with_its_frontier_whatever_the_number_of_hops(
    transit: Graph, kind: str, chosen_by_cost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the search nor the estimate of its cost takes time in proportion to the hops that are allowed."""
    if chosen_by_cost:
        PROCESS_TOPOLOGIES.clear()
        monkeypatch.setenv(MODE_VARIABLE, "auto")
    endless = transit.query(NOT_FINITE[kind].replace("HOPS", str(2**63 - 1)))
    assert endless.rows() == transit.query(NOT_FINITE[kind].replace("HOPS", "20")).rows() != []
