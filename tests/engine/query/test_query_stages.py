"""Stages: each row of one feeds the next; columns become variables, `unwind` makes rows of lists, and limits cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.query.result import OperatorProfile
from omnigraph.errors import BadRequestError, EvaluationError, ResourceLimitError
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, library_graph, node

ITEMS = 20_000


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A ring of items, each with a text of its own."""
    schema = "node Item { slug: String @key  n: I32  text: String }\nedge Next: Item -> Item"
    lines = [node("Item", f"i{i:05d}", n=i, text=f"{i}" * 20) for i in range(ITEMS)]
    lines += [edge("Next", f"i{i:05d}", f"i{(i + 1) % ITEMS:05d}") for i in range(ITEMS)]
    with Graph.init(tmp_path_factory.mktemp("many") / "g", schema) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def tuples(graph: Graph, body: str, declared: str = "", **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(f"query q({declared}) {{ {body} }}", params=params).rows()]


def column(graph: Graph, body: str, declared: str = "", **params: Any) -> list[Any]:
    return [row[0] for row in tuples(graph, body, declared, **params)]


def entries(profile: OperatorProfile) -> Iterator[OperatorProfile]:
    yield profile
    for below in profile.inputs:
        yield from entries(below)


def rows_of(graph: Graph, body: str) -> dict[str, int]:
    """How many rows each kind of operator made."""
    profile = graph.query(f"query q() {{ {body} }}", options=ReadOptions(profile=True)).profile
    return {entry.operator.split()[0]: entry.rows for entry in entries(profile)}


# ---- from stage to stage --------------------------------------------------------------------------------


def test_entities_stay_entities_and_everything_else_is_a_value(graph: Graph) -> None:
    body = """match { $r: Reader  $r borrowed $b } return { $r, count($b) as loans } order { loans desc } limit $n
        then match { $loans > 1  $r follows $f } return { $r.name as reader, $loans as loans, $f.slug as f }"""
    assert tuples(graph, body, "$n: I64", n=5) == [("Rita", 2, "r2")]
    assert tuples(graph, body, "$n: I64", n=0) == []


def test_a_filter_after_an_aggregate_is_having(graph: Graph) -> None:
    body = "match { $b: Book  $b wroteBy $a } return { $a, count($b) as n } then match { $n > 1 } return { $a.name }"
    assert column(graph, body) == ["Ann"]


def test_aggregates_of_aggregates(graph: Graph) -> None:
    body = (
        "match { $r: Reader  $r borrowed $b } return { $r, count($b) as n } then return { sum($n) as s, max($n) as m }"
    )
    assert tuples(graph, body) == [(3, 2)]
    body = "match { $r: Reader  $r $l:borrowed $b } return { $b, sum($l.days) / count(*) as mean } order { mean desc } "
    assert tuples(graph, body + "then return { $b.slug as b, $mean as m }") == [("b2", 3), ("b1", 1)]


def test_a_name_may_come_again_with_another_type(graph: Graph) -> None:
    body = "match { $r: Reader } return { $r.name as x } order { x } then return { size($x) as x } "
    body += 'then return { to_string($x) as x } then return { $x + "!" as x }'
    assert column(graph, body) == ["3!", "4!", "3!"]


def test_the_first_stage_has_one_empty_row(graph: Graph) -> None:
    assert tuples(graph, "return { 1 + 1 as two }") == [(2,)]
    assert tuples(graph, "return { 1 + 1 as two } then return { $two * 2 as four }") == [(4,)]
    assert tuples(graph, "return { count(*) as n }") == [(1,)]
    assert tuples(graph, 'match { $b: Book { slug: "no" } } return { count(*) as n, collect($b.slug) as l }') == [
        (0, [])
    ]


def test_rows_of_an_ordered_stage_keep_their_order(graph: Graph) -> None:
    ordered = "match { $b: Book } return { $b } order { $b.title } "
    assert column(graph, ordered + "then return { $b.slug as s }") == ["b1", "b3", "b2"]
    assert column(graph, ordered + "then match { $b wroteBy $a } return { $a.slug as s }") == ["ann", "ann", "bob"]
    assert column(graph, ordered + "then return { collect($b.slug) as l }") == [["b1", "b3", "b2"]]
    grouped = "then match { $b wroteBy $a } return { $a.slug as a, collect($b.title) as t }"
    assert tuples(graph, ordered + grouped) == [("ann", ["One", "Three"]), ("bob", ["Two"])]
    unwound = "then unwind $b.tags as $t return { $b.slug as b, $t as t }"
    assert tuples(graph, ordered + unwound) == [("b1", "x"), ("b1", "y")]


