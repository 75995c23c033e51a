"""Staged writes: each takes a pinned base version of a table and returns a new detached one.

The engine's write path calls `Staging`. Nothing here changes what anybody can read: a staged version that no log entry
names is garbage for `cleanup`, whether its writer crashed, lost a race or was refused. Tables with very many columns
get upserts composed of their parts, because Lance plans a merge in time that grows with the square of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation
from lance.fragment import RowIdSequence, write_fragments
from msgspec.structs import astuple
from numpy.typing import NDArray

from omnigraph.storage.integer_sets import distinct
from omnigraph.storage.local_disk import LocalDisk
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables.indexes import covered_fragments, stored_indexes
from omnigraph.storage.tables.lance_errors import translate_errors
from omnigraph.storage.tables.lance_metadata import (
    arrange_columns,
    field_ids,
    rewrite_fragments,
    small_fragments_to_compact,
)
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import ROW_ADDRESS, ROW_ID, WIDE_COLUMNS, Table, fragment_bytes

DATA_STORAGE_VERSION: Final = "2.2"

Rows: TypeAlias = "pa.Table | pa.RecordBatchReader"

NO_CHANGES = ChangeCounts()


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
        state = self._commit_data(table, self._write(table, rows, "append"))
        staged = self._compact_small_fragments(state, ChangeCounts(inserted=state.rows - base.rows))
        if isinstance(rows, pa.Table):
            self._reader.open(staged.state).with_appended(table, rows)
        return staged

    def upsert(self, base: TableState, rows: pa.Table) -> StagedTable:
        """Insert or fully replace by id. Row ids survive the replacement."""
        table = self._reader.open(base)
        if len(table.schema) > WIDE_COLUMNS:
            return self._wide_upsert(table, rows)
        merge = table._dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        state, counts = self._merge(table, merge, rows)
        return self._compact_small_fragments(state, counts)

    def update(self, base: TableState, rows: pa.Table) -> StagedTable:
        """Replace the columns that `rows` carry, of rows that exist. All other columns keep what they hold."""
        table = self._reader.open(base)
        state, counts = self._merge(table, table._dataset.merge_insert("id").when_matched_update_all(), rows)
        return self._compact_small_fragments(state, counts)

    def change(
        self, base: TableState, rows: pa.Table, patches: Sequence[pa.Table] = (), deleted: Collection[str] = ()
    ) -> StagedTable:
        """Upsert rows, update some columns of others, and delete: several steps, of which only the last is named."""
        staged = StagedTable(base)
        if rows.num_rows:
            staged = staged.followed_by(self.upsert(staged.state, rows))
        for patch in patches:
            staged = staged.followed_by(self.update(staged.state, patch))
        if deleted:
            staged = staged.followed_by(self.delete(staged.state, deleted))
        return staged

    def delete(self, base: TableState, ids: Iterable[str]) -> StagedTable:
        """Remove the rows with these ids; ids that are not there are no error and not counted."""
        table = self._reader.open(base)
        keys = pa.table({"id": pa.array(sorted(set(ids)), pa.string())}, schema=pa.schema([table.schema.field("id")]))
        return StagedTable(*self._merge(table, table._dataset.merge_insert("id").when_matched_delete(), keys))

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

    def _merge(self, table: Table, merge: Any, rows: pa.Table) -> tuple[TableState, ChangeCounts]:
        with table.writing():
            transaction, stats = merge.execute_uncommitted(rows)
        counts = (stats[f"num_{change}_rows"] for change in ("inserted", "updated", "deleted"))
        return self._commit_data(table, transaction), ChangeCounts(*counts)

    def _wide_upsert(self, table: Table, rows: pa.Table) -> StagedTable:
        """Insert or fully replace by id, as `merge_insert` does it: replaced rows keep their row ids."""
        stored = table.rows_among("id", rows.column("id").to_pylist(), ["id", ROW_ADDRESS], row_ids=True)
        at = pc.index_in(rows.column("id"), value_set=stored.column("id"))
        is_stored = at.is_valid()
        changed, emptied = _without(table, stored.column(ROW_ADDRESS).to_numpy())
        row_ids = stored.column(ROW_ID).take(at.drop_null()).to_numpy()
        replaced_first = pa.concat_tables([rows.filter(is_stored), rows.filter(pc.invert(is_stored))])
        written = self._write(table, replaced_first, "append").operation.fragments
        operation = LanceOperation.Update(
            removed_fragment_ids=emptied,
            updated_fragments=changed,
            new_fragments=list(_with_row_ids(written, row_ids)),
            # Every column has new values, so no index may answer for the new fragments.
            fields_for_preserving_frag_bitmap=field_ids(table._dataset),
            update_mode="rewrite_rows",
        )
        counts = ChangeCounts(inserted=rows.num_rows - len(row_ids), updated=len(row_ids))
        return self._compact_small_fragments(self._commit_data(table, operation), counts)

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
        with base.writing():
            dataset = lance.LanceDataset.commit(
                base._dataset,
                operation,
                read_version=None if isinstance(operation, lance.Transaction) else base._dataset.version,
                detached=True,
                storage_options=self._reader.storage_options,
            )
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
        state = self._reader.digests.add_to(state, dataset)
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


def _without(table: Table, addresses: NDArray[np.uint64]) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that hold these rows as they are without them, and those that have no row left."""
    changed, emptied = [], []
    fragments = addresses >> np.uint64(32)
    for fragment_id in distinct(fragments).tolist():
        offsets = addresses[fragments == fragment_id] & np.uint64(0xFFFF_FFFF)
        with table.writing():
            left = table._dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
        if left is None:
            emptied.append(fragment_id)
        else:
            changed.append(left)
    return changed, emptied


def _with_row_ids(written: Sequence[FragmentMetadata], row_ids: NDArray[np.uint64]) -> Iterator[FragmentMetadata]:
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
