"""Checks the syntax tree of a schema and turns it into declarations, reporting every mistake in it.

The schema compiler calls `declare`. Types are resolved, annotations read and interfaces merged into the nodes that
implement them. All phases run for every declaration even when another one failed; a property or type that could not be
read is remembered by name, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph.language.catalog import EDGE_SYSTEM_COLUMNS, NODE_SYSTEM_COLUMNS, Cardinality, TypeKind
from omnigraph.language.schema.annotations import (
    Report,
    read_property_annotations,
    read_rename_from,
    read_type_annotations,
)
from omnigraph.language.schema.constraints import read_rules
from omnigraph.language.schema.parser import PARSE_ERROR, Parsed
from omnigraph.language.schema.resolved import (
    DeclaredEdge,
    DeclaredInterface,
    DeclaredNode,
    DeclaredProperty,
    DeclaredSchema,
)
from omnigraph.language.schema.syntax import (
    At,
    CardSyntax,
    EdgeSyntax,
    InterfaceSyntax,
    Member,
    Name,
    NodeSyntax,
    PropertySyntax,
    RuleSyntax,
    TypeSyntax,
)
from omnigraph.language.source import DiagnosticSink, did_you_mean
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem

# Reads the annotations of an interface property as those of a property of the node that it joins.
InjectedReader = Callable[[str, str], DeclaredProperty]


def merge_interfaces(
    node: Name,
    own: Mapping[str, DeclaredProperty],
    unreadable: frozenset[str],
    implemented: list[DeclaredInterface],
    inject: InjectedReader,
    report: Report,
    report_conflict: Report,
) -> dict[str, DeclaredProperty]:
    """The effective properties of a node: own ones in source order, injected ones after them."""
    contributors: dict[str, list[DeclaredInterface]] = {}
    for interface in implemented:
        for name in interface.properties:
            contributors.setdefault(name, []).append(interface)
    effective = dict(own)
    for name, interfaces in contributors.items():
        names = tuple(interface.name.text for interface in interfaces)
        if name in unreadable:
            continue
        if name in own:
            _check_own_type(node, own[name], interfaces, report)
            effective[name] = own[name].linked(names, injected=False)
        elif _agree(node, name, interfaces, report_conflict):
            effective[name] = inject(names[0], name).linked(names, injected=True)
    return effective


def _check_own_type(node: Name, own: DeclaredProperty, interfaces: list[DeclaredInterface], report: Report) -> None:
    for interface in interfaces:
        wanted = interface.properties[own.name.text].type
        if own.type != wanted:
            report(
                f"'{node.text}.{own.name.text}' has type {own.type}, "
                f"but interface '{interface.name.text}' declares it as {wanted}",
                own.name.at,
                None,
            )


def _agree(node: Name, name: str, interfaces: list[DeclaredInterface], report: Report) -> bool:
    first = interfaces[0].properties[name]
    for other in interfaces[1:]:
        if not first.agrees_with(other.properties[name]):
            report(
                f"'{node.text}' gets '{name}' from interfaces '{interfaces[0].name.text}' and "
                f"'{other.name.text}' with incompatible property semantics; declare it in '{node.text}' or "
                "make the interfaces agree",
                node.at,
                None,
            )
            return False
    return True


def resolve_implements(
    node: Name,
    written: tuple[Name, ...],
    known: Mapping[str, DeclaredInterface],
    broken: frozenset[str],
    report: Report,
) -> list[DeclaredInterface]:
    """The interfaces a node names, each once; the unreadable ones are somebody else's error."""
    resolved: dict[str, DeclaredInterface] = {}
    for name in written:
        interface = known.get(name.text)
        if interface is not None:
            resolved[name.text] = interface
        elif name.text not in broken:
            message = f"node '{node.text}' implements unknown interface '{name.text}'"
            report(message, name.at, did_you_mean(name.text, known))
    return list(resolved.values())


