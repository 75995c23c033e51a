"""Blob cells: the value that an entity holds at a snapshot, its tag, its bytes by range, and its way into the graph.

The Python, HTTP and CLI layers read blobs here. Loads and mutations call `admit_blobs` once, after their constraints
hold and before anything is staged: every URI is authorised and every distinct object probed before a payload is read.
A reader stays on its snapshot and never opens an external object. Types and properties are found by identity, so a
rename is followed into the past.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.queries import LONGEST_READ, BlobCell, BlobDescription, BlobTarget, ReadPoint
from omnigraph.engine.maintenance.declared_indexes import table_types
from omnigraph.engine.query.visibility import visible_entities
from omnigraph.engine.resources import Resources
from omnigraph.engine.rows.columns import BLOB_CELL
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.errors import BadRequestError, BlobIntegrityError, BlobRangeError, NotFoundError, ResourceLimitError
from omnigraph.language.catalog import Property, TableType
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.blobs import stored_blob
from omnigraph.storage.tables.rows import row_ids_of


@dataclass(frozen=True, slots=True)
class ManagedBlob:
    """Bytes the graph owns, possibly none. The tag is strong and changes at most when the type does. Reclaiming its
    snapshot makes reads fail, never return other bytes."""

    length: int
    etag: str
    table: Table
    column: str
    row_id: int

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        if not 0 <= start <= end <= self.length:
            raise BlobRangeError(start, end, self.length)
        if end - start > LONGEST_READ:
            raise ResourceLimitError("Blob read range bytes", LONGEST_READ, end - start, "read it in several ranges")
        if start == end:
            return b""
        (content,) = self.table.blobs(self.column, [self.row_id])
        if len(content) != self.length:
            raise BlobIntegrityError("the value has another length than its descriptor says")
        return content.part(start, end - start)

    def read(self) -> bytes:
        """The whole value, read in consecutive ranges."""
        starts = range(0, self.length, LONGEST_READ)
        return b"".join(self.read_range(start, min(start + LONGEST_READ, self.length)) for start in starts)


@dataclass(frozen=True, slots=True)
class ExternalBlob:
    """A reference to an object of the caller's. A length of None is the rest of the object."""

    uri: str
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True, slots=True)
class BlobRead:
    """A cell that holds a value, and the commit it was read at."""

    cell: BlobCell
    target: ReadPoint
    resolved_target: str
    content: ManagedBlob | ExternalBlob

    @property
    def description(self) -> BlobDescription:
        """The value without its bytes: the size and tag, or the URI."""
        point, content = self.target, self.content
        target = BlobTarget(branch=point.branch, snapshot=point.snapshot, resolved_snapshot=self.resolved_target)
        if isinstance(content, ExternalBlob):
            return BlobDescription(selector=self.cell, kind="external", uri=content.uri, target=target)
        size, etag = content.length, content.etag
        return BlobDescription(selector=self.cell, kind="managed", size=size, etag=etag, target=target)

    @property
    def managed(self) -> ManagedBlob:
        """The value, when its bytes are the graph's own."""
        if isinstance(self.content, ExternalBlob):
            raise self.description.not_downloaded()
        return self.content

    def read(self) -> bytes:
        return self.managed.read()

    def read_range(self, start: int, end: int) -> bytes:
        return self.managed.read_range(start, end)


def blob_in(workspace: Workspace, snapshot: Snapshot, cell: BlobCell, target: ReadPoint) -> BlobRead:
    """Find a cell of a state. BadRequestError for a wrong selector, NotFoundError for an unknown entity or a null
    cell."""
    type_, prop = _resolve_cell(workspace, snapshot, cell)
    table = snapshot.table(type_.type_key)
    rows = table.rows_among("id", [cell.id], [prop.column], row_ids=True)
    if not rows.num_rows or not visible_entities(snapshot, type_, row_ids_of(rows)).all():
        raise NotFoundError(f"Blob cell not found: there is no {cell.kind} {cell.type} with the id '{cell.id}'")
    if rows.num_rows > 1:
        raise BlobIntegrityError(f"{rows.num_rows} rows of {cell.type} have the id '{cell.id}'")
    blob = stored_blob(rows.column(prop.column)[0].as_py())
    if blob is None or prop.name in snapshot.visibility.of(type_).masked:
        raise NotFoundError(f"Blob cell not found: {cell.property} of {cell.type} '{cell.id}' is null")
    if blob.uri is not None:
        external = ExternalBlob(blob.uri, blob.offset, blob.size or None)
        return BlobRead(cell, target, snapshot.commit_id, external)
    # The version number is never used again, on any branch, so neither is the tag.
    named = "\0".join((table.state.path, table.state.version, prop.column, cell.id))
    etag = f'"{hashlib.sha256(named.encode()).hexdigest()[:32]}"'
    managed = ManagedBlob(blob.size, etag, table, prop.column, int(row_ids_of(rows)[0]))
    return BlobRead(cell, target, snapshot.commit_id, managed)


