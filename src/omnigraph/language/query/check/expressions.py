"""Types of operands: variables, properties, meta-fields, literals and lists.

Filters, projections, sort keys, pins and assignments are made of the same expressions; `Place` says what may not stand
where. Each function returns the resolved value, or None after it has reported why there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from omnigraph.language.catalog import EdgeType, NodeType, Property, TableType
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.scope import Scope, spelled_variables
from omnigraph.language.query.value_types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    STRING,
    EntityType,
    NullType,
    PathType,
    RecordType,
    ValueType,
    as_nullable,
    list_of,
    unify,
    unify_all,
)
from omnigraph.language.source import Name, TextSpan, did_you_mean
from omnigraph.language.types import INTEGER_RANGES, PropertyType, Scalar

_LARGEST: Final = INTEGER_RANGES[Scalar.I64][1]


# ---- literals -------------------------------------------------------------------------------------------


def check_string(scope: Scope, literal: ast.StringLiteral) -> ir.Constant:
    return ir.Constant(literal.value, STRING)


def check_boolean(scope: Scope, literal: ast.BooleanLiteral) -> ir.Constant | None:
    word = "true" if literal.value else "false"
    if scope.place.is_where and scope.row is not None and word in scope.row.properties:
        message = (
            f"{scope.row.kind} type '{scope.row.name}' has a property named '{word}', so '{word}' has two meanings"
        )
        scope.report("T46", message, literal.at, help="pass the truth value as a parameter")
        return None
    return ir.Constant(literal.value, BOOL)


def check_date(scope: Scope, literal: ast.DateLiteral) -> ir.Constant:
    return ir.Constant(literal.text, DATE)


def check_datetime(scope: Scope, literal: ast.DateTimeLiteral) -> ir.Constant:
    return ir.Constant(literal.text, DATETIME)


def check_null(scope: Scope, literal: ast.NullLiteral) -> ir.Constant:
    return ir.Constant(None, NullType())


def check_now(scope: Scope, now: ast.Now) -> ir.Now:
    return ir.Now()


def check_integer(scope: Scope, literal: ast.IntegerLiteral) -> ir.Constant | None:
    if literal.value <= _LARGEST:
        return ir.Constant(literal.value, I64)
    message = f"{literal.value} is beyond the range of I64, which ends at {_LARGEST}"
    scope.report("T3", message, literal.at, help="pass it as a parameter of type U64, or write a float")
    return None


def check_float(scope: Scope, literal: ast.FloatLiteral) -> ir.Constant | None:
    value = literal.value
    if math.isfinite(value):
        return ir.Constant(value, F64)
    scope.report("T3", f"{literal.text} is beyond the range of F64", literal.at, help="write a smaller number")
    return None


def check_negative_number(scope: Scope, negative: ast.Negative) -> ir.Constant | None:
    """`-3`, whose digits are one more than a positive integer may have; None, without a finding, for anything else."""
    match negative.operand:
        case ast.IntegerLiteral(value=value) if value <= _LARGEST + 1:
            return ir.Constant(-value, I64)
        case ast.FloatLiteral() as literal if math.isfinite(literal.value):
            return ir.Constant(-literal.value, F64)
    return None


def check_parentheses(scope: Scope, parentheses: ast.Parentheses) -> ir.Value | None:
    return scope.check(parentheses.operand)


def check_list(scope: Scope, literal: ast.ListLiteral) -> ir.Value | None:
    """A constant where every item is one, else a list of values. The type is that of all items together."""
    items = [read_value(scope, item) for item in literal.items]
    values = [item for item in items if item is not None]
    if len(values) < len(items):
        return None
    type_ = _item_type(scope, literal, values)
    if type_ is None:
        return None
    constants = [value.value for value in values if isinstance(value, ir.Constant)]
    flat = tuple(value for value in constants if not isinstance(value, tuple))
    return ir.Constant(flat, list_of(type_)) if len(flat) == len(values) else ir.ListOf(tuple(values), list_of(type_))


def _item_type(scope: Scope, literal: ast.ListLiteral, values: Sequence[ir.Value]) -> ValueType | None:
    """The type of all items, or None after T53 for the first that does not fit those before it."""
    whole: ValueType = values[0].type if values else NullType()
    for value, written in zip(values, literal.items, strict=True):
        if value.type is whole:
            continue
        both = unify(whole, value.type)
        if both is None:
            message = f"a list literal mixes {as_nullable(whole, False)} and {as_nullable(value.type, False)}"
            scope.report("T53", message, written.at, help="give all items one type, or use record(…)")
            return None
        whole = both
    return whole


# ---- variables ------------------------------------------------------------------------------------------


def check_variable(scope: Scope, variable: ast.Variable) -> ir.Value | None:
    """A variable alone: of a list form, else the parameter of that name, else what the match binds."""
    name = variable.name
    if (local := scope.locals.get(name)) is not None:
        return bound_value(*local)
    if (parameter := scope.parameters.get(name)) is not None:
        return ir.ParameterValue(name, parameter)
    type_ = scope.variables.get(name)
    if type_ is None:
        scope.report_unbound(variable, scope.place.unbound)
        return None
    scope.mentioned.add(name)
    if scope.place.bound and isinstance(type_, EntityType | PathType):
        scope.report_unbound(variable, scope.place.bound)
        return None
    return bound_value(scope.slots.get(name, name), type_)


def bound_value(slot: str, type_: ValueType) -> ir.Value:
    """What a variable is bound to. One of a node or edge type always holds a node or an edge, wherever it is from."""
    return ir.EntityValue(slot, type_) if isinstance(type_, EntityType) else ir.VariableValue(slot, type_)


def check_property(scope: Scope, access: ast.PropertyAccess) -> ir.Value | None:
    name = access.variable.name
    is_value = name in scope.locals or isinstance(scope.variables.get(name), RecordType)
    if not is_value and scope.refuses(scope.place.access, f"${name}.{access.property.text}", access.at, _AS_FILTER):
        return None
    return property_value(scope, access, "T6")


_AS_FILTER: Final = "compare it in a filter of its own"


def property_value(scope: Scope, access: ast.PropertyAccess, code: str) -> ir.Value | None:
    """`$x.p`, where an unbound variable or an unknown property is reported under `code`."""
    name = access.variable.name
    if (local := scope.locals.get(name)) is not None:
        slot, type_ = local
        members = type_.members if isinstance(type_, EntityType) else ()
    else:
        bound = scope.variables.get(name)
        if bound is None:
            _report_no_entity(scope, access, code)
            return None
        scope.mentioned.add(name)
        slot, type_ = scope.slots.get(name, name), bound
        members = scope.members(name, bound) if isinstance(bound, EntityType) else ()
    if isinstance(type_, EntityType):
        return entity_property(
            scope, slot, type_, members, access.property, lenient=access.lenient, codes=(code, code), at=access.at
        )
    return _part_of_value(scope, slot, type_, access)


def _report_no_entity(scope: Scope, access: ast.PropertyAccess, code: str) -> None:
    """A column of the stage before has a dot in its name unless it was named."""
    gone = scope.gone.get(f"{access.variable.name}.{access.property.text}")
    if gone is not None and access.variable.name not in scope.broken:
        scope.report(gone.code, gone.message, access.at, help=gone.help)
    else:
        scope.report_unbound(access.variable, scope.place.unbound if code == "T6" else code, parameters=False)


def _part_of_value(scope: Scope, slot: str, type_: ValueType, access: ast.PropertyAccess) -> ir.Value | None:
    named = f"'${access.variable.name}'"
    if isinstance(type_, RecordType) and not access.lenient:
        field = type_.field(access.property.text)
        if field is not None:
            type_of_field = as_nullable(field, field.nullable or type_.nullable)
            return ir.Field(ir.VariableValue(slot, type_), access.property.text, type_of_field)
        message = f"the record {named} has no field '{access.property.text}'"
        scope.report("T6", message, access.property.at, near=access.property.text, among=dict(type_.fields))
    elif isinstance(type_, PathType):
        help = "length(p), nodes(p), edges(p), start(p) and end(p) take a path apart"
        scope.report("T108", f"{named} is a path and has no properties", access.at, help=help)
    else:
        help = "return the node itself in the stage before"
        scope.report("T6", f"{named} is a value of type {type_} and has no properties", access.at, help=help)
    return None


def entity_property(
    scope: Scope,
    slot: str,
    type_: EntityType,
    members: Sequence[TableType],
    name: Name,
    *,
    codes: tuple[str, str],
    at: TextSpan,
    lenient: bool = False,
) -> ir.PropertyValue | ir.UnionProperty | None:
    """A property of a variable that is one of the `members` of its type. `codes` are for a property that the only
    member lacks, and that one of several lacks."""
    if len(type_.members) == 1:
        owner = type_.members[0]
        prop = owner.properties.get(name.text) or scope.property_of(owner, name, codes[0])
        return None if prop is None else ir.PropertyValue(slot, owner, prop, type_.nullable)
    by_owner = {member.name: prop for member in members if (prop := member.properties.get(name.text)) is not None}
    absent = next((member for member in members if member.name not in by_owner), None)
    if not by_owner or (absent is not None and not lenient):
        _report_absent(scope, members, absent, name, codes[0] if len(members) == 1 else codes[1])
        return None
    shared = _shared_type([prop.type for prop in by_owner.values()], lenient=lenient)
    if shared is None:
        listed = ", ".join(f"{owner}.{name.text}: {prop.type}" for owner, prop in by_owner.items())
        message = f"the types of property '{name.text}' disagree: {listed}"
        code = "T15" if codes[0] == "T15" else "T112"
        scope.report(code, message, at, help="narrow the variable to types that agree")
        return None
    nullable = shared.nullable or type_.nullable or absent is not None
    parts = tuple(
        ir.PropertyValue(slot, member, by_owner[member.name], type_.nullable) if member.name in by_owner else None
        for member in type_.members
    )
    return ir.UnionProperty(slot, parts, as_nullable(shared, nullable))


def _report_absent(scope: Scope, members: Sequence[TableType], absent: TableType | None, name: Name, code: str) -> None:
    names = {prop for member in members for prop in member.properties}
    if absent is None:
        scope.report(code, f"no type is left that could have a property '{name.text}'", name.at)
    elif name.text in names:
        message = f"{absent.kind} type '{absent.name}' has no property '{name.text}'"
        scope.report(code, message, name.at, help=f"'.{name.text}?' is null where a type lacks it")
    else:
        listed = ", ".join(f"'{member.name}'" for member in members)
        message = f"none of the types {listed} has a property '{name.text}'"
        scope.report(code, message, name.at, near=name.text, among=names)


def _shared_type(types: Sequence[PropertyType], *, lenient: bool) -> ValueType | None:
    """The one type of a property of several types: the same base type, or, with `.p?`, numbers of any width."""
    if not lenient and len({(type_.scalar, type_.list, type_.dimension) for type_ in types}) > 1:
        return None
    return unify_all(types)


# ---- meta-fields and bare names -------------------------------------------------------------------------


def check_meta(scope: Scope, access: ast.MetaAccess) -> ir.Value | None:
    if access.variable is None:
        if scope.row is None:
            message = f"'{access.field}' needs a variable here"
            code = "T45" if scope.place.bare == "T45" else "T6"
            scope.report(code, message, access.at, help=f"write $x.{access.field}")
            return None
        return _meta_value(scope, ir.ROW, EntityType((scope.row,)), access)
    variable, name = access.variable, access.variable.name
    if name not in scope.locals and scope.refuses(scope.place.access, f"${name}.{access.field}", access.at, _AS_FILTER):
        return None
    slot, type_ = scope.locals.get(name) or (scope.slots.get(name, name), scope.variables.get(name))
    if type_ is None:
        scope.report_unbound(variable, scope.place.unbound, parameters=False)
        return None
    if name not in scope.locals:
        scope.mentioned.add(name)
    if isinstance(type_, EntityType):
        return _meta_value(scope, slot, type_, access)
    code = "T108" if isinstance(type_, PathType) else "T6"
    message = f"'${name}' is not a node or edge but {type_}, so it has no {access.field}"
    scope.report(code, message, access.at, help="return the node or edge itself in the stage before")
    return None


def _meta_value(scope: Scope, slot: str, type_: EntityType, access: ast.MetaAccess) -> ir.MetaValue | None:
    if access.field in (ast.MetaField.SRC, ast.MetaField.DST) and not type_.is_edge:
        named = "the row" if access.variable is None else f"'${access.variable.name}'"
        message = f"{named} is a node and has no {access.field}; only edges have ends"
        scope.report("T6", message, access.at, help="nodes have @id and @type")
        return None
    return ir.MetaValue(slot, type_.members, access.field, type_.nullable)


ENDPOINTS: Final = {"from": ast.MetaField.SRC, "to": ast.MetaField.DST}
"""What the ends of an edge are called in mutations, beside `@src` and `@dst`."""


def check_alias(scope: Scope, alias: ast.Alias) -> ir.Value | None:
    """A bare name: a property of the row where there is one, an output column in a sort key, and nothing elsewhere."""
    if scope.row is not None:
        return row_property(scope, scope.row, Name(alias.name, at=alias.at))
    name = alias.name
    if scope.outputs is not None:
        output = scope.outputs.by_name.get(name)
        if output is None and name not in scope.outputs.by_name:
            message = f"there is no output column '{name}' to order by"
            scope.report(
                "T42", message, alias.at, near=name, among=scope.outputs.by_name, help=_as_variable(scope, name)
            )
        return output
    code = scope.place.bare
    if code == "T36":
        message = f"'{name}' is the name of an output column and no value of this stage"
        instead = f"return it in a stage, then use ${name} in the next: return {{ … as {name} }} then …"
        scope.report(code, message, alias.at, help=_as_variable(scope, name) or instead)
    else:
        message = f"'{name}' is a bare name, which means nothing in {scope.place.name}"
        scope.report(code, message, alias.at, help=_as_variable(scope, name) or _property_of_variable(scope, name))
    return None


def _as_variable(scope: Scope, name: str) -> str | None:
    """The variable of this name, which lacks its sign."""
    is_variable = name in scope.variables or name in scope.parameters
    return f"write ${name} for the variable" if is_variable else None


def _property_of_variable(scope: Scope, name: str) -> str:
    for variable, type_ in scope.variables.items():
        if isinstance(type_, EntityType) and any(name in member.properties for member in type_.members):
            return f"write ${variable}.{name} for the property"
    near = did_you_mean(f"${name}", spelled_variables((*scope.parameters, *scope.variables)))
    return near or "write $x.p for a property and quotes for a text"


def row_property(scope: Scope, row: TableType, name: Name) -> ir.Value | None:
    """A property of the row that a condition or an assignment is about; `from` and `to` are the ends of an edge."""
    is_end = isinstance(row, EdgeType) and name.text in ENDPOINTS and name.text not in row.properties
    if is_end and not scope.place.is_row_filter:
        return ir.MetaValue(ir.ROW, (row,), ENDPOINTS[name.text])
    prop = scope.property_of(row, name, "T6" if scope.place.is_row_filter else "T11")
    return None if prop is None else ir.PropertyValue(ir.ROW, row, prop)


# ---- what may be read -----------------------------------------------------------------------------------


def read_value(scope: Scope, expression: ast.Expression) -> ir.Value | None:
    """The value of an expression that is about to be read: T24 for a Blob."""
    value = scope.check(expression)
    return None if value is None or refuse_blob(scope, value, expression.at) else value


def refuse_blob(scope: Scope, value: ir.Value, at: TextSpan) -> bool:
    """Report T24 when a Blob is about to be read; the answer says whether it was."""
    if not is_blob(value.type):
        return False
    prop = property_of(value)
    if scope.row is not None and prop is not None:
        named = f"blob property '{scope.row.name}.{prop.name}'"
        code, message = "T24", f"{named} can't be tested by {scope.place.name}"
        if scope.place.is_where:
            code, message = "T11", f"{named} can't stand in a WHERE predicate"
        scope.report(code, message, at, help="test another property")
        return True
    named = "a Blob parameter" if prop is None else f"property '{prop.name}'"
    help = "read it by the id of its node or edge, as a blob"
    scope.report("T24", f"{named} is a Blob and not available as a .gq read value", at, help=help)
    return True


def is_blob(type_: ValueType) -> bool:
    return isinstance(type_, PropertyType) and type_.is_blob


def property_of(value: ir.Value) -> Property | None:
    """The stored property that a value is, of one of its types if there are several."""
    match value:
        case ir.PropertyValue():
            return value.prop
        case ir.UnionProperty():
            return next((part.prop for part in value.parts if part is not None), None)
    return None


def type_text(value: ir.Value) -> str:
    """The type of a value as messages name it."""
    type_ = value.type
    if isinstance(type_, EntityType):
        return f"{'edge' if type_.is_edge else 'node'} '{' | '.join(type_.type_names)}'"
    return str(type_)


def node_members(type_: EntityType) -> tuple[NodeType, ...]:
    return tuple(member for member in type_.members if isinstance(member, NodeType))


def edge_members(type_: EntityType) -> tuple[EdgeType, ...]:
    return tuple(member for member in type_.members if isinstance(member, EdgeType))