# One digit more than the largest dimension has: enough to know that a longer number is too large.
_DIMENSION_DIGITS = 11


def resolve_type(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    """None after a report."""
    if syntax.item is not None:
        return _resolve_list(syntax, syntax.item, report)
    if syntax.name == "enum":
        return _resolve_enum(syntax, report)
    if syntax.name == "Vector":
        return _resolve_vector(syntax, report)
    scalar = SCALAR_NAMES.get(syntax.name)
    if scalar is None:
        known = [*SCALAR_NAMES, "Vector", "enum"]
        report(f"unknown type '{syntax.name}'", syntax.at, did_you_mean(syntax.name, known))
        return None
    if syntax.arguments is not None:
        report(f"type '{syntax.name}' takes no argument", syntax.at, None)
        return None
    return PropertyType(scalar, nullable=syntax.nullable)


def _resolve_list(syntax: TypeSyntax, item: TypeSyntax, report: Report) -> PropertyType | None:
    if item.name in ("enum", "Vector"):
        report("a list holds scalars only: no lists, enums or vectors", item.at, None)
        return None
    if item.nullable:
        report("the items of a list can't be marked nullable; [T]? makes the list itself nullable", item.at, None)
        return None
    resolved = resolve_type(item, report)
    if resolved is None:
        return None
    if resolved.scalar is Scalar.BLOB:
        report("a list of Blob is not supported", syntax.at, None)
        return None
    return PropertyType(resolved.scalar, nullable=syntax.nullable, list=True)


def _resolve_enum(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    seen: set[str] = set()
    repeated = False
    for value in syntax.arguments or ():
        if value.text in seen:
            report(f"enum has duplicate values: '{value.text}'", value.at, None)
            repeated = True
        seen.add(value.text)
    return None if repeated else PropertyType.enum(tuple(seen), nullable=syntax.nullable)


def _resolve_vector(syntax: TypeSyntax, report: Report) -> PropertyType | None:
    if syntax.arguments is None:
        report("Vector requires a dimension, as in Vector(768)", syntax.at, None)
        return None
    written = syntax.arguments[0]
    dimension = int(written.text[:_DIMENSION_DIGITS])
    problem = vector_dimension_problem(dimension)
    if problem is not None:
        report(problem, written.at, None)
        return None
    return PropertyType.vector(dimension, nullable=syntax.nullable)


CATALOG_ERROR = "catalog error"

# Lance serves these as virtual columns; a stored column of the same name could never be read back.
RESERVED_PROPERTY_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


@dataclass(frozen=True, slots=True)
class _Members:
    """The readable properties of one body with their types, the names of the others, and the rules."""

    typed: dict[str, tuple[PropertySyntax, PropertyType]]
    unreadable: frozenset[str]
    rules: tuple[RuleSyntax, ...]


def declare(parsed: Parsed, sink: DiagnosticSink) -> DeclaredSchema:
    """The declarations of a schema. Complete only when nothing was reported."""
    return _Declarer(parsed, sink).declare()


class _Declarer:
    def __init__(self, parsed: Parsed, sink: DiagnosticSink) -> None:
        self.parsed = parsed
        self.sink = sink
        self.interface_syntax: dict[str, _Members] = {}
        self.interfaces: dict[str, DeclaredInterface] = {}
        self.nodes: dict[str, DeclaredNode] = {}
        self.edges: dict[str, DeclaredEdge] = {}
        self.folded_edges: dict[str, str] = {}

    def declare(self) -> DeclaredSchema:
        declarations = self.parsed.syntax.declarations
        for declaration in declarations:
            if isinstance(declaration, InterfaceSyntax):
                self._declare_interface(declaration)
        for declaration in declarations:
            if isinstance(declaration, NodeSyntax):
                self._declare_node(declaration)
        for declaration in declarations:
            if isinstance(declaration, EdgeSyntax):
                self._declare_edge(declaration)
        return DeclaredSchema(self.sink.source, self.interfaces, self.nodes, self.edges)

    def _error(self, message: str, at: At, suggestion: str | None = None) -> None:
        self.sink.report(PARSE_ERROR, message, at, suggestion=suggestion)

    def _catalog_error(self, message: str, at: At, suggestion: str | None = None) -> None:
        self.sink.report(CATALOG_ERROR, message, at, suggestion=suggestion)

    def _unheard(self, message: str, at: At, suggestion: str | None = None) -> None:
        """For what is judged elsewhere: an interface's annotations count on the nodes they are injected into."""

    # -- declarations

    def _declare_interface(self, syntax: InterfaceSyntax) -> None:
        name = syntax.name
        if name.text in self.interfaces:
            self._catalog_error(f"duplicate interface '{name.text}'", name.at)
            return
        members = self._read_members("interface", name.text, syntax.members)
        self.interface_syntax[name.text] = members
        for prop, _ in members.typed.values():
            # The one annotation that already means something on the interface itself.
            read_rename_from(prop.annotations, f"{name.text}.{prop.name.text}", self._error)
        properties = {
            prop: self._read_property("interface", name.text, *typed, self._unheard)
            for prop, typed in members.typed.items()
        }
        self.interfaces[name.text] = DeclaredInterface(name, properties)

    def _declare_node(self, syntax: NodeSyntax) -> None:
        name = syntax.name
        if name.text in self.nodes:
            self._catalog_error(f"duplicate node type '{name.text}'", name.at)
            return
        notes = read_type_annotations("node", name.text, syntax.annotations, self._error)
        members = self._read_members("node", name.text, syntax.members)
        own = {
            prop: self._read_property("node", name.text, *typed, self._error) for prop, typed in members.typed.items()
        }
        implemented = resolve_implements(name, syntax.implements, self.interfaces, self.parsed.broken, self._error)

        def inject(interface: str, prop: str) -> DeclaredProperty:
            syntax, type_ = self.interface_syntax[interface].typed[prop]
            # The hint was judged on the interface; everything else is judged here.
            judged = tuple(a for a in syntax.annotations if a.name != "rename_from")
            read = self._read_property("node", name.text, replace(syntax, annotations=judged), type_, self._error)
            return replace(read, rename_from=self.interfaces[interface].properties[prop].rename_from)

        unreadable = members.unreadable.union(*(self._unreadable_of(i.name.text) for i in implemented))
        properties = merge_interfaces(name, own, unreadable, implemented, inject, self._error, self._catalog_error)
        # What an unreadable interface would have injected is not known, so nothing can be called unknown.
        judgeable = self.parsed.broken.isdisjoint(interface.text for interface in syntax.implements)
        report = self._error if judgeable else self._unheard
        self._check_embed_sources(name, properties, unreadable, report)
        rules = read_rules("node", name.text, properties, unreadable, members.rules, report)
        self.nodes[name.text] = DeclaredNode(
            name,
            properties,
            tuple(interface.name.text for interface in implemented),
            rules.key,
            rules.uniques,
            rules.indexes,
            rules.ranges,
            rules.checks,
            notes.description,
            notes.instruction,
            notes.custom,
            notes.rename_from,
        )

    def _declare_edge(self, syntax: EdgeSyntax) -> None:
        name = syntax.name
        if name.text in self.edges:
            self._catalog_error(f"duplicate edge type '{name.text}'", name.at)
            return
        other = self.folded_edges.setdefault(name.text.lower(), name.text)
        if other != name.text:
            message = f"edge types '{other}' and '{name.text}': collision after case folding"
            self._catalog_error(message, name.at)
        for role, endpoint in (("source", syntax.source), ("target", syntax.target)):
            if endpoint.text not in self.nodes and endpoint.text not in self.parsed.broken:
                message = f"edge '{name.text}' references unknown {role} type '{endpoint.text}'"
                self._catalog_error(message, endpoint.at, did_you_mean(endpoint.text, self.nodes))
        notes = read_type_annotations("edge", name.text, syntax.annotations, self._error)
        members = self._read_members("edge", name.text, syntax.members or ())
        properties = {
            prop: self._read_property("edge", name.text, *typed, self._error) for prop, typed in members.typed.items()
        }
        rules = read_rules("edge", name.text, properties, members.unreadable, members.rules, self._error)
        self.edges[name.text] = DeclaredEdge(
            name,
            properties,
            syntax.source,
            syntax.target,
            self._cardinality(name, syntax.card),
            rules.uniques,
            rules.indexes,
            notes.description,
            notes.instruction,
            notes.custom,
            notes.rename_from,
        )

    # -- their parts

    def _unreadable_of(self, interface: str) -> frozenset[str]:
        return self.interface_syntax[interface].unreadable

    def _cardinality(self, edge: Name, card: CardSyntax | None) -> Cardinality:
        if card is None:
            return Cardinality()
        if card.maximum is not None and card.minimum > card.maximum:
            message = f"@card on '{edge.text}': cardinality min {card.minimum} exceeds max {card.maximum}"
            self._error(message, card.at)
        return Cardinality(card.minimum, card.maximum)

    def _read_members(self, kind: TypeKind, owner: str, members: Sequence[Member]) -> _Members:
        typed: dict[str, tuple[PropertySyntax, PropertyType]] = {}
        unreadable: set[str] = set()
        rules: list[RuleSyntax] = []
        for member in members:
            if not isinstance(member, PropertySyntax):
                rules.append(member)
                continue
            name = member.name.text
            type_ = resolve_type(member.type, self._error)
            if name in typed or name in unreadable:
                self._catalog_error(f"duplicate property '{name}' in {kind} '{owner}'", member.name.at)
            elif type_ is None or not self._may_be_called(kind, owner, member.name):
                unreadable.add(name)
            else:
                typed[name] = (member, type_)
        return _Members(typed, frozenset(unreadable), tuple(rules))

    def _may_be_called(self, kind: TypeKind, owner: str, name: Name) -> bool:
        if name.text in RESERVED_PROPERTY_NAMES:
            self._error(
                f"property name '{name.text}' in {kind} '{owner}' is reserved for virtual storage columns; "
                "a graph that has such a property must be exported, the property renamed and the graph rebuilt",
                name.at,
            )
            return False
        if name.text in (EDGE_SYSTEM_COLUMNS if kind == "edge" else NODE_SYSTEM_COLUMNS):
            self._catalog_error(f"property name '{name.text}' in {kind} '{owner}' is taken by a system column", name.at)
            return False
        return True

    def _read_property(
        self, kind: TypeKind, owner: str, syntax: PropertySyntax, type_: PropertyType, report: Report
    ) -> DeclaredProperty:
        notes = read_property_annotations(kind, owner, syntax.name.text, type_, syntax.annotations, report)
        return DeclaredProperty(
            syntax.name,
            type_,
            notes.inline,
            notes.embed,
            notes.embed_at,
            notes.metric,
            notes.description,
            notes.custom,
            notes.rename_from,
        )

    def _check_embed_sources(
        self, node: Name, properties: dict[str, DeclaredProperty], unreadable: frozenset[str], report: Report
    ) -> None:
        for prop in properties.values():
            if prop.embed is None or prop.embed.property in unreadable:
                continue
            subject = f"@embed on '{node.text}.{prop.name.text}'"
            source = properties.get(prop.embed.property)
            if source is None:
                message = f"{subject} references unknown source property '{prop.embed.property}'"
                report(message, prop.embed_at, did_you_mean(prop.embed.property, properties))
            elif not source.type.is_text:
                named = f"{node.text}.{prop.embed.property}"
                message = f"@embed source property {named} must be String, not {source.type}"
                report(message, prop.embed_at, None)
