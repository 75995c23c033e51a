"""The tables of a run between writing and publishing: what was stored, what came in, what was taken out again.

Each type that a run writes goes through detached versions: the base, the base with all incoming fragments, and one
more whenever rows are taken out. Checks read the newest; only the last one can ever be published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.publish import WriteTxn
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.pipeline.scanning import TableScan, scan_frame
from omnigraph.pipeline.transport import spark_schema
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import StagedTable, Table
from omnigraph.storage.tables.distributed import (
    OFFSET_BITS,
    PLACE,
    FragmentStaging,
    FragmentSummary,
    TableAddress,
    fragments_of,
)

Columns: TypeAlias = Sequence[str] | Mapping[str, str]
"""Columns of a table, with other names for them where it is a mapping."""


@dataclass(frozen=True, slots=True)
class WrittenFragment:
    """A fragment that an executor wrote: which source's rows it holds, from which row on."""

    type_key: str
    source: str
    order: int
    first: int
    rows: int
    json: str

    @property
    def file(self) -> str:
        return str(json.loads(self.json)["files"][0]["path"])


@dataclass(frozen=True, slots=True)
class IncomingType:
    """One type of the run. `fragments` are the incoming ones by their id in `all_rows` and later versions."""

    type: TableType
    base: TableState
    all_rows: TableState
    current: TableState
    fragments: dict[int, WrittenFragment]
    replaces: bool
    updated: int = 0

    @property
    def key(self) -> str:
        return self.type.type_key


class IncomingTables:
    """All tables of one attempt against one captured head."""

    def __init__(self, spark: SparkSession, txn: WriteTxn) -> None:
        self.spark = spark
        self.txn = txn
        self.staging = FragmentStaging(txn.root.reader, txn.root.trace)
        self.by_key: dict[str, IncomingType] = {}

    @property
    def catalog(self) -> Catalog:
        return self.txn.snapshot.catalog

    def add(self, type_: TableType, written: Sequence[WrittenFragment], *, replaces: bool) -> None:
        """Stage the fragments of a type, in input order: ids of fragments then follow the order of the input."""
        base = self.txn.state(type_.type_key)
        ordered = sorted(written, key=lambda f: (f.order, f.first))
        staged = self.staging.add_fragments(base, [f.json for f in ordered], replaces=replaces).state
        by_file = {f.file: f for f in ordered}
        fragments = {f.id: by_file[f.file] for f in fragments_of(self.open(staged)) if f.file in by_file}
        self.by_key[type_.type_key] = IncomingType(type_, base, staged, staged, fragments, replaces)

    def types(self, kind: str) -> Iterator[IncomingType]:
        return (self.by_key[key] for key in sorted(self.by_key) if key.startswith(f"{kind}:"))

    def open(self, state: TableState) -> Table:
        return self.txn.root.reader.open(state)

    def address(self, state: TableState) -> TableAddress:
        return TableAddress.of(self.txn.root.location, state)

    def fresh(self, key: str, columns: Columns) -> TableScan:
        """Incoming rows that are still in, with their places. Nothing when the run does not write the type."""
        incoming = self.by_key.get(key)
        if incoming is None:
            return self._scan(self.txn.state(key), columns, lambda _: False)
        return self._scan(incoming.current, columns, lambda f: f.id in incoming.fragments)

    def stored(self, key: str, columns: Columns) -> TableScan:
        """Rows of the captured head, with their places. Nothing when the run replaces the type."""
        incoming = self.by_key.get(key)
        replaced = incoming is not None and incoming.replaces
        return self._scan(self.txn.state(key), columns, lambda _: not replaced)

    def committed(self, key: str, columns: Columns) -> TableScan:
        """Rows of the captured head, whatever the run does to the type."""
        return self._scan(self.txn.state(key), columns, lambda _: True)

    def frame(self, scan: TableScan) -> DataFrame:
        return scan_frame(self.spark, scan)

    def _scan(self, state: TableState, columns: Columns, wanted: Callable[[FragmentSummary], bool]) -> TableScan:
        table = self.open(state)
        fragments = tuple(f for f in fragments_of(table) if wanted(f))
        schema: pa.Schema = table.schema
        names = columns if isinstance(columns, Mapping) else {}
        return TableScan(self.address(state), fragments, schema, tuple(columns), names, places=True)

    def take_out(self, key: str, places: DataFrame) -> int:
        """Remove rows by place; one task per fragment writes its deletions."""
        incoming = self.by_key[key]
        remaining = deleted_by_fragment(self.address(incoming.current), places)
        if not remaining:
            return 0
        staged = self.staging.without_rows(incoming.current, {number: text for number, text, _ in remaining})
        self.by_key[key] = replace(incoming, current=staged.state)
        return sum(count for _, _, count in remaining)

    def replace_current(self, key: str, state: TableState) -> None:
        """Go on with a version that has the same rows."""
        self.by_key[key] = replace(self.by_key[key], current=state)

    def note_updated(self, key: str, updated: int) -> None:
        self.by_key[key] = replace(self.by_key[key], updated=updated)

    def staged(self) -> dict[str, StagedTable]:
        """What to publish: the newest version of each type that has something to publish."""
        return {key: StagedTable(t.current, self.changes(t)) for key, t in sorted(self.by_key.items())}

    def changes(self, incoming: IncomingType) -> ChangeCounts:
        if incoming.replaces:
            return ChangeCounts(inserted=incoming.current.rows, deleted=incoming.base.rows)
        return ChangeCounts(inserted=incoming.current.rows - incoming.base.rows, updated=incoming.updated)


_REMAINING = pa.schema([("fragment", pa.int64()), ("remaining", pa.string()), ("deleted", pa.int64())])


def deleted_by_fragment(address: TableAddress, places: DataFrame) -> list[tuple[int, str | None, int]]:
    """Per touched fragment what is left of it, and how many rows went. Runs on executors, returns metadata."""
    fragment = F.shiftright(PLACE, OFFSET_BITS).alias("fragment")
    rows = places.select(fragment, PLACE).groupBy("fragment").applyInArrow(_deleting(address), spark_schema(_REMAINING))
    return [(row[0], row[1], row[2]) for row in rows.collect()]


def _deleting(address: TableAddress) -> Callable[[pa.Table], pa.Table]:
    def delete(group: pa.Table) -> pa.Table:
        from omnigraph.storage.tables.distributed import delete_rows, grouped

        (rows,) = grouped(group.column(PLACE).to_pylist())
        return pa.table([[rows.fragment], [delete_rows(address, rows)], [len(rows.offsets)]], _REMAINING)

    return delete
