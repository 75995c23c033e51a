"""Loose values to typed Arrow columns, with a reason for every row that does not fit.

The record and batch readers call `coerce` for each property, updates for the columns they assign. A column of uniform
Python types goes to Arrow in one call; every other one is converted value by value. Both ways give the same array. A
stored Date is its epoch day, a DateTime its epoch millisecond.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Grammar
from omnigraph.api.values import not_finite
from omnigraph.engine.rows.columns import BLOB_CELL, EPOCH_TYPES, arrow_type, vector_cells
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Property
from omnigraph.language.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime, round_to_f32, shape_of

Stored: TypeAlias = "str | bool | int | float"

MANAGED_PREFIX: Final = "base64:"

# JSON integers live in these bounds; a token beyond them counts as a float.
_INTEGER_TOKENS: Final = (-(2**63), 2**64 - 1)
DATE_PARSERS: Final = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}
_DATE_BOUNDS: Final = {Scalar.DATE: INTEGER_RANGES[Scalar.I32], Scalar.DATETIME: INTEGER_RANGES[Scalar.I64]}
_BOUNDS: Final = {**INTEGER_RANGES, **_DATE_BOUNDS}
JSON_KINDS: Final[dict[Scalar, set[type]]] = {
    **{scalar: {str} for scalar in (Scalar.STRING, Scalar.DATE, Scalar.DATETIME)},
    Scalar.BOOL: {bool},
    **{scalar: {int} for scalar in INTEGERS},
    **{scalar: {int, float} for scalar in FLOATS},
}
"""The Python types of values that need no conversion before they go to Arrow."""


class UnfitError(Exception):
    """A value of the right shape that its type can't hold. Refused by every grammar; the text is the reason."""


class WrongShapeError(UnfitError):
    """A value of another JSON type than the property's. The lenient grammar reads it as null."""


def stored_scalar(scalar: Scalar, value: object) -> Stored:
    """The value as the column holds it; raises UnfitError or WrongShapeError."""
    if scalar in FLOATS and (type(value) is int or isinstance(value, float)):
        return _float(scalar, value)
    if isinstance(value, str):
        if scalar is Scalar.STRING:
            return value
        if (parse := DATE_PARSERS.get(scalar)) is not None:
            try:
                return parse(value)
            except BadRequestError as error:
                raise UnfitError(str(error)) from None
    elif isinstance(value, bool):
        if scalar is Scalar.BOOL:
            return value
    elif type(value) is int and scalar in _BOUNDS and _INTEGER_TOKENS[0] <= value <= _INTEGER_TOKENS[1]:
        if not _BOUNDS[scalar][0] <= value <= _BOUNDS[scalar][1]:
            raise UnfitError(f"{value} is outside the range of {scalar.value}")
        return value
    raise WrongShapeError(f"expects {scalar.value}, got {shape_of(value)}")


def _float(scalar: Scalar, value: int | float) -> float:
    try:
        number = float(value)
        if math.isfinite(number):
            return round_to_f32(number) if scalar is Scalar.F32 else number
    except OverflowError:
        raise UnfitError(f"the number exceeds {scalar.value}") from None
    except BadRequestError as error:
        raise UnfitError(str(error)) from None
    raise UnfitError(not_finite(number))


def managed_bytes(text: str) -> bytes:
    """The payload of a `base64:` value: the standard padded alphabet and nothing else."""
    encoded = text[len(MANAGED_PREFIX) :]
    try:
        payload = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitError(f"invalid base64 value: {error}") from None
    # The decoder forgives set bits behind the last byte; two spellings of one value would then exist.
    if base64.b64encode(payload).decode() != encoded:
        raise UnfitError("invalid base64 value: not the standard padded form")
    return payload


@dataclass(frozen=True, slots=True)
class Column:
    """A typed column. `unfit` gives the reason for each row that could not be taken; such rows hold null. `nulled`
    counts the values of another type that the lenient grammar stored as null."""

    array: pa.Array
    unfit: Mapping[int, str] = field(default_factory=dict)
    nulled: int = 0

    def null_rows(self) -> list[int]:
        """Rows that are null without being unfit."""
        if not self.array.null_count:
            return []
        rows: list[int] = np.flatnonzero(self.array.is_null().to_numpy(zero_copy_only=False)).tolist()
        return [row for row in rows if row not in self.unfit]


