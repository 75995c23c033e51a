"""Predicates as text of Lance's filter language, for scans, search prefilters and mutations.

A predicate is pushed only when the text means exactly what the query language means. Under three-valued logic a text
tells apart what is true from the rest, false or null alike. So `not` is not written: the text of a negation finds the
rows for which the negated predicate is false. Terms, nesting, length and listed values are bounded, because Lance
parses the text by recursion on a native stack. Predicates beyond the bounds are tested on values by `scan`, with the
same result. Text properties are looked up in the column whose index can find them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from omnigraph.engine.query.context import Plain, ReadContext
from omnigraph.engine.query.operators.filter_literals import (
    ALWAYS,
    NEVER,
    exact_literals,
    exact_numbers,
    literal_text,
    number_test,
    number_text,
)
from omnigraph.engine.query.values.evaluate import constant_value, is_constant
from omnigraph.engine.query.values.stored import META_COLUMNS
from omnigraph.engine.rows.end_ids import end_of_column, stored_id
from omnigraph.language.catalog import EdgeEnd, IndexKind, NodeType, Property, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.types import PropertyType
from omnigraph.storage.tables.rows import identifier, one_of, string_literal

# N-grams are three letters or digits of ASCII in a row; a text without any can't be looked up in them.
_NGRAM: Final = re.compile(r"[A-Za-z0-9]{3}", re.ASCII)
# Each text costs a lookup; from here on one scan of the column costs less.
_MOST_LOOKUPS: Final = 16

# Tens of thousands of terms overflow the stack. These are few enough for any thread, and more than an index helps with.
MOST_TERMS: Final = 256
MOST_NESTED: Final = 16
MOST_CHARACTERS: Final = 1 << 18
# A list of values is flat; from here on a scan of the column costs about as much as the lookups.
MOST_VALUES: Final = 10_000

# The most selective tests go first where not all of them fit.
_SELECTIVE: Final = {ir.Operator.EQUAL: 0, ir.Operator.MEMBER: 0, ir.Operator.PREFIX: 1, ir.Operator.NOT_EQUAL: 3}
_RANGE: Final = 2

_FLIPPED: Final = {
    ir.Operator.EQUAL: ir.Operator.EQUAL,
    ir.Operator.NOT_EQUAL: ir.Operator.NOT_EQUAL,
    ir.Operator.LESS: ir.Operator.GREATER,
    ir.Operator.LESS_OR_EQUAL: ir.Operator.GREATER_OR_EQUAL,
    ir.Operator.GREATER: ir.Operator.LESS,
    ir.Operator.GREATER_OR_EQUAL: ir.Operator.LESS_OR_EQUAL,
}
# No column holds NaN, so of two values that are not null each test has an opposite.
_OPPOSITE: Final = {
    ir.Operator.EQUAL: ir.Operator.NOT_EQUAL,
    ir.Operator.NOT_EQUAL: ir.Operator.EQUAL,
    ir.Operator.LESS: ir.Operator.GREATER_OR_EQUAL,
    ir.Operator.LESS_OR_EQUAL: ir.Operator.GREATER,
    ir.Operator.GREATER: ir.Operator.LESS_OR_EQUAL,
    ir.Operator.GREATER_OR_EQUAL: ir.Operator.LESS,
}


def split_pushdown(
    predicates: Iterable[ir.Predicate], context: ReadContext
) -> tuple[str | None, tuple[ir.Predicate, ...]]:
    """One filter text for all predicates that can be pushed and fit, and the others."""
    conjuncts = tuple(part for predicate in predicates for part in ir.conjuncts(predicate))
    texts: dict[int, str] = {}
    for i, predicate in enumerate(conjuncts):
        text = _text_of(predicate, context)
        if text == NEVER:
            return NEVER, ()
        if text is not None:
            texts[i] = text
    budget = _FilterBudget()
    pushed = sorted(i for i in sorted(texts, key=lambda i: _selectivity(conjuncts[i])) if budget.takes(texts[i]))
    rest = tuple(p for i, p in enumerate(conjuncts) if i not in pushed)
    return " AND ".join(texts[i] for i in pushed if texts[i] != ALWAYS) or None, rest


def filter_text(predicate: ir.Predicate, context: ReadContext) -> str | None:
    """The filter text of a whole predicate, None when a part of it can't be pushed or all is too much together."""
    budget = _FilterBudget()
    texts = []
    for part in ir.conjuncts(predicate):
        text = _text_of(part, context)
        if text is None or not budget.takes(text):
            return None
        texts.append(text)
    return _join_texts(texts, is_all=True)


