"""Writers in other processes: who wins, who is told, who simply goes on, and that no rule is ever broken by two.

The first part fixes the moment: another process commits exactly between the preparation of our write and its
publication. The second lets two processes run freely and looks at what is left.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    BadRequestError,
    ConflictError,
    KeyConflictError,
    OmniGraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.storage.log.tracing import Trace
from tests.engine.museum import edge, lines, node
from tests.engine.stored import rows
from tests.engine.writer import OtherProcess

SCHEMA = """
node Reader { card: String @key  email: String?  name: String?  seen: DateTime?  @unique(email) }
node Book { isbn: String @key  title: String? }
edge Borrowed: Reader -> Book
edge Owns: Reader -> Book @card(0..1)
"""
START = lines(
    node("Reader", card="r1", name="one"),
    node("Reader", card="r2", name="two"),
    node("Book", isbn="b1"),
    node("Book", isbn="b2"),
)

QUERIES = """
query borrow($r: String, $b: String) { insert Borrowed { from: $r, to: $b } }
query own($r: String, $b: String) { insert Owns { from: $r, to: $b } }
query mail($r: String, $e: String) { update Reader set { email: $e } where card = $r }
query rename($r: String, $n: String) { update Reader set { name: $n } where card = $r }
query join($r: String, $e: String?) { insert Reader { card: $r, email: $e, seen: now() } }
query leave($r: String) { delete Reader where card = $r }
query write_off($b: String) { delete Book where isbn = $b }
query print($b: String) { insert Book { isbn: $b } }
"""

Write = tuple[str, tuple[object, ...], dict[str, object]]


def mutation(name: str, branch: str = "main", **params: object) -> Write:
    return "mutate", (QUERIES, name, params), {"branch": branch}


def load(mode: str, *records: str, **options: object) -> Write:
    return "load", (lines(*records).decode(),), {"mode": mode, **options}


def perform(graph: Graph, write: Write, **more: object) -> Any:
    method, arguments, options = write
    return getattr(graph, method)(*arguments, **options, **more)


class Interruption:
    """Runs something once, the first time our own write reaches a point."""

    def __init__(self, graph_trace: Trace) -> None:
        self.trace = graph_trace
        self.passed: Counter[str] = Counter()

    def at(self, point: str, work: Callable[[], object]) -> None:
        def observe(reached: str) -> None:
            self.passed[reached] += 1
            if reached == point and self.passed[point] == 1:
                work()

        self.trace.observer = observe


@pytest.fixture
def interruption() -> Interruption:
    return Interruption(Trace())


@pytest.fixture
def graph(tmp_path: Path, interruption: Interruption) -> Iterator[Graph]:
    # The other processes know graphs by where they are, and a directory of a test that passed is used again.
    with Graph.init(tmp_path / uuid.uuid4().hex, SCHEMA, trace=interruption.trace) as graph:
        graph.load(START, mode="append")
        yield graph


@pytest.fixture(scope="module")
def processes() -> Iterator[tuple[OtherProcess, OtherProcess]]:
    """Started once: what a test does there is bound to its own graph."""
    started = OtherProcess(), OtherProcess()
    yield started
    for process in started:
        process.close()


Interrupt = Callable[[Write], None]


@pytest.fixture
def interrupt(
    graph: Graph, interruption: Interruption, processes: tuple[OtherProcess, OtherProcess]
) -> Callable[[Write], None]:
    """Let another process commit a write just before ours is published for the first time."""

    def prepare(write: Write) -> None:
        method, arguments, options = write

        def commit_first() -> None:
            answer = processes[0].do(graph.uri, method, *arguments, **options)
            assert answer.get("commit"), f"the other process must win the slot: {answer}"

        interruption.at("publish.before", commit_first)

    return prepare


# One winner

LOST: list[tuple[str, Write, Write, type[OmniGraphError], str]] = [
    (
        "append of one key",
        load("append", node("Reader", card="new")),
        load("append", node("Reader", card="new")),
        KeyConflictError,
        "'new'",
    ),
    (
        "the last edge that @card allows",
        mutation("own", r="r1", b="b1"),
        mutation("own", r="r1", b="b2"),
        BadRequestError,
        "@card violation",
    ),
    (
        "an edge to a node that is deleted",
        mutation("borrow", r="r1", b="b1"),
        mutation("write_off", b="b1"),
        BadRequestError,
        "dst 'b1' not found in Book",
    ),
    (
        "an edge to a node that an overwrite drops",
        mutation("borrow", r="r1", b="b1"),
        load("overwrite", node("Book", isbn="b2")),
        BadRequestError,
        "dst 'b1' not found in Book",
    ),
    (
        "a unique value",
        load("merge", node("Reader", card="r1", email="e")),
        mutation("join", r="r3", e="e"),
        BadRequestError,
        "@unique violation",
    ),
    (
        "two updates of one entity",
        mutation("rename", r="r1", n="mine"),
        mutation("rename", r="r1", n="theirs"),
        ReadSetChangedError,
        "graph_head:main",
    ),
    (
        "an update of a node that is deleted",
        load("update", node("Reader", card="r1", name="mine")),
        mutation("leave", r="r1"),
        BadRequestError,
        "no Reader with the id 'r1'",
    ),
    (
        "an update to a value that is taken",
        load("update", node("Reader", card="r1", email="e")),
        mutation("mail", r="r2", e="e"),
        BadRequestError,
        "@unique violation",
    ),
    (
        "a delete and an edge to what it deletes",
        mutation("write_off", b="b1"),
        mutation("borrow", r="r1", b="b1"),
        ReadSetChangedError,
        "graph_head:main",
    ),
    (
        "an overwrite and an edge to what it drops",
        load("overwrite", node("Book", isbn="b2")),
        mutation("borrow", r="r1", b="b1"),
        ReadSetChangedError,
        "graph_head:main",
    ),
    (
        "an overwrite and an insert of one type",
        load("overwrite", node("Book", isbn="b2")),
        mutation("print", b="b3"),
        ReadSetChangedError,
        "graph_head:main",
    ),
]


@pytest.mark.parametrize(("mine", "theirs", "error", "mentions"), [c[1:] for c in LOST], ids=[c[0] for c in LOST])
def test_the_second_of_two_conflicting_writes_has_no_effect(
    graph: Graph,
    interrupt: Interrupt,
    mine: Write,
    theirs: Write,
    error: type[OmniGraphError],
    mentions: str,
) -> None:
    interrupt(theirs)
    with pytest.raises(error, match=mentions):
        perform(graph, mine)
    assert graph.snapshot().version == 3
    assert graph.maintenance.verify().clean


def test_a_strict_conflict_names_both_heads(graph: Graph, interrupt: Interrupt) -> None:
    before = graph.snapshot().commit_id
    interrupt(mutation("rename", r="r1", n="theirs"))
    with pytest.raises(ReadSetChangedError) as lost:
        perform(graph, mutation("rename", r="r1", n="mine"))
    assert (lost.value.expected, lost.value.actual) == (before, graph.snapshot().commit_id)


@pytest.mark.parametrize("mine", [mutation("print", b="b3"), mutation("rename", r="r1", n="x")])
def test_a_conditional_write_is_never_retried(
    graph: Graph, interrupt: Interrupt, interruption: Interruption, mine: Write
) -> None:
    head = graph.snapshot().commit_id
    interrupt(mutation("print", b="b9"))
    with pytest.raises(PreconditionFailedError) as failed:
        perform(graph, mine, if_commit=head)
    assert (failed.value.expected, failed.value.actual) == (head, graph.snapshot().commit_id)
    assert set(rows(graph, "node:Book")) == {"b1", "b2", "b9"}


# Both go on

KEPT: list[tuple[str, Write, Write]] = [
    ("an update and an insert elsewhere", mutation("rename", r="r1", n="x"), mutation("print", b="b3")),
    ("an overwrite and an insert elsewhere", load("overwrite", edge("Owns", "r1", "b1")), mutation("print", b="b3")),
    ("an edge and another node of its endpoint type", mutation("borrow", r="r1", b="b1"), mutation("print", b="b3")),
    ("an edge and an edge of another type", mutation("borrow", r="r1", b="b1"), mutation("own", r="r1", b="b1")),
]


@pytest.mark.parametrize(("mine", "theirs"), [case[1:] for case in KEPT], ids=[case[0] for case in KEPT])
def test_unrelated_commits_do_not_make_a_write_start_over(
    graph: Graph, interrupt: Interrupt, interruption: Interruption, mine: Write, theirs: Write
) -> None:
    interrupt(theirs)
    receipt = perform(graph, mine)
    assert receipt.commit.graph_manifest_version == 4
    assert interruption.passed["stage.before"] == 1
    assert interruption.passed["publish.before"] == 2


RETRIED: list[tuple[str, Write, Write]] = [
    ("appends of two keys", load("append", node("Reader", card="a")), load("append", node("Reader", card="b"))),
    ("inserts into one type", mutation("print", b="b3"), mutation("print", b="b4")),
    ("upserts of one key", mutation("join", r="r1", e="mine"), mutation("join", r="r1", e="theirs")),
    ("updates of two properties", load("update", node("Reader", card="r1", name="m")), mutation("mail", r="r1", e="t")),
    (
        "an update that finds one of its types as it is, which another writer changes",
        load("update", node("Reader", card="r1", name="one"), node("Book", isbn="b1", title="new")),
        mutation("rename", r="r1", n="theirs"),
    ),
    ("parallel edges", mutation("borrow", r="r1", b="b1"), mutation("borrow", r="r1", b="b1")),
]


@pytest.mark.parametrize(("mine", "theirs"), [case[1:] for case in RETRIED], ids=[case[0] for case in RETRIED])
def test_a_retryable_write_is_prepared_again_on_the_new_head(
    graph: Graph, interrupt: Interrupt, interruption: Interruption, mine: Write, theirs: Write
) -> None:
    interrupt(theirs)
    receipt = perform(graph, mine)
    assert receipt.commit.graph_manifest_version == 4
    assert interruption.passed["stage.before"] == 2


def test_of_two_upserts_the_last_publisher_wins(graph: Graph, interrupt: Interrupt, interruption: Interruption) -> None:
    interrupt(mutation("join", r="r1", e="theirs"))
    perform(graph, mutation("join", r="r1", e="mine"))
    assert rows(graph, "node:Reader")["r1"]["email"] == "mine"


def test_two_updates_of_one_row_are_both_kept(graph: Graph, interrupt: Interrupt) -> None:
    interrupt(load("update", node("Reader", card="r1", email="theirs"), node("Reader", card="r2", name="theirs")))
    receipt = perform(
        graph, load("update", node("Reader", card="r1", name="mine"), node("Reader", card="r2", email="m"))
    )
    readers = rows(graph, "node:Reader")
    assert [(readers[card]["name"], readers[card]["email"]) for card in ("r1", "r2")] == [
        ("mine", "theirs"),
        ("theirs", "m"),
    ]
    assert receipt.updated == 2


@pytest.mark.parametrize("mode", ["update", "merge"])
def test_a_load_that_finds_its_values_written_by_another_makes_no_commit(
    graph: Graph, interrupt: Interrupt, mode: str
) -> None:
    interrupt(load("merge", node("Reader", card="r1", name="same")))
    receipt = perform(graph, load(mode, node("Reader", card="r1", name="same")))
    assert (receipt.commit, receipt.unchanged, graph.snapshot().version) == (None, 1, 3)


def test_an_update_is_read_again_by_a_schema_that_changed(
    graph: Graph, interruption: Interruption, processes: tuple[OtherProcess, OtherProcess]
) -> None:
    renamed = SCHEMA.replace("name: String?", 'called: String? @rename_from("name")')
    interruption.at("publish.before", lambda: processes[0].do(graph.uri, "schema.apply", renamed))
    with pytest.raises(BadRequestError, match="unknown input field 'name'"):
        perform(graph, load("update", node("Reader", card="r1", name="mine")))
    perform(graph, load("update", node("Reader", card="r1", called="mine")))
    assert graph.entity("node:Reader", "r1")["called"] == "mine"


def test_now_stays_the_instant_of_the_request(graph: Graph, interrupt: Interrupt, interruption: Interruption) -> None:
    interrupt(mutation("join", r="r9", e=None))
    receipt = perform(graph, mutation("join", r="r8", e=None))
    seen = rows(graph, "node:Reader")["r8"]["seen"]
    assert round(seen.timestamp() * 1000) == receipt.commit.created_at // 1000


def test_a_repeat_that_runs_at_the_same_time_has_one_effect(
    graph: Graph, interrupt: Interrupt, interruption: Interruption
) -> None:
    name, arguments, options = mutation("borrow", r="r1", b="b1")
    once = (name, arguments, {**options, "idempotency_key": "once"})
    interrupt(once)
    receipt = perform(graph, once)
    assert receipt.commit.graph_manifest_version == 3
    assert len(rows(graph, "edge:Borrowed")) == 1


def test_a_branch_that_appears_while_a_load_would_create_it_is_loaded_onto(
    graph: Graph, interrupt: Interrupt, interruption: Interruption
) -> None:
    interrupt(load("append", node("Book", isbn="theirs"), branch="side", base="main"))
    receipt = perform(graph, load("append", node("Book", isbn="mine"), branch="side", base="main"))
    assert (receipt.branch_created, receipt.commit.graph_manifest_version) == (False, 4)
    assert set(rows(graph, "node:Book", "side")) == {"b1", "b2", "theirs", "mine"}


def test_a_crash_before_the_branch_is_named_leaves_none(graph: Graph, interruption: Interruption) -> None:
    def crash() -> None:
        raise ConflictError("stands for a process that ends here")

    interruption.at("branch.create.before", crash)
    with pytest.raises(ConflictError):
        perform(graph, load("append", node("Book", isbn="x"), branch="side", base="main"))
    assert Graph.open(graph.uri).list_branches() == ["main"]


# Free running

ROUNDS = 8


Race = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def race(graph: Graph, processes: tuple[OtherProcess, OtherProcess]) -> Race:
    """Two writes at once, one in each process; their answers."""

    def run(*writes: Write) -> list[dict[str, Any]]:
        for process, (method, arguments, options) in zip(processes, writes, strict=True):
            process.ask(graph.uri, method, *arguments, **options)
        return [process.answer() for process in processes]

    return run


def committed(answers: list[dict[str, Any]]) -> list[bool]:
    return [bool(answer.get("commit")) for answer in answers]


def test_one_key_is_appended_once(graph: Graph, race: Race) -> None:
    for i in range(ROUNDS):
        write = load("append", node("Reader", card=f"new{i}"))
        answers = race(write, write)
        assert sorted(committed(answers)) == [False, True], answers
        assert [a["error"] for a in answers if "error" in a] == ["KeyConflictError"]
    assert graph.snapshot().version == 2 + ROUNDS


def test_the_last_allowed_edge_is_given_once(graph: Graph, race: Race) -> None:
    for i in range(ROUNDS):
        graph.load(lines(node("Reader", card=f"s{i}")), mode="append")
        answers = race(mutation("own", r=f"s{i}", b="b1"), mutation("own", r=f"s{i}", b="b2"))
        assert sorted(committed(answers)) == [False, True], answers
    assert max(Counter(row["src"] for row in rows(graph, "edge:Owns").values()).values()) == 1


@pytest.mark.parametrize("removal", ["delete", "overwrite"])
def test_no_edge_outlives_its_endpoint(graph: Graph, race: Race, removal: str) -> None:
    for i in range(ROUNDS):
        graph.load(lines(node("Book", isbn="kept"), node("Book", isbn=f"n{i}")), mode="merge")
        remove = (
            mutation("write_off", b=f"n{i}") if removal == "delete" else load("overwrite", node("Book", isbn="kept"))
        )
        answers = race(remove, mutation("borrow", r="r1", b=f"n{i}"))
        books = set(rows(graph, "node:Book"))
        assert {row["dst"] for row in rows(graph, "edge:Borrowed").values()} <= books, answers
        if removal == "overwrite":
            assert committed(answers) != [True, True]
            graph.mutate('query it() { delete Borrowed where from = "r1" }')


def test_distinct_inserts_all_succeed(graph: Graph, race: Race) -> None:
    for i in range(ROUNDS):
        answers = race(mutation("print", b=f"left{i}"), load("append", node("Book", isbn=f"right{i}")))
        assert committed(answers) == [True, True], answers
    assert len(rows(graph, "node:Book")) == 2 + 2 * ROUNDS


# Threads of one process


def in_threads(work: Callable[[int], object], count: int = 8) -> list[object]:
    """What each of several simultaneous calls returned, or the error it raised."""

    def attempt(i: int) -> object:
        try:
            return work(i)
        except OmniGraphError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(attempt, range(count)))


def test_threads_that_insert_different_things_all_succeed(graph: Graph) -> None:
    writes = [mutation("print", b=f"t{i}") if i % 2 else load("append", node("Reader", card=f"t{i}")) for i in range(8)]
    results = in_threads(lambda i: perform(graph, writes[i]))
    assert not [r for r in results if isinstance(r, OmniGraphError)]
    assert graph.snapshot().version == 2 + 8


def test_threads_that_append_one_key_have_one_winner(graph: Graph) -> None:
    results = in_threads(lambda _: perform(graph, load("append", node("Reader", card="same"))))
    assert sum(isinstance(r, KeyConflictError) for r in results) == 7
    assert graph.snapshot().version == 3
