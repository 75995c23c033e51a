"""The rows that two versions of one table do not share, found from their manifests before any data is read.

Diffs, merges, change feeds and topologies call it. Fragments with the same files hold the same rows, and of a fragment
that only lost rows only those count, so a comparison costs as much as the change and not as the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.integer_sets import find_positions, is_member
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.tables.rows import ROW_ID_FIELD, RowIds, Table, by_row_id, row_ids_of

_TAKEN_FROM_MEMORY: Final = 4_096
# Up to so many rows of a fragment cost less taken by their offsets than by a scan, which has to be planned.
_TAKEN_ROWS: Final = 64

_Content: TypeAlias = tuple[tuple[tuple[str, tuple[int, ...]], ...], frozenset[str]]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows of `old` that `new` lacks or has otherwise, and the reverse. Both with row ids, ascending."""

    old: pa.Table
    new: pa.Table


@dataclass(frozen=True)
class VersionDiff:
    """Two versions of a table: the fragments that only one of them has, and pairs of those that lost other rows."""

    before: Table
    after: Table
    only_before: list[Any]
    only_after: list[Any]
    thinned: list[tuple[Any, Any]]

    @classmethod
    def of(
        cls, before: Table, after: Table, visible_before: Collection[str], visible_after: Collection[str]
    ) -> VersionDiff:
        """By the manifests alone. The columns that count in each version are given: a fragment that hides a column
        it has is another fragment."""
        if before.key == after.key and set(visible_before) == set(visible_after):
            return cls(before, after, [], [], [])
        old, new = _by_content(before, visible_before), _by_content(after, visible_after)
        return cls(
            before,
            after,
            [fragment for content, fragment in old.items() if content not in new],
            [fragment for content, fragment in new.items() if content not in old],
            [
                (old[content], new[content])
                for content in old.keys() & new.keys()
                if old[content].deletion_file() != new[content].deletion_file()
            ],
        )

    @property
    def row_count(self) -> int:
        """About how many rows `rows` would give, without reading any."""
        alone = sum(int(f.metadata.num_rows) for f in (*self.only_before, *self.only_after))
        lost = (abs(int(old.metadata.num_deletions) - int(new.metadata.num_deletions)) for old, new in self.thinned)
        return alone + sum(lost)

    @property
    def only_adds(self) -> bool:
        """Whether the later version holds all rows of the earlier one as they were."""
        return not self.only_before and not self.thinned

    def new_rows(self, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows of the fragments that only the later version has, in any order."""
        whole = [f for f in self.only_after if f.physical_rows <= _TAKEN_ROWS and not f.metadata.num_deletions]
        parts = [self.after.read(columns, fragments=[f.fragment_id for f in self.only_after if f not in whole])]
        with self.after.reading():
            parts += [fragment.take(list(range(fragment.physical_rows)), columns=list(columns)) for fragment in whole]
        return pa.concat_tables([part.select(columns).cast(parts[0].schema) for part in parts])

    def rows(self, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        """The key columns and row ids of the rows that only one of the versions holds in that place, per version. Equal
        rows may be among them: compaction moves rows. Telling those apart is the caller's work."""
        pairs = [_deleted_in_one(self.before, old, self.after, new) for old, new in self.thinned]
        losses, gains = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return _rows(self.before, self.only_before, losses, keys), _rows(self.after, self.only_after, gains, keys)

    def changes(self, columns: Sequence[str]) -> RowChanges:
        """The rows that differ by row id and `columns`. Only for versions of one line, where row ids mean the same."""
        old, new = map(by_row_id, self.rows(columns))
        at, in_both = find_positions(row_ids_of(old), row_ids_of(new))
        in_old, in_new = at[in_both], np.flatnonzero(in_both)
        same = np.ones(len(in_old), np.bool_)
        for name in columns:
            equal = pc.equal(old.column(name).take(pa.array(in_old)), new.column(name).take(pa.array(in_new)))
            same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False).astype(bool)
        keep_old, keep_new = np.ones(old.num_rows, np.bool_), np.ones(new.num_rows, np.bool_)
        keep_old[in_old[same]] = False
        keep_new[in_new[same]] = False
        return RowChanges(old.filter(pa.array(keep_old)), new.filter(pa.array(keep_new)))


def _by_content(table: Table, visible: Collection[str]) -> dict[_Content, Any]:
    names = {field.id(): field.name() for field in table._dataset.lance_schema.fields() if field.name() in visible}
    fragments = {}
    for fragment in table._fragments():
        # Not `path`: Lance makes a new class whenever it is read, which costs more than all the rest here.
        files = tuple((file._path, tuple(file.fields)) for file in fragment.metadata.files)
        held = frozenset(names[field] for _, fields in files for field in fields if field in names)
        fragments[files, held] = fragment
    return fragments


def _deleted_in_one(before: Table, old: Any, after: Table, new: Any) -> tuple[RowIds, RowIds]:
    """Row ids of the rows that live in one of two fragments with the same files: needs only deletion files."""
    was, now = before.addresses.by_id[old.fragment_id], after.addresses.by_id[new.fragment_id]
    losses, gains = now.deleted[~is_member(now.deleted, was.deleted)], was.deleted[~is_member(was.deleted, now.deleted)]
    return was.ids_at(losses), now.ids_at(gains)


def _rows(table: Table, fragments: list[Any], row_ids: Iterable[RowIds], keys: Sequence[str]) -> pa.Table:
    schema = pa.schema([*(table.schema.field(name) for name in keys), ROW_ID_FIELD])
    parts = [_rows_of(table, [fragment.fragment_id for fragment in fragments], keys).select(schema.names).cast(schema)]
    for ids in row_ids:
        if len(ids):
            taken = table.take(ids, keys)
            parts.append(taken.append_column(ROW_ID_FIELD, pa.array(ids.view(np.uint64))).cast(schema))
    return pa.concat_tables(parts)


def _rows_of(table: Table, fragment_ids: Sequence[int], keys: Sequence[str]) -> pa.Table:
    """The key columns and row ids of the rows of some fragments; of a few rows from memory, if they are there."""
    fragments = [table.addresses.by_id[number] for number in fragment_ids]
    if fragments and sum(fragment.live_rows for fragment in fragments) <= _TAKEN_FROM_MEMORY:
        ids = np.concatenate([fragment.live_row_ids() for fragment in fragments])
        if (rows := COLUMNS.take_of(table, fragments, ids, keys)) is not None:
            return rows.append_column(ROW_ID_FIELD, pa.array(ids.view(np.uint64)))
    return table.read(keys, row_ids=True, fragments=fragment_ids)
