"""Makes the syntax tree of the schema compiler from a tree of the `.pg` grammar."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace
from tree_sitter import Node

from omnigraph.language.schema import syntax as ast
from omnigraph.language.source import Name, unquote

from .source_tree import SourceTree, children, field


def _name_ends(members: tuple[ast.Member, ...]) -> tuple[ast.Member, ...]:
    """In the rules of an edge `src` means `@src`, unless a property has that name."""
    properties = {member.name.text for member in members if isinstance(member, ast.Property)}
    ends = {"src", "dst"} - properties

    def column(name: Name) -> Name:
        return Name(f"@{name.text}", at=name.at) if name.text in ends else name

    return tuple(
        replace(member, columns=tuple(map(column, member.columns))) if isinstance(member, ast.ColumnsRule) else member
        for member in members
    )


class SchemaTree(SourceTree):
    def schema(self) -> ast.Schema:
        return ast.Schema(tuple(self._build(node) for node in children(self.root)))

    def _build(self, node: Node) -> Any:
        return getattr(self, f"_{node.type}")(node)

    def _all(self, node: Node, *types: str) -> tuple[Any, ...]:
        return tuple(self._build(child) for child in children(node) if child.type in types)

    def _interface_declaration(self, node: Node) -> ast.Interface:
        return ast.Interface(self.name(field(node, "name")), self._members(field(node, "body")), at=self.span(node))

    def _node_declaration(self, node: Node) -> ast.Node:
        implements = self._all(node, "implements")
        return ast.Node(
            self.name(field(node, "name")),
            self._all(node, "annotation"),
            implements[0] if implements else (),
            self._members(field(node, "body")),
            at=self.span(node),
        )

    def _implements(self, node: Node) -> tuple[Any, ...]:
        return tuple(map(self.name, children(node)))

    def _edge_declaration(self, node: Node) -> ast.Edge:
        cardinality = self._all(node, "cardinality")
        body = node.child_by_field_name("body")
        return ast.Edge(
            self.name(field(node, "name")),
            self.name(field(node, "source")),
            self.name(field(node, "target")),
            cardinality[0] if cardinality else None,
            self._all(node, "annotation"),
            None if body is None else _name_ends(self._members(body)),
            at=self.span(node),
        )

    def _cardinality(self, node: Node) -> ast.Cardinality:
        maximum = node.child_by_field_name("maximum")
        most = None if maximum is None else int(self.read(maximum))
        return ast.Cardinality(int(self.read(field(node, "minimum"))), most, at=self.span(node))

    def _members(self, body: Node) -> tuple[ast.Member, ...]:
        return tuple(map(self._build, children(body)))

    def _property(self, node: Node) -> ast.Property:
        type_: ast.Type = self._build(field(node, "type"))
        default, annotations = self._default(node), self._all(node, "annotation")
        return ast.Property(self.name(field(node, "name")), type_, default, annotations, at=self.span(node))

    def _default(self, node: Node) -> ast.Default | None:
        written = node.child_by_field_name("default")
        if written is None:
            return None
        is_list = written.type == "default_list"
        values = tuple(map(self._value, children(written) if is_list else [written]))
        return ast.Default(values, is_list, at=self.span(written))

    # -- types

    def _type_name(self, node: Node) -> ast.Type:
        return ast.Type(self.read(node), at=self.span(node))

    def _sized_type(self, node: Node) -> ast.Type:
        name, size = children(node)
        return ast.Type(self.read(name), (self.name(size),), at=self.span(node))

    def _enum_type(self, node: Node) -> ast.Type:
        return ast.Type("enum", tuple(map(self.name, children(node))), at=self.span(node))

    def _list_type(self, node: Node) -> ast.Type:
        return ast.Type("list", item=self._build(field(node, "item")), at=self.span(node))

    def _optional_type(self, node: Node) -> ast.Type:
        core: ast.Type = self._build(children(node)[0])
        return ast.Type(core.name, core.arguments, core.item, True, at=self.span(node))

    # -- annotations and rules

    def _annotation(self, node: Node) -> ast.Annotation:
        value = node.child_by_field_name("value")
        return ast.Annotation(
            self.read(field(node, "name"))[1:],
            None if value is None else self._value(value),
            self._all(node, "argument"),
            at=self.span(node),
        )

    def _argument(self, node: Node) -> tuple[str, ast.Value]:
        return self.read(field(node, "name")), self._value(field(node, "value"))

    def _value(self, node: Node) -> ast.Value:
        text = self.read(node)
        kind = cast(Any, {"boolean": "bool", "enum_value": "name"}.get(node.type, node.type))
        return ast.Value(kind, unquote(text) if kind == "string" else text, at=self.span(node))

    def _columns_rule(self, node: Node) -> ast.ColumnsRule:
        columns = map(self.name, node.children_by_field_name("column"))
        return ast.ColumnsRule(cast(Any, self._rule(node)), tuple(columns), at=self.span(node))

    def _range_rule(self, node: Node) -> ast.RangeRule:
        low, high = (node.child_by_field_name(name) for name in ("low", "high"))
        bounds = (None if bound is None else self.read(bound) for bound in (low, high))
        return ast.RangeRule(self.name(field(node, "column")), *bounds, at=self.span(node))

    def _check_rule(self, node: Node) -> ast.CheckRule:
        pattern = unquote(self.read(field(node, "pattern")))
        return ast.CheckRule(self.name(field(node, "column")), pattern, at=self.span(node))

    def _rule(self, node: Node) -> str:
        return self.read(field(node, "name"))[1:]
