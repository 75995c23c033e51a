"""Constants in filter texts: literals of a column's type, and comparisons of numbers by value.

Lance refuses a literal of another type, rounds to 32 bits, and holds -0.0 and 0.0 apart. A number is replaced by the
nearest ones that the column can hold, so that the text means what the query language says. `pushdown` calls it.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from omnigraph.engine.query.context import Plain
from omnigraph.language.query import ir
from omnigraph.language.types import INTEGER_RANGES, PropertyType, Scalar
from omnigraph.storage.tables.rows import string_literal

NEVER: Final = "false"
ALWAYS: Final = "true"


def literal_text(type_: PropertyType, constant: Plain) -> str:
    match type_.scalar:
        case Scalar.BOOL:
            return "true" if constant else "false"
        case Scalar.DATE:
            return f"arrow_cast({constant}, 'Date32')"
        case Scalar.DATETIME:
            return f"arrow_cast({constant}, 'Timestamp(Millisecond, Some(\"UTC\"))')"
    return string_literal(str(constant))


def exact_literals(type_: PropertyType, constant: Plain) -> list[str]:
    """The literals of exactly this value and type: none when the type can't hold it, two for the two float zeros."""
    if not type_.is_numeric:
        return [literal_text(type_, constant)]
    assert isinstance(constant, int | float)
    # A function argument is not converted to the list's item type as an operand of a comparison is.
    names = {Scalar.I32: "Int32", Scalar.I64: "Int64", Scalar.U32: "UInt32", Scalar.U64: "UInt64"}
    name = names.get(type_.scalar) or ("Float32" if type_.scalar is Scalar.F32 else "Float64")
    return [f"arrow_cast({number_text(number)}, '{name}')" for number in exact_numbers(type_.scalar, constant)]


def exact_numbers(scalar: Scalar, constant: int | float) -> list[int | float]:
    """The numbers of a type with exactly this value: none when it can't hold it, two for the two float zeros."""
    if math.isnan(constant):
        return []
    below, above = _neighbours(scalar, constant)
    if below is None or below != above:
        return []
    return [below] if below != 0 or scalar in INTEGER_RANGES else [0.0, -0.0]


def number_test(column: str, scalar: Scalar, operator: ir.Operator, constant: int | float) -> str:
    """A comparison by value: the constant is replaced by the closest numbers the column can hold. Lance orders -0.0
    before 0.0 and holds them for different; for the query language they are one value."""
    not_null = f"{column} IS NOT NULL"
    if operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL):
        is_equal = operator is ir.Operator.EQUAL
        tests = [f"{column} {operator.value} {number_text(number)}" for number in exact_numbers(scalar, constant)]
        if len(tests) > 1:
            return f"({(' OR ' if is_equal else ' AND ').join(tests)})"
        return tests[0] if tests else NEVER if is_equal else not_null
    from_above = operator in (ir.Operator.LESS, ir.Operator.GREATER_OR_EQUAL)
    number = _neighbours(scalar, constant)[1 if from_above else 0]
    if number is None:
        return not_null if operator in (ir.Operator.LESS, ir.Operator.GREATER) else NEVER
    if number == 0 and scalar not in INTEGER_RANGES:
        number = -0.0 if from_above else 0.0
    return f"{column} {operator.value} {number_text(number)}"


def _neighbours(scalar: Scalar, constant: int | float) -> tuple[int | float | None, int | float | None]:
    """The largest number of a type that is not above the constant, and the smallest that is not below it."""
    if scalar in INTEGER_RANGES:
        low, high = INTEGER_RANGES[scalar]
        if math.isinf(constant):
            return (high, None) if constant > 0 else (None, low)
        floor, ceiling = math.floor(constant), math.ceil(constant)
        return (min(floor, high) if floor >= low else None, max(ceiling, low) if ceiling <= high else None)
    kind = np.float32 if scalar is Scalar.F32 else np.float64
    largest = float(np.finfo(kind).max)
    if abs(constant) > largest:
        return (largest, None) if constant > 0 else (None, -largest)
    with np.errstate(over="ignore"):
        nearest = kind(constant)
    value = float(nearest)
    # Python compares int and float exactly, so this also holds for integers beyond 2^53.
    if math.isinf(value) or value > constant:
        return float(np.nextafter(nearest, kind(-math.inf))), None if math.isinf(value) else value
    return value, value if value == constant else float(np.nextafter(nearest, kind(math.inf)))


def number_text(number: int | float) -> str:
    if isinstance(number, int):
        # The literal of the smallest integer would be read as the negation of one that is too large.
        return str(number) if number > -(2**63) else "(-9223372036854775807 - 1)"
    return repr(number)