def _resolve_cell(workspace: Workspace, snapshot: Snapshot, cell: BlobCell) -> tuple[TableType, Property]:
    """The type and the property as the snapshot has them; they are named as the branch has them now."""
    if cell.kind not in ("node", "edge"):
        raise BadRequestError(f"invalid Blob selector: '{cell.kind}' is neither node nor edge")
    now = workspace.snapshot(snapshot.branch)
    type_key = f"{cell.kind}:{cell.type}"
    current = table_types(now.catalog).get(type_key)
    if current is None:
        raise NotFoundError(f"invalid Blob selector: unknown {cell.kind} type '{cell.type}'")
    prop = current.properties.get(cell.property)
    if prop is None:
        raise NotFoundError(f"invalid Blob selector: property '{cell.type}.{cell.property}' does not exist")
    if not prop.type.is_blob:
        raise BadRequestError(f"invalid Blob selector: property '{cell.type}.{cell.property}' is not a Blob")
    path = now.entry.tables[type_key].path
    for then in table_types(snapshot.catalog).values():
        if snapshot.entry.tables[then.type_key].path == path:
            for candidate in then.property_list:
                if candidate.id == prop.id:
                    return then, candidate
    name = f"{cell.type}.{cell.property}"
    raise NotFoundError(f"invalid Blob selector: '{name}' did not exist at commit {snapshot.commit_id}")


_REMEDY = "load fewer external blobs at a time, or use the Spark pipeline"


def admit_blobs(resources: Resources, change: GraphChange) -> GraphChange:
    """The change with every external URI admitted: normalised in a type that is replaced, else its bytes instead."""
    root, policy, limits = resources.root, resources.external_blobs, resources.limits
    cells = {key: _external_cells(type_change) for key, type_change in sorted(change.by_type.items())}
    named = [(key, uri) for key, blobs in cells.items() for uris in blobs.values() for uri in uris if uri is not None]
    if not named:
        return change
    if len(named) > limits.rows:
        raise ResourceLimitError("external Blob reference cells", limits.rows, len(named), _REMEDY)
    admitted = {uri: policy.admit(uri) for uri in dict.fromkeys(uri for _, uri in named)}
    probed = sorted(set(admitted.values()))
    sizes = dict(zip(probed, root.workers.map(root.external.size, probed), strict=True))
    copied = [admitted[uri] for key, uri in named if not change.by_type[key].replaces]
    if (total := sum(sizes[uri] for uri in copied)) > limits.bytes:
        raise ResourceLimitError("materialized external blob payload bytes", limits.bytes, total, _REMEDY)
    distinct = sorted(set(copied))
    payloads = dict(zip(distinct, root.workers.map(root.external.read, distinct), strict=True))
    changes = change.by_type.items()
    return GraphChange({k: _with_cells(c, cells[k], admitted, {} if c.replaces else payloads) for k, c in changes})


def _external_cells(change: TypeChange) -> dict[str, list[str | None]]:
    """Per blob column that holds some, the URI of each row, or None where the row names no external object."""
    columns = [prop.column for prop in change.type.property_list if prop.type.is_blob]
    uris = {column: pc.struct_field(change.rows.column(column), "uri") for column in columns}
    return {column: named.to_pylist() for column, named in uris.items() if named.null_count < len(named)}


def _with_cells(
    change: TypeChange,
    cells: Mapping[str, list[str | None]],
    admitted: Mapping[str, str],
    payloads: Mapping[str, bytes],
) -> TypeChange:
    rows = change.rows
    for column, uris in cells.items():
        values = rows.column(column).to_pylist()
        for row, uri in enumerate(uris):
            if uri is not None:
                normal = admitted[uri]
                copy = payloads.get(normal)
                values[row] = {"data": None, "uri": normal} if copy is None else {"data": copy, "uri": None}
        index = rows.column_names.index(column)
        rows = rows.set_column(index, rows.schema.field(column), pa.array(values, BLOB_CELL))
    return replace(change, rows=rows)