def _selectivity(predicate: ir.Predicate) -> int:
    match predicate:
        case ir.Compare():
            return _SELECTIVE.get(predicate.operator, _RANGE)
        case ir.In():
            return _SELECTIVE[ir.Operator.MEMBER]
        case ir.Not():
            return _SELECTIVE[ir.Operator.NOT_EQUAL]
    return _RANGE


class _FilterBudget:
    """What a filter text may still grow by."""

    def __init__(self) -> None:
        self._terms, self._characters = MOST_TERMS, MOST_CHARACTERS

    def takes(self, text: str) -> bool:
        """Whether another part fits, and if so less room."""
        # A literal may hold the words as well, which then count as terms: the bound only gets safer.
        terms = 1 + text.count(" OR ") + text.count(" AND ")
        if terms > self._terms or len(text) > self._characters:
            return False
        self._terms -= terms
        self._characters -= len(text)
        return True


# ---- predicates -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """A stored column that a predicate tests: that of a property, or one that every entity has. Its name tells it from
    the others of the table."""

    name: str
    type: PropertyType = field(compare=False)
    owner: TableType = field(compare=False)
    prop: Property | None = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A test of a column against constants: that it `is_one` of them, or is none of them and not null. `alone` is its
    text as long as no other test has joined it."""

    column: _Column
    constants: tuple[Plain, ...]
    is_one: bool
    alone: str | None = None


_Part: TypeAlias = "str | _Listed"
"""The text of a part of a predicate, or a test that may still become one with others of the same column."""


def _text_of(predicate: ir.Predicate, context: ReadContext) -> str | None:
    parts = list(ir.walk(predicate))
    if any(isinstance(part, ir.TextMatch | ir.Score) for part in parts):
        return None
    if any(_settle(part, context) is not part for part in parts):
        predicate = ir.rebuild(predicate, lambda part: _settle(part, context))
    part = _part(predicate, True, context, MOST_NESTED)
    return _listed_text(part) if isinstance(part, _Listed) else part


def _settle(value: ir.Value, context: ReadContext) -> ir.Value:
    """A constant for what is the same in every row of a scan: the type, and a property that the snapshot lacks."""
    match value:
        case ir.MetaValue(field=MetaField.TYPE, members=(member,)):
            return ir.Constant(member.name, ir.STRING)
        case ir.PropertyValue() if not context.has_column(value):
            return ir.Constant(None, value.type.as_nullable())
    return value


def _part(predicate: ir.Predicate, wanted: bool, context: ReadContext, depth: int) -> _Part | None:
    """The text that finds the rows for which a predicate is true, or with `wanted=False` false, if there is one."""
    match predicate:
        case ir.Not():
            return _part(predicate.operand, not wanted, context, depth - 1) if depth else None
        case ir.And() | ir.Or():
            is_all = isinstance(predicate, ir.And) is wanted
            return _join(predicate.operands, wanted, context, depth, is_all=is_all)
        case _ if is_constant(predicate):
            return ALWAYS if constant_value(predicate, context) is wanted else NEVER
        case ir.IsNull():
            return _null_test(predicate.operand, (not predicate.negated) is wanted)
        case ir.In():
            return _in_test(predicate, wanted, context)
        case ir.Compare():
            return _comparison(predicate, wanted, context)
    column = _column(predicate)
    return None if column is None else f"{identifier(column.name)} = {literal_text(ir.BOOL, wanted)}"


def _join(
    predicates: Sequence[ir.Predicate], wanted: bool, context: ReadContext, depth: int, *, is_all: bool
) -> _Part | None:
    """All of some parts, or any of them. Tests of one column become one list: `x = 1 or x = 2` is one lookup."""
    if not depth or len(predicates) > MOST_VALUES:
        return None
    parts: dict[object, list[_Part]] = {}
    for i, predicate in enumerate(predicates):
        context.cancellation.check()
        part = _part(predicate, wanted, context, depth - 1)
        if part is None or len(parts) > MOST_TERMS:
            return None
        place = part.column if isinstance(part, _Listed) and part.is_one is not is_all else i
        parts.setdefault(place, []).append(part)
    joined = [_one_test(tests) for tests in parts.values()]
    if len(joined) == 1:
        return joined[0]
    texts = [_listed_text(part) if isinstance(part, _Listed) else part for part in joined]
    return None if None in texts else _join_texts([text for text in texts if text is not None], is_all=is_all)


