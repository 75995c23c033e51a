"""Predicates as text of Lance's filter language, for scans, search prefilters and mutations.

A predicate is pushed only when the text means exactly what the query language means; numbers are adapted to the type
of the column first. Terms, nesting, length and listed values are bounded, because Lance parses the text by recursion
on a native stack. Predicates beyond the bounds are tested on values by `scan`, with the same result. Text properties
are looked up in the column whose index can find them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from omnigraph.engine.query.context import Plain, ReadContext
from omnigraph.language.catalog import IndexKind, NodeType, Property, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import AllOf, RowFilter
from omnigraph.language.types import INTEGER_RANGES, PropertyType, Scalar
from omnigraph.storage.tables.rows import identifier, one_of, string_literal

# N-grams are three letters or digits of ASCII in a row; a text without any can't be looked up in them.
_NGRAM: Final = re.compile(r"[A-Za-z0-9]{3}", re.ASCII)
# Each text costs a lookup; from here on one scan of the column costs less.
_MOST_LOOKUPS: Final = 16


def lookup_column(owner: TableType, prop: Property) -> str:
    """The column in which the whole text of a property is compared: a text key is the id, which has a BTREE."""
    if _has_ngrams(owner, prop) and isinstance(owner, NodeType) and owner.key == (prop.name,):
        return "id"
    return prop.column


def equals_any(owner: TableType, prop: Property, texts: Sequence[str]) -> str:
    """The filter for rows whose property is one of `texts`."""
    column = lookup_column(owner, prop)
    # One list, however many texts: alternatives would nest, and the store's parser with them.
    equal = one_of(column, texts) if len(texts) > 1 else f"{identifier(column)} = {string_literal(texts[0])}"
    has_lookups = column == prop.column and _has_ngrams(owner, prop)
    if not has_lookups or len(texts) > _MOST_LOOKUPS or not all(map(_NGRAM.search, texts)):
        return equal
    tests = [f"contains({identifier(column)}, {string_literal(text)})" for text in texts]
    return f"({equal} AND {tests[0]})" if len(tests) == 1 else f"({equal} AND ({' OR '.join(tests)}))"


def _has_ngrams(owner: TableType, prop: Property) -> bool:
    return IndexKind.NGRAM in owner.index_kinds(prop.name)


NEVER: Final = "false"

# Tens of thousands of terms overflow the stack. These are few enough for any thread, and more than an index helps with.
MOST_TERMS: Final = 256
MOST_NESTED: Final = 16
MOST_CHARACTERS: Final = 1 << 18
# A list of values is flat; from here on a scan of the column costs about as much as the lookups.
MOST_VALUES: Final = 10_000

# The most selective tests go first where not all of them fit.
_SELECTIVE: Final = {ir.Operator.EQUAL: 0, ir.Operator.MEMBER: 0, ir.Operator.PREFIX: 1, ir.Operator.NOT_EQUAL: 3}
_RANGE: Final = 2

_FLIPPED: Final = {
    ir.Operator.EQUAL: ir.Operator.EQUAL,
    ir.Operator.NOT_EQUAL: ir.Operator.NOT_EQUAL,
    ir.Operator.LESS: ir.Operator.GREATER,
    ir.Operator.LESS_OR_EQUAL: ir.Operator.GREATER_OR_EQUAL,
    ir.Operator.GREATER: ir.Operator.LESS,
    ir.Operator.GREATER_OR_EQUAL: ir.Operator.LESS_OR_EQUAL,
}
_CONSTANTS = (ir.ParameterValue, ir.Constant, ir.Now)


def split_pushdown(
    predicates: Iterable[ir.Predicate], context: ReadContext
) -> tuple[str | None, tuple[ir.Predicate, ...]]:
    """One filter text for all predicates that can be pushed and fit, and the others."""
    predicates = tuple(predicates)
    texts: dict[int, str] = {}
    for i, predicate in enumerate(predicates):
        text = predicate_filter(predicate, context)
        if text == NEVER:
            return NEVER, ()
        if text is not None:
            texts[i] = text

    def selectivity(i: int) -> int:
        predicate = predicates[i]
        return _SELECTIVE.get(predicate.operator, _RANGE) if isinstance(predicate, ir.Compare) else _RANGE

    budget = _FilterBudget()
    pushed = sorted(i for i in sorted(texts, key=selectivity) if budget.takes(texts[i]))
    rest = tuple(p for i, p in enumerate(predicates) if i not in pushed)
    return " AND ".join(texts[i] for i in pushed) or None, rest


class _FilterBudget:
    """What a filter text may still grow by."""

    def __init__(self) -> None:
        self._terms, self._characters = MOST_TERMS, MOST_CHARACTERS

    def takes(self, text: str) -> bool:
        """Whether another part fits, and if so less room."""
        # A literal may hold the words as well, which then count as terms: the bound only gets safer.
        terms = 1 + text.count(" OR ") + text.count(" AND ")
        if terms > self._terms or len(text) > self._characters:
            return False
        self._terms -= terms
        self._characters -= len(text)
        return True


def row_filter_text(
    test: RowFilter, context: ReadContext, budget: _FilterBudget | None = None, depth: int = MOST_NESTED
) -> str | None:
    """The filter text of several comparisons, None when one of them can't be pushed or all are too much together."""
    budget = budget or _FilterBudget()
    if isinstance(test, ir.Compare):
        text = predicate_filter(test, context)
        return text if text is not None and budget.takes(text) else None
    if not depth:
        return None
    is_all = isinstance(test, AllOf)
    parts = []
    for part in test.tests:
        text = row_filter_text(part, context, budget, depth - 1)
        if text is None:
            return None
        parts.append(text)
    if not parts:
        return "true" if is_all else NEVER
    return "(" + (" AND " if is_all else " OR ").join(parts) + ")"


