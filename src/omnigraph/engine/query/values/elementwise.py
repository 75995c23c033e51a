"""Functions of values, applied to as few values as possible.

Rows share stored values, so a function of one column is evaluated once for each value that a row has, and a function of
several columns too when they are read at the same positions. Every function here is strict: a row with a null argument
gives null, and the kernel that does the work never sees one. Kernels get parts that fit the byte budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices, Mask
from omnigraph.engine.query.context import ValueContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.properties import Located, as_indices, gathering_parts, one_array
from omnigraph.engine.query.value_columns import column_type, convert, repeat
from omnigraph.errors import EvaluationError, EvaluationRule, ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import ValueType
from omnigraph.storage.integer_sets import factorize
from omnigraph.storage.tables.rows import wide_type

Evaluated: TypeAlias = Located | pa.Scalar
"""A value for every row; a scalar is the same for all of them."""

Evaluate: TypeAlias = Callable[[ir.Value, Bindings, ValueContext], Evaluated]
"""`evaluate` itself, for values that decide which parts of them are needed for which rows."""


class HeldValues:
    """Values that were made for some rows. They count against the budget until nobody needs them any more; stored ones
    are counted by those who read them."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.nbytes = 0

    def __enter__(self) -> HeldValues:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def join(self, arrays: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
        """The arrays that are held as one."""
        if len(arrays) > 1:
            self._budget.step(self.nbytes)
        return join_arrays(arrays, type_)

    def release(self) -> None:
        self._budget.release(self.nbytes)
        self.nbytes = 0

    def keep(self, value: ir.Value, evaluated: Evaluated) -> Evaluated:
        """Count what was made for a value."""
        if isinstance(evaluated, Located) and ir.operands_of(value):
            self.hold(evaluated.values)
        return evaluated

    def hold(self, array: pa.Array) -> None:
        self._budget.hold(array.nbytes)
        self.nbytes += array.nbytes


Argument: TypeAlias = pa.Array | pa.Scalar
"""What a kernel gets: one value per row of its part, or one for all rows. None of them is null."""

# Rows that Python works on between two looks at the clock.
_ROWS_PER_CHECK: Final = 1 << 12
# What a kernel may make of one part, whatever its arguments; a part that makes more is cut.
_MOST_MADE: Final = 64 << 20
# Of one row: its slot, whether that is used, and where each argument of it is.
_ROW_BYTES: Final = 48
_LARGEST_VALUE: Final = 2**31 - 1
_LONGEST_EXPRESSION: Final = 200


class _PartTooLargeError(Exception):
    """A kernel would make too much of its part at once."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that a kernel works on, and what it may ask while it does."""

    size: int
    value: ir.Value
    budget: MemoryBudget

    def fail(self, rule: EvaluationRule, message: str) -> NoReturn:
        raise EvaluationError(rule, shorten(ir.value_text(self.value)), message=message)

    def reserve(self, nbytes: int) -> None:
        """About to make this much, what is only needed meanwhile included. Asked by kernels that make several times
        what they get. A part for which it is too much is cut."""
        if self.size > 1 and nbytes > min(_MOST_MADE, self.budget.available // 2):
            raise _PartTooLargeError
        self.budget.step(nbytes)
        if nbytes > _LARGEST_VALUE:
            raise ResourceLimitError("bytes of one value", _LARGEST_VALUE, nbytes, "shorten the texts or lists")

    def each(self, *arguments: Argument) -> Iterator[tuple[Any, ...]]:
        """The arguments of each row as Python values, asking often whether to go on."""
        return self.watch(zip(*(self.python_values(argument) for argument in arguments), strict=True))

    def watch(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The same, asking often whether to go on."""
        for number, row in enumerate(rows):
            if not number % _ROWS_PER_CHECK:
                self.budget.check()
            yield row

    def python_values(self, argument: Argument) -> list[Any]:
        if isinstance(argument, pa.Scalar):
            return [argument.as_py()] * self.size
        values: list[Any] = argument.to_pylist()
        return values

    def array(self, argument: Argument) -> pa.Array:
        """One value per row, also where all rows have the same."""
        if isinstance(argument, pa.Array):
            return argument
        self.reserve(self.size * pa.repeat(argument, 1).nbytes)
        return repeat(argument, self.size)

    def numbers(self, argument: Argument) -> NDArray[Any]:
        """Numbers, truth values, days or instants of each row as NumPy has them."""
        argument = self.array(argument)
        if pa.types.is_timestamp(argument.type):
            argument = argument.cast(pa.int64())
        elif pa.types.is_date(argument.type):
            argument = argument.cast(pa.int32()).cast(pa.int64())
        values: NDArray[Any] = argument.to_numpy(zero_copy_only=False)
        return values


Kernel: TypeAlias = Callable[..., pa.Array]
"""`kernel(part, *arguments)`, one result for each row of the part. Only a result may be null."""


def apply(
    kernel: Kernel,
    value: ir.Value,
    type_: pa.DataType,
    operands: Sequence[Evaluated],
    length: int,
    context: ValueContext,
    *,
    strict: bool = True,
) -> Evaluated:
    """The results of a function for so many rows. `value` is what it is part of, for errors. The kernel of a function
    that is not `strict` gets nulls as well."""
    if strict and any(isinstance(operand, pa.Scalar) and not operand.is_valid for operand in operands):
        return pa.scalar(None, type_)
    columns = [operand for operand in operands if isinstance(operand, Located)]
    if not columns:
        first, *rest = operands or [pa.scalar(True)]
        made = kernel(Part(1, value, context.budget), *([pa.repeat(first, 1), *rest] if operands else []))
        return _as_type(made, type_)[0]
    context.budget.step(_ROW_BYTES * length)
    slots = _slots(columns, length, strict=strict)
    chosen = np.flatnonzero(slots.usable)
    if not len(chosen):
        return pa.scalar(None, type_)
    is_whole = len(chosen) == len(slots.usable)
    read = iter(slots.columns if is_whole else [Located(c.values, c.positions[chosen]) for c in slots.columns])
    arguments = [next(read) if isinstance(operand, Located) else operand for operand in operands]
    values = _in_parts(kernel, value, type_, arguments, len(chosen), context)
    if not is_whole:
        numbers = np.full(len(slots.usable), -1, np.int64)
        numbers[chosen] = np.arange(len(chosen))
        context.budget.step(values.nbytes)
        values = values.take(as_indices(numbers))
    return Located(values, slots.positions)


@dataclass(frozen=True, slots=True)
class _Slots:
    """Where a function is evaluated: for each value that some columns share, or for each row. `columns` have a position
    for each slot, `positions` the slot of each row. A slot that no row has, or with a null that the function never
    sees, is not `usable`."""

    columns: Sequence[Located]
    usable: Mask
    positions: Indices


def _slots(columns: Sequence[Located], length: int, *, strict: bool) -> _Slots:
    positions = columns[0].positions
    shared = all(len(column.values) <= length for column in columns) and all(
        column.positions is positions or np.array_equal(column.positions, positions) for column in columns[1:]
    )
    if shared and (strict or positions.min(initial=0) >= 0):
        size = max(len(column.values) for column in columns)
        usable = np.zeros(size, np.bool_)
        usable[positions[positions >= 0]] = True
        columns = [Located(column.values, np.arange(size)) for column in columns]
        if strict:
            usable &= np.logical_and.reduce([_are_valid(column.values, size) for column in columns])
        return _Slots(columns, usable, positions)
    usable = np.ones(length, np.bool_)
    if strict:
        usable = np.logical_and.reduce([_is_valid(column) for column in columns])
    return _Slots(columns, usable, np.arange(length))


def _are_valid(values: pa.Array, size: int) -> Mask:
    valid = np.zeros(size, np.bool_)
    valid[: len(values)] = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else True
    return valid


def _is_valid(column: Located) -> Mask:
    present = column.positions >= 0
    if column.values.null_count:
        valid = np.append(column.values.is_valid().to_numpy(zero_copy_only=False), False)
        present &= valid[column.positions]
    return present


def _in_parts(
    kernel: Kernel,
    value: ir.Value,
    type_: pa.DataType,
    arguments: Sequence[Evaluated],
    length: int,
    context: ValueContext,
) -> pa.Array:
    """The results for so many rows without nulls."""
    budget = context.budget
    columns = [argument for argument in arguments if isinstance(argument, Located)]
    made: list[pa.Array] = []
    with HeldValues(budget) as held:
        for part in gathering_parts(columns, length, budget):
            waiting = [slice(part.start, min(part.stop, length))]
            while waiting:
                rows = waiting.pop()
                read = [_gather(each, rows) if isinstance(each, Located) else each for each in arguments]
                try:
                    array = _as_type(kernel(Part(rows.stop - rows.start, value, budget), *read), type_)
                except _PartTooLargeError:
                    middle = (rows.start + rows.stop) // 2
                    waiting += [slice(middle, rows.stop), slice(rows.start, middle)]
                    continue
                held.hold(array)
                made.append(array)
        return held.join(made, type_)


def _gather(column: Located, rows: slice) -> pa.Array:
    """The values of some rows, without a copy where they lie side by side. Texts of a part are never long ones."""
    positions = column.positions[rows]
    first = int(positions[0])
    if first >= 0 and int(positions[-1]) - first == len(positions) - 1 and bool((np.diff(positions) == 1).all()):
        values = column.values.slice(first, len(positions))
    else:
        values = column.values.take(as_indices(positions))
    return _as_type(values, _narrow_type(values.type))


def _narrow_type(type_: pa.DataType) -> pa.DataType:
    """The opposite of `wide_type`: a part has far less than 2 GiB."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(type_.value_field.with_type(_narrow_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_narrow_type(field.type)) for field in type_])
    return type_


def _as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


def join_arrays(arrays: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    """Arrays of one type, some of them perhaps in its wide form, as one."""
    if any(array.type != type_ for array in arrays):
        type_ = wide_type(type_)
        arrays = [_as_type(array, type_) for array in arrays]
    return one_array(pa.chunked_array(arrays, type_)) if arrays else pa.nulls(0, type_)


Piece: TypeAlias = tuple[Indices, Evaluated, ValueType]
"""Some rows, their values, and the type of these."""


def join_pieces(pieces: Sequence[Piece], length: int, type_: ValueType, context: ValueContext) -> Located:
    """One value for each row from pieces that each have some of the rows; a row in none of them is null."""
    positions = np.full(length, -1, np.int64)
    arrays: list[pa.Array] = []
    start = 0
    for rows, evaluated, own in pieces:
        column = as_located(evaluated, len(rows))
        if len(column.values) > len(rows):
            column = column.condense(context.budget)
        context.budget.step(column.values.nbytes)
        column = convert_rows(column, own, type_)
        positions[rows] = np.where(column.positions < 0, -1, column.positions + start)
        arrays.append(column.values)
        start += len(column.values)
    context.budget.step(sum(array.nbytes for array in arrays))
    return Located(join_arrays(arrays, column_type(type_)), positions)


def convert_rows(column: Located, source: ValueType, target: ValueType) -> Located:
    """The same rows with values of another type, which holds them. One that is too large for it is refused only if a
    row has it."""
    try:
        return Located(convert(column.values, source, target), column.positions)
    except EvaluationError:
        used, _, positions = factorize(column.positions)
        return Located(convert(column.values.take(as_indices(used)), source, target), positions)


def gather_all(column: Located, context: ValueContext) -> pa.Array:
    """One value per row in one array, which may be any number of times larger than the values that rows share."""
    parts = column.in_parts(context.budget)
    context.budget.step(2 * parts.nbytes)
    return one_array(parts)


def as_located(evaluated: Evaluated, length: int) -> Located:
    """The same with a position for each of so many rows."""
    if isinstance(evaluated, Located):
        return evaluated
    return Located(pa.repeat(evaluated, 1), np.zeros(length, np.int64))


def shorten(expression: str) -> str:
    """An expression for a message: lists of constants may be of any length."""
    return expression if len(expression) <= _LONGEST_EXPRESSION else expression[: _LONGEST_EXPRESSION - 1] + "…"
