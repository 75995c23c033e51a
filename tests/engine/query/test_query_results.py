"""Projection, grouping, order, limits and the shapes of a result."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.api import wire
from omnigraph.api.enums import Integers
from omnigraph.api.values import render_column
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.projection import codes_of, first_in_order
from omnigraph.engine.query.properties import Located
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.graph import Graph
from omnigraph.language.types import Scalar
from omnigraph.language.values import parse_date
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Book {
  slug: String @key
  pages: I32?
  price: F64?
  tags: [String]?
  shelf: enum(high, low)?
  on: Date?
  at: DateTime?
  large: I64?
  narrow: F32?
  vec: Vector(2)?
}
node Author { slug: String @key  name: String }
edge WroteBy: Book -> Author
"""
BOOKS: list[dict[str, Any]] = [
    {"slug": "a", "pages": 10, "price": 2.5, "tags": ["x", "y"], "shelf": "high", "on": "2024-05-01", "large": 2**53},
    {"slug": "b", "pages": None, "price": 1.0, "tags": [], "shelf": "low", "at": "2024-05-01T10:00:00.120Z"},
    {"slug": "c", "pages": 10, "price": None, "shelf": "low", "narrow": 0.1, "vec": [1.0, 0.5]},
    {"slug": "d", "pages": 30, "price": 4.0, "tags": ["y"], "shelf": None, "large": -(2**53)},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    lines = [json.dumps({"type": "Book", "data": book}) for book in BOOKS]
    lines += [node("Author", "z", name="Zoe"), node("Author", "y", name="Yan")]
    lines += [edge("WroteBy", b, a) for b, a in (("a", "z"), ("b", "z"), ("c", "y"))]
    with Graph.init(tmp_path_factory.mktemp("books") / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def rows(graph: Graph, body: str, **params: Any) -> list[dict[str, Any]]:
    return graph.query(f"query q() {{ match {{ $b: Book }} {body} }}", params=params).rows()


def column(graph: Graph, body: str) -> list[Any]:
    return [next(iter(row.values())) for row in rows(graph, body)]


# ---- projection -----------------------------------------------------------------------------------------


def test_columns_are_named_as_specified(graph: Graph) -> None:
    text = 'query q($q: String) { match { $b: Book } return { $b.slug, $b, $q, "x", now(), $b.pages as n } limit 1 }'
    result = graph.query(text, params={"q": "v"})
    assert result.columns == ["b.slug", "b", "q", "literal", "__nanograph_now", "n"]
    slug, book, *others = list(result.rows()[0].values())[:4]
    assert [slug, book["@id"], *others] == ["a", "a", "v", "x"]


def test_two_columns_with_one_name_are_refused_where_the_second_is(graph: Graph) -> None:
    with pytest.raises(CompileError) as raised:
        graph.query('query q() { match { $b: Book { slug: "a" } } return { $b.slug as x, $b.pages as x } }')
    (finding,) = raised.value.diagnostics
    assert (finding.code, finding.span and finding.span.column) == ("T25", 69)
    assert finding.suggestion == "give one of them another name: `as x_2`"


def test_values_render_as_specified(graph: Graph) -> None:
    found = {
        r["s"]: r
        for r in rows(
            graph,
            "return { $b.slug as s, $b.on as on, $b.at as at, $b.tags as tags, "
            "$b.vec as vec, $b.narrow as f, $b.large as n }",
        )
    }
    assert found["a"] == {
        "s": "a",
        "on": "2024-05-01",
        "at": None,
        "tags": ["x", "y"],
        "vec": None,
        "f": None,
        "n": 2**53,
    }
    assert found["b"]["at"] == "2024-05-01T10:00:00.120Z"
    assert found["b"]["tags"] == []
    assert (found["c"]["vec"], found["c"]["f"], found["c"]["tags"]) == ([1.0, 0.5], 0.10000000149011612, None)


@pytest.mark.parametrize(
    ("value", "type_", "native", "js_safe"),
    [
        (2**53 - 1, Scalar.I64, 2**53 - 1, 2**53 - 1),
        (2**53, Scalar.I64, 2**53, "9007199254740992"),
        (-(2**53), Scalar.I64, -(2**53), "-9007199254740992"),
        (2**64 - 1, Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (7, Scalar.U32, 7, 7),
        (float("nan"), Scalar.F64, "NaN", "NaN"),
        (float("-inf"), Scalar.F64, "-Infinity", "-Infinity"),
        (None, Scalar.I64, None, None),
    ],
)
def test_numbers_in_both_renderings(value: Any, type_: Scalar, native: Any, js_safe: Any) -> None:
    kinds = {Scalar.I64: pa.int64(), Scalar.U64: pa.uint64(), Scalar.U32: pa.uint32(), Scalar.F64: pa.float64()}
    array = pa.array([value], kinds[type_])
    assert render_column(array) == [native]
    assert render_column(array, Integers.JS_SAFE) == [js_safe]


def test_dates_beyond_what_python_knows_still_render() -> None:
    days = [3_000_000, -800_000]
    texts = render_column(pa.array([None, *days], pa.date32()))
    assert texts[0] is None
    assert [text[:6] for text in texts[1:]] == ["+10183", "-0221-"]
    assert [parse_date(text) for text in texts[1:]] == days


def test_the_same_result_in_other_shapes(graph: Graph) -> None:
    result = graph.query("query q() { match { $b: Book } return { $b.slug as s, $b.pages as p } order { s } }")
    assert result.to_arrow().column("s").to_pylist() == ["a", "b", "c", "d"]
    assert pa.ipc.open_stream(io.BytesIO(result.to_ipc())).read_all() == result.to_arrow()
    output = wire.to_builtins(result.read_output())
    assert (output["query_name"], output["row_count"], output["columns"]) == ("q", 4, ["s", "p"])
    assert output["target"] == {"branch": "main", "snapshot": None}
    assert output["graph_commit_id"] == graph.resolve_snapshot()
    pandas = pytest.importorskip("pandas")
    assert isinstance(result.to_pandas(), pandas.DataFrame)


def test_nothing_found_keeps_names_and_types(graph: Graph) -> None:
    result = graph.query('query q() { match { $b: Book { slug: "no" } } return { $b.pages as p, $b.tags as t } }')
    assert (result.columns, result.rows(), result.num_rows) == (["p", "t"], [], 0)
    assert [str(f.type) for f in result.to_arrow().schema] == ["int32", "list<item: string>"]


# ---- aggregates -----------------------------------------------------------------------------------------


def test_aggregates_skip_nulls(graph: Graph) -> None:
    body = (
        "return { count($b) as n, count($b.pages) as m, sum($b.pages) as s, avg($b.price) as a, "
        "min($b.slug) as lo, max($b.pages) as hi }"
    )
    assert rows(graph, body) == [{"n": 4, "m": 3, "s": 50, "a": 2.5, "lo": "a", "hi": 30}]


def test_null_is_a_group_and_groups_appear_in_order(graph: Graph) -> None:
    body = "return { $b.shelf as shelf, count($b) as n, max($b.price) as x }"
    assert rows(graph, body) == [
        {"shelf": "high", "n": 1, "x": 2.5},
        {"shelf": "low", "n": 2, "x": 1.0},
        {"shelf": None, "n": 1, "x": 4.0},
    ]


def test_over_nothing_there_is_one_row_without_keys_and_none_with_keys(graph: Graph) -> None:
    empty = 'match { $b: Book { slug: "no" } }'
    whole = graph.query(f"query q() {{ {empty} return {{ count($b) as n, sum($b.pages) as s, min($b.slug) as m }} }}")
    assert whole.rows() == [{"n": 0, "s": None, "m": None}]
    assert graph.query(f"query q() {{ {empty} return {{ count($b), avg($b.price) }} }}").columns == ["b", "b.price"]
    keyed = graph.query(f"query q() {{ {empty} return {{ $b.shelf, count($b) as n }} }}")
    assert keyed.rows() == []


def test_grouping_by_a_node_and_by_a_list(graph: Graph) -> None:
    text = "query q() { match { $b: Book  $b wroteBy $a } return { $a, count($b) as n } order { n desc } }"
    assert [(row["a"]["name"], row["n"]) for row in graph.query(text).rows()] == [("Zoe", 2), ("Yan", 1)]
    assert sorted(row["n"] for row in rows(graph, "return { $b.tags as t, count($b) as n }")) == [1, 1, 1, 1]


def test_counting_rows_that_nobody_looks_at(graph: Graph) -> None:
    """A cross product is counted and not made."""
    match = "match { $b: Book  $c: Book  $d: Book  $a: Author }"
    assert graph.query(f"query q() {{ {match} return {{ count($a) as n }} }}").rows() == [{"n": 128}]
    keyed = f"query q() {{ {match} return {{ $b.shelf as s, count($a) as n }} order {{ s }} }}"
    assert [row["n"] for row in graph.query(keyed).rows()] == [32, 32, 64]


# ---- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("$b.pages", "bacd"),
        ("$b.pages desc", "dacb"),
        ("$b.pages, $b.price desc", "bacd"),
        ("$b.pages desc, $b.price", "dcab"),
        ("$b.price", "cbad"),
        ("$b.shelf, $b.slug desc", "dacb"),
        ("$b.on desc", "abcd"),
    ],
)
def test_order_is_total_with_nulls_first_ascending(graph: Graph, order: str, expected: str) -> None:
    assert column(graph, f"return {{ $b.slug }} order {{ {order} }}") == list(expected)
    for count in range(6):
        limited = column(graph, f"return {{ $b.slug }} order {{ {order} }} limit {count}")
        assert limited == list(expected)[:count]


def test_an_output_column_can_be_sorted_by(graph: Graph) -> None:
    assert column(graph, "return { $b.slug as s, $b.price as p } order { p desc }") == ["d", "a", "b", "c"]


def test_aggregates_that_tie_keep_the_order_of_appearance(graph: Graph) -> None:
    assert column(graph, "return { $b.slug as s, count($b) as n } order { n desc } limit 3") == ["a", "b", "c"]


def test_a_limit_without_order_gives_so_many_rows(graph: Graph) -> None:
    for count, expected in ((0, 0), (2, 2), (9, 4)):
        assert len(rows(graph, f"return {{ $b.slug }} limit {count}")) == expected
    text = "query q() { match { $b: Book  $b wroteBy $a  $c: Book } return { $a.slug } limit 7 }"
    assert graph.query(text).num_rows == 7


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.sampled_from("abé")))),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_selecting_first_equals_sorting_everything(
    pairs: list[tuple[int | None, str | None]], down_first: bool, down_second: bool, limit: int | None
) -> None:
    columns = pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.string())
    keys = [
        lambda chosen, values=values, down=down: codes_of(Located(values, chosen), len(chosen), down, MemoryBudget())
        for values, down in zip(columns, (down_first, down_second), strict=True)
    ]
    expected = list(range(len(pairs)))
    expected.sort(key=lambda i: (pairs[i][1] is not None, pairs[i][1] or ""), reverse=down_second)
    expected.sort(key=lambda i: (pairs[i][0] is not None, pairs[i][0] or 0), reverse=down_first)
    assert list(first_in_order(keys, len(pairs), limit)) == expected[:limit]


# ---- refusals -------------------------------------------------------------------------------------------


def test_a_missing_parameter_is_refused_before_anything_is_read(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="parameter 's' not provided"):
        graph.query("query q($s: String) { match { $b: Book { slug: $s } } return { $b } }")


def test_a_mutation_is_no_query(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="contains mutations"):
        graph.query('query q() { delete Book where slug = "a" }')


def test_a_type_error_is_a_compile_error(graph: Graph) -> None:
    with pytest.raises(CompileError, match="T6"):
        graph.query("query q() { match { $b: Book } return { $b.nothing } }")


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_the_two_zeros_are_one_group_that_is_shown_alike(tmp_path: Path, zeros: tuple[float, float]) -> None:
    with Graph.init(tmp_path / "zeros", "node Reading { at: I64 @key  value: F64 }") as graph:
        graph.load([{"at": at, "value": value} for at, value in enumerate(zeros)], mode="append", type="Reading")
        grouped = "query q() { match { $r: Reading } return { $r.value as value, count($r) as n, min($r.value) as m } }"
        assert str(graph.query(grouped).table.to_pylist()) == "[{'value': 0.0, 'n': 2, 'm': 0.0}]"
