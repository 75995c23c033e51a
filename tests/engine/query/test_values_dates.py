"""Functions of days and instants, against `datetime` and, beyond its years, against the scalar calendar."""

from __future__ import annotations

import calendar
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.dates import MILLIS_PER_DAY, civil_from_days, days_from_civil, format_date, format_datetime
from omnigraph.engine.query.values.evaluate import constant_value
from omnigraph.errors import EvaluationError, EvaluationRule
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import DATE, DATETIME
from tests.engine.query.value_rows import Rows, call, constant, value_of

DAY, INSTANT = DATE.as_nullable(), DATETIME.as_nullable()
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

days = st.dates()
instants = st.datetimes(timezones=st.just(datetime.UTC)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
)
far_days = st.integers(-(2**31), 2**31 - 1)
far_millis = st.integers(-(2**62), 2**62)
steps = st.integers(-40_000, 40_000)


def plain(value: ir.Value) -> Any:
    """Days or milliseconds."""
    return constant_value(value, Rows({}).context)


def millis_of(instant: datetime.datetime) -> int:
    return (instant - EPOCH) // datetime.timedelta(milliseconds=1)


def days_of(day: datetime.date) -> int:
    return (day - EPOCH.date()).days


def date_constant(number: int) -> ir.Constant:
    return ir.Constant(format_date(number), DATE)


def instant_constant(number: int) -> ir.Constant:
    return ir.Constant(format_datetime(number), DATETIME)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.none() | days, min_size=1, max_size=4), st.booleans())
def test_parts_of_days(values: list[datetime.date | None], shared: bool) -> None:
    rows = Rows({"d": (DAY, values)}, shared=shared)
    for name, part in (("year", "year"), ("month", "month"), ("day", "day"), ("weekday", "isoweekday")):
        expected = [None if each is None else getattr(each, part) for each in values]
        if part == "isoweekday":
            expected = [None if each is None else each.isoweekday() for each in values]
        assert rows.values(call(name, rows.variable("d"))) == expected
    texts = rows.values(call("to_string", rows.variable("d")))
    assert texts == [None if each is None else each.isoformat() for each in values]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.none() | instants, min_size=1, max_size=4), st.booleans())
def test_parts_of_instants(values: list[datetime.datetime | None], shared: bool) -> None:
    rows = Rows({"t": (INSTANT, values)}, shared=shared)
    for name in ("year", "month", "day", "hour", "minute", "second"):
        expected = [None if each is None else getattr(each, name) for each in values]
        assert rows.values(call(name, rows.variable("t"))) == expected
    assert rows.values(call("date", rows.variable("t"))) == [None if t is None else t.date() for t in values]
    texts = call("to_string", rows.variable("t"))
    assert rows.values(call("datetime", texts)) == values


@settings(max_examples=80, deadline=None)
@given(far_days, far_millis)
def test_the_calendar_has_no_end(day: int, millis: int) -> None:
    year, month, of_month = civil_from_days(day)
    parts = [value_of(call(name, date_constant(day))) for name in ("year", "month", "day")]
    assert parts == [year, month, of_month]
    assert plain(call("date", call("to_string", date_constant(day)))) == day
    assert plain(call("datetime", date_constant(day))) == day * MILLIS_PER_DAY
    whole = millis // MILLIS_PER_DAY
    assert value_of(call("weekday", instant_constant(millis))) == (whole + 3) % 7 + 1
    assert value_of(call("year", instant_constant(millis))) == civil_from_days(whole)[0]


def shifted(year: int, month: int, day: int, months: int) -> int:
    """The day so many months later, or the last one of its month."""
    total = year * 12 + month - 1 + months
    year, month = total // 12, total % 12 + 1
    # The Gregorian calendar repeats every 400 years.
    last = calendar.monthrange(year % 400 + 400, month)[1]
    return days_from_civil(year, month, min(day, last))


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**30), 2**30), far_millis, steps)
def test_days_months_and_seconds_are_added(day: int, millis: int, count: int) -> None:
    assert plain(call("add_days", date_constant(day), count)) == day + count
    assert plain(call("add_days", instant_constant(millis), count)) == millis + count * MILLIS_PER_DAY
    assert plain(call("add_seconds", instant_constant(millis), count)) == millis + count * 1000
    assert plain(call("add_months", date_constant(day), count)) == shifted(*civil_from_days(day), count)
    whole, of_day = divmod(millis, MILLIS_PER_DAY)
    moved = shifted(*civil_from_days(whole), count) * MILLIS_PER_DAY + of_day
    assert plain(call("add_months", instant_constant(millis), count)) == moved


@pytest.mark.parametrize(
    ("start", "months", "result"),
    [("2024-01-31", 1, "2024-02-29"), ("2023-01-31", 1, "2023-02-28"), ("2024-03-31", -1, "2024-02-29"),
     ("2024-12-15", 1, "2025-01-15"), ("2024-01-15", -1, "2023-12-15"), ("2024-02-29", 12, "2025-02-28")],
)  # fmt: skip
def test_a_month_end_is_clamped(start: str, months: int, result: str) -> None:
    assert value_of(call("add_months", ir.Constant(start, DATE), months)).isoformat() == result


def truncated(difference: int, unit: int) -> int:
    return difference // unit if difference >= 0 else -(-difference // unit)


@settings(max_examples=80, deadline=None)
@given(far_millis, far_millis, st.integers(-(2**30), 2**30))
def test_what_lies_between(first: int, second: int, day: int) -> None:
    a, b, d = instant_constant(first), instant_constant(second), date_constant(day)
    assert value_of(call("seconds_between", a, b)) == truncated(second - first, 1000)
    assert value_of(call("days_between", a, b)) == truncated(second - first, MILLIS_PER_DAY)
    assert value_of(call("days_between", d, b)) == truncated(second - day * MILLIS_PER_DAY, MILLIS_PER_DAY)
    assert value_of(call("days_between", d, date_constant(day + 3))) == 3


def test_days_between_columns() -> None:
    first, second = datetime.date(2024, 1, 1), datetime.date(2023, 12, 25)
    rows = Rows({"a": (DAY, [first, None]), "b": (DAY, [second, second])}, shared=True)
    assert rows.values(call("days_between", rows.variable("a"), rows.variable("b"))) == [-7, None]


@pytest.mark.parametrize("name", ["date", "datetime"])
def test_a_text_that_is_not_a_date_is_refused(name: str) -> None:
    rows = Rows({"s": (constant("").type, ["2024-02-29", "2023-02-29"])})
    with pytest.raises(EvaluationError, match="2023-02-29") as raised:
        rows.values(call(name, rows.variable("s")))
    assert raised.value.rule is EvaluationRule.BAD_ARGUMENT


@pytest.mark.parametrize(
    "value",
    [
        call("add_days", date_constant(2**31 - 1), 1),
        call("add_days", date_constant(0), 2**62),
        call("add_days", instant_constant(0), 2**62),
        call("add_seconds", instant_constant(2**62), 2**53),
        call("add_months", date_constant(0), 2**40),
        call("add_months", date_constant(2**31 - 1), 1),
        call("add_months", instant_constant(2**62), 12 * 2**31),
        call("date", instant_constant(2**62)),
        call("seconds_between", instant_constant(-(2**62) - 1), instant_constant(2**62)),
    ],
)
def test_dates_end_where_their_columns_do(value: ir.Value) -> None:
    with pytest.raises(EvaluationError) as raised:
        plain(value)
    assert raised.value.rule is EvaluationRule.ARITHMETIC_OVERFLOW
