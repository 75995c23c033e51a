"""Predicates mean the same wherever they are tested: inside the Lance scan, on fetched values, and in Python."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.values.compare import compare
from omnigraph.errors import BadRequestError
from omnigraph.graph import Graph
from omnigraph.language.query.ir import Operator

SCHEMA = """
node Row {
  slug: String @key
  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
  text: String?  flag: Bool?  whole: [I64]?  fractions: [F32]?  words: [String]?
}
edge Same: Row -> Row
"""
EXTREMES: dict[str, list[Any]] = {
    "i32": [-(2**31), -1, 0, 1, 2**31 - 1],
    "i64": [-(2**63), -(2**53) - 1, 0, 2**53 + 1, 2**63 - 1],
    "u32": [0, 1, 7, 2**31, 2**32 - 1],
    "u64": [0, 1, 2**53 + 1, 2**63, 2**64 - 1],
    "f32": [-0.0, 0.0, 0.5, -1e30, float(np.float32(0.1))],
    "f64": [-0.0, 0.0, 0.1, 2.0**53, -1e300],
    "text": ["", "a", "ab", "it's", "b\\%_é\n"],
    "flag": [True, False, True, False, True],
    "whole": [[], [1], [0, 2**53 + 1], [-1, 1], [7]],
    "fractions": [[], [0.5], [0.0], [0.25, 0.5], [-1.5]],
    "words": [[], ["a"], ["it's", ""], ["ab", "a"], ["é"]],
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS = ("i32", "i64", "u32", "u64", "f32", "f64")
ROWS: list[dict[str, Any]] = [{name: values[i] for name, values in EXTREMES.items()} for i in range(5)]
EVERY_ROW: list[dict[str, Any]] = [*ROWS, dict.fromkeys(EXTREMES)]

interesting = st.sampled_from([0.5, 0.1, -0.0, 2.0**53, 2.0**63, -(2.0**63), 1e30, 1e300, 2.0**31 - 0.5])
floats = st.one_of(interesting, st.floats(allow_nan=False, allow_infinity=False))
extremes = st.sampled_from([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
integers = st.one_of(extremes, st.integers(-(2**63), 2**64 - 1))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Every row has an edge to itself, so that `$b` is reached and its predicates run on values."""
    lines = [json.dumps({"type": "Row", "data": {"slug": str(i), **row}}) for i, row in enumerate(EVERY_ROW)]
    lines += [json.dumps({"edge": "Same", "from": str(i), "to": str(i), "data": {}}) for i in range(len(EVERY_ROW))]
    with Graph.init(tmp_path_factory.mktemp("rows") / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def matching(graph: Graph, predicate: str, type_: str, value: Any) -> list[int]:
    """The rows for which a predicate over `$x` holds: in the scan and on values, which must agree."""
    found = []
    for match in (f"$x: Row  {predicate}", f"$a: Row  $a same $x  {predicate}"):
        text = f"query q($p: {type_}) {{ match {{ {match} }} return {{ $x.slug as s }} order {{ s }} }}"
        found.append([int(row["s"]) for row in graph.query(text, params={"p": value}).rows()])
    assert found[0] == found[1]
    return found[0]


def declared(number: int | float) -> str:
    """The type of a parameter that takes the number."""
    if isinstance(number, float):
        return "F64"
    return "I64" if number < 2**63 else "U64"


def expected(test: Callable[[dict[str, Any]], bool]) -> list[int]:
    return [i for i, row in enumerate(EVERY_ROW) if test(row)]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NUMBERS), st.sampled_from(sorted(OPERATORS)), st.one_of(floats, integers), st.booleans())
def test_numbers_compare_by_value_across_types(
    graph: Graph, column: str, sign: str, number: int | float, flipped: bool
) -> None:
    type_ = declared(number)
    predicate = f"$p {sign} $x.{column}" if flipped else f"$x.{column} {sign} $p"

    def holds(row: dict[str, Any]) -> bool:
        value = row[column]
        pair = (number, value) if flipped else (value, number)
        return value is not None and OPERATORS[sign](*pair)

    assert matching(graph, predicate, type_, number) == expected(holds)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.sampled_from(sorted(OPERATORS)))
