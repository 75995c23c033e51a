"""Metadata that OmniGraph composes for Lance itself: rewrites of fragments, row versions, and schemas with field ids.

Staging, table maintenance and the driver of a bulk run call it. Nothing here commits. Parts of the metadata are
protobuf messages that pylance only passes through, so the reader and writer of those messages are here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from lance import FragmentMetadata, LanceOperation
from lance.optimize import CompactionTask
from lance.schema import LanceSchema

from omnigraph.storage.tables.rows import Table

# Which fragments to rewrite

COMPACT_SMALL_AT = 6
"""So many small fragments of one tier are compacted. A table that is only appended to keeps at most five per tier."""
FLOOR_BYTES = 64 << 10
CEILING_BYTES = 64 << 20
"""Fragments above this are left to `optimize`."""


@dataclass(frozen=True, slots=True)
class FragmentSize:
    fragment_id: int
    bytes: int
    indexed: bool


def small_fragments_to_compact(fragments: Sequence[FragmentSize]) -> list[int]:
    """The ids of the smallest tier that is full, empty when none is: reads stay fast while nobody runs `optimize`.

    A tier holds fragments of similar size, so a row is rewritten a logarithmic number of times. Below `FLOOR_BYTES`
    requests are the cost and not bytes, so everything that small is one tier. It is written again by every fifth commit
    and each copy stays until cleanup, so the floor is low: at 1 MiB, 20,000 commits of 200 bytes would write 1,940 MB;
    at 64 KiB they write 148 MB and leave six fragments on average, not four. Fragments that an index covers are never
    touched, because rewriting them would lose the coverage.
    """
    small = sorted(
        (f for f in fragments if not f.indexed and f.bytes <= CEILING_BYTES), key=lambda f: (f.bytes, f.fragment_id)
    )
    start = 0
    while start < len(small):
        end, total = start + 1, small[start].bytes
        while end < len(small) and small[end].bytes <= max(FLOOR_BYTES, total):
            total += small[end].bytes
            end += 1
        if end - start >= COMPACT_SMALL_AT:
            return sorted(f.fragment_id for f in small[start:end])
        start = end
    return []


# Rewriting fragments

# The planner's own defaults, spelled out: a task that did not come from the planner has to carry all of them.
_OPTIONS: dict[str, Any] = {
    "target_rows_per_fragment": 1 << 20,
    "max_rows_per_group": 1024,
    "max_bytes_per_file": None,
    "materialize_deletions": True,
    "materialize_deletions_threshold": 0.1,
    "num_threads": None,
    "batch_size": None,
    "io_buffer_size": None,
    "defer_index_remap": False,
    "index_remap_mode": "Direct",
    "compaction_mode": None,
    "enable_binary_copy": False,
    "enable_binary_copy_force": False,
    "binary_copy_read_batch_bytes": 16 << 20,
    "max_source_fragments": None,
    "max_source_rows": None,
    "max_source_bytes": None,
    "excluded_fragment_ids": [],
    "max_overlays_per_fragment": 10,
    "data_storage_version": "2.2",
    "has_eager_remappable_index": False,
}


@dataclass(frozen=True, slots=True)
class FragmentRewrite:
    """Fragments and what takes their place: new files, written, not yet part of any version."""

    replaced: tuple[FragmentMetadata, ...]
    created: tuple[FragmentMetadata, ...]

    @property
    def operation(self) -> Any:
        """The rewrite, for any version that holds the replaced fragments and none with the ids of the created ones."""
        group = LanceOperation.RewriteGroup(list(self.replaced), list(self.created))
        return LanceOperation.Rewrite([group], [])


def rewrite_fragments(table: Table, fragment_ids: Set[int], *, spare_ids: int = 0) -> FragmentRewrite | None:
    """These fragments written again as few large ones. None when that would change nothing: a single fragment
    without deleted rows.

    `spare_ids` leaves that many fragment ids to writers who go on from the same version: an index segment is bound
    to the ids of its fragments, so those must still be free when the rewrite is committed on a later version.
    """
    chosen = [f.metadata for f in table._fragments() if f.fragment_id in fragment_ids]
    if not chosen or (len(chosen) == 1 and chosen[0].deletion_file is None and len(chosen[0].files) == 1):
        return None
    task = CompactionTask.from_json(  # type: ignore[attr-defined]
        json.dumps(
            {
                "task": {"fragments": [f.to_json() for f in chosen]},
                "read_version": table._dataset.version,
                "options": _OPTIONS,
            }
        )
    )
    with table.writing("compacting"):
        result = json.loads(task.execute(table._dataset).json())
    # The result numbers all its fragments 0; they need ids that this version does not use yet.
    unused = max(f.fragment_id for f in table._fragments()) + 1 + spare_ids
    created = [with_fragment_id(fragment, unused + i) for i, fragment in enumerate(result["new_fragments"])]
    replaced = [FragmentMetadata.from_json(json.dumps(f)) for f in result["original_fragments"]]
    return FragmentRewrite(tuple(replaced), tuple(created))


def with_fragment_id(created: dict[str, Any], fragment_id: int) -> FragmentMetadata:
    """A fragment that a compaction has made, ready to be committed under an id of its own."""
    return FragmentMetadata.from_json(json.dumps({**condense_row_versions(created), "id": fragment_id}))


# In which versions rows were created and updated

_CREATED: Final = "created_at_version_meta"
_UPDATED: Final = "last_updated_at_version_meta"
_CREATED_VERSION, _UPDATED_VERSION = 1, 2

Runs: TypeAlias = list[tuple[int, int]]
"""How many rows, and their version."""


def condense_row_versions(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment, in its JSON form, whose rows say only whether they were updated since they were created.

    Lance keeps the two versions of every row as runs of equal ones in the manifest. Every commit has a version of its
    own, so a fragment made of a thousand one-row commits has a thousand runs that every later manifest repeats. Nobody
    needs more than the difference (`indexes`). A fragment whose runs are stored in another way is left as it is.
    """
    created, updated = _runs(fragment.get(_CREATED)), _runs(fragment.get(_UPDATED))
    rows = fragment["physical_rows"]
    if created is None or updated is None or {_length(created), _length(updated)} != {rows}:
        return dict(fragment)
    changed = _join((length, before != after) for length, before, after in _beside(created, updated))
    return {
        **fragment,
        _CREATED: _meta([(rows, _CREATED_VERSION)]),
        _UPDATED: _meta([(n, _UPDATED_VERSION if moved else _CREATED_VERSION) for n, moved in changed]),
    }


