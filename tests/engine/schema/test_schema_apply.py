"""Schema changes on populated graphs: one commit each, nothing rewritten without need, the past stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import BadRequestError, HistoricalVersionReclaimedError
from tests.engine.library import SCHEMA, blob, book, content, load, loan, reader
from tests.support.lance_tables import lance_of
from tests.support.preempt import DiedError
from tests.support.receipts import replayed

WITHOUT_NAMES = SCHEMA.replace("name: String?", "")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    load(
        graph,
        [
            book("b1", pages=10, genre="novel", tags=["a"], cover=blob(b"first"), mood=[1, 2, 3]),
            book("b2", pages=20),
            reader("r1", name="Ann"),
            loan("r1", "b1", note="soon"),
        ],
    )
    return graph


def changed(old: str, new: str) -> str:
    assert old in SCHEMA
    return SCHEMA.replace(old, new)


def paths(graph: Graph) -> dict[str, tuple[str, str]]:
    return {key: (state.path, state.version) for key, state in graph.snapshot().entry.tables.items()}


def test_the_same_schema_again_is_no_commit(graph: Graph) -> None:
    before = graph.snapshot()
    applied = graph.schema.apply("// a comment\n" + SCHEMA)
    assert (applied.supported, applied.applied, applied.steps) == (True, False, ())
    assert applied.graph_manifest_version == before.version == graph.snapshot().version


def test_a_plan_changes_nothing(graph: Graph) -> None:
    before = graph.snapshot()
    wider = changed("cover: Blob?", "cover: Blob?\n  price: F64?")
    assert [step.kind for step in graph.schema.plan(wider).steps] == ["add_property"]
    assert not graph.schema.plan(changed("pages: I32?", "pages: String?")).supported
    assert graph.snapshot().commit_id == before.commit_id


def test_the_wire_form_of_an_apply(graph: Graph) -> None:
    applied = graph.schema.apply(changed("enum(novel, essay)", "enum(novel, essay, poem)"))
    assert wire.to_builtins(applied) == {
        "uri": graph.uri,
        "supported": True,
        "applied": True,
        "step_count": 1,
        "graph_manifest_version": graph.snapshot().version,
        "steps": [
            {
                "kind": "extend_enum",
                "type_kind": "node",
                "type_name": "Book",
                "property_name": "genre",
                "added_values": ["poem"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("pages: I32?", "pages: String?", "[OG-MF-106]"),
        ("name: String?", "name: String?\n  email: String", "[OG-MF-103]"),
        ("Reader -> Book", "Book -> Reader", "endpoints"),
    ],
)
def test_what_is_not_possible_is_refused_with_its_code_and_without_effect(
    graph: Graph, old: str, new: str, code: str
) -> None:
    before = graph.snapshot()
    with pytest.raises(BadRequestError) as refused:
        graph.schema.apply(changed(old, new))
    assert code in str(refused.value)
    assert graph.snapshot().commit_id == before.commit_id


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("price: F64?", 2.5),
        ("subjects: [String]?", ["x"]),
        ("state: enum(lost, lent)?", "lent"),
        ("where: Vector(2)?", [1.0, 2.0]),
    ],
)
def test_a_new_property_is_null_in_old_rows_and_takes_values_at_once(
    graph: Graph, declared: str, value: object
) -> None:
    name = declared.partition(":")[0]
    before = graph.snapshot().version
    graph.schema.apply(changed("pages: I32?", f"{declared}\n  pages: I32?"))
    load(graph, [book("b3", **{name: value})], "append")
    load(graph, [book("b2", **{name: value})], "merge")
    now = content(graph, "node:Book")
    assert {isbn: row[name] for isbn, row in now.items()} == {"b1": None, "b2": value, "b3": value}
    assert now["b1"]["pages"] == 10
    assert name not in content(graph, "node:Book", version=before)["b1"]


def test_a_new_blob_property_takes_values(graph: Graph) -> None:
    graph.schema.apply(changed("cover: Blob?", "cover: Blob?\n  text: Blob?"))
    load(graph, [book("b3", text=blob(b"words"), cover=blob(b"c"))])
    content_of = graph.read_blob("node", "Book", "b3", "text").content
    assert content_of.read() == b"words"  # type: ignore[union-attr]
    assert graph.read_blob("node", "Book", "b1", "cover").content.read() == b"first"  # type: ignore[union-attr]


def test_renames_move_no_data_and_both_names_read_in_their_time(graph: Graph) -> None:
    before, tables = graph.snapshot().version, paths(graph)
    renamed = changed("node Reader {", 'node Patron @rename_from("Reader") {').replace(
        "Reader -> Book", "Patron -> Book"
    )
    renamed = renamed.replace("name: String?", 'full_name: String? @rename_from("name")')
    applied = graph.schema.apply(renamed)
    assert [step.kind for step in applied.steps] == ["rename_type", "rename_property"]
    assert paths(graph)["node:Patron"] == tables["node:Reader"]
    assert "node:Reader" not in paths(graph)
    assert content(graph, "node:Patron")["r1"]["full_name"] == "Ann"
    assert content(graph, "node:Reader", version=before)["r1"]["name"] == "Ann"
    graph.load('{"type": "Patron", "data": {"card": "r2", "full_name": "Bob"}}', mode="append")
    assert content(graph, "node:Patron")["r2"]["full_name"] == "Bob"
    assert graph.schema.apply(renamed).applied is False, "the hint may stay"


def test_two_types_may_swap_their_names(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", "node A { k: String @key }\nnode B { k: String @key  n: I32? }")
    graph.load('{"type":"A","data":{"k":"a"}}\n{"type":"B","data":{"k":"b","n":1}}', mode="append")
    graph.schema.apply('node C @rename_from("A") { k: String @key }\nnode B { k: String @key  n: I32? }')
    graph.schema.apply('node C { k: String @key }\nnode A @rename_from("B") { k: String @key  n: I32? }')
    graph.schema.apply('node B @rename_from("C") { k: String @key }\nnode A { k: String @key  n: I32? }')
    assert content(graph, "node:A") == {"b": {"k": "b", "n": 1}}
    assert content(graph, "node:B") == {"a": {"k": "a"}}


def test_a_widened_enum_moves_no_data(graph: Graph) -> None:
    before = paths(graph)
    graph.schema.apply(changed("enum(novel, essay)", "enum(novel, essay, poem)"))
    assert paths(graph) == before
    load(graph, [book("b3", genre="poem")])
    assert content(graph, "node:Book")["b3"]["genre"] == "poem"


@pytest.mark.parametrize(("old", "name"), [("name: String?", "name"), ("born: Date?", "born")])
def test_a_soft_drop_of_a_property_leaves_the_past_readable(graph: Graph, old: str, name: str) -> None:
    before = graph.snapshot()
    applied = graph.schema.apply(changed(old, ""))
    assert [step.mode for step in applied.steps] == ["soft"]
    assert applied.purged is None
    assert name not in content(graph, "node:Reader")["r1"]
    assert name in content(graph, "node:Reader", version=before.version)["r1"]
    load(graph, [reader("r2"), reader("r1")])
    assert sorted(content(graph, "node:Reader")) == ["r1", "r2"]


def test_a_required_property_can_be_dropped_and_rows_written_without_it(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", "node A { k: String @key  need: I32  tags: [String]  z: String? }")
    graph.load('{"type":"A","data":{"k":"a","need":1,"tags":["x"],"z":"end"}}', mode="append")
    graph.schema.apply("node A { k: String @key  z: String? }")
    graph.load('{"type":"A","data":{"k":"b","z":"new"}}\n{"type":"A","data":{"k":"a","z":"changed"}}', mode="merge")
    assert content(graph, "node:A") == {"a": {"k": "a", "z": "changed"}, "b": {"k": "b", "z": "new"}}
    graph.schema.apply("node A { k: String @key  need: I32?  z: String? }")
    graph.load('{"type":"A","data":{"k":"c","need":3}}', mode="append")
    graph.maintenance.optimize()
    assert {k: row["need"] for k, row in content(graph, "node:A").items()} == {"a": None, "b": None, "c": 3}


def test_a_name_added_again_begins_a_new_empty_life(graph: Graph) -> None:
    without = changed("name: String?", "")
    graph.schema.apply(without)
    graph.schema.apply(SCHEMA)
    assert content(graph, "node:Reader")["r1"]["name"] is None
    graph.schema.apply(SCHEMA.replace("edge Borrowed: Reader -> Book { on: DateTime?  note: String? }", ""))
    graph.schema.apply(SCHEMA)
    assert content(graph, "edge:Borrowed") == {}


def test_a_dropped_type_is_readable_before_the_drop(graph: Graph) -> None:
    before = graph.snapshot()
    graph.schema.apply(changed("edge Borrowed: Reader -> Book { on: DateTime?  note: String? }", ""))
    assert "edge:Borrowed" not in graph.snapshot().types()
    assert len(content(graph, "edge:Borrowed", version=before.version)) == 1


def test_a_hard_drop_purges_the_past_of_that_type_only(graph: Graph) -> None:
    before = graph.snapshot()
    applied = graph.schema.apply(changed("name: String?", ""), allow_data_loss=True)
    assert [step.mode for step in applied.steps] == ["hard"]
    assert applied.purged is not None
    assert applied.purged.versions_removed >= 1
    fresh = Graph.open(graph.uri)
    with pytest.raises(HistoricalVersionReclaimedError):
        content(fresh, "node:Reader", version=before.version)
    assert sorted(content(fresh, "node:Book", version=before.version)) == ["b1", "b2"]
    assert sorted(content(fresh, "node:Reader")) == ["r1"]
    assert fresh.maintenance.verify().clean


def test_a_repeated_apply_gets_the_first_receipt(graph: Graph) -> None:
    renamed = changed("name: String?", 'label: String? @rename_from("name")')
    graph.schema.apply(renamed)
    wider = renamed.replace("cover: Blob?", "cover: Blob?\n  price: F64?")
    first = graph.schema.apply(wider, actor="ana", idempotency_key="k")
    assert (first.applied, first.replayed, len(first.notes)) == (True, False, 1)
    load(graph, [book("b3", price=2.5)])
    graph.schema.apply(wider.replace("price: F64?", "price: F64?\n  weight: F64?"))
    head = graph.resolve_snapshot()
    again = Graph.open(graph.uri).schema.apply(wider, actor="rob", idempotency_key="k")
    assert again == replayed(first), "also when the schema has moved on"
    assert graph.resolve_snapshot() == head
    assert wire.to_builtins(again) == {**wire.to_builtins(first), "replayed": True}
    assert "replayed" not in wire.to_builtins(first)


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_hard_drop_that_died_before_its_purge_is_finished_by_its_repeat(graph: Graph, branch: str) -> None:
    """What was written after the drop is not the past that it promised to purge."""
    before = graph.snapshot()
    if branch != "main":
        graph.create_branch(branch)
    with Graph.open(graph.uri) as dying:

        def die(point: str) -> None:
            if point == "publish.after":
                raise DiedError

        dying._workspace.root.trace.observer = die
        with pytest.raises(DiedError):
            dying.schema.apply(WITHOUT_NAMES, branch=branch, allow_data_loss=True, idempotency_key="k")
    assert sorted(content(graph, "node:Reader", version=before.version)) == ["r1"]
    load(graph, [reader("r2")])
    kept = graph.snapshot().version
    load(graph, [reader("r3")])
    for _ in range(2):
        again = Graph.open(graph.uri).schema.apply(
            WITHOUT_NAMES, branch=branch, allow_data_loss=True, idempotency_key="k"
        )
        assert (again.replayed, [step.mode for step in again.steps]) == (True, ["hard"])
        assert again.purged is not None
    fresh = Graph.open(graph.uri)
    assert sorted(content(fresh, "node:Reader", version=kept)) == ["r1", "r2"]
    if branch == "main":
        with pytest.raises(HistoricalVersionReclaimedError):
            content(fresh, "node:Reader", version=before.version)
    assert fresh.maintenance.verify().clean


def test_an_interface_that_is_dropped_hard_has_no_past_to_purge(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "graph", "interface I { p: I32? }\nnode A implements I { k: String @key }") as graph:
        graph.load([{"k": "a", "p": 1}], type="A", mode="append")
        applied = graph.schema.apply("node A { k: String @key  p: I32? }", allow_data_loss=True)
        assert (applied.steps[0].kind, applied.purged) == ("drop_type", None)
        assert graph.entity("A", "a") == {"id": "a", "k": "a", "p": 1}


def test_a_hard_drop_leaves_other_live_branches_alone(graph: Graph) -> None:
    graph.create_branch("kept")
    graph.schema.apply(
        changed("edge Borrowed: Reader -> Book { on: DateTime?  note: String? }", ""), allow_data_loss=True
    )
    fresh = Graph.open(graph.uri)
    assert len(content(fresh, "edge:Borrowed", "kept")) == 1
    assert fresh.maintenance.verify().clean


def test_each_branch_has_its_own_schema(graph: Graph) -> None:
    graph.create_branch("next")
    graph.schema.apply(changed("name: String?", "name: String?\n  email: String?"), branch="next")
    load(graph, [reader("r2", email="x@y")], branch="next")
    assert content(graph, "node:Reader", "next")["r2"]["email"] == "x@y"
    with pytest.raises(BadRequestError):
        load(graph, [reader("r2", email="x@y")])
    assert "email" not in content(graph, "node:Reader")["r1"]


def test_new_types_are_usable_at_once(graph: Graph) -> None:
    graph.schema.apply(SCHEMA + "node Shelf { code: String @key }\nedge StandsOn: Book -> Shelf")
    graph.load(
        '{"type":"Shelf","data":{"code":"s"}}\n{"edge":"StandsOn","from":"b1","to":"s","data":{}}', mode="append"
    )
    assert len(content(graph, "edge:StandsOn")) == 1


def test_a_write_prepared_before_the_change_meets_the_new_schema(graph: Graph) -> None:
    """The writer stages under the old schema; its publish must not slip past the change."""
    txn = graph._workspace.begin("main", Intent(kind="load"))
    staged = txn.stage({"node:Reader": lambda s: graph._workspace.root.staging.delete(s, ["r1"])})
    graph.schema.apply(changed("name: String?", ""))
    prepared_again = []

    def again(moved):  # type: ignore[no-untyped-def]
        prepared_again.append(moved.snapshot.catalog.nodes["Reader"].properties.keys())
        return PublishPlan({})

    graph._workspace.publish(txn, PublishPlan(staged), again)
    assert [list(names) for names in prepared_again] == [["born", "card"]]
    assert sorted(content(graph, "node:Reader")) == ["r1"]


def test_indexes_survive_a_change_of_other_columns(graph: Graph) -> None:
    graph.maintenance.optimize()
    graph.schema.apply(changed("cover: Blob?", "").replace("isbn:", "price: F64?\n  isbn:"))
    table = graph.snapshot().table("node:Book")
    assert "Index" in lance_of(table).scanner(filter="isbn = 'b1'").explain_plan()
    assert table.read(["id"], filter="pages = 20").column("id").to_pylist() == ["b2"]
