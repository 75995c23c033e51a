"""Scalar values: date texts, canonical key texts, and which types can meet."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.api import wire
from omnigraph.dates import format_date, format_datetime
from omnigraph.errors import BadRequestError
from omnigraph.language.schema.migration import type_output
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import (
    canonical_text,
    composite_id,
    fnv1a64,
    parse_date,
    parse_datetime,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DATES = [
    ("1970-01-01", 0),
    ("2031-05-04", 22403),
    ("2031-5-4", 22403),
    ("20310504", 22403),
    ("2000-02-29", 11016),
    ("1969-12-31", -1),
    ("0000-03-01", -719468),
    ("2024-05-01T23:30:00-02:00", 19845),
    ("2024-05-01T00:30:00+02:00", 19843),
    ("+12000-01-01", 3663382),
    ("-0001-12-31", -719529),
]


@pytest.mark.parametrize(("text", "days"), DATES)
def test_dates(text: str, days: int) -> None:
    assert parse_date(text) == days


@pytest.mark.parametrize(
    "text",
    ["", "2024", "2024-13-01", "2024-00-10", "2023-02-29", "1900-02-29", "2024-02-30", "24-01-01", "2024-1-1x",
     "2024/01/01", " 2024-01-01", "٢٠٢٤-٠١-٠١", "2024-001-01", "+999999999-01-01", "2024-01-01T10:00"],
)  # fmt: skip
def test_bad_dates(text: str) -> None:
    with pytest.raises(BadRequestError, match="invalid Date literal"):
        parse_date(text)


TIMES = [
    ("1970-01-01", 0),
    ("2024-05-01T10:00:00Z", 1714557600000),
    ("2024-05-01t10:00:00z", 1714557600000),
    ("2024-05-01 10:00:00", 1714557600000),
    ("20240501T100000", 1714557600000),
    ("2024-05-01T10:00:00.1239", 1714557600123),
    ("2024-05-01T10:00:00.5Z", 1714557600500),
    ("2024-05-01T12:00:00+02:00", 1714557600000),
    ("2024-05-01T12:00:00+0200", 1714557600000),
    ("2024-05-01T12:00:00 +02", 1714557600000),
    ("2024-05-01T04:30:00-05:30", 1714557600000),
    ("1969-12-31T23:59:59.999", -1),
]


@pytest.mark.parametrize(("text", "millis"), TIMES)
def test_datetimes(text: str, millis: int) -> None:
    assert parse_datetime(text) == millis


@pytest.mark.parametrize(
    "text",
    ["", "now", "2024-05-01T10:00", "2024-05-01T24:00:00", "2024-05-01T10:60:00", "2024-05-01T10:00:60",
     "2024-05-01T10:00:00.", "2024-05-01T10:00:00+25:00", "2024-05-01T10:00:00 UTC", "2024-05-01T",
     "2024-05-01  10:00:00", "2024-05-01T10:00:00ZZ"],
)  # fmt: skip
def test_bad_datetimes(text: str) -> None:
    with pytest.raises(BadRequestError, match="invalid DateTime literal"):
        parse_datetime(text)


@given(st.dates())
def test_dates_agree_with_the_calendar(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert parse_date(day.isoformat()) == days
    assert format_date(days) == day.isoformat()


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_date_reads_back(days: int) -> None:
    assert parse_date(format_date(days)) == days


@given(st.datetimes(timezones=st.just(UTC)))
def test_datetimes_agree_with_the_calendar(moment: datetime) -> None:
    millis = (moment - EPOCH) // timedelta(milliseconds=1)
    assert parse_datetime(moment.isoformat()) == millis
    assert parse_datetime(format_datetime(millis)) == millis


CANONICAL = [
    (Scalar.STRING, "as is, \u00e9", "as is, \u00e9"),
    (Scalar.BOOL, True, "true"),
    (Scalar.BOOL, False, "false"),
    (Scalar.I32, -7, "-7"),
    (Scalar.U64, 2**64 - 1, "18446744073709551615"),
    (Scalar.DATE, 22403, "22403"),
    (Scalar.DATETIME, -1, "-1"),
    (Scalar.F64, 1.0, "1"),
    (Scalar.F64, -0.0, "0"),
    (Scalar.F64, 1e-7, "0.0000001"),
    (Scalar.F64, 1e22, "10000000000000000000000"),
    (Scalar.F64, 0.1, "0.1"),
    (Scalar.F32, 0.1, "0.1"),
    (Scalar.F32, 16777217, "16777216"),
    (Scalar.F32, 3.4028234663852886e38, "340282350000000000000000000000000000000"),
    (Scalar.F32, 1.401298464324817e-45, "0.000000000000000000000000000000000000000000001"),
]


@pytest.mark.parametrize(("scalar", "value", "text"), CANONICAL)
def test_canonical_key_text(scalar: Scalar, value: str | int | float, text: str) -> None:
    assert canonical_text(scalar, value) == text


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar.F64, float("nan")),
        (Scalar.F64, float("inf")),
        (Scalar.F32, 1e39),
        (Scalar.I32, 2**31),
        (Scalar.U32, -1),
        (Scalar.I32, 1.5),
        (Scalar.I32, True),
        (Scalar.STRING, 5),
        (Scalar.VECTOR, 5),
    ],
)
def test_values_that_identify_nothing(scalar: Scalar, value: str | int | float) -> None:
    with pytest.raises(BadRequestError):
        canonical_text(scalar, value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_key_reads_back_and_has_no_exponent(value: float) -> None:
    text = canonical_text(Scalar.F64, value)
    assert float(text) == value
    assert set(text) <= set("-0123456789.")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_short_float_key_reads_back_and_is_the_shortest(value: float) -> None:
    text = canonical_text(Scalar.F32, value)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value + 0.0 if value else 0.0)
    digits = text.replace(".", "").replace("-", "").strip("0")
    assert len(digits) <= 9


def test_composite_ids_are_compact_json() -> None:
    assert composite_id(["3", "978-0"]) == '["3","978-0"]'
    assert composite_id(['a"b', "\u00e9"]) == '["a\\"b","\u00e9"]'


def test_fnv() -> None:
    assert fnv1a64("") == 0xCBF29CE484222325
    assert fnv1a64("foobar") == 0x85944171F73967E8


STRING, I32, F64 = PropertyType(Scalar.STRING), PropertyType(Scalar.I32), PropertyType(Scalar.F64)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (I32, F64, True),
        (I32, I32.as_nullable(), True),
        (STRING, PropertyType.enum(("a",)), True),
        (STRING, PropertyType(Scalar.DATE), False),
        (PropertyType(Scalar.DATE), PropertyType(Scalar.DATETIME), False),
        (I32, PropertyType(Scalar.I32, list=True), False),
        (PropertyType(Scalar.I32, list=True), PropertyType(Scalar.F64, list=True), True),
        (PropertyType.vector(3), PropertyType.vector(3), True),
        (PropertyType.vector(3), PropertyType.vector(4), False),
        (PropertyType.vector(3), F64, False),
        (PropertyType(Scalar.BOOL), I32, False),
    ],
)
def test_compatibility_is_symmetric(left: PropertyType, right: PropertyType, expected: bool) -> None:
    assert left.compatible_with(right) is expected
    assert right.compatible_with(left) is expected


@pytest.mark.parametrize(
    ("type_", "display", "form"),
    [
        (I32.as_nullable(), "I32?", {"scalar": "I32", "nullable": True, "list": False, "enum_values": None}),
        (
            PropertyType(Scalar.STRING, list=True, nullable=True),
            "[String]?",
            {"scalar": "String", "nullable": True, "list": True, "enum_values": None},
        ),
        (
            PropertyType.vector(4),
            "Vector(4)",
            {"scalar": {"Vector": 4}, "nullable": False, "list": False, "enum_values": None},
        ),
        (
            PropertyType.enum(("c", "a", "b")),
            "enum(a, b, c)",
            {"scalar": "String", "nullable": False, "list": False, "enum_values": ["a", "b", "c"]},
        ),
    ],
)
def test_display_and_wire_form(type_: PropertyType, display: str, form: dict[str, object]) -> None:
    assert str(type_) == str(type_output(type_)) == display
    assert wire.to_builtins(type_output(type_)) == form
