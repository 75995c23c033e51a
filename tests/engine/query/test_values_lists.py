"""Functions and forms of lists, and paths, against Python's lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.bindings import member_column
from omnigraph.engine.query.limits import Cancellation
from omnigraph.errors import EvaluationError, EvaluationRule, QueryCancelledError, ResourceLimitError
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Operator
from omnigraph.language.query.syntax import ArithmeticOperator, ListFunction, MetaField
from omnigraph.language.query.value_types import BOOL, I64, STRING, EntityType, PathType, item_of, list_of
from tests.engine.query.value_rows import I64_LIST, Rows, call, constant, value_of

NUMBER = I64.as_nullable()
LIST = list_of(NUMBER, nullable=True)

items = st.none() | st.integers(-3, 3)
lists = st.none() | st.lists(items, max_size=4)
columns = st.lists(lists, min_size=1, max_size=5)
indices = st.integers(-6, 6) | st.sampled_from([2**63 - 1, -(2**63)])


def item(values: list[Any], index: int) -> Any:
    return values[index] if -len(values) <= index < len(values) else None


UNARY: dict[str, Callable[[list[Any]], Any]] = {
    "head": lambda each: item(each, 0),
    "last": lambda each: item(each, -1),
    "tail": lambda each: each[1:],
    "reverse": lambda each: each[::-1],
    "size": len,
}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(UNARY)), columns, st.booleans())
def test_functions_of_a_list(name: str, values: list[list[int | None] | None], shared: bool) -> None:
    rows = Rows({"l": (LIST, values)}, shared=shared)
    assert rows.values(call(name, rows.variable("l"))) == [None if v is None else UNARY[name](v) for v in values]


@settings(max_examples=100, deadline=None)
@given(columns, st.data(), st.booleans())
def test_items_and_slices(values: list[list[int | None] | None], data: st.DataObject, shared: bool) -> None:
    first, last = (data.draw(st.lists(indices, min_size=len(values), max_size=len(values))) for _ in range(2))
    rows = Rows({"l": (LIST, values), "i": (I64, first), "j": (I64, last)}, shared=shared)
    whole, i, j = (rows.variable(name) for name in "lij")
    at = [None if v is None else item(v, a) for v, a in zip(values, first, strict=True)]
    assert rows.values(call("item", whole, i)) == at
    assert rows.values(call("item", whole, first[0])) == [None if v is None else item(v, first[0]) for v in values]
    assert rows.values(call("item", [7, 8, 9], i)) == [item([7, 8, 9], a) for a in first]
    cut = [None if v is None else v[a:b] for v, a, b in zip(values, first, last, strict=True)]
    assert rows.values(call("slice", whole, i, j)) == cut
    assert rows.values(call("slice", whole, 1, -1)) == [None if v is None else v[1:-1] for v in values]


@settings(max_examples=100, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_range_includes_both_ends(first: int, last: int, step: int) -> None:
    numbers = [
        n
        for n in range(-9, 10)
        if (n - first) % step == 0 and first * np.sign(step) <= n * np.sign(step) <= last * np.sign(step)
    ]
    wanted = numbers if step > 0 else numbers[::-1]
    assert value_of(call("range", first, last, step)) == wanted
    rows = Rows({"a": (I64, [first, 1]), "b": (I64, [last, 3])})
    both = [list(range(first, last + 1)), [1, 2, 3]]
    assert rows.values(call("range", rows.variable("a"), rows.variable("b"))) == both


@pytest.mark.parametrize("arguments", [(1, 2, 0), (1, 1_000_001), (-(2**63), 2**63 - 1)])
def test_ranges_without_an_end_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(EvaluationError) as raised:
        value_of(call("range", *arguments))
    assert raised.value.rule is EvaluationRule.BAD_ARGUMENT


def test_the_longest_ranges() -> None:
    assert value_of(call("size", call("range", 1, 1_000_000))) == 1_000_000
    top = 2**63 - 1
    assert value_of(call("range", top - 1, top)) == [top - 1, top]
    assert value_of(call("range", -top - 1, top, top)) == [-top - 1, -1, top - 1]


# ---- forms ----------------------------------------------------------------------------------------------

X = ir.VariableValue("x", NUMBER)
POSITIVE = ir.Compare(X, Operator.GREATER, constant(0))


def quantified(function: ListFunction, truths: list[bool | None]) -> bool | None:
    """What openCypher says of them."""
    true, null = truths.count(True), truths.count(None)
    match function:
        case ListFunction.ANY:
            return True if true else None if null else False
        case ListFunction.ALL:
            return False if False in truths else None if null else True
        case ListFunction.NONE:
            return False if true else None if null else True
    return False if true >= 2 else None if null else true == 1


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([f for f in ListFunction if f is not ListFunction.MAP]), columns, st.booleans())
def test_quantifiers_are_three_valued(
    function: ListFunction, values: list[list[int | None] | None], shared: bool
) -> None:
    rows = Rows({"l": (LIST, values)}, shared=shared)
    value = ir.ListForm(function, "x", rows.variable("l"), None, POSITIVE, BOOL.as_nullable())
    truths = [None if v is None else [None if n is None else n > 0 for n in v] for v in values]
    assert rows.values(value) == [None if t is None else quantified(function, t) for t in truths]


@settings(max_examples=80, deadline=None)
@given(columns, st.data(), st.booleans())
def test_map_keeps_what_its_condition_is_true_for(
    values: list[list[int | None] | None], data: st.DataObject, shared: bool
) -> None:
    added = data.draw(st.lists(items, min_size=len(values), max_size=len(values)))
    rows = Rows({"l": (LIST, values), "n": (NUMBER, added)}, shared=shared)
    body = ir.Arithmetic(X, ArithmeticOperator.ADD, rows.variable("n"), NUMBER)
    value = ir.ListForm(ListFunction.MAP, "x", rows.variable("l"), POSITIVE, body, LIST)
    assert rows.values(value) == [
        None if v is None else [None if n is None else x + n for x in v if x is not None and x > 0]
        for v, n in zip(values, added, strict=True)
    ]
    alone = ir.ListForm(ListFunction.MAP, "x", rows.variable("l"), None, ir.IsNull(X), list_of(BOOL, nullable=True))
    assert rows.values(alone) == [None if v is None else [x is None for x in v] for v in values]


def test_forms_stand_within_forms() -> None:
    rows = Rows({"l": (LIST, [[1, 2], [], None, [3]])}, shared=True)
    inner = ir.VariableValue("y", NUMBER)
    product = ir.Arithmetic(X, ArithmeticOperator.MULTIPLY, inner, NUMBER)
    row_of = ir.ListForm(ListFunction.MAP, "y", rows.variable("l"), None, product, LIST)
    table = ir.ListForm(ListFunction.MAP, "x", rows.variable("l"), None, row_of, list_of(LIST, nullable=True))
    assert rows.values(table) == [[[1, 2], [2, 4]], [], None, [[9]]]
    sums = ir.ListForm(ListFunction.MAP, "x", table_items(table), None, total(ir.VariableValue("x", LIST)), LIST)
    assert rows.values(sums) == [[3, 6], [], None, [9]]


def table_items(table: ir.ListForm) -> ir.Value:
    """The same lists by another way: a form over what another form made."""
    x = ir.VariableValue("z", item_of(table.type))
    return ir.ListForm(ListFunction.MAP, "z", table, None, x, table.type)


def total(numbers: ir.Value) -> ir.Reduce:
    so_far, each = ir.VariableValue("a", NUMBER), ir.VariableValue("e", NUMBER)
    body = ir.Arithmetic(so_far, ArithmeticOperator.ADD, call("coalesce", each, 0), NUMBER)
    return ir.Reduce("a", constant(0), "e", numbers, body, NUMBER)


def test_items_of_a_constant_list() -> None:
    rows = Rows({"n": (NUMBER, [1, 2, None])}, shared=True)
    equal = ir.Compare(X, Operator.EQUAL, rows.variable("n"))
    one_or_three = ir.Constant((1, 3), I64_LIST)
    value = ir.ListForm(ListFunction.ANY, "x", one_or_three, None, equal, BOOL.as_nullable())
    assert rows.values(value) == [True, False, None]
    assert value_of(ir.ListForm(ListFunction.ALL, "x", one_or_three, None, POSITIVE, BOOL.as_nullable())) is True
    assert value_of(ir.ListForm(ListFunction.ALL, "x", ir.Constant(None, LIST), None, POSITIVE, BOOL)) is None
    assert value_of(total(call("range", 1, 100))) == 5050


@settings(max_examples=80, deadline=None)
@given(columns, st.data(), st.booleans())
def test_reduce_goes_through_the_items_in_order(
    values: list[list[int | None] | None], data: st.DataObject, shared: bool
) -> None:
    starts = data.draw(st.lists(st.integers(-3, 3), min_size=len(values), max_size=len(values)))
    rows = Rows({"l": (LIST, values), "s": (NUMBER, starts)}, shared=shared)
    so_far, each = ir.VariableValue("a", NUMBER), ir.VariableValue("e", NUMBER)
    times = ir.Arithmetic(so_far, ArithmeticOperator.MULTIPLY, constant(3), NUMBER)
    body = ir.Arithmetic(times, ArithmeticOperator.SUBTRACT, call("coalesce", each, 0), NUMBER)
    value = ir.Reduce("a", rows.variable("s"), "e", rows.variable("l"), body, NUMBER)
    assert rows.values(value) == [
        None if v is None else reduce(lambda a, e: a * 3 - (e or 0), v, s) for v, s in zip(values, starts, strict=True)
    ]


def test_a_null_stays_in_reduce() -> None:
    so_far, each = ir.VariableValue("a", NUMBER), ir.VariableValue("e", NUMBER)
    plus = ir.Arithmetic(so_far, ArithmeticOperator.ADD, each, NUMBER)
    assert value_of(ir.Reduce("a", constant(1), "e", ir.Constant((2, None, 3), I64_LIST), plus, NUMBER)) is None
    assert value_of(ir.Reduce("a", constant(1), "e", ir.Constant((), I64_LIST), plus, NUMBER)) == 1


def test_nothing_stays_bound() -> None:
    rows = Rows({"l": (LIST, [[1, 2], [3]])})
    before = rows.context.budget.held
    for _ in range(3):
        rows.values(ir.ListForm(ListFunction.MAP, "x", rows.variable("l"), POSITIVE, X, LIST))
        rows.values(total(rows.variable("l")))
    assert rows.context.budget.held == before
    fails = ir.Arithmetic(X, ArithmeticOperator.DIVIDE, constant(0), NUMBER)
    with pytest.raises(EvaluationError):
        rows.values(ir.ListForm(ListFunction.MAP, "x", rows.variable("l"), None, fails, LIST))
    assert rows.context.budget.held == before


def test_many_items_are_taken_in_parts() -> None:
    rows = Rows({"n": (I64, [200_000, 0, 150_000, 3])})
    numbers = call("range", 1, rows.variable("n"))
    even = ir.Compare(ir.Arithmetic(X, ArithmeticOperator.REMAINDER, constant(2), NUMBER), Operator.EQUAL, constant(0))
    value = ir.ListForm(ListFunction.MAP, "x", numbers, even, X, LIST)
    assert rows.values(call("size", value)) == [100_000, 0, 75_000, 1]
    assert rows.values(call("last", value)) == [200_000, None, 150_000, 2]


def test_lists_that_rows_share_count_as_often_as_they_are_made() -> None:
    rows = Rows({})
    rows.context.budget.limit = 64 << 20
    same = call("range", 1, 1000)
    value = ir.ListForm(ListFunction.MAP, "x", call("range", 1, 1_000_000), None, same, list_of(same.type))
    with pytest.raises(ResourceLimitError):
        rows.values(call("size", value))


def test_a_long_reduce_ends_at_its_deadline() -> None:
    rows = Rows({})
    rows.context.cancellation = Cancellation(timeout=0.05)
    with pytest.raises(QueryCancelledError):
        rows.values(total(call("range", 1, 1_000_000)))


# ---- entities and paths ---------------------------------------------------------------------------------

AUTHOR, BOOK = (
    NodeType(name=name, id=i, table_incarnation=1, birth_name=name) for i, name in enumerate(["Author", "Book"], 1)
)
WROTE = EdgeType(name="Wrote", id=3, table_incarnation=1, birth_name="Wrote", from_type="Author", to_type="Book")
LIKES = EdgeType(name="Likes", id=4, table_incarnation=1, birth_name="Likes", from_type="Author", to_type="Book")
PATH = PathType(EntityType((BOOK, AUTHOR)), EntityType((LIKES, WROTE)), nullable=True)


def reference(member: int, row: int) -> dict[str, int]:
    return {"member": member, "row": row}


def entity_rows() -> Rows:
    """Author 10 -wrote 30-> book 20; and a row without a book."""
    rows = Rows({"one": (I64, [1, 1])})
    bound = {"a": np.array([10, 10]), "e": np.array([30, 30]), "b": np.array([20, -1])}
    bound["x"], bound[member_column("x")] = np.array([20, 10]), np.array([1, 0])
    rows.bindings = rows.bindings.binding(bound)
    return rows


A, E, B = (
    ir.EntityValue(name, EntityType((type_,), name == "b"))
    for name, type_ in (("a", AUTHOR), ("e", WROTE), ("b", BOOK))
)
EITHER = ir.EntityValue("x", EntityType((AUTHOR, BOOK)))


def test_paths_are_made_of_entities() -> None:
    rows = entity_rows()
    made = ir.MakePath((A, E, B), PATH)
    nodes, edges = [reference(1, 10), reference(0, 20)], [reference(1, 30)]
    assert rows.values(made) == [{"nodes": nodes, "edges": edges}, None]
    assert rows.values(call("nodes", made)) == [nodes, None]
    assert rows.values(call("edges", made)) == [edges, None]
    assert rows.values(call("start", made)) == [reference(1, 10), None]
    assert rows.values(call("end", made)) == [reference(0, 20), None]
    assert rows.values(call("length", made)) == [1, None]
    assert rows.values(call("length", ir.MakePath((A,), PATH))) == [0, 0]


def test_paths_are_joined_where_they_meet() -> None:
    rows = entity_rows()
    there, back = ir.MakePath((A, E, B), PATH), ir.MakePath((B, E, A), PATH)
    both = ir.MakePath((there, back), PATH)
    expected = {
        "nodes": [reference(1, 10), reference(0, 20), reference(1, 10)],
        "edges": [reference(1, 30), reference(1, 30)],
    }
    assert rows.values(both) == [expected, None]
    assert rows.values(ir.MakePath((there, E, A), PATH)) == [expected, None]
    assert rows.values(ir.MakePath((A, E, back), PATH)) == [expected, None]


def test_entities_are_equal_by_type_and_row() -> None:
    rows = entity_rows()
    assert rows.values(ir.Compare(EITHER, Operator.EQUAL, A)) == [False, True]
    assert rows.values(ir.Compare(B, Operator.EQUAL, EITHER)) == [True, None]
    assert rows.mask(ir.Compare(EITHER, Operator.NOT_EQUAL, B)) == [False, False]
    assert rows.values(ir.IsNull(B)) == [False, True]
    nodes = call("nodes", ir.MakePath((A, E, B), PATH))
    assert rows.values(ir.In(EITHER, nodes)) == [True, None]
    assert rows.values(ir.In(EITHER, ir.ListOf((A,), list_of(EntityType((AUTHOR,)))))) == [False, True]
    assert rows.values(ir.Compare(ir.ListOf((A, B), list_of(EITHER.type)), Operator.MEMBER, EITHER)) == [True, True]


def test_choices_between_entities_number_their_types_anew() -> None:
    rows = entity_rows()
    missing = ir.Case(None, (ir.Branch(ir.IsNull(B), A),), B, EntityType((BOOK, AUTHOR)))
    assert rows.values(missing) == [reference(0, 20), reference(1, 10)]
    assert rows.values(call("coalesce", B, A)) == [reference(0, 20), reference(1, 10)]


def test_the_type_of_an_entity() -> None:
    rows = entity_rows()
    assert rows.values(ir.MetaValue("x", (AUTHOR, BOOK), MetaField.TYPE)) == ["Book", "Author"]
    assert rows.values(ir.MetaValue("b", (BOOK,), MetaField.TYPE, optional=True)) == ["Book", None]


def test_forms_bind_entities() -> None:
    rows = entity_rows()
    nodes = call("nodes", ir.MakePath((A, E, B), PATH))
    names = ir.MetaValue("n", PATH.nodes.members, MetaField.TYPE)
    form = ir.ListForm(ListFunction.MAP, "n", nodes, None, names, list_of(STRING, nullable=True))
    assert rows.values(form) == [["Author", "Book"], None]
    same = ir.ListForm(ListFunction.MAP, "n", nodes, None, ir.VariableValue("n", PATH.nodes), nodes.type)
    assert rows.values(same) == [[reference(1, 10), reference(0, 20)], None]
