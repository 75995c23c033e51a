"""Value constraints: `@range`, then `@check`, then enum membership, each checked on single rows.

Called by `decode` for the rows it has typed, and by mutations and merges for the rows they are about to write.
`@check` patterns are RE2: they match in linear time and have neither lookaround nor backreferences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.kernels.rows import RejectedRow, Stage, TypedRows
from omnigraph.errors import BadRequestError, ConstraintRule
from omnigraph.language.catalog import CheckRule, NodeType, Property, RangeRule, TableType
from omnigraph.language.patterns import pattern_problem
from omnigraph.language.violations import Sentence, quoted, value_text


@dataclass(frozen=True, slots=True)
class ForbiddenValue:
    """A value that a constraint forbids; `row` counts from 0."""

    row: int
    property: str
    reason: str
    rule: ConstraintRule

    def stage(self) -> Stage:
        return Stage[self.rule.name]


def check_values(rows: TypedRows) -> list[RejectedRow]:
    """Every violation among decoded rows, in rule order and then row order; empty when all hold."""
    ids = rows.rows.column("id")
    return [
        RejectedRow(
            rows.lines[found.row].as_py(),
            rows.type_key,
            found.property,
            found.reason,
            found.stage(),
            found.rule,
            ids[found.row].as_py(),
        )
        for found in forbidden_values(rows.type, rows.rows)
    ]


def forbidden_values(type_: TableType, rows: pa.Table) -> Iterator[ForbiddenValue]:
    """Every violation among typed rows, in rule order and then row order. Columns that are absent are not checked."""
    if isinstance(type_, NodeType):
        for rule in type_.ranges:
            yield from _outside(type_, type_.properties[rule.property], rule, rows)
        for check in type_.checks:
            yield from _mismatches(type_, type_.properties[check.property], check, rows)
    for prop in type_.property_list:
        if prop.type.enum_values is not None:
            yield from _not_in_enum(type_, prop, prop.type.enum_values, rows)


def _outside(type_: TableType, prop: Property, rule: RangeRule, rows: pa.Table) -> Iterator[ForbiddenValue]:
    if prop.type.list or not _has(rows, prop):
        return
    column = rows.column(prop.column)
    # Compared as 64-bit floats on both sides, where NaN is inside nothing.
    numbers = pc.cast(column, pa.float64(), safe=False)
    inside = pc.is_finite(numbers)
    if rule.low is not None:
        inside = pc.and_(inside, pc.greater_equal(numbers, float(rule.low)))
    if rule.high is not None:
        inside = pc.and_(inside, pc.less_equal(numbers, float(rule.high)))
    for row in _rows_where_false(inside):
        number = numbers[row].as_py()
        bound: float | None = None
        if math.isnan(number):
            sentence = Sentence.NO_NUMBER
        elif rule.low is not None and number < rule.low:
            sentence, bound = Sentence.BELOW_MINIMUM, rule.low
        elif rule.high is not None and number > rule.high:
            sentence, bound = Sentence.ABOVE_MAXIMUM, rule.high
        else:
            sentence = Sentence.ENDLESS
        value = value_text(prop.type.scalar, column[row].as_py())
        yield _forbidden(row, type_, prop, sentence, value=value, bound=bound)


def _mismatches(type_: TableType, prop: Property, rule: CheckRule, rows: pa.Table) -> Iterator[ForbiddenValue]:
    if prop.type.list or not _has(rows, prop):
        return
    if (problem := pattern_problem(rule.pattern)) is not None:
        raise BadRequestError(f"@check on {type_.name}.{prop.name} has invalid regex '{rule.pattern}': {problem}")
    column = rows.column(prop.column)
    for row in _rows_where_false(pc.match_substring_regex(column, rule.pattern)):
        value = quoted(column[row].as_py())
        yield _forbidden(row, type_, prop, Sentence.NO_MATCH, value=value, pattern=rule.pattern)


def _not_in_enum(
    type_: TableType, prop: Property, allowed: tuple[str, ...], rows: pa.Table
) -> Iterator[ForbiddenValue]:
    if not _has(rows, prop):
        return
    column = rows.column(prop.column)
    owners = pc.list_parent_indices(column) if prop.type.list else None
    values = pc.list_flatten(column) if prop.type.list else column
    known = pc.or_(pc.is_in(values, value_set=pa.array(allowed, pa.string())), pc.is_null(values))
    for at in _rows_where_false(known):
        row = at if owners is None else owners[at].as_py()
        value = quoted(values[at].as_py())
        yield _forbidden(row, type_, prop, Sentence.NO_MEMBER, value=value, allowed=", ".join(allowed))


def _forbidden(row: int, type_: TableType, prop: Property, sentence: Sentence, **values: object) -> ForbiddenValue:
    reason = sentence.text(type=type_.name, property=prop.name, **values)
    return ForbiddenValue(row, prop.name, reason, sentence.rule)


def _has(rows: pa.Table, prop: Property) -> bool:
    return bool(rows.schema.get_field_index(prop.column) >= 0)


def _rows_where_false(held: pa.ChunkedArray) -> list[int]:
    """Rows that break a rule; null values break none."""
    if pc.all(held, min_count=0).as_py():
        return []
    broken = pc.fill_null(pc.invert(held), False)
    rows: list[int] = np.flatnonzero(broken.to_numpy(zero_copy_only=False)).tolist()
    return rows
