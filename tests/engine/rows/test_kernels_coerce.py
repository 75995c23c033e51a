"""Coercion: what each type takes from JSON, what it becomes, and which wrong values the lenient grammar forgives."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.columns import BLOB_CELL, arrow_type
from omnigraph.engine.rows.kernels.coerce import Column, UnfitError, WrongShapeError, coerce, from_stored, stored_scalar
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import parse_datetime

STRING = PropertyType(Scalar.STRING, nullable=True)
BOOL = PropertyType(Scalar.BOOL, nullable=True)
I32 = PropertyType(Scalar.I32, nullable=True)
I64 = PropertyType(Scalar.I64, nullable=True)
U32 = PropertyType(Scalar.U32, nullable=True)
U64 = PropertyType(Scalar.U64, nullable=True)
F32 = PropertyType(Scalar.F32, nullable=True)
F64 = PropertyType(Scalar.F64, nullable=True)
DATE = PropertyType(Scalar.DATE, nullable=True)
DATETIME = PropertyType(Scalar.DATETIME, nullable=True)
BLOB = PropertyType(Scalar.BLOB, nullable=True)
VECTOR = PropertyType.vector(3, nullable=True)
INTS = PropertyType(Scalar.I32, nullable=True, list=True)
STRINGS = PropertyType(Scalar.STRING, nullable=True, list=True)
DATES = PropertyType(Scalar.DATE, nullable=True, list=True)


def stored(column: Column) -> list[Any]:
    """The column as stored values: instants as their integers."""
    array = column.array
    if array.type == pa.date32():
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif array.type == arrow_type(DATES):
        return [None if row.as_py() is None else row.values.cast(pa.int32()).to_pylist() for row in array]
    values: list[Any] = array.to_pylist()
    return values


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (STRING, "", ""),
        (STRING, "ünï\0", "ünï\0"),
        (BOOL, False, False),
        (I32, -(2**31), -(2**31)),
        (I64, 2**63 - 1, 2**63 - 1),
        (U32, 2**32 - 1, 2**32 - 1),
        (U64, 2**64 - 1, 2**64 - 1),
        (F32, 16777217, 16777216.0),
        (F32, 0.1, 0.10000000149011612),
        (F32, 3.40282356e38, 3.4028234663852886e38),
        (F64, 3, 3.0),
        (F64, 2**53 + 1, 2.0**53),
        (F64, 10**30, 1e30),
        (DATE, "2031-05-04", 22403),
        (DATE, "2031-5-4", 22403),
        (DATE, "20310504", 22403),
        (DATE, "2031-05-04T23:30:00-01:00", 22404),
        (DATE, "+12031-05-04", 3674828),
        (DATE, 22403, 22403),
        (DATE, -(2**31), -(2**31)),
        (DATETIME, "2031-05-04", 22403 * 86_400_000),
        (DATETIME, "2031-05-04T10:00:00Z", 1935655200000),
        (DATETIME, "2031-05-04 10:00:00", 1935655200000),
        (DATETIME, "2031-05-04t100000z", 1935655200000),
        (DATETIME, "2031-05-04T10:00:00.123987Z", 1935655200123),
        (DATETIME, "2031-05-04T12:30:00 +02:30", 1935655200000),
        (DATETIME, "2031-05-04T12:00:00+02", 1935655200000),
        (DATETIME, 1935655200000, 1935655200000),
        (INTS, [], []),
        (INTS, [1, 2], [1, 2]),
        (STRINGS, ["a", ""], ["a", ""]),
        (DATES, ["2031-05-04", 22403], [22403, 22403]),
        (VECTOR, [1, 2.5, -3], [1.0, 2.5, -3.0]),
        (BLOB, "base64:QUJD", {"data": b"ABC", "uri": None}),
        (BLOB, "base64:", {"data": b"", "uri": None}),
        (BLOB, "s3://bucket/key", {"data": None, "uri": "s3://bucket/key"}),
        (BLOB, "anything", {"data": None, "uri": "anything"}),
    ],
)
@pytest.mark.parametrize("grammar", Grammar)
def test_accepted_values(type_: PropertyType, value: object, expected: object, grammar: Grammar) -> None:
    column = coerce(type_, [value, None], grammar)
    assert column.unfit == {}
    assert column.array.type == arrow_type(type_)
    assert stored(column) == [expected, None]


@pytest.mark.parametrize(
    ("type_", "value", "mentions"),
    [
        (I32, 2**31, "range of I32"),
        (U32, -1, "range of U32"),
        (U64, -1, "range of U64"),
        (I64, 2**63, "range of I64"),
        (F32, 3.5e38, "exceeds Float32 range"),
        (F32, 10**39, "exceeds Float32 range"),
        (F64, math.nan, "not finite"),
        (DATE, "2031-02-29", "invalid Date literal"),
        (DATE, "", "invalid Date literal"),
        (DATE, 2**31, "range"),
        (DATETIME, "2031-05-04T10:00", "invalid DateTime literal"),
        (DATETIME, "2031-05-04T10:00:60Z", "invalid DateTime literal"),
        (DATETIME, 2**63, "range"),
        (INTS, 5, "expects [I32]"),
        (INTS, [2**31], "range of I32"),
        (DATES, ["2031-05-04", "soon"], "invalid Date literal"),
        (VECTOR, [1, 2], "expects 3 dimensions, got 2"),
        (VECTOR, [1, None, 3], "elements must be numeric"),
        (VECTOR, [1, True, 3], "elements must be numeric"),
        (VECTOR, [1, "2", 3], "elements must be numeric"),
        (VECTOR, [1, 1e39, 3], "exceeds Float32 range"),
        (BLOB, 5, "expects Blob"),
        (BLOB, "", "empty string"),
        (BLOB, "base64:QUJ", "invalid base64"),
        (BLOB, "base64:QUJ=", "invalid base64"),
        (BLOB, "base64:QR==", "invalid base64"),
        (BLOB, "base64:QU-_", "invalid base64"),
        (BLOB, "base64: QUJD", "invalid base64"),
    ],
)
@pytest.mark.parametrize("grammar", Grammar)
def test_refused_by_both_grammars(type_: PropertyType, value: object, mentions: str, grammar: Grammar) -> None:
    column = coerce(type_, [None, value, None], grammar)
    assert list(column.unfit) == [1]
    assert mentions in column.unfit[1]
    assert stored(column) == [None, None, None]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (STRING, 5),
        (STRING, {"a": 1}),
        (BOOL, 1),
        (BOOL, "true"),
        (I32, 3.0),
        (I32, "3"),
        (I32, True),
        (I64, 2**64),
        (U64, 2**64),
        (I64, -(2**63) - 1),
        (F64, "1"),
        (F32, True),
        (DATE, 1.5),
        (DATE, True),
        (DATE, 2**64),
        (DATETIME, []),
        (VECTOR, "1,2,3"),
        (VECTOR, {"x": 1}),
    ],
)
def test_another_json_type_is_refused_strictly_and_null_leniently(type_: PropertyType, value: object) -> None:
    assert "expects" in coerce(type_, [value], Grammar.STRICT).unfit[0]
    lenient = coerce(type_, [value], Grammar.LENIENT)
    assert (stored(lenient), lenient.unfit, lenient.nulled) == ([None], {}, 1)


@pytest.mark.parametrize("item", [None, "x", 2.0, True, [1]])
def test_a_bad_list_item_is_refused_strictly_and_null_leniently(item: object) -> None:
    strict = coerce(INTS, [[1], [2, item], None], Grammar.STRICT)
    assert list(strict.unfit) == [1]
    assert "null or invalid item at index 1" in strict.unfit[1]
    assert stored(strict) == [[1], None, None]
    lenient = coerce(INTS, [[1], [2, item], None], Grammar.LENIENT)
    assert (stored(lenient), lenient.nulled) == ([[1], [2, None], None], 0 if item is None else 1)


def test_a_non_nullable_vector_refuses_another_shape_under_both_grammars() -> None:
    for grammar in Grammar:
        assert "expects Vector(3)" in coerce(PropertyType.vector(3), ["x"], grammar).unfit[0]


def test_a_column_without_rows_has_its_type() -> None:
    for type_ in (STRING, I64, F32, DATE, DATETIME, INTS, DATES, VECTOR, BLOB):
        assert coerce(type_, []).array.type == arrow_type(type_)
    assert coerce(BLOB, []).array.type == BLOB_CELL


_date_texts = st.one_of(
    st.dates().map(str),
    st.from_regex(r"[+-]?[0-9]{3,5}-?[0-1]?[0-9]-?[0-3]?[0-9]", fullmatch=True),
    st.datetimes().map(lambda d: d.isoformat()),
    st.datetimes().map(lambda d: d.isoformat(" ", "milliseconds") + "Z"),
    st.from_regex(
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7})?)?"
        r"([Zz]|[ ]?[+-][0-2][0-9](:?[0-6][0-9])?)?",
        fullmatch=True,
    ),
    st.text(max_size=12),
)
_anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.text(max_size=4),
    _date_texts,
    st.lists(st.integers(0, 3), max_size=2),
)
_SCALARS = [scalar for scalar in Scalar if scalar not in (Scalar.BLOB, Scalar.VECTOR)]
_LIKELY: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(max_size=5),
    Scalar.BOOL: st.booleans(),
    Scalar.F32: st.floats(allow_nan=False) | st.integers(-(2**66), 2**66),
    Scalar.F64: st.floats(allow_nan=False) | st.integers(-(2**66), 2**66),
    Scalar.DATE: _date_texts,
    Scalar.DATETIME: _date_texts,
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(_SCALARS), st.sampled_from(Grammar))
def test_a_column_is_its_values_one_by_one(data: st.DataObject, scalar: Scalar, grammar: Grammar) -> None:
    likely = _LIKELY.get(scalar, st.integers(-(2**33), 2**33))
    values = data.draw(st.lists(st.none() | likely, max_size=6) | st.lists(_anything, max_size=4))
    expected: list[Any] = []
    unfit: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            expected.append(None if value is None else stored_scalar(scalar, value))
        except UnfitError as error:
            expected.append(None)
            if grammar is Grammar.STRICT or not isinstance(error, WrongShapeError):
                unfit[row] = str(error)
    column = coerce(PropertyType(scalar, nullable=True), values, grammar)
    assert dict(column.unfit) == unfit
    assert column.array.equals(from_stored(scalar, expected))


@settings(deadline=None)
@given(st.lists(st.datetimes().map(lambda d: d.isoformat("T", "milliseconds") + "Z"), min_size=1, max_size=4))
def test_common_timestamps_are_read_like_any_other(texts: list[str]) -> None:
    assert stored(coerce(DATETIME, texts)) == [parse_datetime(text) for text in texts]
