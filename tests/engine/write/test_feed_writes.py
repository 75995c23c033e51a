"""Statements that run for each row of a feed: what they read, what they write, and when rows contradict each other."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.engine.query.read import ReadOptions
from omnigraph.engine.write.mutation import MutationRequest, mutate
from omnigraph.errors import (
    BadRequestError,
    CompileError,
    ConflictError,
    ConstraintError,
    EvaluationError,
    EvaluationRule,
    KeyConflictError,
    OmniGraphError,
    PolicyError,
    QueryCancelledError,
    ReadSetChangedError,
    ResourceLimitError,
)
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from omnigraph.storage.log.tracing import Trace
from tests.engine.stored import everything, rows
from tests.engine.write.lending import SCHEMA, START, affected, column, ends, run
from tests.engine.writer import OtherProcess
from tests.support.receipts import replayed


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def graph(tmp_path: Path, trace: Trace) -> Iterator[Graph]:
    with Graph.init(tmp_path / uuid.uuid4().hex, SCHEMA, trace=trace) as graph:
        graph.load(START, mode="append")
        yield graph


def refused(graph: Graph, error: type[OmniGraphError], body: str, *arguments: Any, **options: Any) -> OmniGraphError:
    """The error of a mutation, which leaves the graph as it was."""
    before = everything(graph)
    with pytest.raises(error) as caught:
        run(graph, body, *arguments, **options)
    assert everything(graph) == before
    return caught.value


# What a feed is, and what its statements write


def test_books_are_lent_to_all_cards_of_a_list(graph: Graph) -> None:
    receipt = run(
        graph,
        """unwind $cards as $c
           match { $r: Reader { card: $c }  $b: Book { isbn: $isbn }  not { $r borrowed $b } }
           insert Borrowed { from: $r, to: $b, on: $day }
           update $b set { status: "lent" }""",
        {"cards": ["r1", "r3", "nobody"], "isbn": "b1", "day": "2031-05-04"},
        declare="$cards: [String], $isbn: String, $day: Date",
    )
    # r1 has the book already, and nobody is no reader.
    assert affected(receipt) == (1, 1)
    assert ends(graph, "Borrowed") == [("r1", "b1"), ("r1", "b2"), ("r2", "b2"), ("r3", "b1")]
    assert column(graph, "node:Book", "status") == {"b1": "lent", "b2": "lent", "b3": None}
    assert [row["on"] for row in rows(graph, "edge:Borrowed").values() if row["src"] == "r3"] == [date(2031, 5, 4)]


def test_values_are_calculated_from_each_row(graph: Graph) -> None:
    receipt = run(graph, "match { $b: Book } update $b set { pages: $b.pages + 1, title: upper($b.title) }")
    assert affected(receipt) == (3, 0)
    assert column(graph, "node:Book", "pages") == {"b1": 101, "b2": 201, "b3": None}
    assert column(graph, "node:Book", "title") == {"b1": "ONE", "b2": "TWO", "b3": "THREE"}
    assert rows(graph, "node:Book")["b1"]["cover"] == b"b", "what is not assigned is kept"


def test_stages_may_come_before_the_statements(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $r: Reader  $r borrowed $b } return { $b, count($r) as readers }
           then match { $readers > 1 }
           update $b set { pages: $readers }""",
    )
    assert affected(receipt) == (1, 0)
    assert column(graph, "node:Book", "pages") == {"b1": 100, "b2": 2, "b3": None}


def test_an_insert_without_key_makes_one_entity_for_each_row(graph: Graph) -> None:
    run(graph, 'insert Borrowed { from: "r2", to: "b2" }')
    receipt = run(graph, 'match { $r: Reader  $r borrowed $_ } insert Note { text: "read" }')
    assert affected(receipt) == (3, 0), "a pair of ends once"
    receipt = run(graph, 'match { $r: Reader  $r $_e:borrowed $_ } insert Note { text: "read" }')
    assert affected(receipt) == (4, 0), "a row for each edge"
    assert Counter(column(graph, "node:Note", "text").values()) == {"read": 7}


def test_an_unwound_list_alone_is_a_feed(graph: Graph) -> None:
    receipt = run(
        graph,
        'unwind $texts as $t insert Note { text: coalesce($t, "none"), stars: size($t) }',
        {"texts": ["a", "bb", "a"]},
        declare="$texts: [String]",
    )
    assert affected(receipt) == (3, 0)
    notes = [(row["text"], row["stars"]) for row in rows(graph, "node:Note").values()]
    assert sorted(notes) == [("a", 1), ("a", 1), ("bb", 2)]


