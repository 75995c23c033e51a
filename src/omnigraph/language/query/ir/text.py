"""Plans as text: values as a query would spell them, with the fewest parentheses, and operators in a few words.

`explain`, profiles and errors at run time show these texts; nothing reads them back. Everything here is a loop: a value
or a plan may be as deep as a query is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, assert_never

from omnigraph.language.query.ir.operators import (
    UNBOUNDED,
    Aggregate,
    AntiJoin,
    BestNodes,
    Bind,
    BlockJoin,
    Count,
    CrossJoin,
    Direction,
    Distinct,
    Expand,
    ExpandWalk,
    Filter,
    Fuse,
    Limit,
    OptionalJoin,
    Outer,
    PathExpand,
    Project,
    Rank,
    ReadOperator,
    Scan,
    SemiJoin,
    Sort,
    SortKey,
    TieBreak,
    TypeUnionScan,
    UnionAll,
    Unwind,
    Walk,
)
from omnigraph.language.query.ir.values import (
    AggregateValue,
    And,
    Arithmetic,
    Bm25Rank,
    Call,
    Case,
    Compare,
    Constant,
    ConstantItem,
    EntityValue,
    Field,
    FusedRank,
    In,
    IsNull,
    ListForm,
    ListOf,
    MakePath,
    MetaValue,
    NearestRank,
    Negative,
    NodeKey,
    Not,
    Now,
    Operand,
    Operator,
    Or,
    OutputValue,
    ParameterValue,
    Predicate,
    PropertyValue,
    Ranking,
    Record,
    Reduce,
    Score,
    TextMatch,
    UnionProperty,
    Value,
    VariableValue,
    operands_of,
)
from omnigraph.language.query.ir.writes import ROW
from omnigraph.language.query.syntax import ArithmeticOperator
from omnigraph.language.query.value_types import PathType, ValueType
from omnigraph.language.types import PropertyType, Scalar

# ---- values ---------------------------------------------------------------------------------------------


class _Level(IntEnum):
    """How tightly the outermost operator of a text binds."""

    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    TERM = 6
    UNARY = 7
    OPERAND = 8


class _Text(str):
    """A text that knows its level, so that whatever it becomes a part of can tell whether it needs parentheses."""

    __slots__ = ("level",)
    level: _Level


def _text(text: str, level: _Level = _Level.OPERAND) -> _Text:
    result = _Text(text)
    result.level = level
    return result


def _at(level: int, text: _Text) -> str:
    """The text as an operand of something that binds its operands as tightly as `level`."""
    return text if text.level >= level else f"({text})"


def value_text(value: Value) -> str:
    """The value as a query would spell it."""
    finished: list[_Text] = []
    waiting = [(value, False)]
    while waiting:
        part, is_complete = waiting.pop()
        operands = () if isinstance(part, UnionProperty) else operands_of(part)
        if operands and not is_complete:
            waiting.append((part, True))
            waiting += [(operand, False) for operand in reversed(operands)]
            continue
        texts = finished[len(finished) - len(operands) :]
        del finished[len(finished) - len(operands) :]
        finished.append(_spell(part, texts))
    return str(finished[0])


_COMPARISONS: Final = {
    Operator.SUBSTRING: "contains",
    Operator.MEMBER: "contains",
    Operator.PREFIX: "starts_with",
}
_SUMS: Final = frozenset({ArithmeticOperator.ADD, ArithmeticOperator.SUBTRACT})


def _spell(value: Value, operands: Sequence[_Text]) -> _Text:
    """The text of a value from those of its operands, in the order of `operands_of`."""
    match value:
        case Compare():
            operator = _COMPARISONS.get(value.operator, value.operator.value)
            return _text(f" {operator} ".join(_at(_Level.SUM, o) for o in operands), _Level.COMPARISON)
        case And():
            return _text(" and ".join(_at(_Level.NOT, o) for o in operands), _Level.AND)
        case Or():
            return _text(" or ".join(_at(_Level.AND, o) for o in operands), _Level.OR)
        case Not():
            return _text(f"not {_at(_Level.NOT, operands[0])}", _Level.NOT)
        case IsNull():
            test = "is not null" if value.negated else "is null"
            return _text(f"{_at(_Level.SUM, operands[0])} {test}", _Level.COMPARISON)
        case In():
            return _text(" in ".join(_at(_Level.SUM, o) for o in operands), _Level.COMPARISON)
        case Arithmetic():
            level = _Level.SUM if value.operator in _SUMS else _Level.TERM
            left, right = operands
            return _text(f"{_at(level, left)} {value.operator.value} {_at(level + 1, right)}", level)
        case Negative():
            return _text(f"-{_at(_Level.UNARY, operands[0])}", _Level.UNARY)
        case Constant(value=int() | float() as number) if not isinstance(number, bool) and number < 0:
            return _text(_constant(value), _Level.UNARY)
        case NodeKey():
            return operands[0]
        case _:
            return _text(_operand(value, operands))


def _operand(value: Value, operands: Sequence[str]) -> str:
    """The text of a value that needs no parentheses anywhere."""
    match value:
        case PropertyValue():
            return _of_variable(value.variable, value.prop.name)
        case UnionProperty():
            names = [part.prop.name for part in value.parts if part is not None]
            lenient = "?" if len(names) < len(value.parts) else ""
            return _of_variable(value.variable, (names or ["null"])[0]) + lenient
        case MetaValue():
            return _of_variable(value.variable, value.field.value)
        case EntityValue() | VariableValue():
            return f"${value.variable}"
        case ParameterValue():
            return f"${value.name}"
        case Constant():
            return _constant(value)
        case Now():
            return "now()"
        case TextMatch():
            more = [_search_operand(o) for o in (value.query, value.max_edits) if o is not None]
            return f"{value.function.value}({', '.join((operands[0], *more))})"
        case ListOf():
            return f"[{', '.join(operands)}]"
        case Score():
            return _ranking(value.rank, operands)
        case OutputValue():
            return f"column {value.index + 1}"
        case _:
            return _call(value, operands)


def _call(value: Value, operands: Sequence[str]) -> str:
    """The text of whatever looks like a call."""
    match value:
        case Call():
            return f"{value.function}({', '.join(operands)})"
        case Case():
            return _case(value, operands)
        case Record():
            fields = zip((name for name, _ in value.type.fields), operands, strict=True)
            return f"record({', '.join(f'{name}: {text}' for name, text in fields)})"
        case Field(record=VariableValue() as record):
            return f"${record.variable}.{value.name}"
        case Field():
            return f"field({operands[0]}, {_quote(value.name)})"
        case ListForm():
            condition = f" where {operands[1]}" if value.condition is not None else ""
            return f"{value.function.value}(${value.variable} in {operands[0]}{condition} : {operands[-1]})"
        case Reduce():
            initial, items, body = operands
            return f"reduce(${value.accumulator} = {initial}, ${value.variable} in {items} : {body})"
        case MakePath():
            return f"path({', '.join(operands)})"
        case AggregateValue():
            return _aggregate(value, operands)
    raise AssertionError(f"{type(value).__name__} has no text")


def _of_variable(variable: str, name: str) -> str:
    return name if variable == ROW else f"${variable}.{name}"


def _case(value: Case, operands: Sequence[str]) -> str:
    parts = iter(operands)
    words = ["case"]
    if value.operand is not None:
        words.append(next(parts))
    for _ in value.branches:
        words += ["when", next(parts), "then", next(parts)]
    if value.otherwise is not None:
        words += ["else", next(parts)]
    return " ".join((*words, "end"))


def _aggregate(value: AggregateValue, operands: Sequence[str]) -> str:
    distinct = "distinct " if value.distinct else ""
    argument = operands[0] if operands else "*"
    fraction = "" if value.fraction is None else f", {_search_operand(value.fraction)}"
    return f"{value.function.value}({distinct}{argument}{fraction})"


def _search_operand(operand: Operand) -> str:
    return f"${operand.name}" if isinstance(operand, ParameterValue) else _constant(operand)


def ranking_text(ranking: Ranking) -> str:
    """The ranking as the call that a query writes."""
    return value_text(Score(ranking))


def _ranking(rank: Ranking, fields: Sequence[str]) -> str:
    match rank:
        case NearestRank():
            exact = ", exact: true" if rank.exact else ""
            return f"nearest({fields[0]}, {_search_operand(rank.query)}{exact})"
        case Bm25Rank():
            return f"bm25({fields[0]}, {_search_operand(rank.query)})"
        case FusedRank():
            arms = [_ranking(rank.first, fields[:1]), _ranking(rank.second, fields[1:])]
            more = [] if rank.k is None else [_search_operand(rank.k)]
            return f"rrf({', '.join((*arms, *more))})"


_DATES: Final = {Scalar.DATE: "date", Scalar.DATETIME: "datetime"}


def _constant(constant: Constant) -> str:
    if isinstance(constant.value, tuple):
        return f"[{', '.join(_item(item, constant.type) for item in constant.value)}]"
    return _item(constant.value, constant.type)


def _item(item: ConstantItem, type_: ValueType) -> str:
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if not isinstance(item, str):
        return repr(item)
    function = _DATES.get(type_.scalar) if isinstance(type_, PropertyType) else None
    return _quote(item) if function is None else f"{function}({_quote(item)})"


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


# ---- operators ------------------------------------------------------------------------------------------


def inputs_of(plan: ReadOperator) -> tuple[ReadOperator, ...]:
    """The operators whose rows an operator reads."""
    match plan:
        case Scan() | TypeUnionScan() | Outer():
            return ()
        case CrossJoin():
            return (plan.left, plan.right)
        case AntiJoin() | SemiJoin() | BlockJoin() | OptionalJoin():
            return (plan.input, plan.inner)
        case Fuse():
            return (plan.first, plan.second)
        case UnionAll():
            return plan.inputs
        case _:
            return (plan.input,)


def plan_levels(plan: ReadOperator) -> Iterator[tuple[ReadOperator, int]]:
    """Every operator before its inputs, and how many are above it. An operator that two others read, which are the arms
    of a fusion, comes once."""
    seen: set[int] = set()
    waiting = [(plan, 0)]
    while waiting:
        operator, depth = waiting.pop()
        if id(operator) in seen:
            continue
        seen.add(id(operator))
        yield operator, depth
        waiting += [(below, depth + 1) for below in reversed(inputs_of(operator))]


_ARROWS: Final = {Direction.OUT: "-[{}]->", Direction.IN: "<-[{}]-", Direction.BOTH: "-[{}]-"}


def operator_text(plan: ReadOperator) -> str:
    """What an operator does, in a few words."""
    match plan:
        case Scan() | TypeUnionScan():
            return _scan(plan)
        case Outer():
            return f"Outer {_variables(plan.variables)}".rstrip()
        case Expand():
            edge, arrow = plan.edge.name, _ARROWS[plan.direction]
            hops = _hops(plan.min_hops, plan.max_hops)
            kind = "Close" if plan.closing else "Expand"
            return (
                f"{kind} {_traversal(plan.source, arrow, plan.edge_variable, edge + hops, plan.destination)}"
                + _tests(plan.predicates)
            )
        case ExpandWalk() | PathExpand():
            return _walk(plan)
        case CrossJoin():
            return "CrossJoin"
        case Filter():
            return "Filter" + _tests(plan.predicates)
        case AntiJoin() | SemiJoin():
            return type(plan).__name__ + _on(plan.correlated)
        case BlockJoin():
            value = "exists" if plan.aggregate is None else value_text(plan.aggregate)
            return f"BlockJoin ${plan.output}: {value}" + _on(plan.correlated)
        case OptionalJoin():
            binds = _variables(name for name, _ in plan.introduced)
            return f"OptionalJoin {binds}" + _on(plan.correlated)
        case _:
            return _stage_operator(plan)


def _stage_operator(
    plan: Unwind | Bind | Distinct | UnionAll | Rank | BestNodes | Fuse | Sort | Limit | Project | Aggregate,
) -> str:
    match plan:
        case Unwind():
            return f"Unwind {value_text(plan.items)} as ${plan.variable}"
        case Bind():
            return ("Bind " + ", ".join(_binding(column.variable, column.value) for column in plan.columns)).rstrip()
        case Distinct():
            return "Distinct " + _variables(name for name, _ in plan.variables)
        case UnionAll():
            return f"UnionAll of {len(plan.inputs)}"
        case Rank():
            return f"Rank by {ranking_text(plan.rank)}"
        case BestNodes():
            return f"BestNodes {_count(plan.count)}{_offset(plan.offset)} of ${plan.variable}"
        case Fuse():
            arms = f"{ranking_text(plan.rank.first)} and {ranking_text(plan.rank.second)}"
            return f"Fuse {arms}, best {_count(plan.limit)}{_offset(plan.offset)}"
        case Sort():
            return "Sort by " + ", ".join((*map(_sort_key, plan.keys), *map(_tie, plan.tie_break)))
        case Limit():
            return "Limit" + ("" if plan.count is None else f" {_count(plan.count)}") + _offset(plan.offset)
        case Project() | Aggregate():
            return f"{type(plan).__name__} " + ", ".join(column.name for column in plan.columns)
        case _:
            assert_never(plan)


def _variables(names: Iterable[str]) -> str:
    return ", ".join(f"${name}" for name in names)


def _on(correlated: tuple[str, ...]) -> str:
    return f" on {_variables(correlated)}" if correlated else ""


def _scan(plan: Scan | TypeUnionScan) -> str:
    if isinstance(plan, Scan):
        return f"Scan ${plan.variable}: {plan.type.name}" + _tests(plan.predicates)
    members = " | ".join(scan.type.name + _tests(scan.predicates) for scan in plan.scans)
    return f"TypeUnionScan ${plan.variable}: {members}"


def _hops(low: int, high: int) -> str:
    if (low, high) == (1, 1):
        return ""
    return f"{{{low},{'' if high == UNBOUNDED else high}}}"


def _traversal(source: str, arrow: str, edge_variable: str | None, selection: str, destination: str) -> str:
    named = f"${edge_variable}:" if edge_variable else ""
    return f"${source} {arrow.format(named + selection)} ${destination}"


def _walk(plan: ExpandWalk | PathExpand) -> str:
    walk = plan.walk
    if isinstance(plan, PathExpand):
        kind = f"{'Close path' if plan.closing else 'Path'} ${plan.path}: {plan.mode.value}"
        edge_variable = None
    else:
        kind = "Close" if plan.closing else "Expand"
        edge_variable = plan.edge_variable
    selection = "|".join(member.name for member in walk.edge_members) + _hops(walk.min_hops, walk.max_hops)
    traversal = _traversal(walk.source, _ARROWS[_direction(walk)], edge_variable, selection, walk.destination)
    return f"{kind} {traversal}" + _each(walk) + _tests(plan.predicates)


def _direction(walk: Walk) -> Direction:
    """The direction that all steps have, else both."""
    directions = {step.direction for step in walk.steps}
    return directions.pop() if len(directions) == 1 else Direction.BOTH


def _each(walk: Walk) -> str:
    if walk.each is None:
        return ""
    conditions = " and ".join(map(value_text, walk.each.conditions))
    return f" each ${walk.each.edge} ${walk.each.node} {{ {conditions} }}"


def _binding(variable: str, value: Value) -> str:
    text = value_text(value)
    return text if text == f"${variable}" else f"{text} as ${variable}"


def _sort_key(key: SortKey) -> str:
    nulls = {True: " nulls first", False: " nulls last", None: ""}[key.nulls_first]
    return f"{value_text(key.value)}{' desc' if key.descending else ''}{nulls}"


def _tie(tie: TieBreak) -> str:
    return f"${tie.variable}" if isinstance(tie.type, PathType) else f"${tie.variable}.@id"


def _count(count: Count) -> str:
    return str(count) if isinstance(count, int) else f"${count.name}"


def _offset(offset: Count) -> str:
    return "" if offset == 0 else f" offset {_count(offset)}"


def _tests(predicates: tuple[Predicate, ...]) -> str:
    """The predicates as one conjunction."""
    return " where " + value_text(predicates[0] if len(predicates) == 1 else And(predicates)) if predicates else ""
