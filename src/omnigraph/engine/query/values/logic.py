"""Three-valued logic and choices: `and or not`, null tests, comparisons, `case`, `coalesce`, `nullif`.

`and` and `or` decide as far as their operands do; `case` and `coalesce` evaluate a part only for the rows that need it.
Called by `evaluate`, which they call back for such parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Bindings, Indices, Mask
from omnigraph.engine.query.context import ValueContext
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import column_type, renumber_members
from omnigraph.engine.query.values.compare import Truth, as_mask, membership_truth, sides_truth
from omnigraph.engine.query.values.elementwise import (
    Argument,
    Evaluate,
    Evaluated,
    HeldValues,
    Part,
    Piece,
    apply,
    as_located,
    join_pieces,
)
from omnigraph.engine.query.values.stored import variables_read
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import (
    ValueType,
    as_nullable,
    is_null,
    item_of,
    list_of,
    unify,
)
from omnigraph.language.types import PropertyType

LISTED_COPIES: Final = 8
"""A list of constants, its items as Python values, and as values of the column's type."""

# ---- truth values ---------------------------------------------------------------------------------------


def truth_of(evaluated: Evaluated, length: int) -> Truth:
    """Bool values by row."""
    column = as_located(evaluated, length)
    # One value more, the null of negative positions.
    true = np.append(as_mask(column.values), False)[column.positions]
    null = np.append(as_mask(column.values.is_null()), True)[column.positions]
    return Truth(true, null)


def true_rows(evaluated: Evaluated, length: int) -> Mask:
    """The rows that are true."""
    if isinstance(evaluated, pa.Scalar):
        return np.full(length, evaluated.as_py() is True)
    true = as_mask(evaluated.values)
    if (evaluated.positions < 0).any():
        true = np.append(true, False)
    return true[evaluated.positions]


def conjunction(operands: Sequence[Evaluated], length: int) -> Evaluated:
    """False if an operand is false, else null if one is null, else true."""
    truths = [truth_of(operand, length) for operand in operands]
    false = np.logical_or.reduce([~each.true & ~each.null for each in truths])
    null = np.logical_or.reduce([each.null for each in truths]) & ~false
    return _by_row(Truth(~false & ~null, null))


def disjunction(operands: Sequence[Evaluated], length: int) -> Evaluated:
    """True if an operand is true, else null if one is null, else false."""
    truths = [truth_of(operand, length) for operand in operands]
    true = np.logical_or.reduce([each.true for each in truths])
    return _by_row(Truth(true, np.logical_or.reduce([each.null for each in truths]) & ~true))


def _by_row(truth: Truth) -> Located:
    return Located(truth.array(), np.arange(len(truth.true)))


def negation(operand: Evaluated) -> Evaluated:
    if isinstance(operand, pa.Scalar):
        return pa.scalar(not operand.as_py() if operand.is_valid else None, pa.bool_())
    return Located(pc.invert(operand.values), operand.positions)


def null_test(operand: Evaluated, *, negated: bool) -> Evaluated:
    """Whether a value is null, or is not."""
    if isinstance(operand, pa.Scalar):
        return pa.scalar(operand.is_valid is negated)
    null = np.append(as_mask(operand.values.is_null()), True)
    positions = np.where(operand.positions < 0, len(null) - 1, operand.positions)
    return Located(pa.array(null != negated), positions)


# ---- comparisons ----------------------------------------------------------------------------------------


class Side(NamedTuple):
    """A value to compare, and its type."""

    evaluated: Evaluated
    type: ValueType


def comparison(
    left: Side, operator: ir.Operator, right: Side, length: int, value: ir.Value, context: ValueContext
) -> Evaluated:
    """`left operator right`. `value` is what it is part of, for errors."""
    if is_null(left.type) or is_null(right.type):
        return pa.scalar(None, pa.bool_())
    if operator is ir.Operator.MEMBER:
        item, items = comparable_items(right, left)
        sides = [items.evaluated, item.evaluated]
    else:
        sides = [side.evaluated for side in comparable_sides(left, right)]

    def kernel(part: Part, one: Argument, other: Argument) -> pa.Array:
        _reserve_repeated(part, one, other)
        return sides_truth(one, operator, other, part.size).array()

    return apply(kernel, value, pa.bool_(), sides, length, context)


def membership(item: Side, items: Side, length: int, value: ir.Value, context: ValueContext) -> Evaluated:
    """`item in items`"""
    if is_null(item.type) or is_null(items.type):
        return pa.scalar(None, pa.bool_())
    item, items = comparable_items(item, items)
    if isinstance(items.evaluated, pa.Scalar):
        context.budget.step(LISTED_COPIES * pa.repeat(items.evaluated, 1).nbytes)

    def kernel(part: Part, one: Argument, lists: Argument) -> pa.Array:
        _reserve_repeated(part, one, *([lists] if pa.types.is_nested(one.type) else []))
        return membership_truth(one, lists, part.size).array()

    return apply(kernel, value, pa.bool_(), [item.evaluated, items.evaluated], length, context)


