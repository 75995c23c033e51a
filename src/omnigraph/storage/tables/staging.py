"""Staged writes: each takes a pinned base version of a table and returns a new detached one.

The engine's write path calls `Staging`. Nothing here changes what anybody can read: a staged version that no log entry
names is garbage for `cleanup`, whether its writer crashed, lost a race or was refused. A write costs what it changes:
changed rows are written to new fragments under the row ids that they have, and deleted by address where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation
from lance.blob import BlobType
from lance.fragment import RowIdSequence, write_fragments
from msgspec.structs import astuple

from omnigraph.storage.local_disk import LocalDisk
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables.blobs import carried_blobs, spans_of_blobs
from omnigraph.storage.tables.indexes import covered_fragments, stored_indexes
from omnigraph.storage.tables.lance_errors import translate_errors
from omnigraph.storage.tables.lance_metadata import (
    arrange_columns,
    field_ids,
    mark_updated_rows,
    rewrite_fragments,
    small_fragments_to_compact,
)
from omnigraph.storage.tables.memory.addresses import OFFSET_BITS, OFFSET_MASK
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import ROW_ID, RowIds, Table, fragment_bytes, row_ids_of

DATA_STORAGE_VERSION: Final = "2.2"

Rows: TypeAlias = "pa.Table | pa.RecordBatchReader"

NO_CHANGES = ChangeCounts()

# Rows that keep some of their columns are completed a few at first, and then as many as make so many bytes.
_ROWS_COMPLETED_FIRST: Final = 256
_ROWS_COMPLETED: Final = 1 << 16
_BYTES_COMPLETED: Final = 32 << 20

_FILES_AT_ONCE: Final = 8
_ROWS_LOOKED_THROUGH: Final = 1 << 16
"""Lance looks through as many rows in less time than a commit takes."""


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A table version waiting to be named by a log entry, and the number of rows that it changes."""

    state: TableState
    changes: ChangeCounts = NO_CHANGES

    def followed_by(self, later: StagedTable) -> StagedTable:
        """One staged write on top of this one; the sum of both."""
        pairs = zip(astuple(self.changes), astuple(later.changes), strict=True)
        return StagedTable(later.state, ChangeCounts(*(mine + theirs for mine, theirs in pairs)))


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table that is reshaped: it stays as it is, is new and null everywhere, or has `compute`, which gets
    the `sources` of some rows and returns their new values."""

    field: pa.Field
    sources: tuple[str, ...] = ()
    compute: Callable[[pa.RecordBatch], pa.Array] | None = None


def _temporary_name(column: TableColumn) -> str:
    """No property can be called so."""
    return f"__{column.field.name}"


@dataclass(frozen=True, slots=True)
class RewrittenFragment:
    """A fragment with new values of a column, written and not yet part of any version."""

    fragment: FragmentMetadata
    fields: list[int]
    rows: int
    offsets: bytes


def rewrite_fragment(
    dataset: Any,
    fragment: Any,
    target: str,
    columns: Sequence[str],
    filter: str,
    compute: Callable[[pa.Table, pa.DataType], pa.Array],
) -> RewrittenFragment | None:
    """A fragment with new values of one column for the rows of a filter; None when no row matches. `compute` gets a few
    thousand rows of `columns` at a time, and the type of the column. The new values are held until the file is
    written."""
    with translate_errors(f"rewriting {target} of {dataset.uri}"):
        scanner = dataset.scanner(columns=list(columns), filter=filter, fragments=[fragment], with_row_id=True)
        parts = []
        for batch in scanner.to_batches():
            rows = pa.table(batch)
            if rows.num_rows:
                made = compute(rows.select(list(columns)), dataset.schema.field(target).type)
                parts.append(pa.table({ROW_ID: rows.column(ROW_ID), target: made}))
        if not parts:
            return None
        values = pa.concat_tables(parts)
        metadata, fields, offsets = fragment.update_columns(values, left_on=ROW_ID, with_offsets=True)
    return RewrittenFragment(metadata, list(fields), values.num_rows, offsets)


class Staging:
    """Every way of making a new table version."""

    def __init__(self, reader: TableReader, trace: Trace) -> None:
        self._reader = reader
        self._trace = trace
        self._disk = LocalDisk(reader.location.prefix) if reader.location.is_local else None

    def create(self, path: str, table_id: str, schema: pa.Schema) -> TableState:
        """A new empty dataset. Its attached version 1 is the only attached version it will ever have."""
        uri = self._reader.location.child(path)
        with translate_errors(f"writing {uri}"):
            dataset = lance.write_dataset(
                schema.empty_table(),
                uri,
                schema=schema,
                mode="create",
                session=self._reader.session,
                **write_options(self._reader.storage_options),
            )
        return self._keep(table_id, path, dataset, None)

    def append(self, base: TableState, rows: Rows) -> StagedTable:
        """Add rows without looking at what is there."""
        table = self._reader.open(base)
        state = self._remember(table, self._commit_data(table, self._write(table, rows, "append")), rows)
        staged = self._compact_small_fragments(state, ChangeCounts(inserted=state.rows - base.rows))
        if isinstance(rows, pa.Table):
            self._reader.open(staged.state).with_appended(table, rows)
        return staged

    def upsert(self, base: TableState, rows: pa.Table) -> StagedTable:
        """Insert or fully replace by id; every id once. Row ids survive the replacement."""
        return self.change(base, rows)

    def update(self, base: TableState, rows: pa.Table) -> StagedTable:
        """Replace the columns that `rows` carry, of rows that exist. All other columns keep what they hold."""
        table = self._reader.open(base)
        others = [name for name in table.schema.names if name not in rows.column_names]
        at_once = rows.num_rows <= _ROWS_COMPLETED_FIRST
        stored = _StoredRows.among(table, rows.column("id"), others if at_once else [])
        if not len(stored.row_ids):
            return StagedTable(base)
        rows, at = stored.matches(rows)
        row_ids = stored.row_ids[at]
        kept = stored.rows.take(pa.array(at)) if at_once else None
        batches = _complete_rows(table, rows, row_ids, others, kept)
        schema = _plain_schema(table)
        complete: Rows
        if at_once:
            complete = pa.Table.from_batches(batches, schema)
        else:
            complete = pa.RecordBatchReader.from_batches(schema, batches)
        state = self._replace(table, stored.addresses, complete, row_ids)
        return self._compact_small_fragments(state, ChangeCounts(updated=len(row_ids)))

    def change(
        self, base: TableState, rows: pa.Table, patches: Sequence[pa.Table] = (), deleted: Collection[str] = ()
    ) -> StagedTable:
        """Upsert rows, update some columns of others, and delete: in as many steps as there are patches, and one for
        the rest. Only the last version is named. Deleted ids that are not there are no error and not counted."""
        staged = StagedTable(base)
        for patch in patches:
            staged = staged.followed_by(self.update(staged.state, patch))
        if rows.num_rows or deleted:
            staged = staged.followed_by(self._change_rows(self._reader.open(staged.state), rows, deleted))
        return staged

    def _change_rows(self, table: Table, rows: pa.Table, deleted: Collection[str]) -> StagedTable:
        removed = pa.array(sorted(deleted), pa.string())
        if len(removed) and rows.num_rows:
            rows = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=removed)))
        stored = _StoredRows.among(table, pa.chunked_array([*rows.column("id").chunks, removed], pa.string()))
        if not len(stored.row_ids):
            return self.append(table.state, rows) if rows.num_rows else StagedTable(table.state)
        replaced, at = stored.matches(rows)
        row_ids = stored.row_ids[at]
        fresh = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=stored.ids)))
        # Kept row ids belong to the first rows of the new fragments.
        state = self._replace(table, stored.addresses, pa.concat_tables([replaced, fresh]), row_ids)
        counts = ChangeCounts(fresh.num_rows, len(row_ids), len(stored.row_ids) - len(row_ids))
        return self._compact_small_fragments(state, counts)

    def _replace(self, table: Table, addresses: RowIds, rows: Rows, row_ids: RowIds) -> TableState:
        """The table without the rows at these addresses, and with others, of which the first have these row ids."""
        deletions = {number: partial(_without, table, number, offsets) for number, offsets in _by_fragment(addresses)}
        if isinstance(rows, pa.Table) and not rows.num_rows:
            left = self._in_parallel(list(deletions.values()))
            changed, emptied = _changed_and_emptied(deletions, left)
            # The predicate is a note in the transaction; the fragments say what is gone.
            return self._commit_data(table, LanceOperation.Delete(changed, emptied, "rows by address"))
        written, *left = self._in_parallel([partial(self._write, table, rows, "append"), *deletions.values()])
        changed, emptied = _changed_and_emptied(deletions, left)
        created = list(_with_row_ids(written.operation.fragments, row_ids))
        looked_through = sum(table.addresses.by_id[number].physical_rows for number in deletions)
        if self._disk is None or looked_through < _ROWS_LOOKED_THROUGH:
            return self._remember(table, self._commit_data(table, _replacement(table, changed, emptied, created)), rows)
        # To say since when a row exists Lance looks through all rows of the fragment that it comes from. With the new
        # rows in a version of their own before, which no entry names, it takes our word for it.
        self._trace.reach("stage.data.after")
        appended = self._commit_on(table, table._dataset, LanceOperation.Append(created))
        added = [fragment.metadata for fragment in appended.get_fragments()[-len(created) :]]
        described = list(mark_updated_rows(added, len(row_ids)))
        dataset = self._commit_on(table, appended, _replacement(table, [*changed, *described], emptied, []))
        return self._remember(table, self._keep_committed(table, dataset), rows)

    def _remember(self, base: Table, state: TableState, rows: Rows) -> TableState:
        """The state; its new rows go to the columns in memory."""
        if isinstance(rows, pa.Table):
            COLUMNS.remember(self._reader.open(state), base, rows)
        return state

    def _in_parallel(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Files are written one after the other where that takes less than to start a thread."""
        if self._disk is not None or len(jobs) == 1:
            return [job() for job in jobs]
        with ThreadPoolExecutor(min(len(jobs), _FILES_AT_ONCE)) as pool:
            return list(pool.map(lambda job: job(), jobs))

    def delete(self, base: TableState, ids: Iterable[str]) -> StagedTable:
        """Remove the rows with these ids; ids that are not there are no error and not counted."""
        table = self._reader.open(base)
        return self._change_rows(table, table.schema.empty_table(), set(ids))

    def overwrite(self, base: TableState, rows: Rows) -> StagedTable:
        """The rows become the whole table."""
        table = self._reader.open(base)
        state = self._commit_data(table, self._write(table, rows, "overwrite"))
        return StagedTable(state, ChangeCounts(inserted=state.rows, deleted=base.rows))

    def reshape(self, base: TableState, columns: Sequence[TableColumn]) -> StagedTable:
        """The table with these columns in place of its own. Values are written for computed columns only; everything
        else is metadata: a column that leaves keeps its bytes until a compaction rewrites the files."""
        computed = [column for column in columns if column.compute is not None]
        state = self._with_computed(base, computed) if computed else base
        dataset = self._reader.open(state)._dataset
        names = set(dataset.schema.names)

        def source(column: TableColumn) -> str | None:
            name = _temporary_name(column) if column.compute is not None else column.field.name
            return name if name in names else None

        arranged = [(source(column), column.field) for column in columns]
        if any(origin is None and not field.nullable for origin, field in arranged):
            raise ValueError("a new column without values must be nullable: existing rows get null")
        return self.apply(state, LanceOperation.Project(arrange_columns(dataset, arranged)))

    def _with_computed(self, base: TableState, computed: Sequence[TableColumn]) -> TableState:
        """The base with computed columns behind its own, under temporary names."""
        table = self._reader.open(base)
        schema = pa.schema([column.field.with_name(_temporary_name(column)) for column in computed])
        sources = list(dict.fromkeys(source for column in computed for source in column.sources)) or ["id"]

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [column.compute(batch) for column in computed if column.compute is not None]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        written, merged = [], None
        for fragment in table._fragments():
            with table.writing("rewriting"):
                metadata, merged = fragment.merge_columns(values, columns=sources)
            written.append(metadata)
        if merged is None:
            empty = [(name, table.schema.field(name)) for name in table.schema.names]
            merged = arrange_columns(table._dataset, [*empty, *((None, field) for field in schema)])
            return self._commit(table, LanceOperation.Project(merged))
        return self._commit_data(table, LanceOperation.Merge(written, merged))

    def rewrite_column(
        self, base: TableState, column: str, filter: str, compute: Callable[[pa.Array], pa.Array]
    ) -> StagedTable:
        """New values of one column for the rows of a filter. Only fragments that have such rows are written."""
        table = self._reader.open(base)

        def new_values(rows: pa.Table, type_: pa.DataType) -> pa.Array:
            return compute(rows.column(column)).cast(type_)

        rewritten = []
        for fragment in table._fragments():
            rewritten.append(rewrite_fragment(table._dataset, fragment, column, [column], filter, new_values))
        return self.with_rewritten_columns(base, [each for each in rewritten if each is not None])

    def with_rewritten_columns(self, base: TableState, rewritten: Sequence[RewrittenFragment]) -> StagedTable:
        """The base with fragments that have new values of a column; indexes no longer cover them by that column."""
        if not rewritten:
            return StagedTable(base)
        operation = LanceOperation.Update(
            updated_fragments=[each.fragment for each in rewritten],
            fields_modified=sorted({field for each in rewritten for field in each.fields}),
            update_mode="rewrite_columns",
            updated_fragment_offsets={each.fragment.id: each.offsets for each in rewritten},
        )
        counts = ChangeCounts(updated=sum(each.rows for each in rewritten))
        return StagedTable(self.apply(base, operation).state, counts)

    def drop_indexes(self, base: TableState, kept: Collection[str]) -> StagedTable:
        """The table without the indexes whose names are not among these. Their files go with the next cleanup."""
        stored = stored_indexes(self._reader.open(base))
        removed = [segment for name, segments in stored.items() if name not in kept for segment in segments]
        return self.apply(base, LanceOperation.CreateIndex([], removed)) if removed else StagedTable(base)

    def compact(self, base: TableState, fragment_ids: Collection[int]) -> StagedTable:
        """Rewrite these fragments as one. Content, row ids and order by id are unchanged."""
        rewritten = rewrite_fragments(self._reader.open(base), fragment_ids)
        return StagedTable(base) if rewritten is None else self.apply(base, rewritten.operation)

    def apply(self, base: TableState, operation: Any) -> StagedTable:
        """Any other Lance operation on a version, as maintenance composes them. It must not change rows."""
        return StagedTable(self._commit(self._reader.open(base), operation))

    def _compact_small_fragments(self, state: TableState, changes: ChangeCounts) -> StagedTable:
        table = self._reader.open(state)
        indexed = set().union(*covered_fragments(table).values())
        chosen = small_fragments_to_compact(
            {f.fragment_id: fragment_bytes(f.metadata) for f in table._fragments() if f.fragment_id not in indexed}
        )
        if chosen:
            state = self.compact(state, chosen).state
            self._trace.reach("stage.compaction.after")
        return StagedTable(state, changes)

    def _write(self, table: Table, rows: Rows, mode: str) -> Any:
        with table.writing():
            return write_fragments(
                rows,
                table._dataset,
                schema=table.schema,
                mode=mode,
                return_transaction=True,
                **write_options(self._reader.storage_options),
            )

    def _commit_data(self, base: Table, operation: Any) -> TableState:
        self._trace.reach("stage.data.after")
        return self._commit(base, operation)

    def _commit(self, base: Table, operation: Any) -> TableState:
        return self._keep_committed(base, self._commit_on(base, base._dataset, operation))

    def _commit_on(self, base: Table, dataset: Any, operation: Any) -> Any:
        """A version on top of this one, which is the base or a step on the way from it."""
        with base.writing():
            return lance.LanceDataset.commit(
                dataset,
                operation,
                read_version=None if isinstance(operation, lance.Transaction) else dataset.version,
                detached=True,
                storage_options=self._reader.storage_options,
            )

    def _keep_committed(self, base: Table, dataset: Any) -> TableState:
        state = self._keep(base.state.table_id, base.state.path, dataset, base)
        self._trace.reach("stage.commit.after")
        return state

    def _keep(self, table_id: str, path: str, dataset: Any, base: Table | None) -> TableState:
        """The state of a new version, which stays open for the next write. On a local disk, everything that it adds to
        its base is flushed before anything may name it."""
        fragments = dataset.get_fragments()
        rows = sum(fragment.metadata.num_rows for fragment in fragments)
        version = str(dataset.version)
        state = TableState(table_id=table_id, path=path, version=version, rows=rows, fragments=len(fragments))
        state = self._reader.digests.add_to(state, fragments)
        table = self._reader.keep(Table(state, dataset, self._reader.location))
        if self._disk is not None:
            folder = self._reader.location.local_root / path
            added = table.files() - (base.files() if base else set())
            with translate_errors(f"flushing {folder}"):
                self._disk.make_durable(f"{path}/{name}" for name in _on_disk(folder, added))
        return state


