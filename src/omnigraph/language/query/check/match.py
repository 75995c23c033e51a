"""Types of the `match` block: bindings, traversals, filters and negations, read top to bottom.

The order matters to the checker only: a variable gets its type from the first clause that can give it one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import cell_value, check_text_call
from omnigraph.language.query.check.filters import check_filter
from omnigraph.language.query.check.scope import UNCODED, Scope


def check_clauses(scope: Scope, clauses: Sequence[ast.Clause]) -> tuple[resolved.Clause, ...]:
    """Every clause that could be resolved; the scope afterwards holds what they bind."""
    checked = [_clause(scope, clause) for clause in clauses]
    _check_late_bindings(scope)
    return tuple(clause for clause in checked if clause is not None)


def _clause(scope: Scope, clause: ast.Clause) -> resolved.Clause | None:
    match clause:
        case ast.Binding():
            return _binding(scope, clause)
        case ast.Traversal():
            return _traversal(scope, clause)
        case ast.Filter():
            return check_filter(scope, clause)
        case ast.TextClause():
            matched = check_text_call(scope, clause.call)
            return None if matched is None else resolved.Filter(matched)
        case ast.Negation():
            return _negation(scope, clause)


def _binding(scope: Scope, binding: ast.Binding) -> resolved.Binding | None:
    name = binding.variable.name
    node = scope.catalog.nodes.get(binding.type_name.text)
    if node is None:
        wanted, why = binding.type_name.text, ""
        if wanted in scope.catalog.interfaces:
            why = ": it is an interface, and interfaces can't be queried"
        elif wanted in scope.catalog.edges:
            why = ": it is an edge type"
        message = f"unknown node type '{wanted}'{why}"
        scope.report("T1", message, binding.type_name.at, near=wanted, among=scope.catalog.nodes)
        if not scope.binds(name):
            scope.broken.add(name)
        return None
    if not _bind_node(scope, binding.variable, node):
        return None
    pins = (_pin(scope, node, name, pin) for pin in binding.pins)
    return resolved.Binding(name, node, tuple(pin for pin in pins if pin is not None))


def _bind_node(scope: Scope, variable: ast.Variable, node: NodeType) -> bool:
    name = variable.name
    if variable.is_anonymous:
        scope.report(UNCODED, "'$_' never binds and can't be given a type; name the variable", variable.at)
        return False
    if name in scope.edges:
        scope.report("T23", f"'${name}' already names an edge and can't be a node as well", variable.at)
        return False
    bound = scope.nodes.get(name)
    if bound is not None and bound.name != node.name:
        message = f"variable '${name}' is already bound to another type: {bound.name}, not {node.name}"
        scope.report(UNCODED, message, variable.at)
        return False
    scope.nodes[name] = node
    scope.broken.discard(name)
    return True


def _pin(scope: Scope, node: NodeType, variable: str, pin: ast.Pin) -> ir.Compare | None:
    prop = scope.property_of(node, pin.property, "T2")
    if prop is None:
        return None
    if prop.type.is_blob:
        scope.report("T3", f"property '{node.name}.{prop.name}' is a Blob and can't be matched", pin.property.at)
        return None
    if prop.type.list and isinstance(pin.value, ast.ListLiteral):
        message = f"list equality is not supported: '{node.name}.{prop.name}' is matched by one of its items"
        scope.report("T3", message, pin.value.at)
        return None
    value = cell_value(scope, node.name, prop, pin.value, expected=prop.type.item, not_a_parameter="T14")
    if value is None:
        return None
    operator = ir.Operator.MEMBER if prop.type.list else ir.Operator.EQUAL
    return ir.Compare(ir.PropertyValue(variable, node, prop), operator, value)


def _traversal(scope: Scope, traversal: ast.Traversal) -> resolved.Traversal | None:
    edge = scope.catalog.edge_named(traversal.edge.text)
    if edge is None:
        edge_names = [name[:1].lower() + name[1:] for name in scope.catalog.edges]
        name = traversal.edge.text
        scope.report("T4", f"unknown edge type '{name}'", traversal.edge.at, near=name, among=edge_names)
        _break_unbound(scope, traversal)
        return None
    bounds_fit = _check_shape(scope, traversal, edge)
    binding_fits = _check_edge_variable(scope, traversal)
    endpoints = _check_endpoints(scope, traversal, edge)
    if traversal.edge_variable is not None and not traversal.edge_variable.is_anonymous:
        if binding_fits:
            scope.edges[traversal.edge_variable.name] = edge
        elif not scope.binds(traversal.edge_variable.name):
            scope.broken.add(traversal.edge_variable.name)
    if endpoints is None:
        _break_unbound(scope, traversal)
        return None
    if not (bounds_fit and binding_fits):
        return None
    direction, source_type, destination_type = endpoints
    hops = traversal.hops
    edge_variable = traversal.edge_variable
    low, high = (1, 1) if hops is None else (hops.minimum, hops.maximum or hops.minimum)
    return resolved.Traversal(
        source=scope.slot(traversal.source),
        destination=scope.slot(traversal.destination),
        edge=edge,
        direction=direction,
        source_type=source_type,
        destination_type=destination_type,
        min_hops=low,
        # A second hop over different endpoint types has nowhere to start from.
        max_hops=high if edge.is_symmetric else 1,
        edge_variable=None if edge_variable is None or edge_variable.is_anonymous else edge_variable.name,
    )


def _break_unbound(scope: Scope, traversal: ast.Traversal) -> None:
    variables = [traversal.source, traversal.destination]
    if traversal.edge_variable is not None:
        variables.append(traversal.edge_variable)
    scope.broken.update(v.name for v in variables if not v.is_anonymous and not scope.binds(v.name))


def _check_shape(scope: Scope, traversal: ast.Traversal, edge: EdgeType) -> bool:
    sound = True
    if traversal.undirected and not edge.is_symmetric:
        ends = f"{edge.from_type} -> {edge.to_type}"
        scope.report("T22", f"edge '{edge.name}' is asymmetric ({ends}); use the directional form", traversal.edge.at)
        sound = False
    hops = traversal.hops
    if hops is None:
        return sound
    problem = None
    if hops.minimum < 1:
        problem = "hop bounds must begin at 1 or more"
    elif hops.maximum is None:
        problem = "unbounded traversal is disabled; give an upper bound"
    elif hops.maximum < hops.minimum:
        problem = f"hop bounds {{{hops.minimum},{hops.maximum}}} end before they begin"
    if problem is not None:
        scope.report("T15", problem, hops.at)
    return sound and problem is None


def _check_edge_variable(scope: Scope, traversal: ast.Traversal) -> bool:
    variable = traversal.edge_variable
    sound = True
    for endpoint in (traversal.source, traversal.destination):
        if endpoint.name in scope.edges:
            scope.report("T23", f"'${endpoint.name}' is an edge and can't be an endpoint", endpoint.at)
            sound = False
    if variable is None:
        return sound
    name = variable.name
    if traversal.hops is not None:
        message = f"'${name}' can't name a multi-hop traversal: its result is a path, not one edge"
    elif variable.is_anonymous:
        return sound
    elif name in (traversal.source.name, traversal.destination.name):
        message = f"edge variable '${name}' and the endpoint variables must be distinct"
    elif scope.binds(name) or name in scope.parameters:
        message = f"'${name}' is already in use and can't name an edge as well"
    else:
        return sound
    scope.report("T23", message, variable.at)
    return False


def _check_endpoints(
    scope: Scope, traversal: ast.Traversal, edge: EdgeType
) -> tuple[ir.Direction, NodeType, NodeType] | None:
    """Direction and endpoint types, by whichever end has a type already: the source first, then the destination."""
    source, destination = traversal.source, traversal.destination
    if not {source.name, destination.name}.isdisjoint(scope.edges):
        return None
    source_type = None if source.is_anonymous else scope.nodes.get(source.name)
    destination_type = None if destination.is_anonymous else scope.nodes.get(destination.name)
    if source_type is not None:
        reversed_ = source_type.name != edge.from_type
        if reversed_ and source_type.name != edge.to_type:
            return _wrong_endpoint(scope, source, source_type, (edge.from_type, edge.to_type), edge)
    elif destination_type is not None:
        reversed_ = destination_type.name != edge.to_type
        if reversed_ and destination_type.name != edge.from_type:
            return _wrong_endpoint(scope, destination, destination_type, (edge.from_type, edge.to_type), edge)
    else:
        reversed_ = False
    start, end = (edge.to_type, edge.from_type) if reversed_ else (edge.from_type, edge.to_type)
    starts, ends = scope.catalog.nodes[start], scope.catalog.nodes[end]
    if not source.is_anonymous:
        scope.nodes[source.name] = starts
        scope.broken.discard(source.name)
    if not destination.is_anonymous:
        bound = scope.nodes.setdefault(destination.name, ends)
        scope.broken.discard(destination.name)
        if bound.name != end:
            return _wrong_endpoint(scope, destination, bound, (end,), edge)
    if traversal.undirected:
        return ir.Direction.BOTH, starts, ends
    return ir.Direction.IN if reversed_ else ir.Direction.OUT, starts, ends


def _wrong_endpoint(
    scope: Scope, variable: ast.Variable, bound: NodeType, expected: Iterable[str], edge: EdgeType
) -> tuple[ir.Direction, NodeType, NodeType] | None:
    """Report T5; there is never a direction then."""
    wanted = " or ".join(dict.fromkeys(expected))
    message = f"variable '${variable.name}' has type {bound.name}, but edge '{edge.name}' expects {wanted} there"
    scope.report("T5", message, variable.at)
    return None


def _negation(scope: Scope, negation: ast.Negation) -> resolved.Negation | None:
    outer = {*scope.variables(), *scope.broken}
    inside = scope.inner()
    clauses = check_clauses(inside, negation.clauses)
    introduced = inside.variables().items()
    scope.introduced_inside += [(name, type_, negation.at) for name, type_ in introduced if name not in outer]
    scope.introduced_inside += inside.introduced_inside
    mentioned = {name for clause in negation.clauses for name in _mentions(clause)}
    if mentioned.isdisjoint(outer):
        message = "a negation block must reference a variable bound outside of it in one of its clauses"
        scope.report("T9", message, negation.at)
        return None
    return resolved.Negation(clauses)


def _check_late_bindings(scope: Scope) -> None:
    """A name that a negation introduced and a later clause binds as well.

    Clauses mean the same in any order, so it is one variable; it can't be two things, and an edge is named once.
    """
    unsettled = []
    for name, inside, at in scope.introduced_inside:
        outside = scope.nodes.get(name) or scope.edges.get(name)
        if outside is None:
            unsettled.append((name, inside, at))
        elif isinstance(inside, EdgeType) or isinstance(outside, EdgeType):
            scope.report("T23", f"'${name}' names an edge inside a negation or outside of it, not both", at)
        elif outside.name != inside.name:
            message = f"variable '${name}' is bound to another type outside: {outside.name}, not {inside.name}"
            scope.report(UNCODED, message, at)
    scope.introduced_inside = unsettled


def _mentions(clause: ast.Clause) -> Iterable[str]:
    """The variables a clause speaks of itself; a nested negation speaks for itself only."""
    match clause:
        case ast.Binding():
            yield clause.variable.name
        case ast.Traversal():
            yield clause.source.name
            yield clause.destination.name
        case ast.Filter():
            yield from _expression_variables(clause.left)
            yield from _expression_variables(clause.right)
        case ast.TextClause():
            yield from _expression_variables(clause.call)


def _expression_variables(expression: ast.Expression) -> Iterable[str]:
    match expression:
        case ast.PropertyAccess():
            yield expression.variable.name
        case ast.NearestCall():
            yield expression.target.variable.name
            yield from _expression_variables(expression.query)
        case ast.TextCall() | ast.Bm25Call():
            yield from _expression_variables(expression.field)
            yield from _expression_variables(expression.query)
