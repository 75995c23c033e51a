"""Metadata that OmniGraph composes for Lance itself: rewrites of fragments, row versions, and schemas with field ids.

Staging, table maintenance and the driver of a bulk run call it. Nothing here commits. Parts of the metadata are
protobuf messages that pylance only passes through, so the reader and writer of those messages are here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from lance import FragmentMetadata, LanceOperation
from lance.fragment import RowDatasetVersionMeta
from lance.optimize import CompactionTask
from lance.schema import LanceSchema
from numpy.typing import NDArray

from omnigraph.storage.tables.rows import Table

# Which fragments to rewrite

COMPACT_SMALL_AT = 6
"""So many small fragments of one tier are compacted. A table that is only appended to keeps at most five per tier."""
FLOOR_BYTES = 64 << 10
CEILING_BYTES = 64 << 20
"""Fragments above this are left to `optimize`."""


def small_fragments_to_compact(bytes_by_id: Mapping[int, int]) -> list[int]:
    """The ids of the smallest tier that is full, empty when none is: reads stay fast while nobody runs `optimize`.

    A tier holds fragments of similar size, so a row is rewritten a logarithmic number of times. Below `FLOOR_BYTES`
    requests are the cost and not bytes, so everything that small is one tier. It is written again by every fifth commit
    and each copy stays until cleanup, so the floor is low: at 1 MiB, 20,000 commits of 200 bytes would write 1,940 MB;
    at 64 KiB they write 148 MB and leave six fragments on average, not four. The caller leaves out fragments that an
    index covers, because rewriting them would lose the coverage.
    """
    small = sorted((size, fragment_id) for fragment_id, size in bytes_by_id.items() if size <= CEILING_BYTES)
    start = 0
    while start < len(small):
        end, total = start + 1, small[start][0]
        while end < len(small) and small[end][0] <= max(FLOOR_BYTES, total):
            total += small[end][0]
            end += 1
        if end - start >= COMPACT_SMALL_AT:
            return sorted(fragment_id for _, fragment_id in small[start:end])
        start = end
    return []


# Rewriting fragments

# The planner's own defaults: a task that did not come from the planner has to carry those that would be others.
_OPTIONS: dict[str, Any] = {
    "target_rows_per_fragment": 1 << 20,
    "max_rows_per_group": 1024,
    "materialize_deletions": True,
    "materialize_deletions_threshold": 0.1,
    "defer_index_remap": False,
    "enable_binary_copy": False,
    "enable_binary_copy_force": False,
    "binary_copy_read_batch_bytes": 16 << 20,
    "max_overlays_per_fragment": 10,
    "data_storage_version": "2.2",
    "has_eager_remappable_index": False,
}


class FragmentRewrite(NamedTuple):
    """Fragments and those that take their place: new files, written, not yet part of any version."""

    replaced: list[FragmentMetadata]
    created: list[FragmentMetadata]

    @property
    def operation(self) -> Any:
        """The rewrite, for any version that holds the replaced fragments and none with the ids of the created ones."""
        return LanceOperation.Rewrite([LanceOperation.RewriteGroup(self.replaced, self.created)], [])


def finished_rewrites(table: Table, results: Iterable[str], *, spare_ids: int = 0) -> list[FragmentRewrite]:
    """The rewrites that the JSON results of compaction tasks describe. A result numbers its fragments from 0; they
    need ids that this version does not use yet."""
    numbers = count(max((f.fragment_id for f in table._fragments()), default=-1) + 1 + spare_ids)
    rewrites = []
    for result in map(json.loads, results):
        created = [{**condense_row_versions(fragment), "id": next(numbers)} for fragment in result["new_fragments"]]
        replaced = result["original_fragments"]
        fragments = [[FragmentMetadata.from_json(json.dumps(f)) for f in group] for group in (replaced, created)]
        rewrites.append(FragmentRewrite(*fragments))
    return rewrites


def rewrite_fragments(table: Table, fragment_ids: Collection[int], *, spare_ids: int = 0) -> FragmentRewrite | None:
    """These fragments written again as few large ones. None when that would change nothing: a single fragment
    without deleted rows.

    `spare_ids` leaves that many fragment ids to writers who go on from the same version: an index segment is bound
    to the ids of its fragments, so those must still be free when the rewrite is committed on a later version.
    """
    chosen = [fragment.metadata for fragment in table._fragments_among(fragment_ids)]
    if not chosen or (len(chosen) == 1 and chosen[0].deletion_file is None and len(chosen[0].files) == 1):
        return None
    fragments = {"fragments": [fragment.to_json() for fragment in chosen]}
    described = {"task": fragments, "read_version": table._dataset.version, "options": _OPTIONS}
    task = CompactionTask.from_json(json.dumps(described))  # type: ignore[attr-defined]
    with table.writing("compacting"):
        result = task.execute(table._dataset).json()
    return finished_rewrites(table, [result], spare_ids=spare_ids)[0]


# In which versions rows were created and updated

_CREATED: Final = "created_at_version_meta"
_UPDATED: Final = "last_updated_at_version_meta"
_CREATED_VERSION, _UPDATED_VERSION = 1, 2


def condense_row_versions(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment, in its JSON form, whose rows say only whether they were updated since they were created.

    Lance keeps the two versions of every row as runs of equal ones in the manifest. Every commit has a version of its
    own, so a fragment made of a thousand one-row commits has a thousand runs that every later manifest repeats. Nobody
    needs more than the difference (`indexes`). A fragment whose runs are stored in another way is left as it is.
    """
    rows = fragment["physical_rows"]
    try:
        created, updated = _row_versions(fragment[_CREATED]), _row_versions(fragment[_UPDATED])
    except (ValueError, IndexError, KeyError, TypeError):
        return dict(fragment)
    if not 0 < rows == len(created) == len(updated):
        return dict(fragment)
    moved = created != updated
    starts = np.flatnonzero(np.diff(moved, prepend=not moved[0]))
    versions = np.where(moved[starts], _UPDATED_VERSION, _CREATED_VERSION)
    lengths = np.diff(starts, append=rows)
    runs = list(zip(lengths.tolist(), versions.tolist(), strict=True))
    return {**fragment, _CREATED: _version_meta([(rows, _CREATED_VERSION)]), _UPDATED: _version_meta(runs)}