def test_columns_compare_by_value_across_types(graph: Graph, left: str, right: str, sign: str) -> None:
    def holds(row: dict[str, Any]) -> bool:
        return row[left] is not None and row[right] is not None and OPERATORS[sign](row[left], row[right])

    assert matching(graph, f"$x.{left} {sign} $x.{right}", "I64", 0) == expected(holds)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([*OPERATORS, "contains", "starts_with"]),
    st.one_of(st.sampled_from(["", "a", "'", "\\", "%", "_", "é\n", "b\\%"]), st.text(max_size=3)),
)
def test_texts_compare_by_code_point_without_wildcards(graph: Graph, sign: str, text: str) -> None:
    tests = {**OPERATORS, "contains": lambda a, b: b in a, "starts_with": lambda a, b: a.startswith(b)}
    holds = expected(lambda row: row["text"] is not None and tests[sign](row["text"], text))
    assert matching(graph, f"$x.text {sign} $p", "String", text) == holds


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["whole", "fractions"]), st.one_of(floats, integers))
def test_a_list_holds_a_number_by_value(graph: Graph, column: str, number: int | float) -> None:
    type_ = declared(number)
    holds = expected(lambda row: row[column] is not None and number in row[column])
    assert matching(graph, f"$x.{column} contains $p", type_, number) == holds


@pytest.mark.parametrize("word", ["a", "", "it's", "no"])
def test_a_list_holds_a_text(graph: Graph, word: str) -> None:
    holds = expected(lambda row: row["words"] is not None and word in row["words"])
    assert matching(graph, "$x.words contains $p", "String", word) == holds
    pinned = "query q($p: String) { match { $x: Row { words: $p } } return { $x.slug as s } order { s } }"
    assert [int(row["s"]) for row in graph.query(pinned, params={"p": word}).rows()] == holds


@pytest.mark.parametrize("sign", sorted(OPERATORS))
def test_false_comes_before_true(graph: Graph, sign: str) -> None:
    for value in (False, True):
        holds = expected(lambda row, v=value: row["flag"] is not None and OPERATORS[sign](row["flag"], v))
        assert matching(graph, f"$x.flag {sign} $p", "Bool", value) == holds


@pytest.mark.parametrize("sign", [*OPERATORS, "contains", "starts_with"])
def test_null_satisfies_nothing(graph: Graph, sign: str) -> None:
    assert matching(graph, f"$x.text {sign} $p", "String?", None) == []
    pinned = "query q($p: String?) { match { $x: Row { text: $p } } return { $x.slug } }"
    assert graph.query(pinned, params={"p": None}).rows() == []


def test_half_a_character_is_refused(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="half of a surrogate pair"):
        matching(graph, "$x.text = $p", "String", "\ud800")


@pytest.mark.parametrize(("match", "count"), [("1 < 2", 6), ("2 < 1", 0), ('"ab" contains "b"', 6), ("$p = 1", 0)])
def test_predicates_without_a_variable_decide_about_every_row(graph: Graph, match: str, count: int) -> None:
    text = f"query q($p: I64?) {{ match {{ $x: Row  {match} }} return {{ count($x) as n }} }}"
    assert graph.query(text, params={}).rows() == [{"n": count}]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), floats), min_size=1))
def test_comparing_integers_with_floats_never_rounds(pairs: list[tuple[int, float]]) -> None:
    left, right = pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.float64())
    for sign, test in OPERATORS.items():
        assert list(compare(left, Operator(sign), right)) == [test(a, b) for a, b in pairs]


def test_a_property_compared_with_itself_tells_whether_it_has_a_value(graph: Graph) -> None:
    """What the message about a comparison with null says."""
    for name in (*NUMBERS, "text", "flag"):
        present = f"$x.{name} = $x.{name}"
        with_value = [i for i, row in enumerate(EVERY_ROW) if row[name] is not None]
        assert matching(graph, present, "I32?", None) == with_value
        without = matching(graph, f"not {{ {present} }}", "I32?", None)
        assert without == [i for i in range(len(EVERY_ROW)) if i not in with_value]
