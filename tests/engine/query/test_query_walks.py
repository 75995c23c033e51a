"""Traversals over several edge types, either way, through several node types and with conditions on hops, as the
language defines them, in each of the two ways of finding neighbours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.read import ReadOptions
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from tests.engine.query_graphs import build_indexes, edge

LIBRARY = """
interface Named { name: String? }
node Author implements Named { id_: String @key  name: String? }
node Reader implements Named { card: String @key  name: String?  age: I32? }
node Book { isbn: String @key  status: String?  age: I32? }
node Shelf { code: String @key }
edge Follows: Reader -> Reader { since: I32? }
edge Likes: Reader -> Reader { since: I32?  much: Bool? }
edge WroteBy: Book -> Author { since: I32? }
edge EditedBy: Book -> Author
edge Borrowed: Reader -> Book { since: I32? }
edge Knows: Author -> Reader
edge Lonely: Shelf -> Shelf
"""
FOLLOWS = [("e1", "a", "b"), ("e2", "b", "c"), ("e3", "c", "a"), ("e4", "c", "d"), ("e5", "d", "d"), ("e6", "a", "b")]


@pytest.fixture(scope="module", params=["indexed", "csr"], autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, request.param)
        yield request.param


def item(type_name: str, **data: Any) -> str:
    return json.dumps({"type": type_name, "data": data})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Half of the edges are covered by an index, half came later."""
    nodes = [item("Reader", card=card, name=card.upper(), age=10 * i) for i, card in enumerate("abcd")]
    nodes += [item("Author", id_=name, name=name) for name in ("lem", "eco", "b1")]
    nodes += [item("Book", isbn="b1", status="lost", age=3), item("Book", isbn="b2", status="lent", age=5)]
    nodes += [item("Shelf", code="s")]
    edges = [edge("Follows", s, t, id=name, since=i + 1) for i, (name, s, t) in enumerate(FOLLOWS)]
    more = [edge("Likes", "a", "b", id="l9", since=7), edge("Likes", "d", "a", id="l1", much=True)]
    more += [edge("WroteBy", "b1", "lem", id="w1"), edge("WroteBy", "b1", "eco", id="w2")]
    more += [edge("EditedBy", "b1", "lem", id="x1"), edge("EditedBy", "b2", "eco", id="x2")]
    more += [edge("Borrowed", "a", "b1", id="o1", since=1), edge("Borrowed", "a", "b1", id="o2", since=2)]
    more += [
        edge("Borrowed", "c", "b2", id="o3"),
        edge("Knows", "lem", "d", id="k1"),
        edge("Knows", "b1", "b", id="k2"),
    ]
    with Graph.init(tmp_path_factory.mktemp("library") / "g", LIBRARY) as graph:
        graph.load("\n".join([*nodes, *edges]), mode="append")
        build_indexes(graph)
        graph.load("\n".join(more), mode="append")
        yield graph


def values(graph: Graph, match: str, returned: str, **options: Any) -> list[Any]:
    """The rows of a query as tuples, or as plain values when there is one column."""
    result = graph.query(f"query q() {{ match {{ {match} }} return {{ {returned} }} }}", **options)
    rows = [tuple(row.values()) for row in result.rows()]
    return [row[0] for row in rows] if len(result.columns) == 1 else rows


DISTANCES = [
    ("a", "{1,3}", "bcd"),
    ("a", "{2,3}", "cd"),
    ("a", "{4,4}", ""),
    ("d", "{1,1}", "d"),
    ("d", "{2,2}", ""),
    ("d", "{0,2}", "d"),
    ("a", "{0,1}", "ab"),
    ("a", "{1,}", "bcd"),
    ("a", "{0,}", "abcd"),
    ("a", "{0,0}", "a"),
    ("c", "{2,}", "b"),
]
# The same hops, as a traversal of one type and as a walk.
FORMS = [
    "$x follows{} $y",
    '$x follows{} $y each $f $_ { $f.@type = "Follows" }',
    "$x (follows | follows){} $y each $_ $n { $n.age >= 0 }",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("start", "hops", "expected"), DISTANCES)
def test_distances(library: Graph, form: str, start: str, hops: str, expected: str) -> None:
    pattern, begin = form.replace("{}", hops), f'$x: Reader {{ card: "{start}" }}'
    assert sorted(values(library, f"{begin}  {pattern}", "$y.card")) == list(expected)
    assert sorted(values(library, f"{begin}  $y: Reader  {pattern}", "$y.card")) == list(expected), "closing"
    counted = values(library, f"{begin}  {pattern}", "count($y) as n")
    assert counted == [len(expected)]
    reached_from = sorted(values(library, f"$y: Reader  {begin}  not {{ {pattern} }}", "$y.card"))
    assert reached_from == sorted(set("abcd") - set(expected)), "a negation"


