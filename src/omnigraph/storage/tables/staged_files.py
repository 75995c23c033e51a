"""Data files that a write made before any commit could name them, and the one way to take them back.

A bulk write puts gigabytes into tables before it knows whether its rows are good. When it is refused, or was only a
rehearsal, those bytes should not wait a week for cleanup. Besides this, only cleanup and an init that
failed ever delete table data.

Why it can't lose anything: a file is known here only because this write made it, under a name that nobody else can
pick, and the only plan that leads to it has not left the write yet, so no log entry can name it. With `keep` the plan
goes to the publish machine, and from then on nothing is removed any more, whatever is heard of it: an answer that was
lost may mean that the entry stands. What was kept and not published is garbage, and cleanup finds it.
"""

from __future__ import annotations

import json
from contextlib import suppress

from omnigraph.errors import StorageError
from omnigraph.storage.objects import Objects


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
        """Delete the rows that nobody will publish. Best effort: what stays, and the small files beside the data
        (manifests, deletion vectors, index segments that nobody knows), goes with a cleanup."""
        if not self._kept:
            with suppress(StorageError):
                self._objects.delete_all(self._paths)
            self._paths.clear()
