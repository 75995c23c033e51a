"""Arithmetic, the functions of numbers and conversions, against Python's integers and floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.values.functions import FUNCTIONS as IMPLEMENTED
from omnigraph.errors import EvaluationError, EvaluationRule
from omnigraph.language.query import functions, ir
from omnigraph.language.query.syntax import ArithmeticOperator
from omnigraph.language.query.value_types import BOOL, F64, I64, STRING
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.query.value_rows import I64_LIST, STRING_LIST, Rows, call, constant, value_of

I32, U32, U64, F32 = (PropertyType(each, nullable=True) for each in (Scalar.I32, Scalar.U32, Scalar.U64, Scalar.F32))
INTEGER, FLOAT = I64.as_nullable(), F64.as_nullable()
SMALLEST, LARGEST = -(2**63), 2**63 - 1

extremes = st.sampled_from([0, 1, -1, 2, 10, LARGEST, LARGEST - 1, SMALLEST, SMALLEST + 1, 2**32, 3_037_000_500])
integers = extremes | st.integers(SMALLEST, LARGEST)
floats = st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, 2.5, -2.5, 1e308])
columns = st.integers(2, 5).flatmap(lambda n: st.tuples(*[st.lists(st.none() | integers, min_size=n, max_size=n)] * 2))


def test_every_function_of_the_language_is_implemented() -> None:
    assert IMPLEMENTED.keys() | {"coalesce", "nullif", "keys"} == functions.FUNCTIONS.keys()


def truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


INTEGER_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": truncated,
    "%": lambda a, b: a - b * truncated(a, b),
}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(INTEGER_OPERATORS)), columns, st.booleans())
def test_integers_are_exact_or_refused(
    sign: str, pair: tuple[list[int | None], list[int | None]], shared: bool
) -> None:
    rows = Rows({"a": (INTEGER, pair[0]), "b": (INTEGER, pair[1])}, shared=shared)
    value = ir.Arithmetic(rows.variable("a"), ArithmeticOperator(sign), rows.variable("b"), INTEGER)
    expected: list[int | None] = []
    broken = set()
    for a, b in zip(*pair, strict=True):
        if a is None or b is None:
            expected.append(None)
        elif sign in "/%" and b == 0:
            broken.add(EvaluationRule.DIVISION_BY_ZERO)
        else:
            expected.append(INTEGER_OPERATORS[sign](a, b))
            if not SMALLEST <= expected[-1] <= LARGEST:  # type: ignore[operator]
                broken.add(EvaluationRule.ARITHMETIC_OVERFLOW)
    if not broken:
        assert rows.values(value) == expected
        return
    with pytest.raises(EvaluationError) as raised:
        rows.values(value)
    assert raised.value.rule in broken
    assert raised.value.expression == f"$a {sign} $b"


def ieee(operator: str, left: float, right: float) -> float:
    with np.errstate(all="ignore"):
        function = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}[operator]
        return float(function(np.float64(left), np.float64(right)))


def same(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return left == right or (math.isnan(left) and math.isnan(right))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from("+-*/%"), st.lists(st.tuples(floats, floats), min_size=1, max_size=4))
def test_floats_follow_ieee_and_never_fail(sign: str, pairs: list[tuple[float, float]]) -> None:
    rows = Rows({"a": (F64, [a for a, _ in pairs]), "b": (F64, [b for _, b in pairs])})
    value = ir.Arithmetic(rows.variable("a"), ArithmeticOperator(sign), rows.variable("b"), F64)
    assert all(map(same, rows.values(value), [ieee(sign, a, b) for a, b in pairs]))


def test_a_float_beside_an_integer_makes_a_float() -> None:
    rows = Rows({"n": (I32, [7, None]), "x": (F32, [0.5, 0.5])}, shared=True)
    value = ir.Arithmetic(rows.variable("n"), ArithmeticOperator.MULTIPLY, rows.variable("x"), FLOAT)
    assert rows.values(value) == [3.5, None]
    division = ir.Arithmetic(rows.variable("n"), ArithmeticOperator.DIVIDE, constant(0.0), FLOAT)
    assert rows.values(division) == [math.inf, None]


@pytest.mark.parametrize("other", [1, 1.5])
def test_no_number_beyond_i64_is_calculated_with(other: float) -> None:
    rows = Rows({"n": (U64, [2**63, 5])})
    type_ = F64 if isinstance(other, float) else I64
    value = ir.Arithmetic(rows.variable("n"), ArithmeticOperator.SUBTRACT, constant(other), type_)
    with pytest.raises(EvaluationError) as raised:
        rows.values(value)
    assert raised.value.rule is EvaluationRule.ARITHMETIC_OVERFLOW
    small = Rows({"n": (U64, [LARGEST, 5])})
    smaller = ir.Arithmetic(small.variable("n"), ArithmeticOperator.SUBTRACT, constant(1), INTEGER)
    assert small.values(smaller) == [LARGEST - 1, 4]


def test_minus() -> None:
    rows = Rows({"n": (U32, [7, None]), "x": (FLOAT, [0.0, 2.5]), "m": (I64, [SMALLEST, 1])})
    assert rows.values(ir.Negative(rows.variable("n"), INTEGER)) == [-7, None]
    assert [str(each) for each in rows.values(ir.Negative(rows.variable("x"), FLOAT))] == ["-0.0", "-2.5"]
    with pytest.raises(EvaluationError, match="does not fit"):
        rows.values(ir.Negative(rows.variable("m"), I64))


def test_only_values_that_rows_have_can_fail() -> None:
    """A column is calculated once for each stored value, but not for those that a filter has left out."""
    rows = Rows({"n": (I64, [0, 1, 2])})
    kept = rows.bindings.take(np.array([2, 1, 2]))
    rows.bindings = kept
    value = ir.Arithmetic(constant(10), ArithmeticOperator.DIVIDE, rows.variable("n"), I64)
    assert rows.values(value) == [5, 10, 5]


def test_plus_joins_texts_and_lists() -> None:
    rows = Rows({"s": (STRING, ["a", "é", ""]), "l": (I64_LIST, [[1], [], [2, None]])}, shared=True)
    joined = ir.Arithmetic(rows.variable("s"), ArithmeticOperator.ADD, constant("x"), STRING)
    assert rows.values(joined) == ["ax", "éx", "x"]
    floats_too = ir.Arithmetic(
        rows.variable("l"), ArithmeticOperator.ADD, constant([0.5]), PropertyType(Scalar.F64, list=True)
    )
    assert rows.values(floats_too) == [[1.0, 0.5], [0.5], [2.0, None, 0.5]]
    assert value_of(ir.Arithmetic(constant([]), ArithmeticOperator.ADD, constant(["a"]), STRING_LIST)) == ["a"]


# ---- functions ------------------------------------------------------------------------------------------


def rounded(number: float, digits: int) -> float:
    """The nearest multiple of a power of ten to the number as it is spelled; of two the larger."""
    if not math.isfinite(number):
        return number
    exact, unit = Fraction(Decimal(repr(number))), Fraction(10) ** -digits
    return float(math.floor(exact / unit + Fraction(1, 2)) * unit)


@settings(max_examples=200, deadline=None)
@given(st.lists(floats, min_size=1, max_size=4), st.integers(-6, 6))
def test_halves_round_up(numbers: list[float], digits: int) -> None:
    rows = Rows({"x": (F64, numbers), "d": (I64, [digits] * len(numbers))}, shared=True)
    expected = [rounded(number, digits) for number in numbers]
    assert all(map(same, rows.values(call("round", rows.variable("x"), digits)), expected))
    assert all(map(same, rows.values(call("round", rows.variable("x"), rows.variable("d"))), expected))
    assert all(map(same, rows.values(call("round", rows.variable("x"))), [rounded(each, 0) for each in numbers]))


@pytest.mark.parametrize(
    ("arguments", "result"),
    [((2.5,), 3.0), ((-2.5,), -2.0), ((2.675, 2), 2.68), ((1250, -2), 1300.0), ((-1.55, 1), -1.5), ((7,), 7.0),
     ((0.49999999999999994,), 0.0), ((1.5, 500), 1.5), ((1.5, -500), 0.0), ((1.7e308, -308), math.inf)],
)  # fmt: skip
def test_rounding_examples(arguments: tuple[float, ...], result: float) -> None:
    assert value_of(call("round", *arguments)) == result


MATHS: dict[str, Callable[[float], float]] = {
    "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log10": math.log10,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "degrees": math.degrees, "radians": math.radians,
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MATHS)), st.lists(st.none() | st.floats(-100, 100), min_size=1, max_size=5))
def test_functions_of_floats(name: str, numbers: list[float | None]) -> None:
    def expected(number: float | None) -> float | None:
        if number is None:
            return None
        try:
            return float(MATHS[name](number))
        except ValueError:  # outside of the domain; the logarithm of 0 is the limit
            return -math.inf if number == 0 and name in ("log", "log10") else math.nan

    rows = Rows({"x": (FLOAT, numbers)}, shared=True)
    for value, number in zip(rows.values(call(name, rows.variable("x"))), numbers, strict=True):
        wanted = expected(number)
        assert same(value, wanted) or math.isclose(value, wanted or 0.0, rel_tol=1e-12)


def test_other_functions_of_numbers() -> None:
    rows = Rows({"n": (INTEGER, [-3, 0, None]), "x": (FLOAT, [-0.5, math.nan, 2.0])}, shared=True)
    assert rows.values(call("abs", rows.variable("n"))) == [3, 0, None]
    assert rows.values(call("sign", rows.variable("n"))) == [-1, 0, None]
    assert all(map(same, rows.values(call("abs", rows.variable("x"))), [0.5, math.nan, 2.0]))
    assert all(map(same, rows.values(call("sign", rows.variable("x"))), [-1.0, math.nan, 1.0]))
    assert value_of(call("power", 2, 10)) == 1024.0
    assert math.isnan(value_of(call("power", -8, 0.5)))
    assert value_of(call("atan2", 1, -1)) == math.atan2(1, -1)
    assert (value_of(call("pi")), value_of(call("e"))) == (math.pi, math.e)
    with pytest.raises(EvaluationError, match="does not fit"):
        value_of(call("abs", SMALLEST))


# ---- conversions ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | floats, min_size=1, max_size=4), st.lists(integers, min_size=1, max_size=4))
def test_numbers_as_texts_read_back(numbers: list[float | None], whole: list[int]) -> None:
    rows = Rows({"x": (FLOAT, numbers)}, shared=True)
    text = call("to_string", rows.variable("x"))
    assert all(map(same, rows.values(call("to_float", text)), numbers))
    rows = Rows({"n": (INTEGER, whole)}, shared=True)
    text = call("to_string", rows.variable("n"))
    assert rows.values(text) == list(map(str, whole))
    assert rows.values(call("to_int", text)) == whole


def test_texts_of_values_are_short() -> None:
    rows = Rows({"f": (F32, [0.1, 1e20]), "x": (F64, [0.1, 1.0]), "b": (BOOL, [True, False])})
    assert rows.values(call("to_string", rows.variable("f"))) == ["0.1", "1e+20"]
    assert rows.values(call("to_string", rows.variable("x"))) == ["0.1", "1.0"]
    assert rows.values(call("to_string", rows.variable("b"))) == ["true", "false"]
    assert value_of(call("to_string", -math.inf)) == "-Infinity"


@pytest.mark.parametrize(
    ("text", "integer", "number"),
    [("2.9", 2, 2.9), ("-2.9", -2, -2.9), ("7", 7, 7.0), ("+7", 7, 7.0), (".5", 0, 0.5), ("5.", 5, 5.0),
     ("1e3", 1000, 1000.0), ("12345e-2", 123, 123.45), ("9223372036854775807.9", LARGEST, 2.0**63),
     ("9223372036854775808", None, 2.0**63), ("1e999999999", None, None), ("1e-999999999", 0, 0.0),
     ("", None, None), ("x", None, None), (" 1", None, None), ("1_0", None, None), ("0x1", None, None),
     ("٣", None, None), ("Infinity", None, math.inf), ("inf", None, None), ("0e999999999", 0, 0.0)],
)  # fmt: skip
def test_texts_as_numbers(text: str, integer: int | None, number: float | None) -> None:
    assert value_of(call("to_int", text)) == integer
    assert value_of(call("to_float", text)) == number


def test_numbers_as_integers() -> None:
    assert value_of(call("to_int", -2.9)) == -2
    assert value_of(call("to_int", 2.0**62)) == 2**62
    for number in (math.nan, math.inf, 2.0**63):
        with pytest.raises(EvaluationError, match="no integer of 64 bits"):
            value_of(call("to_int", number))


@pytest.mark.parametrize(("text", "truth"), [("true", True), ("FALSE", False), ("yes", None), ("", None)])
def test_texts_as_truth_values(text: str, truth: bool | None) -> None:
    assert value_of(call("to_bool", text)) is truth
    assert value_of(call("to_bool", True)) is True


@pytest.mark.parametrize("name", sorted(functions.FUNCTIONS.keys() - {"coalesce", "nullif", "keys", "pi", "e"}))
def test_a_null_argument_gives_null(name: str) -> None:
    signature = functions.FUNCTIONS[name].signatures[0]
    samples: dict[str, Any] = {"String": "1", "integer": 1, "number": 1.0, "list": [1], "[String]": ["a"], "scalar": 1}
    for position in range(signature.required):
        kinds = [kinds[0] for kinds in signature.kinds[: signature.required]]
        arguments = [constant(None if i == position else samples.get(kind)) for i, kind in enumerate(kinds)]
        value = ir.Call(name, tuple(arguments), I64.as_nullable())
        assert value_of(value) is None
