"""Checks the syntax tree of a schema and turns it into declarations, reporting every mistake in it.

The schema compiler calls `declare`. Types are resolved, annotations read and interfaces merged into the nodes that
implement them. All phases run for every declaration even when another one failed; a property or type that could not be
read is remembered by name, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from omnigraph.language.catalog import Cardinality, EdgeType, InterfaceEnd, InterfaceType, NodeType, TypeKind
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.annotations import read_default, read_property, read_rename_from, read_type_annotations
from omnigraph.language.schema.constraints import TypeRules
from omnigraph.language.schema.resolved import UNIDENTIFIED, DeclaredProperty, DeclaredSchema, DeclaredType, Report
from omnigraph.language.source import SYNTAX, DiagnosticSink, Name, TextSpan, did_you_mean
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem

# One digit more than the largest dimension has: enough to know that a longer number is too large.
_DIMENSION_DIGITS = 11


def resolve_type(syntax: ast.Type, report: Report) -> PropertyType | None:
    """None after a report."""
    if syntax.item is not None:
        return _resolve_list(syntax, syntax.item, report)
    if syntax.name == "enum":
        values = syntax.arguments or ()
        first = {value.text: value for value in reversed(values)}
        repeated = [value for value in values if first[value.text] is not value]
        for value in repeated:
            report(f"enum has duplicate values: '{value.text}'", value.at)
        return None if repeated else PropertyType.enum(tuple(first), nullable=syntax.nullable)
    if syntax.name == "Vector":
        return _resolve_vector(syntax, report)
    scalar = SCALAR_NAMES.get(syntax.name)
    if scalar is None:
        report(f"unknown type '{syntax.name}'", syntax.at, did_you_mean(syntax.name, [*SCALAR_NAMES, "Vector", "enum"]))
        return None
    if syntax.arguments is not None:
        report(f"type '{syntax.name}' takes no argument", syntax.at)
        return None
    return PropertyType(scalar, nullable=syntax.nullable)


def _resolve_list(syntax: ast.Type, item: ast.Type, report: Report) -> PropertyType | None:
    if item.name in ("enum", "Vector"):
        report("a list holds scalars only: no lists, enums or vectors", item.at)
        return None
    if item.nullable:
        report("the items of a list can't be marked nullable; [T]? makes the list itself nullable", item.at)
        return None
    resolved = resolve_type(item, report)
    if resolved is None:
        return None
    if resolved.scalar is Scalar.BLOB:
        report("a list of Blob is not supported", syntax.at)
        return None
    return PropertyType(resolved.scalar, nullable=syntax.nullable, list=True)


def _resolve_vector(syntax: ast.Type, report: Report) -> PropertyType | None:
    if syntax.arguments is None:
        report("Vector requires a dimension, as in Vector(768)", syntax.at)
        return None
    dimension = int(syntax.arguments[0].text[:_DIMENSION_DIGITS])
    if (problem := vector_dimension_problem(dimension)) is not None:
        report(problem, syntax.arguments[0].at)
        return None
    return PropertyType.vector(dimension, nullable=syntax.nullable)


CATALOG_ERROR = "catalog error"

# Lance serves these as virtual columns; a stored column of the same name could never be read back.
RESERVED_PROPERTY_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
RESERVED_PREFIX = "__"
# What rows call the types of the ends of an edge that has an interface at one.
END_TYPE_NAMES = frozenset({"from_type", "to_type", "src_type", "dst_type"})


class _Members(NamedTuple):
    """The readable properties of one body with their types, the names of the others, and the rules."""

    typed: dict[str, tuple[ast.Property, PropertyType]]
    unreadable: frozenset[str]
    rules: tuple[ast.Rule, ...]


def declare(schema: ast.Schema, broken: frozenset[str], sink: DiagnosticSink) -> DeclaredSchema:
    """The declarations of a schema. Complete only when nothing was reported. `broken` types could not be parsed."""
    declarer = _Declarer(broken, sink)
    declarations = schema.declarations
    for interface in [each for each in declarations if isinstance(each, ast.Interface)]:
        declarer.declare_interface(interface)
    for node in [each for each in declarations if isinstance(each, ast.Node)]:
        declarer.declare_node(node)
    for edge in [each for each in declarations if isinstance(each, ast.Edge)]:
        declarer.declare_edge(edge)
    types = (declarer.interfaces, declarer.nodes, declarer.edges)
    return DeclaredSchema(sink.source, tuple(declared for kind in types for declared in kind.values()))


def _ignore(message: str, at: TextSpan, suggestion: str | None = None) -> None:
    """Takes reports that belong elsewhere: an interface's annotations count on the nodes they are injected into."""