def test_no_rows_are_no_commit(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    for write in ("update $b set { pages: 1 }", 'insert Book { isbn: "y", title: "Y", tags: ["a"] }'):
        receipt = run(graph, f'match {{ $b: Book {{ isbn: "x" }} }} {write}')
        assert (affected(receipt), receipt.commit) == ((0, 0), None)
    assert graph.snapshot().commit_id == before


# What a feed reads


def test_a_feed_does_not_see_what_the_mutation_writes(graph: Graph) -> None:
    receipt = run(
        graph,
        """insert Reader { card: "r4", name: "Dan" }
           update Book set { status: "lost" } where isbn = "b1"
           match { $r: Reader } insert Note { text: $r.name }
           match { $n: Note } insert Note { text: "of a note" }
           match { $b: Book  $b.status = "free" } update $b set { title: "was free" }""",
    )
    # A reader, a book, a note for each of three readers; the book counts once, though two statements change it.
    assert affected(receipt) == (1 + 1 + 3, 0)
    assert sorted(column(graph, "node:Note", "text").values()) == ["Ann", "Bob", "Cid"]
    book = rows(graph, "node:Book")["b1"]
    assert (book["title"], book["status"]) == ("was free", "lost"), "what the feed assigns goes on top of what is there"


def test_values_of_a_feed_are_those_of_the_beginning(graph: Graph) -> None:
    run(
        graph,
        """update Book set { pages: 1 } where isbn = "b1"
           match { $b: Book { isbn: "b1" } } update $b set { pages: $b.pages + 1 }""",
    )
    assert column(graph, "node:Book", "pages")["b1"] == 101


def test_every_feed_reads_the_beginning(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $b: Book } update $b set { pages: 7 }
           match { $b: Book  $b.pages = 7 } update $b set { title: "seven" }
           match { $b: Book  $b.pages = 100 } update $b set { status: "lost" }""",
    )
    assert affected(receipt) == (3, 0)
    assert set(column(graph, "node:Book", "title").values()) == {"One", "Two", "Three"}
    assert column(graph, "node:Book", "status")["b1"] == "lost"
    assert set(column(graph, "node:Book", "pages").values()) == {7}


# Equal rows and contradictions


def test_equal_rows_count_once(graph: Graph) -> None:
    receipt = run(graph, 'match { $r: Reader  $r borrowed $b } update $b set { status: "lost" }')
    assert affected(receipt) == (2, 0), "b2 has two readers"
    receipt = run(
        graph,
        'unwind ["x", "y", "x"] as $i insert Book { isbn: $i, title: upper($i) }',
    )
    assert affected(receipt) == (2, 0)
    assert column(graph, "node:Book", "title") == {"b1": "One", "b2": "Two", "b3": "Three", "x": "X", "y": "Y"}


AMBIGUOUS: list[tuple[str, str, str, str]] = [
    (
        "two rows of one node",
        "match { $r: Reader  $r borrowed $b } update $b set { title: $r.name }",
        "b2",
        "$r.name",
    ),
    (
        "null is another value",
        "match { $r: Reader  $r borrowed $b } update $b set { pages: nullif($r.age, 30) }",
        "b2",
        "nullif($r.age, 30)",
    ),
    (
        "two inserts of one key",
        'match { $r: Reader } insert Book { isbn: "new", title: $r.name }',
        "new",
        "$r.name",
    ),
    (
        "two upserts of one key",
        'match { $r: Reader } upsert Book { isbn: "b1", title: $r.name }',
        "b1",
        "$r.name",
    ),
    (
        "two new ones of one key",
        'match { $r: Reader } insert new Book { isbn: "new", title: $r.name }',
        "new",
        "$r.name",
    ),
    (
        "two statements of two rows",
        """unwind ["b8", "b9"] as $i
           insert Book { isbn: $i, title: "first" }
           insert Book { isbn: replace("b8b9", $i, ""), title: "second" }""",
        "b9",
        '"second"',
    ),
    (
        "two inserts of one row",
        'unwind [1] as $i insert Book { isbn: "b9", title: "first" } insert Book { isbn: "b9", title: "second" }',
        "b9",
        '"second"',
    ),
    (
        "two upserts of one row",
        'unwind [1] as $i upsert Book { isbn: "b1", title: "first" } upsert Book { isbn: "b1", title: "second" }',
        "b1",
        '"second"',
    ),
    (
        "an insert gives all properties",
        """unwind [1, 2] as $i  match { $b: Book { isbn: "b1" } }
           insert Book { isbn: case when $i = 1 then "b1" else "b9" end, title: "One" }
           update $b set { pages: case when $i = 1 then null else 7 end }""",
        "b1",
        "case when $i = 1 then null else 7 end",
    ),
    (
        "two nodes of one row, in turn",
        "match { $a: Reader  $a follows $b } update $a set { age: 1 } update $b set { age: 2 }",
        "r2",
        "2",
    ),
]


@pytest.mark.parametrize(
    ("body", "entity_id", "expression"), [case[1:] for case in AMBIGUOUS], ids=[case[0] for case in AMBIGUOUS]
)
def test_two_rows_that_give_one_entity_different_values_write_nothing(
    graph: Graph, body: str, entity_id: str, expression: str
) -> None:
    error = refused(graph, EvaluationError, body)
    assert isinstance(error, EvaluationError)
    assert (error.rule, error.entity_id) == (EvaluationRule.AMBIGUOUS_WRITE, entity_id)
    assert error.expression == expression
    assert f"the rows give {error.type_name} '{entity_id}' different values" in str(error)
    assert error.http_status == 400


def test_a_later_statement_of_the_same_row_decides(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $r: Reader  $r borrowed $b }
           update $b set { title: $r.name, pages: 1 }
           update $b set { title: "same" }""",
    )
    assert affected(receipt) == (2, 0)
    assert column(graph, "node:Book", "title") == {"b1": "same", "b2": "same", "b3": "Three"}
    assert column(graph, "node:Book", "pages") == {"b1": 1, "b2": 1, "b3": None}


