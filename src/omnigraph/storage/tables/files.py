"""Files of a table folder: whether a version is whole, what another tool did, which files cleanup may delete.

Verify, repair and cleanup call it, and bulk writes for the data files they staged. The layout of a Lance dataset is
known here only; a file that does not fit it is never deletable, and neither is one that an attached version could need.
Rows are not read: files are judged by their lengths, deletion vectors and blob descriptors by reading them.
`StagedFiles` deletes only files that its own write made, under names that nobody else can pick, before a plan that
names them has left the write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType

from omnigraph.errors import IntegrityError, StorageError, StorageErrorKind
from omnigraph.storage.local_disk import reason_of
from omnigraph.storage.models import TableState
from omnigraph.storage.objects import Objects, StoredObject
from omnigraph.storage.tables.lance_errors import LANCE_ERRORS, damaged_files, stored_files, translate_errors
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
    sizes = stored_files(objects, state)
    reasons = dict(damaged_files(state, table._dataset, sizes))
    fragments = table._fragments()
    for check in (_unreadable_deletions, _damaged_blobs):
        for fragment in fragments:
            files = [f"data/{file.path}" for file in fragment.metadata.files]
            # A fragment with damaged files can't be read any further.
            if reasons.keys().isdisjoint([*files, fragment.deletion_file()]):
                try:
                    reasons.update(check(table, fragment, sizes))
                except IntegrityError as error:
                    reasons[files[0]] = error.reason
    damaged = tuple(
        DamagedFile(f"{state.path}/{name}", reason, name.split("/")[1] if name.startswith("_indices/") else None)
        for name, reason in reasons.items()
    )
    rows = sum(fragment.metadata.num_rows for fragment in fragments)
    return CheckedTable(len(named), rows, len(fragments), table.columns, damaged)


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


def _damaged_blobs(table: Table, fragment: Any, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Large blobs: the descriptors say how far each file must reach."""
    ids = {field.name(): field.id() for field in table._dataset.lance_schema.fields()}
    for column in (field.name for field in table.schema if isinstance(field.type, BlobType)):
        holders = [file.path for file in fragment.metadata.files if ids[column] in file.fields]
        if not holders:
            continue
        cells = table.read([column], fragments=[fragment.fragment_id]).column(column)
        kind, number, position, size = (pc.struct_field(cells, n) for n in ("kind", "blob_id", "position", "size"))
        own = pc.is_in(kind, value_set=pa.array(_OWN_FILE, kind.type))
        ends = pa.table({"blob": number, "end": pc.add(position, size)}).filter(own)
        folder = f"data/{holders[-1].removesuffix('.lance')}"
        reach = ends.group_by("blob").aggregate([("end", "max")])
        for blob, end in zip(reach["blob"].to_pylist(), reach["end_max"].to_pylist(), strict=True):
            name = f"{folder}/{f'{blob:032b}'[::-1]}.blob"  # Lance spells the number with its lowest bit first
            if (stored_size := sizes.get(name)) is None:
                yield name, "is missing, and blobs of its table lie in it"
            elif stored_size < end:
                yield name, f"is cut short: {stored_size} bytes of {end} are left"


BORN_WITH = 1


@dataclass(frozen=True, slots=True)
class AttachedHead:
    """The newest attached version, which another tool made, and the operations that led there, oldest first."""

    table: Table
    operations: tuple[str, ...]


def foreign_head(reader: TableReader, state: TableState) -> AttachedHead | None:
    """The attached head of a table that another tool wrote to; None when it is still the version it was born with."""
    uri = reader.location.child(state.path)
    doing = f"the attached head of {state.path} can't be opened"
    try:
        with translate_errors(doing):
            dataset = lance.dataset(uri, storage_options=reader.storage_options)
            made = [t for t in dataset.get_transactions(dataset.version - BORN_WITH) if t is not None]
            is_foreign = dataset.version != BORN_WITH
            rows, version = dataset.count_rows() if is_foreign else 0, str(dataset.version)
            head = TableState(table_id=state.table_id, path=state.path, version=version, rows=rows, fragments=0)
            table = Table(head, dataset, reader.location)
            _ = table.schema  # a damaged one makes Lance panic when it is asked for
    except LANCE_ERRORS as error:
        raise StorageError(StorageErrorKind.PERMANENT, f"{doing}: {reason_of(error)}") from error
    return AttachedHead(table, tuple(type(t.operation).__name__ for t in reversed(made))) if is_foreign else None


