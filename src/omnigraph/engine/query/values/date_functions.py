"""Functions of days and instants, in UTC.

A Date is a count of days and a DateTime one of milliseconds, both from 1970; what they reach beyond the years 1 to 9999
is calculated here like any other. A kernel gets columns without nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.dates import MILLIS_PER_DAY, format_date, format_datetime
from omnigraph.engine.query.values.arithmetic import call_checked, integers
from omnigraph.engine.query.values.elementwise import Argument, Kernel, Part
from omnigraph.errors import BadRequestError, EvaluationRule
from omnigraph.language.values import parse_date, parse_datetime

_DATE: Final = pa.date32()
_DATETIME: Final = pa.timestamp("ms", tz="UTC")
_MILLIS_PER_SECOND: Final = 1000
_MONTHS: Final = 12
_FIRST_DAY, _LAST_DAY = -(2**31), 2**31 - 1
_LONGEST_MONTHS: Final = _MONTHS * 2**31

Numbers: TypeAlias = NDArray[np.int64]


def _is_date(argument: Argument) -> bool:
    return bool(pa.types.is_date32(argument.type))


def _numbers(part: Part, argument: Argument) -> Numbers:
    return part.numbers(argument).astype(np.int64, copy=False)


def _days(part: Part, argument: Argument) -> Numbers:
    """The UTC day of a Date or a DateTime."""
    numbers = _numbers(part, argument)
    return numbers if _is_date(argument) else numbers // MILLIS_PER_DAY


def _millis(part: Part, argument: Argument) -> Numbers:
    """The instant of a DateTime, or the one at which a Date begins."""
    numbers = _numbers(part, argument)
    return numbers * np.int64(MILLIS_PER_DAY) if _is_date(argument) else numbers


def _date_array(part: Part, days: Numbers) -> pa.Array:
    if len(days) and not _FIRST_DAY <= int(days.min()) <= int(days.max()) <= _LAST_DAY:
        part.fail(EvaluationRule.ARITHMETIC_OVERFLOW, "the day is outside of what a Date can hold")
    return pa.array(days.astype(np.int32)).cast(_DATE)


def _datetime_array(millis: Numbers) -> pa.Array:
    return pa.array(millis).cast(_DATETIME)


# ---- the calendar ---------------------------------------------------------------------------------------


def _civil(days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Year, month and day: `dates.civil_from_days` for columns."""
    era, day_of_era = np.divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = np.where(shifted < 10, shifted + 3, shifted - 9)
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def _days_of_civil(year: Numbers, month: Numbers, day: Numbers) -> Numbers:
    """`dates.days_from_civil` for columns."""
    year = year - (month <= 2)
    era, year_of_era = np.divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days: Numbers = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    return days


def _calendar_part(index: int) -> Kernel:
    return lambda part, date: pa.array(_civil(_days(part, date))[index])


def _clock_part(millis: int, count: int) -> Kernel:
    return lambda part, instant: pa.array(_numbers(part, instant) // millis % count)


def _weekday(part: Part, date: Argument) -> pa.Array:
    """Monday is 1. The first day of 1970 was a Thursday."""
    return pa.array((_days(part, date) + 3) % 7 + 1)


# ---- calculations ---------------------------------------------------------------------------------------


def _scale(part: Part, count: Argument, factor: int) -> pa.Array:
    numbers = integers(part, count)
    return call_checked(part, pc.multiply_checked, numbers, np.full(part.size, factor))


def _add_days(part: Part, date: Argument, count: Argument) -> pa.Array:
    if _is_date(date):
        days = call_checked(part, pc.add_checked, _numbers(part, date), integers(part, count))
        return _date_array(part, days.to_numpy())
    return _add_millis(part, date, count, MILLIS_PER_DAY)


def _add_seconds(part: Part, instant: Argument, count: Argument) -> pa.Array:
    return _add_millis(part, instant, count, _MILLIS_PER_SECOND)


def _add_millis(part: Part, instant: Argument, count: Argument, factor: int) -> pa.Array:
    added = _scale(part, count, factor).to_numpy()
    return _datetime_array(call_checked(part, pc.add_checked, _numbers(part, instant), added).to_numpy())


def _add_months(part: Part, date: Argument, count: Argument) -> pa.Array:
    """The same day of another month, or its last one."""
    added = integers(part, count)
    if len(added) and not -_LONGEST_MONTHS <= int(added.min()) <= int(added.max()) <= _LONGEST_MONTHS:
        part.fail(EvaluationRule.ARITHMETIC_OVERFLOW, "so many months are outside of what a date can hold")
    days = _days(part, date)
    year, month, day = _civil(days)
    years, months = np.divmod(year * _MONTHS + (month - 1) + added, _MONTHS)
    after, month_after = np.where(months == _MONTHS - 1, years + 1, years), (months + 1) % _MONTHS + 1
    first = _days_of_civil(years, months + 1, np.ones_like(day))
    last = _days_of_civil(after, month_after, np.ones_like(day)) - 1
    moved = np.minimum(first + day - 1, last)
    if _is_date(date):
        return _date_array(part, moved)
    whole = call_checked(part, pc.multiply_checked, moved, np.full(part.size, MILLIS_PER_DAY)).to_numpy()
    of_day = _numbers(part, date) - days * MILLIS_PER_DAY
    return _datetime_array(call_checked(part, pc.add_checked, whole, of_day).to_numpy())


def _between(millis: int) -> Kernel:
    """How many whole units lie between two dates: the second minus the first, toward zero."""

    def kernel(part: Part, first: Argument, second: Argument) -> pa.Array:
        difference = call_checked(part, pc.subtract_checked, _millis(part, second), _millis(part, first))
        return pc.divide(difference, millis)

    return kernel


# ---- conversions ----------------------------------------------------------------------------------------


def _date(part: Part, value: Argument) -> pa.Array:
    if pa.types.is_string(value.type):
        return _date_array(part, _parse(part, value, parse_date))
    return value if _is_date(value) else _date_array(part, _days(part, value))


def _datetime(part: Part, value: Argument) -> pa.Array:
    if pa.types.is_string(value.type):
        return _datetime_array(_parse(part, value, parse_datetime))
    return _datetime_array(_millis(part, value)) if _is_date(value) else value


def _parse(part: Part, texts: Argument, parse: Callable[[str], int]) -> Numbers:
    try:
        return np.fromiter((parse(text) for (text,) in part.each(texts)), np.int64, part.size)
    except BadRequestError as error:
        part.fail(EvaluationRule.BAD_ARGUMENT, error.message)


def date_texts(part: Part, dates: Argument) -> pa.Array:
    """Days and instants as ISO 8601 has them."""
    spell = format_date if _is_date(dates) else format_datetime
    return pa.array([spell(number) for number in part.watch(_numbers(part, dates).tolist())], pa.string())


DATE_FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "date": _date,
    "datetime": _datetime,
    "year": _calendar_part(0),
    "month": _calendar_part(1),
    "day": _calendar_part(2),
    "hour": _clock_part(3_600_000, 24),
    "minute": _clock_part(60_000, 60),
    "second": _clock_part(_MILLIS_PER_SECOND, 60),
    "weekday": _weekday,
    "add_days": _add_days,
    "add_months": _add_months,
    "add_seconds": _add_seconds,
    "days_between": _between(MILLIS_PER_DAY),
    "seconds_between": _between(_MILLIS_PER_SECOND),
}
