"""Gives stable identities to types, properties and tables when a schema is accepted.

Called on creation and on evolution. A name that was accepted before keeps its identity, a rename hint carries it
over, everything else is new; ids come from one counter per graph and are never reused. Nothing here judges whether
a change may happen: that is the planner's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from omnigraph.errors import Diagnostic
from omnigraph.language.catalog import (
    EDGE_SYSTEM_COLUMNS,
    NODE_SYSTEM_COLUMNS,
    AnyType,
    Catalog,
    InterfaceType,
    Property,
    TypeKind,
)
from omnigraph.language.schema.resolved import DeclaredProperty, DeclaredSchema, DeclaredType
from omnigraph.language.schema.syntax import Name
from omnigraph.language.source import DiagnosticSink, did_you_mean

RENAME_ERROR = "rename error"
RENAME_NOTE = "rename note"

EMPTY_CATALOG = Catalog(nodes={}, edges={}, interfaces={}, next_id=1)

_KIND_ORDER: dict[TypeKind, int] = {"interface": 0, "node": 1, "edge": 2}


@dataclass(slots=True)
class PropertyIdentity:
    id: int
    column: str


@dataclass(slots=True)
class TypeIdentity:
    """What stays when names change. Interfaces have no table: incarnation 0 and no columns."""

    id: int
    incarnation: int = 0
    birth_name: str = ""
    used_columns: tuple[str, ...] = ()
    properties: dict[str, PropertyIdentity] = field(default_factory=dict)


@dataclass(slots=True)
class Identities:
    """The identities of one schema, by kind and current name, and what was noted while giving them."""

    types: dict[tuple[TypeKind, str], TypeIdentity]
    next_id: int
    notes: tuple[Diagnostic, ...]


def allocate(schema: DeclaredSchema, accepted: Catalog | None = None) -> Identities:
    """Identities for `schema`: following `accepted` when a graph evolves, all fresh when one is created."""
    return _Allocator(schema, accepted).allocate()


class _Allocator:
    def __init__(self, schema: DeclaredSchema, accepted: Catalog | None) -> None:
        self.schema = schema
        self.creating = accepted is None
        self.accepted = accepted if accepted is not None else EMPTY_CATALOG
        self.known: dict[tuple[TypeKind, str], AnyType] = {(t.kind, t.name): t for t in self.accepted.types()}
        self.errors = DiagnosticSink(schema.source)
        self.notes = DiagnosticSink(schema.source)
        self.next_id = self.accepted.next_id

    def allocate(self) -> Identities:
        ordered = sorted(self.schema.types(), key=lambda t: (_KIND_ORDER[t.kind], t.name.text))
        origins = self._match_types(ordered)
        types: dict[tuple[TypeKind, str], TypeIdentity] = {}
        for declared in ordered:
            origin = origins.get((declared.kind, declared.name.text))
            types[declared.kind, declared.name.text] = _identity_of(origin) if origin else TypeIdentity(self._fresh())
        by_id = sorted(ordered, key=lambda t: types[t.kind, t.name.text].id)
        for declared in by_id:
            key = (declared.kind, declared.name.text)
            self._allocate_properties(declared, types[key], origins.get(key))
        for declared in by_id:
            identity = types[declared.kind, declared.name.text]
            if declared.kind != "interface" and identity.incarnation == 0:
                identity.incarnation = self._fresh()
                identity.birth_name = declared.name.text
        self.errors.raise_if_any()
        return Identities(types, self.next_id, tuple(self.notes.found))

    def _fresh(self) -> int:
        allocated = self.next_id
        self.next_id += 1
        return allocated

    # -- types

    def _match_types(self, ordered: Iterable[DeclaredType]) -> dict[tuple[TypeKind, str], AnyType]:
        """By name first; a hint is asked only where no accepted declaration has the name."""
        origins: dict[tuple[TypeKind, str], AnyType] = {}
        hinted: list[tuple[DeclaredType, Name]] = []
        for declared in ordered:
            same_name = self.known.get((declared.kind, declared.name.text))
            if same_name is not None:
                origins[declared.kind, declared.name.text] = same_name
            if declared.rename_from is not None:
                if self.creating or same_name is not None:
                    self._note_inert(declared.name.text, declared.rename_from)
                else:
                    hinted.append((declared, declared.rename_from))
        consumed = {(kind, origin.name) for (kind, _), origin in origins.items()}
        for declared, hint in hinted:
            origin = self._hinted_type(declared, hint)
            if origin is None:
                continue
            if (origin.kind, origin.name) in consumed:
                self._refuse(hint, f"'{hint.text}' is consumed by more than one declaration")
                continue
            consumed.add((origin.kind, origin.name))
            origins[declared.kind, declared.name.text] = origin
        return origins

    def _hinted_type(self, declared: DeclaredType, hint: Name) -> AnyType | None:
        origin = self.known.get((declared.kind, hint.text))
        if origin is not None:
            return origin
        others = [kind for kind, name in self.known if name == hint.text]
        if others:
            self._refuse(hint, f"can't rename {others[0]} '{hint.text}' across declaration kinds")
        else:
            same_kind = [name for kind, name in self.known if kind == declared.kind]
            self._refuse(hint, f"no accepted declaration has that name: '{hint.text}'", same_kind)
        return None

    # -- properties

    def _allocate_properties(self, declared: DeclaredType, identity: TypeIdentity, origin: AnyType | None) -> None:
        matched = self._match_properties(declared, origin)
        used = list(identity.used_columns)
        system = EDGE_SYSTEM_COLUMNS if declared.kind == "edge" else NODE_SYSTEM_COLUMNS
        taken = {column.lower() for column in (*used, *system)}
        for name in sorted(declared.properties):
            old = matched.get(name)
            if old is not None:
                identity.properties[name] = PropertyIdentity(old.id, old.column)
                continue
            column = name if declared.kind == "interface" else _fresh_column(name, taken)
            identity.properties[name] = PropertyIdentity(self._fresh(), column)
            used.append(column)
            taken.add(column.lower())
        if declared.kind != "interface":
            identity.used_columns = tuple(used)

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
                if not prop.injected:
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
            elsewhere = [t.name for t in self.known.values() if hint.text in t.properties]
            where = f"; a property can't be moved from '{elsewhere[0]}'" if elsewhere and not prop.injected else ""
            message = f"no accepted declaration has that name: '{origin.name}.{hint.text}'{where}"
            self._refuse(hint, message, origin.properties)
            return None
        if source.id in taken:
            self._refuse(hint, f"'{origin.name}.{hint.text}' is consumed by more than one declaration")
            return None
        return source

    # -- what to say

    def _refuse(self, hint: Name, why: str, known: Iterable[str] = ()) -> None:
        message = f"@rename_from can't be followed: {why}"
        self.errors.report(RENAME_ERROR, message, hint.at, suggestion=did_you_mean(hint.text, known))

    def _note_inert(self, subject: str, hint: Name) -> None:
        why = "there is nothing to rename in a new graph" if self.creating else "the name already exists"
        self.notes.report(RENAME_NOTE, f"@rename_from on '{subject}' is ignored: {why}", hint.at)


def _identity_of(origin: AnyType) -> TypeIdentity:
    if isinstance(origin, InterfaceType):
        return TypeIdentity(origin.id)
    return TypeIdentity(origin.id, origin.table_incarnation, origin.birth_name, origin.used_columns)


def _fresh_column(name: str, taken: Collection[str]) -> str:
    """The property's name, or the first numbered one that no column of this table ever had.

    Compared without case: Spark, and SQL over the tables, would not tell `userName` from `username`.
    """
    column, lifetime = name, 1
    while column.lower() in taken:
        lifetime += 1
        column = f"{name}__{lifetime}"
    return column
