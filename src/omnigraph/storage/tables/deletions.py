"""Which rows of a fragment are deleted, read from its deletion file instead of from its rows.

Lance does not tell through its API, and finding out by scanning the living rows costs the whole fragment for one
deleted row. The file is part of the published table format: a list of row offsets as an Arrow file, or a bitmap once
they are many. Called where two versions of a fragment are compared; a caller that gets None scans.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.file import LanceFileSession
from numpy.typing import NDArray

from omnigraph.storage.tables.rows import Table

_LIST_SUFFIX: Final = ".arrow"


def deleted_offsets(table: Table, fragment: Any) -> NDArray[np.uint32] | None:
    """Offsets of the deleted rows of a fragment, ascending. None when they are so many that they form a bitmap."""
    name = fragment.deletion_file()
    if name is None:
        return np.empty(0, np.uint32)
    if not name.endswith(_LIST_SUFFIX):
        return None
    with table.reading(), tempfile.TemporaryDirectory(prefix="omnigraph-") as folder:
        file = Path(folder) / "deletions"
        session = LanceFileSession(table._dataset.uri, storage_options=table._dataset.latest_storage_options())
        session.download_file(name, str(file))
        offsets: NDArray[np.uint32] = pa.ipc.open_file(file.read_bytes()).read_all().column(0).to_numpy()
    return np.sort(offsets)
