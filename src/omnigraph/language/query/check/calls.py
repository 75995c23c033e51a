"""Types of calculations: arithmetic, `case`, functions and list forms.

`language.query.functions` knows the functions; a call that fits none of the signatures is T102, with all of them. What
is written as a call and is not a function of its own (`contains`, `record`, `path`) becomes another value here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.comparisons import can_be_equal
from omnigraph.language.query.check.expressions import (
    check_negative_number,
    edge_members,
    node_members,
    read_value,
    type_text,
)
from omnigraph.language.query.check.scope import Place, Scope
from omnigraph.language.query.functions import FUNCTIONS, NAMES, signatures_of
from omnigraph.language.query.syntax import ArithmeticOperator, Comparison, ListFunction
from omnigraph.language.query.value_types import (
    BOOL,
    F64,
    I64,
    STRING,
    EntityType,
    NullType,
    PathType,
    RecordType,
    ValueType,
    as_nullable,
    is_bool,
    is_integer,
    is_list,
    is_number,
    is_text,
    item_of,
    list_of,
    overlaps,
    unify,
    unique_types,
)
from omnigraph.language.source import TextSpan, did_you_mean
from omnigraph.language.values import pattern_problem

# ---- arithmetic -----------------------------------------------------------------------------------------


def check_arithmetic(scope: Scope, written: ast.Arithmetic) -> ir.Arithmetic | None:
    left = read_value(scope, written.left)
    right = read_value(scope, written.right)
    if left is None or right is None:
        return None
    type_ = _calculated_type(written.operator, left.type, right.type)
    if type_ is not None:
        return ir.Arithmetic(left, written.operator, right, type_)
    if isinstance(left.type, PathType) or isinstance(right.type, PathType):
        help = "calculate with length(p)"
        scope.report("T108", "a path can't be calculated with", written.at, help=help)
        return None
    message = f"'{written.operator}' takes no {type_text(left)} and {type_text(right)}"
    scope.report("T102", message, written.at, help=_way_to_calculate(written.operator, left.type, right.type))
    return None


def _calculated_type(operator: ArithmeticOperator, a: ValueType, b: ValueType) -> ValueType | None:
    """Integers give I64, a float makes F64; `+` joins texts and lists too. Null fits everything."""
    nullable = a.nullable or b.nullable
    if isinstance(a, NullType) or isinstance(b, NullType):
        other = b if isinstance(a, NullType) else a
        if isinstance(other, NullType):
            return I64.as_nullable()
        return _calculated_type(operator, as_nullable(other), other)
    if is_number(a) and is_number(b):
        return (I64 if is_integer(a) and is_integer(b) else F64).as_nullable(nullable)
    if operator is not ArithmeticOperator.ADD:
        return None
    if is_text(a) and is_text(b):
        return STRING.as_nullable(nullable)
    return unify(a, b) if is_list(a) and is_list(b) else None


def _way_to_calculate(operator: ArithmeticOperator, a: ValueType, b: ValueType) -> str:
    scalars = {str(as_nullable(type_, False)) for type_ in (a, b)}
    if scalars & {"Date", "DateTime"}:
        return "use add_days(d, n), add_months(d, n), add_seconds(t, n), days_between(a, b) or seconds_between(a, b)"
    if operator is ArithmeticOperator.ADD and "String" in scalars:
        return "join texts with to_string(x) + …"
    if is_list(a) != is_list(b):
        return "join lists: list + [item]"
    return "calculate with numbers: to_int(x) and to_float(x) make them"


def check_negative(scope: Scope, written: ast.Negative) -> ir.Value | None:
    literal = check_negative_number(scope, written)
    if literal is not None:
        return literal
    operand = read_value(scope, written.operand)
    if operand is None:
        return None
    if is_number(operand.type):
        type_ = (I64 if is_integer(operand.type) else F64).as_nullable(operand.type.nullable)
        return ir.Negative(operand, type_)
    if isinstance(operand.type, NullType):
        return ir.Negative(operand, I64.as_nullable())
    code = "T108" if isinstance(operand.type, PathType) else "T102"
    message = f"unary '-' takes a number but got {type_text(operand)}"
    scope.report(code, message, written.operand.at, help="calculate with numbers: to_int(x) and to_float(x) make them")
    return None


# ---- case -----------------------------------------------------------------------------------------------


def check_case(scope: Scope, written: ast.Case) -> ir.Case | None:
    operand = None if written.operand is None else read_value(scope, written.operand)
    tests = [_case_test(scope, written, operand, branch.test) for branch in written.branches]
    values = [read_value(scope, branch.value) for branch in written.branches]
    otherwise = None if written.otherwise is None else read_value(scope, written.otherwise)
    branches = tuple(
        ir.Branch(test, value)
        for test, value in zip(tests, values, strict=True)
        if test is not None and value is not None
    )
    is_broken = (operand is None) != (written.operand is None) or (otherwise is None) != (written.otherwise is None)
    if is_broken or len(branches) < len(tests):
        return None
    type_: ValueType = NullType() if otherwise is None else otherwise.type
    for branch, at in zip(branches, written.branches, strict=True):
        both = unify(type_, branch.value.type)
        if both is None:
            message = f"the branches of a case need one type but have {as_nullable(type_, False)} and "
            message += type_text(branch.value)
            scope.report("T102", message, at.value.at, help="bring them to one type, as to_string(…) does")
            return None
        type_ = both
    return ir.Case(operand, branches, otherwise, type_)


def _case_test(scope: Scope, written: ast.Case, operand: ir.Value | None, branch: ast.Expression) -> ir.Value | None:
    test = read_value(scope, branch)
    if test is None or (written.operand is not None and operand is None):
        return None
    if operand is None:
        if is_bool(test.type) or isinstance(test.type, NullType):
            return test
        message = f"'when' needs a Bool but got {type_text(test)}"
        scope.report("T102", message, branch.at, help="for a value write `case value when … then …`")
        return None
    if isinstance(ast.bare(branch), ast.NullLiteral):
        help = f"write `case when {scope.text_at(written.operand.at) if written.operand else 'x'} is null then …`"
        scope.report("T101", "nothing equals null: use 'is null'", branch.at, help=help)
        return None
    if isinstance(operand.type, PathType | RecordType) or not can_be_equal(operand.type, test.type):
        message = f"a case of {type_text(operand)} can't equal {type_text(test)}"
        scope.report("T102", message, branch.at, help="give a value of the type of the operand")
        return None
    return test


# ---- functions ------------------------------------------------------------------------------------------


def check_call(scope: Scope, call: ast.Call) -> ir.Value | None:
    name = call.function.text
    form = _FORMS.get(name)
    if form is None and name not in FUNCTIONS:
        near = did_you_mean(name, NAMES)
        listed = near or "count, sum, … are aggregates; every other function is in the list of functions"
        scope.report("T102", f"there is no function '{name}'{_usage_of(near)}", call.function.at, help=listed)
        for argument in call.arguments:
            scope.check(argument.value)
        return None
    if name != "record" and (named := next((a.name for a in call.arguments if a.name is not None), None)):
        message = f"the arguments of {name}() have no names: {_usage(name)}"
        scope.report("T102", message, named.at, help=f"leave out '{named.text}:'")
        return None
    if form is not None:
        return form(scope, call)
    arguments = arguments_of(scope, call)
    if arguments is None:
        return None
    type_ = FUNCTIONS[name].result([argument.type for argument in arguments])
    if type_ is None:
        _report_misfit(scope, call, arguments)
        return None
    if name == "matches" and not _is_pattern(scope, call, arguments[1]):
        return None
    return ir.Call(name, arguments, type_, scope.text_at(call.at))


def _usage_of(near: str | None) -> str:
    """The signatures of what was probably meant."""
    name = None if near is None else near.split("'")[1]
    return "" if name is None else f"; there is {_usage(name)}"


def _usage(name: str) -> str:
    return " or ".join(signatures_of(name))


def arguments_of(scope: Scope, call: ast.Call) -> tuple[ir.Value, ...] | None:
    values = [read_value(scope, argument.value) for argument in call.arguments]
    arguments = tuple(value for value in values if value is not None)
    return arguments if len(arguments) == len(values) else None


def _report_misfit(scope: Scope, call: ast.Call, arguments: Sequence[ir.Value]) -> None:
    name = call.function.text
    types = ", ".join(type_text(argument) for argument in arguments)
    code = "T108" if name not in _OF_PATHS and any(isinstance(a.type, PathType) for a in arguments) else "T102"
    message = f"{name}({types}) fits no signature: {_usage(name)}"
    scope.report(code, message, call.at, help=_help_for(name, arguments))


_OF_PATHS: Final = frozenset({"length", "nodes", "edges", "start", "end"})


def _help_for(name: str, arguments: Sequence[ir.Value]) -> str:
    texts = any(is_text(argument.type) for argument in arguments)
    if texts and any("Date" in signature for signature in signatures_of(name)):
        return 'write date("2024-01-31") or datetime("…") for a day or an instant'
    return "give arguments as the signature says"


def _is_pattern(scope: Scope, call: ast.Call, pattern: ir.Value) -> bool:
    """A literal pattern is tried now; one that is a value fails when the query runs."""
    if not isinstance(pattern, ir.Constant) or not isinstance(pattern.value, str):
        return True
    problem = pattern_problem(pattern.value)
    if problem is None:
        return True
    message = f"'{pattern.value}' is not a regular expression: {problem}"
    help = "patterns have the syntax of RE2, and match the whole text"
    scope.report("T102", message, call.arguments[1].value.at, help=help)
    return False


def _text_test(scope: Scope, call: ast.Call) -> ir.Value | None:
    """`contains(s, t)` and `starts_with(s, t)`, which are the operators of these names over texts."""
    arguments = arguments_of(scope, call)
    if arguments is None:
        return None
    name = call.function.text
    types = [argument.type for argument in arguments]
    if len(types) != 2 or not all(is_text(type_) or isinstance(type_, NullType) for type_ in types):
        listed = ", ".join(map(type_text, arguments))
        help = "write `x in list`" if types and is_list(types[0]) else "give two texts"
        scope.report("T102", f"{name}({listed}) fits no signature: {_usage(name)}", call.at, help=help)
        return None
    operator = ir.Operator.SUBSTRING if name == Comparison.CONTAINS else ir.Operator.PREFIX
    return ir.Compare(arguments[0], operator, arguments[1])


def _record(scope: Scope, call: ast.Call) -> ir.Value | None:
    values: list[ir.Value] = []
    fields: dict[str, ValueType] = {}
    for argument in call.arguments:
        name, value = argument.name, read_value(scope, argument.value)
        if name is None:
            message = f"every value of a record has a name: {_usage('record')}"
            scope.report("T102", message, argument.value.at, help="write name: value")
        elif name.text in fields:
            scope.report("T102", f"a record has one field '{name.text}'", name.at, help="give it another name")
        elif value is not None:
            fields[name.text] = value.type
            values.append(value)
    if len(values) < len(call.arguments):
        return None
    if not values:
        scope.report("T102", f"a record has at least one field: {_usage('record')}", call.at, help="name a value")
        return None
    return ir.Record(tuple(values), RecordType(tuple(fields.items())))


def _field(scope: Scope, call: ast.Call) -> ir.Value | None:
    record = read_value(scope, call.arguments[0].value) if call.arguments else None
    name = ast.bare(call.arguments[1].value) if len(call.arguments) == 2 else None
    if record is None and len(call.arguments) == 2:
        return None
    if record is None or not isinstance(record.type, RecordType) or not isinstance(name, ast.StringLiteral):
        message = f"field() takes a record and the name of a field: {_usage('field')}"
        scope.report("T102", message, call.at, help='write field(r, "name")')
        return None
    type_ = record.type.field(name.value)
    if type_ is None:
        message = f"the record has no field '{name.value}'"
        scope.report("T102", message, name.at, near=name.value, among=dict(record.type.fields))
        return None
    return ir.Field(record, name.value, as_nullable(type_, type_.nullable or record.type.nullable))


# ---- paths ----------------------------------------------------------------------------------------------


def _path(scope: Scope, call: ast.Call) -> ir.Value | None:
    """A path of bound parts: a node, or a path, that an edge or another path continues."""
    parts = arguments_of(scope, call)
    if parts is None:
        return None
    problem = _path_problem(scope, call, parts)
    if problem is not None:
        message, at = problem
        scope.report("T108", message, at, help="write node, edge, node, …, as in path($a, $e, $b)")
        return None
    types = [part.type for part in parts]
    entities = [type_ for type_ in types if isinstance(type_, EntityType)]
    paths = [type_ for type_ in types if isinstance(type_, PathType)]
    nodes = [member for type_ in (*entities, *(path.nodes for path in paths)) for member in node_members(type_)]
    edges = [member for type_ in (*entities, *(path.edges for path in paths)) for member in edge_members(type_)]
    nullable = any(type_.nullable for type_ in types)
    type_of_path = PathType(EntityType(unique_types(nodes)), EntityType(unique_types(edges)), nullable)
    return ir.MakePath(parts, type_of_path)


def _path_problem(scope: Scope, call: ast.Call, parts: Sequence[ir.Value]) -> tuple[str, TextSpan] | None:
    """Why these parts make no path, and which of them is at fault; None for a path."""
    before: EntityType | PathType | None = None
    for part, argument in zip(parts, call.arguments, strict=True):
        type_, at = part.type, argument.value.at
        if not isinstance(type_, EntityType | PathType):
            return f"a path is made of nodes, edges and paths, not of {type_text(part)}", at
        if not _continues(before, type_):
            return f"'{scope.text_at(at)}' does not go on where the path is", at
        before = type_
    if before is None:
        return f"a path has a start: {_usage('path')}", call.at
    return ("a path ends with a node", call.at) if _is_edge(before) else None


def _is_edge(part: EntityType | PathType) -> bool:
    return isinstance(part, EntityType) and part.is_edge


def _nodes_of(part: EntityType | PathType) -> EntityType:
    return part.nodes if isinstance(part, PathType) else part


def _continues(before: EntityType | PathType | None, part: EntityType | PathType) -> bool:
    """Whether a part may follow: an edge leads from the node before it to the node after it, a path begins where the
    path is, and a node repeats the one that a path ended with."""
    if before is None:
        return not _is_edge(part)
    if isinstance(part, EntityType) and part.is_edge:
        return not _is_edge(before) and _touches(part, _nodes_of(before))
    if isinstance(before, EntityType) and before.is_edge:
        return _touches(before, _nodes_of(part))
    is_repeated = isinstance(before, PathType) or isinstance(part, PathType)
    return is_repeated and overlaps(_nodes_of(before), _nodes_of(part))


def _touches(edge: EntityType, node: EntityType) -> bool:
    names = set(node.type_names)
    return any(not names.isdisjoint((*member.source_types, *member.target_types)) for member in edge_members(edge))


_FORMS: Final[Mapping[str, Callable[[Scope, ast.Call], ir.Value | None]]] = {
    "contains": _text_test,
    "starts_with": _text_test,
    "record": _record,
    "field": _field,
    "path": _path,
}


# ---- list forms -----------------------------------------------------------------------------------------


def check_list_form(scope: Scope, form: ast.ListForm) -> ir.ListForm | None:
    items = _items(scope, form.function.value, form.items)
    if items is None or not scope.may_declare(form.variable):
        return None
    slot = scope.hidden(form.variable.name)
    outside = scope.place
    scope.place = _body_place(outside, form.function.value)
    with scope.local({form.variable.name: (slot, _item_type(items))}):
        condition = None if form.condition is None else _test(scope, "'where'", form.condition)
        body = (
            read_value(scope, form.body)
            if form.function is ListFunction.MAP
            else _test(scope, f"{form.function}()", form.body)
        )
    scope.place = outside
    if body is None or (condition is None) != (form.condition is None):
        return None
    if form.function is ListFunction.MAP:
        type_ = list_of(body.type, nullable=items.type.nullable)
    else:
        type_ = BOOL.as_nullable(items.type.nullable or body.type.nullable)
    return ir.ListForm(form.function, slot, items, condition, body, type_)


def _items(scope: Scope, name: str, written: ast.Expression) -> ir.Value | None:
    items = read_value(scope, written)
    if items is None or is_list(items.type) or isinstance(items.type, NullType):
        return items
    message = f"{name}() goes through a list but got {type_text(items)}: {_usage(name)}"
    scope.report("T102", message, written.at, help="write a list after `in`")
    return None


def _item_type(items: ir.Value) -> ValueType:
    return items.type if isinstance(items.type, NullType) else item_of(items.type)


def _body_place(place: Place, name: str) -> Place:
    """A body is evaluated once per item, so nothing of it is computed once per row."""
    return replace(place, name=f"the body of {name}()", aggregate="T100", block="T100", search="T100", rank="T100")


def _test(scope: Scope, asked_by: str, written: ast.Expression) -> ir.Value | None:
    value = read_value(scope, written)
    if value is None or is_bool(value.type) or isinstance(value.type, NullType):
        return value
    message = f"{asked_by} needs a Bool but got {type_text(value)}"
    scope.report("T102", message, written.at, help="compare it with a value")
    return None


_MOST_ROUNDS: Final = 100
"""How often bodies of `reduce` are checked anew in one query: nested ones would multiply."""


def check_reduce(scope: Scope, written: ast.Reduce) -> ir.Reduce | None:
    """The accumulator has the type that the initial value and the body agree on."""
    initial = read_value(scope, written.initial)
    items = _items(scope, "reduce", written.items)
    if initial is None or items is None:
        return None
    if not scope.may_declare(written.accumulator) or not scope.may_declare(written.variable):
        return None
    if written.accumulator.name == written.variable.name:
        message = f"'${written.variable.name}' can't be the item and the result so far"
        scope.report("T50", message, written.variable.at, help="choose another name")
        return None
    type_: ValueType = initial.type
    body = _reduce_body(scope, written, type_, items)
    # A round may widen the accumulator: from 0 to a float, from [] to a list of something.
    while body is not None:
        both = unify(type_, body[2].type)
        if both == type_:
            break
        if both is None or next(scope.reduce_rounds) > _MOST_ROUNDS:
            message = f"reduce() begins with {type_text(initial)} and goes on with {type_text(body[2])}"
            scope.report("T102", message, written.body.at, help="give the initial value the type of the body")
            return None
        type_ = both
        body = _reduce_body(scope, written, type_, items)
    if body is None:
        return None
    accumulator, slot, value = body
    result = as_nullable(type_, type_.nullable or items.type.nullable)
    return ir.Reduce(accumulator, initial, slot, items, value, result)


def _reduce_body(
    scope: Scope, written: ast.Reduce, type_: ValueType, items: ir.Value
) -> tuple[str, str, ir.Value] | None:
    """The names of the accumulator and the item, and the body for an accumulator of this type."""
    accumulator, slot = scope.hidden(written.accumulator.name), scope.hidden(written.variable.name)
    outside = scope.place
    scope.place = _body_place(outside, "reduce")
    names = {
        written.accumulator.name: (accumulator, type_),
        written.variable.name: (slot, _item_type(items)),
    }
    with scope.local(names):
        body = read_value(scope, written.body)
    scope.place = outside
    return None if body is None else (accumulator, slot, body)
