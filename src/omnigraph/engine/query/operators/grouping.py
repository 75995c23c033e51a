"""Rows that are equal in some values: groups, and the first row of each.

Aggregates, `distinct` and `union` share this one meaning of equality: null is null, NaN is NaN, -0.0 is 0.0; lists,
records and paths are compared by content, entities by type and row id. It is not the `=` of comparisons, for which null
equals nothing. Values become numbers that are equal where the values are, so that nobody compares a text twice, and
groups come out in the order of first appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices, member_column
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.plans import entity_of
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import compact_lists
from omnigraph.engine.query.values.elementwise import Evaluated
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.language.query import ir
from omnigraph.storage.integer_sets import factorize

# Codes are combined without sorting while their range is at most this many times the number of rows.
_WIDEST_TABLE: Final = 4
_LARGEST_CODE: Final = 2**62
# Distinct values are copied into a dictionary, beside the hash table that finds them; and three numbers for each value.
_ENCODED_COPIES: Final = 3
_NUMBER_BYTES: Final = 8
_ROWS_PER_LOOK: Final = 1 << 16


class Groups(NamedTuple):
    """The group of each row, numbered by first appearance, and the row each group appeared with."""

    of_row: Indices
    first: Indices

    def __len__(self) -> int:
        return len(self.first)


class Coded(NamedTuple):
    """One number below `size` for each row or value, equal where the values are."""

    codes: NDArray[np.int64]
    size: int

    def beside(self, other: Coded) -> Coded:
        """The same for both together."""
        if self.size * other.size > _LARGEST_CODE:
            return self.compact().beside(other.compact())
        return Coded(self.codes * other.size + other.codes, self.size * other.size)

    def compact(self) -> Coded:
        values, _, codes = factorize(self.codes)
        return Coded(codes, max(1, len(values)))

    @property
    def is_dense(self) -> bool:
        """Whether a table over all codes is not much larger than the rows."""
        return self.size <= max(_WIDEST_TABLE * len(self.codes), 1 << 16)


def group(keys: Sequence[ir.Value], rows: Bindings, context: ReadContext) -> Groups:
    """The groups of rows by some keys. Without keys there is one, even without a row to appear with."""
    if not keys:
        return Groups(np.zeros(rows.length, np.int64), np.zeros(1, np.int64))
    return groups_of(code_rows(keys, rows, context))


def group_stored(values: Sequence[ir.PropertyValue], rows: Bindings, context: ReadContext) -> Groups:
    """The groups of rows that hold the same in some stored values: bit by bit, so that no later operator can tell the
    rows of a group apart by these values."""
    coded = Coded(np.zeros(rows.length, np.int64), 1)
    for value in values:
        context.cancellation.check()
        coded = coded.beside(row_codes(_bits(evaluate(value, rows, context)), rows.length, context.budget))
    return groups_of(coded)


def _bits(evaluated: Evaluated) -> Evaluated:
    """Floats as the integers that are stored alike."""
    if not isinstance(evaluated, Located) or not pa.types.is_floating(evaluated.values.type):
        return evaluated
    return Located(evaluated.values.view(f"int{evaluated.values.type.bit_width}"), evaluated.positions)


def code_rows(values: Sequence[ir.Value], rows: Bindings, context: ReadContext) -> Coded:
    """Codes of rows by several values together."""
    coded: Coded | None = None
    for value in values:
        context.cancellation.check()
        own = _code(value, rows, context)
        coded = own if coded is None else coded.beside(own)
    return Coded(np.zeros(rows.length, np.int64), 1) if coded is None else coded


def groups_of(coded: Coded) -> Groups:
    """Rows of one code are a group."""
    if coded.is_dense:
        first, codes = _first_rows(coded), coded.codes
        present = np.flatnonzero(first < len(codes))
        present = present[np.argsort(first[present])]
        if np.array_equal(present, np.arange(coded.size)):
            return Groups(codes, first)
    else:
        _, first, codes = factorize(coded.codes)
        present = np.argsort(first)
    group_of = np.empty(len(first), np.int64)
    group_of[present] = np.arange(len(present))
    return Groups(group_of[codes], first[present])


def _first_rows(coded: Coded) -> Indices:
    """The first row of each code, the number of rows for one that no row has. Codes that have all been met end it."""
    length = len(coded.codes)
    first = np.full(coded.size, length, np.int64)
    step = max(_ROWS_PER_LOOK, coded.size)
    for start in range(0, length, step):
        part = coded.codes[start : start + step]
        here = first if not start else np.full(coded.size, length, np.int64)
        # Assigned backwards: where a code repeats, its first row is written last and stays.
        here[part[::-1]] = np.arange(start + len(part) - 1, start - 1, -1)
        if start:
            np.minimum(first, here, out=first)
        if int(first.max(initial=0)) < length:
            break
    return first


def distinct_rows(keys: Sequence[ir.Value], rows: Bindings, context: ReadContext) -> Bindings:
    """The first row of each combination of the keys, in order; it stands for no other."""
    first = group(keys, rows, context).first if rows.length else np.empty(0, np.int64)
    return Bindings(rows.rows, rows.length).take(first)


def _code(value: ir.Value, rows: Bindings, context: ReadContext) -> Coded:
    """Null has a code too."""
    if (entity := entity_of(value)) is not None:
        variable, type_ = entity
        coded = _code_integers(rows.rows[variable])
        if len(type_.members) > 1:
            members = np.where(rows.rows[variable] < 0, 0, rows.rows[member_column(variable)])
            coded = coded.beside(Coded(members, len(type_.members)))
        return coded
    codes, size = row_codes(evaluate(value, rows, context), rows.length, context.budget)
    return Coded(codes, max(1, size))


def _code_integers(values: Indices) -> Coded:
    if not len(values):
        return Coded(values, 1)
    low = int(values.min())
    return Coded(values - low, int(values.max()) - low + 1)


# ---- codes of values --------------------------------------------------------------------------------------


def row_codes(evaluated: Evaluated, length: int, budget: MemoryBudget) -> Coded:
    """A code for each of so many rows."""
    if not isinstance(evaluated, Located):
        return Coded(np.zeros(length, np.int64), 1)
    column = evaluated.condense(budget)
    codes = identity_codes(column.values, budget)
    return Coded(codes.codes[column.positions], codes.size)


def identity_codes(values: pa.Array, budget: MemoryBudget) -> Coded:
    """A code for each value; null has one too."""
    if not len(values):
        return Coded(np.zeros(0, np.int64), 1)
    budget.step(_ENCODED_COPIES * (values.nbytes + _NUMBER_BYTES * len(values)))
    if pa.types.is_dictionary(values.type):
        return _codes_of_dictionary(values, budget)
    if pa.types.is_struct(values.type):
        return _codes_of_structs(values, budget)
    if pa.types.is_nested(values.type):
        return _codes_of_lists(values, budget)
    return _encode(one_spelling(values))


def one_spelling(values: pa.Array) -> pa.Array:
    """The same values with one zero and one NaN. Which of them a group has must not depend on the order of its rows."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.add(values, pa.scalar(0.0, values.type))
    odd = pc.is_nan(values)
    return pc.if_else(odd, pa.scalar(np.nan, values.type), values) if pc.any(odd).as_py() else values