def test_only_the_best_of_a_stage_go_on(graph: Graph) -> None:
    body = "match { $b: Book } return { $b } order { nearest($b.vec, [0.0, 1.0]) } limit 1 "
    assert column(graph, body + "then match { $b wroteBy $a } return { $a.slug }") == ["ann"]
    imported = "match { $r: Reader  $r borrowed $b } return distinct { $b } "
    imported += "then return { $b.slug as b } order { nearest($b.vec, [1.0, 1.0]) } limit 3"
    assert column(graph, imported) == ["b1"], "what has no vector has no rank"


def test_scores_pass_through_stages_as_values(graph: Graph) -> None:
    body = "match { $b: Book } return { $b, nearest($b.vec, [0.0, 1.0]) as d } order { nearest($b.vec, [0.0, 1.0]) } "
    body += "limit 2 then return { $b.slug as b, $d * 2 as d }"
    assert [row[0] for row in tuples(graph, body)] == ["b1", "b3"]
    assert tuples(graph, body)[0][1] == 0.0


# ---- unwind ---------------------------------------------------------------------------------------------


def test_unwind_gives_a_row_per_item_in_order(graph: Graph) -> None:
    assert column(graph, "unwind [3, null, 1, 3] as $i return { $i }") == [3, None, 1, 3]
    assert column(graph, "unwind $l as $i return { $i }", "$l: [String]?", l=["b", "a"]) == ["b", "a"]
    assert column(graph, "unwind $l as $i return { $i }", "$l: [String]?", l=[]) == []
    assert column(graph, "unwind $l as $i return { $i }", "$l: [String]?") == []
    assert tuples(graph, "unwind [1, 2] as $i unwind [10, 20] as $j return { $i + $j as s }") == [
        (11,),
        (21,),
        (12,),
        (22,),
    ]


def test_items_that_are_only_counted_cost_nothing(graph: Graph) -> None:
    unwinds = " ".join(f"unwind range(1, 1000) as $x{i}" for i in range(6))
    assert tuples(graph, f"{unwinds} return {{ count(*) as n }}") == [(10**18,)]
    grouped = "match { $b: Book } unwind range(1, 3) as $i unwind $b.tags as $t return { $i as i, count(*) as n }"
    body = grouped.replace("match { $b: Book } ", "match { $b: Book } return { $b } then ")
    assert sorted(tuples(graph, body)) == [(1, 2), (2, 2), (3, 2)]
    with pytest.raises(ResourceLimitError):
        tuples(graph, f"{unwinds} return {{ count($x0 + $x1 + $x2 + $x3) as n }}")


def test_a_list_compares_with_the_lists_of_no_rows(graph: Graph) -> None:
    body = 'match { $r: Reader { slug: "none" } } return { $r.slug as s, [1, 2] = [$r.age, 2] as e }'
    assert tuples(graph, body) == []
    assert tuples(graph, 'match { $b: Book { slug: "b9" }  $b.tags = ["x"] or $b.pages > 1 } return { $b.slug }') == []


def test_unwind_of_collected_entities_gives_entities(graph: Graph) -> None:
    body = "match { $b: Book  $b wroteBy $a } return { $a, collect($b) as books } order { $a } "
    body += "then unwind $books as $b match { $r borrowed $b } return { $a.name as a, $b.title as t, $r.slug as r }"
    assert sorted(tuples(graph, body)) == [("Ann", "One", "r1"), ("Bob", "Two", "r1"), ("Bob", "Two", "r2")]


def test_unwound_values_stand_in_pins(graph: Graph) -> None:
    body = "unwind $keys as $k match { $b: Book { slug: $k } } return { $k, $b.title as t }"
    assert tuples(graph, body, "$keys: [String]", keys=["b3", "zz", "b1", "b3"]) == [
        ("b3", "Three"),
        ("b1", "One"),
        ("b3", "Three"),
    ]


