"""What the row kernels return: typed rows of one type, rejected rows, and the limits of a decode.

The in-process loader raises the first rejection, the Spark pipeline keeps them all. Both see the same violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from omnigraph.errors import ConstraintError, ConstraintRule
from omnigraph.language.catalog import TableType
from omnigraph.storage.ordered import contained


class Stage(IntEnum):
    """When a row is checked; a stage is complete before the next begins."""

    ENVELOPE = 1
    FIELDS = 2
    VALUES = 3
    KEYS = 4
    RANGE = 5
    CHECK = 6
    ENUM = 7


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One violation of one row. A row with several bad properties is rejected once for each.

    `entity_id` is known where the record names its id or its key is complete.
    """

    line: int
    type_key: str | None
    property: str | None
    reason: str
    stage: Stage
    rule: ConstraintRule
    entity_id: str | None = None

    def message(self, unit: str = "line") -> str:
        where = f"{unit} {self.line}"
        return f"{where}: {self.type_key}: {self.reason}" if self.type_key else f"{where}: {self.reason}"

    def error(self, unit: str = "line") -> ConstraintError:
        return ConstraintError(
            self.rule, self.type_key, self.property, self.entity_id, self.line, message=self.message(unit)
        )


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


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Accepted rows of one type in `columns.rows_schema` order, and the input position of each."""

    type: TableType
    rows: pa.Table
    lines: pa.Array

    @property
    def type_key(self) -> str:
        return self.type.type_key

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def without(self, lines: Iterable[int]) -> TypedRows:
        """The rows that stand on none of these lines."""
        dropped = np.fromiter(set(lines), np.int64)
        if not len(dropped):
            return self
        keep = pa.array(~contained(self.lines.to_numpy(zero_copy_only=False), dropped))
        return TypedRows(self.type, self.rows.filter(keep), self.lines.filter(keep))


@dataclass(slots=True)
class LostValues:
    """What the lenient grammar did not take: values that became null, and members that no row has."""

    nulled: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class DecodedInput:
    """A whole input, by type key in sorted order; only types that have records are present.

    `rejected` is empty unless the caller asked to collect. `lost` is None in the strict grammar, which loses nothing.
    """

    by_type: dict[str, TypedRows]
    rejected: tuple[RejectedRow, ...] = ()
    lost: LostValues | None = None
