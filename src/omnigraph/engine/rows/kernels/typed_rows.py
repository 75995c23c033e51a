"""The results of the row kernels (typed rows, rejected rows), and the value constraints of single rows.

The in-process loader raises the first rejection, the Spark pipeline keeps them all. `check_values` checks `@range`,
`@check` and enum membership for decoded rows, mutations and merges. `@check` patterns are RE2, so they match in linear
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.end_ids import interface_ends, untyped_ids
from omnigraph.errors import BadRequestError, ConstraintError, ConstraintRule
from omnigraph.language.catalog import CheckRule, NodeType, Property, RangeRule, TableType
from omnigraph.language.values import pattern_problem
from omnigraph.language.violations import Sentence, quote, value_text
from omnigraph.storage.integer_sets import is_member


class Stage(IntEnum):
    """When a row is checked; a stage is complete before the next begins. The last three are called like their rules."""

    ENVELOPE = 1
    FIELDS = 2
    VALUES = 3
    KEYS = 4
    RANGE = 5
    CHECK = 6
    ENUM = 7


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One violation of one row; a row with several bad properties is rejected once for each. `entity_id` is known where
    the record names its id or its key is complete."""

    line: int
    type_key: str | None
    property: str | None
    reason: str
    stage: Stage
    rule: ConstraintRule
    entity_id: str | None = None

    def message(self, unit: str = "line") -> str:
        return f"{unit} {self.line}: {f'{self.type_key}: ' if self.type_key else ''}{self.reason}"

    def error(self, unit: str = "line") -> ConstraintError:
        message = self.message(unit)
        return ConstraintError(self.rule, self.type_key, self.property, self.entity_id, self.line, message=message)

    @classmethod
    def of(
        cls,
        line: int,
        type_key: str | None,
        property: str | None,
        stage: Stage,
        sentence: Sentence,
        /,
        **values: object,
    ) -> RejectedRow:
        """The row that a sentence with these values is about."""
        return cls(line, type_key, property, sentence.text(**values), stage, sentence.rule)


def first_in_stage_order(rejected: Iterable[RejectedRow], types: Mapping[str, TableType]) -> RejectedRow:
    """The rejection to raise: envelopes, then node types, then edge types, then value constraints.

    Within a type the stages follow each other, within a stage the properties, within a property the lines. Value
    constraints follow sorted type keys. Node and edge types come sorted by name.
    """

    def order(row: RejectedRow) -> tuple[int, str, Stage, int, int]:
        if row.type_key is None or row.stage is Stage.ENVELOPE:
            return (0, "", row.stage, 0, row.line)
        type_ = types[row.type_key]
        position = next((i for i, name in enumerate(type_.properties) if name == row.property), -1)
        phase = 3 if row.stage >= Stage.RANGE else 1 if type_.kind == "node" else 2
        return (phase, row.type_key, row.stage, position, row.line)

    return min(rejected, key=order)