def write_options(storage_options: Mapping[str, str] | None) -> dict[str, Any]:
    """How the data files of every table are written."""
    return {
        "enable_stable_row_ids": True,
        "data_storage_version": DATA_STORAGE_VERSION,
        "storage_options": storage_options,
        # Whether a reference may enter was decided before; the store of the graph need not hold its object.
        "allow_external_blob_outside_bases": True,
    }


def _replacement(
    table: Table, changed: list[FragmentMetadata], emptied: list[int], created: list[FragmentMetadata]
) -> Any:
    return LanceOperation.Update(
        removed_fragment_ids=emptied,
        updated_fragments=changed,
        new_fragments=created,
        # Every column has new values, so no index may answer for the new fragments.
        fields_for_preserving_frag_bitmap=field_ids(table._dataset),
        update_mode="rewrite_rows",
    )


@dataclass(frozen=True, slots=True)
class _StoredRows:
    """The stored rows with some ids, with columns that were read along."""

    ids: pa.Array
    rows: pa.Table
    row_ids: RowIds
    addresses: RowIds

    @classmethod
    def among(cls, table: Table, ids: pa.ChunkedArray, columns: Sequence[str] = ()) -> _StoredRows:
        if pc.count_distinct(ids).as_py() != len(ids):
            raise ValueError("a write names each row once")
        wanted = ids.to_pylist()
        rows = table.rows_among("id", wanted, ["id", *columns], row_ids=True)
        row_ids = row_ids_of(rows)
        addresses = table.addresses.addresses(row_ids, live=True)
        return cls(rows.column("id").combine_chunks(), rows.select(list(columns)), row_ids, addresses)

    def matches(self, rows: pa.Table) -> tuple[pa.Table, RowIds]:
        """Those of the rows that are stored, in the order of their addresses, and the position of each among these."""
        at = pc.index_in(rows.column("id"), value_set=self.ids)
        positions = at.drop_null().to_numpy().astype(np.int64)
        order = np.argsort(self.addresses[positions], kind="stable")
        return rows.filter(at.is_valid()).take(pa.array(order)), positions[order]