def test_one_hop_over_any_of_several_types_gives_each_pair_once(library: Graph) -> None:
    assert values(library, '$x: Reader { card: "a" }  $x (follows | likes | follows) $y', "$y.card") == ["b"]
    found = values(library, "$b: Book  $b (wroteBy | editedBy) $w", "$b.isbn, $w.@id")
    assert sorted(found) == [("b1", "eco"), ("b1", "lem"), ("b2", "eco")]


def test_a_bound_selection_gives_one_row_per_edge_by_type_and_id(library: Graph) -> None:
    found = values(
        library, '$x: Reader { card: "a" }  $x $e:(likes | follows) $y', "$e.@type, $e.@id, $e.since, $y.card"
    )
    assert found == [("Follows", "e1", 1, "b"), ("Follows", "e6", 6, "b"), ("Likes", "l9", 7, "b")]
    found = values(
        library, '$x: Reader { card: "d" }  $x $e:(likes | follows) $y', "$e.@id, $e.much?, $e.@src, $e.@dst"
    )
    assert found == [("e5", None, "d", "d"), ("l1", True, "d", "a")]
    walked_back = '$y: Reader { card: "a" }  $x $e:<likes | follows> $y'
    assert values(library, walked_back, "$e.@id, $e.@src, $x.card") == [
        ("e1", "a", "b"),
        ("e3", "c", "c"),
        ("e6", "a", "b"),
        ("l1", "d", "d"),
        ("l9", "a", "b"),
    ]


def test_the_star_takes_every_type_that_fits_the_ends(library: Graph) -> None:
    assert sorted(values(library, "$b: Book  $w: Author  $b * $w", "$b.isbn, $w.@id")) == [
        ("b1", "eco"),
        ("b1", "lem"),
        ("b2", "eco"),
    ]
    assert values(library, "$b: Book  $s: Shelf  $b * $s", "$b.isbn") == []
    assert values(library, "$b: Book  $s: Shelf  $b $e:* $s", "$e, $e.@type") == []
    assert values(library, "$s: Shelf  not { $x: Book  $s * $x }", "$s.code") == ["s"]
    assert values(library, "$b: Book  not { $s: Shelf  $b * $s }", "$b.isbn") == ["b1", "b2"]
    found = values(library, '$x: Reader { card: "a" }  $y: Reader  $x $e:* $y', "$e.@id")
    assert found == ["e1", "e6", "l9"]


def test_hops_of_one_search_may_be_of_different_types(library: Graph) -> None:
    begin = '$x: Reader { card: "d" }'
    assert sorted(values(library, f"{begin}  $x (follows | likes){{1,2}} $y", "$y.card")) == ["a", "b", "d"]
    assert sorted(values(library, f"{begin}  $x (follows | likes){{2,2}} $y", "$y.card")) == ["b"]
    assert sorted(values(library, f"{begin}  $y: Reader  $x *{{3,}} $y", "$y.card")) == ["c"]


def test_either_direction_meets_a_self_loop_once(library: Graph) -> None:
    begin = '$x: Reader { card: "d" }'
    assert sorted(values(library, f"{begin}  $x <follows | likes> $y", "$y.card")) == ["a", "c", "d"]
    assert values(library, f"{begin}  $x $e:<follows | likes> $y", "$e.@id") == ["e4", "e5", "l1"]
    assert sorted(values(library, f"{begin}  $y: Reader  $x <*>{{2,}} $y", "$y.card")) == ["b"]


def test_a_walk_may_pass_through_several_types(library: Graph) -> None:
    """From a reader to the books borrowed, their authors, and the readers those know."""
    found = values(
        library, '$x: Reader { card: "a" }  $y: *  $x (borrowed | wroteBy | knows){1,} $y', "$y.@type, $y.@id"
    )
    assert sorted(found) == [("Author", "eco"), ("Author", "lem"), ("Book", "b1"), ("Reader", "d")]
    to_named = '$x: Reader { card: "a" }  $y: Named  $x (borrowed | wroteBy | knows){1,} $y'
    assert sorted(values(library, to_named, "$y.@id, $y.name")) == [("d", "D"), ("eco", "eco"), ("lem", "lem")]


def test_identity_is_type_and_id(library: Graph) -> None:
    """A book and an author have the id b1; only the author knows a reader."""
    assert values(library, "$x: (Book | Author)  $x (knows | wroteBy) $y  $y: Reader", "$x.@type, $x.@id, $y.card") == [
        ("Author", "lem", "d"),
        ("Author", "b1", "b"),
    ]
    both = '$x: (Book | Author)  $y: (Book | Author)  $x.@id = "b1"  $x *{0,0} $y'
    assert sorted(values(library, both, "$x.@type, $y.@type")) == [("Author", "Author"), ("Book", "Book")]