class RecordForm(Enum):
    """What a record says about the properties that it leaves out.

    They have their default, or are null, in a `WHOLE` record. `NOTED` is the same, and remembers which they were. A
    `PARTIAL` record names a stored entity, by key or id, and leaves them as they are; the ends of an edge can be left
    out as well.
    """

    WHOLE = auto()
    NOTED = auto()
    PARTIAL = auto()


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Accepted rows of one type in `columns.rows_schema` order, and the input position of each. Unless records are
    `WHOLE`, `present` tells of every column but `id` whether the record of a row has it. `generated` tells whose id was
    made up here; None if every row came with its id or key."""

    type: TableType
    rows: pa.Table
    lines: pa.Array | pa.ChunkedArray
    present: pa.Table | None = None
    generated: pa.BooleanArray | None = None

    @property
    def type_key(self) -> str:
        return self.type.type_key

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        marks = [part for part in (self.present, self.generated) if part is not None]
        return int(self.rows.nbytes + self.lines.nbytes + sum(part.nbytes for part in marks))

    @property
    def is_generated(self) -> bool:
        """Whether every id was made up here, so that none is stored and none comes twice."""
        return self.generated is not None and self.generated.true_count == len(self)

    def given_ids(self) -> pa.ChunkedArray:
        """The ids that the input says."""
        ids = self.rows.column("id")
        return ids if self.generated is None else ids.filter(pc.invert(self.generated))

    def last_of_each(self) -> TypedRows:
        """One row per id, the last one, in their order."""
        ids = self.rows.column("id")
        if self.is_generated or len(pc.unique(ids)) == len(ids):
            return self
        numbered = pa.table({"id": ids, "row": pa.array(range(len(ids)), pa.int64())})
        last = numbered.group_by("id").aggregate([("row", "max")]).column("row_max").combine_chunks().sort()
        return self.take(last)

    def take(self, rows: pa.Array) -> TypedRows:
        return self._each(lambda part: part.take(rows))

    def slice(self, start: int, count: int) -> TypedRows:
        return self._each(lambda part: part.slice(start, count))

    def filter(self, keep: pa.Array) -> TypedRows:
        return self._each(lambda part: part.filter(keep))

    def _each(self, choose: Callable[[Any], Any]) -> TypedRows:
        """The same choice of rows from every part."""
        present = None if self.present is None else choose(self.present)
        generated = None if self.generated is None else choose(self.generated)
        return TypedRows(self.type, choose(self.rows), choose(self.lines), present, generated)

    def with_rows(self, rows: pa.Table) -> TypedRows:
        """The same records with other values."""
        return replace(self, rows=rows)

    @classmethod
    def join(cls, parts: Sequence[TypedRows]) -> TypedRows:
        """Rows of one type behind each other; there is at least one part."""
        presences = [part.present for part in parts if part.present is not None]
        generated = None
        if any(part.generated is not None for part in parts):
            generated = pa.concat_arrays(
                [pa.repeat(False, len(p)) if p.generated is None else p.generated for p in parts]
            )
        return cls(
            parts[0].type,
            pa.concat_tables([part.rows for part in parts]),
            pa.chunked_array([chunk for part in parts for chunk in _chunks(part.lines)], pa.int64()),
            pa.concat_tables(presences) if presences else None,
            generated,
        )

    def without(self, lines: Iterable[int]) -> TypedRows:
        """The rows that stand on none of these lines."""
        dropped = np.fromiter(set(lines), np.int64)
        if not len(dropped):
            return self
        return self.filter(pa.array(~is_member(self.lines.to_numpy(zero_copy_only=False), dropped)))


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


@dataclass(slots=True)
class LostValues:
    """What the lenient grammar did not take: values that became null, and members that no row has."""

    nulled: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class DecodedInput:
    """A whole input, by type key in sorted order; only types that have records are present. `rejected` is empty unless
    the caller asked to collect. `lost` is None in the strict grammar, which loses nothing."""

    by_type: dict[str, TypedRows]
    rejected: tuple[RejectedRow, ...] = ()
    lost: LostValues | None = None


@dataclass(frozen=True, slots=True)
class ForbiddenValue:
    """A value that a constraint forbids; `row` counts from 0."""

    row: int
    property: str
    reason: str
    rule: ConstraintRule

    def stage(self) -> Stage:
        return Stage[self.rule.name]


def ends_without_type(rows: TypedRows) -> list[RejectedRow]:
    """The edges with an id alone at an end that is an interface, where nobody looks for its type."""
    rejected = []
    for end in interface_ends(rows.type):
        column = untyped_ids(rows.rows.column(end.column))
        for row in np.flatnonzero(pc.is_valid(column).to_numpy()).tolist():
            name, values = f"{end.name}_type", {"node_id": column[row].as_py(), "types": ", ".join(end.types)}
            line = rows.lines[row].as_py()
            rejected.append(
                RejectedRow.of(line, rows.type_key, name, Stage.ENVELOPE, Sentence.NO_END_TYPE, name=name, **values)
            )
    return rejected


def check_values(rows: TypedRows) -> list[RejectedRow]:
    """Every violation among decoded rows, in rule order and then row order; empty when all hold."""
    key, ids = rows.type_key, rows.rows.column("id")
    rejected = []
    for bad in forbidden_values(rows.type, rows.rows):
        line, entity_id = rows.lines[bad.row].as_py(), ids[bad.row].as_py()
        rejected.append(RejectedRow(line, key, bad.property, bad.reason, bad.stage(), bad.rule, entity_id))
    return rejected


def forbidden_values(type_: TableType, rows: pa.Table) -> Iterator[ForbiddenValue]:
    """Every violation among typed rows, in rule order and then row order. Columns that are absent are not checked."""
    columns = set(rows.column_names)
    present = {prop.name: prop for prop in type_.property_list if prop.column in columns}
    if isinstance(type_, NodeType):
        scalars = {name: prop for name, prop in present.items() if not prop.type.list}
        for rule in type_.ranges:
            if rule.property in scalars:
                yield from _outside(type_, scalars[rule.property], rule, rows)
        for check in type_.checks:
            if check.property in scalars:
                yield from _mismatches(type_, scalars[check.property], check, rows)
    for prop in present.values():
        if prop.type.enum_values is not None:
            yield from _not_in_enum(type_, prop, prop.type.enum_values, rows)


def _outside(type_: TableType, prop: Property, rule: RangeRule, rows: pa.Table) -> Iterator[ForbiddenValue]:
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
        if rule.low is not None and number < rule.low:
            sentence, bound = Sentence.BELOW_MINIMUM, rule.low
        elif rule.high is not None and number > rule.high:
            sentence, bound = Sentence.ABOVE_MAXIMUM, rule.high
        else:
            sentence, bound = Sentence.NAN if math.isnan(number) else Sentence.NOT_FINITE, None
        value = value_text(prop.type.scalar, column[row].as_py())
        yield _forbidden(row, type_, prop, sentence, value=value, bound=bound)


def _mismatches(type_: TableType, prop: Property, rule: CheckRule, rows: pa.Table) -> Iterator[ForbiddenValue]:
    if (problem := pattern_problem(rule.pattern)) is not None:
        raise BadRequestError(f"@check on {type_.name}.{prop.name} has invalid regex '{rule.pattern}': {problem}")
    column = rows.column(prop.column)
    for row in _rows_where_false(pc.match_substring_regex(column, rule.pattern)):
        value = quote(column[row].as_py())
        yield _forbidden(row, type_, prop, Sentence.NO_MATCH, value=value, pattern=rule.pattern)


def _not_in_enum(type_: TableType, prop: Property, allowed: Sequence[str], rows: pa.Table) -> Iterator[ForbiddenValue]:
    column = rows.column(prop.column)
    owners = pc.list_parent_indices(column) if prop.type.list else None
    values = pc.list_flatten(column) if prop.type.list else column
    allowed_or_null = pc.or_(pc.is_in(values, value_set=pa.array(allowed, pa.string())), pc.is_null(values))
    for at in _rows_where_false(allowed_or_null):
        row = at if owners is None else owners[at].as_py()
        value = quote(values[at].as_py())
        yield _forbidden(row, type_, prop, Sentence.NO_MEMBER, value=value, allowed=", ".join(allowed))


def _forbidden(row: int, type_: TableType, prop: Property, sentence: Sentence, **values: object) -> ForbiddenValue:
    reason = sentence.text(type=type_.name, property=prop.name, **values)
    return ForbiddenValue(row, prop.name, reason, sentence.rule)


def _rows_where_false(held: pa.ChunkedArray) -> list[int]:
    """Rows that break a rule; null values break none."""
    if pc.all(held, min_count=0).as_py():
        return []
    broken = pc.fill_null(pc.invert(held), False)
    rows: list[int] = np.flatnonzero(broken.to_numpy(zero_copy_only=False)).tolist()
    return rows