def test_few_keys_are_looked_up_and_many_are_joined(many: Graph) -> None:
    """As many pairs as there are keys and items would take minutes and gigabytes."""
    body = "unwind $keys as $k match { $i: Item { slug: $k } } return { sum($i.n) as s }"
    options = ReadOptions(memory_bytes=48 << 20, profile=True)
    for keys in ([f"i{i:05d}" for i in range(100)], [f"i{i:05d}" for i in range(10_000)]):
        text = f"query q($keys: [String]) {{ {body} }}"
        assert many.query(text, params={"keys": keys}, options=options).rows() == [{"s": sum(range(len(keys)))}]


def test_equal_values_meet_across_types_and_null_meets_nothing(graph: Graph) -> None:
    body = "unwind [100.0, 300.5, null] as $p match { $b: Book  $b.pages = $p } return { $b.slug as b }"
    assert column(graph, body) == ["b1"]
    body = "match { $r: Reader  $s: Reader  $r.age = $s.age } return { $r.slug as r, $s.slug as s } order { r }"
    assert tuples(graph, body) == [("r1", "r1"), ("r3", "r3")]
    body = "match { $b: Book } return { $b as x } then match { $b: Book  $b = $x } return { count(*) as n }"
    assert column(graph, body) == [3]


# ---- limit, offset, distinct ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["limit $n offset $m", "offset $m limit $n"])
def test_limit_and_offset_are_parameters(graph: Graph, order: str) -> None:
    body = f"unwind [1, 2, 3, 4, 5] as $i return {{ $i }} {order}"
    declared = "$n: I64, $m: I32"
    assert column(graph, body, declared, n=2, m=1) == [2, 3]
    assert column(graph, body, declared, n=9, m=3) == [4, 5]
    assert column(graph, body, declared, n=9, m=9) == []
    assert column(graph, body, declared, n=0, m=0) == []
    with pytest.raises(BadRequestError, match="at least 0"):
        tuples(graph, body, declared, n=-1, m=0)
    with pytest.raises(BadRequestError, match="at least 0"):
        tuples(graph, body, declared, n=1, m=-2)


def test_offset_skips_after_ordering(graph: Graph) -> None:
    body = "match { $r: Reader } return { $r.slug as r } order { r desc } "
    assert column(graph, body + "offset 1") == ["r2", "r1"]
    assert column(graph, body + "offset 1 limit 1") == ["r2"]
    nearest = "match { $b: Book } return { $b.slug as b } order { nearest($b.vec, [0.0, 1.0]) } limit 1 offset 1"
    assert column(graph, nearest) == ["b3"]
    grouped = "match { $b: Book  $b wroteBy $a } return { $a.slug as a, count($b) as n } order { n } limit 1 offset 1"
    assert tuples(graph, grouped) == [("ann", 2)]


def test_distinct_keeps_first_appearances(graph: Graph) -> None:
    body = "unwind [3, null, 3, null, 1] as $i return distinct { $i }"
    assert column(graph, body) == [3, None, 1]
    assert column(graph, body + " order { i desc } limit 2") == [3, 1]
    assert column(graph, "match { $r: Reader  $r follows $_ } return distinct { $r.adult as a } order { a }") == [
        None,
        False,
        True,
    ]
    lists = "unwind [[1, 2], [2, 1], [1, 2]] as $l return distinct { $l }"
    assert column(graph, lists) == [[1, 2], [2, 1]]
    nodes = "match { $b: Book  $b wroteBy $a } return distinct { $a } then return { count(*) as n }"
    assert column(graph, nodes) == [2]
    zeros = "unwind [0.0, -0.0, 0.0 / 0.0, 0.0 / 0.0] as $x return distinct { $x } then return { count(*) as n }"
    assert column(graph, zeros) == [2]


def test_the_best_nodes_of_a_stage_may_be_made_distinct(graph: Graph) -> None:
    ranked = "match { $b: Book } return { $b } order { nearest($b.vec, [0.0, 1.0]) } limit 2"
    query = (
        f"query q() {{ {ranked} then unwind [1, 1] as $i return distinct {{ $b, $i }} then return {{ $b.slug as s }} }}"
    )
    assert [row["s"] for row in graph.query(query)] == ["b1", "b3"]