def coerce(type_: PropertyType, values: Sequence[object], grammar: Grammar = Grammar.STRICT) -> Column:
    """A column of `type_` from values as JSON gives them; None is null, also where the type forbids it."""
    if type_.is_vector:
        return _vectors(type_, values, grammar)
    if type_.is_blob:
        return _blobs(values)
    if type_.list:
        return _lists(type_, values, grammar)
    return _scalars(type_.scalar, values, grammar)


def default_value(prop: Property) -> object:
    """What a record that lacks a property is taken to have: its default as JSON gives it, or None."""
    return list(prop.default) if isinstance(prop.default, tuple) else prop.default


def absent_values(prop: Property, count: int) -> pa.Array:
    """The column of a property of which the input has nothing: the default in every row, or null."""
    if prop.default is None:
        return pa.nulls(count, arrow_type(prop.type))
    return coerce(prop.type, [default_value(prop)]).array.take(pa.array(np.zeros(count, np.int64)))


def _scalars(scalar: Scalar, values: Sequence[object], grammar: Grammar) -> Column:
    array = _uniform(scalar, values, set(map(type, values)) - {type(None)})
    return Column(array) if array is not None else _one_by_one(scalar, values, grammar)


def _uniform(scalar: Scalar, values: Sequence[object], kinds: set[type]) -> pa.Array | None:
    """The column in one call, or None when the exact rules have to decide."""
    if not kinds <= JSON_KINDS[scalar]:
        return None
    type_ = arrow_type(PropertyType(scalar))
    try:
        if scalar is Scalar.DATE:
            return pa.array(values, pa.string()).cast(type_)
        if scalar is Scalar.DATETIME:
            return timestamps(pa.array(values, pa.string()))
        if scalar in FLOATS and int in kinds:
            # Arrow refuses integers beyond 2^53, which may lose precision here.
            values = [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
        array = pa.array(values, type_)
    except (pa.ArrowInvalid, OverflowError):
        return None
    return array if scalar not in FLOATS or all_finite(array) else None


def all_finite(array: pa.Array) -> bool:
    return bool(pc.all(pc.is_finite(array), min_count=0).as_py())


# The forms that Arrow's parser reads exactly as ours does; it also takes some that we do not, such as HH:MM.
_ZULU: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,3})?Z$"
_NO_ZONE: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,3})?)?$"


def timestamps(texts: pa.Array) -> pa.Array | None:
    """Texts of one common form as timestamps; None when they have to be read one by one. Raises ArrowInvalid."""
    type_ = arrow_type(PropertyType(Scalar.DATETIME))
    if all_match(texts, _ZULU):
        return texts.cast(type_)
    if all_match(texts, _NO_ZONE):
        return texts.cast(pa.timestamp("ms")).cast(type_)
    return None


def all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _one_by_one(scalar: Scalar, values: Sequence[object], grammar: Grammar) -> Column:
    stored: list[Stored | None] = [None] * len(values)
    unfit: dict[int, str] = {}
    nulled = 0
    for row, value in enumerate(values):
        try:
            stored[row] = None if value is None else stored_scalar(scalar, value)
        except UnfitError as error:
            if grammar is Grammar.LENIENT and isinstance(error, WrongShapeError):
                nulled += 1
            else:
                unfit[row] = str(error)
    return Column(from_stored(scalar, stored), unfit, nulled)


def from_stored(scalar: Scalar, stored: Sequence[Stored | None]) -> pa.Array:
    """Values that already are what the column holds; Date and DateTime as their integers."""
    type_ = arrow_type(PropertyType(scalar))
    return pa.array(stored, EPOCH_TYPES.get(scalar, type_)).cast(type_)