def _complete_rows(
    table: Table, rows: pa.Table, row_ids: RowIds, others: list[str], kept: pa.Table | None
) -> Iterator[pa.RecordBatch]:
    """These rows with the other columns of the stored rows with these ids, a bounded number of bytes at a time; with
    `kept` these columns were read already."""
    schema = _plain_schema(table)
    start, size = 0, _ROWS_COMPLETED_FIRST
    while start < len(row_ids):
        part, chosen = rows.slice(start, size), row_ids[start : start + size]
        stored = table.take(chosen, others) if kept is None else kept
        blobs = [stored.column(name) for name in others if isinstance(schema.field(name).type, BlobType)]
        for span in spans_of_blobs(blobs, len(chosen), _BYTES_COMPLETED):
            columns = {name: part.column(name)[span].combine_chunks() for name in rows.column_names}
            for name in others:
                cells = stored.column(name)[span]
                if isinstance(schema.field(name).type, BlobType):
                    columns[name] = carried_blobs(cells, partial(table.blobs, name), chosen[span])
                else:
                    columns[name] = cells.combine_chunks()
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        start += size
        size = max(1, min(_ROWS_COMPLETED, size * _BYTES_COMPLETED // max(1, stored.nbytes + part.nbytes)))


def _plain_schema(table: Table) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in table.schema])