def _one_test(tests: Sequence[_Part]) -> _Part:
    """Tests of one column as one; a test that joins no other stays as it is."""
    first = tests[0]
    if len(tests) == 1 or not isinstance(first, _Listed):
        return first
    constants = tuple(constant for test in tests if isinstance(test, _Listed) for constant in test.constants)
    return _Listed(first.column, constants, first.is_one)


def _join_texts(texts: Sequence[str], *, is_all: bool) -> str:
    neutral, decisive = (ALWAYS, NEVER) if is_all else (NEVER, ALWAYS)
    texts = [text for text in texts if text != neutral]
    if decisive in texts or not texts:
        return decisive if texts else neutral
    return texts[0] if len(texts) == 1 else f"({(' AND ' if is_all else ' OR ').join(texts)})"


def _column(value: ir.Value) -> _Column | None:
    match value:
        case ir.PropertyValue():
            return _Column(value.prop.column, value.prop.type, value.owner, value.prop)
        case ir.MetaValue(members=(member,), field=field) if field in META_COLUMNS:
            return _Column(META_COLUMNS[field], ir.STRING, member)
    return None


def _null_test(operand: ir.Value, is_null: bool) -> str | None:
    match operand:
        case ir.PropertyValue():
            return f"{identifier(operand.prop.column)} IS {'NULL' if is_null else 'NOT NULL'}"
        case ir.MetaValue() | ir.EntityValue():  # of the row itself
            return NEVER if is_null else ALWAYS
    return None


def _in_test(test: ir.In, wanted: bool, context: ReadContext) -> _Part | None:
    """A column in a list of constants, or a constant in a list property, whose items are never null."""
    if is_constant(test.item):
        column = _column(test.items)
        return None if column is None else _membership(column, constant_value(test.item, context), wanted)
    column = _column(test.item)
    if column is None or not is_constant(test.items) or not _is_single(column.type):
        return None
    constants = constant_value(test.items, context)
    assert constants is None or isinstance(constants, list)
    if constants is None or (not wanted and None in constants):
        return NEVER
    if (end := _tagged_end(column)) is not None:
        return _Listed(column, _stored_ends(end, constants), wanted)
    return _Listed(column, _not_null(constants), wanted)


def _comparison(test: ir.Compare, wanted: bool, context: ReadContext) -> _Part | None:
    """A comparison of a column with a constant."""
    operator, left, right = test.operator, test.left, test.right
    is_flipped = is_constant(left)
    if is_flipped:
        left, right = right, left
    column = _column(left)
    if column is None or not is_constant(right):
        return None
    constant = constant_value(right, context)
    if constant is None:
        return NEVER
    if (end := _tagged_end(column)) is not None:
        if operator not in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL) or not isinstance(constant, str):
            return None
        return _Listed(column, _stored_ends(end, [constant]), (operator is ir.Operator.EQUAL) is wanted)
    if isinstance(constant, list):
        is_listed = is_flipped and operator is ir.Operator.MEMBER
        return _Listed(column, _not_null(constant), wanted) if is_listed else None
    if operator is ir.Operator.MEMBER:
        return _membership(column, constant, wanted)
    if is_flipped and operator not in _FLIPPED:
        return None
    return _test(column, _FLIPPED[operator] if is_flipped else operator, constant, wanted)


def _tagged_end(column: _Column) -> EdgeEnd | None:
    """The end of an edge whose tagged ids a column holds."""
    return None if column.prop is not None else end_of_column(column.owner, column.name)


def _stored_ends(end: EdgeEnd, ids: Iterable[Plain]) -> tuple[Plain, ...]:
    """The stored forms of some ids of nodes, which may be of any type of the end."""
    return tuple(stored_id(end, node, each) for each in ids if isinstance(each, str) for node in end.types)


def _not_null(constants: Iterable[Plain]) -> tuple[Plain, ...]:
    return tuple(constant for constant in constants if constant is not None)


def _is_single(type_: PropertyType) -> bool:
    return not (type_.list or type_.is_vector)


# ---- tests of one column --------------------------------------------------------------------------------


