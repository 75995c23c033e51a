"""Three-valued logic, comparisons and choices, against Python's own."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.values.evaluate import constant_value
from omnigraph.errors import EvaluationError, EvaluationRule
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Operator
from omnigraph.language.query.syntax import ArithmeticOperator
from omnigraph.language.query.value_types import BOOL, F64, I64, STRING, NullType, RecordType, list_of, unify
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.query.value_rows import I64_LIST, STRING_LIST, Rows, call, constant, value_of

TRUTHS = [True, False, None]
BOOL_OR_NULL = BOOL.as_nullable()
NUMBER = I64.as_nullable()


def conjunction(values: tuple[bool | None, ...]) -> bool | None:
    return False if False in values else None if None in values else True


def disjunction(values: tuple[bool | None, ...]) -> bool | None:
    return True if True in values else None if None in values else False


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_and_or_not_follow_the_tables(count: int, shared: bool) -> None:
    table = list(itertools.product(TRUTHS, repeat=count))
    names = [f"x{i}" for i in range(count)]
    columns = {name: (BOOL_OR_NULL, [row[i] for row in table]) for i, name in enumerate(names)}
    rows = Rows(columns, shared=shared)
    operands = tuple(map(rows.variable, names))
    for form, expected in ((ir.And, conjunction), (ir.Or, disjunction)):
        assert rows.values(form(operands)) == [expected(row) for row in table]
        assert rows.mask(form(operands)) == [expected(row) is True for row in table]
        negated = [None if (value := expected(row)) is None else not value for row in table]
        assert rows.values(ir.Not(form(operands))) == negated
        assert rows.mask(ir.Not(form(operands))) == [value is True for value in negated]


@pytest.mark.parametrize("truths", list(itertools.product(TRUTHS, repeat=2)))
def test_constants_follow_the_same_tables(truths: tuple[bool | None, ...]) -> None:
    operands = tuple(ir.Constant(truth, BOOL_OR_NULL) for truth in truths)
    assert value_of(ir.And(operands)) is conjunction(truths)
    assert value_of(ir.Or(operands)) is disjunction(truths)


def test_null_tests_are_never_null() -> None:
    rows = Rows({"x": (NUMBER, [1, None, 3])}, shared=True)
    assert rows.values(ir.IsNull(rows.variable("x"))) == [False, True, False]
    assert rows.values(ir.IsNull(rows.variable("x"), negated=True)) == [True, False, True]
    assert rows.mask(ir.Not(ir.IsNull(rows.variable("x")))) == [True, False, True]
    assert value_of(ir.IsNull(constant(None))) is True


# ---- comparisons ----------------------------------------------------------------------------------------

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBER_TYPES = {
    Scalar.I32: st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 + 1, -(2**53) - 1]),
    Scalar.U64: st.integers(0, 2**64 - 1),
    Scalar.F32: st.floats(width=32),
    Scalar.F64: st.floats() | st.sampled_from([2.0**53, 2.0**63, 2.0**64, math.nan, math.inf, -math.inf]),
}


def numbers(scalar: Scalar) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | NUMBER_TYPES[scalar], min_size=6, max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(sorted(NUMBER_TYPES)), st.sampled_from(sorted(NUMBER_TYPES)), st.booleans())
def test_numbers_compare_by_exact_value(data: st.DataObject, left: Scalar, right: Scalar, shared: bool) -> None:
    columns = [data.draw(numbers(left)), data.draw(numbers(right))]
    types = PropertyType(left, nullable=True), PropertyType(right, nullable=True)
    rows = Rows({"a": (types[0], columns[0]), "b": (types[1], columns[1])}, shared=shared)
    for sign, test in TESTS.items():
        value = ir.Compare(rows.variable("a"), Operator(sign), rows.variable("b"))
        expected = [None if None in (a, b) else test(a, b) for a, b in zip(*columns, strict=True)]
        assert rows.values(value) == expected
        assert rows.mask(value) == [each is True for each in expected]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text(max_size=3), min_size=4, max_size=4), st.text(max_size=2), st.booleans())
def test_texts_compare_by_code_point(texts: list[str | None], text: str, shared: bool) -> None:
    rows = Rows({"a": (STRING.as_nullable(), texts)}, shared=shared)
    tests: dict[str, Callable[[Any, Any], bool]] = {**TESTS, "substring": operator.contains, "prefix": str.startswith}
    for sign, test in tests.items():
        expected = [None if each is None else test(each, text) for each in texts]
        assert rows.values(ir.Compare(rows.variable("a"), Operator(sign), constant(text))) == expected
        assert rows.mask(ir.Not(ir.Compare(rows.variable("a"), Operator(sign), constant(text)))) == [
            each is False for each in expected
        ]


def equal(left: Any, right: Any) -> bool | None:
    """Three-valued equality of lists, records and scalars."""
    if left is None or right is None:
        return None
    if isinstance(left, dict):
        return conjunction(tuple(equal(left[name], right[name]) for name in left))
    if isinstance(left, list):
        if len(left) != len(right):
            return False
        return conjunction(tuple(map(equal, left, right)))
    return bool(left == right)


integers = st.none() | st.integers(-2, 2)
lists = st.none() | st.lists(integers, max_size=3)
nested = st.none() | st.lists(lists, max_size=2)
records = st.none() | st.fixed_dictionaries({"a": integers, "b": lists})
RECORD = RecordType((("a", NUMBER), ("b", list_of(NUMBER, nullable=True))), nullable=True)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.booleans())
def test_lists_and_records_are_equal_by_content(data: st.DataObject, shared: bool) -> None:
    for kind, type_ in (
        (lists, list_of(NUMBER, nullable=True)),
        (nested, list_of(list_of(NUMBER, nullable=True), nullable=True)),
        (records, RECORD),
    ):
        left, right = (data.draw(st.lists(kind, min_size=5, max_size=5)) for _ in range(2))
        rows = Rows({"a": (type_, left), "b": (type_, right)}, shared=shared)
        value = ir.Compare(rows.variable("a"), Operator.EQUAL, rows.variable("b"))
        expected = [equal(a, b) for a, b in zip(left, right, strict=True)]
        assert rows.values(value) == expected
        assert rows.mask(value) == [each is True for each in expected]
        other = ir.Compare(rows.variable("a"), Operator.NOT_EQUAL, rows.variable("b"))
        assert rows.values(other) == [None if each is None else not each for each in expected]
        assert rows.mask(other) == [each is False for each in expected]


def test_lists_of_different_number_types_compare_by_value() -> None:
    floats = list_of(F64)
    rows = Rows({"a": (I64_LIST, [[1, 2**53 + 1], [1]]), "b": (floats, [[1.0, 2.0**53], [1.0]])})
    assert rows.values(ir.Compare(rows.variable("a"), Operator.EQUAL, rows.variable("b"))) == [False, True]


def member(item: Any, items: list[Any] | None) -> bool | None:
    if item is None or items is None:
        return None
    return disjunction(tuple(equal(item, each) for each in items))


@settings(max_examples=80, deadline=None)
@given(st.data(), st.booleans())
def test_in_is_three_valued(data: st.DataObject, shared: bool) -> None:
    for kind, type_ in ((integers, NUMBER), (lists, list_of(NUMBER, nullable=True))):
        items = data.draw(st.lists(kind, min_size=5, max_size=5))
        held = data.draw(st.lists(st.none() | st.lists(kind, max_size=3), min_size=5, max_size=5))
        list_type = list_of(type_, nullable=True)
        rows = Rows({"x": (type_, items), "l": (list_type, held)}, shared=shared)
        value = ir.In(rows.variable("x"), rows.variable("l"))
        expected = [member(item, each) for item, each in zip(items, held, strict=True)]
        assert rows.values(value) == expected
        assert rows.mask(value) == [each is True for each in expected]
        assert rows.mask(ir.Not(value)) == [each is False for each in expected]


@settings(max_examples=60, deadline=None)
@given(st.lists(integers, min_size=5, max_size=5), st.lists(integers, max_size=3))
def test_in_a_constant_list(items: list[int | None], held: list[int | None]) -> None:
    rows = Rows({"x": (NUMBER, items)}, shared=True)
    value = ir.In(rows.variable("x"), ir.Constant(tuple(held), I64_LIST))
    assert rows.values(value) == [member(item, held) for item in items]


def test_lists_in_a_constant_list() -> None:
    rows = Rows({"l": (list_of(NUMBER, nullable=True), [[1], [2, None], [], None])}, shared=True)
    held = constant([[1], [2, 3]])
    assert rows.values(ir.In(rows.variable("l"), held)) == [True, None, False, None]
    assert rows.mask(ir.In(rows.variable("l"), held)) == [True, False, False, False]
    assert rows.mask(ir.Compare(rows.variable("l"), Operator.EQUAL, constant([1]))) == [True, False, False, False]
    assert rows.mask(ir.In(rows.variable("l"), ir.Constant((), list_of(list_of(NUMBER))))) == [False] * 4


def test_membership_of_a_list_is_never_undecided() -> None:
    """`list contains x` of old: false, not null, for a null item beside others."""
    rows = Rows({"l": (I64_LIST, [[1, None], [None], [2]]), "x": (NUMBER, [2, 2, None])})
    assert rows.values(ir.Compare(rows.variable("l"), Operator.MEMBER, rows.variable("x"))) == [False, False, None]


def test_nan_is_in_no_list() -> None:
    rows = Rows({"x": (F64, [math.nan, 1.0])})
    assert rows.values(ir.In(rows.variable("x"), ir.Constant((math.nan, 1.0), list_of(F64)))) == [False, True]


def test_null_compares_with_nothing() -> None:
    rows = Rows({"x": (NUMBER, [1])})
    for left, right in ((constant(None), rows.variable("x")), (rows.variable("x"), constant(None))):
        assert rows.values(ir.Compare(left, Operator.EQUAL, right)) == [None]
        assert rows.mask(ir.Compare(left, Operator.NOT_EQUAL, right)) == [False]


# ---- choices --------------------------------------------------------------------------------------------


def divided(rows: Rows) -> ir.Arithmetic:
    """What fails for a row whose divisor is 0."""
    return ir.Arithmetic(constant(10), ArithmeticOperator.DIVIDE, rows.variable("n"), NUMBER)


def test_case_takes_the_first_true_branch_and_looks_no_further() -> None:
    rows = Rows({"n": (NUMBER, [5, 0, None, 2])}, shared=True)
    zero = ir.Compare(rows.variable("n"), Operator.EQUAL, constant(0))
    value = ir.Case(None, (ir.Branch(zero, constant(-1)), ir.Branch(constant(True), divided(rows))), None, NUMBER)
    assert rows.values(value) == [2, -1, None, 5]
    with pytest.raises(EvaluationError, match="divided by zero"):
        rows.values(divided(rows))


def test_case_compares_its_operand_and_has_an_else() -> None:
    rows = Rows({"n": (NUMBER, [1, 2, None, 3])})
    branches = (ir.Branch(constant(1), constant("one")), ir.Branch(constant(2), constant("two")))
    value = ir.Case(rows.variable("n"), branches, constant("many"), STRING)
    assert rows.values(value) == ["one", "two", "many", "many"]
    assert rows.values(ir.Case(rows.variable("n"), branches, None, STRING.as_nullable())) == ["one", "two", None, None]


def test_branches_widen_to_one_type() -> None:
    rows = Rows({"n": (NUMBER, [1, None])})
    branches = (ir.Branch(ir.IsNull(rows.variable("n")), constant(0.5)),)
    type_ = unify(F64, NUMBER)
    assert type_ is not None
    assert rows.values(ir.Case(None, branches, rows.variable("n"), type_)) == [1.0, 0.5]
    empty = ir.Case(None, (ir.Branch(constant(True), constant(None)),), rows.variable("n"), NUMBER)
    assert rows.values(empty) == [None, None]


def test_a_number_too_large_for_the_type_of_the_branches_overflows() -> None:
    unsigned = PropertyType(Scalar.U64)
    rows = Rows({"n": (unsigned, [1, 2**64 - 1])})
    value = ir.Case(None, (ir.Branch(constant(False), constant(1)),), rows.variable("n"), I64)
    with pytest.raises(EvaluationError) as raised:
        rows.values(value)
    assert raised.value.rule is EvaluationRule.ARITHMETIC_OVERFLOW
    assert raised.value.expression == "case when false then 1 else $n end"


def test_coalesce_evaluates_what_it_needs() -> None:
    rows = Rows({"n": (NUMBER, [0, 5, 0]), "m": (NUMBER, [7, None, 8])}, shared=True)
    assert rows.values(call("coalesce", rows.variable("m"), divided(rows))) == [7, 2, 8]
    assert rows.values(call("coalesce", constant(None), rows.variable("m"), constant(1.5))) == [7.0, 1.5, 8.0]
    assert value_of(call("coalesce", constant(None), constant(None))) is None


def test_nullif() -> None:
    rows = Rows({"n": (NUMBER, [1, 2, None])}, shared=True)
    assert rows.values(call("nullif", rows.variable("n"), 2)) == [1, None, None]
    assert rows.values(call("nullif", rows.variable("n"), constant(None))) == [1, 2, None]
    assert value_of(call("nullif", "a", "a")) is None


def test_no_rows_need_no_values() -> None:
    rows = Rows({"n": (NUMBER, [])})
    fails = ir.Arithmetic(rows.variable("n"), ArithmeticOperator.DIVIDE, constant(0), NUMBER)
    for value in (fails, call("coalesce", fails, 1), ir.Case(None, (ir.Branch(constant(True), fails),), None, NUMBER)):
        assert rows.values(value) == []
    assert rows.mask(ir.And((ir.IsNull(fails), ir.IsNull(fails)))) == []


def test_a_conjunction_drops_rows_before_it_looks_at_them() -> None:
    rows = Rows({"n": (NUMBER, [5, 0, 20])}, shared=True)
    positive = ir.Compare(rows.variable("n"), Operator.GREATER, constant(0))
    small = ir.Compare(divided(rows), Operator.GREATER, constant(1))
    assert rows.mask(ir.And((positive, small))) == [True, False, False]
    assert rows.mask(ir.Or((ir.Not(positive), small))) == [True, True, False]


def test_records_have_fields() -> None:
    rows = Rows({"n": (NUMBER, [1, None])}, shared=True)
    type_ = RecordType((("a", F64.as_nullable()), ("b", STRING)))
    record = ir.Record((rows.variable("n"), constant("x")), type_)
    assert rows.values(record) == [{"a": 1.0, "b": "x"}, {"a": None, "b": "x"}]
    assert rows.values(ir.Field(record, "a", F64.as_nullable())) == [1.0, None]
    bound = Rows({"r": (RECORD, [{"a": 1, "b": []}, None])})
    assert bound.values(ir.Field(bound.variable("r"), "a", NUMBER)) == [1, None]
    assert value_of(ir.Field(ir.Record((constant(3),), RecordType((("n", I64),))), "n", I64)) == 3


def test_lists_are_made_of_values() -> None:
    rows = Rows({"n": (NUMBER, [1, None]), "m": (NUMBER, [3, 4])}, shared=True)
    made = ir.ListOf((rows.variable("n"), constant(None), rows.variable("m")), I64_LIST)
    assert rows.values(made) == [[1, None, 3], [None, None, 4]]
    assert rows.values(ir.ListOf((), STRING_LIST)) == [[], []]
    assert value_of(constant([1, None])) == [1, None]


def test_constants_are_plain_values() -> None:
    context = Rows({}).context
    day = ir.Constant("2024-02-29", PropertyType(Scalar.DATE))
    assert constant_value(call("add_days", day, 1), context) == 19_783
    assert constant_value(call("datetime", day), context) == 19_782 * 86_400_000
    assert constant_value(ir.ListOf((day,), PropertyType(Scalar.DATE, list=True)), context) == [19_782]
    assert constant_value(call("split", "a b", " "), context) == ["a", "b"]
    assert constant_value(ir.Constant(None, NullType()), context) is None
    either = ir.Or((ir.Constant(True, BOOL), ir.Constant(None, BOOL_OR_NULL)))
    assert constant_value(either, context) is True


def test_wide_texts_compare_like_others() -> None:
    rows = Rows({"a": (STRING, ["x", "y"])})
    wide = pa.array(["x", "z"], pa.large_string())
    rows.context.bound.add("w", STRING, wide)
    bindings = rows.bindings.binding({"w": np.arange(2)})
    rows.bindings, rows.types = bindings, {**rows.types, "w": STRING}
    value = ir.Compare(rows.variable("a"), Operator.EQUAL, rows.variable("w"))
    assert rows.values(value) == [True, False]
    assert rows.values(call("upper", rows.variable("w"))) == ["X", "Z"]
