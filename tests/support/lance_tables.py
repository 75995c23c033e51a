"""The Lance dataset behind an open table, for tests that look at what Lance did with it, and single indexes on it."""

from __future__ import annotations

from typing import Any

from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import IndexSpec, build_segment, index_need
from omnigraph.storage.tables.maintenance import IndexChange
from omnigraph.storage.tables.staging import StagedTable


def lance_of(table: Table) -> Any:
    """Nobody but `storage.tables` touches it in the product, and no test but through here."""
    return table._dataset


def build_index(root: GraphRoot, base: TableState, column: str, kind: str, name: str, **options: Any) -> StagedTable:
    """Make one index whole, as maintenance does it, and leave the others alone."""
    table = root.reader.open(base)
    spec = IndexSpec(column, kind, name, options)
    need = index_need(table, spec)
    segment = build_segment(table, spec, need.fragment_ids) if need else None
    if segment is None:
        return StagedTable(base)
    return root.staging.apply(base, IndexChange([segment], list(need.replaced)).operation)
