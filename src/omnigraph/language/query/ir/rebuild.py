"""Values made of other values: the same tree with some of its parts replaced.

Code that renames a variable, binds a parameter or carries a value over to another schema says what one part becomes;
the rest of the tree follows from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from omnigraph.language.query.ir.values import (
    AggregateValue,
    And,
    Arithmetic,
    Bm25Rank,
    Branch,
    Call,
    Case,
    Compare,
    Field,
    FusedRank,
    In,
    IsNull,
    ListForm,
    ListOf,
    MakePath,
    NearestRank,
    Negative,
    NodeKey,
    Not,
    Or,
    PropertyValue,
    Ranking,
    Record,
    Reduce,
    Score,
    TextMatch,
    UnionProperty,
    Value,
    operands_of,
)


def rebuild(value: Value, change: Callable[[Value], Value]) -> Value:
    """The value with every part of it replaced by what `change` makes of it, the parts of a part first. What does not
    change stays the same object. A loop: values may be deep."""
    finished: list[Value] = []
    waiting = [(value, False)]
    while waiting:
        part, is_complete = waiting.pop()
        operands = operands_of(part)
        if operands and not is_complete:
            waiting.append((part, True))
            waiting += [(operand, False) for operand in reversed(operands)]
            continue
        if operands:
            changed = finished[-len(operands) :]
            del finished[-len(operands) :]
            if any(now is not before for now, before in zip(changed, operands, strict=True)):
                part = _with_operands(part, changed)
        finished.append(change(part))
    return finished[0]


def _with_operands(value: Value, operands: Sequence[Value]) -> Value:
    """The same value of other operands, as `operands_of` lists them."""
    parts = iter(operands)
    match value:
        case Compare() | Arithmetic():
            return replace(value, left=next(parts), right=next(parts))
        case And() | Or():
            return replace(value, operands=tuple(parts))
        case Not() | IsNull() | Negative():
            return replace(value, operand=next(parts))
        case NodeKey():
            return replace(value, key=next(parts))
        case AggregateValue():
            return replace(value, argument=next(parts))
        case In():
            return replace(value, item=next(parts), items=next(parts))
        case Call():
            return replace(value, arguments=tuple(parts))
        case Case():
            return _case(value, parts)
        case ListOf():
            return replace(value, items=tuple(parts))
        case Record():
            return replace(value, values=tuple(parts))
        case Field():
            return replace(value, record=next(parts))
        case ListForm():
            items = next(parts)
            condition = None if value.condition is None else next(parts)
            return replace(value, items=items, condition=condition, body=next(parts))
        case Reduce():
            return replace(value, initial=next(parts), items=next(parts), body=next(parts))
        case MakePath():
            return replace(value, parts=tuple(parts))
        case UnionProperty():
            fields = tuple(None if part is None else cast(PropertyValue, next(parts)) for part in value.parts)
            return replace(value, parts=fields)
        case TextMatch():
            return replace(value, field=_field(next(parts)))
        case Score():
            return replace(value, rank=_ranking(value.rank, parts))
    raise AssertionError(f"{type(value).__name__} has no operands")


def _case(value: Case, parts: Iterator[Value]) -> Case:
    operand = None if value.operand is None else next(parts)
    branches = tuple(Branch(next(parts), next(parts)) for _ in value.branches)
    return replace(value, operand=operand, branches=branches, otherwise=next(parts, None))


def _ranking(rank: Ranking, parts: Iterator[Value]) -> Ranking:
    match rank:
        case FusedRank():
            first, second = _ranking(rank.first, parts), _ranking(rank.second, parts)
            assert isinstance(first, NearestRank | Bm25Rank)
            assert isinstance(second, NearestRank | Bm25Rank)
            return replace(rank, first=first, second=second)
        case NearestRank() | Bm25Rank():
            return replace(rank, field=_field(next(parts)))


def _field(value: Value) -> PropertyValue | UnionProperty:
    assert isinstance(value, PropertyValue | UnionProperty), "a search looks at a property"
    return value
