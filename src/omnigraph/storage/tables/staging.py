"""Staged writes: each takes a pinned base version of a table and returns a new detached one.

The engine's write path calls `Staging`. Nothing here changes what anybody can read: a staged version that no log entry
names is garbage for `cleanup`, whether its writer crashed, lost a race or was refused. Tables with very many columns
get upserts composed of their parts, because Lance plans a merge in time that grows with the square of the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from omnigraph.storage.tables.indexes import covered_fragments
from omnigraph.storage.tables.lance_errors import translate_errors
from omnigraph.storage.tables.lance_metadata import (
    field_ids,
    rewrite_fragments,
    small_fragments_to_compact,
    with_columns,
    without_columns,
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
        return self._compact_small_fragments(state, ChangeCounts(inserted=state.rows - base.rows))

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

    def add_column(self, base: TableState, *fields: pa.Field) -> StagedTable:
        """Nullable columns, null in every existing row: metadata only, no data is touched."""
        for field in fields:
            if not field.nullable:
                raise ValueError(f"column '{field.name}' must be nullable: existing rows get null")
        # A Merge does the same, and compares every column with every other one.
        return self.apply(base, LanceOperation.Project(with_columns(self._reader.open(base)._dataset, fields)))

    def remove_columns(self, base: TableState, names: Collection[str]) -> StagedTable:
        """Columns leave the table: metadata only. Their bytes go when a compaction rewrites the files."""
        return self.apply(base, LanceOperation.Project(without_columns(self._reader.open(base)._dataset, names)))

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
