"""Three-valued logic: a predicate finds the same rows inside the Lance scan, on values, and in plain Python."""

from __future__ import annotations

import json
import math
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.engine.query.bindings import Bindings
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.pushdown import filter_text, split_pushdown
from omnigraph.engine.query.operators.scan import scan
from omnigraph.engine.query.read import context_of
from omnigraph.engine.query.values.predicates import filter_rows, predicate_mask
from omnigraph.engine.query.visibility import row_filter_mask
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import UNRESTRICTED, simplify
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.storage.tables.rows import row_ids_of

SCHEMA = """
node Row {
    key: String @key
    s: String? INDEX
    e: enum(a, b)? INDEX
    i: I32? INDEX
    u: U64?
    w: U32?
    l: I64? INDEX
    f: F32?
    d: F64? INDEX
    t: Bool? INDEX
    day: Date? INDEX
    at: DateTime? INDEX
    ls: [String]?
    li: [I32]?
}
"""
TEXTS = ("", "a", "A", "ab", "a'b", "%", "a%", "\\", "é", "xabcx", "abc", "null", "a AND b")
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 5, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1,
    0.0, -0.0, 0.1, float(np.float32(0.1)), 1.5, -1.5, 2.0**53, 1e30, 1e300, -1e300, math.inf, -math.inf, math.nan,
)  # fmt: skip
DAYS = ("1969-12-31", "1970-01-01", "2024-02-29")
INSTANTS = ("1970-01-01T00:00:00.000Z", "2026-11-17T06:00:00.000Z", "2131-01-01T00:00:00.001Z")
STORED: dict[str, tuple[Any, ...]] = {
    "s": TEXTS,
    "e": ("a", "b"),
    "i": (0, 1, -1, 5, 2**31 - 1, -(2**31)),
    "u": (0, 1, 2**53 + 1, 2**63, 2**64 - 1),
    "w": (0, 1, 7, 2**32 - 1),
    "l": (0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    "f": (0.0, -0.0, float(np.float32(0.1)), 1.5, -1.5, 16777216.0),
    "d": (0.0, -0.0, 0.1, 1.5, 9007199254740992.0, -1e300),
    "t": (True, False),
    "day": DAYS,
    "at": INSTANTS,
    "ls": ([], ["a"], ["ab", "%"], ["é"], ["abc", "a", "a"]),
    "li": ([], [0], [1, 5], [-1]),
}
CONSTANTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("iuwlfd", NUMBERS),
    "s": TEXTS,
    "e": ("a", "b", "c", ""),
    "t": (True, False),
    "day": DAYS,
    "at": INSTANTS,
}
ITEMS: dict[str, tuple[Any, ...]] = {"ls": TEXTS, "li": NUMBERS}
MEMBERS = {"ls": ir.STRING, "li": ir.I64}
ORDERED = [op for op in ir.Operator if op not in (ir.Operator.SUBSTRING, ir.Operator.PREFIX, ir.Operator.MEMBER)]
KEYS = ("k0", "k7", "k99", "a")
Row = Mapping[str, Any]


def three_valued(graph: Graph) -> NodeType:
    return graph.catalog.nodes["Row"]


def stored(type_: NodeType, name: str) -> ir.PropertyValue:
    return ir.PropertyValue(ir.ROW, type_, type_.properties[name])


def constant(value: Any, like: PropertyType) -> ir.Constant:
    """Numbers have the type that a literal or a parameter would have."""
    type_ = like.as_nullable(value is None)
    if like.is_numeric and value is not None:
        type_ = ir.F64 if isinstance(value, float) else PropertyType(Scalar.U64 if value >= 2**63 else Scalar.I64)
    return ir.Constant(value, type_)


def listed(values: list[Any], like: PropertyType) -> ir.Constant:
    whole = all(value is None or isinstance(value, int) for value in values)
    scalar = like.scalar if not like.is_numeric else Scalar.F64 if not whole else Scalar.I64
    return ir.Constant(tuple(values), PropertyType(scalar, list=True))


