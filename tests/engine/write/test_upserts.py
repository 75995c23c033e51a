"""`insert`, `insert new` and `upsert`: what each does to an id that is there already, and that statements follow each
other as if they ran one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import BadRequestError, CompileError, ConstraintError, KeyConflictError
from tests.engine.museum import lines, node
from tests.engine.stored import everything, rows
from tests.engine.write.lending import SCHEMA, START, affected, column, run
from tests.engine.write.test_write_laws import few, new_graph
from tests.language.growth import assert_about_linear


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(START, mode="append")
        yield graph


def test_an_upsert_changes_what_it_assigns_and_nothing_else(graph: Graph) -> None:
    before = rows(graph, "node:Book")["b1"]
    receipt = run(graph, 'upsert Book { isbn: "b1", title: "Uno" }')
    assert affected(receipt) == (1, 0)
    assert rows(graph, "node:Book")["b1"] == {**before, "title": "Uno"}
    assert before["cover"] == b"b", "a blob is kept, too"


def test_an_upsert_adds_what_is_absent(graph: Graph) -> None:
    assert affected(run(graph, 'upsert Book { isbn: "b9", title: "Nine", pages: 9 }')) == (1, 0)
    row = rows(graph, "node:Book")["b9"]
    assert row == {**dict.fromkeys(("status", "tags", "cover")), "isbn": "b9", "title": "Nine", "pages": 9}


def test_an_insert_replaces_and_an_upsert_does_not(graph: Graph) -> None:
    run(graph, 'insert Book { isbn: "b1", title: "A" } upsert Book { isbn: "b2", title: "B" }')
    assert column(graph, "node:Book", "pages") == {"b1": None, "b2": 200, "b3": None}


def test_null_is_assigned_by_an_upsert(graph: Graph) -> None:
    run(graph, 'upsert Book { isbn: "b1", title: "One", pages: null, cover: $c }', {"c": None}, declare="$c: Blob?")
    row = rows(graph, "node:Book")["b1"]
    assert (row["pages"], row["cover"], row["status"]) == (None, None, "free")


def test_a_new_insert_of_a_stored_key_is_a_conflict(graph: Graph) -> None:
    before = everything(graph)
    with pytest.raises(KeyConflictError) as taken:
        run(graph, 'insert Note { text: "n" } insert new Book { isbn: "b1", title: "A" }')
    assert (taken.value.type_key, taken.value.entity_id) == ("node:Book", "b1")
    assert everything(graph) == before


@pytest.mark.parametrize(
    "body",
    [
        'insert Book { isbn: "x", title: "a" } insert new Book { isbn: "x", title: "a" }',
        'insert new Book { isbn: "x", title: "a" } insert new Book { isbn: "x", title: "a" }',
        'upsert Book { isbn: "x", title: "a" } insert new Book { isbn: "x", title: "a" }',
        'insert new Book { isbn: "x", title: "a" } unwind ["x"] as $i insert new Book { isbn: $i, title: "a" }',
        'unwind ["x"] as $i insert Book { isbn: $i, title: "a" } insert new Book { isbn: $i, title: "a" }',
        'unwind ["y", "b3"] as $i insert new Book { isbn: $i, title: "a" }',
    ],
)
def test_a_key_that_the_query_made_itself_is_a_conflict_too(graph: Graph, body: str) -> None:
    before = everything(graph)
    with pytest.raises(KeyConflictError):
        run(graph, body)
    assert everything(graph) == before


def test_new_keys_are_inserted(graph: Graph) -> None:
    receipt = run(
        graph,
        """insert new Book { isbn: "x", title: "a" }  insert new Note { text: "n" }
           unwind ["y", "y", "z"] as $i insert new Book { isbn: $i, title: "of a feed" }""",
    )
    assert affected(receipt) == (4, 0), "equal rows of a feed are one entity"
    assert set(rows(graph, "node:Book")) == {"b1", "b2", "b3", "x", "y", "z"}


def test_statements_after_a_new_insert_may_change_it(graph: Graph) -> None:
    run(
        graph,
        """insert new Book { isbn: "x", title: "a" }  upsert Book { isbn: "x", title: "b", pages: 1 }
           update Book set { pages: pages + 1 } where isbn = "x" """,
    )
    row = rows(graph, "node:Book")["x"]
    assert (row["title"], row["pages"]) == ("b", 2)


def test_upserts_of_one_key_follow_each_other(graph: Graph) -> None:
    receipt = run(
        graph,
        """upsert Book { isbn: "b1", title: "a", pages: 1 }  upsert Book { isbn: "b1", title: "b" }
           upsert Book { isbn: "b1", title: "c", status: "lost" }""",
    )
    assert affected(receipt) == (3, 0)
    row = rows(graph, "node:Book")["b1"]
    assert (row["title"], row["pages"], row["status"], row["tags"]) == ("c", 1, "lost", ["a"])


def test_rows_of_a_feed_are_upserted(graph: Graph) -> None:
    receipt = run(
        graph,
        'match { $b: Book } upsert Book { isbn: $b.isbn + "!", title: upper($b.title) }'
        " match { $b: Book } upsert Book { isbn: $b.isbn, title: lower($b.title) }",
    )
    assert affected(receipt) == (6, 0)
    titles = {"b1": "one", "b2": "two", "b3": "three", "b1!": "ONE", "b2!": "TWO", "b3!": "THREE"}
    assert column(graph, "node:Book", "title") == titles
    assert column(graph, "node:Book", "pages")["b2"] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('upsert Note { text: "a" }', "T109"),
        ('upsert Borrowed { from: "r1", to: "b1" }', "T109"),
        ('upsert Book { isbn: "x" }', "T12"),
        ('upsert Book { title: "x" }', "T12"),
    ],
)
def test_what_can_not_be_upserted_does_not_compile(graph: Graph, body: str, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        run(graph, body)


def test_an_upsert_keeps_the_rules(graph: Graph) -> None:
    before = everything(graph)
    with pytest.raises(ConstraintError, match=r"@unique violation on Reader\.email"):
        run(graph, 'upsert Reader { card: "r2", name: "Bob", email: "ann@x" }')
    with pytest.raises(BadRequestError, match=r"@range violation on Reader\.age"):
        run(graph, 'upsert Reader { card: "r2", name: "Bob", age: 151 }')
    with pytest.raises(ConstraintError, match=r"statement 2: node:Reader: .*name"):
        run(
            graph,
            'upsert Reader { card: "r1", name: "x" } upsert Reader { card: "r2", name: $n }',
            {"n": None},
            declare="$n: String?",
        )
    assert everything(graph) == before


# Sequences

KEYED = "node P { k: String @key  u: I32?  t: String? }"
STORED = [node("P", k=k, u=u, t="old") for k, u in (("a", 0), ("b", 1), ("c", None))]
keys = st.sampled_from("abcde")
numbers = st.none() | st.integers(0, 2)
Step = tuple[str, str, dict[str, Any]]
assigned = st.fixed_dictionaries({}, optional={"u": numbers, "t": st.sampled_from(["x", "y"])})
kinds = st.sampled_from(["insert", "insert new", "upsert", "upsert", "update"])
steps = st.tuples(kinds, keys, assigned).filter(lambda step: step[0] != "update" or bool(step[2]))
programs = st.lists(st.lists(steps, min_size=1, max_size=6), min_size=1, max_size=3)


def written(step: Step) -> str:
    kind, key, values = step
    cells = [f"{name}: {'null' if v is None else repr(v).replace(chr(39), chr(34))}" for name, v in values.items()]
    if kind == "update":
        return f'update P set {{ {" ".join(cells)} }} where k = "{key}"'
    return f"{kind} P {{ {' '.join([f'k: {chr(34)}{key}{chr(34)}', *cells])} }}"


def in_turn(state: dict[str, dict[str, Any]], program: list[Step]) -> dict[str, dict[str, Any]] | None:
    """What is stored after the steps; None when one of them is refused."""
    state = {key: dict(row) for key, row in state.items()}
    for kind, key, values in program:
        if kind == "insert new" and key in state:
            return None
        if kind == "update" and key not in state:
            continue
        old = state.get(key, {"u": None, "t": None}) if kind in ("upsert", "update") else {"u": None, "t": None}
        state[key] = {**old, **values}
    return state


@few
@given(programs)
def test_statements_do_what_they_do_one_by_one(mutations: list[list[Step]]) -> None:
    state: dict[str, dict[str, Any]] = {k: {"u": u, "t": "old"} for k, u in (("a", 0), ("b", 1), ("c", None))}
    with new_graph(KEYED) as graph:
        graph.load(lines(*STORED), mode="append")
        for program in mutations:
            expected = in_turn(state, program)
            text = "query it() {" + " ".join(map(written, program)) + "}"
            if expected is None:
                with pytest.raises(KeyConflictError):
                    graph.mutate(text)
            else:
                graph.mutate(text)
                state = expected
            assert {k: {"u": r["u"], "t": r["t"]} for k, r in rows(graph, "node:P").items()} == state


fresh = count()


def upserts(size: int) -> str:
    run = next(fresh)
    return "query it() {" + "".join(f'upsert P {{ k: "{run}-{i}", u: {i} }} ' for i in range(size)) + "}"


def alternating(size: int) -> str:
    run = next(fresh)
    pair = 'insert P {{ k: "{0}-{1}" }} upsert P {{ k: "{0}-{1}", u: {1} }} upsert P {{ k: "{1}", t: "x" }} '
    return "query it() {" + "".join(pair.format(run, i) for i in range(size)) + "}"


@pytest.mark.parametrize(("grow", "size"), [(upserts, 60), (alternating, 30)])
def test_upserts_take_time_in_proportion_to_their_number(tmp_path: Path, grow: Any, size: int) -> None:
    with Graph.init(tmp_path / "graph", KEYED) as graph:
        graph.load(lines(*(node("P", k=str(i)) for i in range(8 * size))), mode="append")
        assert_about_linear(graph.mutate, grow, size)


def test_upserts_of_one_mutation_read_the_table_together(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "graph", KEYED) as graph:
        graph.load(lines(*(node("P", k=f"n{i}") for i in range(300))), mode="append")

        def reads(first: int, statements: int) -> int:
            cells = (f'upsert P {{ k: "n{i}", u: {i} }}' for i in range(first, first + statements))
            table = graph.snapshot().table("node:P")
            before, _ = table.requests()
            assert graph.mutate("query it() {" + " ".join(cells) + "}").affected_nodes == statements
            return table.requests()[0] - before

        reads(0, 1)  # opens what is not open yet
        few_reads = reads(2, 2)
        assert reads(50, 200) <= few_reads + 2