def predicate_filter(predicate: ir.Predicate, context: ReadContext) -> str | None:
    """The filter text of a predicate over one stored property and constants, None when there is none."""
    if not isinstance(predicate, ir.Compare):
        return None
    operator, prop, other = predicate.operator, predicate.left, predicate.right
    flipped = isinstance(prop, _CONSTANTS)
    if flipped:
        prop, other = other, prop
    if not isinstance(prop, ir.PropertyValue) or not isinstance(other, _CONSTANTS):
        return None
    if not context.has_column(prop) or (constant := context.constant(other)) is None:
        return NEVER
    if not flipped:
        return _test(prop, operator, constant)
    if operator is ir.Operator.MEMBER and isinstance(constant, list):
        return _any_equal(prop, constant)
    return _test(prop, _FLIPPED[operator], constant) if operator in _FLIPPED else None


def _test(prop: ir.PropertyValue, operator: ir.Operator, constant: Plain | list[Plain]) -> str | None:
    if isinstance(constant, list):
        return None
    column, type_ = f"`{prop.prop.column}`", prop.type
    if type_.is_free_text and isinstance(constant, str) and operator is not ir.Operator.SUBSTRING:
        if operator is ir.Operator.EQUAL:
            return equals_any(prop.owner, prop.prop, [constant])
        column = f"`{lookup_column(prop.owner, prop.prop)}`"
    match operator:
        case ir.Operator.MEMBER:
            items = _exact_literals(type_.item, constant)
            return "(" + " OR ".join(f"array_has({column}, {item})" for item in items) + ")" if items else NEVER
        case ir.Operator.SUBSTRING | ir.Operator.PREFIX:
            assert isinstance(constant, str)
            function = "contains" if operator is ir.Operator.SUBSTRING else "starts_with"
            return f"{function}({column}, {string_literal(constant)})"
    if type_.is_numeric:
        assert isinstance(constant, int | float)
        return _number_test(column, type_.scalar, operator, constant)
    return f"{column} {operator.value} {_literal(type_, constant)}"


