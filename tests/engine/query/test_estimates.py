"""Estimated rows: what a person who reads a plan sees of the sizes of tables."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.estimates import estimate_rows
from omnigraph.engine.query.read import explain_query, run_query
from omnigraph.graph import Graph
from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema
from tests.engine.query_graphs import MIXED, mixed_graph
from tests.engine.visibilities import FILTERS, visibility_on

CATALOG = compile_schema(MIXED)
SIZES = {"Person": 1000, "City": 10, "Club": 20, "Band": 5, "Knows": 5000, "Near": 20, "Lives": 1000, "Visits": 2000}

ESTIMATES = [
    ("match { $a: Person }", 1000),
    ('match { $a: Person { slug: "x" } }', 1),
    ("match { $a: Person  $a.age = 3 }", 100),
    ("match { $a: Person  $a.age > 3 and $a.nick is not null }", 270),
    ("match { $a: Person  $a.age = 3 or $a.age > 9 }", 400),
    ("match { $a: Person  not ($a.age = 3) }", 900),
    ("match { $a: (Person | Club) }", 1020),
    ("match { $a: Person  $b: City }", 10_000),
    ("match { $a: Person  $a lives $b }", 1000),
    ("match { $a: Person { slug: $w }  $a knows $b  $b knows $c }", 25),
    ("match { $a: Person { slug: $w }  $a knows{1,2} $b }", 30),
    ("match { $a: Person { slug: $w }  $a knows{2,} $b }", 1000),
    ("match { $a: Person { slug: $w }  $a <knows> $b }", 10),
    ("match { $c: City { slug: $w }  $a lives $c }", 100),
    ("match { $a: Person { slug: $w }  $a (lives | visits) $b }", 3),
    ("match { $a: Person  $a knows $b  $b knows $a }", 25),
    ("match { $a: Person { slug: $w }  path $p: trails $a knows{2,2} $b }", 25),
    ("match { $a: Person  optional { $a knows $b } }", 5000),
    ("match { $a: Person  exists { $a knows $b } }", 1000),
    ("match { $a: Person  not { $a likes $b } }", 1000),
    ("unwind [1, 2, 3] as $i match { $c: City }", 30),
]


@pytest.mark.parametrize(("match", "rows"), ESTIMATES)
def test_the_rows_of_a_match(match: str, rows: int) -> None:
    assert rows_of(f"{match} return {{ 1 as one }}") == rows


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        ("match { $a: Person } return { $a } limit 7", 7),
        ("match { $a: City } return { $a } limit 700", 10),
        ("match { $a: Person } return { count($a) as n }", 1),
        ("match { $a: Person } return { $a.age as age, count($a) as n }", 100),
        ("match { $a: Person } return distinct { $a.age }", 100),
        ("match { $a: City } return { $a.slug as s } union all match { $a: Club } return { $a.slug as s }", 30),
    ],
)
def test_the_rows_of_a_read(read: str, rows: int) -> None:
    assert rows_of(read) == rows


def rows_of(read: str) -> int:
    plan = compile_queries(f"query q($w: String) {{ {read} }}", CATALOG).query("q").read_plan
    estimates = estimate_rows(plan.root, CATALOG, lambda type_: SIZES.get(type_.name, 0))
    assert estimates.keys() == {id(operator) for operator, _ in ir.plan_levels(plan.root)}
    return estimates[id(plan.root)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with mixed_graph(tmp_path_factory.mktemp("estimates") / "g", 1) as made:
        yield made


def test_a_reader_who_does_not_see_all_gets_no_sizes(graph: Graph) -> None:
    text = "query q() { match { $a: Person  $a knows $b } return { $b } }"
    chosen = {"node:Person": FILTERS["node:Person"][0]}
    state = graph.snapshot().restricted_to(visibility_on(graph.catalog, chosen))
    assert all("about" in line for line in explain_query(graph.snapshot(), (text, "q", {})) if "neighbours" not in line)
    assert not any("about" in line for line in explain_query(state, (text, "q", {})))
    rows = run_query(state, ReadPoint("main"), (f"explain {text}", "q", {})).rows()
    assert not any("rows" in json.loads(row["detail"]) for row in rows)
