"""Gives stable identities to types, properties and tables when a schema is accepted.

Called on creation and on evolution. A name that was accepted before keeps its identity, a rename hint carries it
over, everything else is new; ids come from one counter per graph and are never reused. Nothing here judges whether
a change may happen: that is the planner's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from omnigraph.errors import Diagnostic
from omnigraph.language.catalog import (
    ENDPOINTS,
    SYSTEM_COLUMNS,
    AnyType,
    Catalog,
    EdgeType,
    EndMember,
    InterfaceEnd,
    InterfaceType,
    NodeType,
    Property,
    TypeKind,
)
from omnigraph.language.schema.resolved import UNIDENTIFIED, DeclaredProperty, DeclaredSchema, DeclaredType
from omnigraph.language.source import DiagnosticSink, Name, did_you_mean

RENAME_ERROR = "rename error"
RENAME_NOTE = "rename note"

EMPTY_CATALOG = Catalog(nodes={}, edges={}, interfaces={}, next_id=1)

_KIND_ORDER: dict[TypeKind, int] = {"interface": 0, "node": 1, "edge": 2}
_TypeKey = tuple[TypeKind, str]


class Allocator:
    """Gives identities to a schema. They follow `accepted` when a graph evolves; all are fresh when one is created."""

    def __init__(self, schema: DeclaredSchema, accepted: Catalog | None) -> None:
        self.schema = schema
        self.creating = accepted is None
        self.accepted = accepted if accepted is not None else EMPTY_CATALOG
        self.by_key: dict[_TypeKey, AnyType] = {(t.kind, t.name): t for t in self.accepted.types()}
        self.errors = DiagnosticSink(schema.source)
        self.notes = DiagnosticSink(schema.source)
        self.next_id = self.accepted.next_id

    def allocate(self) -> tuple[list[AnyType], int, tuple[Diagnostic, ...]]:
        """The types in source order, the next free id, and notes about hints. Ids are given to all types first, then to
        the properties of each, then to the tables."""
        ordered = sorted(self.schema.types, key=lambda t: (_KIND_ORDER[t.kind], t.name.text))
        origins = self._match_types(ordered)
        ids = {t.key: origins[t.key].id if t.key in origins else self._fresh() for t in ordered}
        by_id = sorted(ordered, key=lambda t: ids[t.key])
        types = {t.key: self._identify(t, ids[t.key], origins.get(t.key)) for t in by_id}
        for key, type_ in types.items():
            if not isinstance(type_, InterfaceType) and type_.table_incarnation == UNIDENTIFIED:
                types[key] = replace(type_, table_incarnation=self._fresh())
        for key, type_ in types.items():
            if isinstance(type_, EdgeType):
                types[key] = self._with_end_members(type_, types.values(), origins.get(key))
        self.errors.raise_if_any()
        return [types[t.key] for t in self.schema.types], self.next_id, tuple(self.notes.diagnostics)

    def _fresh(self) -> int:
        allocated = self.next_id
        self.next_id += 1
        return allocated

    def _match_types(self, ordered: Sequence[DeclaredType]) -> dict[_TypeKey, AnyType]:
        """By name first; a hint is asked only where no accepted declaration has the name."""
        origins = {declared.key: self.by_key[declared.key] for declared in ordered if declared.key in self.by_key}
        consumed = set(origins)
        for declared in ordered:
            hint = declared.rename_from
            if hint is None:
                continue
            if self.creating or declared.key in self.by_key:
                self._note_inert(declared.name.text, hint)
                continue
            origin = self._hinted_type(declared, hint)
            if origin is None:
                continue
            if (origin.kind, origin.name) in consumed:
                self._refuse(hint, f"'{hint.text}' is consumed by more than one declaration")
                continue
            consumed.add((origin.kind, origin.name))
            origins[declared.key] = origin
        return origins

    def _hinted_type(self, declared: DeclaredType, hint: Name) -> AnyType | None:
        origin = self.by_key.get((declared.kind, hint.text))
        if origin is not None:
            return origin
        others = [kind for kind, name in self.by_key if name == hint.text]
        if others:
            self._refuse(hint, f"can't rename {others[0]} '{hint.text}' across declaration kinds")
        else:
            same_kind = [name for kind, name in self.by_key if kind == declared.kind]
            self._refuse(hint, f"no accepted declaration has that name: '{hint.text}'", same_kind)
        return None

    def _identify(self, declared: DeclaredType, id_: int, origin: AnyType | None) -> AnyType:
        """The type with its id and those of its properties; a new table gets its incarnation later."""
        meaning = declared.meaning
        matched = self._match_properties(declared, origin)
        table = None if isinstance(origin, InterfaceType) else origin
        used = [] if table is None else list(table.used_columns)
        taken = {column.lower() for column in (*used, *SYSTEM_COLUMNS[declared.kind])}
        identities = {name: (prop.id, prop.column) for name, prop in matched.items()}
        for name in sorted(declared.properties.keys() - matched.keys()):
            column = name if declared.kind == "interface" else _fresh_column(name, taken)
            identities[name] = self._fresh(), column
            used.append(column)
            taken.add(column.lower())
        properties = []
        for name, prop in declared.properties.items():
            property_id, column = identities[name]
            renamed = self._renamed_values(declared.name.text, prop, matched.get(name))
            properties.append(replace(prop.meaning, id=property_id, column=column, renamed_values=renamed))
        if isinstance(meaning, InterfaceType):
            return replace(meaning, id=id_, property_list=tuple(properties))
        meaning = replace(meaning, id=id_, property_list=tuple(properties), used_columns=tuple(used))
        if table is not None:
            meaning = replace(meaning, table_incarnation=table.table_incarnation, birth_name=table.birth_name)
        ends = tuple(end for end in ENDPOINTS if end in meaning.key)
        members = sorted(set(meaning.key).difference(ends), key=identities.__getitem__)
        return replace(meaning, key=(*ends, *members))

    def _renamed_values(
        self, owner: str, prop: DeclaredProperty, origin: Property | None
    ) -> tuple[tuple[str, str], ...]:
        """Every enum value that was ever renamed, with its name now. Values that are gone or in use again drop out."""
        values = prop.meaning.type.enum_values
        before = None if origin is None else origin.type.enum_values
        if origin is None or values is None or before is None:
            for old, _ in prop.renamed_values:
                self._note_inert(f"{owner}.{prop.name.text}", old, "@rename_value")
            return ()
        latest: dict[str, str] = {}
        for old, new in prop.renamed_values:
            if old.text in before:
                latest[old.text] = new
            elif old.text not in dict(origin.renamed_values):
                self._refuse(old, f"'{old.text}' is not a value of the accepted enum", before, "@rename_value")
        renamed = {old: latest.get(new, new) for old, new in origin.renamed_values} | latest
        return tuple(sorted((old, new) for old, new in renamed.items() if new in values and old not in values))

    def _with_end_members(self, edge: EdgeType, types: Iterable[AnyType], origin: AnyType | None) -> EdgeType:
        """The edge type with the node types of its interface ends. An end that was a node type keeps it as its base."""
        old = origin if isinstance(origin, EdgeType) else None
        nodes = sorted((type_ for type_ in types if isinstance(type_, NodeType)), key=lambda node: node.id)

        def members(interface: str, before: str | None, end: InterfaceEnd | None) -> InterfaceEnd:
            base = end.base if end is not None else None
            if end is None and before is not None:
                base = self.accepted.nodes[before].id
            key_names = {member.id: member.key_name for member in end.members} if end is not None else {}
            implementing = [node for node in nodes if interface in node.implements]
            for node in implementing:
                is_free = node.birth_name not in key_names.values()
                key_names.setdefault(node.id, node.birth_name if is_free else f"{node.birth_name}#{node.id}")
            return InterfaceEnd(tuple(EndMember(n.id, n.name, key_names[n.id]) for n in implementing), base)

        if edge.from_interface is not None:
            before = (old.from_type, old.from_interface) if old is not None else (None, None)
            edge = replace(edge, from_interface=members(edge.from_type, *before))
        if edge.to_interface is not None:
            before = (old.to_type, old.to_interface) if old is not None else (None, None)
            edge = replace(edge, to_interface=members(edge.to_type, *before))
        return edge

    def _match_properties(self, declared: DeclaredType, origin: AnyType | None) -> dict[str, Property]:
        old = origin.properties if origin is not None else {}
        matched = {name: old[name] for name in declared.properties if name in old}
        taken = {prop.id for prop in matched.values()}
        for name, prop in sorted(declared.properties.items()):
            if prop.rename_from is None:
                continue
            if self.creating or name in matched:
                self._note_inert(f"{declared.name.text}.{name}", prop.rename_from)
            elif origin is None:
                # An injected property brings its interface's hint along; only a hint written here is meant so.
                if not prop.meaning.injected:
                    self._refuse(prop.rename_from, f"'{declared.name.text}' is new, it has no property to rename")
            else:
                source = self._hinted_property(origin, prop, prop.rename_from, taken)
                if source is not None:
                    taken.add(source.id)
                    matched[name] = source
        return matched

    def _hinted_property(
        self, origin: AnyType, prop: DeclaredProperty, hint: Name, taken: Collection[int]
    ) -> Property | None:
        source = origin.properties.get(hint.text)
        if source is None:
            elsewhere = [t.name for t in self.by_key.values() if hint.text in t.properties]
            where = (
                f"; a property can't be moved from '{elsewhere[0]}'" if elsewhere and not prop.meaning.injected else ""
            )
            message = f"no accepted declaration has that name: '{origin.name}.{hint.text}'{where}"
            self._refuse(hint, message, origin.properties)
            return None
        if source.id in taken:
            self._refuse(hint, f"'{origin.name}.{hint.text}' is consumed by more than one declaration")
            return None
        return source

    def _refuse(self, hint: Name, why: str, candidates: Iterable[str] = (), annotation: str = "@rename_from") -> None:
        message = f"{annotation} can't be followed: {why}"
        self.errors.report(RENAME_ERROR, message, hint.at, suggestion=did_you_mean(hint.text, candidates))

    def _note_inert(self, subject: str, hint: Name, annotation: str = "@rename_from") -> None:
        if annotation == "@rename_value":
            why = "there are no values of an accepted enum to rename"
        else:
            why = "there is nothing to rename in a new graph" if self.creating else "the name already exists"
        self.notes.report(RENAME_NOTE, f"{annotation} on '{subject}' is ignored: {why}", hint.at)


def _fresh_column(name: str, taken: Collection[str]) -> str:
    """The property's name, or the first numbered one that no column of this table ever had.

    Compared without case: Spark, and SQL over the tables, would not tell `userName` from `username`.
    """
    column, lifetime = name, 1
    while column.lower() in taken:
        lifetime += 1
        column = f"{name}__{lifetime}"
    return column
