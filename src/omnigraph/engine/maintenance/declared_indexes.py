"""Declared indexes: which ones a schema asks for, by the columns and kinds that tables know.

Indexes are derived state: writes never build them, answers never depend on them, and `optimize` or `ensure_indices`
bring a branch to the point where it has what is declared. Pure; called by those two and by readers of index coverage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from omnigraph.api.maintenance import PendingProperty
from omnigraph.language.catalog import Catalog, IndexKind, TableType
from omnigraph.storage.tables import indexes
from omnigraph.storage.tables.maintenance import PendingIndex

_KINDS: Final[Mapping[IndexKind, str]] = {
    IndexKind.BTREE: indexes.BTREE,
    IndexKind.FULL_TEXT: indexes.TEXT_INDEX_KIND,
    IndexKind.NGRAM: indexes.NGRAM,
    IndexKind.LABEL_LIST: indexes.LABEL_LIST,
    IndexKind.VECTOR: indexes.VECTOR_INDEX_KIND,
}


def table_types(catalog: Catalog) -> dict[str, TableType]:
    """Every type that has a table, by type key, edges before nodes."""
    types: Iterable[TableType] = (*catalog.nodes.values(), *catalog.edges.values())
    return {type_.type_key: type_ for type_ in sorted(types, key=lambda t: t.type_key)}


def declared_indexes(type_: TableType) -> list[indexes.IndexSpec]:
    """Every index of one table: ids and endpoints always, properties as declared."""
    specs = [
        indexes.IndexSpec(column, indexes.BTREE, index_name(column, IndexKind.BTREE)) for column in type_.system_columns
    ]
    for prop in type_.property_list:
        for kind in type_.index_kinds(prop.name):
            options: Mapping[str, Any] = indexes.TEXT_INDEX_OPTIONS if kind is IndexKind.FULL_TEXT else {}
            if kind is IndexKind.VECTOR:
                options = indexes.vector_index_options(prop.distance)
            vectors = prop.vector_index if kind is IndexKind.VECTOR else None
            name = index_name(prop.column, kind)
            specs.append(indexes.IndexSpec(prop.column, _KINDS[kind], name, options, vectors))
    return specs


def index_name(column: str, kind: IndexKind) -> str:
    return f"{column}_{kind.value}"


def kind_of(spec: indexes.IndexSpec) -> str:
    """The kind that a schema asks for, as users know it."""
    return next(kind.value for kind, built in _KINDS.items() if built == spec.kind)


def pending_properties(type_: TableType, pending: Iterable[PendingIndex]) -> list[PendingProperty]:
    """Pending indexes by the names that users know."""
    names = {prop.column: prop.name for prop in type_.property_list}
    return [PendingProperty(type_.type_key, names.get(p.column, p.column), p.reason) for p in pending]