def test_rows_of_types_that_do_not_fit_have_no_match(library: Graph) -> None:
    found = values(library, "$x: *  $x follows $y", "$x.@type, $x.@id, $y.card")
    assert sorted(found) == sorted(("Reader", s, t) for s, t in {(s, t) for _, s, t in FOLLOWS})
    counted = values(library, "$x: *  not { $x follows $_ }", "$x.@type, count($x) as n")
    assert sorted(counted) == [("Author", 3), ("Book", 2), ("Shelf", 1)]


def test_conditions_on_hops_prune_the_search(library: Graph) -> None:
    begin = '$a: Reader { card: "a" }'
    assert values(library, f'{begin}  $a follows{{1,}} $b each $_ $n {{ $n.card != "c" }}', "$b.card") == ["b"]
    assert sorted(values(library, f'{begin}  $a follows{{1,}} $b  $b.card != "c"', "$b.card")) == ["b", "d"]
    assert sorted(values(library, f"{begin}  $a follows{{1,}} $b each $f $_ {{ $f.since >= 2 }}", "$b.card")) == [
        "b",
        "c",
        "d",
    ]
    assert values(library, f"{begin}  $a follows{{1,}} $b each $f $_ {{ $f.since >= 3 }}", "$b.card") == ["b"]


def test_the_start_is_not_tested(library: Graph) -> None:
    tested = '$a: Reader { card: "a" }  $a follows{0,1} $b each $_ $n { $n.card != "a" }'
    assert sorted(values(library, tested, "$b.card")) == ["a", "b"]
    back = '$c: Reader { card: "c" }  $c follows{1,} $b each $_ $n { $n.card != "c" }'
    assert sorted(values(library, back, "$b.card")) == ["a", "b", "d"]


def test_conditions_may_depend_on_the_row(library: Graph) -> None:
    """Each reader follows only those who are older, or follows edges beyond an own number."""
    older = "$a: Reader  $a follows{1,} $b each $_ $n { $n.age > $a.age }"
    assert sorted(values(library, older, "$a.card, $b.card")) == [
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
        ("c", "d"),
    ]
    for_each = 'query q($least: [I64]) { unwind $least as $n  match { $a: Reader { card: "a" } '
    for_each += "$a follows{1,} $b each $f $_ { $f.since >= $n } } return { $n as n, $b.card as b } }"
    rows = library.query(for_each, params={"least": [3, 1, 6, 7]}).rows()
    assert sorted((row["n"], row["b"]) for row in rows) == [(1, "b"), (1, "c"), (1, "d"), (3, "b"), (6, "b")]


def test_several_conditions_and_several_edge_types(library: Graph) -> None:
    begin, late = '$a: Reader { card: "d" }', "$e.since is null or $e.since < 3"
    walk = f"{begin}  $a (follows | likes){{1,}} $b each $e $n {{ {late}  $n.age < 25 }}"
    assert sorted(values(library, walk, "$b.card")) == ["a", "b", "c"]


def test_a_null_start_has_no_match(library: Graph) -> None:
    """A filter outside would drop the row; a later `optional` keeps it."""
    maybe = '$a: Reader  optional { $a borrowed $k  $k.status = "lost" }'
    assert values(library, f"{maybe}  $k (wroteBy | editedBy) $w", "$a.card, $w.@id") == [("a", "lem"), ("a", "eco")]
    assert values(library, f"{maybe}  $k wroteBy $w", "$a.card, $w.@id") == [("a", "lem"), ("a", "eco")]
    kept = values(library, f"{maybe}  optional {{ $k (wroteBy | editedBy) $w }}", "$a.card, $w.@id")
    assert sorted(kept, key=str) == [("a", "eco"), ("a", "lem"), ("b", None), ("c", None), ("d", None)]


def test_work_is_limited_and_summed_over_a_query(library: Graph) -> None:
    text = "$a: Reader  $a follows{1,} $b  $b (follows | likes) $c"
    whole = values(library, text, "$a.card, $b.card, $c.card")
    enough = ReadOptions(traversal_work=60)
    assert values(library, text, "$a.card, $b.card, $c.card", options=enough) == whole
    for limit in (0, 5, 20):
        with pytest.raises(ResourceLimitError, match="traversal_work") as refused:
            values(library, text, "$a.card, $b.card, $c.card", options=ReadOptions(traversal_work=limit))
        assert (refused.value.resource, refused.value.limit) == ("traversal_work", limit)
