"""Types of the clauses of `match` and of blocks: bindings, pins, filters, `not { … }` and `optional { … }`.

Clauses are read top to bottom: a variable gets its type from the first clause that can give it one, and is visible from
there on. The order matters to the checker only. Bindings of several types and `*` need what later bindings of the same
block say, so these are looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.assignments import assigned_value
from omnigraph.language.query.check.blocks import uses_outer_variable
from omnigraph.language.query.check.comparisons import check_filter
from omnigraph.language.query.check.expressions import entity_property, node_members, property_of
from omnigraph.language.query.check.scope import PIN, Scope
from omnigraph.language.query.check.traversals import check_path, check_traversal
from omnigraph.language.query.value_types import EntityType, as_nullable, unique_types
from omnigraph.language.source import TextSpan
from omnigraph.language.types import PropertyType


def check_clauses(scope: Scope, clauses: Sequence[ast.Clause]) -> tuple[resolved.Clause, ...]:
    """Every clause that could be resolved; the scope afterwards holds what they bind."""
    scope.clauses = clauses
    scope.declared = _declared_types(scope, clauses)
    checked = [_CLAUSES[type(clause)](scope, clause) for clause in clauses]
    if scope.introduced_inside:
        _check_late_bindings(scope)
    return tuple(clause for clause in checked if clause is not None)


def _declared_types(scope: Scope, clauses: Sequence[ast.Clause]) -> dict[str, tuple[NodeType, ...]]:
    """The types that the bindings of a block leave of each variable, for blocks in which this is not evident."""
    bindings = [clause for clause in clauses if isinstance(clause, ast.Binding)]
    selectors = (
        c.traversal.selector if isinstance(c, ast.Path) else c.selector for c in clauses if isinstance(c, _WALKS)
    )
    is_evident = all(len(b.type_names) == 1 and b.type_names[0].text in scope.catalog.nodes for b in bindings) and all(
        _has_evident_ends(scope, selector) for selector in selectors
    )
    if is_evident:
        return {}
    declared: dict[str, tuple[NodeType, ...]] = {}
    for binding in bindings:
        types = _named_types(scope, binding)
        before = declared.get(binding.variable.name, types)
        both = _in_both(before, types)
        declared[binding.variable.name] = both or before
    return declared


def _has_evident_ends(scope: Scope, selector: ast.Selector) -> bool:
    """Whether an end that nothing else declares has one type."""
    edge = scope.catalog.edge_named(selector.edges[0].text) if len(selector.edges) == 1 else None
    return len(selector.edges) == 1 and (edge is None or not edge.has_interface_end)


_WALKS: Final = (ast.Traversal, ast.Path)


def _in_both(types: Sequence[NodeType], others: Sequence[NodeType]) -> tuple[NodeType, ...]:
    names = {type_.name for type_ in others}
    return tuple(type_ for type_ in types if type_.name in names)


# ---- bindings -------------------------------------------------------------------------------------------


def _named_types(scope: Scope, binding: ast.Binding) -> tuple[NodeType, ...]:
    """The node types that a binding names: an interface stands for those that implement it, `*` for all."""
    nodes = scope.catalog.nodes
    if not binding.type_names:
        return tuple(nodes.values())
    if len(binding.type_names) == 1 and (node := nodes.get(binding.type_names[0].text)) is not None:
        return (node,)
    types: list[NodeType] = []
    for name in binding.type_names:
        node = nodes.get(name.text)
        types += [node] if node is not None else (each for each in nodes.values() if name.text in each.implements)
    return unique_types(types)


def _report_unknown_types(scope: Scope, binding: ast.Binding) -> bool:
    """T1 for every name that is neither a node type nor an interface of one; whether there was one."""
    catalog, is_unknown = scope.catalog, False
    for name in binding.type_names:
        if name.text in catalog.nodes:
            continue
        help = None
        if name.text in catalog.interfaces:
            if any(name.text in node.implements for node in catalog.nodes.values()):
                continue
            message = f"interface '{name.text}' is implemented by no node type"
            help = f"add `implements {name.text}` to a node type"
        elif name.text in catalog.edges:
            message = f"unknown node type '{name.text}': it is an edge type"
            help = f"write a traversal: $a {name.text[:1].lower()}{name.text[1:]} $b"
        else:
            message = f"unknown node type '{name.text}'"
        is_unknown = True
        names = () if help else (*catalog.nodes, *catalog.interfaces)
        scope.report("T1", message, name.at, near=name.text, among=names, help=help)
    return is_unknown


def _binding(scope: Scope, binding: ast.Binding) -> resolved.Binding | None:
    name = binding.variable.name
    types = _named_types(scope, binding)
    is_evident = len(types) == len(binding.type_names) == 1
    if not is_evident and (_report_unknown_types(scope, binding) or not types):
        if not binding.type_names:
            scope.report("T1", "the schema has no node types", binding.at, help="add a node type to the schema")
        if name not in scope.variables:
            scope.broken.add(name)
        return None
    bound = _bind_node(scope, binding.variable, types)
    if bound is None:
        return None
    slot = scope.slot(binding.variable)
    members = _in_both(node_members(bound), types)
    pins = (_pin(scope, slot, bound, members, pin) for pin in binding.pins)
    return resolved.Binding(slot, types, tuple(pin for pin in pins if pin is not None), binding.at)


def _bind_node(scope: Scope, variable: ast.Variable, types: tuple[NodeType, ...]) -> EntityType | None:
    """The type of the variable, narrowed to these types, or None after a finding."""
    name = variable.name
    if variable.is_anonymous:
        scope.report("T100", "'$_' never binds and can't be given a type", variable.at, help="name the variable")
        return None
    bound = scope.variables.get(name)
    if bound is None:
        if not scope.may_declare(variable):
            scope.broken.add(name)
            return None
        declared = scope.declared.get(name)
        bound = EntityType(types if declared is None else _in_both(declared, types) or types)
        scope.bind(name, bound)
        return bound
    scope.mentioned.add(name)
    if not isinstance(bound, EntityType):
        message = f"'${name}' is already bound to a value of type {bound} and can't be a node as well"
        scope.report("T50", message, variable.at, help="choose another name")
        return None
    if bound.is_edge:
        message = f"'${name}' already names an edge and can't be a node as well"
        scope.report("T23", message, variable.at, help="choose another name")
        return None
    left = [member for member in scope.members(name, bound) if isinstance(member, NodeType)]
    narrowed = _in_both(left, types)
    if not narrowed:
        message = f"variable '${name}' is already bound to another type: {_list_types(left)}, not {_list_types(types)}"
        scope.report("T50", message, variable.at, help="choose another name, or bind it before the traversal")
        return None
    if len(narrowed) < len(bound.members):
        scope.allowed[name] = narrowed
    return bound


def _list_types(types: Sequence[NodeType]) -> str:
    return " | ".join(type_.name for type_ in types)


def _pin(scope: Scope, slot: str, bound: EntityType, members: Sequence[NodeType], pin: ast.Pin) -> ir.Compare | None:
    """A pin is an equality; on a list it asks for one of the items."""
    value = entity_property(
        scope, slot, bound, members, pin.property, codes=("T2", "T6"), at=pin.property.at, lenient=False
    )
    prop = None if value is None else property_of(value)
    if value is None or prop is None:
        return None
    owner = members[0].name
    if prop.type.is_blob:
        message = f"property '{owner}.{prop.name}' is a Blob and can't be matched"
        scope.report("T3", message, pin.property.at, help="match another property")
        return None
    if prop.type.list and isinstance(ast.bare(pin.value), ast.ListLiteral):
        message = f"list equality is not supported: '{owner}.{prop.name}' is matched by one of its items"
        scope.report("T3", message, pin.value.at, help=f"write a filter: $x.{prop.name} = […]")
        return None
    assert isinstance(value.type, PropertyType)
    expected = value.type.item
    pinned = assigned_value(scope, PIN, owner, prop, pin.value, expected=expected, is_stored=False)
    if pinned is None:
        return None
    return ir.Compare(value, ir.Operator.MEMBER if prop.type.list else ir.Operator.EQUAL, pinned)


# ---- blocks that are clauses ----------------------------------------------------------------------------


def _negation(scope: Scope, negation: ast.Negation) -> resolved.Negation | None:
    inside = scope.inner()
    clauses = inside.check_clauses(negation.clauses)
    introduced = ((name, type_) for name, type_ in inside.variables.items() if name not in scope.variables)
    hidden = inside.slots
    scope.introduced_inside += [(name, type_, negation.at) for name, type_ in introduced if name not in hidden]
    scope.introduced_inside += inside.introduced_inside
    if not uses_outer_variable(scope, inside, negation.at, "T9"):
        return None
    return resolved.Negation(clauses, inside.bound)


def _optional(scope: Scope, optional: ast.Optional) -> resolved.OptionalBlock | None:
    """The variables that the block adds are nullable from here on. One of them that failed is broken outside too."""
    inside = scope.inner()
    clauses = inside.check_clauses(optional.clauses)
    variables = inside.bound
    introduced = []
    for name, type_ in inside.variables.items():
        if name not in scope.variables:
            if slot := inside.slots.get(name):
                scope.slots[name] = slot
            scope.variables[name] = as_nullable(type_)
            scope.broken.discard(name)
            introduced.append((inside.slots.get(name, name), as_nullable(type_)))
    scope.broken |= inside.broken - scope.variables.keys()
    scope.mentioned |= inside.mentioned
    scope.introduced_inside += inside.introduced_inside
    return resolved.OptionalBlock(clauses, variables, tuple(introduced))


def _check_late_bindings(scope: Scope) -> None:
    """A name that a negation introduced and a later clause binds as well.

    Clauses mean the same in any order, so it is one variable; it can't be two things, and an edge is named once.
    """
    unsettled: list[tuple[str, Any, TextSpan]] = []
    for name, inside, at in scope.introduced_inside:
        outside = scope.variables.get(name)
        if outside is None:
            unsettled.append((name, inside, at))
        elif not (isinstance(inside, EntityType) and isinstance(outside, EntityType)):
            message = f"'${name}' is bound inside a negation and outside of it, and not both times to a node"
            scope.report("T50", message, at, help="choose another name inside")
        elif inside.is_edge or outside.is_edge:
            message = f"'${name}' names an edge inside a negation or outside of it, not both"
            scope.report("T23", message, at, help="choose another name inside")
        elif outside.type_names != inside.type_names:
            ours, theirs = _list_types(node_members(outside)), _list_types(node_members(inside))
            message = f"variable '${name}' is bound to another type outside: {ours}, not {theirs}"
            scope.report("T50", message, at, help="choose another name inside")
    scope.introduced_inside = unsettled


_CLAUSES: Final[Mapping[type, Callable[[Scope, Any], resolved.Clause | None]]] = {
    ast.Binding: _binding,
    ast.Traversal: check_traversal,
    ast.Path: check_path,
    ast.Filter: check_filter,
    ast.Negation: _negation,
    ast.Optional: _optional,
}
