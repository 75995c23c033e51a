"""The functions of `.gq` by name, and those that convert between kinds of values.

`language.query.functions` says which functions there are and what they give; this is what they do. Three are not here
but in `evaluate`: `coalesce` and `nullif` look at nulls, `keys` reads what is stored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.values.arithmetic import NUMBER_FUNCTIONS, floats_of, integers
from omnigraph.engine.query.values.date_functions import DATE_FUNCTIONS, date_texts
from omnigraph.engine.query.values.elementwise import Argument, Kernel, Part
from omnigraph.engine.query.values.list_functions import LIST_FUNCTIONS
from omnigraph.engine.query.values.text_functions import TEXT_FUNCTIONS
from omnigraph.errors import EvaluationRule
from omnigraph.language.types import INTEGER_RANGES, Scalar

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SPELLINGS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_BOOLS: Final = {"true": True, "false": False}
_SMALLEST, _LARGEST = INTEGER_RANGES[Scalar.I64]
# An integer of I64 has at most so many digits; a text with more is not converted to find that out.
_MOST_DIGITS: Final = 19
_LONGEST_NUMBER: Final = 1000


def _to_string(part: Part, value: Argument) -> pa.Array:
    """Numbers in as few digits as tell them apart, dates as ISO 8601."""
    if pa.types.is_temporal(value.type):
        return date_texts(part, value)
    if pa.types.is_floating(value.type):
        numbers = part.numbers(value)
        spelled = map(str, numbers) if numbers.dtype == np.float32 else map(repr, numbers.tolist())
        return pa.array([_SPELLINGS.get(text, text) for text in part.watch(spelled)], pa.string())
    return part.array(value).cast(pa.string())


def _to_int(part: Part, value: Argument) -> pa.Array:
    """Without the fraction. A text that is not a number of I64 is null, a number that is not in I64 an overflow."""
    if pa.types.is_string(value.type):
        return pa.array([_integer_of(text) for (text,) in part.each(value)], pa.int64())
    if pa.types.is_integer(value.type):
        return pa.array(integers(part, value))
    numbers = floats_of(part, value)
    # The largest integer is not a float; the power of two behind it is.
    if not ((numbers >= float(_SMALLEST)) & (numbers < float(_LARGEST))).all():
        part.fail(EvaluationRule.ARITHMETIC_OVERFLOW, "a float has no integer of 64 bits")
    return pa.array(np.trunc(numbers).astype(np.int64))


def _integer_of(text: str) -> int | None:
    if len(text) > _LONGEST_NUMBER or _NUMBER.fullmatch(text) is None:
        return None
    if _INTEGER.fullmatch(text):
        number = int(text)
    else:
        decimal = Decimal(text)
        if decimal and decimal.adjusted() >= _MOST_DIGITS:
            return None
        number = int(decimal) if decimal.adjusted() >= 0 else 0
    return number if _SMALLEST <= number <= _LARGEST else None


def _to_float(part: Part, value: Argument) -> pa.Array:
    """A text that is not a number of F64 is null."""
    if pa.types.is_string(value.type):
        return pa.array([_float_of(text) for (text,) in part.each(value)], pa.float64())
    return pa.array(floats_of(part, value))


def _float_of(text: str) -> float | None:
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if len(text) > _LONGEST_NUMBER or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _to_bool(part: Part, value: Argument) -> pa.Array:
    """A text is `true` or `false` in any case, or null."""
    if pa.types.is_boolean(value.type):
        return part.array(value)
    return pa.array([_BOOLS.get(text.lower()) for (text,) in part.each(value)], pa.bool_())


FUNCTIONS: Final[Mapping[str, Kernel]] = {
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **DATE_FUNCTIONS,
    **LIST_FUNCTIONS,
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "to_bool": _to_bool,
}
"""Those that give null for a null argument, and look at nothing but their arguments."""