def leaves(type_: NodeType) -> st.SearchStrategy[ir.Value]:
    singles = st.sampled_from(sorted(CONSTANTS))
    lists = st.sampled_from(sorted(ITEMS))

    @st.composite
    def leaf(draw: Any) -> ir.Value:
        name = draw(singles)
        left, like = stored(type_, name), type_.properties[name].type.as_nullable(False)
        values = st.one_of(st.none(), *[st.sampled_from(CONSTANTS[name])] * 6)
        match draw(st.integers(0, 9)):
            case 0:
                return ir.IsNull(stored(type_, draw(st.sampled_from(sorted(STORED)))), draw(st.booleans()))
            case 1 | 2:
                chosen = draw(st.lists(values, max_size=4))
                if like.is_numeric:  # one type for all: the integers that it holds, or floats
                    fitting = [v for v in chosen if v is None or (isinstance(v, int) and -(2**63) <= v < 2**63)]
                    chosen = fitting if draw(st.booleans()) else [v for v in chosen if not isinstance(v, int)]
                items = listed(chosen, like)
                if draw(st.booleans()):
                    return ir.Compare(items, ir.Operator.MEMBER, left)
                return ir.In(left, items)
            case 3:
                name = draw(lists)
                item = constant(draw(st.one_of(st.none(), st.sampled_from(ITEMS[name]))), MEMBERS[name])
                held = stored(type_, name)
                return draw(st.sampled_from([ir.In(item, held), ir.Compare(held, ir.Operator.MEMBER, item)]))
            case 4:
                other = draw(st.sampled_from(["id", "s"]))
                text = ir.MetaValue(ir.ROW, (type_,), MetaField.ID) if other == "id" else stored(type_, "s")
                part = ir.Constant(draw(st.sampled_from(TEXTS + KEYS)), ir.STRING)
                tests = [*ORDERED, ir.Operator.SUBSTRING, ir.Operator.PREFIX]
                return ir.Compare(text, draw(st.sampled_from(tests)), part)
            case 5:
                return stored(type_, "t")
            case 6:
                kind = ir.MetaValue(ir.ROW, (type_,), MetaField.TYPE)
                return ir.Compare(kind, ir.Operator.EQUAL, ir.Constant(draw(st.sampled_from(["Row", "R"])), ir.STRING))
            case 7:
                numbers = st.sampled_from(["i", "u", "w", "l", "f", "d"])
                return ir.Compare(
                    stored(type_, draw(numbers)), draw(st.sampled_from(ORDERED)), stored(type_, draw(numbers))
                )
        sides = [left, constant(draw(values), like)]
        if draw(st.booleans()):
            sides.reverse()
        return ir.Compare(sides[0], draw(st.sampled_from(ORDERED)), sides[1])

    return leaf()


def predicates(type_: NodeType) -> st.SearchStrategy[ir.Value]:
    def larger(inner: st.SearchStrategy[ir.Value]) -> st.SearchStrategy[ir.Value]:
        several = st.lists(inner, min_size=1, max_size=4).map(tuple)
        return st.one_of(several.map(ir.And), several.map(ir.Or), inner.map(ir.Not))

    return st.recursive(leaves(type_), larger, max_leaves=8)


# ---- the reference ----------------------------------------------------------------------------------------

TESTS: dict[ir.Operator, Callable[[Any, Any], bool]] = {
    ir.Operator.EQUAL: operator.eq,
    ir.Operator.NOT_EQUAL: operator.ne,
    ir.Operator.LESS: operator.lt,
    ir.Operator.LESS_OR_EQUAL: operator.le,
    ir.Operator.GREATER: operator.gt,
    ir.Operator.GREATER_OR_EQUAL: operator.ge,
    ir.Operator.SUBSTRING: operator.contains,
    ir.Operator.PREFIX: str.startswith,
    ir.Operator.MEMBER: lambda items, item: any(item == each for each in items if each is not None),
}


