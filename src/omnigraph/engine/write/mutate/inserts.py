"""Inserts that wait to be typed: consecutive ones become one block of rows per type.

Typing one row costs as much as typing a thousand together. The result is the same: rows keep their order, and of all
violations that of the earliest statement is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from omnigraph.engine.rows.kernels import RejectedRow, TypedRows, type_records
from omnigraph.language.catalog import TableType
from omnigraph.language.query.params import BoundValue

UNIT = "statement"


@dataclass(slots=True)
class _Block:
    type: TableType
    records: list[Mapping[str, BoundValue]] = field(default_factory=list)
    statements: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


class WaitingInserts:
    """Records by type, in the order of their statements. `readable` is the form of a type that records are read by."""

    def __init__(self, readable: Callable[[TableType], TableType]) -> None:
        self._readable = readable
        self._blocks: dict[str, _Block] = {}

    def add(
        self,
        type_: TableType,
        record: Mapping[str, BoundValue],
        statement: int,
        endpoints: tuple[str, str] | None = None,
    ) -> None:
        block = self._blocks.get(type_.type_key)
        if block is None:
            block = self._blocks[type_.type_key] = _Block(type_)
        block.records.append(record)
        block.statements.append(statement)
        if endpoints is not None:
            block.sources.append(endpoints[0])
            block.targets.append(endpoints[1])

    def take(self) -> Iterator[TypedRows]:
        """All waiting inserts as typed rows; raises the violation of the earliest statement that has one."""
        blocks, self._blocks = self._blocks, {}
        rejected: list[RejectedRow] = []
        typed = [
            replace(
                type_records(
                    self._readable(block.type),
                    block.records,
                    block.statements,
                    rejected,
                    endpoints=(block.sources, block.targets) if block.sources else None,
                ),
                type=block.type,
            )
            for block in blocks.values()
        ]
        refuse_first(rejected)
        return iter(typed)


def refuse_first(rejected: list[RejectedRow]) -> None:
    """Raise for the earliest statement, and of its violations the one that is checked first."""
    if rejected:
        raise min(rejected, key=lambda row: (row.line, row.stage)).error(UNIT)
