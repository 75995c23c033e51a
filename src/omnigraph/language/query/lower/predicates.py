"""Conditions on their way to the operator that tests them: split at `and`, waiting for their variables, and adapted to
the scans of single types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.query.value_types import (
    BOOL,
    F64,
    STRING,
    EntityType,
    ValueType,
    as_nullable,
    is_number,
    list_of,
)
from omnigraph.language.types import FLOATS, PropertyType


def split_filters(clauses: Iterable[resolved.Clause]) -> list[resolved.Clause]:
    """The clauses with one filter for each condition."""
    split: list[resolved.Clause] = []
    for clause in clauses:
        if isinstance(clause, resolved.Filter) and isinstance(clause.predicate, ir.And):
            split += map(resolved.Filter, ir.conjuncts(clause.predicate))
        else:
            split.append(clause)
    return split


def restatement_tests(binding: resolved.Binding, type_: ValueType | None) -> Iterator[ir.Predicate]:
    """What a clause asks of a variable that is bound with `type_`: to be bound at all, and to one of its types."""
    if not isinstance(type_, EntityType) or (type_.members == binding.types and not type_.nullable):
        return
    wanted = tuple(node.name for node in binding.types)
    if not set(type_.type_names).issubset(wanted):
        type_name = ir.MetaValue(binding.variable, type_.members, MetaField.TYPE, type_.nullable)
        if len(wanted) == 1:
            yield ir.Compare(type_name, ir.Operator.EQUAL, ir.Constant(wanted[0], STRING))
        else:
            yield ir.In(type_name, ir.Constant(wanted, list_of(STRING)))
    elif type_.nullable:
        yield ir.IsNull(ir.EntityValue(binding.variable, type_), negated=True)


class Pending:
    """Predicates waiting for their variables, found by the variable that came last."""

    def __init__(self, predicates: Iterable[ir.Predicate]) -> None:
        self._waiting: dict[int, tuple[ir.Predicate, frozenset[str]]] = {}
        self._mentioning: dict[str, list[int]] = {}
        for i, predicate in enumerate(predicates):
            names = ir.predicate_variables(predicate)
            self._waiting[i] = (predicate, names)
            for name in names:
                self._mentioning.setdefault(name, []).append(i)

    def take(self, fresh: Iterable[str], bound: AbstractSet[str]) -> list[ir.Predicate]:
        """Those that mention something `fresh` and nothing that is not bound, in source order."""
        waiting = self._waiting
        if not waiting:
            return []
        candidates = {i for name in fresh for i in self._mentioning.get(name, ()) if i in waiting}
        ready = [i for i in candidates if waiting[i][1] <= bound]
        return [waiting.pop(i)[0] for i in sorted(ready)]

    def take_only(self, variable: str) -> list[ir.Predicate]:
        """Those that mention this variable alone."""
        return self.take((variable,), {variable})

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take_constant(self) -> list[ir.Predicate]:
        """Those that mention no variable, and decide about every row alike."""
        ready = [i for i, (_, names) in self._waiting.items() if not names]
        return [self._waiting.pop(i)[0] for i in ready]


# ---- scans of several types -----------------------------------------------------------------------------


def scan_of(variable: str, members: tuple[NodeType, ...], predicates: Iterable[ir.Predicate]) -> ir.ReadOperator:
    """Every node of the members for which the predicates are true. Each member is scanned with its own form of them,
    and left out when they are never true of it."""
    predicates = tuple(predicates)
    if len(members) == 1:
        return ir.Scan(variable, members[0], predicates)
    scans: list[ir.Scan] = []
    for position, member in enumerate(members):
        own = [_of_member(predicate, position, member) for predicate in predicates]
        truths = [_constant_truth(predicate) for predicate in own]
        if False not in truths:
            kept = (predicate for predicate, truth in zip(own, truths, strict=True) if truth is None)
            scans.append(ir.Scan(variable, member, tuple(kept)))
    return ir.TypeUnionScan(variable, members, tuple(scans))


def _of_member(predicate: ir.Predicate, position: int, member: NodeType) -> ir.Predicate:
    """The predicate for rows of which the variable is one of its members."""

    def narrow(value: ir.Value) -> ir.Value:
        match value:
            case ir.UnionProperty():
                part = value.parts[position]
                return value if part is None else _widen(part, value.type)
            case ir.MetaValue(field=MetaField.TYPE):
                return ir.Constant(member.name, STRING)
            case ir.MetaValue():
                return replace(value, members=(member,))
            case ir.EntityValue():
                return replace(value, type=EntityType((member,)))
            case ir.TextMatch(field=ir.UnionProperty()):
                return ir.Constant(False, BOOL)
        return value

    def fill(value: ir.Value) -> ir.Value:
        return ir.Constant(None, as_nullable(value.type)) if isinstance(value, ir.UnionProperty) else value

    return ir.rebuild(ir.rebuild(predicate, narrow), fill)


def _widen(part: ir.PropertyValue, type_: ValueType) -> ir.Value:
    """The property of one member as a value of the type that all members have in common. Integers stay as they are:
    everything calculates with them alike."""
    becomes_float = is_number(type_) and isinstance(type_, PropertyType) and type_.scalar in FLOATS
    if not becomes_float or part.type.scalar is F64.scalar:
        return part
    return ir.Call("to_float", (part,), F64.as_nullable(part.type.nullable), "to_float()")


def _constant_truth(predicate: ir.Predicate) -> bool | None:
    """Whether a test of nothing but constant texts is true, or None where only the rows can tell. A comparison with
    null is never true."""
    match predicate:
        case ir.Compare(left=ir.Constant(value=None)) | ir.Compare(right=ir.Constant(value=None)):
            return False
        case ir.Compare(left=ir.Constant(type=left_type) as left, right=ir.Constant(type=right_type) as right):
            if left_type != STRING or right_type != STRING:
                return None
            if predicate.operator is ir.Operator.EQUAL:
                return left.value == right.value
            return left.value != right.value if predicate.operator is ir.Operator.NOT_EQUAL else None
        case ir.In(item=ir.Constant(value=str() as item, type=type_), items=ir.Constant(value=tuple() as items)):
            return item in items if type_ == STRING and all(isinstance(i, str) for i in items) else None
        case ir.Constant(value=bool() as truth):
            return truth
    return None
