"""Completion in schemas and queries: what may stand at the cursor, with the types and the documentation of each.

The editor filters the items by the word that is being written, so they don't depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from omnigraph.editor import words
from omnigraph.editor.cursor import (
    Context,
    Place,
    Variables,
    property_names,
    query_context,
    schema_context,
    visible_variables,
)
from omnigraph.editor.documents import Document
from omnigraph.editor.projects import Workspace
from omnigraph.editor.schema_symbols import SchemaIndex, SymbolKind
from omnigraph.language.catalog import Catalog, EdgeType, Metric, Property, TableType
from omnigraph.language.query.functions import signatures_of
from omnigraph.language.types import SCALAR_NAMES, Scalar


class ItemKind(StrEnum):
    """What an item is, for the icon of an editor."""

    TYPE = "type"
    INTERFACE = "interface"
    EDGE = "edge"
    PROPERTY = "property"
    VARIABLE = "variable"
    FUNCTION = "function"
    KEYWORD = "keyword"
    ANNOTATION = "annotation"
    SCALAR = "scalar"
    VALUE = "value"
    FILE = "file"


class Item(Struct, frozen=True):
    """One suggestion. `insert` is what is written, if it is not the label. Items of a lower `rank` come first."""

    label: str
    kind: ItemKind
    detail: str = ""
    text: str = ""
    insert: str | None = None
    rank: int = 1


class Completion(Struct, frozen=True):
    """Suggestions for the text from `start` to the cursor."""

    start: int
    items: tuple[Item, ...]


_NONE: Final = Completion(0, ())


def _words(described: Mapping[str, str], kind: ItemKind = ItemKind.KEYWORD, rank: int = 2) -> list[Item]:
    return [Item(str(word), kind, text=text, rank=rank) for word, text in described.items()]


def _unique(items: Iterable[Item]) -> tuple[Item, ...]:
    """The first item of each label."""
    by_label: dict[tuple[str, ItemKind], Item] = {}
    for item in items:
        by_label.setdefault((item.label, item.kind), item)
    return tuple(by_label.values())


# ---- items of a schema ----------------------------------------------------------------------------------


def type_item(type_: TableType) -> Item:
    if isinstance(type_, EdgeType):
        return Item(type_.name, ItemKind.EDGE, f"edge {type_.from_type} -> {type_.to_type}", type_.description or "")
    return Item(type_.name, ItemKind.TYPE, "node", type_.description or "")


def property_item(owner: str, prop: Property) -> Item:
    return Item(prop.name, ItemKind.PROPERTY, f"{owner}.{prop.name}: {prop.type}", prop.description or "", rank=0)


def _edge_item(edge: EdgeType, *, fits: bool) -> Item:
    """An edge as a traversal spells it."""
    name = edge.name[:1].lower() + edge.name[1:]
    detail = f"edge {edge.from_type} -> {edge.to_type}"
    return Item(name, ItemKind.EDGE, detail, edge.description or "", rank=0 if fits else 1)


def _property_items(members: Iterable[TableType]) -> Iterator[Item]:
    for member in members:
        for prop in member.property_list:
            yield property_item(member.name, prop)


# ---- queries --------------------------------------------------------------------------------------------


class _QueryCompletion:
    """The items for one place of a query."""

    def __init__(self, context: Context, variables: Variables, catalog: Catalog | None) -> None:
        self._context = context
        self._variables = variables
        self._catalog = catalog

    def items(self) -> Iterable[Item]:
        return self._ITEMS[self._context.place](self)

    def _members(self) -> Sequence[TableType]:
        """The types that the place is about: those that it names, or those of its variable."""
        context, catalog = self._context, self._catalog
        if catalog is None:
            return ()
        if context.types:
            named: list[TableType] = [n for n in catalog.nodes.values() if set(context.types) & {n.name, *n.implements}]
            edges = (catalog.edge_named(name) for name in context.types if name not in catalog.nodes)
            return [*named, *(edge for edge in edges if edge is not None)]
        subject = self._variables.get(context.subject)
        return () if subject is None else subject.members

    def _declaration(self) -> Iterable[Item]:
        yield Item("query", ItemKind.KEYWORD, text="Declare a query: `query name($p: String) { … }`.")

    def _meta(self) -> Iterable[Item]:
        for name, text in words.QUERY_META.items():
            yield Item(f"@{name}", ItemKind.ANNOTATION, text=text, insert=f'@{name}("')

    def _node_types(self) -> Iterable[Item]:
        if self._catalog is not None:
            yield from (type_item(node) for node in self._catalog.nodes.values())
            used = {name for node in self._catalog.nodes.values() for name in node.implements}
            for name in self._catalog.interfaces:
                if name in used:
                    yield Item(name, ItemKind.INTERFACE, "interface")

    def _any_types(self) -> Iterable[Item]:
        if self._catalog is not None:
            yield from (type_item(node) for node in self._catalog.nodes.values())
            yield from (type_item(edge) for edge in self._catalog.edges.values())
        yield from self._variable_items()

    def _edges(self) -> Iterable[Item]:
        names = {member.name for member in self._members()}
        for edge in self._catalog.edges.values() if self._catalog is not None else ():
            fits = not names.isdisjoint((*edge.source_types, *edge.target_types))
            if fits or not names:
                yield _edge_item(edge, fits=fits)
        yield from _words(words.OPERATORS)

    def _member_items(self) -> Iterable[Item]:
        members = self._members()
        yield from _property_items(members)
        is_edge = bool(members) and isinstance(members[0], EdgeType)
        for field, text in words.META_FIELDS.items():
            if members and (is_edge or field.value in ("@id", "@type")):
                yield Item(field.value, ItemKind.PROPERTY, "meta-field", text, rank=3)

    def _variable_items(self) -> Iterable[Item]:
        for name, type_ in self._variables.items():
            yield Item(f"${name}", ItemKind.VARIABLE, type_.shown, rank=0)

    def _properties(self) -> Iterable[Item]:
        members = self._members()
        yield from _property_items(members)
        for edge in members:
            if isinstance(edge, EdgeType):
                for name, end in (("from", edge.from_type), ("to", edge.to_type)):
                    yield Item(name, ItemKind.PROPERTY, f"the {end} at this end, by its id or key", rank=0)

    def _values(self) -> Iterator[Item]:
        """The values of an enum that is compared with."""
        if self._context.compared is not None:
            variable, name = self._context.compared
            owner = self._variables.get(variable)
            for member in owner.members if owner is not None else ():
                prop = member.properties.get(name)
                for value in (prop.type.enum_values or ()) if prop is not None else ():
                    yield Item(f'"{value}"', ItemKind.VALUE, f"{member.name}.{name}", rank=0)

    def _expression(self) -> Iterable[Item]:
        yield from self._values()
        yield from _property_items(self._members())
        yield from self._variable_items()
        yield from function_items()
        yield from _words({**words.EXPRESSION_KEYWORDS, **words.OPERATORS, "exists": words.CLAUSE_KEYWORDS["exists"]})
        yield Item("as", ItemKind.KEYWORD, text="Name the column.", rank=2)

    def _clause(self) -> Iterable[Item]:
        yield from self._expression()
        yield from _words(words.CLAUSE_KEYWORDS)

    def _sort_key(self) -> Iterable[Item]:
        yield from self._expression()
        yield from _words(words.SORT_KEYWORDS)

    _ITEMS: Final[Mapping[Place, Callable[[_QueryCompletion], Iterable[Item]]]] = {
        Place.NOTHING: lambda self: (),
        Place.DECLARATION: _declaration,
        Place.META: _meta,
        Place.BODY: lambda self: _words(words.BODY_KEYWORDS),
        Place.SCALAR: lambda self: _scalars(),
        Place.NODE_TYPE: _node_types,
        Place.ANY_TYPE: _any_types,
        Place.EDGE: _edges,
        Place.MEMBER: _member_items,
        Place.VARIABLE: _variable_items,
        Place.PATH_MODE: lambda self: _words(words.PATH_MODES),
        Place.PROPERTY: _properties,
        Place.CLAUSE: _clause,
        Place.EXPRESSION: _expression,
        Place.SORT_KEY: _sort_key,
    }


def function_items() -> Iterator[Item]:
    """Functions, aggregates and searches with their signatures."""
    for name, text in words.FUNCTIONS.items():
        yield Item(name, ItemKind.FUNCTION, "\n".join(signatures_of(name)), text, f"{name}(", 2)
    for name, (signature, text) in (*words.AGGREGATES.items(), *words.SEARCHES.items()):
        yield Item(str(name), ItemKind.FUNCTION, signature, text, f"{name}(", 2)


def _scalars() -> list[Item]:
    items = [Item(name, ItemKind.SCALAR, rank=0) for name in SCALAR_NAMES]
    return [*items, Item(Scalar.VECTOR.value, ItemKind.SCALAR, "Vector(dimension)", insert="Vector(", rank=0)]


def complete_queries(workspace: Workspace, document: Document, offset: int) -> Completion:
    context = query_context(document.text, offset)
    schema = workspace.valid_schema(workspace.choose_schema(document).schema)
    catalog = None if schema is None else schema.catalog
    variables = visible_variables(document.text, offset, catalog)
    return Completion(context.start, _unique(_QueryCompletion(context, variables, catalog).items()))


# ---- schemas --------------------------------------------------------------------------------------------

_DECLARATIONS: Final = {
    "node": "Declare a type of nodes: `node Person { name: String @key }`.",
    "edge": "Declare a type of edges: `edge Knows: Person -> Person`.",
    "interface": "Declare properties that several node types have.",
}


class _SchemaCompletion:
    """The items for one place of a schema."""

    def __init__(self, context: Context, schema: SchemaIndex, written: Sequence[str]) -> None:
        self._context = context
        self._schema = schema
        self._written = written

    def items(self) -> Iterable[Item]:
        return self._ITEMS[self._context.place](self)

    def _declared_types_of(self, kind: SymbolKind, item: ItemKind) -> Iterator[Item]:
        for key in self._schema.types:
            if key.startswith(f"{kind}:"):
                yield Item(key.partition(":")[2], item, kind.value, rank=0)

    def _ends(self) -> Iterable[Item]:
        """What the end of an edge may be."""
        yield from self._declared_types_of(SymbolKind.NODE, ItemKind.TYPE)
        yield from self._declared_types_of(SymbolKind.INTERFACE, ItemKind.INTERFACE)

    def _scalar(self) -> Iterable[Item]:
        yield from _scalars()
        if self._context.subject:
            yield Item("enum", ItemKind.SCALAR, "enum(a, b)", insert="enum(", rank=0)

    def _annotations(self, *targets: words.Target) -> Iterator[Item]:
        for annotation in words.ANNOTATIONS:
            if set(targets) & set(annotation.targets):
                label = f"@{annotation.form.removesuffix(chr(34))}"
                yield Item(label.rstrip("("), ItemKind.ANNOTATION, text=annotation.text, insert=f"@{annotation.form}")

    def _head(self) -> Iterable[Item]:
        yield Item("implements", ItemKind.KEYWORD, text="Name the interfaces that the node type implements.")
        yield from self._annotations(words.Target.NODE)

    def _body(self) -> Iterable[Item]:
        is_edge = self._context.subject == "edge"
        if self._context.subject != "interface":
            yield from self._annotations(words.Target.EDGE_BODY if is_edge else words.Target.NODE_BODY)

    def _columns(self) -> Iterable[Item]:
        (about, subject) = (self._context.types[0], self._context.subject)
        kind = "edge" if about == "edge" else "node"
        for name in dict.fromkeys((*self._written, *self._schema.property_names(f"{kind}:{subject}"))):
            yield Item(name, ItemKind.PROPERTY, self._type_of(f"{kind}:{subject}", name), rank=0)
        if about == "edge":
            yield from (Item(f"@{end}", ItemKind.PROPERTY, "an end of the edge", rank=0) for end in ("src", "dst"))

    def _type_of(self, owner: str, name: str) -> str:
        declared = self._schema.declaration_of(owner, name)
        return "" if declared is None else self._schema.text[declared[1].type.at.start : declared[1].type.at.end]

    _ITEMS: Final[Mapping[Place, Callable[[_SchemaCompletion], Iterable[Item]]]] = {
        Place.NOTHING: lambda self: (),
        Place.DECLARATION: lambda self: _words(_DECLARATIONS),
        Place.HEAD: _head,
        Place.INTERFACE: lambda self: self._declared_types_of(SymbolKind.INTERFACE, ItemKind.INTERFACE),
        Place.NODE_TYPE: _ends,
        Place.TYPE_ANNOTATION: lambda self: self._annotations(words.Target.EDGE),
        Place.PROPERTY_ANNOTATION: lambda self: self._annotations(words.Target.PROPERTY),
        Place.BODY_RULE: _body,
        Place.SCALAR: _scalar,
        Place.COLUMN: _columns,
        Place.METRIC: lambda self: [Item(metric.value, ItemKind.VALUE) for metric in Metric],
    }


def complete_schema(workspace: Workspace, document: Document, offset: int) -> Completion:
    context = schema_context(document.text, offset)
    schema = workspace.schema(document.path)
    if schema is None:
        return _NONE
    # The declaration at the cursor rarely parses while it is written.
    written = property_names(document.text, offset) if context.place is Place.COLUMN else []
    return Completion(context.start, _unique(_SchemaCompletion(context, schema, written).items()))
