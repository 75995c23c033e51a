"""Default values: reads what is written behind `=` and checks it against the property's type and rules.

The reader of properties and the checks of types call it. A default is kept as a record of a load would give it, so
that one coercion serves both: numbers, truth values, texts (dates are texts), and lists of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import CheckRule, DefaultItem, DefaultValue, RangeRule
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.resolved import Report
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import FLOATS, INTEGER_RANGES, NUMERIC, PropertyType, Scalar
from omnigraph.language.values import matches_pattern, parse_date, parse_datetime

_MOST_DIGITS = 40
_LARGEST_F32 = (2 - 2**-23) * 2.0**127
_DATES = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}


class _UnfitError(Exception):
    """A value that its type does not take; the text completes the message, the second argument is a suggestion."""


def read_default(default: ast.Default, type_: PropertyType, subject: str, report: Report) -> DefaultValue | None:
    """The value of a default; None after a report."""
    if type_.is_vector or type_.is_blob:
        report(f"'{subject}' can't have a default: a {type_} has none", default.at)
        return None
    if default.is_list != type_.list:
        shape = "a list" if default.is_list else "a single value"
        report(f"the default of '{subject}' is {shape}, and the property is {type_}", default.at)
        return None
    items: list[DefaultItem] = []
    for value in default.values:
        try:
            items.append(_item(value, type_.item))
        except _UnfitError as unfit:
            message, *suggestion = unfit.args
            report(f"the default of '{subject}' {message}", value.at, *suggestion)
            return None
    return tuple(items) if type_.list else items[0]


def _item(value: ast.Value, type_: PropertyType) -> DefaultItem:
    if type_.enum_values is not None:
        if value.text not in type_.enum_values:
            near = did_you_mean(value.text, type_.enum_values)
            raise _UnfitError(f"is '{value.text}', which is not a value of {type_}", near)
        return value.text
    if value.kind == "name" and value.text == "null":
        raise _UnfitError("can't be null; leave it out: a nullable property is null where nothing is written")
    if value.kind == "string":
        return _text(value.text, type_)
    if value.kind == "bool" and type_.scalar is Scalar.BOOL:
        return value.text == "true"
    if value.kind == "number" and type_.scalar in NUMERIC and len(value.text) <= _MOST_DIGITS:
        return _number(value.text, type_)
    raise _UnfitError(f"is {value.text}, and the property is {type_}{_quoting_hint(value, type_)}")


def _text(text: str, type_: PropertyType) -> str:
    if type_.scalar is Scalar.STRING:
        return text
    if (parse := _DATES.get(type_.scalar)) is None:
        raise _UnfitError(f"is a string, and the property is {type_}")
    try:
        parse(text)
    except BadRequestError as error:
        raise _UnfitError(f"does not fit: {error}") from None
    return text


def _number(text: str, type_: PropertyType) -> int | float:
    if type_.scalar in FLOATS:
        number = float(text)
        if not math.isfinite(number) or (type_.scalar is Scalar.F32 and abs(number) > _LARGEST_F32):
            raise _UnfitError(f"is {text}, which exceeds {type_.scalar}")
        return number
    low, high = INTEGER_RANGES[type_.scalar]
    if not text.removeprefix("-").isdigit():
        raise _UnfitError(f"is {text}, and the property is {type_}")
    if not low <= int(text) <= high:
        raise _UnfitError(f"is {text}, which is outside the range of {type_.scalar}")
    return int(text)


def _quoting_hint(value: ast.Value, type_: PropertyType) -> str:
    needs_quotes = value.kind != "string" and (type_.scalar is Scalar.STRING or type_.scalar in _DATES)
    return f'; write "{value.text}"' if needs_quotes else ""


def broken_rule(
    default: DefaultValue, name: str, ranges: Iterable[RangeRule], checks: Iterable[CheckRule]
) -> str | None:
    """The rule of the type that the default of property `name` breaks. Values of lists are under no such rule."""
    if isinstance(default, tuple):
        return None
    for rule in ranges:
        if rule.property == name and isinstance(default, int | float):
            low, high = (math.inf if each is None else float(each) for each in (rule.low, rule.high))
            if (rule.low is not None and default < low) or (rule.high is not None and default > high):
                return "@range"
    for check in checks:
        if check.property == name and isinstance(default, str) and not matches_pattern(default, check.pattern):
            return f'@check "{check.pattern}"'
    return None
