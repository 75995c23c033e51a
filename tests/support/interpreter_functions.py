"""The functions of the query language on plain Python values, written from their descriptions and not from the engine.

Days and instants are integers of their own classes, so that a function knows which of them it gets. A caller has taken
care of nulls: no argument is one.
"""

from __future__ import annotations

import calendar
import datetime
import math
import operator
import re
import statistics
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from omnigraph.errors import EvaluationRule
from omnigraph.language.values import parse_date, parse_datetime

MILLIS_PER_DAY = 86_400_000
EPOCH = datetime.date(1970, 1, 1)


class Day(int):
    """A Date: days since 1970."""


class Instant(int):
    """A DateTime: milliseconds since 1970."""


class RuleError(Exception):
    """A calculation that the language refuses."""

    def __init__(self, rule: EvaluationRule) -> None:
        super().__init__(rule)
        self.rule = rule


def integer(value: int) -> int:
    """An integer that a calculation takes or gives."""
    if not -(2**63) <= value < 2**63:
        raise RuleError(EvaluationRule.ARITHMETIC_OVERFLOW)
    return value


def calculate(sign: str, left: Any, right: Any) -> Any:
    """`left sign right`"""
    if isinstance(left, str | list):
        return left + right
    for side in (left, right):
        if isinstance(side, int):
            integer(side)
    if isinstance(left, float) or isinstance(right, float):
        return _of_floats(sign, float(left), float(right))
    if sign in "/%":
        if right == 0:
            raise RuleError(EvaluationRule.DIVISION_BY_ZERO)
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return integer(quotient) if sign == "/" else left - quotient * right
    return integer({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right))


def _of_floats(sign: str, left: float, right: float) -> float:
    if sign == "/":
        if right:
            return left / right
        return math.nan if left == 0 else math.copysign(math.inf, left) * math.copysign(1, right)
    if sign == "%":
        return math.fmod(left, right) if right and not math.isinf(left) else math.nan
    return float({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right))


# ---- numbers --------------------------------------------------------------------------------------------


def _sign(x: Any) -> Any:
    return type(x)((x > 0) - (x < 0))


def _round(x: Any, digits: int = 0) -> float:
    scaled = Decimal(repr(float(x))).scaleb(digits) + Decimal("0.5")
    return float(scaled.to_integral_value(ROUND_FLOOR).scaleb(-digits))


def _to_int(x: Any) -> int | None:
    if not isinstance(x, str):
        return integer(math.trunc(x))
    if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", x) is None:
        return None
    number = math.trunc(Fraction(x))
    return number if -(2**63) <= number < 2**63 else None


def _to_float(x: Any) -> float | None:
    if isinstance(x, str):
        return float(x) if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", x) else None
    return float(x)


def _to_bool(x: Any) -> bool | None:
    return {"true": True, "false": False}.get(x.lower()) if isinstance(x, str) else x


# ---- texts ----------------------------------------------------------------------------------------------


def _part(text: str, start: int, count: int | None = None) -> str:
    if start < 0 or (count is not None and count < 0):
        raise RuleError(EvaluationRule.BAD_ARGUMENT)
    return text[start:] if count is None else text[start : start + count]


def _right(text: str, count: int) -> str:
    return _part(text, max(0, len(text) - count), count)


def _split(text: str, by: str) -> list[str]:
    return text.split(by) if by else list(text)


def _join(texts: Sequence[str | None], by: str) -> str | None:
    return None if None in texts else by.join(map(str, texts))


def _to_string(x: Any) -> str:
    match x:
        case bool():
            return str(x).lower()
        case Day():
            return to_date(x).isoformat()
        case Instant():
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=x)
            return moment.isoformat(timespec="milliseconds") + "Z"
    return str(x)


# ---- dates ----------------------------------------------------------------------------------------------


