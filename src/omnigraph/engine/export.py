"""Exports: a snapshot as NDJSON lines that load into an equal graph, or as one Parquet, Arrow or CSV file per type.

`Graph`, the CLI and the server call it. An export reads one pinned snapshot in bounded pieces and never opens the
object behind an external blob. `RunningExports` tells a process that wants to delete a graph which exports still run.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.api.enums import Dates, FileFormat
from omnigraph.api.history import EVERYTHING, ChangeScope
from omnigraph.api.queries import ByteWriter, ExportedFile
from omnigraph.api.values import csv_line
from omnigraph.engine.observers import Progress, Tally
from omnigraph.engine.query.visibility import visible_entities
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.engine.rows.end_ids import with_plain_ends
from omnigraph.engine.rows.export_form import property_values, record_lines
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import EdgeType, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.tables.rows import RowIds, row_ids_of


class RunningExports:
    """Exports by the identity of their graph. Safe to share between threads."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def count(self, graph_id: str) -> Iterator[None]:
        with self._lock:
            self._running[graph_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[graph_id] -= 1

    def __contains__(self, graph_id: object) -> bool:
        with self._lock:
            return self._running[str(graph_id)] > 0


RUNNING_EXPORTS: Final = RunningExports()


_ROWS = 8_192
# A blob may be as large as a whole batch of other rows: fewer are held at a time.
_ROWS_WITH_BLOBS = 256
_CHUNK_BYTES = 64 << 10


def export_lines(
    snapshot: Snapshot, types: Collection[str] = (), scope: ChangeScope = EVERYTHING, *, dates: Dates = Dates.EPOCH
) -> Iterator[bytes]:
    """One line per entity, without its line end: edge types before node types, each by name, entities by id."""
    with RUNNING_EXPORTS.count(snapshot.resources.graph_id):
        for state in _select_types(snapshot, types, scope):
            for rows in entity_batches(state, _all_rows(state, snapshot)):
                yield from record_lines(state.type, rows, dates)


def write_lines(lines: Iterator[bytes], writer: ByteWriter) -> int:
    """Write lines in chunks of at most 64 KiB, except for a longer line; how many lines that were."""
    count, pending = 0, bytearray()
    for line in lines:
        count += 1
        if pending and len(pending) + len(line) >= _CHUNK_BYTES:
            writer.write(bytes(pending))
            pending.clear()
        pending += line + b"\n"
    if pending:
        writer.write(bytes(pending))
    return count


def export_files(
    snapshot: Snapshot,
    directory: str | Path,
    format: str,
    types: Collection[str] = (),
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> list[ExportedFile]:
    """One file per type, `node.<Type>.parquet` or `edge.<Type>.csv`, with property names as columns.

    A file appears under its name when it is complete. One that exists is kept and refuses the export, unless `force`.
    """
    try:
        chosen = FileFormat(format)
    except ValueError:
        raise BadRequestError(f"unknown file format '{format}'; use one of: {', '.join(FileFormat)}") from None
    folder = Path(directory)
    try:
        with RUNNING_EXPORTS.count(snapshot.resources.graph_id):
            states = _select_types(snapshot, types, EVERYTHING)
            paths = {state.type_key: folder / f"{state.type.kind}.{state.type.name}.{chosen.value}" for state in states}
            if not force and (taken := next((path for path in paths.values() if path.exists()), None)) is not None:
                raise _exists_error(taken)
            folder.mkdir(parents=True, exist_ok=True)
            tally = Tally(progress, "entities", sum(state.state.rows for state in states))
            files = []
            for state in states:
                path, written = paths[state.type_key], 0
                with _complete_file(path, replaces=force) as part, _writer(part, state, chosen) as write:
                    for rows in entity_batches(state, _all_rows(state, snapshot)):
                        write(rows)
                        written += rows.num_rows
                        tally.add(rows.num_rows, state.type_key)
                files.append(ExportedFile(state.type_key, str(path), written))
            return files
    except OSError as error:
        raise BadRequestError(f"can't write to '{folder}': {error.strerror or error}") from None


def _select_types(snapshot: Snapshot, types: Collection[str], scope: ChangeScope) -> list[TypeState]:
    states = TypeState.all_of(snapshot)
    names = {state.type.name for state in states.values()}
    for name in types:
        if name not in names:
            hint = did_you_mean(name, names)
            raise BadRequestError(f"unknown export type '{name}'" + (f"; {hint}" if hint else ""))
    chosen = [state for _, state in sorted(states.items()) if not types or state.type.name in types]
    return [state for state in chosen if scope.selects_type(state.type.kind, state.type.name)]


def _all_rows(state: TypeState, snapshot: Snapshot) -> RowIds:
    """Every row of a type that the reader of the snapshot sees, in id order."""
    if not state.state.rows:
        return np.empty(0, np.int64)
    rows = row_ids_of(state.keys_of_all())
    return rows if snapshot.visibility.is_unrestricted else rows[visible_entities(snapshot, state.type, rows)]


def entity_batches(state: TypeState, row_ids: RowIds) -> Iterator[pa.Table]:
    """Some entities of a type as rows, in the order asked for and as many at a time as fit into memory."""
    yield from state.batches(row_ids, _ROWS_WITH_BLOBS if state.blob_columns else _ROWS)


@contextmanager
def _complete_file(path: Path, *, replaces: bool) -> Iterator[Path]:
    """A file beside `path` that takes its name once it is whole. Nothing is left of one that is not."""
    part = path.with_name(f".{path.name}.{new_ulid()}.part")
    try:
        yield part
        if not replaces:
            try:
                os.link(part, path)  # unlike a rename, this never takes the place of another file
                return
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links: an empty file claims the name first
                path.open("xb").close()
        os.replace(part, path)
    except FileExistsError:
        raise _exists_error(path) from None
    finally:
        part.unlink(missing_ok=True)


def _exists_error(path: Path) -> BadRequestError:
    return BadRequestError(
        f"'{path}' exists already; export into another directory, or replace it (force=True, --force)"
    )


@contextmanager
def _writer(path: Path, state: TypeState, format: FileFormat) -> Iterator[Callable[[pa.Table], None]]:
    """What writes rows of a type to a new file."""
    schema = _file_schema(state)
    if format is FileFormat.CSV:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(csv_line(schema.names) + "\n")
            yield lambda rows: file.writelines(_csv_lines(state.type, rows))
        return
    is_parquet = format is FileFormat.PARQUET
    with pq.ParquetWriter(path, schema) if is_parquet else pa.ipc.new_file(str(path), schema) as writer:
        yield lambda rows: writer.write_table(
            with_plain_ends(state.type, rows, types=True).rename_columns(schema.names).cast(schema)
        )


def _csv_lines(type_: TableType, rows: pa.Table) -> Iterator[str]:
    """Rows as `load --type` reads them."""
    rows = with_plain_ends(type_, rows, types=True)
    system = rows.column_names[: len(rows.column_names) - len(type_.property_list)]
    keys = zip(*(rows.column(name).to_pylist() for name in system), strict=True)
    for key, values in zip(keys, property_values(type_, rows, Dates.ISO), strict=True):
        yield csv_line([*key, *values.values()]) + "\n"


def _file_schema(state: TypeState) -> pa.Schema:
    """The columns of a file: `id` (or `@id`), the ends of an edge, then the properties under their names."""
    ends = state.type.ends if isinstance(state.type, EdgeType) else ()
    named = [(end.name,) if end.interface is None else (end.name, f"{end.name}_type") for end in ends]
    system = (state.type.system_name("id"), *(name for names in named for name in names))
    fields = [pa.field(name, pa.string(), nullable=False) for name in system]
    for prop in state.type.property_list:
        nullable = prop.type.nullable or prop.column in state.masked
        fields.append(pa.field(prop.name, arrow_type(prop.type), nullable=nullable))
    return pa.schema(fields)