def mark_updated_rows(fragments: Iterable[FragmentMetadata], updated: int) -> Iterator[FragmentMetadata]:
    """New fragments whose first rows, so many of them all, are updated ones. Their versions are condensed, too."""
    for fragment in fragments:
        rows, old = fragment.physical_rows, min(updated, fragment.physical_rows)
        updated -= old
        versions = [(old, _CREATED_VERSION), (rows - old, _UPDATED_VERSION)]
        metas = _version_meta(run for run in versions if run[0]), _version_meta([(rows, _UPDATED_VERSION)])
        created, last_updated = (RowDatasetVersionMeta.from_json(json.dumps(meta)) for meta in metas)
        yield replace(fragment, created_at_version_meta=created, last_updated_at_version_meta=last_updated)


def _row_versions(meta: Mapping[str, Any]) -> NDArray[np.uint64]:
    """The version of every row, from runs of `1: {1: {1: {1: start, 2: end}}, 2: version}`."""
    lengths, versions = [], []
    for number, content in _fields(bytes(meta["inline"])):
        run = _members(content)
        segment = _members(run[1])
        span = _members(segment[1])
        length = span.get(2, 0) - span.get(1, 0)
        if number != 1 or set(run) - {1, 2} or set(segment) != {1} or set(span) - {1, 2} or length <= 0:
            raise ValueError("rows that are not a range")
        lengths.append(length)
        versions.append(run.get(2, 0))
    return np.repeat(np.array(versions, np.uint64), lengths)


