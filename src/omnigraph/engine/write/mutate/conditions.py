"""The predicate of an update or delete: an exact test on a column, and a filter that narrows the scan.

The test decides, for stored and for pending rows alike. The filter may leave out only rows that fail the test, so it
exists only for types that the store is known to compare in the same way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.search.text_lookup import equals_any
from omnigraph.engine.query.values.compare import ARROW_TESTS
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.language.query.ir import Endpoint, Operator, Where
from omnigraph.language.query.params import BoundValue
from omnigraph.language.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime
from omnigraph.storage.tables.predicates import identifier, literal

_PYTHON_TESTS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_NARROWED: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32})

_STRING: Final = PropertyType(Scalar.STRING)
_ENDPOINT_COLUMNS: Final = {Endpoint.FROM: "src", Endpoint.TO: "dst"}


class Condition:
    """A `where` with its value known."""

    def __init__(self, where: Where, value: BoundValue) -> None:
        self._property = None if isinstance(where.column, Endpoint) else where.column
        if isinstance(where.column, Endpoint):
            self.column, self._type = _ENDPOINT_COLUMNS[where.column], _STRING
        else:
            self.column, self._type = where.column.column, where.column.type
        self._operator = where.operator
        self._value = value

    @property
    def never_holds(self) -> bool:
        """Null satisfies nothing, and lists and vectors are not compared."""
        return self._value is None or self._type.list or self._type.is_vector

    def test(self, values: pa.ChunkedArray | pa.Array) -> Any:
        """Which rows satisfy the condition, as a mask without nulls."""
        if self.never_holds:
            return pa.array([False] * len(values), pa.bool_())
        value: Any = self._value
        if self._type.scalar in INTEGERS:
            mask = _compare_integers(values, self._type.scalar, self._operator, value)
        elif self._type.scalar in FLOATS:
            mask = _compare_floats(values, self._operator, value)
        else:
            mask = ARROW_TESTS[self._operator](values, self._stored_scalar(values.type))
        return pc.fill_null(mask, False)

    def narrowing(self, type_: TableType) -> str | None:
        """A filter for the store that keeps at least every row that passes the test; None to read them all."""
        value = self._comparable_in_store()
        if value is None:
            return None
        if self._property is not None and isinstance(value, str) and self._operator is Operator.EQUAL:
            return equals_any(type_, self._property, [value])
        return f"{identifier(self.column)} {self._operator.value} {literal(value)}"

    def sought_value(self) -> str | int | None:
        """The one value that a matching row must hold, for columns in which a row is found by its value."""
        return self._comparable_in_store() if self._operator is Operator.EQUAL else None

    def _comparable_in_store(self) -> str | int | None:
        """The value, when the store compares it with the column as the test does."""
        value = self._value
        if self._type.scalar is Scalar.STRING and isinstance(value, str):
            return value
        if self._type.scalar in _NARROWED and isinstance(value, int):
            low, high = INTEGER_RANGES[self._type.scalar]
            return value if low <= value <= high else None
        return None

    def sought_id(self, type_: TableType) -> str | None:
        """The only id that a matching row can have: a text key is the id itself."""
        key = type_.key if isinstance(type_, NodeType) else ()
        if len(key) != 1 or self._operator is not Operator.EQUAL or not isinstance(self._value, str):
            return None
        prop = type_.properties[key[0]]
        return self._value if prop.type.is_text and prop.column == self.column else None

    def _stored_scalar(self, type_: pa.DataType) -> pa.Scalar:
        value = self._value
        if self._type.scalar is Scalar.DATE and isinstance(value, str):
            return pa.scalar(parse_date(value), pa.int32()).cast(type_)
        if self._type.scalar is Scalar.DATETIME and isinstance(value, str):
            return pa.scalar(parse_datetime(value), pa.int64()).cast(type_)
        return pa.scalar(value, type_)


def _compare_integers(values: Any, scalar: Scalar, op: Operator, value: int | float) -> Any:
    """By value, whatever the type of the literal: 2.5 lies between 2 and 3, and no column wraps around."""
    low, high = INTEGER_RANGES[scalar]
    if value == math.inf or value > high:
        return _constant(values, _PYTHON_TESTS[op](0, 1))
    if value == -math.inf or value < low:
        return _constant(values, _PYTHON_TESTS[op](1, 0))
    if value != (whole := math.floor(value)):
        if op in (Operator.EQUAL, Operator.NOT_EQUAL):
            return _constant(values, op is Operator.NOT_EQUAL)
        # x < 2.5 and x <= 2.5 are x <= 2; x > 2.5 and x >= 2.5 are x > 2.
        op = Operator.LESS_OR_EQUAL if op in (Operator.LESS, Operator.LESS_OR_EQUAL) else Operator.GREATER
    return ARROW_TESTS[op](values, pa.scalar(whole, values.type))


def _compare_floats(values: Any, op: Operator, value: int | float) -> Any:
    wide = values.cast(pa.float64())
    near = float(value)
    if near == value:
        return ARROW_TESTS[op](wide, near)
    # An integer that no float equals lies between two floats: compare with the nearest one, ordered by hand.
    if op in (Operator.EQUAL, Operator.NOT_EQUAL):
        return _constant(values, op is Operator.NOT_EQUAL)
    below = op in (Operator.LESS, Operator.LESS_OR_EQUAL)
    nearest_passes = near < value if below else near > value
    exact = (
        (Operator.LESS_OR_EQUAL if nearest_passes else Operator.LESS)
        if below
        else (Operator.GREATER_OR_EQUAL if nearest_passes else Operator.GREATER)
    )
    return ARROW_TESTS[exact](wide, near)


def _constant(values: Any, outcome: bool) -> Any:
    """The same outcome for every row that has a value."""
    return pc.if_else(pc.is_valid(values), outcome, None)
