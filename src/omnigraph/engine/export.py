"""Exports: a snapshot written out so that loading it into a fresh graph gives an equal one.

NDJSON is the exchange form, one entity per line; Parquet and Arrow files, one per type, are for other tools. An export
reads one pinned snapshot in bounded pieces and never opens the object behind an external blob.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.api.changes import EVERYTHING, ChangeScope
from omnigraph.api.enums import FileFormat
from omnigraph.api.export import ByteWriter, ExportedFile
from omnigraph.engine.progress import Progress, Tally
from omnigraph.engine.query.seen_entities import seen_entities
from omnigraph.engine.rows.columns import arrow_type
from omnigraph.engine.rows.export_form import record_lines
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.running_exports import RUNNING_EXPORTS
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Property
from omnigraph.storage.tables.rows import RowIds, row_ids_of

_ROWS = 8_192
# A blob may be as large as a whole batch of other rows: fewer are held at a time.
_ROWS_WITH_BLOBS = 256
_CHUNK_BYTES = 64 << 10


def export_lines(snapshot: Snapshot, types: Collection[str] = (), scope: ChangeScope = EVERYTHING) -> Iterator[bytes]:
    """One line per entity, without its line end: edge types before node types, each by name, entities by id."""
    with RUNNING_EXPORTS.counted(snapshot.resources.graph_id):
        for state in _chosen(snapshot, types, scope):
            yield from entity_lines(state, _all_rows(state, snapshot))


def export_text(snapshot: Snapshot, types: Collection[str] = ()) -> Iterator[str]:
    """The same as text, each line with its line end."""
    return (f"{line.decode()}\n" for line in export_lines(snapshot, types))


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
) -> list[ExportedFile]:
    """One file per type, `node.<Type>.parquet` or `edge.<Type>.arrow`, with property names as columns."""
    try:
        chosen = FileFormat(format)
    except ValueError:
        raise BadRequestError(f"unknown file format '{format}'; use one of: {', '.join(FileFormat)}") from None
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with RUNNING_EXPORTS.counted(snapshot.resources.graph_id):
            states = _chosen(snapshot, types, EVERYTHING)
            tally = Tally(progress, "entities", sum(state.state.rows for state in states))
            return [_write_file(state, snapshot, folder, chosen, tally) for state in states]
    except OSError as error:
        raise BadRequestError(f"can't write to '{folder}': {error.strerror or error}") from None


def _chosen(snapshot: Snapshot, types: Collection[str], scope: ChangeScope) -> list[TypeState]:
    states = TypeState.all_of(snapshot)
    names = {state.type.name for state in states.values()}
    for name in types:
        if name not in names:
            raise BadRequestError(f"unknown export type '{name}'")
    return [
        state
        for _, state in sorted(states.items())
        if (not types or state.type.name in types) and scope.selects_type(state.type.kind, state.type.name)
    ]


def _all_rows(state: TypeState, snapshot: Snapshot) -> RowIds:
    """Every row of a type that the reader of the snapshot sees, in id order."""
    if not state.state.rows:
        return np.empty(0, np.int64)
    rows = row_ids_of(state.keys_of_all())
    return rows if snapshot.lens.is_open else rows[seen_entities(snapshot, state.type, rows)]


def entity_batches(state: TypeState, row_ids: RowIds) -> Iterator[pa.Table]:
    """Some entities of a type as rows, in the order asked for and as many at a time as fit into memory."""
    yield from state.batches(row_ids, _ROWS_WITH_BLOBS if state.blob_columns else _ROWS)


def entity_lines(state: TypeState, row_ids: RowIds) -> Iterator[bytes]:
    """Some entities of a type as graph records, in the order asked for. Bulk exports call it on executors."""
    for rows in entity_batches(state, row_ids):
        yield from record_lines(state.type, rows)


def _write_file(state: TypeState, snapshot: Snapshot, folder: Path, format: FileFormat, tally: Tally) -> ExportedFile:
    path = folder / f"{state.type.kind}.{state.type.name}.{format.value}"
    schema = _file_schema(state)
    written = 0
    with _writer(path, schema, format) as writer:
        for rows in entity_batches(state, _all_rows(state, snapshot)):
            writer.write_table(rows.rename_columns(schema.names).cast(schema))
            written += rows.num_rows
            tally.add(rows.num_rows, state.type_key)
    return ExportedFile(state.type_key, str(path), written)


def _writer(path: Path, schema: pa.Schema, format: FileFormat) -> Any:
    if format is FileFormat.PARQUET:
        return pq.ParquetWriter(path, schema)
    return pa.ipc.new_file(str(path), schema)


def _file_schema(state: TypeState) -> pa.Schema:
    """The columns of a file: `id`, `from` and `to` of an edge, then the properties under their names."""
    names = ("id", "from", "to")[: len(state.keys)]
    system = [pa.field(name, pa.string(), nullable=False) for name in names]
    return pa.schema([*system, *(_file_field(prop, state) for prop in state.type.property_list)])


def _file_field(prop: Property, state: TypeState) -> pa.Field:
    return pa.field(prop.name, arrow_type(prop.type), nullable=prop.type.nullable or prop.column in state.hidden)