def _version_meta(runs: Iterable[tuple[int, int]]) -> dict[str, list[int]]:
    """The same form of runs, each with its number of rows and their version."""
    sequence = b"".join(
        _message(1, _message(1, _message(1, _number(2, length))) + _number(2, version)) for length, version in runs
    )
    return {"inline": list(sequence)}


def _fields(message: bytes) -> list[tuple[int, Any]]:
    """The fields of a protobuf message: a number as an int, a message as bytes. ValueError for any other kind."""
    fields: list[tuple[int, Any]] = []
    value: Any
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value
        elif tag & 7:
            raise ValueError(f"wire type {tag & 7} is unknown")
        fields.append((tag >> 3, value))
    if at > len(message):
        raise ValueError("a message is cut short")
    return fields


def _members(message: bytes) -> dict[int, Any]:
    fields = _fields(message)
    members = dict(fields)
    if len(members) != len(fields):
        raise ValueError("a field occurs twice")
    return members


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


# Schemas with field ids: data files name their columns by id, Arrow schemas have none, and no id may be used again


def arrange_columns(dataset: Any, columns: Sequence[tuple[str | None, pa.Field]]) -> LanceSchema:
    """The schema with these columns in this order. Each is a column of the dataset, which may get another name and
    allow null, or a new one (None), which is null in every row.

    A column that allows null keeps doing so: rows that were deleted may hold nulls, and Lance reads them as well. New
    columns get ids that no file of this version ever used: dropped columns are gone from the schema, but data files
    still name them.
    """
    metadata, *serialised = _parts(dataset.lance_schema)
    owners = [field.name() for field in dataset.lance_schema.fields() for _ in _ids(field)]
    stored: dict[str, list[Any]] = {}
    for owner, part in zip(owners, serialised, strict=True):
        stored.setdefault(owner, []).append(part)
    added = [field for source, field in columns if source is None]
    fresh = iter(_fresh_columns(dataset, added))
    parts: list[Any] = []
    for source, field in columns:
        if source is None:
            parts += next(fresh)
        else:
            column, *children = stored[source]
            parts += [_relabel(column, field.name, nullable=field.nullable), *children]
    return LanceSchema._from_protos(metadata, *parts)


def _fresh_columns(dataset: Any, added: Sequence[pa.Field]) -> list[list[Any]]:
    """New columns as serialised fields, each followed by its children."""
    files = (file for fragment in dataset.get_fragments() for file in fragment.metadata.files)
    first = max((*field_ids(dataset), *(number for file in files for number in file.fields)), default=-1) + 1
    # Lance numbers the fields of a new schema from 0, so as many unused ones take the lower ids.
    lower = [pa.field(f" {number}", pa.null()) for number in range(first)]
    schema = LanceSchema.from_pyarrow(pa.schema([*lower, *added]))
    parts = iter(_parts(schema)[1:])
    columns = [[next(parts) for _ in _ids(field)] for field in schema.fields()]
    return columns[first:]


_FIELD_NAME, _FIELD_NULLABLE = 2, 6


def _relabel(field: bytes, name: str, *, nullable: bool) -> bytes:
    """A serialised field under another name; it may allow null from now on."""
    members = [(number, value) for number, value in _fields(field) if number not in (_FIELD_NAME, _FIELD_NULLABLE)]
    was_nullable = len(members) + 1 < len(_fields(field))
    members += [(_FIELD_NAME, name.encode()), *([(_FIELD_NULLABLE, 1)] if nullable or was_nullable else [])]
    ordered = sorted(members, key=itemgetter(0))  # several entries of one map keep their order
    return b"".join(_message(n, value) if isinstance(value, bytes) else _number(n, value) for n, value in ordered)


def field_ids(dataset: Any) -> list[int]:
    """The id of every field of the schema, children included."""
    return [number for field in dataset.lance_schema.fields() for number in _ids(field)]


def _parts(schema: LanceSchema) -> Sequence[Any]:
    """The metadata and then the serialised fields, each field followed by its children."""
    reduced: Any = schema.__reduce__()
    parts: Sequence[Any] = reduced[1]
    return parts


def _ids(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _ids(child)
