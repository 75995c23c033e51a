"""Default values: reads what is written behind `=` and checks it against the property's type and rules.

The reader of properties and the checks of types call it. A default is kept as a record of a load would give it, so
that one coercion serves both: numbers, truth values, texts (dates are texts), and lists of them. What it admits is what
the row kernels (`engine.rows.kernels.coerce`) take without an objection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import CheckRule, DefaultItem, DefaultValue, Property, RangeRule
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.resolved import Report
from omnigraph.language.source import did_you_mean, quote
from omnigraph.language.types import FLOATS, INTEGER_RANGES, NUMERIC, PropertyType, Scalar
from omnigraph.language.values import matches_pattern, parse_date, parse_datetime, round_to_f32

_MOST_DIGITS = 40
_DATES = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}


class _UnfitError(Exception):
    """A value that its type does not take; the text completes the message, the second argument is a suggestion."""


def read_default(default: ast.Default, type_: PropertyType, subject: str, report: Report) -> DefaultValue | None:
    """The value of a default; None after a report."""
    if type_.is_vector or type_.is_blob:
        report(f"'{subject}' can't have a default: it is a {type_.as_nullable(False)}", default.at)
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
            raise _UnfitError(f"is '{value.text}', which is not a value of {type_.as_nullable(False)}", near)
        return value.text
    if value.kind == "name" and value.text == "null":
        raise _UnfitError("can't be null; leave it out: a nullable property is null where nothing is written")
    if value.kind == "string":
        return _text(value.text, type_)
    if value.kind == "bool" and type_.scalar is Scalar.BOOL:
        return value.text == "true"
    if value.kind == "number" and type_.scalar in NUMERIC:
        return _number(value.text, type_)
    raise _wrong_type(value.text, type_, _remedy(value, type_))


def _wrong_type(shown: str, type_: PropertyType, remedy: str | None = None) -> _UnfitError:
    return _UnfitError(f"is {shown}, and the property is {type_}", remedy)


def _remedy(value: ast.Value, type_: PropertyType) -> str | None:
    if type_.scalar is Scalar.BOOL:
        return "write true or false"
    if type_.scalar in _DATES:
        return f'write "{value.text}"' if value.text[0].isdigit() else 'write a fixed value, such as "2024-01-31"'
    return f'write "{value.text}"' if type_.scalar is Scalar.STRING else None


def _text(text: str, type_: PropertyType) -> str:
    if type_.scalar is Scalar.STRING:
        return text
    if (parse := _DATES.get(type_.scalar)) is None:
        raise _wrong_type("a string", type_)
    try:
        parse(text)
    except BadRequestError as error:
        raise _UnfitError(f"does not fit: {error}") from None
    return text


def _number(text: str, type_: PropertyType) -> int | float:
    if type_.scalar in FLOATS:
        return _float(text, type_.scalar)
    if not text.removeprefix("-").isdigit():
        raise _wrong_type(text, type_)
    low, high = INTEGER_RANGES[type_.scalar]
    if len(text) > _MOST_DIGITS or not low <= int(text) <= high:
        raise _UnfitError(f"is {text}, which is outside the range of {type_.scalar}")
    return int(text)


def _float(text: str, scalar: Scalar) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _UnfitError(f"is {text}, which exceeds {scalar}")
    try:
        _stored_number(number, scalar)
    except BadRequestError:
        raise _UnfitError(f"is {text}, which exceeds {scalar}") from None
    return number


def _stored_number(number: int | float, scalar: Scalar) -> float:
    """A number as 64-bit floats compare it, once its column holds it."""
    return round_to_f32(number) if scalar is Scalar.F32 else float(number)


def broken_rule(prop: Property, ranges: Iterable[RangeRule], checks: Iterable[CheckRule]) -> str | None:
    """The rule of its type that the default of a property breaks. Values of lists are under no such rule."""
    default = prop.default
    if isinstance(default, str):
        patterns = (check.pattern for check in checks if check.property == prop.name)
        broken = next((pattern for pattern in patterns if not matches_pattern(default, pattern)), None)
        return None if broken is None else f"@check({prop.name}, {quote(broken)})"
    if isinstance(default, int | float):
        number = _stored_number(default, prop.type.scalar)
        if not all(_is_within(rule, number) for rule in ranges if rule.property == prop.name):
            return "@range"
    return None


def _is_within(rule: RangeRule, number: float) -> bool:
    is_above = rule.low is None or float(rule.low) <= number
    return is_above and (rule.high is None or number <= float(rule.high))
