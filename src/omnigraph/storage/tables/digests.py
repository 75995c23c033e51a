"""Digests of what Lance believes without a check: the manifest of a version, and the deletion vectors that it names.

A changed byte in a manifest makes Lance read another column or panic; one in a deletion vector brings a row back, or
makes a search wait without end. So the log says with each version what both looked like when it was staged, and the
reader that opens the version compares. Only on a local disk: an object store checks what it keeps, and reading a
manifest once more would cost each commit and each cold read a request. Data and index files are too large for this.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from omnigraph.errors import IntegrityError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.lance_errors import manifest_path, translated

_DIGEST_BYTES: Final = 16
_REMEMBERED_VECTORS: Final = 4_096
_CHANGED: Final = "was changed: it does not match its digest in the log"


class VersionDigests:
    """Takes and checks the digests of the versions of one graph. Deletion vectors are read once: they never change."""

    def __init__(self, location: Location) -> None:
        self._root: Path | None = location.local_root if location.is_local else None
        self._vectors: RecentlyUsed[str, bytes] = RecentlyUsed(_REMEMBERED_VECTORS)

    def taken(self, state: TableState, dataset: Any) -> TableState:
        """The state of a new version with its digests. Its files were written a moment ago and are in memory still."""
        if self._root is None:
            return state
        with translated(f"reading {state.path}"):
            manifest = _digest((self._root / manifest_path(state)).read_bytes()).hex()
            deletions = self._deletions(state, dataset)
        return replace(state, manifest=manifest, deletions=deletions)

    def check_manifest(self, state: TableState) -> None:
        """Before Lance reads it. A manifest that can't be read is left to Lance, which says why."""
        if self._root is None or state.manifest is None:
            return
        try:
            data = (self._root / manifest_path(state)).read_bytes()
        except OSError:
            return
        if _digest(data).hex() != state.manifest:
            raise IntegrityError(manifest_path(state), f"the manifest of a table {_CHANGED}")

    def check_deletions(self, state: TableState, dataset: Any) -> None:
        """Before Lance reads any of them. One that is missing is left to Lance, too."""
        if self._root is None or state.deletions is None:
            return
        try:
            found = self._deletions(state, dataset)
        except OSError:
            return
        if found != state.deletions:
            names = _named(dataset)
            path = f"{state.path}/{names[0] if len(names) == 1 else '_deletions/'}"
            raise IntegrityError(path, f"the list of deleted rows {_CHANGED}")

    def _deletions(self, state: TableState, dataset: Any) -> str | None:
        assert self._root is not None
        names = _named(dataset)
        if not names:
            return None
        parts = []
        for path in (f"{state.path}/{name}" for name in names):
            if (known := self._vectors.get(path)) is None:
                known = _digest((self._root / path).read_bytes())
                self._vectors[path] = known
            parts.append(known)
        return _digest(b"".join(parts)).hex()


def _named(dataset: Any) -> list[str]:
    return sorted(name for fragment in dataset.get_fragments() if (name := fragment.deletion_file()) is not None)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