def _length(runs: Runs) -> int:
    return sum(length for length, _ in runs)


def _beside(left: Runs, right: Runs) -> Iterator[tuple[int, int, int]]:
    """Two sequences over the same rows as one: how many rows, and the two versions they have."""
    others = iter(right)
    rest, other = 0, 0
    for length, version in left:
        while length:
            if not rest:
                rest, other = next(others)
            together = min(length, rest)
            yield together, version, other
            length, rest = length - together, rest - together


def _join(runs: Iterable[tuple[int, bool]]) -> list[tuple[int, bool]]:
    return [(sum(length for length, _ in same), value) for value, same in groupby(runs, key=lambda run: run[1])]


def _runs(meta: Any) -> Runs | None:
    """The runs of a sequence, None when it is stored or written in another way."""
    if not isinstance(meta, Mapping) or not isinstance(meta.get("inline"), list):
        return None
    try:
        return [_run(field) for field in wire_fields(bytes(meta["inline"]))]
    except (ValueError, IndexError, KeyError, TypeError):
        return None


def _run(field: WireField) -> tuple[int, int]:
    """How many rows, and their version: `{1: {1: {1: start, 2: end}}, 2: version}`, as field 1."""
    if field.number != 1:
        raise ValueError(f"field {field.number} is unknown")
    run = _by_number(field.value)
    segment = _by_number(run[1])
    span = _by_number(segment[1])
    if set(run) - {1, 2} or set(segment) != {1} or set(span) - {1, 2}:
        raise ValueError("rows that are not a range")
    length = span.get(2, 0) - span.get(1, 0)
    if length <= 0:
        raise ValueError("a run without rows")
    return length, run.get(2, 0)


