"""What two versions of one table do not share, found from their manifests before any data is read.

Fragments with the same files hold the same rows, whatever happened around them. Of a fragment that only lost rows,
only the lost rows count. So the cost of a comparison is that of the change and not that of the table. Equal rows may
still be among the result (compaction moves them); telling those apart is the caller's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.storage.ordered import contained
from omnigraph.storage.tables.deletions import deleted_offsets
from omnigraph.storage.tables.reading import Table
from omnigraph.storage.tables.taking import RowIds, take_rows

ROW_ID: Final = "_rowid"
_ROW_ADDRESS: Final = "_rowaddr"
_OFFSET_MASK: Final = np.uint64(0xFFFF_FFFF)

# Beyond this many, listing the living rows of a fragment costs less than asking for the deleted ones.
_OFFSETS_PER_LOOKUP: Final = 1_000

_Content: TypeAlias = tuple[tuple[tuple[str, tuple[int, ...]], ...], frozenset[str]]


def all_rows(table: Table, keys: Sequence[str]) -> pa.Table:
    """The key columns of every row, and its row id."""
    return table.read(keys, row_ids=True)


def differing_rows(
    before: Table, after: Table, keys: Sequence[str], visible: tuple[Collection[str], Collection[str]]
) -> tuple[pa.Table, pa.Table]:
    """The key columns and row ids of the rows that only one of the versions holds in that place, per version.

    `visible` are the columns that count in each of them: a fragment that hides a column it has is another fragment.
    """
    old, new = _by_content(before, visible[0]), _by_content(after, visible[1])
    lone_old = [fragment for content, fragment in old.items() if content not in new]
    lone_new = [fragment for content, fragment in new.items() if content not in old]
    lost: list[RowIds] = []
    found: list[RowIds] = []
    for content in old.keys() & new.keys():
        if old[content].deletion_file() != new[content].deletion_file():
            only_old, only_new = _deleted_in_one(before, old[content], after, new[content])
            lost.append(only_old)
            found.append(only_new)
    return _rows(before, lone_old, lost, keys), _rows(after, lone_new, found, keys)


def _by_content(table: Table, visible: Collection[str]) -> dict[_Content, Any]:
    names = {field.id(): field.name() for field in table.dataset.lance_schema.fields() if field.name() in visible}
    fragments = {}
    for fragment in table.dataset.get_fragments():
        # Not `path`: Lance makes a new class for every look at that, which costs more than all the rest here.
        files = tuple((file._path, tuple(file.fields)) for file in fragment.metadata.files)
        held = frozenset(names[field] for _, fields in files for field in fields if field in names)
        fragments[files, held] = fragment
    return fragments


def changed_row_count(before: Table, after: Table, visible: Collection[str]) -> int:
    """About how many rows `differing_rows` would give, by the manifests alone."""
    old, new = _by_content(before, visible), _by_content(after, visible)
    alone = [*(old[c] for c in old.keys() - new.keys()), *(new[c] for c in new.keys() - old.keys())]
    deleted = [(old[c].metadata.num_deletions, new[c].metadata.num_deletions) for c in old.keys() & new.keys()]
    return sum(int(f.metadata.num_rows) for f in alone) + sum(abs(int(was) - int(now)) for was, now in deleted)


def _deleted_in_one(before: Table, old: Any, after: Table, new: Any) -> tuple[RowIds, RowIds]:
    """Row ids of the rows that live in one of two fragments with the same files: needs only deletion vectors."""
    was, now = deleted_offsets(before, old), deleted_offsets(after, new)
    if was is not None and now is not None:
        lost, found = now[~contained(now, was)], was[~contained(was, now)]
        if max(len(lost), len(found)) <= _OFFSETS_PER_LOOKUP:
            return _row_ids_at(before, old, lost), _row_ids_at(after, new, found)
    old_offsets, old_ids = _live_rows(before, old)
    new_offsets, new_ids = _live_rows(after, new)
    return (
        old_ids[~contained(old_offsets, new_offsets)],
        new_ids[~contained(new_offsets, old_offsets)],
    )


def _row_ids_at(table: Table, fragment: Any, offsets: NDArray[np.uint32]) -> RowIds:
    if not len(offsets):
        return np.empty(0, np.uint64)
    addresses = ", ".join(str((fragment.fragment_id << 32) + offset) for offset in offsets.tolist())
    scanner = table.dataset.scanner(
        columns=[], with_row_id=True, fragments=[fragment], filter=f"{_ROW_ADDRESS} IN ({addresses})"
    )
    with table.reading():
        rows: RowIds = scanner.to_table().column(ROW_ID).to_numpy()
    return rows


def _live_rows(table: Table, fragment: Any) -> tuple[NDArray[np.uint64], RowIds]:
    with table.reading():
        scanner = table.dataset.scanner(columns=[], with_row_id=True, with_row_address=True, fragments=[fragment])
        rows = scanner.to_table()
    return rows.column(_ROW_ADDRESS).to_numpy() & _OFFSET_MASK, rows.column(ROW_ID).to_numpy()


def _rows(table: Table, fragments: list[Any], row_ids: Iterable[RowIds], keys: Sequence[str]) -> pa.Table:
    schema = pa.schema([*(table.schema.field(name) for name in keys), pa.field(ROW_ID, pa.uint64())])
    parts = [schema.empty_table()]
    if fragments:
        with table.reading():
            scanned = table.dataset.scanner(columns=list(keys), with_row_id=True, fragments=fragments).to_table()
        parts.append(scanned.select(schema.names).cast(schema))
    for ids in row_ids:
        if len(ids):
            taken = take_rows(table, ids, keys)
            parts.append(taken.append_column(ROW_ID, pa.array(ids, pa.uint64())).cast(schema))
    return pa.concat_tables(parts)
