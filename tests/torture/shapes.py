"""Schemas as the model sees them, and how one becomes another.

A document is the plain JSON form that a schema change carries in the trace: types and properties by name, each with
the name it had before (`was`). Rendered, it is the text that the graph is given. `evolved` says what the graph must
make of it, with identities of its own: a type or property keeps its identity through renames and gets a new one when
it is dropped and declared again.

Type names are a role and perhaps a number (`Place`, `Place3`), names of changing properties tell their type (`xi2` is
an `I32?`, `xs1` a `String?`), so a process that meets a catalog knows what every name in it is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.language.catalog import Catalog

Document = dict[str, Any]

CHANGING = {"xi": "I32?", "xs": "String?"}


def _declared(kind: str, name: str, ends: list[str] | None, note: str, *properties: str) -> dict[str, Any]:
    listed = [dict(zip(("name", "type", "note"), (*p.split(" ", 2), ""), strict=False)) for p in properties]
    return {"kind": kind, "name": name, "ends": ends, "note": note, "properties": listed}


ROLES = {
    role["name"]: role
    for role in (
        _declared(
            "node",
            "Person",
            None,
            "",
            "name String @key",
            "n I64",
            "email String? @unique",
            "bio String? @index",
            "vec Vector(4)? @index",
            "photo Blob?",
        ),
        _declared("node", "Place", None, "", "name String @key", "n I64 @index"),
        _declared("node", "Note", None, "", "name String @key", "text String? @index"),
        _declared("edge", "Knows", ["Person", "Person"], "", "tag String", "since I32?"),
        _declared("edge", "Lives", ["Person", "Place"], "@card(0..1)", "tag String"),
    )
}
FIRST: Document = {"types": list(ROLES.values())}


def role_of(type_name: str) -> str:
    return type_name.rstrip("0123456789")


def rendered(document: Document) -> str:
    """The document in the schema language."""
    return "\n".join(_rendered_type(type_) for type_ in document["types"])


def _rendered_type(type_: dict[str, Any]) -> str:
    ends = f": {type_['ends'][0]} -> {type_['ends'][1]}" if type_["ends"] else ""
    body = "\n".join(f"  {p['name']}: {p['type']} {p['note']} {_hint(p)}".rstrip() for p in type_["properties"])
    return f"{type_['kind']} {type_['name']}{ends} {type_['note']} {_hint(type_)} {{\n{body}\n}}"


def _hint(declared: dict[str, Any]) -> str:
    return f'@rename_from("{declared["was"]}")' if declared.get("was") else ""


def document_of(catalog: Catalog) -> Document:
    """The document that a stored catalog stands for."""
    names = {role_of(name): name for name in (*catalog.nodes, *catalog.edges)}
    types = []
    for role, name in names.items():
        standard = ROLES[role]
        type_ = catalog.nodes[name] if standard["kind"] == "node" else catalog.edges[name]
        fixed = {p["name"] for p in standard["properties"]}
        extra = sorted(p.name for p in type_.property_list if p.name not in fixed)
        properties = [*standard["properties"], *({"name": x, "type": CHANGING[x[:2]], "note": ""} for x in extra)]
        ends = [names[role_of(end)] for end in standard["ends"]] if standard["ends"] else None
        types.append({**standard, "name": name, "ends": ends, "properties": properties})
    return {"types": types}


@dataclass(frozen=True)
class PropertyShape:
    ident: str
    name: str
    type: str


@dataclass(frozen=True)
class TypeShape:
    ident: str
    kind: str
    name: str
    ends: tuple[str, str] | None
    properties: tuple[PropertyShape, ...]

    def names(self) -> dict[str, str]:
        """Property names by identity."""
        return {p.ident: p.name for p in self.properties}

    def declaration(self) -> tuple[Any, ...]:
        """What is declared, whoever declared it."""
        return self.ident, self.name, frozenset((p.name, p.type) for p in self.properties)


@dataclass(frozen=True)
class Shape:
    """One schema. `spent` are all identities of properties that were ever used on the way to it."""

    types: tuple[TypeShape, ...] = ()
    spent: frozenset[str] = frozenset()

    def by_ident(self) -> dict[str, TypeShape]:
        return {t.ident: t for t in self.types}

    def named(self, name: str) -> TypeShape | None:
        return next((t for t in self.types if t.name == name), None)

    def declarations(self) -> frozenset[tuple[Any, ...]]:
        return frozenset(t.declaration() for t in self.types)

    def evolved(self, document: Document, operation: str) -> Shape:
        """What this schema becomes when the document is applied to it."""
        spent = set(self.spent)
        claimed = {t["name"] for t in document["types"]}
        idents: dict[str, str] = {}
        types = []
        for declared in document["types"]:
            old = self.named(declared["name"])
            if old is None and declared.get("was") and declared["was"] not in claimed:
                old = self.named(declared["was"])
            ident = old.ident if old is not None else f"{declared['name']}@{operation}"
            idents[declared["name"]] = ident
            properties = _evolved_properties(old, declared, ident, spent)
            types.append(TypeShape(ident, declared["kind"], declared["name"], None, properties))
        ends = {t["name"]: t["ends"] for t in document["types"]}
        finished = tuple(
            TypeShape(t.ident, t.kind, t.name, _end_idents(ends[t.name], idents), t.properties) for t in types
        )
        return Shape(finished, frozenset(spent))


def _evolved_properties(
    old: TypeShape | None, declared: dict[str, Any], ident: str, spent: set[str]
) -> tuple[PropertyShape, ...]:
    had = {p.name: p for p in old.properties} if old is not None else {}
    claimed = {p["name"] for p in declared["properties"]}
    properties = []
    for wanted in declared["properties"]:
        name = wanted["name"]
        before = had.get(name)
        if before is None and wanted.get("was") and wanted["was"] not in claimed:
            before = had.get(wanted["was"])
        property_ident = before.ident if before is not None else _fresh(f"{ident}.{name}", spent)
        properties.append(PropertyShape(property_ident, name, wanted["type"]))
    return tuple(properties)


def _fresh(ident: str, spent: set[str]) -> str:
    """Two branches that declare the same name next mean the same property; a name declared again is another one."""
    while ident in spent:
        ident += "'"
    spent.add(ident)
    return ident


def _end_idents(ends: list[str] | None, idents: dict[str, str]) -> tuple[str, str] | None:
    return (idents[ends[0]], idents[ends[1]]) if ends else None