def _meta(runs: Runs) -> dict[str, list[int]]:
    sequence = b"".join(
        _message(1, _message(1, _message(1, _number(2, length))) + _number(2, version)) for length, version in runs
    )
    return {"inline": list(sequence)}


# Schemas with field ids: data files name their columns by id, Arrow schemas have none, and no id may be used again

_ID, _PARENT_ID = 3, 4
_NO_PARENT: Final = -1


def without_columns(dataset: Any, dropped: Collection[str]) -> LanceSchema:
    """The schema of a dataset without some of its columns; all others keep their ids."""
    metadata, serialised = _parts(dataset.lance_schema)
    kept: list[bytes] = []
    at = 0
    for field in dataset.lance_schema.fields():
        size = _tree_size(field)
        if field.name() not in dropped:
            kept += serialised[at : at + size]
        at += size
    return LanceSchema._from_protos(metadata, *kept)


def with_columns(dataset: Any, added: Sequence[pa.Field]) -> LanceSchema:
    """The schema of a dataset with columns added at the end, under ids that no file of this version ever used."""
    metadata, serialised = _parts(dataset.lance_schema)
    _, fresh = _parts(LanceSchema.from_pyarrow(pa.schema(added)))
    first = _highest_id(dataset) + 1
    return LanceSchema._from_protos(metadata, *serialised, *(_renumber(field, first) for field in fresh))


def field_ids(dataset: Any) -> list[int]:
    """The id of every field of the schema, children included."""
    return [number for field in dataset.lance_schema.fields() for number in _ids(field)]


def _parts(schema: LanceSchema) -> tuple[Any, list[bytes]]:
    """The metadata and the serialised fields, each field followed by its children."""
    reduced: Any = schema.__reduce__()
    metadata, *fields = reduced[1]
    return metadata, fields


def _tree_size(field: Any) -> int:
    return 1 + sum(_tree_size(child) for child in field.children())


def _ids(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _ids(child)


def _highest_id(dataset: Any) -> int:
    """Dropped columns are gone from the schema, but data files still name them."""
    in_files = (
        number for fragment in dataset.get_fragments() for file in fragment.metadata.files for number in file.fields
    )
    return max((*field_ids(dataset), *in_files), default=-1)


def _renumber(field: bytes, offset: int) -> bytes:
    """A serialised field with its id, and its parent's when it has one, moved up."""
    numbers = {_ID: 0, _PARENT_ID: 0}  # zeros are not written
    rest = b""
    for part in wire_fields(field):
        if part.number in numbers and isinstance(part.value, int):
            numbers[part.number] = part.value
        else:
            rest += part.raw
    for number, value in numbers.items():
        signed = value - (1 << 64) if value >= 1 << 63 else value
        target = signed if number == _PARENT_ID and signed == _NO_PARENT else signed + offset
        rest += _number(number, target & ((1 << 64) - 1))
    return rest


# Protobuf messages


class WireField(NamedTuple):
    """A field of a message: a number as an int, text or a message as bytes, a fixed-size value as None."""

    number: int
    value: Any
    raw: bytes


def wire_fields(message: bytes) -> Iterator[WireField]:
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        value: int | bytes | None = None
        match tag & 7:
            case 0:
                value, at = _read_varint(message, at)
            case 2:
                size, at = _read_varint(message, at)
                value, at = message[at : at + size], at + size
            case 1 | 5 as wire:
                at += 8 if wire == 1 else 4
            case wire:
                raise ValueError(f"wire type {wire} is unknown")
        if at > len(message):
            raise ValueError("a message is cut short")
        yield WireField(tag >> 3, value, message[start:at])


def _by_number(message: bytes) -> dict[int, Any]:
    fields = list(wire_fields(message))
    values = {field.number: field.value for field in fields}
    if len(values) != len(fields):
        raise ValueError("a field occurs twice")
    return values


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