def _by_fragment(addresses: RowIds) -> Iterator[tuple[int, RowIds]]:
    """The offsets of these rows by the id of their fragment."""
    ordered = np.sort(addresses)
    fragments = ordered >> OFFSET_BITS
    for part in np.split(ordered, np.flatnonzero(np.diff(fragments)) + 1):
        if len(part):
            yield int(part[0]) >> OFFSET_BITS, part & OFFSET_MASK


def _without(table: Table, fragment_id: int, offsets: RowIds) -> FragmentMetadata | None:
    """A fragment without the rows at these offsets; None when no row is left."""
    with table.writing():
        left: FragmentMetadata | None = table._dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
    return left


def _changed_and_emptied(
    numbers: Iterable[int], left: Sequence[FragmentMetadata | None]
) -> tuple[list[FragmentMetadata], list[int]]:
    changed = [fragment for fragment in left if fragment is not None]
    return changed, [number for number, fragment in zip(numbers, left, strict=True) if fragment is None]


def _with_row_ids(written: Sequence[FragmentMetadata], row_ids: RowIds) -> Iterator[FragmentMetadata]:
    """New fragments whose first rows keep these row ids; the other rows are new, and get theirs with the commit."""
    start = 0
    for fragment in written:
        numbers = row_ids[start : start + fragment.physical_rows].tolist()
        start += len(numbers)
        yield replace(fragment, row_id_meta=RowIdSequence(numbers).to_inline_metadata()) if numbers else fragment


def _on_disk(folder: Path, named: Iterable[str]) -> Iterator[str]:
    """The files that a version names: an index is a folder, and large blobs are in one beside their rows."""
    for name in named:
        within = folder / name
        if not name.endswith("/"):
            yield name
            within = within.with_suffix("")
        if within.is_dir():
            yield from (str(file.relative_to(folder)) for file in within.rglob("*") if file.is_file())
