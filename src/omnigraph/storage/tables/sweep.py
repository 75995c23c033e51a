"""Which files of a table folder no kept version needs.

Pure: it is given a listing and what the kept versions name, and answers with files. The layout of a Lance dataset is
known here and only here; a file that does not fit it is never named, and neither is one that an attached version
could need. Cleanup decides what is kept, and deletes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from omnigraph.storage.objects import StoredObject

_DETACHED_FROM: Final = 1 << 63
_MANIFEST = re.compile(r"_versions/d(\d{1,20})\.manifest")
_ATTACHED = re.compile(r"_versions/(\d{20}\.manifest|latest_version_hint\.json)")
_TRANSACTION = re.compile(r"_transactions/(\d{1,20})-[0-9a-f-]{36}\.txn")
_DATA = re.compile(r"data/([0-9a-z-]+)(\.lance|/[0-9a-z]+\.blob)")
_DELETIONS = re.compile(r"_deletions/\d+-\d+-\d+\.(arrow|bin)")
_INDEX = re.compile(r"(_indices/[0-9a-f-]{36}/)[^/]+")
_UNFINISHED = re.compile(r"(data|_versions|_transactions|_deletions)/\.tmp[0-9A-Za-z]{6}")


class FileKind(Enum):
    """What a file of a table folder is. `ATTACHED` is the lineage that every dataset is born with."""

    MANIFEST = auto()
    CONTENT = auto()
    TRANSACTION = auto()
    ATTACHED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class TableFile:
    """A stored file by what it is and by the name under which versions name it."""

    stored: StoredObject
    kind: FileKind
    named: str

    @property
    def version(self) -> str | None:
        """The version that a manifest is."""
        found = _MANIFEST.fullmatch(self.named)
        return found[1] if found else None

    @property
    def lives_with(self) -> str:
        """The file whose fate it shares: the record of a write is worth nothing without the version it was based on."""
        found = _TRANSACTION.fullmatch(self.named)
        return f"_versions/d{found[1]}.manifest" if found else self.named


@dataclass(frozen=True, slots=True)
class Doomed:
    """What may go. Manifests go first: a version whose manifest stands is whole."""

    manifests: tuple[TableFile, ...] = ()
    others: tuple[TableFile, ...] = ()

    @property
    def files(self) -> tuple[TableFile, ...]:
        return (*self.manifests, *self.others)

    @property
    def bytes(self) -> int:
        return sum(file.stored.size for file in self.files)

    @property
    def versions(self) -> list[str]:
        return [file.version for file in self.manifests if file.version is not None]

    def without(self, named: Set[str]) -> Doomed:
        """The same, except for what a version names that turned out to be needed."""
        return Doomed(
            tuple(file for file in self.manifests if file.named not in named),
            tuple(file for file in self.others if file.named not in named),
        )


def table_file(folder: str, stored: StoredObject) -> TableFile:
    """What a file below a table folder is."""
    path = stored.path.removeprefix(f"{folder}/")
    if (found := _DATA.fullmatch(path)) is not None:
        # Large blobs stand beside their data file and live exactly as long.
        return TableFile(stored, FileKind.CONTENT, f"data/{found[1]}.lance")
    if (found := _INDEX.fullmatch(path)) is not None:
        return TableFile(stored, FileKind.CONTENT, found[1])
    if (found := _MANIFEST.fullmatch(path)) is not None and int(found[1]) >= _DETACHED_FROM:
        return TableFile(stored, FileKind.MANIFEST, path)
    if _DELETIONS.fullmatch(path) is not None or _UNFINISHED.fullmatch(path) is not None:
        return TableFile(stored, FileKind.CONTENT, path)
    if (found := _TRANSACTION.fullmatch(path)) is not None:
        kind = FileKind.TRANSACTION if int(found[1]) >= _DETACHED_FROM else FileKind.ATTACHED
        return TableFile(stored, kind, path)
    return TableFile(stored, FileKind.ATTACHED if _ATTACHED.fullmatch(path) else FileKind.UNKNOWN, path)


def doomed_files(
    files: Iterable[TableFile], kept: Set[str], *, superseded: Set[str], staged_before: datetime, abandoned: bool
) -> Doomed:
    """The files that no kept version names and that no write in flight can still come to need.

    That is so for files named by `superseded` versions, which were published once and are not kept, for the records of
    writes that were based on one of those, and for files older than any write in flight. Of an `abandoned` folder,
    which no kept snapshot has, everything known may go.
    """
    manifests: list[TableFile] = []
    others: list[TableFile] = []
    for file in files:
        if file.kind is FileKind.UNKNOWN or file.named in kept or (file.kind is FileKind.ATTACHED and not abandoned):
            continue
        if file.lives_with not in superseded and file.stored.modified >= staged_before:
            continue
        (manifests if file.kind is FileKind.MANIFEST else others).append(file)
    return Doomed(tuple(manifests), tuple(others))


def leaf_folders(files: Collection[TableFile]) -> set[str]:
    """The folders that exist for one index segment or one data file's blobs only."""
    return {
        file.stored.path.rsplit("/", 1)[0]
        for file in files
        if "/_indices/" in file.stored.path or file.stored.path.endswith(".blob")
    }
