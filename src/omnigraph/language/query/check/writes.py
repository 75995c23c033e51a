"""Types of mutations: targets, assignments, what an insert must provide, conditions, and statements after a feed.

Statements are independent here; that inserts and deletes can't share a query is not a matter of types. A plain
statement has no variables: bare names are of the row that it tests or changes. After a feed, values are made of its
variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.assignments import END_NAMES, assigned_value, end_property, end_types, meet
from omnigraph.language.query.check.comparisons import check_condition
from omnigraph.language.query.check.read import check_feed_chain, no_rows, open_stage
from omnigraph.language.query.check.scope import FED_VALUE, INSERTED_VALUE, UPDATED_VALUE, WHERE, Place, Scope
from omnigraph.language.query.value_types import EntityType
from omnigraph.language.source import Name, TextSpan

_ENDS: Final = {name: field for field, name in END_NAMES.items()}


def check_writes(scope: Scope, writes: ast.Writes) -> resolved.Writes:
    checked: list[resolved.Write | resolved.ForEachRow] = []
    for statement in writes.statements:
        if isinstance(statement, ast.ForEachRow):
            checked.append(_for_each_row(scope, statement))
            continue
        plan = _plain(scope.inner(), statement)
        if plan is not None:
            checked.append(_write(plan, statement))
    return resolved.Writes(tuple(checked))


def _write(
    plan: ir.InsertNode | ir.InsertEdge | ir.Update | ir.Delete | ir.UpdateVariable | ir.DeleteVariable,
    statement: ast.RowWrite,
) -> resolved.Write:
    assigned = statement.assignments if isinstance(statement, ast.Insert | ast.Update | ast.UpdateVariable) else ()
    assigned_at = tuple(assignment.at for assignment in assigned)
    return resolved.Write(plan, statement.at, assigned_at)


# ---- plain statements -----------------------------------------------------------------------------------


def _plain(
    scope: Scope, statement: ast.Insert | ast.Update | ast.Delete
) -> ir.InsertNode | ir.InsertEdge | ir.Update | ir.Delete | None:
    target = _target(scope, statement.type_name)
    if target is None:
        return None
    match statement:
        case ast.Insert():
            return _insert(scope, statement, target, INSERTED_VALUE)
        case ast.Update():
            scope.row = target
            assigned = _updates(scope, statement.assignments, target, UPDATED_VALUE)
            where = check_condition(scope, statement.condition, WHERE)
            return None if assigned is None or where is None else ir.Update(target, assigned, where)
        case ast.Delete():
            scope.row = target
            where = check_condition(scope, statement.condition, WHERE)
            return None if where is None else ir.Delete(target, where, _cascades(scope, target))


def _target(scope: Scope, name: Name) -> TableType | None:
    """The type of a statement; a node type hides an edge type of the same name."""
    target = scope.catalog.nodes.get(name.text) or scope.catalog.edge_named(name.text)
    if target is None:
        type_names = [*scope.catalog.nodes, *scope.catalog.edges]
        message = f"unknown node/edge type '{name.text}'"
        scope.report("T10", message, name.at, near=name.text, among=type_names)
    return target


def _cascades(scope: Scope, target: TableType) -> tuple[EdgeType, ...]:
    return scope.catalog.incident_edges(target.name) if isinstance(target, NodeType) else ()


def _insert(
    scope: Scope, statement: ast.Insert, target: TableType, place: Place
) -> ir.InsertNode | ir.InsertEdge | None:
    must_be_new = statement.mode is ast.InsertMode.NEW
    keeps_rest = statement.mode is ast.InsertMode.UPSERT
    has_key = not keeps_rest or _has_key(scope, statement, target)
    if isinstance(target, EdgeType):
        return _insert_edge(scope, statement, target, place, must_be_new, keeps_rest) if has_key else None
    assigned = _assignments(scope, statement.assignments, target, place)
    provided = {assignment.property.text for assignment in statement.assignments}
    is_complete = _check_required(scope, target, provided, statement.type_name.at)
    if assigned is None or not (is_complete and has_key):
        return None
    return ir.InsertNode(target, assigned, must_be_new, keeps_rest)


def _has_key(scope: Scope, statement: ast.Insert, target: TableType) -> bool:
    """Whether there is a key by which `upsert` can tell what exists."""
    if target.key:
        return True
    message = f"upsert needs a key, and {target.kind} type '{target.name}' has none"
    scope.report(
        "T109", message, statement.type_name.at, help=f"write `insert {target.name} {{ … }}`, which always adds"
    )
    return False


def _insert_edge(
    scope: Scope, insert: ast.Insert, edge: EdgeType, place: Place, must_be_new: bool, keeps_rest: bool
) -> ir.InsertEdge | None:
    ends: dict[ast.MetaField, ir.Value] = {}
    rest: list[ast.Assignment] = []
    seen: set[str] = set()
    is_sound = True
    for assignment in insert.assignments:
        name = assignment.property.text
        field = _ENDS.get(name)
        if field is None:
            rest.append(assignment)
        elif name in seen:
            _report_duplicate(scope, edge, assignment)
            is_sound = False
        else:
            seen.add(name)
            value = _end(scope, edge, field, assignment.value, place)
            if value is not None:
                ends[field] = value
    assigned = _assignments(scope, rest, edge, place)
    for name in _ENDS:
        if name not in seen:
            message = f"insert into edge '{edge.name}' must provide the required endpoint '{name}'"
            scope.report("T12", message, insert.type_name.at, help=f"add `{name}: …`, the id of a node")
    is_complete = _check_required(scope, edge, {a.property.text for a in rest}, insert.type_name.at)
    if assigned is None or not (is_complete and is_sound) or len(ends) < len(_ENDS):
        return None
    source, target = ends[ast.MetaField.SRC], ends[ast.MetaField.DST]
    return ir.InsertEdge(edge, source, target, assigned, must_be_new, keeps_rest)


def _end(scope: Scope, edge: EdgeType, field: ast.MetaField, written: ast.Expression, place: Place) -> ir.Value | None:
    """An end: the id or the key of a node, or, after a feed, a node variable."""
    variable = ast.bare(written)
    if isinstance(variable, ast.Variable) and not place.bound and variable.name not in scope.parameters:
        type_ = scope.variables.get(variable.name)
        if isinstance(type_, EntityType):
            return _node_end(scope, edge, field, variable, type_)
    value = scope.check_at(place, written)
    if value is None:
        return None
    prop = end_property(scope, edge, field, value.type)
    return meet(scope, edge.name, prop, value, written, prop.type)


def _node_end(
    scope: Scope, edge: EdgeType, field: ast.MetaField, variable: ast.Variable, type_: EntityType
) -> ir.Value | None:
    nodes = end_types(scope, edge, field)
    named = edge.from_type if field is ast.MetaField.SRC else edge.to_type
    if edge.ends[field is ast.MetaField.DST].interface is None and _one_type(scope, variable, type_) is None:
        return None
    members = scope.members(variable.name, type_)
    if {member.type_key for member in members} <= {node.type_key for node in nodes}:
        return scope.check(variable)
    owners = " | ".join(member.name for member in members)
    message = f"'${variable.name}' is a {owners}, but '{edge.name}.{END_NAMES[field]}' is a {named}"
    scope.report("T5", message, variable.at, help=f"give a variable of type {named}, or the id of one")
    return None


# ---- assignments ----------------------------------------------------------------------------------------


def _updates(
    scope: Scope, assignments: Sequence[ast.Assignment], target: TableType, place: Place
) -> tuple[ir.Assign, ...] | None:
    """The assignments of an update. The ends and the key of an edge are what it is, and never change."""
    for assignment in assignments:
        name = assignment.property.text
        if isinstance(target, EdgeType) and (name in target.key or (name in _ENDS and name not in target.properties)):
            what = "a key member" if name in target.key else "an end"
            message = f"{what} of an edge can't be assigned: '{target.name}.{name}'"
            scope.report("T109", message, assignment.property.at, help="delete the edge and insert another")
            return None
    return _assignments(scope, assignments, target, place)


def _assignments(
    scope: Scope, assignments: Sequence[ast.Assignment], target: TableType, place: Place
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
        if prop is None:
            continue
        value = assigned_value(scope, place, target.name, prop, assignment.value, expected=prop.type)
        if value is not None:
            checked.append(ir.Assign(prop, value))
    return tuple(checked) if len(checked) == len(assignments) else None


def _report_duplicate(scope: Scope, target: TableType, assignment: ast.Assignment) -> None:
    message = f"duplicate assignment of '{target.name}.{assignment.property.text}'"
    scope.report("T13", message, assignment.property.at, help="keep one of them")


def _check_required(scope: Scope, target: TableType, provided: set[str], at: TextSpan) -> bool:
    """T12 for each missing one. What has a default may be left out, and a vector when the text it is made from is
    there."""
    is_complete = True
    stored = provided | {prop.name for prop in target.property_list if prop.default is not None}
    for prop in target.properties.values():
        if prop.type.nullable or prop.name in stored or (prop.embed and prop.embed.property in stored):
            continue
        source = f" or its embed source '{prop.embed.property}'" if prop.embed else ""
        message = f"insert into '{target.name}' must provide non-nullable property '{prop.name}'{source}"
        scope.report("T12", message, at, help=f"add `{prop.name}: …`")
        is_complete = False
    return is_complete


# ---- statements after a feed ----------------------------------------------------------------------------


def _for_each_row(scope: Scope, written: ast.ForEachRow) -> resolved.ForEachRow:
    feed = written.feed
    chain, rows = None, no_rows()
    if feed.chain is not None:
        chain, rows = check_feed_chain(scope, feed.chain)
    stage, unwinds, clauses = open_stage(scope, rows, feed.unwinds, feed.match)
    resolved_feed = resolved.Feed(chain, dict(rows.variables), unwinds, clauses, stage.bound)
    statements = []
    for statement in written.statements:
        plan = _row_write(stage, statement)
        if plan is not None:
            statements.append(_write(plan, statement))
    return resolved.ForEachRow(resolved_feed, tuple(statements), written.at)


def _row_write(
    scope: Scope, statement: ast.RowWrite
) -> ir.InsertNode | ir.InsertEdge | ir.UpdateVariable | ir.DeleteVariable | None:
    match statement:
        case ast.Insert():
            target = _target(scope, statement.type_name)
            return None if target is None else _insert(scope, statement, target, FED_VALUE)
        case ast.Update() | ast.Delete():
            verb = "update" if isinstance(statement, ast.Update) else "delete"
            message = f"`{verb} {statement.type_name.text} … where` can't follow a feed"
            help = f"match what it is about, and write `{verb} $x`; or write the statement first"
            scope.report("T109", message, statement.type_name.at, help=help)
            return None
        case ast.UpdateVariable():
            owner = _written_type(scope, statement.variable)
            if owner is None:
                return None
            assigned = _updates(scope, statement.assignments, owner, FED_VALUE)
            return None if assigned is None else ir.UpdateVariable(scope.slot(statement.variable), owner, assigned)
        case ast.DeleteVariable():
            owner = _written_type(scope, statement.variable)
            if owner is None:
                return None
            return ir.DeleteVariable(scope.slot(statement.variable), owner, _cascades(scope, owner))


def _written_type(scope: Scope, variable: ast.Variable) -> TableType | None:
    """The type of what a statement changes: one node or edge of one type."""
    type_ = scope.variables.get(variable.name)
    if type_ is None and variable.name not in scope.parameters:
        scope.report_unbound(variable, "T6", parameters=False)
        return None
    if not isinstance(type_, EntityType):
        kind = scope.parameters.get(variable.name) if type_ is None else type_
        message = f"'${variable.name}' is a value of type {kind} and no node or edge"
        scope.report("T113", message, variable.at, help="match the node or edge, and name its variable")
        return None
    return _one_type(scope, variable, type_)


def _one_type(scope: Scope, variable: ast.Variable, type_: EntityType) -> TableType | None:
    members = scope.members(variable.name, type_)
    if len(members) == 1:
        return members[0]
    message = f"'${variable.name}' has several types: {' | '.join(member.name for member in members)}"
    scope.report("T113", message, variable.at, help=f"narrow it where it is bound: ${variable.name}: Type")
    return None
