"""Aggregates: what each of them is over values, over nothing, over nulls, over distinct values and within groups."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.errors import EvaluationError
from omnigraph.graph import Graph
from tests.engine.query_graphs import library_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library_graph(tmp_path_factory.mktemp("library") / "g") as made:
        yield made


def tuples(graph: Graph, body: str, declared: str = "", **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(f"query q({declared}) {{ {body} }}", params=params).rows()]


def aggregated(graph: Graph, call: str, values: list[Any], type_: str = "I64") -> Any:
    """An aggregate of `$v` over some values."""
    declared = f"$values: [{type_}]"
    ((value,),) = tuples(graph, f"unwind $values as $v return {{ {call} as x }}", declared, values=values)
    return value


@pytest.mark.parametrize(
    ("call", "over_values", "over_nothing"),
    [
        ("count(*)", 6, 0),
        ("count($v)", 5, 0),
        ("count(distinct $v)", 4, 0),
        ("sum($v)", 19, None),
        ("sum(distinct $v)", 17, None),
        ("avg($v)", 3.8, None),
        ("avg(distinct $v)", 4.25, None),
        ("min($v)", 1, None),
        ("max($v)", 10, None),
        ("collect($v)", [2, 4, 1, 10, 2], []),
        ("collect(distinct $v)", [2, 4, 1, 10], []),
        ("stdevp($v)", math.sqrt(10.56), None),
        ("stdev($v)", math.sqrt(13.2), None),
        ("percentile_cont($v, 0.5)", 2.0, None),
        ("percentile_cont($v, 0.6)", 2.8, None),
        ("percentile_disc($v, 0.5)", 2, None),
        ("percentile_disc($v, 0.8)", 4, None),
        ("percentile_disc($v, 0)", 1, None),
        ("percentile_disc($v, 1.0)", 10, None),
    ],
)
def test_each_aggregate_skips_nulls(graph: Graph, call: str, over_values: Any, over_nothing: Any) -> None:
    values = "unwind [2, 4, 1, null, 10, 2] as $v "
    ((value,),) = tuples(graph, f"{values} return {{ {call} as x }}")
    assert value == (pytest.approx(over_values) if isinstance(over_values, float) else over_values)
    assert tuples(graph, f"{values} match {{ $v > 99 }} return {{ {call} as x }}") == [(over_nothing,)]
    nulls = f"unwind [null, 1, null] as $v match {{ $v is null }} return {{ {call} as x, 1 as one }}"
    assert tuples(graph, nulls) == [(2 if call == "count(*)" else over_nothing, 1)]


@pytest.mark.parametrize(
    ("type_", "values", "least", "greatest"),
    [
        ("String", ["b", "a", "é", "B"], "B", "é"),
        ("Bool", [True, False], False, True),
        ("Date", ["2024-01-02", "1969-12-31"], "1969-12-31", "2024-01-02"),
        (
            "DateTime",
            ["2024-01-02T00:00:00Z", "2020-01-01T00:00:01Z"],
            "2020-01-01T00:00:01.000Z",
            "2024-01-02T00:00:00.000Z",
        ),
        ("F64", [1.5, -2.0], -2.0, 1.5),
        ("U64", [2**64 - 1, 1], 1, 2**64 - 1),
    ],
)
def test_extremes_of_everything_that_has_an_order(
    graph: Graph, type_: str, values: list[Any], least: Any, greatest: Any
) -> None:
    assert aggregated(graph, "min($v)", values, type_) == least
    assert aggregated(graph, "max($v)", values, type_) == greatest


def test_extremes_of_an_enum_and_of_a_flag_in_groups(graph: Graph) -> None:
    body = (
        "match { $b: Book  $b wroteBy $a } return { $a.slug as a, min($b.status) as s, max($b.title) as t } order { a }"
    )
    assert tuples(graph, body) == [("ann", "lost", "Three"), ("bob", "lent", "Two")]
    assert tuples(graph, "match { $r: Reader } return { min($r.adult) as least, max($r.adult) as most }") == [
        (False, True)
    ]


def test_a_sum_of_integers_is_exact_or_refused(graph: Graph) -> None:
    assert aggregated(graph, "sum($v)", [2**62, 2**62 - 1, -(2**62), 1]) == 2**62
    assert aggregated(graph, "avg($v)", [2**63 - 1, 2**63 - 3]) == float(2**63 - 2)
    with pytest.raises(EvaluationError, match="64 bits") as raised:
        aggregated(graph, "sum($v)", [2**62, 2**62])
    assert raised.value.rule == "arithmetic_overflow"


@pytest.mark.parametrize("call", ["sum", "avg", "min", "max", "stdev", "stdevp", "count"])
def test_nothing_but_null_has_no_aggregate(graph: Graph, call: str) -> None:
    over_nothing = 0 if call == "count" else None
    assert tuples(graph, f"match {{ $r: Reader }} return {{ {call}(last([])) as x }}") == [(over_nothing,)]


def test_values_that_are_equal_count_once(graph: Graph) -> None:
    assert aggregated(graph, "count(distinct $v)", [0.0, -0.0, 1.0, 1.0], "F64") == 2
    ((count,),) = tuples(graph, "unwind [0.0 / 0.0, 0.0 / 0.0, 1.0] as $v return { count(distinct $v) as n }")
    assert count == 2
    ((count,),) = tuples(graph, "unwind [[1, 2], [1, 2], [2]] as $v return { count(distinct $v) as n }")
    assert count == 2
    body = "match { $r: Reader  $r borrowed $b } return { count($b) as all, count(distinct $b) as books, "
    assert tuples(graph, body + "collect(distinct $b.slug) as l }") == [(3, 2, ["b1", "b2"])]
    body = "match { $r: Reader  $r $l:borrowed $b } return { $b.slug as b, sum(distinct $r.age) as s } order { b }"
    assert tuples(graph, body) == [("b1", 30), ("b2", 30)]


def test_groups_may_be_of_any_kind(graph: Graph) -> None:
    body = "match { $r: Reader  $r borrowed $b } return { $b, count(*) as n } order { n desc, $b }"
    assert [(row["b"]["title"], row["n"]) for row in graph.query(f"query q() {{ {body} }}").rows()] == [
        ("Two", 2),
        ("One", 1),
    ]
    body = "match { $b: Book } return { [$b.title, $b.status] as key, count(*) as n } order { n }"
    assert len(tuples(graph, body)) == 3
    body = "match { $r: Reader } return { record(adult: $r.adult, known: $r.age is not null) as key, count(*) as n }"
    keys = [
        (row["key"]["adult"], row["key"]["known"], row["n"]) for row in graph.query(f"query q() {{ {body} }}").rows()
    ]
    assert keys == [(True, True, 1), (False, False, 1), (None, True, 1)]
    body = "match { $r: Reader  $r borrowed $b } "
    body += "return { $r.age > 20 as old, exists { $r follows $_ } as f, count(*) as n }"
    assert tuples(graph, body) == [(True, True, 2), (None, True, 1)]


def test_an_expression_may_contain_aggregates_and_keys(graph: Graph) -> None:
    body = "match { $r: Reader  $r $l:borrowed $b } return { $r.slug as r, "
    body += "sum($l.days) * 10 + count(*) as x, $r.slug + to_string(max($l.days)) as y } order { r }"
    assert tuples(graph, body) == [("r1", 32, "r12"), ("r2", 51, "r25")]


def test_collected_values_keep_the_order_of_an_earlier_stage(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "match { $r: Reader } return { $r } order { $r.slug desc } "
    body += "then match { $r follows $f } return { collect($f.slug) as l }"
    for mode in ("csr", "indexed"):
        monkeypatch.setenv(MODE_VARIABLE, mode)
        assert tuples(graph, body) == [(["r1", "r3", "r2"],)]


def test_collected_lists_are_lists_of_objects_lists_and_records(graph: Graph) -> None:
    body = "match { $r: Reader  $r $l:borrowed $b } return { $r.slug as r, collect($l) as l, collect([$b.slug]) as s, "
    body += "collect(record(b: $b, days: $l.days)) as q } order { r }"
    rows = graph.query(f"query q() {{ {body} }}").rows()
    assert [edge["@id"] for edge in rows[0]["l"]] == ["l1", "l2"]
    assert rows[0]["s"] == [["b1"], ["b2"]]
    assert [(each["b"]["title"], each["days"]) for each in rows[0]["q"]] == [("One", 1), ("Two", 2)]


@pytest.mark.parametrize("fraction", [-0.1, 1.5, math.nan])
def test_a_fraction_outside_of_its_range_is_refused(graph: Graph, fraction: float) -> None:
    body = "unwind [1, 2] as $v return { percentile_cont($v, $p) as x }"
    if math.isnan(fraction):
        with pytest.raises(Exception, match="p"):
            tuples(graph, body, "$p: F64", p=fraction)
        return
    with pytest.raises(EvaluationError, match="between 0 and 1") as refused:
        tuples(graph, body, "$p: F64", p=fraction)
    assert refused.value.rule == "bad_argument"


@pytest.mark.parametrize("seed", range(5))
def test_statistics_agree_with_those_of_python(graph: Graph, seed: int) -> None:
    chance = random.Random(seed)
    values = [
        chance.choice((chance.randint(-50, 50), chance.uniform(-5, 5))) * 1.0 for _ in range(chance.randint(2, 60))
    ]
    fraction = chance.choice((0.0, 0.07, 0.25, 0.5, 0.9, 1.0))
    ordered = sorted(values)
    place = Fraction(str(fraction)) * (len(values) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    share = max(1, math.ceil(Fraction(str(fraction)) * len(values)))
    assert aggregated(graph, "stdev($v)", values, "F64") == pytest.approx(statistics.stdev(values))
    assert aggregated(graph, "stdevp($v)", values, "F64") == pytest.approx(statistics.pstdev(values))
    continuous = low + (high - low) * float(place - math.floor(place))
    assert aggregated(graph, f"percentile_cont($v, {fraction})", values, "F64") == pytest.approx(continuous)
    assert aggregated(graph, f"percentile_disc($v, {fraction})", values, "F64") == ordered[share - 1]


def test_one_value_has_no_deviation(graph: Graph) -> None:
    assert aggregated(graph, "stdev($v)", [7]) == 0.0
    assert aggregated(graph, "stdevp($v)", [7]) == 0.0


def test_weighted_rows_count_as_many(graph: Graph) -> None:
    """Rows that nobody looks at are not made; every aggregate counts them all the same."""
    body = "match { $r: Reader  $s: Reader  $t: Reader  $r $l:borrowed $b } return { "
    body += "count(*) as n, sum($l.days) as s, stdevp($l.days) as d, percentile_disc($l.days, 0.6) as p, "
    body += "percentile_cont($l.days, 0.5) as q, count(distinct $l.days) as k, collect(distinct $l.days) as c }"
    days = [1, 2, 5] * 9
    ((count, total, deviation, disc, cont, kinds, collected),) = tuples(graph, body)
    assert (count, total, disc, cont, kinds, sorted(collected)) == (27, sum(days), 2, 2.0, 3, [1, 2, 5])
    assert deviation == pytest.approx(statistics.pstdev(days))
    ((collected,),) = tuples(
        graph, "match { $r: Reader  $s: Reader  $r $l:borrowed $b } return { collect($l.days) as c }"
    )
    assert sorted(collected) == [1, 1, 1, 2, 2, 2, 5, 5, 5]
