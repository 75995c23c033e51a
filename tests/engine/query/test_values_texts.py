"""Functions of texts, against Python's methods of `str`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.errors import EvaluationError, EvaluationRule, ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import ArithmeticOperator, ListFunction
from omnigraph.language.query.value_types import BOOL, I64, STRING
from omnigraph.language.values import pattern_problem
from tests.engine.query.value_rows import I64_LIST, STRING_LIST, Rows, call, constant, value_of

TEXT, NUMBER = STRING.as_nullable(), I64.as_nullable()

letters = st.text(st.sampled_from("aAbB ßİſéÉ😀\u0301\n\t"), max_size=6) | st.text(max_size=4)
texts = st.lists(st.none() | letters, min_size=1, max_size=5)
pieces = st.sampled_from(["", "a", "A", "ß", "aa", " ", "😀", "ab"])
counts = st.integers(0, 8) | st.just(2**63 - 1)

UNARY: dict[str, Callable[[str], Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "ltrim": str.lstrip,
    "rtrim": str.rstrip,
    "reverse": lambda s: s[::-1],
    "size": len,
}
COUNTED: dict[str, Callable[[str, int], str]] = {
    "left": lambda s, n: s[:n],
    "right": lambda s, n: s[-n:] if n else "",
    "substring": lambda s, n: s[n:],
}
PAIRED: dict[str, Callable[[str, str], Any]] = {
    "ends_with": str.endswith,
    "split": lambda s, by: s.split(by) if by else list(s),
}


def expected(function: Callable[..., Any], *columns: list[Any]) -> list[Any]:
    return [None if None in row else function(*row) for row in zip(*columns, strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(UNARY)), texts, st.booleans())
def test_functions_of_one_text(name: str, values: list[str | None], shared: bool) -> None:
    rows = Rows({"s": (TEXT, values)}, shared=shared)
    assert rows.values(call(name, rows.variable("s"))) == expected(UNARY[name], values)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(COUNTED)), texts, st.lists(counts, min_size=5, max_size=5), st.booleans())
def test_parts_count_code_points(name: str, values: list[str | None], numbers: list[int], shared: bool) -> None:
    numbers = numbers[: len(values)]
    rows = Rows({"s": (TEXT, values), "n": (NUMBER, numbers)}, shared=shared)
    function = COUNTED[name]
    assert rows.values(call(name, rows.variable("s"), rows.variable("n"))) == expected(function, values, numbers)
    same = expected(function, values, numbers[:1] * len(values))
    assert rows.values(call(name, rows.variable("s"), numbers[0])) == same
    constant_text = expected(function, ["aß😀b"] * len(values), numbers)
    assert rows.values(call(name, "aß😀b", rows.variable("n"))) == constant_text


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(0, 6), st.integers(0, 6))
def test_substring_with_a_length(values: list[str | None], start: int, count: int) -> None:
    rows = Rows({"s": (TEXT, values), "n": (NUMBER, [start] * len(values))}, shared=True)
    same = expected(lambda s: s[start : start + count], values)
    assert rows.values(call("substring", rows.variable("s"), start, count)) == same
    assert rows.values(call("substring", rows.variable("s"), rows.variable("n"), count)) == same


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(PAIRED)), texts, st.lists(pieces, min_size=5, max_size=5))
def test_functions_of_two_texts(name: str, values: list[str | None], others: list[str]) -> None:
    others = others[: len(values)]
    rows = Rows({"s": (TEXT, values), "t": (STRING, others)})
    function = PAIRED[name]
    assert rows.values(call(name, rows.variable("s"), rows.variable("t"))) == expected(function, values, others)
    same = expected(function, values, others[:1] * len(values))
    assert rows.values(call(name, rows.variable("s"), others[0])) == same


@settings(max_examples=100, deadline=None)
@given(texts, pieces, pieces)
def test_replace(values: list[str | None], old: str, new: str) -> None:
    rows = Rows({"s": (TEXT, values), "t": (STRING, [old] * len(values))}, shared=True)
    same = expected(lambda s: s.replace(old, new), values)
    assert rows.values(call("replace", rows.variable("s"), old, new)) == same
    assert rows.values(call("replace", rows.variable("s"), rows.variable("t"), new)) == same


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.lists(pieces, max_size=3), min_size=1, max_size=4), pieces)
def test_join(lists: list[list[str] | None], separator: str) -> None:
    rows = Rows({"l": (STRING_LIST.as_nullable(), lists), "t": (STRING, [separator] * len(lists))}, shared=True)  # type: ignore[union-attr]
    same = expected(separator.join, lists)
    assert rows.values(call("join", rows.variable("l"), separator)) == same
    assert rows.values(call("join", rows.variable("l"), rows.variable("t"))) == same
    assert value_of(call("join", ["a", None], "-")) is None
    assert value_of(call("join", [], "-")) == ""


def test_split_joins_to_the_same_text() -> None:
    rows = Rows({"s": (TEXT, ["a,b,,c", "", None, ","])}, shared=True)
    for separator in (",", ""):
        parts = call("split", rows.variable("s"), separator)
        assert rows.values(call("join", parts, separator)) == ["a,b,,c", "", None, ","]


@pytest.mark.parametrize("name", ["left", "right", "substring"])
def test_negative_positions_are_refused(name: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        value_of(call(name, "abc", -1))
    assert raised.value.rule is EvaluationRule.BAD_ARGUMENT
    assert raised.value.expression == f'{name}("abc", -1)'
    rows = Rows({"s": (TEXT, ["a", None]), "n": (I64, [1, -1])})
    # The second row has no text, so nothing is asked of its number.
    assert rows.values(call(name, rows.variable("s"), rows.variable("n")))[1] is None


# ---- regular expressions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [("abc", "abc", True), ("abc", "b", False), ("abc", "a|abc", True), ("a\n", "a", False), ("a\nb", "a.b", False),
     ("a\nb", "(?s)a.b", True), ("ABC", "(?i)abc", True), ("", "", True), ("", "a*", True), ("a)", r"\Qa)", True),
     ("a)\\z", r"\Qa)", False), ("éé", "..", True), ("a", "^a$", True), ("a\nb", "(?m)a$\n^b", True)],
)  # fmt: skip
def test_a_pattern_matches_the_whole_text(text: str, pattern: str, matches: bool) -> None:
    assert value_of(call("matches", text, pattern)) is matches
    rows = Rows({"s": (TEXT, [text, None, "#"]), "p": (STRING, [pattern, "(", "#"])})
    assert rows.values(call("matches", rows.variable("s"), rows.variable("p"))) == [matches, None, True]
    assert rows.values(call("matches", rows.variable("s"), pattern))[0] is matches


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=4), st.text("ab|()*?.", max_size=5))
def test_patterns_agree_with_another_engine(values: list[str], pattern: str) -> None:
    rows = Rows({"s": (STRING, values)})
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    if pattern_problem(pattern) is None:  # RE2 does not take all that Python does
        matches = [compiled.fullmatch(each) is not None for each in values]
        assert rows.values(call("matches", rows.variable("s"), pattern)) == matches


@pytest.mark.parametrize("pattern", ["(", "a)", ")|(", "a**", "[", "\\", r"(?<=a)b"])
def test_what_is_not_a_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        value_of(call("matches", "a", pattern))
    assert raised.value.rule is EvaluationRule.INVALID_PATTERN


# ---- limits ---------------------------------------------------------------------------------------------


def doubled(times: int) -> ir.Reduce:
    """A text that doubles its length for each item of a list."""
    so_far = ir.VariableValue("a", STRING)
    body = ir.Arithmetic(so_far, ArithmeticOperator.ADD, so_far, STRING)
    return ir.Reduce("a", constant("xy"), "i", call("range", 1, times), body, STRING)


def test_texts_grow_up_to_the_memory_limit() -> None:
    assert value_of(doubled(10)) == "xy" * 2**10
    rows = Rows({})
    rows.context.budget.limit = 1 << 20
    with pytest.raises(ResourceLimitError):
        rows.values(doubled(60))


def test_one_text_ends_at_two_gigabytes() -> None:
    many = call("replace", call("replace", "x" * 2**10, "x", "x" * 2**10), "x", "x" * 2**12)
    with pytest.raises(ResourceLimitError):
        value_of(many)


def test_a_part_that_would_make_too_much_is_cut() -> None:
    rows = Rows({"s": (STRING, ["x" * 25_000] * 40)})
    value = call("replace", rows.variable("s"), "x", "y" * 80)
    assert [len(each) for each in rows.values(call("left", value, 5))] == [5] * 40
    assert set(rows.values(call("size", value))) == {2_000_000}


def test_work_in_python_asks_whether_to_go_on() -> None:
    rows = Rows({"s": (STRING, ["ß"] * 20_000)})
    asked = []

    class Counting(MemoryBudget):
        def check(self) -> None:
            asked.append(True)

    rows.context.budget = Counting()
    rows.values(call("upper", rows.variable("s")))
    assert len(asked) >= 5


def test_shared_texts_are_looked_at_once() -> None:
    rows = Rows({"s": (STRING, ["ß", "é"])})
    rows.bindings = rows.bindings.take(np.arange(2_000) % 2)
    assert rows.values(call("upper", rows.variable("s")))[:3] == ["SS", "É", "SS"]
    item = ir.VariableValue("x", STRING)
    letters_of = call("split", rows.variable("s"), "")
    value = ir.ListForm(
        ListFunction.ANY, "x", letters_of, None, ir.Compare(item, ir.Operator.EQUAL, constant("ß")), BOOL
    )
    assert rows.values(value)[:3] == [True, False, True]
    assert rows.values(ir.ListOf((constant(1),), I64_LIST))[:2] == [[1], [1]]