def _reserve_repeated(part: Part, *sides: Argument) -> None:
    """Lists and records that are the same for all rows are repeated to be compared item by item."""
    repeated = [side for side in sides if isinstance(side, pa.Scalar) and pa.types.is_nested(side.type)]
    part.reserve(part.size * sum(pa.repeat(side, 1).nbytes for side in repeated))


def comparable_sides(left: Side, right: Side) -> tuple[Side, Side]:
    """The sides with the same numbers for the types of their entities. Numbers and texts compare as they are."""
    if isinstance(left.type, PropertyType) and isinstance(right.type, PropertyType):
        return left, right
    both = unify(left.type, right.type)
    assert both is not None, "the checker compares only what can meet"
    return _with_members_of(left, both), _with_members_of(right, both)


def comparable_items(item: Side, items: Side) -> tuple[Side, Side]:
    """The same for an item and a list."""
    own = item_of(items.type)
    if isinstance(item.type, PropertyType) and isinstance(own, PropertyType):
        return item, items
    both = unify(item.type, own)
    assert both is not None, "the checker compares only what can meet"
    return _with_members_of(item, both), _with_members_of(items, list_of(both))


def _with_members_of(side: Side, type_: ValueType) -> Side:
    """The same entities with the numbers that their types have there."""
    evaluated = side.evaluated
    if isinstance(evaluated, Located):
        return Side(Located(renumber_members(evaluated.values, side.type, type_), evaluated.positions), type_)
    return Side(renumber_members(pa.repeat(evaluated, 1), side.type, type_)[0], type_)


# ---- choices --------------------------------------------------------------------------------------------


class _Choice:
    """Rows that wait for their value, and the pieces of those that have one."""

    def __init__(self, value: ir.Case | ir.Call, rows: Bindings, context: ValueContext) -> None:
        self._rows, self._type, self._context = rows.only(variables_read(value)), value.type, context
        self._pieces: list[Piece] = []
        self._held = HeldValues(context.budget)
        self.waiting: Indices = np.arange(rows.length)

    def __enter__(self) -> _Choice:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.release()

    @property
    def rows(self) -> Bindings:
        """The rows that wait."""
        return self._rows if len(self.waiting) == self._rows.length else self._rows.take(self.waiting)

    def settle(self, mask: Mask, evaluated: Evaluated, value: ir.Value) -> None:
        """Some of the waiting rows have their values."""
        if mask.any():
            self._pieces.append((self.waiting[mask], self._held.keep(value, evaluated), value.type))
        self.waiting = self.waiting[~mask]

    def result(self) -> Evaluated:
        """The values of all rows; a row that still waits has null."""
        if len(self._pieces) == 1 and len(self._pieces[0][0]) == self._rows.length:
            _, evaluated, own = self._pieces[0]
            if as_nullable(own) == as_nullable(self._type):
                return evaluated
        if not self._pieces:
            return pa.scalar(None, column_type(self._type))
        return join_pieces(self._pieces, self._rows.length, self._type, self._context)


def case(value: ir.Case, rows: Bindings, context: ValueContext, evaluate: Evaluate) -> Evaluated:
    """The value of the first branch whose test is true, or equals the operand."""
    operand = None if value.operand is None else Side(evaluate(value.operand, rows, context), value.operand.type)
    with _Choice(value, rows, context) as choice:
        for branch in value.branches:
            if not len(choice.waiting):
                break
            test = evaluate(branch.test, choice.rows, context)
            if operand is not None:
                part = Side(_rows_of(operand.evaluated, choice.waiting), operand.type)
                tested = Side(test, branch.test.type)
                test = comparison(part, ir.Operator.EQUAL, tested, len(choice.waiting), value, context)
            mask = true_rows(test, len(choice.waiting))
            if mask.any():
                choice.settle(mask, evaluate(branch.value, choice.rows.where(mask), context), branch.value)
        if value.otherwise is not None and len(choice.waiting):
            rest = evaluate(value.otherwise, choice.rows, context)
            choice.settle(np.ones(len(choice.waiting), np.bool_), rest, value.otherwise)
        return choice.result()


def coalesce(value: ir.Call, rows: Bindings, context: ValueContext, evaluate: Evaluate) -> Evaluated:
    """The first argument that is not null."""
    with _Choice(value, rows, context) as choice:
        for argument in value.arguments:
            if not len(choice.waiting):
                break
            evaluated = evaluate(argument, choice.rows, context)
            present = true_rows(null_test(evaluated, negated=True), len(choice.waiting))
            choice.settle(present, _rows_of(evaluated, np.flatnonzero(present)), argument)
        return choice.result()


def nullif(value: ir.Call, rows: Bindings, context: ValueContext, evaluate: Evaluate) -> Evaluated:
    """The first argument, or null where it equals the second."""
    left, right = (Side(evaluate(argument, rows, context), argument.type) for argument in value.arguments)
    equal = true_rows(comparison(left, ir.Operator.EQUAL, right, rows.length, value, context), rows.length)
    if not equal.any():
        return left.evaluated
    column = as_located(left.evaluated, rows.length)
    return Located(column.values, np.where(equal, -1, column.positions))


def _rows_of(evaluated: Evaluated, rows: Indices) -> Evaluated:
    return Located(evaluated.values, evaluated.positions[rows]) if isinstance(evaluated, Located) else evaluated