def outcome(value: ir.Value, row: Row) -> Any:
    """What the specification says a value is."""
    match value:
        case ir.PropertyValue():
            return row[value.prop.name]
        case ir.MetaValue():
            return {MetaField.ID: row["key"], MetaField.TYPE: "Row"}[value.field]
        case ir.Constant():
            return value.value
        case ir.IsNull():
            return (outcome(value.operand, row) is None) is not value.negated
        case ir.Not():
            whole = outcome(value.operand, row)
            return None if whole is None else not whole
        case ir.And() | ir.Or():
            outcomes = [outcome(part, row) for part in value.operands]
            decisive = isinstance(value, ir.Or)
            return decisive if decisive in outcomes else None if None in outcomes else not decisive
        case ir.Compare():
            left, right = outcome(value.left, row), outcome(value.right, row)
            return None if left is None or right is None else TESTS[value.operator](left, right)
        case ir.In():
            item, items = outcome(value.item, row), outcome(value.items, row)
            if item is None or items is None:
                return None
            return True if any(item == each for each in items) else None if None in items else False
    raise AssertionError(value)


# ---- the law ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    chosen = random.Random(11)
    return [
        {"key": f"k{i}", **{name: chosen.choice((None, *values)) for name, values in STORED.items()}}
        for i in range(120)
    ]


@pytest.fixture(scope="module", params=["@index", ""])
def graph(
    request: pytest.FixtureRequest, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Graph]:
    """Indexes know some of the rows, and values that some rows no longer have."""
    with omnigraph.init(tmp_path_factory.mktemp("law") / "g", SCHEMA.replace("INDEX", request.param)) as graph:
        early = [{**row, "i": 5, "s": "a", "d": 0.0} if i % 3 == 0 else row for i, row in enumerate(rows[:80])]
        load(graph, [*early, {**rows[0], "key": "gone"}])
        graph.maintenance.ensure_indices()
        load(graph, [row for i, row in enumerate(rows) if i >= 80 or i % 3 == 0])
        graph.mutate('query q() { delete Row where key = "gone" }')
        yield graph


def load(graph: Graph, rows: list[dict[str, Any]]) -> None:
    graph.load("\n".join(json.dumps({"type": "Row", "data": row}) for row in rows), mode="merge")


def context(graph: Graph) -> ReadContext:
    return context_of(graph.snapshot(), graph.catalog, UNRESTRICTED, {ir.NOW_PARAMETER: 0})


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_predicate_means_the_same_wherever_it_is_tested(
    graph: Graph, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    type_ = three_valued(graph)
    predicate = data.draw(predicates(type_))
    expected = sorted(row["key"] for row in rows if outcome(predicate, row) is True)
    reader = context(graph)
    table = reader.table(type_)
    every = table.read(["id"], row_ids=True)
    names = dict(zip(row_ids_of(every).tolist(), every.column("id").to_pylist(), strict=True))
    bound = Bindings({ir.ROW: np.sort(row_ids_of(every))}, every.num_rows)

    def keys(row_ids: Any) -> list[str]:
        return sorted(names[row_id] for row_id in row_ids.tolist())

    mask = predicate_mask(predicate, bound, reader)
    assert keys(bound.rows[ir.ROW][mask]) == expected, "on values"
    assert keys(filter_rows(bound, [predicate], reader).rows[ir.ROW]) == expected
    if (text := filter_text(predicate, reader)) is not None:
        assert keys(row_ids_of(table.read([], filter=text, row_ids=True))) == expected, text
    scanned = scan(ir.Scan(ir.ROW, type_, (predicate,)), (), reader)
    assert keys(scanned.rows[ir.ROW]) == expected, split_pushdown([predicate], reader)
    whole = table.read(["id", *(prop.column for prop in type_.property_list)])
    for test in (predicate, simplify(predicate)):
        seen = np.asarray(row_filter_mask(test, whole, 0))
        assert sorted(np.asarray(whole.column("id").to_pylist(), object)[seen]) == expected, "on rows of a write"
