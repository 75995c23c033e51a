"""Mutations of many statements: what each sees, which mistake is named, and that the work grows with the statements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.errors import BadRequestError, ResourceLimitError
from tests.engine.museum import lines, node
from tests.engine.stored import rows
from tests.engine.write.test_write_laws import few, new_graph
from tests.language.growth import assert_about_linear

SCHEMA = """
node P { k: String @key  u: I32?  t: String? }
node Q { t: String  u: I32? }
edge E: P -> P { w: I32? }
"""
STORED = [node("P", k=k, u=u, t="old") for k, u in (("a", 0), ("b", 1), ("c", None))]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(lines(*STORED), mode="append")
        yield graph


def mutation(statements: list[str]) -> str:
    return "query it() {\n" + "\n".join(statements) + "\n}"


# What each statement sees

keys = st.sampled_from("abcde")
numbers = st.integers(0, 2)
programs = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), keys, numbers),
        st.tuples(st.just("by key"), keys, numbers),
        st.tuples(st.just("by number"), numbers, numbers),
        st.tuples(st.just("by order"), numbers, numbers),
        st.tuples(st.just("by text"), st.sampled_from(["old", "new"]), numbers),
    ),
    max_size=10,
)


def written(step: tuple[str, Any, int]) -> str:
    kind, first, second = step
    return {
        "insert": f'insert P {{ k: "{first}", u: {second}, t: "new" }}',
        "by key": f'update P set {{ u: {second} }} where k = "{first}"',
        "by number": f'update P set {{ u: {second}, t: "new" }} where u = {first}',
        "by order": f"update P set {{ u: {second} }} where u > {first}",
        "by text": f'update P set {{ u: {second} }} where t = "{first}"',
    }[kind]


def expected(program: list[tuple[str, Any, int]]) -> tuple[dict[str, dict[str, Any]], int]:
    state: dict[str, dict[str, Any]] = {k: {"u": u, "t": "old"} for k, u in (("a", 0), ("b", 1), ("c", None))}
    touched = 0
    for kind, first, second in program:
        if kind == "insert":
            state[first] = {"u": second, "t": "new"}
            touched += 1
            continue
        for k, row in state.items():
            u = row["u"]
            if {
                "by key": k == first,
                "by number": u == first,
                "by order": u is not None and kind == "by order" and u > first,
                "by text": row["t"] == first,
            }[kind]:
                state[k] = {"u": second, "t": "new" if kind == "by number" else row["t"]}
                touched += 1
    return state, touched


@few
@given(programs)
def test_statements_of_one_mutation_see_each_other_as_if_they_ran_one_by_one(
    program: list[tuple[str, Any, int]],
) -> None:
    with new_graph(SCHEMA) as graph:
        graph.load(lines(*STORED), mode="append")
        receipt = graph.mutate(mutation([written(step) for step in program])) if program else None
        state, touched = expected(program)
        assert {k: {"u": row["u"], "t": row["t"]} for k, row in rows(graph, "node:P").items()} == state
        assert (receipt.affected_nodes if receipt else 0) == touched


# Which mistake is named


@pytest.mark.parametrize(
    ("statements", "mentions"),
    [
        # A later statement of a type that comes first must not be told about.
        (['insert P { k: "x" }', "insert Q { t: $none }", "insert P { k: $none }"], "statement 2: node:Q"),
        (["insert Q { t: $none }", 'insert E { from: $none, to: "a" }'], "statement 1: node:Q"),
        (['insert E { from: "a", to: $none }', "insert Q { t: $none }"], "statement 1: edge:E: 'to' must be a string"),
        (["insert Q { t: $none }", 'update P set { u: $big } where k = "a"'], "statement 1: node:Q"),
        (['update P set { u: $big } where k = "a"', "insert Q { t: $none }"], "statement 1: node:P"),
        # Two things are wrong with one statement: properties in the order of the type.
        (["insert Q { t: $none, u: $big }"], "non-nullable property 't'"),
    ],
)
def test_the_earliest_bad_statement_is_the_one_that_is_named(
    graph: Graph, statements: list[str], mentions: str
) -> None:
    source = mutation(statements).replace("it()", "it($none: String?, $big: I64)")
    with pytest.raises(BadRequestError) as refused:
        graph.mutate(source, "it", {"none": None, "big": 2**31})
    assert mentions in str(refused.value)


def test_updates_that_match_too_much_together_are_judged_one_by_one(graph: Graph) -> None:
    limited = graph.with_limits(Limits(rows=2))
    limited.mutate(mutation(['update P set { t: "x" } where k = "a"', 'update P set { t: "y" } where k = "b"']))
    with pytest.raises(ResourceLimitError) as refused:
        limited.mutate(mutation([f'update P set {{ t: "z" }} where k = "{k}"' for k in "abc"]))
    assert (refused.value.limit, refused.value.actual) == (2, 3)
    # What is wrong with the second statement is said before what is too much with the third.
    source = mutation([f'update P set {{ u: $u{n} }} where k = "{k}"' for n, k in enumerate("abc")])
    with pytest.raises(BadRequestError, match="statement 2"):
        limited.mutate(
            source.replace("it()", "it($u0: I64, $u1: I64, $u2: I64)"), "it", {"u0": 1, "u1": 2**31, "u2": 1}
        )


# How the work grows

fresh = count()


def inserts(size: int) -> str:
    run = next(fresh)
    return mutation(
        [f'insert P {{ k: "{run}-{i}", u: {i} }} insert E {{ from: "{run}-{i}", to: "a" }}' for i in range(size)]
    )


def updates(size: int) -> str:
    return mutation([f'update P set {{ u: {i} }} where k = "{i}"' for i in range(size)])


def alternating(size: int) -> str:
    run = next(fresh)
    pair = 'insert P {{ k: "{0}-{1}" }} update P set {{ u: {1} }} where k = "{0}-{1}"'
    return mutation([pair.format(run, i) for i in range(size)])


@pytest.mark.parametrize(("grow", "size"), [(inserts, 60), (updates, 40), (alternating, 20)])
def test_a_mutation_takes_time_in_proportion_to_its_statements(graph: Graph, grow: Any, size: int) -> None:
    graph.load(lines(*(node("P", k=str(i)) for i in range(8 * size))), mode="append")
    assert_about_linear(graph.mutate, grow, size)


@pytest.mark.parametrize("statement", ['update P set {{ u: 7 }} where k = "{0}"', 'delete P where k = "{0}"'])
def test_statements_that_each_seek_one_value_read_the_table_together(graph: Graph, statement: str) -> None:
    graph.load(lines(*(node("P", k=f"n{i}") for i in range(300))), mode="append")

    def reads(first: int, statements: int) -> int:
        source = mutation([statement.format(f"n{i}") for i in range(first, first + statements)])
        table = graph.snapshot().table("node:P")
        before, _ = table.requests()
        assert graph.mutate(source).affected_nodes == statements
        return table.requests()[0] - before

    reads(0, 1)  # opens what is not open yet
    few_reads = reads(2, 2)
    assert reads(50, 200) <= few_reads + 2
