"""Whether a stored table version is whole: every file it names, as long as its manifest says, and readable.

For verify and repair. Rows are not read: their files are judged by their lengths, deletion vectors and descriptors of
blobs by reading them, which costs little. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType

from omnigraph.errors import IntegrityError
from omnigraph.storage.models import TableState
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables.lance_errors import damaged_files, standing_files
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import Table

_OWN_FILE: Final = (1, 2)
"""The kinds of blob cells whose bytes lie in a file beside the rows."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """`path` is below the graph's root; an index segment is a folder and ends in a slash."""

    path: str
    reason: str
    index_segment: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """How many files a version names, how many rows and which columns it shows, and which files are damaged."""

    files: int
    rows: int
    fragments: int
    columns: frozenset[str]
    damaged: tuple[DamagedFile, ...]


def check_version(reader: TableReader, objects: Objects, state: TableState) -> CheckedTable:
    """Opens the version anew when `reader` is new; a version that does not open is an error that says why."""
    table = reader.open(state)
    named = table.files()
    standing = standing_files(objects, state)
    found = dict(damaged_files(state, table._dataset, standing))
    for check in (_unreadable_deletions, _damaged_blobs):
        found |= dict(_checked(check, table, standing, found))
    damaged = tuple(DamagedFile(f"{state.path}/{name}", reason, _segment(name)) for name, reason in found.items())
    fragments = table._fragments()
    rows = sum(f.metadata.num_rows for f in fragments)
    return CheckedTable(len(named), rows, len(fragments), table.columns, damaged)


_Check = Callable[[Table, Any, Mapping[str, int]], Iterator[tuple[str, str]]]


def _checked(
    check: _Check, table: Table, standing: Mapping[str, int], known: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """What a check finds, fragment by fragment; those with damaged files can't be read any further."""
    for fragment in table._fragments():
        files = [f"data/{file.path}" for file in fragment.metadata.files]
        if known.keys().isdisjoint([*files, fragment.deletion_file()]):
            try:
                yield from check(table, fragment, standing)
            except IntegrityError as error:
                yield files[0], error.reason


def _unreadable_deletions(table: Table, fragment: Any, _: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    deletions = fragment.deletion_file()
    if deletions is not None:
        try:
            live = table.read([], row_ids=True, fragments=[fragment.fragment_id]).num_rows
        except IntegrityError as error:
            yield deletions, error.reason
        else:
            if live != fragment.metadata.num_rows:
                yield deletions, f"leaves {live} rows, and left {fragment.metadata.num_rows}"


def _damaged_blobs(table: Table, fragment: Any, standing: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Large blobs: the descriptors say how far each file must reach."""
    ids = {field.name(): field.id() for field in table._dataset.lance_schema.fields()}
    for column in (field.name for field in table.schema if isinstance(field.type, BlobType)):
        holders = [file.path for file in fragment.metadata.files if ids[column] in file.fields]
        if not holders:
            continue
        cells = table.read([column], fragments=[fragment.fragment_id]).column(column)
        kind, number, position, size = (pc.struct_field(cells, n) for n in ("kind", "blob_id", "position", "size"))
        reach: dict[int, int] = {}
        own = pc.is_in(kind, value_set=pa.array(_OWN_FILE, kind.type))
        ends = pc.add(position, size)
        for blob, end in zip(number.filter(own).to_pylist(), ends.filter(own).to_pylist(), strict=True):
            reach[blob] = max(reach.get(blob, 0), end)
        folder = f"data/{holders[-1].removesuffix('.lance')}"
        for blob, end in reach.items():
            name = f"{folder}/{f'{blob:032b}'[::-1]}.blob"  # Lance spells the number with its lowest bit first
            if (found := standing.get(name)) is None:
                yield name, "is missing, and blobs of its table lie in it"
            elif found < end:
                yield name, f"is cut short: {found} bytes of {end} are left"


def _segment(name: str) -> str | None:
    return name.split("/")[1] if name.startswith("_indices/") else None
