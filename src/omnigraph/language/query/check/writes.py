"""Types of mutations: the target, its assignments, what an insert must provide, and the `where` predicate.

Statements are independent here; that inserts and deletes can't share a query is not a matter of types.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.language.catalog import EdgeType, Property, TableType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.expressions import cell_value
from omnigraph.language.query.check.filters import comparison_operator
from omnigraph.language.query.check.scope import Scope
from omnigraph.language.source import TextSpan

_ENDPOINTS = {end.value: end for end in ir.Endpoint}
_EQUALITY = frozenset({ir.Operator.EQUAL, ir.Operator.NOT_EQUAL})


def check_writes(scope: Scope, writes: ast.Writes) -> resolved.Writes:
    checked = []
    for statement in writes.statements:
        plan = _statement(scope, statement)
        if plan is not None:
            assigned_at = () if isinstance(statement, ast.Delete) else tuple(a.at for a in statement.assignments)
            checked.append(resolved.Write(plan, statement.at, assigned_at))
    return resolved.Writes(tuple(checked))


def _statement(scope: Scope, statement: ast.Statement) -> ir.WriteStatement | None:
    name = statement.type_name.text
    # A node type hides an edge type of the same name.
    target = scope.catalog.nodes.get(name) or scope.catalog.edge_named(name)
    if target is None:
        type_names = [*scope.catalog.nodes, *scope.catalog.edges]
        scope.report("T10", f"unknown node/edge type '{name}'", statement.type_name.at, near=name, among=type_names)
        return None
    match statement:
        case ast.Insert():
            if isinstance(target, EdgeType):
                return _insert_edge(scope, statement, target)
            assigned = _assignments(scope, statement.assignments, target)
            provided = {assignment.property.text for assignment in statement.assignments}
            complete = _check_required(scope, target, provided, statement.type_name.at)
            return ir.InsertNode(target, assigned) if assigned is not None and complete else None
        case ast.Update():
            if isinstance(target, EdgeType):
                scope.report("T16", f"update of edge type '{target.name}' is not supported", statement.type_name.at)
                return None
            assigned = _assignments(scope, statement.assignments, target)
            where = _where(scope, statement.predicate, target)
            return None if assigned is None or where is None else ir.UpdateNodes(target, assigned, where)
        case ast.Delete():
            where = _where(scope, statement.predicate, target)
            if where is None:
                return None
            if isinstance(target, EdgeType):
                return ir.DeleteEdges(target, where)
            return ir.DeleteNodes(target, where, scope.catalog.incident_edges(target.name))


def _insert_edge(scope: Scope, insert: ast.Insert, edge: EdgeType) -> ir.InsertEdge | None:
    ends: dict[ir.Endpoint, ir.Value] = {}
    rest: list[ast.Assignment] = []
    seen: set[str] = set()
    sound = True
    for assignment in insert.assignments:
        name = assignment.property.text
        if name not in _ENDPOINTS:
            rest.append(assignment)
            continue
        if name in seen:
            _report_duplicate(scope, edge, assignment)
            sound = False
            continue
        seen.add(name)
        end = _ENDPOINTS[name]
        value = _cell(scope, edge, _endpoint_property(scope, edge, end, assignment.value), assignment.value)
        if value is not None:
            ends[end] = value
    assigned = _assignments(scope, rest, edge)
    for end in ir.Endpoint:
        if end.value not in seen:
            message = f"insert into edge '{edge.name}' must provide the required endpoint '{end.value}'"
            scope.report("T12", message, insert.type_name.at)
    complete = _check_required(scope, edge, {a.property.text for a in rest}, insert.type_name.at)
    if assigned is None or not complete or not sound or len(ends) < len(ir.Endpoint):
        return None
    return ir.InsertEdge(edge, ends[ir.Endpoint.FROM], ends[ir.Endpoint.TO], assigned)


def _assignments(
    scope: Scope, assignments: Sequence[ast.Assignment], target: TableType
) -> tuple[ir.Assign, ...] | None:
    """All of them, or None when one is at fault."""
    checked: list[ir.Assign] = []
    seen: set[str] = set()
    for assignment in assignments:
        name = assignment.property.text
        if name in seen:
            _report_duplicate(scope, target, assignment)
            continue
        seen.add(name)
        prop = scope.property_of(target, assignment.property, "T11")
        value = None if prop is None else _cell(scope, target, prop, assignment.value)
        if prop is not None and value is not None:
            checked.append(ir.Assign(prop, value))
    return tuple(checked) if len(checked) == len(assignments) else None


def _endpoint_property(scope: Scope, edge: EdgeType, end: ir.Endpoint, cell: ast.Cell) -> Property:
    """An end as a property, for the rules of values: a String, the id of the node, or what the node's key is."""
    node = scope.catalog.nodes[edge.from_type if end is ir.Endpoint.FROM else edge.to_type]
    type_ = scope.parameters.get(cell.name) if isinstance(cell, ast.Variable) else None
    is_text = isinstance(cell, ast.StringLiteral) or (type_ is not None and type_.is_text)
    key = ir.STRING if is_text or len(node.key) != 1 else node.properties[node.key[0]].type
    column = "src" if end is ir.Endpoint.FROM else "dst"
    return Property(name=end.value, id=0, type=key.as_nullable(False), column=column)


def _report_duplicate(scope: Scope, target: TableType, assignment: ast.Assignment) -> None:
    scope.report("T13", f"duplicate assignment of '{target.name}.{assignment.property.text}'", assignment.property.at)


def _cell(scope: Scope, target: TableType, prop: Property, cell: ast.Cell) -> ir.Value | None:
    return cell_value(scope, target.name, prop, cell, expected=prop.type, not_a_parameter="T14")


def _check_required(scope: Scope, target: TableType, provided: set[str], at: TextSpan) -> bool:
    """T12 for each missing one. A vector may be left out when the text it is made from is there."""
    complete = True
    for prop in target.properties.values():
        if prop.type.nullable or prop.name in provided or (prop.embed and prop.embed.property in provided):
            continue
        source = f" or its embed source '{prop.embed.property}'" if prop.embed else ""
        scope.report("T12", f"insert into '{target.name}' must provide non-nullable property '{prop.name}'{source}", at)
        complete = False
    return complete


def _where(scope: Scope, predicate: ast.Predicate, target: TableType) -> ir.Where | None:
    name = predicate.property.text
    column: Property | ir.Endpoint
    if isinstance(target, EdgeType) and name in _ENDPOINTS:
        column = _ENDPOINTS[name]
        prop = _endpoint_property(scope, target, column, predicate.value)
        if not prop.type.is_text and comparison_operator(predicate.operator) not in _EQUALITY:
            message = f"'{target.name}.{name}' is the id of a node and has no order; compare it with = or !="
            scope.report("T7", message, predicate.at)
            return None
    else:
        target_property = scope.property_of(target, predicate.property, "T11")
        if target_property is None:
            return None
        column = prop = target_property
    if prop.type.is_blob:
        message = f"blob property '{target.name}.{name}' can't stand in a WHERE predicate"
        scope.report("T11", message, predicate.property.at)
        return None
    value = _cell(scope, target, prop, predicate.value)
    return None if value is None else ir.Where(column, comparison_operator(predicate.operator), value)