_DETACHED_FROM: Final = 1 << 63
_MANIFEST = re.compile(r"_versions/d(\d{1,20})\.manifest")
_ATTACHED = re.compile(r"_versions/(\d{20}\.manifest|latest_version_hint\.json)")
_TRANSACTION = re.compile(r"_transactions/(\d{1,20})-[0-9a-f-]{36}\.txn")
_DATA = re.compile(r"data/([0-9a-z-]+)(\.lance|/[0-9a-z]+\.blob)")
_DELETIONS = re.compile(r"_deletions/\d+-\d+-\d+\.(arrow|bin)")
_INDEX = re.compile(r"(_indices/[0-9a-f-]{36}/)[^/]+")
_UNFINISHED = re.compile(r"(data|_versions|_transactions|_deletions)/\.tmp[0-9A-Za-z]{6}")


class FileKind(Enum):
    """The kind of a file in a table folder. `ATTACHED` is the lineage that every dataset is born with."""

    MANIFEST = auto()
    CONTENT = auto()
    TRANSACTION = auto()
    ATTACHED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class TableFile:
    """A stored file by what it is, by the name under which versions name it, and by the file whose fate it shares."""

    stored: StoredObject
    kind: FileKind
    named: str
    kept_with: str


def table_file(folder: str, stored: StoredObject) -> TableFile:
    """Classify a file below a table folder."""
    path = named = stored.path.removeprefix(f"{folder}/")
    kind = FileKind.UNKNOWN
    if (match := _DATA.fullmatch(path)) is not None:
        # Large blobs are beside their data file and are kept exactly as long.
        kind, named = FileKind.CONTENT, f"data/{match[1]}.lance"
    elif (match := _INDEX.fullmatch(path)) is not None:
        kind, named = FileKind.CONTENT, match[1]
    elif (match := _MANIFEST.fullmatch(path)) is not None and int(match[1]) >= _DETACHED_FROM:
        kind = FileKind.MANIFEST
    elif _DELETIONS.fullmatch(path) or _UNFINISHED.fullmatch(path):
        kind = FileKind.CONTENT
    elif (match := _TRANSACTION.fullmatch(path)) is not None:
        kind = FileKind.TRANSACTION if int(match[1]) >= _DETACHED_FROM else FileKind.ATTACHED
        # The record of a write is worth nothing without the version it was based on.
        return TableFile(stored, kind, path, f"_versions/d{match[1]}.manifest")
    elif _ATTACHED.fullmatch(path):
        kind = FileKind.ATTACHED
    return TableFile(stored, kind, named, named)


def deletable_files(
    files: Iterable[TableFile], kept: Set[str], *, superseded: Set[str], staged_before: datetime, abandoned: bool
) -> list[TableFile]:
    """The files that no kept version names and that no write in flight can still come to need.

    That is so for files named by `superseded` versions, which were published once and are not kept, for the records of
    writes that were based on one of those, and for files older than any write in flight. Of an `abandoned` folder,
    which no kept snapshot has, everything known may go.
    """
    spared = {FileKind.UNKNOWN} if abandoned else {FileKind.UNKNOWN, FileKind.ATTACHED}
    return [
        file
        for file in files
        if file.kind not in spared
        and file.named not in kept
        and (file.kept_with in superseded or file.stored.modified < staged_before)
    ]


def leaf_folders(files: Collection[TableFile]) -> set[str]:
    """The folders that exist for one index segment or one data file's blobs only."""
    return {
        file.stored.path.rsplit("/", 1)[0]
        for file in files
        if "/_indices/" in file.stored.path or file.stored.path.endswith(".blob")
    }


class StagedFiles:
    """The files of one write."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._paths: list[str] = []
        self._kept = False

    def add(self, table_path: str, fragment: str) -> None:
        """A fragment, as JSON, that this write put into a table."""
        self._paths += [f"{table_path}/data/{file['path']}" for file in json.loads(fragment)["files"]]

    def keep(self) -> None:
        """From now on a log entry may name the files: nothing is discarded any more."""
        self._kept = True

    def discard(self) -> None:
        """Delete the data files that will not be published. Best effort: a cleanup removes what is left, and the small
        files beside the data (manifests, deletion vectors, index segments)."""
        if not self._kept:
            with suppress(StorageError):
                self._objects.delete_all(self._paths)
            self._paths.clear()