def to_date(x: Day | Instant) -> datetime.date:
    return EPOCH + datetime.timedelta(days=x if isinstance(x, Day) else x // MILLIS_PER_DAY)


def _date(x: Any) -> Day:
    return Day(parse_date(x)) if isinstance(x, str) else Day((to_date(x) - EPOCH).days)


def _datetime(x: Any) -> Instant:
    if isinstance(x, str):
        return Instant(parse_datetime(x))
    return Instant(_millis(x))


def _millis(x: Day | Instant) -> int:
    return x * MILLIS_PER_DAY if isinstance(x, Day) else int(x)


def _add_days(x: Day | Instant, count: int) -> Day | Instant:
    return Day(x + count) if isinstance(x, Day) else Instant(x + count * MILLIS_PER_DAY)


def _add_months(x: Day | Instant, count: int) -> Day | Instant:
    date = to_date(x)
    years, months = divmod(date.year * 12 + date.month - 1 + count, 12)
    moved = date.replace(year=years, month=months + 1, day=min(date.day, calendar.monthrange(years, months + 1)[1]))
    return _add_days(x, (moved - date).days)


def _between(unit: int) -> Callable[[Day | Instant, Day | Instant], int]:
    return lambda first, second: math.trunc(Fraction(_millis(second) - _millis(first), unit))


# ---- lists ----------------------------------------------------------------------------------------------


def _item(items: list[Any], index: int) -> Any:
    return items[index] if -len(items) <= index < len(items) else None


def _range(first: int, last: int, step: int = 1) -> list[int]:
    if step == 0:
        raise RuleError(EvaluationRule.BAD_ARGUMENT)
    return list(range(first, last + (1 if step > 0 else -1), step))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "ltrim": str.lstrip,
    "rtrim": str.rstrip,
    "reverse": lambda x: x[::-1],
    "left": lambda text, count: _part(text, 0, count),
    "right": _right,
    "substring": _part,
    "replace": str.replace,
    "split": _split,
    "join": _join,
    "size": len,
    "ends_with": str.endswith,
    "matches": lambda text, pattern: re.fullmatch(pattern, text) is not None,
    "abs": lambda x: abs(x) if isinstance(x, float) else integer(abs(x)),
    "sign": _sign,
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "round": _round,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "exp": math.exp,
    "log": math.log,
    "log10": math.log10,
    "power": lambda x, y: float(x) ** float(y),
    "pi": lambda: math.pi,
    "e": lambda: math.e,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "atan2": math.atan2,
    "degrees": math.degrees,
    "radians": math.radians,
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "to_bool": _to_bool,
    "nullif": lambda a, b: None if a == b else a,
    "date": _date,
    "datetime": _datetime,
    "year": lambda x: to_date(x).year,
    "month": lambda x: to_date(x).month,
    "day": lambda x: to_date(x).day,
    "hour": lambda x: x // 3_600_000 % 24,
    "minute": lambda x: x // 60_000 % 60,
    "second": lambda x: x // 1000 % 60,
    "weekday": lambda x: to_date(x).isoweekday(),
    "add_days": _add_days,
    "add_months": _add_months,
    "add_seconds": lambda x, count: Instant(x + 1000 * count),
    "days_between": _between(MILLIS_PER_DAY),
    "seconds_between": _between(1000),
    "head": lambda items: _item(items, 0),
    "last": lambda items: _item(items, -1),
    "tail": lambda items: items[1:],
    "item": _item,
    "slice": lambda items, start, stop: items[start:stop],
    "range": _range,
    "length": lambda path: len(path.edges),
    "nodes": lambda path: list(path.nodes),
    "edges": lambda path: list(path.edges),
    "start": lambda path: path.nodes[0],
    "end": lambda path: path.nodes[-1],
}


# ---- aggregates of values that are not null -------------------------------------------------------------


def percentile(values: Sequence[Any], fraction: float, *, between: bool) -> Any:
    ordered = sorted(values)
    if not between:
        return ordered[max(0, math.ceil(round(fraction * len(ordered), 9)) - 1)]
    place = fraction * (len(ordered) - 1)
    low, high = float(ordered[math.floor(place)]), float(ordered[math.ceil(place)])
    return low + (high - low) * (place - math.floor(place))


def deviation(values: Sequence[Any], *, of_sample: bool) -> float:
    numbers = list(map(float, values))
    if len(numbers) == 1:
        return 0.0
    return statistics.stdev(numbers) if of_sample else statistics.pstdev(numbers)
