"""The reference for results: the literal interpreter over what a snapshot stores, with its values as JSON has them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.dates import format_date, format_datetime
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import EntityType, ListType, PathType, RecordType, ValueType
from omnigraph.language.types import PropertyType, Scalar

from .interpreter import Interpreter
from .interpreter_functions import Day, Instant
from .toy_graph import Entity, Path, StoredEdge, ToyGraph

Stored = dict[str, Any]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SYSTEM = ("id", "src", "dst")


@dataclass
class ReferenceGraph:
    """Every entity of a graph as a dict of `id` [, `src`, `dst`] and properties, dates as numbers, by type key."""

    catalog: Catalog
    entities: dict[str, list[Stored]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReferenceGraph:
        catalog = snapshot.catalog
        types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
        return cls(catalog, {type_.type_key: _entities(snapshot, type_) for type_ in types})

    def rows(self, plan: ir.ReadPlan, parameters: Mapping[str, Any]) -> list[list[Any]]:
        """The result as lists of JSON values, in order. Raises `RuleError` for what the language refuses."""
        types = [column.type for column in plan.columns]
        rows = Interpreter(self._graph(), parameters).run(plan)
        return [[self._json(value, type_) for value, type_ in zip(row, types, strict=True)] for row in rows]

    def _graph(self) -> ToyGraph:
        nodes = {
            type_.name: {each["id"]: _properties(each) for each in self.entities[type_.type_key]}
            for type_ in self.catalog.nodes.values()
        }
        edges = {
            type_.name: [
                StoredEdge(each["id"], each["src"], each["dst"], _properties(each), (each["@src"], each["@dst"]))
                for each in self.entities[type_.type_key]
            ]
            for type_ in self.catalog.edges.values()
        }
        return ToyGraph(nodes, edges)

    def _json(self, value: Any, type_: ValueType) -> Any:
        if value is None:
            return None
        match type_:
            case EntityType():
                return self._object(value, type_)
            case PathType():
                return self._path(value, type_)
            case RecordType():
                return {name: self._json(value[name], field) for name, field in type_.fields}
            case ListType() | PropertyType(list=True):
                return [self._json(item, type_.item) for item in value]
            case PropertyType(scalar=Scalar.DATE):
                return format_date(value)
            case PropertyType(scalar=Scalar.DATETIME):
                return format_datetime(value)
        return value

    def _path(self, path: Path, type_: PathType) -> Any:
        nodes = [self._json(node, type_.nodes) for node in path.nodes]
        return {"length": len(path.edges), "nodes": nodes, "edges": [self._json(e, type_.edges) for e in path.edges]}

    def _object(self, entity: Entity, whole: EntityType) -> Any:
        """What a bare variable returns: system fields, and every property but blobs and vectors. The types of ends are
        there if one of the types of the variable has an interface at that end."""
        type_ = next(each for each in whole.members if each.name == entity.type)
        stored = next(each for each in self.entities[type_.type_key] if each["id"] == entity.id)
        ends = {f"@{name}": stored[name] for name in _SYSTEM[1:] if name in stored}
        for name, interface, end in (("src", "from_interface", "from_type"), ("dst", "to_interface", "to_type")):
            if any(getattr(each, interface, None) is not None for each in whole.members):
                ends[f"@{name}_type"] = stored[f"@{name}"] or getattr(type_, end)
        properties = (prop for prop in type_.property_list if not (prop.type.is_blob or prop.type.is_vector))
        shown = {prop.name: self._json(stored[prop.name], prop.type) for prop in properties}
        return {"@id": entity.id, "@type": type_.name, **ends, **shown}


def _properties(stored: Stored) -> Stored:
    return {name: value for name, value in stored.items() if name.removeprefix("@") not in _SYSTEM}


def _entities(snapshot: Snapshot, type_: TableType) -> list[Stored]:
    columns = {name: name for name in type_.system_columns} | {
        prop.column: prop.name for prop in type_.property_list if not prop.type.is_blob
    }
    read = snapshot.scan(type_.type_key, list(columns)).to_pylist()
    entities = [{columns[column]: _plain(value) for column, value in row.items()} for row in read]
    if isinstance(type_, EdgeType):
        names = {str(node.id): node.name for node in snapshot.catalog.nodes.values()}
        for entity in entities:
            for end in ("src", "dst"):
                *tag, entity[end] = entity[end].split("\x1f")
                entity[f"@{end}"] = names[tag[1]] if tag else None
    return entities


def _plain(value: Any) -> Any:
    match value:
        case list():
            return [_plain(item) for item in value]
        case datetime.datetime():
            return Instant((value - EPOCH) // datetime.timedelta(milliseconds=1))
        case datetime.date():
            return Day((value - EPOCH.date()).days)
    return value
