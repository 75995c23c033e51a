"""Opening and reading immutable table versions.

`(path, version)` never changes meaning, so an opened dataset is cached without any invalidation: the last versions of
each table, under one byte bound and one shared Lance session per graph handle.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import Session  # type: ignore[attr-defined]

from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.failing import manifest_name as manifest_name
from omnigraph.storage.tables.failing import reclaimed as reclaimed
from omnigraph.storage.tables.failing import translated
from omnigraph.storage.tables.wide import is_wide, taken

_OPEN_BYTES = 64 << 20
# Who writes leaves a version behind with each commit: without this, a busy table alone would fill the bound above.
_OPEN_VERSIONS = 16
_METADATA_CACHE_BYTES = 128 << 20
_INDEX_CACHE_BYTES = 1 << 30
# What an open dataset costs: its manifest in memory, mostly the metadata of fragments and columns.
_BYTES_PER_DATASET = 16 << 10
_BYTES_PER_FRAGMENT = 1 << 10
_BYTES_PER_COLUMN = 1 << 10

_VALUES_PER_PROBE = 1_000
# From here on one scan of the column costs less than probing, with or without an index.
_VALUES_PER_SCAN = 10_000
_ROWS_PER_SCANNED_BATCH = 1 << 19


class Table:
    """One table at one version. Everything read from it comes from that version."""

    def __init__(self, state: TableState, dataset: Any, location: Location) -> None:
        self.state = state
        self.dataset = dataset
        self._location = location

    @cached_property
    def schema(self) -> pa.Schema:
        """Kept, because Lance makes it anew, column by column, each time it is asked."""
        return self.dataset.schema

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(self.schema.names)

    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        row_ids: bool = False,
    ) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        if is_wide(names):
            rows = taken(self, names, filter=filter, limit=limit, row_ids=row_ids)
            if rows is not None:
                return rows
        with self.reading():
            return self.dataset.to_table(columns=names, filter=filter, limit=limit, with_row_id=row_ids)

    def batches(self, columns: Sequence[str] | None = None, *, filter: str | None = None) -> pa.RecordBatchReader:
        """The same rows as `read`, a batch at a time."""
        names = self.schema.names if columns is None else list(columns)
        if is_wide(names):
            rows = taken(self, names, filter=filter)
            if rows is not None:
                return pa.RecordBatchReader.from_stream(rows)
        with self.reading():
            reader = self.dataset.scanner(columns=names, filter=filter).to_reader()
        return pa.RecordBatchReader.from_batches(reader.schema, self._guarded(reader))

    def _guarded(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self.reading():
            yield from reader

    def reading(self) -> AbstractContextManager[None]:
        """Lance reads this version: what goes wrong leaves as one of our errors, and names what is damaged."""
        return translated(f"reading {self.state.path}", self._location, self.state, self.dataset)

    def writing(self, doing: str = "writing") -> AbstractContextManager[None]:
        """Lance writes files on top of this version, and reads it for that."""
        return translated(f"{doing} {self.state.path}", self._location, self.state, self.dataset, only_reads=False)

    def count(self, filter: str | None = None) -> int:
        if filter is None:
            return self.state.rows
        with self.reading():
            return int(self.dataset.count_rows(filter=filter))

    def existing_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that the table holds."""
        return set(self.rows_among("id", set(ids), ["id"]).column("id").to_pylist())

    def rows_among(self, column: str, values: Collection[str | int], columns: Sequence[str]) -> pa.Table:
        """The rows whose `column` holds one of `values`: probed when they are few, else found in one scan."""
        return pa.concat_tables([self._empty(columns), *self.parts_among(column, values, columns)])

    def parts_among(self, column: str, values: Collection[str | int], columns: Sequence[str]) -> Iterator[pa.Table]:
        """The same rows, some at a time."""
        if not values or not self.state.rows:
            return
        if len(values) > _VALUES_PER_SCAN:
            yield from self._scan_among(column, values, columns)
            return
        wanted = list(values)
        for start in range(0, len(wanted), _VALUES_PER_PROBE):
            listed = ", ".join(literal(v) for v in wanted[start : start + _VALUES_PER_PROBE])
            for batch in self.batches(columns, filter=f"{identifier(column)} IN ({listed})"):
                yield pa.table(batch)

    def _scan_among(self, column: str, values: Collection[str | int], columns: Sequence[str]) -> Iterator[pa.Table]:
        wanted = pa.array(list(values), self.schema.field(column).type)
        scanned = list(dict.fromkeys((*columns, column)))
        with self.reading():
            # Large batches: every one of them hashes the wanted values anew.
            for batch in self.dataset.scanner(columns=scanned, batch_size=_ROWS_PER_SCANNED_BATCH).to_reader():
                yield pa.table(batch).filter(pc.is_in(batch.column(column), value_set=wanted)).select(columns)

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        return pa.schema([self.schema.field(name) for name in columns]).empty_table()

    def fragment_count(self) -> int:
        return len(self.dataset.get_fragments())

    def files(self) -> set[str]:
        """Every file this version names, relative to the table: data, deletion vectors, its manifest.

        An index segment is a directory whose content only Lance knows; it ends in a slash. Large blobs lie in
        `data/<name>/` beside the data file `data/<name>.lance` and belong to it.
        """
        named = {f"_versions/{manifest_name(self.state.number)}"}
        for fragment in self.dataset.get_fragments():
            named.update(f"data/{file.path}" for file in fragment.metadata.files)
            if (deletions := fragment.deletion_file()) is not None:
                named.add(deletions)
        for index in self.indexes():
            named.update(f"_indices/{segment.uuid}/" for segment in index.segments)
        return named

    def indexes(self) -> list[Any]:
        """The indexes of this version as Lance describes them."""
        with self.reading():
            return list(self.dataset.describe_indices())

    def requests(self) -> tuple[int, int]:
        """Reads and writes this process has sent for this table's dataset so far."""
        stats = self.dataset.io_stats_snapshot()
        return stats.read_iops, stats.write_iops