def test_a_number_that_no_row_has_is_not_widened(tmp_path: Path) -> None:
    """18446744073709551615 is not an I64, which `case` makes of I64 and U64."""
    with Graph.init(tmp_path / "g", "node N { slug: String @key  large: U64? }") as graph:
        graph.load("\n".join([node("N", "a", large=2**64 - 1), node("N", "b", large=1)]), mode="append")
        value = 'case when $n.slug = "b" then $n.large else 0 end'
        query = f"query q() {{ match {{ $n: N }} return {{ {value} as x, $n.slug as s }} order {{ s }} }}"
        assert [row["x"] for row in graph.query(query)] == [0, 1]
        with pytest.raises(EvaluationError, match="not in range"):
            graph.query(query.replace('"b"', '"a"'))


def test_nulls_come_where_they_are_asked_for(graph: Graph) -> None:
    body = "match { $r: Reader } return { $r.slug as r } order { $r.age "
    assert column(graph, body + "}") == ["r2", "r3", "r1"]
    assert column(graph, body + "desc }") == ["r1", "r3", "r2"]
    assert column(graph, body + "nulls last }") == ["r3", "r1", "r2"]
    assert column(graph, body + "desc nulls first }") == ["r2", "r1", "r3"]
    assert column(graph, body + "desc nulls first } limit 2") == ["r2", "r1"]


def test_an_order_may_be_any_expression(graph: Graph) -> None:
    assert column(graph, "unwind [3, -5, 1] as $i return { $i } order { abs($i) desc }") == [-5, 3, 1]
    assert column(graph, "match { $b: Book } return { $b.slug as s } order { $b.pages is null, 0 - $b.pages }") == [
        "b3",
        "b1",
        "b2",
    ]
    nans = "unwind [1.0, 0.0 / 0.0, null, -1.0 / 0.0] as $x return { $x } order { x } limit 3"
    assert column(graph, nans) == [None, "-Infinity", 1.0]


# ---- streaming ------------------------------------------------------------------------------------------


def test_a_limit_ends_the_stages_below_early(many: Graph) -> None:
    body = 'match { $i: Item } return { $i, lower($i.text) as t } then match { $t != ""  $i next $j } '
    made = rows_of(many, body + "return { $j.slug as j } limit 3")
    assert (made["Scan"], made["Bind"], made["Expand"]) == (ITEMS, 4_096, 4_096)
    made = rows_of(many, "unwind range(1, 100000) as $n match { $i: Item { n: $n } } return { $i.slug as s } limit 3")
    assert made["Limit"] == 3


def test_a_limit_in_the_middle_and_one_on_top(many: Graph) -> None:
    body = "match { $i: Item } return { $i } limit 10 then match { $i next $j } return { $j.n as n } limit 3"
    assert len(column(many, body)) == 3
    assert rows_of(many, body)["Expand"] <= 10


def test_what_a_piece_binds_is_forgotten_with_it(many: Graph) -> None:
    """The texts of all rows together are larger than the memory of the query."""
    body = "match { $i: Item  $j: Item  $j.n < 100 } return { $i.text + $j.text as t } then return { upper($t) as t }"
    options = ReadOptions(memory_bytes=48 << 20)
    batches = many.stream(f"query q() {{ {body} }}", options=options)
    rows = size = 0
    for batch in batches:
        rows, size = rows + len(batch), size + batch.nbytes
        if size > 100 << 20:
            break
    assert rows > 500_000


def test_a_list_is_bound_once_however_many_rows_share_it(many: Graph) -> None:
    body = (
        "match { $i: Item  $i.n < 2000 } return { $i, range(1, 1000) as l } then unwind $l as $x return { $x } limit 5"
    )
    assert column(many, body) == [1, 2, 3, 4, 5]
    body = "match { $i: Item } return { collect($i.n) as l } "
    body += "then unwind $l as $a unwind $l as $b return { sum($a * $b) as n }"
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        tuples(many, body)


def test_a_long_chain_of_stages_needs_no_deep_stack(graph: Graph) -> None:
    stage = " then match { $x >= 0 } return { $x + 1 as x } order { x } limit 5"
    assert column(graph, "return { 0 as x }" + stage * 150) == [150]
    plain = " then return { $x + 1 as x }"
    assert column(graph, "return { 0 as x }" + plain * 150) == [150]
    distinct = " then unwind [1, 1] as $i return distinct { $x + $i as x }"
    assert column(graph, "return { 0 as x }" + distinct * 80) == [80]
    grouped = " then unwind [1, 1] as $i return { sum($i) + max($x) as x }"
    assert column(graph, "return { 0 as x }" + grouped * 80) == [160]
