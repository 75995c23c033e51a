"""Value constraints: `@range`, then `@check`, then enum membership, each judged on one row alone.

Asked by `decode` for what it has typed, and by mutations and merges for the rows they are about to write. `@check`
patterns are RE2: they match in linear time and have neither lookaround nor backreferences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.kernels.rows import RejectedRow, Stage, TypedRows
from omnigraph.engine.kernels.scalars import shown
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import CheckRule, NodeType, Property, RangeRule, TableType
from omnigraph.language.patterns import pattern_problem


@dataclass(frozen=True, slots=True)
class Violation:
    """A value that a constraint forbids; `row` counts from 0."""

    row: int
    property: str
    reason: str
    stage: Stage


def check_values(rows: TypedRows) -> list[RejectedRow]:
    """Every violation among decoded rows, in rule order and then row order; empty when all hold."""
    return [
        RejectedRow(rows.lines[found.row].as_py(), rows.type_key, found.property, found.reason, found.stage)
        for found in violations(rows.type, rows.rows)
    ]


def violations(type_: TableType, rows: pa.Table) -> Iterator[Violation]:
    """Every violation among typed rows, in rule order and then row order. Columns that are absent are not judged."""
    if isinstance(type_, NodeType):
        for rule in type_.ranges:
            yield from _outside(type_, type_.properties[rule.property], rule, rows)
        for check in type_.checks:
            yield from _mismatches(type_, type_.properties[check.property], check, rows)
    for prop in type_.property_list:
        if prop.type.enum_values is not None:
            yield from _strangers(type_, prop, prop.type.enum_values, rows)


def _outside(type_: TableType, prop: Property, rule: RangeRule, rows: pa.Table) -> Iterator[Violation]:
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
        value, number = column[row].as_py(), numbers[row].as_py()
        if math.isnan(number):
            found = "value is NaN"
        elif rule.low is not None and number < rule.low:
            found = f"value {value} < min {rule.low}"
        elif rule.high is not None and number > rule.high:
            found = f"value {value} > max {rule.high}"
        else:
            found = f"value {value} is not finite"
        yield Violation(row, prop.name, f"@range violation on {type_.name}.{prop.name}: {found}", Stage.RANGE)


def _mismatches(type_: TableType, prop: Property, rule: CheckRule, rows: pa.Table) -> Iterator[Violation]:
    if prop.type.list or not _has(rows, prop):
        return
    if (problem := pattern_problem(rule.pattern)) is not None:
        raise BadRequestError(f"@check on {type_.name}.{prop.name} has invalid regex '{rule.pattern}': {problem}")
    column = rows.column(prop.column)
    for row in _rows_where_false(pc.match_substring_regex(column, rule.pattern)):
        value = shown(column[row].as_py())
        reason = f"@check violation on {type_.name}.{prop.name}: value {value} does not match pattern '{rule.pattern}'"
        yield Violation(row, prop.name, reason, Stage.CHECK)


def _strangers(type_: TableType, prop: Property, allowed: tuple[str, ...], rows: pa.Table) -> Iterator[Violation]:
    if not _has(rows, prop):
        return
    column = rows.column(prop.column)
    owners = pc.list_parent_indices(column) if prop.type.list else None
    values = pc.list_flatten(column) if prop.type.list else column
    known = pc.or_(pc.is_in(values, value_set=pa.array(allowed, pa.string())), pc.is_null(values))
    for at in _rows_where_false(known):
        named = f"invalid enum value {shown(values[at].as_py())} for {type_.name}.{prop.name}"
        reason = f"{named} (expected: {', '.join(allowed)})"
        yield Violation(at if owners is None else owners[at].as_py(), prop.name, reason, Stage.ENUM)


def _has(rows: pa.Table, prop: Property) -> bool:
    return bool(rows.schema.get_field_index(prop.column) >= 0)


def _rows_where_false(held: pa.ChunkedArray) -> list[int]:
    """Rows that break a rule; null values break none."""
    if pc.all(held, min_count=0).as_py():
        return []
    broken = pc.fill_null(pc.invert(held), False)
    rows: list[int] = np.flatnonzero(broken.to_numpy(zero_copy_only=False)).tolist()
    return rows
