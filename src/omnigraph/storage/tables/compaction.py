"""Rewriting chosen fragments into few, as an operation that can be committed detached.

Lance plans compactions by its own rules; we choose the fragments ourselves (folding must stay off indexed ones), so
the task is composed here. Tasks are plain JSON and can run on any process that can open the dataset.

Which small fragments a write should fold into one, so that reads do not decay while nobody runs `optimize`.

Size-tiered: a fold takes fragments of similar size, so a row is rewritten a logarithmic number of times. Below
`FLOOR_BYTES` the number of requests is the cost and not the bytes, so everything that small counts as one tier. Such a
tier is written again by every fifth commit and every copy stays until cleanup, so the floor is low: at 1 MiB, 20,000
commits of 200 bytes would write 1,940 MB, at 64 KiB they write 148 MB and leave six fragments on average, not four.
Pure policy; the tables module carries it out.

In which versions the rows of a rewritten fragment were created and last updated, in few bytes.

Lance keeps both as runs of rows with equal versions, inside the manifest. Every commit has a version of its own, so a
fragment made of a thousand one-row commits has a thousand runs, and every later manifest repeats them: storage would
grow with the square of the commits. All that is ever asked of the two is whether they differ, that is whether the row
was updated since it was created (`indexes`), and that stays true here; which versions it were is forgotten.

The runs are protobuf messages (`{1: {1: {1: {1: start, 2: end}}, 2: version}}`, repeated). Whatever does not look
exactly like that is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from lance import FragmentMetadata, LanceOperation
from lance.optimize import CompactionTask

from omnigraph.storage.tables.rows import Table

COMPACT_SMALL_AT = 6
"""Fragments of one tier that trigger a fold. A table that is only appended to keeps at most five per tier."""
FLOOR_BYTES = 64 << 10
CEILING_BYTES = 64 << 20
"""Fragments above this are left to `optimize`."""


@dataclass(frozen=True, slots=True)
class FragmentSize:
    fragment_id: int
    bytes: int
    indexed: bool


def small_fragments_to_compact(fragments: Sequence[FragmentSize]) -> list[int]:
    """The ids of the smallest tier that is full, empty when none is.

    Fragments that an index covers are never touched: folding them would throw coverage away.
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


_CREATED: Final = "created_at_version_meta"
_UPDATED: Final = "last_updated_at_version_meta"
_CREATED_VERSION, _UPDATED_VERSION = 1, 2

Runs: TypeAlias = list[tuple[int, int]]
"""How many rows, and their version."""


def condense_row_versions(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment, in its JSON form, whose rows say no more than whether they were updated."""
    created, updated = _runs(fragment.get(_CREATED)), _runs(fragment.get(_UPDATED))
    rows = fragment["physical_rows"]
    if created is None or updated is None or {_length(created), _length(updated)} != {rows}:
        return dict(fragment)
    changed = _joined((length, before != after) for length, before, after in _beside(created, updated))
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


def _joined(runs: Iterable[tuple[int, bool]]) -> list[tuple[int, bool]]:
    return [(sum(length for length, _ in same), value) for value, same in groupby(runs, key=lambda run: run[1])]


def _runs(meta: Any) -> Runs | None:
    """The runs of a sequence, None when it is stored or written in another way."""
    if not isinstance(meta, Mapping) or not isinstance(meta.get("inline"), list):
        return None
    try:
        return [_run(message) for message in _messages(bytes(meta["inline"]))]
    except (ValueError, IndexError, KeyError):
        return None


def _run(message: bytes) -> tuple[int, int]:
    run = _fields(message)
    segment = _fields(run[1])
    span = _fields(segment[1])
    if set(run) - {1, 2} or set(segment) != {1} or set(span) - {1, 2}:
        raise ValueError("rows that are not a range")
    length = span.get(2, 0) - span.get(1, 0)
    if length <= 0:
        raise ValueError("a run without rows")
    return length, run.get(2, 0)


def _messages(data: bytes) -> Iterator[bytes]:
    """The values of field 1, of which there are many."""
    at = 0
    while at < len(data):
        number, value, at = _field(data, at)
        if number != 1 or not isinstance(value, bytes):
            raise ValueError(f"field {number} is unknown")
        yield value


def _fields(data: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    at = 0
    while at < len(data):
        number, value, at = _field(data, at)
        if number in found:
            raise ValueError(f"field {number} stands twice")
        found[number] = value
    return found


def _field(data: bytes, at: int) -> tuple[int, int | bytes, int]:
    """One field of a message: its number, its value, and where the next one begins."""
    tag, at = _number(data, at)
    value, at = _number(data, at)
    if tag & 7 == 0:
        return tag >> 3, value, at
    if tag & 7 != 2 or at + value > len(data):
        raise ValueError("neither a number nor a message")
    return tag >> 3, data[at : at + value], at + value


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at


def _meta(runs: Runs) -> dict[str, list[int]]:
    sequence = b"".join(
        _message(1, _message(1, _message(1, b"\x10" + _encoded(length))) + b"\x10" + _encoded(version))
        for length, version in runs
    )
    return {"inline": list(sequence)}


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


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