def _any_equal(prop: ir.PropertyValue, constants: list[Plain]) -> str | None:
    if len(constants) > MOST_VALUES:
        return None
    type_ = prop.type
    texts = [constant for constant in constants if isinstance(constant, str)]
    if type_.is_free_text and texts:
        return equals_any(prop.owner, prop.prop, texts)
    if type_.is_numeric:
        numbers = [n for c in constants if isinstance(c, int | float) for n in _exact_numbers(type_.scalar, c)]
        values = [_number(number) for number in numbers]
    else:
        values = [_literal(type_, constant) for constant in constants if constant is not None]
    return f"`{prop.prop.column}` IN ({', '.join(values)})" if values else NEVER


def _literal(type_: PropertyType, constant: Plain) -> str:
    match type_.scalar:
        case Scalar.BOOL:
            return "true" if constant else "false"
        case Scalar.DATE:
            return f"arrow_cast({constant}, 'Date32')"
        case Scalar.DATETIME:
            return f"arrow_cast({constant}, 'Timestamp(Millisecond, Some(\"UTC\"))')"
    return string_literal(str(constant))


def _exact_literals(type_: PropertyType, constant: Plain) -> list[str]:
    """The literals of exactly this value and type: none when the type can't hold it, two for the two float zeros."""
    if not type_.is_numeric:
        return [_literal(type_, constant)]
    assert isinstance(constant, int | float)
    # A function argument is not converted to the list's item type as an operand of a comparison is.
    names = {Scalar.I32: "Int32", Scalar.I64: "Int64", Scalar.U32: "UInt32", Scalar.U64: "UInt64"}
    name = names.get(type_.scalar) or ("Float32" if type_.scalar is Scalar.F32 else "Float64")
    return [f"arrow_cast({_number(number)}, '{name}')" for number in _exact_numbers(type_.scalar, constant)]


def _exact_numbers(scalar: Scalar, constant: int | float) -> list[int | float]:
    """The numbers of a type with exactly this value: none when it can't hold it, two for the two float zeros."""
    below, above = _neighbours(scalar, constant)
    if below is None or below != above:
        return []
    return [below] if below != 0 or scalar in INTEGER_RANGES else [0.0, -0.0]


def _number_test(column: str, scalar: Scalar, operator: ir.Operator, constant: int | float) -> str:
    """A comparison by value: the constant is replaced by the closest numbers the column can hold. Lance orders -0.0
    before 0.0 and holds them for different; for the query language they are one value."""
    not_null = f"{column} IS NOT NULL"
    if operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL):
        is_equal = operator is ir.Operator.EQUAL
        tests = [f"{column} {operator.value} {_number(number)}" for number in _exact_numbers(scalar, constant)]
        if len(tests) > 1:
            return f"({(' OR ' if is_equal else ' AND ').join(tests)})"
        return tests[0] if tests else NEVER if is_equal else not_null
    from_above = operator in (ir.Operator.LESS, ir.Operator.GREATER_OR_EQUAL)
    number = _neighbours(scalar, constant)[1 if from_above else 0]
    if number is None:
        return not_null if operator in (ir.Operator.LESS, ir.Operator.GREATER) else NEVER
    if number == 0 and scalar not in INTEGER_RANGES:
        number = -0.0 if from_above else 0.0
    return f"{column} {operator.value} {_number(number)}"


def _neighbours(scalar: Scalar, constant: int | float) -> tuple[int | float | None, int | float | None]:
    """The largest number of a type that is not above the constant, and the smallest that is not below it."""
    if scalar in INTEGER_RANGES:
        low, high = INTEGER_RANGES[scalar]
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


def _number(number: int | float) -> str:
    if isinstance(number, int):
        # The literal of the smallest integer would be read as the negation of one that is too large.
        return str(number) if number > -(2**63) else "(-9223372036854775807 - 1)"
    return repr(number)