class _Declarer:
    def __init__(self, broken: frozenset[str], sink: DiagnosticSink) -> None:
        self.broken = broken
        self.sink = sink
        self.interface_members: dict[str, _Members] = {}
        self.interfaces: dict[str, DeclaredType] = {}
        self.nodes: dict[str, DeclaredType] = {}
        self.edges: dict[str, DeclaredType] = {}
        self.folded_edges: dict[str, str] = {}

    def _error(self, message: str, at: TextSpan, suggestion: str | None = None) -> None:
        self.sink.report(SYNTAX, message, at, suggestion=suggestion)

    def _catalog_error(self, message: str, at: TextSpan, suggestion: str | None = None) -> None:
        self.sink.report(CATALOG_ERROR, message, at, suggestion=suggestion)

    def declare_interface(self, syntax: ast.Interface) -> None:
        name = syntax.name.text
        if name in self.interfaces:
            self._catalog_error(f"duplicate interface '{name}'", syntax.name.at)
            return
        members = self.interface_members[name] = self._read_members("interface", name, syntax.members)
        for prop, type_ in members.typed.values():
            # What already means something on the interface itself.
            subject = f"{name}.{prop.name.text}"
            read_rename_from(prop.annotations, subject, self._error)
            if prop.default is not None:
                read_default(prop.default, type_, subject, self._error)
        properties = _read_properties("interface", name, members, _ignore)
        self.interfaces[name] = DeclaredType(syntax.name, InterfaceType(name=name, id=UNIDENTIFIED), properties)

    def declare_node(self, syntax: ast.Node) -> None:
        name = syntax.name.text
        if name in self.nodes:
            self._catalog_error(f"duplicate node type '{name}'", syntax.name.at)
            return
        bare = NodeType(name=name, id=UNIDENTIFIED, table_incarnation=UNIDENTIFIED, birth_name=name)
        node = read_type_annotations(bare, syntax.annotations, self._error)
        members = self._read_members("node", name, syntax.members)
        own = _read_properties("node", name, members, self._error)
        implemented = self._resolve_implements(syntax)
        unreadable = members.unreadable.union(*(self.interface_members[each].unreadable for each in implemented))
        properties = self._merge_interfaces(syntax.name, own, unreadable, implemented)
        # What an unreadable interface would have injected is not known, so nothing can be called unknown.
        judgeable = self.broken.isdisjoint(interface.text for interface in syntax.implements)
        report = self._error if judgeable else _ignore
        _check_embed_sources(name, properties, unreadable, report)
        rules = TypeRules("node", name, properties, unreadable, members.rules, report)
        meaning = replace(
            node,
            implements=tuple(implemented),
            key=rules.key,
            uniques=tuple(rules.uniques.values()),
            indexes=tuple(rules.indexes.values()),
            ranges=tuple(rules.ranges),
            checks=tuple(rules.checks),
        )
        rename_from = read_rename_from(syntax.annotations, name, self._error)
        self.nodes[name] = DeclaredType(syntax.name, meaning, properties, rename_from)

    def declare_edge(self, syntax: ast.Edge) -> None:
        name = syntax.name.text
        if name in self.edges:
            self._catalog_error(f"duplicate edge type '{name}'", syntax.name.at)
            return
        other = self.folded_edges.setdefault(name.lower(), name)
        if other != name:
            self._catalog_error(f"edge types '{other}' and '{name}': collision after case folding", syntax.name.at)
        ends = [self._interface_end(name, *end) for end in (("source", syntax.source), ("target", syntax.target))]
        members = self._read_members("edge", name, syntax.members or ())
        if any(end is not None for end in ends):
            self._refuse_names_of_end_types(name, members)
        properties = _read_properties("edge", name, members, self._error)
        rules = TypeRules("edge", name, properties, members.unreadable, members.rules, self._error)
        edge = EdgeType(
            name=name,
            id=UNIDENTIFIED,
            table_incarnation=UNIDENTIFIED,
            birth_name=name,
            from_type=syntax.source.text,
            to_type=syntax.target.text,
            from_interface=ends[0],
            to_interface=ends[1],
            cardinality=self._cardinality(name, syntax.card),
            key=rules.key,
            uniques=tuple(rules.uniques.values()),
            indexes=tuple(rules.indexes.values()),
        )
        meaning = read_type_annotations(edge, syntax.annotations, self._error)
        rename_from = read_rename_from(syntax.annotations, name, self._error)
        self.edges[name] = DeclaredType(syntax.name, meaning, properties, rename_from)

    def _interface_end(self, edge: str, role: str, end: Name) -> InterfaceEnd | None:
        """What an end says if it is an interface; a node type of the same name comes first. Its members are known when
        they have their identities."""
        if end.text in self.nodes or end.text in self.broken:
            return None
        if end.text not in self.interfaces:
            message = f"edge '{edge}' references unknown {role} type '{end.text}'"
            self._catalog_error(message, end.at, did_you_mean(end.text, [*self.nodes, *self.interfaces]))
            return None
        nodes = (each.meaning for each in self.nodes.values() if isinstance(each.meaning, NodeType))
        if not self.broken and not any(end.text in node.implements for node in nodes):
            message = f"edge '{edge}' has the interface '{end.text}' as its {role}, and no node type implements it"
            self._catalog_error(message, end.at, f"write `node Name implements {end.text} {{ … }}`")
        return InterfaceEnd()

    def _refuse_names_of_end_types(self, edge: str, members: _Members) -> None:
        """Rows of such an edge type have columns for the types of its ends."""
        for prop, _ in members.typed.values():
            if prop.name.text in END_TYPE_NAMES:
                message = f"property name '{prop.name.text}' in edge '{edge}' is taken by the type of an end"
                self._catalog_error(message, prop.name.at)

    def _cardinality(self, edge: str, card: ast.Cardinality | None) -> Cardinality:
        if card is None:
            return Cardinality()
        if card.maximum is not None and card.minimum > card.maximum:
            self._error(f"@card on '{edge}': cardinality min {card.minimum} exceeds max {card.maximum}", card.at)
        return Cardinality(card.minimum, card.maximum)

    def _resolve_implements(self, node: ast.Node) -> list[str]:
        """The interfaces a node names, each once; the unreadable ones are reported as such."""
        for name in node.implements:
            if name.text not in self.interfaces and name.text not in self.broken:
                message = f"node '{node.name.text}' implements unknown interface '{name.text}'"
                self._error(message, name.at, did_you_mean(name.text, self.interfaces))
        return list(dict.fromkeys(name.text for name in node.implements if name.text in self.interfaces))

    def _merge_interfaces(
        self, node: Name, own: dict[str, DeclaredProperty], unreadable: frozenset[str], implemented: Iterable[str]
    ) -> dict[str, DeclaredProperty]:
        """The effective properties of a node: own ones in source order, injected ones after them."""
        contributors: dict[str, list[str]] = {}
        for interface in implemented:
            for name in self.interfaces[interface].properties:
                contributors.setdefault(name, []).append(interface)
        effective = dict(own)
        for name, interfaces in contributors.items():
            if name in unreadable:
                continue
            if name in own:
                type_, at = own[name].meaning.type, own[name].name.at
                for interface in interfaces:
                    wanted = self.interfaces[interface].properties[name].meaning.type
                    if type_ != wanted:
                        message = f"'{node.text}.{name}' has type {type_}, but interface '{interface}' declares it as"
                        self._error(f"{message} {wanted}", at)
                effective[name] = own[name].join(tuple(interfaces), injected=False)
            elif self._agree(node, name, interfaces):
                effective[name] = self._inject(node.text, interfaces[0], name).join(tuple(interfaces), injected=True)
        return effective

    def _agree(self, node: Name, name: str, interfaces: list[str]) -> bool:
        first, *others = (self.interfaces[interface].properties[name] for interface in interfaces)
        for interface, other in zip(interfaces[1:], others, strict=True):
            if not first.agrees_with(other):
                self._catalog_error(
                    f"'{node.text}' gets '{name}' from interfaces '{interfaces[0]}' and '{interface}' with "
                    f"incompatible property semantics; declare it in '{node.text}' or make the interfaces agree",
                    node.at,
                )
                return False
        return True

    def _inject(self, node: str, interface: str, name: str) -> DeclaredProperty:
        """The property of an interface, its annotations read as those of a property of the node that it joins."""
        syntax, type_ = self.interface_members[interface].typed[name]
        declared = self.interfaces[interface].properties[name]
        # The hint and the default were judged on the interface; everything else is judged here.
        judged = tuple(a for a in syntax.annotations if a.name != "rename_from")
        read = read_property("node", node, replace(syntax, annotations=judged, default=None), type_, self._error)
        meaning = replace(read.meaning, default=declared.meaning.default)
        return replace(read, meaning=meaning, rename_from=declared.rename_from, default_at=declared.default_at)

    def _read_members(self, kind: TypeKind, owner: str, members: Sequence[ast.Member]) -> _Members:
        typed: dict[str, tuple[ast.Property, PropertyType]] = {}
        unreadable: set[str] = set()
        rules: list[ast.Rule] = []
        for member in members:
            if not isinstance(member, ast.Property):
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
        if name.text.startswith(RESERVED_PREFIX):
            self._error(f"property name '{name.text}' in {kind} '{owner}' begins with '{RESERVED_PREFIX}'", name.at)
            return False
        if kind == "edge" and name.text in ("from", "to"):
            message = f"property name '{name.text}' in edge '{owner}' is taken by an end of the edge"
            self._catalog_error(message, name.at)
            return False
        return True


def _read_properties(kind: TypeKind, owner: str, members: _Members, report: Report) -> dict[str, DeclaredProperty]:
    return {name: read_property(kind, owner, *typed, report) for name, typed in members.typed.items()}


def _check_embed_sources(
    node: str, properties: dict[str, DeclaredProperty], unreadable: frozenset[str], report: Report
) -> None:
    for prop in properties.values():
        if (embed := prop.meaning.embed) is None or embed.property in unreadable:
            continue
        source = properties.get(embed.property)
        if source is None:
            message = f"@embed on '{node}.{prop.name.text}' references unknown source property '{embed.property}'"
            report(message, prop.embed_at, did_you_mean(embed.property, properties))
        elif not source.meaning.type.is_text:
            message = f"@embed source property {node}.{embed.property} must be String, not {source.meaning.type}"
            report(message, prop.embed_at)
