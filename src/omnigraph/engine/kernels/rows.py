"""What the kernels hand to their callers: typed rows of one type, rejected rows, and the options of a decode.

The in-process loader raises the first rejection; the Spark pipeline keeps them all. Both see the same reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeVar

import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType

DEFAULT_ROWS = 2_000_000
DEFAULT_BYTES = 512 << 20


class Grammar(Enum):
    """How forgiving a decode is: `STRICT` for today's inputs, `LENIENT` to rebuild old exports."""

    STRICT = "strict"
    LENIENT = "lenient"

    @property
    def unit(self) -> str:
        """What a position counts: lines of the input, or records of a stream."""
        return "line" if self is Grammar.STRICT else "record"


class Stage(IntEnum):
    """When a row is judged. A stage is complete before the next begins, so the lowest stage is reported first."""

    ENVELOPE = 1
    FIELDS = 2
    VALUES = 3
    KEYS = 4
    CONSTRAINTS = 5


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One reason why one row can't be taken. A row with several bad properties is rejected once for each."""

    line: int
    type_key: str | None
    property: str | None
    reason: str
    stage: Stage

    def message(self, unit: str = "line") -> str:
        where = f"{unit} {self.line}"
        return f"{where}: {self.type_key}: {self.reason}" if self.type_key else f"{where}: {self.reason}"

    def error(self, unit: str = "line") -> BadRequestError:
        return BadRequestError(self.message(unit))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one decode may hold in memory. Beyond it the input belongs to the Spark pipeline."""

    rows: int = DEFAULT_ROWS
    bytes: int = DEFAULT_BYTES


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


@dataclass(frozen=True, slots=True)
class DecodedInput:
    """A whole input, by type key in sorted order; only types that have records are present.

    `rejected` is empty unless the caller asked to collect. `counts` are input records per type key.
    """

    by_type: dict[str, TypedRows]
    rejected: tuple[RejectedRow, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
