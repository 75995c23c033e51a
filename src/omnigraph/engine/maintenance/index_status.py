"""What the declared indexes of a state cover, their size and measured recall, and what the next optimize will do.

Everything is in the manifests of the tables, so it costs no more than opening them. The numbers of rows are those of
whole types: a restricted reader is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.api.maintenance import IndexListing, IndexStatus
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, kind_of, table_types
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import TableType
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import APPROXIMATE_INDEX_KIND, IndexSpec, StoredIndex, stored_index

_NOT_BUILT = "not built yet"
_OUTDATED = "built with other parameters, or for another size of the type"
_NOT_MEASURED = "recall not measured yet"


def index_status(snapshot: Snapshot) -> IndexListing:
    """Every declared index of a state."""
    snapshot.refuse_restricted("the status of indexes")
    types = table_types(snapshot.catalog).values()
    indexes = tuple(status for type_ in types for status in _of_type(snapshot, type_))
    return IndexListing(snapshot.branch, snapshot.version, indexes)


def _of_type(snapshot: Snapshot, type_: TableType) -> Iterator[IndexStatus]:
    table = snapshot.table_of(type_)
    names = {prop.column: prop.name for prop in type_.property_list}
    for spec in declared_indexes(type_):
        name = names.get(spec.column) or type_.system_name(spec.column)
        yield _status(type_.type_key, name, table, spec)


def _status(type_key: str, name: str, table: Table, spec: IndexSpec) -> IndexStatus:
    stored = stored_index(table, spec)
    if stored is None:
        pending = _NOT_BUILT if table.state.rows else None
        return IndexStatus(
            type_key=type_key,
            property=name,
            kind=kind_of(spec),
            covered_rows=0,
            stale_rows=table.state.rows,
            pending=pending,
        )
    record = stored.record
    return IndexStatus(
        type_key=type_key,
        property=name,
        kind=kind_of(spec),
        covered_rows=stored.rows.indexed_rows,
        stale_rows=stored.rows.unindexed_rows,
        approximate=stored.kind == APPROXIMATE_INDEX_KIND,
        recall=None if record is None else record.recall,
        probes=None if record is None else record.probes,
        size_bytes=stored.bytes,
        pending=_work(spec, stored),
    )


def _work(spec: IndexSpec, stored: StoredIndex) -> str | None:
    """What an index waits for besides rows that it does not cover."""
    if stored.is_outdated:
        return _OUTDATED
    if stored.kind != APPROXIMATE_INDEX_KIND or spec.vectors is None:
        return None
    record = stored.record
    is_current = record is not None and stored.is_measured and record.declared_probes == spec.vectors.probes
    return None if is_current else _NOT_MEASURED