def test_an_insert_may_be_changed_by_the_next_statement(graph: Graph) -> None:
    receipt = run(
        graph,
        """unwind ["b1", "b9"] as $i
           insert Book { isbn: $i, title: "first" }  upsert Book { isbn: $i, title: "second" }
           upsert Book { isbn: $i, title: "second", pages: 9 }""",
    )
    assert affected(receipt) == (2, 0)
    assert [rows(graph, "node:Book")[isbn]["title"] for isbn in ("b1", "b9")] == ["second", "second"]
    assert column(graph, "node:Book", "pages") == {"b1": 9, "b2": 200, "b3": None, "b9": 9}


def test_rows_may_give_one_entity_different_properties(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $a: Reader  $a follows $b }
           update $a set { age: 1 }
           update $b set { email: $b.card + "@y" }""",
    )
    assert affected(receipt) == (3, 0)
    assert column(graph, "node:Reader", "age") == {"r1": 1, "r2": 1, "r3": None}
    assert column(graph, "node:Reader", "email") == {"r1": "ann@x", "r2": "r2@y", "r3": "r3@y"}


def test_zero_and_negative_zero_are_two_values(graph: Graph) -> None:
    body = "unwind [0.0, -0.0] as $w match { $a: Reader  $a $f:follows $_ } update $f set { weight: $w }"
    assert isinstance(refused(graph, EvaluationError, body), EvaluationError)


# Null entities


def test_a_null_entity_is_left_out(graph: Graph) -> None:
    receipt = run(
        graph,
        """match { $r: Reader  optional { $r borrowed $b  $b.status = "free" } }
           update $b set { pages: 1 }
           insert Follows { from: $r, to: $r, label: "self" }
           insert Borrowed { from: $r, to: $b, times: 9 }
           insert Note { text: coalesce($b.title, "nothing") }""",
    )
    assert affected(receipt) == (1 + 3, 3 + 1)
    assert column(graph, "node:Book", "pages") == {"b1": 1, "b2": 200, "b3": None}
    assert sorted(column(graph, "node:Note", "text").values()) == ["One", "nothing", "nothing"]
    assert [row["src"] for row in rows(graph, "edge:Borrowed").values() if row["times"] == 9] == ["r1"]


def test_a_null_entity_is_not_deleted(graph: Graph) -> None:
    receipt = run(graph, 'match { $r: Reader { card: "r3" }  optional { $r borrowed $b } } delete $b delete $r')
    assert affected(receipt) == (1, 1)
    assert set(rows(graph, "node:Book")) == {"b1", "b2", "b3"}
    assert set(rows(graph, "node:Reader")) == {"r1", "r2"}


# Ends of edges


def test_ends_are_ids_keys_or_nodes(graph: Graph) -> None:
    receipt = run(
        graph,
        """unwind $days as $d  match { $r: Reader { card: "r1" } }
           insert Seen { from: $r.card, to: $d }
           insert Seen { from: $r, to: $d }
           insert Seen { from: "r2", to: to_string($d) }""",
        {"days": ["2031-05-04", "2031-05-04"]},
        declare="$days: [Date]",
    )
    assert affected(receipt) == (0, 6)
    assert ends(graph, "Seen") == [("r1", "22403")] * 4 + [("r2", "22403")] * 2


def test_a_node_that_does_not_exist_is_refused(graph: Graph) -> None:
    body = 'match { $r: Reader } insert Borrowed { from: $r, to: "b" + $r.card }'
    error = refused(graph, ConstraintError, body)
    assert "dst 'br1' not found in Book" in str(error)


def test_a_null_text_names_no_node(graph: Graph) -> None:
    body = """match { $r: Reader } insert Note { text: "n" } insert Borrowed { from: $r, to: $r.email }"""
    error = refused(graph, ConstraintError, body)
    assert "statement 2: edge:Borrowed: 'to' must be a string, the id of a node; got null" in str(error)


# Deletes


def test_entities_of_a_feed_are_deleted_once(graph: Graph) -> None:
    receipt = run(graph, 'match { $r: Reader  $r borrowed $b  $b.status = "lent" } delete $b')
    assert affected(receipt) == (1, 2), "the book, and both loans of it"
    assert set(rows(graph, "node:Book")) == {"b1", "b3"}
    assert set(rows(graph, "edge:Borrowed")) == {"l1"}


def test_edges_of_a_feed_are_deleted(graph: Graph) -> None:
    receipt = run(graph, "match { $r: Reader  $r $l:borrowed $b  $b.pages > 150 } delete $l")
    assert affected(receipt) == (0, 2)
    assert set(rows(graph, "edge:Borrowed")) == {"l1"}


def test_plain_deletes_and_feeds_count_together(graph: Graph) -> None:
    receipt = run(
        graph, 'delete Book where isbn = "b2" match { $r $l:borrowed $b  $r: Reader { card: "r1" } } delete $l'
    )
    assert affected(receipt) == (1, 3)
    assert rows(graph, "edge:Borrowed") == {}


def test_feeds_do_not_mix_deletes_and_other_writes(graph: Graph) -> None:
    for body in (
        "match { $b: Book } delete $b insert Note { text: $b.title }",
        'insert Note { text: "n" } match { $b: Book } delete $b',
    ):
        error = refused(graph, BadRequestError, body)
        assert "inserts/updates and deletes" in str(error)


# Rules of the schema, and of values


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("match { $r: Reader } update $r set { age: 151 }", "@range violation on Reader.age"),
        ('match { $r: Reader } update $r set { email: "same" }', "@unique violation on Reader.email"),
        ("match { $r: Reader } update $r set { name: $r.email }", "non-nullable property 'name'"),
        ("match { $b: Book } update $b set { pages: $b.pages * 100000000 }", "range"),
        ('match { $b: Book } insert Borrowed { from: "r1", to: $b }', "@card violation on edge Borrowed"),
    ],
)
def test_what_rows_write_keeps_the_rules(graph: Graph, body: str, mentions: str) -> None:
    error = refused(graph, BadRequestError, body)
    assert mentions in str(error)


def test_a_value_that_does_not_fit_names_statement_and_entity(graph: Graph) -> None:
    body = 'match { $b: Book } insert Note { text: "n" } update $b set { pages: $b.pages * 100000000 }'
    error = refused(graph, ConstraintError, body)
    assert isinstance(error, ConstraintError)
    assert (error.type_key, error.property, error.line, error.entity_id) == ("node:Book", "pages", 2, "b1")


def test_a_calculation_that_fails_writes_nothing(graph: Graph) -> None:
    error = refused(graph, EvaluationError, "match { $b: Book } update $b set { pages: 1 / ($b.pages - 200) }")
    assert isinstance(error, EvaluationError)
    assert error.rule is EvaluationRule.DIVISION_BY_ZERO


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("match { $b: Book } update $b set { isbn: $b.title }", "cannot update @key property"),
        ('match { $b: Book } update Book set { pages: 1 } where isbn = "b1"', "T109"),
        ("match { $b: Book } delete Book where pages > 1", "T109"),
        ("unwind [1] as $i update $i set { pages: 1 }", "T113"),
        ("match { $x: (Book | Reader) } delete $x", "T113"),
        ("match { $r: Reader } insert Borrowed { from: $r, to: $r }", "T5"),
        ('match { $_ $l:borrowed $b } update $l set { from: "r1" }', "T109"),
    ],
)
def test_what_a_statement_of_a_feed_can_not_do_does_not_compile(graph: Graph, body: str, mentions: str) -> None:
    with pytest.raises(CompileError, match=mentions):
        run(graph, body)


# Limits


def test_a_feed_of_too_many_rows_is_refused(graph: Graph) -> None:
    limited = graph.with_limits(Limits(rows=3))
    assert affected(run(limited, 'unwind range(1, 3) as $i insert Note { text: "n", stars: $i }')) == (3, 0)
    error = refused(
        limited,
        ResourceLimitError,
        'unwind range(1, 4) as $i match { $b: Book { isbn: "b1" } } update $b set { pages: 1 }',
    )
    assert isinstance(error, ResourceLimitError)
    assert (error.resource, error.limit, error.actual) == ("rows of a feed", 3, 4)


@pytest.mark.parametrize(
    "body",
    [
        "unwind range(1, 100) as $i insert Note { text: $long }",
        "unwind range(1, 100) as $i insert Book { isbn: to_string($i), title: $long }",
        "unwind range(1, 100) as $i match { $b: Book } update $b set { title: $long }",
    ],
)
def test_values_of_too_many_bytes_are_refused(graph: Graph, body: str) -> None:
    limited = graph.with_limits(Limits(bytes=100_000))
    error = refused(limited, ResourceLimitError, body, {"long": "x" * 2_000}, declare="$long: String")
    assert isinstance(error, ResourceLimitError)
    assert error.limit == 100_000


def test_a_feed_that_takes_too_long_writes_nothing_and_lets_others_write(graph: Graph) -> None:
    text = "query it() { match { $b: Book } update $b set { pages: 1 } }"
    request = MutationRequest(text, None, None, "main", reading=ReadOptions(feed_seconds=0.0))
    before = graph.snapshot().commit_id
    with pytest.raises(QueryCancelledError):
        mutate(graph._workspace, request)
    assert graph.snapshot().commit_id == before
    assert run(graph, 'insert Note { text: "n" }').commit is not None


# Other writers

QUERIES = """
query title_all($t: String) { match { $b: Book } update $b set { title: $t } }
query lend_free($r: String) {
    match { $b: Book { status: "free" }  $r: Reader { card: $r } } insert Borrowed { from: $r, to: $b }
}
query note_all() { match { $b: Book } insert Note { text: $b.title } }
query new_books($t: String) { unwind ["n1", "n2"] as $i insert new Book { isbn: $i, title: $t } }
query write_off() { match { $b: Book { status: "lent" } } delete $b }
query print($i: String) { insert Book { isbn: $i, title: "printed", status: "free" } }
query free($i: String) { update Book set { status: "free" } where isbn = $i }
query rename($r: String) { update Reader set { name: "renamed" } where card = $r }
query day() { insert Day { on: date("2040-01-01") } }
"""


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


Meanwhile = Callable[..., Counter[str]]


@pytest.fixture
def meanwhile(graph: Graph, trace: Trace, other: OtherProcess) -> Meanwhile:
    """Let another process commit just before our own write is published for the first time. How often our write then
    passes each of its points."""

    def interrupt(query: str, **params: object) -> Counter[str]:
        passed: Counter[str] = Counter()

        def observe(point: str) -> None:
            passed[point] += 1
            if point == "publish.before" and passed[point] == 1:
                answer = other.do(graph.uri, "mutate", QUERIES, query, params)
                assert answer.get("commit"), answer

        trace.observer = observe
        return passed

    return interrupt


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("title_all", {"t": "x"}), ("print", {"i": "b9"})),
        (("title_all", {"t": "x"}), ("free", {"i": "b2"})),
        (("write_off", {}), ("free", {"i": "b2"})),
    ],
)
def test_a_strict_write_is_refused_when_another_changed_what_its_feed_read(
    graph: Graph, meanwhile: Meanwhile, mine: tuple[str, Any], theirs: tuple[str, Any]
) -> None:
    before = graph.snapshot().commit_id
    passed = meanwhile(theirs[0], **theirs[1])
    with pytest.raises(ReadSetChangedError) as lost:
        graph.mutate(QUERIES, *mine)
    assert (lost.value.expected, lost.value.actual) == (before, graph.snapshot().commit_id)
    assert passed["stage.before"] == 1
    assert "x" not in column(graph, "node:Book", "title").values()


def test_an_insert_from_a_feed_reads_again_when_another_changed_what_it_read(
    graph: Graph, meanwhile: Meanwhile
) -> None:
    passed = meanwhile("print", i="b9")
    receipt = graph.mutate(QUERIES, "lend_free", {"r": "r3"})
    assert affected(receipt) == (0, 2), "b1, and the book that came in between"
    assert [book for reader, book in ends(graph, "Borrowed") if reader == "r3"] == ["b1", "b9"]
    assert passed["stage.before"] == 2


def test_a_table_that_is_only_read_is_part_of_what_a_write_relies_on(graph: Graph, meanwhile: Meanwhile) -> None:
    passed = meanwhile("free", i="b3")
    receipt = graph.mutate(QUERIES, "note_all")
    assert affected(receipt) == (3, 0)
    assert passed["stage.before"] == 2


@pytest.mark.parametrize("mine", [("note_all", {}), ("title_all", {"t": "x"}), ("write_off", {})])
def test_commits_of_other_types_disturb_no_feed(graph: Graph, meanwhile: Meanwhile, mine: tuple[str, Any]) -> None:
    passed = meanwhile("day")
    assert graph.mutate(QUERIES, *mine).commit is not None
    assert (passed["stage.before"], passed["publish.before"]) == (1, 2)


def test_a_key_that_another_took_in_between_is_a_conflict(graph: Graph, meanwhile: Meanwhile) -> None:
    meanwhile("print", i="n2")
    with pytest.raises(KeyConflictError) as taken:
        graph.mutate(QUERIES, "new_books", {"t": "mine"})
    assert taken.value.entity_id == "n2"
    assert column(graph, "node:Book", "title")["n2"] == "printed"
    assert "n1" not in rows(graph, "node:Book")


def test_a_repeat_gets_the_first_receipt_whatever_its_feed_would_read_now(graph: Graph) -> None:
    first = graph.mutate(QUERIES, "note_all", idempotency_key="once")
    graph.mutate(QUERIES, "print", {"i": "b9"})
    assert graph.mutate(QUERIES, "note_all", idempotency_key="once") == replayed(first)
    assert len(rows(graph, "node:Note")) == 3
    assert affected(graph.mutate(QUERIES, "note_all", idempotency_key="twice")) == (4, 0)


def test_a_repeat_that_runs_at_the_same_time_has_one_effect(graph: Graph, trace: Trace, other: OtherProcess) -> None:
    passed: Counter[str] = Counter()

    def observe(point: str) -> None:
        passed[point] += 1
        if point == "publish.before" and passed[point] == 1:
            assert other.do(graph.uri, "mutate", QUERIES, "note_all", idempotency_key="once").get("commit")

    trace.observer = observe
    receipt = graph.mutate(QUERIES, "note_all", idempotency_key="once")
    assert (receipt.replayed, affected(receipt)) == (True, (3, 0))
    assert len(rows(graph, "node:Note")) == 3


def test_a_write_that_ends_before_it_is_published_leaves_nothing(graph: Graph, trace: Trace) -> None:
    def crash(point: str) -> None:
        if point == "publish.before":
            raise ConflictError("stands for a process that ends here")

    before = everything(graph)
    trace.observer = crash
    with pytest.raises(ConflictError):
        graph.mutate(QUERIES, "note_all")
    trace.observer = None
    assert everything(graph) == before
    assert affected(graph.mutate(QUERIES, "note_all")) == (3, 0)


# Authors who see a part


@pytest.fixture
def restricted(graph: Graph) -> Graph:
    """Only readers below 40 or without age, and no titles of books."""
    reader, book = graph.catalog.nodes["Reader"], graph.catalog.nodes["Book"]
    rows = for_actor(check_row_filter("not (age >= 40) or age is null", reader, graph.catalog), "ana")
    return graph._restricted_to(
        visibility_of([TypeVisibility(reader, rows), TypeVisibility(book, masked=frozenset({"title"}))])
    )


def test_a_feed_reads_what_its_author_sees(graph: Graph, restricted: Graph) -> None:
    assert affected(run(restricted, "match { $r: Reader } insert Note { text: $r.name }")) == (2, 0)
    assert affected(run(restricted, "match { $r: Reader  $r $l:borrowed $_ } update $l set { times: 7 }")) == (0, 2)
    assert column(graph, "edge:Borrowed", "times") == {"l1": 7, "l2": 7, "l3": None}
    assert affected(run(restricted, "match { $r: Reader } update $r set { name: upper($r.name) }")) == (2, 0)
    assert column(graph, "node:Reader", "name") == {"r1": "ANN", "r2": "Bob", "r3": "CID"}


def test_a_calculation_never_meets_invisible_rows(restricted: Graph) -> None:
    """Its failure would tell that there is such a row."""
    plain = 'update Reader set { name: "x" } where 100 / (age - 40) < 0'
    assert affected(run(restricted, plain)) == (1, 0)
    feed = 'match { $r: Reader  100 / ($r.age - 40) < 0 } update $r set { name: "y" }'
    assert affected(run(restricted, feed)) == (1, 0)


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("match { $b: Book } insert Note { text: $b.title }", "'Book.title' is hidden from you"),
        ('match { $b: Book  $b.title = "One" } update $b set { pages: 1 }', "'Book.title' is hidden from you"),
        ("match { $b: Book } update $b set { title: $b.isbn }", "'Book.title' is hidden from you"),
        ('update Book set { title: "x" } where pages > 1', "'Book.title' is hidden from you"),
        ("update Book set { pages: size(title) } where pages > 1", "'Book.title' is hidden from you"),
        ('unwind ["x"] as $i upsert Book { isbn: $i, title: $i }', "not write whole rows"),
        ("match { $r: Reader } update $r set { age: 90 }", "could not see yourself"),
        ('unwind ["r2"] as $c upsert Reader { card: $c, name: "mine" }', "that you do not see"),
        ('unwind ["r2"] as $c insert new Reader { card: $c, name: "mine" }', "that you do not see"),
        ('match { $b: Book { isbn: "b2" } } delete $b', "that you do not see"),
    ],
)
def test_what_an_author_does_not_see_is_neither_read_nor_written(
    graph: Graph, restricted: Graph, body: str, mentions: str
) -> None:
    before = everything(graph)
    with pytest.raises(PolicyError, match=mentions):
        run(restricted, body)
    assert everything(graph) == before


# Vectors


class Toy:
    """Embeds a text as its length. `before` is called within each request for a query's vector."""

    model = "toy"
    before: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.queries: list[str] = []

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        self.queries.append(text)
        self.before()
        return np.array([len(text), 1], np.float32)

    def embed_documents(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        return np.array([[len(text), 1] for text in texts], np.float32)


VECTORS = """
node Text { name: String @key  text: String  seen: Bool?  vec: Vector(2)? @embed("text", model="toy", on_write=true) }
"""


def test_a_feed_that_embeds_its_text_holds_nobody_up(tmp_path: Path) -> None:
    toy = Toy()
    with Graph.init(tmp_path / "texts", VECTORS).with_embedding(toy) as graph:
        graph.load([{"name": "a", "text": "x"}, {"name": "b", "text": "xxxxx"}], type="Text", mode="append")
        insert = 'query add() { insert Text { name: "c", text: "xxxxxx" } }'
        toy.before = lambda: graph.mutate(insert) if "c" not in rows(graph, "node:Text") else None
        body = """query it() { match { $t: Text } return { $t } order { nearest($t.vec, "xxxxxx") } limit 2
                  then match { $t.name != "" } update $t set { seen: true } }"""
        assert affected(graph.mutate(body)) == (2, 0)
        assert column(graph, "node:Text", "seen") == {"a": None, "b": True, "c": True}
        assert toy.queries == ["xxxxxx"], "once, however often the write is prepared"


def test_a_text_that_a_feed_assigns_is_embedded(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "texts", VECTORS).with_embedding(Toy()) as graph:
        graph.load([{"name": "a", "text": "x"}], type="Text", mode="append")
        run(graph, 'match { $t: Text } update $t set { text: $t.text + "yy" }')
        run(graph, 'unwind ["a", "b"] as $n upsert Text { name: $n, text: "z" + $n }')
        assert column(graph, "node:Text", "vec") == {"a": [2, 1], "b": [2, 1]}
