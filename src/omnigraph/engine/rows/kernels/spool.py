"""Typed rows of one input, type by type: in memory while they are few, beyond that in scratch files.

Decoding hands its rows over part by part and gets them back as whole tables, whose columns are then mapped memory: the
system reads and drops their pages as it likes, so a load of any size holds a bounded number of bytes. The rows of a
load are read more than once (rules, staging, a newer head), which is why they are kept at all. The files have no name
and are gone with the last table that is made of them.
"""

from __future__ import annotations

import errno
import mmap
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.kernels.typed_rows import TypedRows
from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.language.catalog import TableType

IN_MEMORY_BYTES = 128 << 20
"""Rows of an input that stay in memory. What comes next goes to scratch files, this much at a time."""

# Beside the columns of the rows; no property column can be called so.
_LINE, _GENERATED, _PRESENT = "#line", "#generated", "#present:"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RowSpool:
    """The rows of one input in the order in which they come."""

    def __init__(self) -> None:
        self._recent: defaultdict[str, list[TypedRows]] = defaultdict(list)
        self._recent_bytes = 0
        self._files: dict[str, _ScratchRows] = {}

    def add(self, rows: TypedRows) -> None:
        self._recent[rows.type_key].append(rows)
        self._recent_bytes += rows.nbytes
        if self._recent_bytes > IN_MEMORY_BYTES:
            for key, parts in self._recent.items():
                if key not in self._files:
                    self._files[key] = _ScratchRows(parts[0])
                for part in parts:
                    self._files[key].write(part)
            self._recent.clear()
            self._recent_bytes = 0

    def rows_by_type(self) -> dict[str, TypedRows]:
        """All rows, by type key in sorted order. Nothing can be added afterwards."""
        written = {key: file.read() for key, file in self._files.items()}
        keys = sorted(written.keys() | self._recent.keys())
        return {key: TypedRows.join([*written.get(key, []), *self._recent.get(key, [])]) for key in keys}


class _ScratchRows:
    """Rows of one type in a file without a name."""

    def __init__(self, first: TypedRows) -> None:
        self._type: TableType = first.type
        self._present = [] if first.present is None else first.present.column_names
        marks = [pa.field(_LINE, pa.int64()), pa.field(_GENERATED, pa.bool_())]
        noted = [pa.field(f"{_PRESENT}{name}", pa.bool_()) for name in self._present]
        self._rows_schema = first.rows.schema
        self._schema = pa.schema([*first.rows.schema, *marks, *noted])
        with _explain_failure():
            self._file = tempfile.TemporaryFile(prefix="omnigraph-load-")  # noqa: SIM115 closed by `read`
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), self._schema)

    def write(self, part: TypedRows) -> None:
        generated = pa.repeat(False, len(part)) if part.generated is None else part.generated
        noted = [] if part.present is None else part.present.columns
        with _explain_failure():
            self._writer.write_table(pa.table([*part.rows.columns, part.lines, generated, *noted], schema=self._schema))

    def read(self) -> list[TypedRows]:
        """The rows, batch by batch, without copying any of them."""
        with _explain_failure():
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.close()
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        return [self._take_apart(reader.get_batch(number)) for number in range(reader.num_record_batches)]

    def _take_apart(self, batch: pa.RecordBatch) -> TypedRows:
        rows = pa.table(batch.columns[: len(self._rows_schema)], schema=self._rows_schema)
        noted = {name: batch.column(f"{_PRESENT}{name}") for name in self._present}
        generated = batch.column(_GENERATED)
        return TypedRows(
            self._type,
            rows,
            batch.column(_LINE),
            pa.table(noted) if noted else None,
            generated if pc.any(generated, min_count=0).as_py() else None,
        )


@contextmanager
def _explain_failure() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = StorageErrorKind.FULL if error.errno in _NO_SPACE else StorageErrorKind.PERMANENT
        folder, reason = tempfile.gettempdir(), error.strerror or error
        raise StorageError(
            kind,
            f"can't keep the rows of a load in {folder}: {reason}; nothing was written. Set TMPDIR to a directory with "
            "more room, or load less at a time",
        ) from error
