"""What single changes of a schema write, what they refuse, and what others see meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api.schema import StepEffect
from omnigraph.errors import BadRequestError, ConstraintError, ConstraintRule, MergeConflictsError, StorageError
from tests.conftest import Place
from tests.engine.writer import OtherProcess
from tests.support.costs import settled
from tests.support.s3 import Fault, S3Server

SCHEMA = """
node Book { isbn: String @key  pages: I32?  status: enum(open, done)  note: String?  vec: Vector(2)? @index }
node Reader { card: String @key }
edge Borrowed: Reader -> Book { day: Date? }
"""

BOOKS: list[dict[str, Any]] = [
    {"isbn": "1", "pages": 10, "status": "open", "note": "a", "vec": [1, 0]},
    {"isbn": "2", "pages": None, "status": "done", "note": "b", "vec": [0, 2]},
    {"isbn": "3", "pages": 30, "status": "open", "note": "b", "vec": [9, 9]},
]
READERS = [{"card": "ann"}, {"card": "bob"}]
LOANS = [
    {"from": "ann", "to": "1", "day": "2024-01-01"},
    {"from": "ann", "to": "1", "day": "2024-02-02"},
    {"from": "bob", "to": "2"},
]


def filled(uri: str | Path) -> Graph:
    graph = Graph.init(uri, SCHEMA)
    graph.load(BOOKS[:2], type="Book", mode="append")
    graph.load(BOOKS[2:], type="Book", mode="append")
    graph.load(READERS, type="Reader", mode="append")
    graph.load(LOANS, type="Borrowed", mode="append")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return filled(tmp_path / "graph")


def changed(*edits: tuple[str, str]) -> str:
    text = SCHEMA
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def books(graph: Graph, **point: Any) -> dict[str, dict[str, Any]]:
    found = graph.query("query all() { match { $b: Book } return { $b } }", **point).to_arrow().to_pylist()
    return {row["b"]["isbn"]: {k: v for k, v in row["b"].items() if k[0] != "@"} for row in found}


def loans(graph: Graph, **point: Any) -> list[tuple[str, str, str, Any]]:
    text = """query all() {
        match { $r: Reader  $r $l:borrowed $b }
        return { $l.@id as id, $r.card as card, $b.isbn as isbn, $l.day as day }
        order { card, day }
    }"""
    return [tuple(row.values()) for row in graph.query(text, **point).to_arrow().to_pylist()]


WIDEN = ("pages: I32?", "pages: I64?")
RENAME = ("enum(open, done)", 'enum(todo, done) @rename_value("open", to="todo")')
KEY = ("{ day: Date? }", "{ day: Date?  @key(@src, @dst) }")
REQUIRED = ("note: String?", "note: String?  stock: I32 = 7")
FILL = ("pages: I32?", "pages: I32 = 5")

EFFECTS = [
    pytest.param(("enum(open, done)", "enum(open, done)?"), StepEffect(), id="relaxing is metadata"),
    pytest.param(WIDEN, StepEffect(rows=3, files=2), id="widening writes the column"),
    pytest.param(RENAME, StepEffect(rows=2, files=2), id="a renamed value is written where it is"),
    pytest.param(FILL, StepEffect(rows=1, files=1), id="a default is written where a value is missing"),
    pytest.param(REQUIRED, StepEffect(rows=3, files=2, needs_format=3), id="a new required property is written"),
    pytest.param(
        ("note: String?", "note: String?  stock: I32?"), StepEffect(), id="a new nullable property is metadata"
    ),
    pytest.param(("note: String?", ""), StepEffect(), id="a drop is metadata"),
    pytest.param(("note: String?", "note: String? @index"), StepEffect(), id="an index is metadata"),
    pytest.param(
        ("note: String?", "note: String"),
        StepEffect(checks=("every Book has a value of 'note'",)),
        id="tightening only checks",
    ),
    pytest.param(
        ("-> Book {", "-> Book @card(0..9) {"),
        StepEffect(checks=("every source has 0..9 edges of Borrowed, if it has any",)),
        id="a cardinality only checks",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), EFFECTS)
def test_a_plan_says_what_its_first_step_writes_and_checks(
    graph: Graph, edit: tuple[str, str], expected: StepEffect
) -> None:
    effect = graph.schema.plan(changed(edit)).steps[0].effect
    assert effect is not None
    assert (effect.rows, effect.files, effect.checks) == (expected.rows, expected.files, expected.checks)
    assert (effect.offences, effect.needs_format) == ((), expected.needs_format)
    assert (effect.bytes > 0, effect.metadata_only) == (effect.files > 0, effect.files == 0)


OFFENCES: list[tuple[tuple[str, str], ConstraintRule, str, str]] = [
    (("pages: I32?", "pages: I32"), ConstraintRule.REQUIRED, "2", "'pages' has null value"),
    (("enum(open, done)", "enum(done)"), ConstraintRule.ENUM, "1", "invalid enum value 'open'"),
    (("note: String?", "note: enum(a)?"), ConstraintRule.ENUM, "2", "invalid enum value 'b'"),
    (("note: String?", "note: String? @unique"), ConstraintRule.UNIQUE, "3", "held by '2' and '3'"),
    (("note: String?", 'note: String? @check(note, "a")'), ConstraintRule.CHECK, "2", "does not match pattern"),
    (("note: String?", "note: String? @range(pages, 20..)"), ConstraintRule.RANGE, "1", "10 < min 20"),
]


@pytest.mark.parametrize(("edit", "rule", "entity_id", "reason"), OFFENCES)
def test_rows_that_break_a_new_rule_are_named_and_nothing_changes(
    graph: Graph, edit: tuple[str, str], rule: ConstraintRule, entity_id: str, reason: str
) -> None:
    before = graph.snapshot().commit_id
    plan = graph.schema.plan(changed(edit))
    assert (plan.supported, plan.failing_checks) == (True, 1)
    with pytest.raises(ConstraintError, match=reason) as refused:
        graph.schema.apply(changed(edit))
    assert (refused.value.rule, refused.value.entity_id) == (rule, entity_id)
    assert str(refused.value).startswith("the schema can't be applied, because stored rows break it: node:Book")
    assert graph.snapshot().commit_id == before


def test_too_many_edges_are_named_by_their_source(graph: Graph) -> None:
    with pytest.raises(ConstraintError, match=r"source 'ann' has 2 edges \(max 1\)"):
        graph.schema.apply(changed(("-> Book {", "-> Book @card(0..1) {")))


def test_only_the_first_offences_are_named(graph: Graph) -> None:
    graph.load([{"isbn": f"x{i}", "status": "open"} for i in range(20)], type="Book", mode="append")
    with pytest.raises(ConstraintError) as refused:
        graph.schema.apply(changed(("pages: I32?", "pages: I32")))
    assert str(refused.value).count("node:Book '") == 5
    assert "(and possibly more)" in str(refused.value)


def test_renamed_values_are_checked_by_the_rules_of_the_type(graph: Graph) -> None:
    checked = changed(RENAME, ("note: String?", 'note: String?  @check(status, "^[a-s]")'))
    with pytest.raises(ConstraintError, match="value 'todo' does not match"):
        graph.schema.apply(checked)


def test_values_carry_over_and_the_past_keeps_its_own(graph: Graph) -> None:
    before, version = books(graph), graph.snapshot().version
    graph.schema.apply(changed(WIDEN, RENAME, REQUIRED))
    assert books(graph) == {
        isbn: {**book, "stock": 7, "status": {"open": "todo"}.get(book["status"], book["status"])}
        for isbn, book in before.items()
    }
    assert books(graph, version=version) == before
    graph.load([{"isbn": "9", "pages": 2**40, "status": "todo"}], type="Book", mode="append")
    assert books(graph)["9"] == {"isbn": "9", "pages": 2**40, "status": "todo", "note": None, "stock": 7}
    assert graph.maintenance.verify().clean


def test_a_change_of_the_schema_alone_changes_no_entity(graph: Graph) -> None:
    version = graph.snapshot().version
    graph.schema.apply(changed(WIDEN, RENAME, REQUIRED))
    assert graph.diff(graph.at(version=version), "main").changes == ()


def test_deleted_rows_do_not_stand_against_a_tighter_property(graph: Graph) -> None:
    graph.mutate('query gone() { delete Book where isbn = "2" }')
    graph.schema.apply(changed(("pages: I32?", "pages: I32")))
    assert sorted(books(graph)) == ["1", "3"]
    graph.maintenance.optimize()
    with pytest.raises(ConstraintError, match="pages"):
        graph.load([{"isbn": "4", "status": "open"}], type="Book", mode="append")


def test_a_widened_key_keeps_ids_and_edges(tmp_path: Path) -> None:
    schema = "node P { n: I32 @key }\nedge Next: P -> P"
    graph = Graph.init(tmp_path / "graph", schema)
    graph.load([{"n": 1}, {"n": 2}], type="P", mode="append")
    graph.load([{"from": 1, "to": 2}], type="Next", mode="append")
    graph.schema.apply(schema.replace("I32", "I64"))
    graph.load([{"n": 2**40}], type="P", mode="merge")
    graph.load([{"from": 2, "to": 2**40}], type="Next", mode="append")
    rows = graph.query("query q() { match { $a: P { n: 1 }  $a next{1,2} $b } return { $b.n as n } order { n } }")
    assert rows.to_arrow().column("n").to_pylist() == [2, 2**40]


# Indexes


def test_an_index_that_is_not_declared_any_more_answers_nothing(graph: Graph) -> None:
    graph.schema.apply(changed(("note: String?", "note: String? @index")))
    graph.maintenance.optimize()
    graph.schema.apply(changed(("note: String?", "note: enum(a, b, c)? @index")))
    graph.load([{"isbn": "4", "status": "open", "note": "c"}], type="Book", mode="append")
    found = graph.query('query q() { match { $b: Book { note: "c" } } return { $b.isbn as isbn } }').to_arrow()
    assert found.to_pylist() == [{"isbn": "4"}]
    graph.maintenance.optimize()
    found = graph.query('query q() { match { $b: Book { note: "b" } } return { $b.isbn as i } order { i } }').to_arrow()
    assert found.column("i").to_pylist() == ["2", "3"]


def test_another_metric_ranks_at_once_and_with_a_new_index(graph: Graph) -> None:
    nearest = "query q() { match { $b: Book } return { $b.isbn as isbn } order { nearest($b.vec, [1, 1]) } limit 1 }"
    graph.maintenance.optimize()
    assert graph.query(nearest).to_arrow().to_pylist() == [{"isbn": "1"}]
    graph.schema.apply(changed(("vec: Vector(2)? @index", 'vec: Vector(2)? @index @metric("cosine")')))
    assert graph.query(nearest).to_arrow().to_pylist() == [{"isbn": "3"}]
    graph.maintenance.optimize()
    assert graph.query(nearest).to_arrow().to_pylist() == [{"isbn": "3"}]


# Keys of edges


def test_edges_that_share_a_key_block_it_until_somebody_says_which_one_stays(graph: Graph) -> None:
    keyed = changed(KEY)
    plan = graph.schema.plan(keyed)
    assert plan.failing_checks == 1
    with pytest.raises(ConstraintError, match="--dedupe first or --dedupe last"):
        graph.schema.apply(keyed)
    assert graph.schema.plan(keyed, dedupe="last").failing_checks == 0


@pytest.mark.parametrize(("dedupe", "day"), [("first", "2024-01-01"), ("last", "2024-02-02")])
def test_edges_get_the_ids_of_their_key(graph: Graph, dedupe: Any, day: str) -> None:
    graph.schema.apply(changed(KEY), dedupe=dedupe)
    kept = [(each[0], each[1], each[2], str(each[3]) if each[3] else None) for each in loans(graph)]
    assert sorted(kept) == [('["ann","1"]', "ann", "1", day), ('["bob","2"]', "bob", "2", None)]
    graph.load([{"from": "bob", "to": "2", "day": "2025-05-05"}], type="Borrowed", mode="merge")
    assert len(loans(graph)) == 2
    assert graph.maintenance.verify().clean


def test_a_key_for_no_edges_is_a_key(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    effects = [step.effect for step in graph.schema.plan(changed(KEY, WIDEN, RENAME, REQUIRED)).steps]
    assert all(effect is not None and effect.metadata_only for effect in effects), "there is nothing to write again"
    graph.schema.apply(changed(KEY))
    graph.load(READERS, type="Reader", mode="append")
    graph.load(BOOKS, type="Book", mode="append")
    graph.load([LOANS[0], LOANS[2]], type="Borrowed", mode="append")
    assert [each[0] for each in loans(graph)] == ['["ann","1"]', '["bob","2"]']


# Branches


def test_a_merge_carries_rows_of_the_old_schema_over(graph: Graph) -> None:
    graph.create_branch("old")
    graph.load([{"isbn": "1", "pages": 11, "status": "open"}], type="Book", mode="merge", branch="old")
    graph.load([{"isbn": "8", "pages": 8, "status": "open"}], type="Book", mode="merge", branch="old")
    graph.schema.apply(changed(WIDEN, RENAME, REQUIRED))
    graph.merge("old")
    assert books(graph)["1"] == {"isbn": "1", "pages": 11, "status": "todo", "note": None, "stock": 7}
    assert books(graph)["8"] == {"isbn": "8", "pages": 8, "status": "todo", "note": None, "stock": 7}


def test_a_schema_changed_on_a_branch_carries_the_rows_of_main_over(graph: Graph) -> None:
    graph.create_branch("new")
    graph.schema.apply(changed(WIDEN, RENAME, REQUIRED), branch="new")
    graph.load([{"isbn": "8", "pages": 8, "status": "open"}], type="Book", mode="append")
    assert books(graph)["1"]["status"] == "open"
    graph.merge("new")
    assert books(graph)["8"] == {"isbn": "8", "pages": 8, "status": "todo", "note": None, "stock": 7}
    assert books(graph)["3"]["status"] == "todo"


def test_rows_that_break_the_new_rules_are_conflicts(graph: Graph) -> None:
    graph.create_branch("old")
    graph.load([{"isbn": "8", "pages": 5, "status": "open"}], type="Book", mode="append", branch="old")
    graph.schema.apply(changed(("note: String?", "note: String?  @range(pages, 9..)")))
    with pytest.raises(MergeConflictsError) as refused:
        graph.merge("old")
    assert [each.entity_id or each.message for each in refused.value.conflicts] == [
        "@range violation on Book.pages: value 5 < min 9 (entity '8')"
    ]


def test_edges_that_changed_while_their_type_got_a_key_are_a_conflict_with_a_way_out(graph: Graph) -> None:
    graph.create_branch("same")
    graph.create_branch("old")
    graph.load([{"from": "bob", "to": "3"}], type="Borrowed", mode="append", branch="old")
    graph.load([{"isbn": "8", "status": "open"}], type="Book", mode="append", branch="same")
    graph.schema.apply(changed(KEY), dedupe="first")
    with pytest.raises(MergeConflictsError, match="got a key on 'main'"):
        graph.merge("old")
    graph.merge("same")
    graph.schema.apply(changed(KEY), branch="old", dedupe="first")
    graph.merge("old")
    assert sorted(each[0] for each in loans(graph)) == ['["ann","1"]', '["bob","2"]', '["bob","3"]']
    assert "8" in books(graph)


# Others at the same time


@pytest.fixture(scope="module")
def another() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


@pytest.fixture
def meanwhile(graph: Graph, another: OtherProcess) -> Callable[..., None]:
    """Let another process commit a write just before ours is published for the first time."""

    def prepare(method: str, *arguments: object, **options: object) -> None:
        left = [True]

        def observe(point: str) -> None:
            if point == "publish.before" and left:
                left.clear()
                answer = another.do(graph.uri, method, *arguments, **options)
                assert answer.get("commit"), answer

        graph._workspace.root.trace.observer = observe

    return prepare


def test_a_row_that_arrives_after_the_check_is_checked_too(graph: Graph, meanwhile: Callable[..., None]) -> None:
    meanwhile("load", [{"isbn": "8", "status": "open"}], type="Book", mode="append")
    with pytest.raises(ConstraintError, match="node:Book '8'"):
        graph.schema.apply(changed(("note: String?", "note: String")))
    assert "8" in books(graph)


def test_a_row_that_arrives_during_a_rewrite_is_rewritten_too(graph: Graph, meanwhile: Callable[..., None]) -> None:
    meanwhile("load", [{"isbn": "8", "status": "open", "pages": 8}], type="Book", mode="append")
    graph.schema.apply(changed(WIDEN, RENAME, REQUIRED))
    assert books(graph)["8"] == {"isbn": "8", "status": "todo", "pages": 8, "note": None, "stock": 7}


def test_a_write_that_was_prepared_under_the_old_schema_is_prepared_again(
    graph: Graph, meanwhile: Callable[..., None]
) -> None:
    meanwhile("apply_schema", changed(("note: String?", "note: String")))
    with pytest.raises(BadRequestError, match="'note' has null value"):
        graph.load([{"isbn": "8", "status": "open"}], type="Book", mode="append")
    assert "8" not in books(graph)


# At the store

EACH_STEP = {
    "relax": ("enum(open, done)", "enum(open, done)?"),
    "tighten": ("note: String?", "note: String"),
    "fill": FILL,
    "widen": WIDEN,
    "rename": RENAME,
    "required": REQUIRED,
    "drop": ("note: String?", ""),
    "key": KEY,
    "rules": ("note: String?", 'note: String? @index  @check(note, "[ab]")  @range(pages, 1..)'),
    "metric": ("vec: Vector(2)? @index", 'vec: Vector(2)? @index @metric("dot")'),
}


class Death:
    """No request after the n-th one reaches the store."""

    def __init__(self, nth: int) -> None:
        self.nth, self.seen = nth, 0

    def __call__(self, method: str, path: str) -> Fault | None:
        self.seen += 1
        return Fault(403) if self.seen > self.nth else None


@pytest.mark.parametrize("step", EACH_STEP)
def test_a_change_that_dies_at_any_request_happened_as_a_whole_or_not_at_all(
    step: str, s3_place: Place, s3_server: S3Server
) -> None:
    filled(s3_place.uri).close()
    with Graph.open(s3_place.uri) as graph:
        before, schema, head = (books(graph), loans(graph)), graph.schema.show(), graph.snapshot().commit_id
    wanted = changed(EACH_STEP[step])
    for nth in range(40):
        with Graph.open(s3_place.uri) as dying:
            dying.snapshot()
            death = Death(nth)
            with s3_server.broken(death):
                try:
                    dying.schema.apply(wanted, dedupe="last")
                except StorageError:
                    pass
                except BadRequestError as error:
                    raise AssertionError(f"a store that fails is not a bad request: {error}") from error
        with Graph.open(s3_place.uri) as fresh:
            if fresh.snapshot().commit_id != head:
                break
            assert (fresh.schema.show(), (books(fresh), loans(fresh))) == (schema, before)
    else:
        raise AssertionError("the change never came to its end")
    with Graph.open(s3_place.uri) as fresh:
        assert fresh.schema.show() == wanted
        assert fresh.maintenance.verify().clean
        fresh.load([{"card": "new"}], type="Reader", mode="append")


@pytest.mark.parametrize("step", EACH_STEP)
def test_requests_grow_with_the_files_that_the_plan_names(step: str, s3_place: Place, s3_server: S3Server) -> None:
    filled(s3_place.uri).close()
    wanted = changed(EACH_STEP[step])
    with Graph.open(s3_place.uri) as graph:
        plan = graph.schema.plan(wanted, dedupe="last")
        files = sum(each.effect.files for each in plan.steps if each.effect is not None)
        log = settled(graph, s3_server, lambda: graph.schema.apply(wanted, dedupe="last"))
    written = [request for request in log.requests if request.method in ("PUT", "POST")]
    assert len(written) <= 9 + files
    assert len(log) <= 16 + 3 * files