class TableReader:
    """Opens table versions of one graph and keeps the most recent ones open."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.session = Session(
            index_cache_size_bytes=_INDEX_CACHE_BYTES, metadata_cache_size_bytes=_METADATA_CACHE_BYTES
        )
        self._open: OrderedDict[str, OrderedDict[str, Table]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.location.options) or None

    def open(self, state: TableState) -> Table:
        with self._lock:
            versions = self._open.get(state.path)
            if versions is not None and (table := versions.get(state.version)) is not None:
                versions.move_to_end(state.version)
                self._open.move_to_end(state.path)
                return table
        return self.keep(Table(state, self._load(state), self.location))

    def keep(self, table: Table) -> Table:
        """Remember an open version; a staged one is the base of the next write and costs no request then."""
        path, version = table.state.path, table.state.version
        with self._lock:
            versions = self._open.setdefault(path, OrderedDict())
            self._open.move_to_end(path)
            if version not in versions:
                versions[version] = table
                self._bytes += _cost(table)
            if len(versions) > _OPEN_VERSIONS:
                self._close_one(path)
            while self._bytes > _OPEN_BYTES and (len(self._open) > 1 or len(versions) > 1):
                self._close_one(next(iter(self._open)))
        return table

    def _close_one(self, path: str) -> None:
        """Let go of the version of a table that was not asked for longest."""
        versions = self._open[path]
        _, closed = versions.popitem(last=False)
        self._bytes -= _cost(closed)
        if not versions:
            del self._open[path]

    def requests(self) -> int:
        """Read requests sent for the tables that are open now."""
        with self._lock:
            tables = [table for versions in self._open.values() for table in versions.values()]
        return sum(table.requests()[0] for table in tables)

    def open_count(self) -> int:
        with self._lock:
            return sum(map(len, self._open.values()))

    def _load(self, state: TableState) -> Any:
        uri = self.location.child(state.path)
        with translated(f"opening {uri}", self.location, state):
            return lance.dataset(uri, version=state.number, session=self.session, storage_options=self.storage_options)


def _cost(table: Table) -> int:
    columns = len(table.schema) * _BYTES_PER_COLUMN
    return _BYTES_PER_DATASET + table.state.fragments * _BYTES_PER_FRAGMENT + columns


def quoted(text: str) -> str:
    """A string literal of Lance's filter language."""
    return "'" + text.replace("'", "''") + "'"


def literal(value: str | int) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def identifier(column: str) -> str:
    """A column name of Lance's filter language: any name, its case kept, even one that is a keyword there."""
    return f"`{column}`"


def attached_version(name: str) -> int | None:
    """The number of the attached version whose manifest a file is, relative to the table; None for any other file."""
    leaf = name.removeprefix("_versions/").removesuffix(".manifest")
    return (1 << 64) - 1 - int(leaf) if name == f"_versions/{leaf}.manifest" and leaf.isdigit() else None