def _encode(values: pa.Array) -> Coded:
    encoded = values.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(codes, max(1, len(encoded.dictionary)))


def _codes_of_dictionary(values: pa.DictionaryArray, budget: MemoryBudget) -> Coded:
    """Only the values of the dictionary are compared; some of them may be equal, or null."""
    entries = pa.concat_arrays([values.dictionary, pa.nulls(1, values.dictionary.type)])
    codes, size = identity_codes(entries, budget)
    at = pc.fill_null(values.indices.cast(pa.int64()), len(values.dictionary))
    return Coded(codes[at.to_numpy(zero_copy_only=False)], size)


def _codes_of_structs(values: pa.Array, budget: MemoryBudget) -> Coded:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    whole = Coded(valid.astype(np.int64), 2)
    for field in range(values.type.num_fields):
        inner = identity_codes(values.field(field), budget)
        # What a null struct holds does not matter.
        whole = whole.beside(Coded(np.where(valid, inner.codes, 0), inner.size))
    return whole


def _codes_of_lists(values: pa.Array, budget: MemoryBudget) -> Coded:
    """By the bytes that the codes of the items are."""
    lists = compact_lists(values)
    items = identity_codes(lists.values, budget).codes
    offsets = lists.offsets.to_numpy().astype(np.int64) * items.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(items))]
    codes = _encode(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lists), buffers))
    if not lists.null_count:
        return codes
    return Coded(np.where(lists.is_null().to_numpy(zero_copy_only=False), codes.size, codes.codes), codes.size + 1)