def _lists(type_: PropertyType, values: Sequence[object], grammar: Grammar) -> Column:
    expected = type_.as_nullable(False).display
    arrays, unfit = _arrays_only(values, lambda value: f"expects {expected}, got {shape_of(value)}")
    lengths = np.fromiter((0 if items is None else len(items) for items in arrays), np.int64, len(arrays))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = list(chain.from_iterable(items for items in arrays if items is not None))
    column = _scalars(type_.scalar, items, grammar)
    bad_items = dict(column.unfit)
    if grammar is Grammar.STRICT:
        bad_items |= dict.fromkeys(column.null_rows(), f"expects {type_.scalar.value}, got null")
    for item in sorted(bad_items):
        row = int(np.searchsorted(offsets, item, side="right")) - 1
        unfit.setdefault(row, f"null or invalid item at index {item - int(offsets[row])}: {bad_items[item]}")
    absent = pa.array([items is None for items in arrays], pa.bool_())
    listed = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), column.array, type=arrow_type(type_), mask=absent if len(arrays) else None
    )
    if unfit:
        keep = np.ones(len(listed), np.bool_)
        keep[list(unfit)] = False
        listed = pc.if_else(pa.array(keep), listed, pa.scalar(None, listed.type))
    return Column(listed, unfit, column.nulled)


def _vectors(type_: PropertyType, values: Sequence[object], grammar: Grammar) -> Column:
    dimension = type_.dimension or 0
    lenient = grammar is Grammar.LENIENT and type_.nullable
    expected = f"expects Vector({dimension}) as an array of numbers"
    arrays, unfit = _arrays_only(values, lambda value: None if lenient else f"{expected}, got {shape_of(value)}")
    nulled = sum(value is not None for value in values) - sum(items is not None for items in arrays) - len(unfit)
    for row, items in enumerate(arrays):
        if items is not None and (reason := _vector_problem(items, dimension)) is not None:
            unfit[row] = reason
            arrays[row] = None
    numbers = np.zeros((len(arrays), dimension), np.float64)
    present = np.fromiter((items is not None for items in arrays), np.bool_, len(arrays))
    if present.any():
        numbers[present] = np.array([items for items in arrays if items is not None], np.float64)
    with np.errstate(over="ignore"):
        narrowed = numbers.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(narrowed).all(axis=1)).tolist():
        odd = np.flatnonzero(~np.isfinite(numbers[row]))
        unfit[row] = f"vector element {odd[0]}: {not_finite(numbers[row][odd[0]])}" if len(odd) else _TOO_LARGE
        present[row] = False
    return Column(vector_cells(narrowed, arrow_type(type_), pa.array(~present)), unfit, nulled)


_NUMBERS: Final = {int, float}
_TOO_LARGE: Final = "a vector element exceeds Float32 range"


def _vector_problem(items: Sequence[object], dimension: int) -> str | None:
    if len(items) != dimension:
        return f"expects {dimension} dimensions, got {len(items)}"
    kinds = set(map(type, items))
    if not kinds <= _NUMBERS:
        index = next(i for i, item in enumerate(items) if type(item) not in _NUMBERS)
        return f"vector elements must be numeric: element {index} is {shape_of(items[index])}"
    if int in kinds and any(type(item) is int and abs(item) > 2**1023 for item in items):
        return _TOO_LARGE
    return None


def _arrays_only(
    values: Sequence[object], refuse: Callable[[object], str | None]
) -> tuple[list[Sequence[object] | None], dict[int, str]]:
    """The arrays among the values, None for the rest; `refuse` gives the reason against any other value but null."""
    arrays: list[Sequence[object] | None] = [value if type(value) is list else None for value in values]
    unfit: dict[int, str] = {}
    for row, (value, items) in enumerate(zip(values, arrays, strict=True)):
        if items is None and value is not None and (reason := refuse(value)) is not None:
            unfit[row] = reason
    return arrays, unfit


def _blobs(values: Sequence[object]) -> Column:
    cells: list[dict[str, bytes | str | None] | None] = [None] * len(values)
    unfit: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            cells[row] = None if value is None else _blob_cell(value)
        except UnfitError as error:
            unfit[row] = str(error)
    return Column(pa.array(cells, BLOB_CELL), unfit)


def _blob_cell(value: object) -> dict[str, bytes | str | None]:
    if isinstance(value, bytes):
        return {"data": value, "uri": None}
    if not isinstance(value, str):
        raise UnfitError(f"expects Blob as a string (base64:… or a URI), got {shape_of(value)}")
    if value.startswith(MANAGED_PREFIX):
        return {"data": managed_bytes(value), "uri": None}
    if not value:
        raise UnfitError("a Blob can't be an empty string; 'base64:' is an empty value")
    return {"data": None, "uri": value}