def _membership(column: _Column, constant: Plain | list[Plain], wanted: bool) -> str | None:
    """Whether a list holds a constant."""
    if constant is None:
        return NEVER
    if isinstance(constant, list):
        return None
    name = identifier(column.name)
    tests = [f"array_has({name}, {item})" for item in exact_literals(column.type.item, constant)]
    if wanted:
        return f"({' OR '.join(tests)})" if tests else NEVER
    return f"({' AND '.join(f'NOT {test}' for test in tests)})" if tests else f"{name} IS NOT NULL"


def _test(column: _Column, operator: ir.Operator, constant: Plain, wanted: bool) -> _Part | None:
    name = identifier(_compared_column(column) if operator is not ir.Operator.SUBSTRING else column.name)
    if operator in (ir.Operator.SUBSTRING, ir.Operator.PREFIX):
        assert isinstance(constant, str)
        function = "contains" if operator is ir.Operator.SUBSTRING else "starts_with"
        return f"{'' if wanted else 'NOT '}{function}({name}, {string_literal(constant)})"
    if isinstance(constant, float) and math.isnan(constant):
        return f"{name} IS NOT NULL" if (operator is ir.Operator.NOT_EQUAL) is wanted else NEVER
    operator = operator if wanted else _OPPOSITE[operator]
    if column.type.is_numeric:
        assert isinstance(constant, int | float)
        text = number_test(name, column.type.scalar, operator, constant)
    elif operator is ir.Operator.EQUAL and column.type.is_free_text and column.prop is not None:
        text = equals_any(column.owner, column.prop, [str(constant)])
    else:
        text = f"{name} {operator.value} {literal_text(column.type, constant)}"
    if operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL):
        return _Listed(column, (constant,), operator is ir.Operator.EQUAL, text)
    return text


def _compared_column(column: _Column) -> str:
    """The column in which whole values are compared."""
    if column.prop is None or not column.type.is_free_text:
        return column.name
    return lookup_column(column.owner, column.prop)


def _listed_text(listed: _Listed) -> str | None:
    if listed.alone is not None:
        return listed.alone
    if len(listed.constants) > MOST_VALUES:
        return None
    column, type_ = listed.column, listed.column.type
    constants = dict.fromkeys(listed.constants)
    name = identifier(_compared_column(column))
    if type_.is_free_text and constants and listed.is_one and column.prop is not None:
        return equals_any(column.owner, column.prop, [str(constant) for constant in constants])
    if type_.is_numeric:
        numbers = (n for c in constants if isinstance(c, int | float) for n in exact_numbers(type_.scalar, c))
        values = [number_text(number) for number in numbers]
    else:
        values = [literal_text(type_, constant) for constant in constants]
    if listed.is_one:
        return f"{name} IN ({', '.join(values)})" if values else NEVER
    others = f"{name} NOT IN ({', '.join(values)})"
    if not type_.nullable:
        return others if values else ALWAYS
    # The store makes `true` of `x NOT IN (1) OR x NOT IN (2)`, although null is in neither.
    return f"({name} IS NOT NULL AND {others})" if values else f"{name} IS NOT NULL"


def lookup_column(owner: TableType, prop: Property) -> str:
    """The column in which the whole text of a property is compared: a text key is the id, which has a BTREE."""
    if _has_ngrams(owner, prop) and isinstance(owner, NodeType) and owner.key == (prop.name,):
        return "id"
    return prop.column


def equals_any(owner: TableType, prop: Property, texts: Sequence[str]) -> str:
    """The filter for rows whose property is one of `texts`."""
    column = lookup_column(owner, prop)
    # One list, however many texts: alternatives would nest, and the store's parser with them.
    equal = one_of(column, texts) if len(texts) > 1 else f"{identifier(column)} = {string_literal(texts[0])}"
    has_lookups = column == prop.column and _has_ngrams(owner, prop)
    if not has_lookups or len(texts) > _MOST_LOOKUPS or not all(map(_NGRAM.search, texts)):
        return equal
    tests = [f"contains({identifier(column)}, {string_literal(text)})" for text in texts]
    return f"({equal} AND {tests[0]})" if len(tests) == 1 else f"({equal} AND ({' OR '.join(tests)}))"


def _has_ngrams(owner: TableType, prop: Property) -> bool:
    return IndexKind.NGRAM in owner.index_kinds(prop.name)
