"""Net diffs: by value, by id, between any two states; and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.history import ChangeScope, ChangeSet
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import BadRequestError, NotFoundError
from tests.engine.evolving import change_schema
from tests.engine.town import SCHEMA, drop, knows, new_town, person, place, put
from tests.support.lance_tables import lance_of


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    graph = new_town(tmp_path / "town", person("ada", age=1), person("bob"), place("inn"), knows("k", "ada", "bob"))
    yield graph
    graph.close()


def told(changes: ChangeSet) -> list[tuple[str, str, str]]:
    return [(change.type_name, change.id, change.op.value) for change in changes.changes]


def compact(graph: Graph, branch: str, type_key: str) -> None:
    def prepare(txn: WriteTxn) -> PublishPlan:
        fragments = [f.fragment_id for f in lance_of(txn.snapshot.table(type_key)).get_fragments()]
        return PublishPlan(txn.stage({type_key: lambda state: txn.root.staging.compact(state, fragments)}))

    graph._workspace.commit(branch, prepare, Intent(kind="optimize"))


def test_a_diff_lists_edges_before_nodes_types_by_name_and_entities_by_id(town: Graph) -> None:
    town.create_branch("side")
    put(town, "side", person("zed"), person("ada", age=2), place("mill"), knows("k9", "ada", "zed"))
    drop(town, "side", "Person", "bob")
    changes = town.diff("main", "side")
    assert told(changes) == [
        ("Knows", "k", "delete"),
        ("Knows", "k9", "insert"),
        ("Person", "ada", "update"),
        ("Person", "bob", "delete"),
        ("Person", "zed", "insert"),
        ("Place", "mill", "insert"),
    ]
    form = wire.to_builtins(changes)
    assert form["graph_branch"] == "side"
    assert form["stats"] == {"inserts": 3, "updates": 1, "deletes": 2, "types_affected": ["Knows", "Person", "Place"]}
    assert form["changes"][0]["endpoints"] == {"src": "ada", "dst": "bob"}
    assert (form["from_graph_manifest_version"], form["to_graph_manifest_version"]) == (2, 4)


def test_the_other_direction_turns_inserts_into_deletes(town: Graph) -> None:
    before = town.snapshot().commit_id
    put(town, "main", person("cy"), person("ada", age=5))
    after = town.snapshot().commit_id
    assert told(town.diff(before, after)) == [("Person", "ada", "update"), ("Person", "cy", "insert")]
    assert told(town.diff(after, before)) == [("Person", "ada", "update"), ("Person", "cy", "delete")]


def test_identical_states_reached_on_two_branches_do_not_differ(town: Graph) -> None:
    town.create_branch("side")
    for branch in ("main", "side"):
        put(town, branch, person("cy", tags=["x"], vec=[1, 2], photo="base64:AAE="))
    assert told(town.diff("main", "side")) == []


def test_a_rewrite_with_equal_values_is_no_change(town: Graph) -> None:
    before = town.snapshot()
    assert town.mutate('query again() { insert Person { name: "ada", age: 1 } }').commit is not None
    assert told(town.diff(before, "main")) == []


def test_compaction_is_no_change(town: Graph) -> None:
    for i in range(3):
        put(town, "main", person(f"n{i}", photo="base64:AAE=", tags=["a"]))
    before = town.snapshot()
    compact(town, "main", "node:Person")
    assert town.snapshot().entry.tables != before.entry.tables
    assert told(town.diff(before, "main")) == []


VALUES = [
    ("photo", "base64:AAE=", "base64:AAI="),
    ("photo", "base64:", None),
    ("height", 0.0, -0.0),
    ("tags", [], None),
    ("tags", ["a", "b"], ["a, b"]),
    ("vec", [0.0, 0.0], [0.0, -0.0]),
    ("email", "", None),
]


@pytest.mark.parametrize(("name", "one", "other"), VALUES)
def test_every_kind_of_value_counts(town: Graph, name: str, one: Any, other: Any) -> None:
    put(town, "main", person("ada", **{name: one}))
    before = town.snapshot()
    put(town, "main", person("ada", **{name: one}))
    assert told(town.diff(before, "main")) == []
    put(town, "main", person("ada", **{name: other}))
    assert told(town.diff(before, "main")) == [("Person", "ada", "update")]


def test_lists_with_null_items_compare_in_order(town: Graph) -> None:
    def write(tags: list[Any]) -> None:
        town.load_lenient(person("ada", tags=tags), mode="merge")

    write(["a", None, 1])
    before = town.snapshot()
    write(["a", 2, 3])
    assert told(town.diff(before, "main")) == []
    write([None, "a", None])
    assert told(town.diff(before, "main")) == [("Person", "ada", "update")]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"kinds": ["edge"]}, ["k2"]),
        ({"types": ["Person"]}, ["ada", "cy"]),
        ({"ops": ["insert"]}, ["k2", "cy"]),
        ({"kinds": ["node", "edge"], "ops": []}, ["k2", "ada", "cy"]),
    ],
)
def test_filters_select_what_is_listed(town: Graph, scope: dict[str, list[str]], expected: list[str]) -> None:
    before = town.snapshot()
    put(town, "main", person("cy"), person("ada", age=7), knows("k2", "ada", "ada"))
    assert [c.id for c in town.diff(before, "main", ChangeScope.of(**scope)).changes] == expected


def test_unknown_filters_and_states_are_refused(town: Graph) -> None:
    with pytest.raises(BadRequestError, match="unknown operation 'upsert'"):
        ChangeScope.of(ops=["upsert"])
    with pytest.raises(BadRequestError, match=r"the graph has no type 'Persn'; did you mean 'Person'\?"):
        town.diff("main", "main", ChangeScope.of(types=["Person", "Persn"]))
    with pytest.raises(BadRequestError, match=r"unknown type 'node:Persn'; did you mean 'node:Person'\?"):
        town.maintenance.optimize(types=["node:Persn"])
    with pytest.raises(NotFoundError):
        town.diff("main", "nowhere")


def test_a_type_of_either_state_may_be_named(town: Graph) -> None:
    """Also one that is gone by now, or that the commit did not know yet."""
    put(town, "main", place("home"))
    before = town.snapshot()
    without = SCHEMA.replace("node Place { name: String @key  kind: enum(house, shop)? }", "").replace(
        "edge Lives: Person -> Place @card(0..1) {}", ""
    )
    change_schema(town, "main", without + "node Tag { name: String @key }")
    assert [c.id for c in town.diff(before, "main", ChangeScope.of(types=["Place"])).changes] == ["home", "inn"]
    assert town.diff(before, "main", ChangeScope.of(types=["Tag"])).changes == ()
    assert town.changes.page(before.commit_id, scope=ChangeScope.of(types=["Tag"])).changes == ()
    with pytest.raises(BadRequestError, match="the graph has no type 'Nothing'"):
        town.changes.page(before.commit_id, scope=ChangeScope.of(types=["Nothing"]))


def test_a_rename_is_no_change_and_a_new_life_of_a_name_is_deletes_then_inserts(town: Graph) -> None:
    before = town.snapshot()
    renamed = SCHEMA.replace("node Place {", 'node Spot @rename_from("Place") {').replace("-> Place", "-> Spot")
    change_schema(town, "main", renamed)
    assert told(town.diff(before, "main")) == []
    without = SCHEMA.replace("node Place { name: String @key  kind: enum(house, shop)? }", "").replace(
        "edge Lives: Person -> Place @card(0..1) {}", ""
    )
    change_schema(town, "main", without)
    change_schema(town, "main", SCHEMA)
    put(town, "main", place("inn"))
    assert told(town.diff(before, "main")) == [("Place", "inn", "delete"), ("Place", "inn", "insert")]


def test_a_property_that_was_dropped_reads_as_null(town: Graph) -> None:
    before = town.snapshot()
    change_schema(town, "main", SCHEMA.replace("age: I32?", "").replace("@range(age, 0..150)", ""))
    assert told(town.diff(before, "main")) == [("Person", "ada", "update")]


def test_a_type_with_a_million_rows_and_ten_changes_is_compared_for_less_than_a_percent_of_its_bytes(
    tmp_path: Path,
) -> None:
    rows = 1_000_000
    with Graph.init(tmp_path / "big", "node Item { name: String @key  n: I64?  vec: Vector(16)? }") as graph:
        schema = graph.snapshot().table("node:Item").schema
        columns = {p.name: p.column for p in graph.catalog.nodes["Item"].property_list}
        names = pc.binary_join_element_wise("item", pa.array(np.arange(rows)).cast(pa.string()), "-")
        numbers = np.random.default_rng(1).random(rows * 16, np.float32)
        data = {
            "id": names,
            columns["name"]: names,
            columns["n"]: pa.array(np.arange(rows)),
            columns["vec"]: pa.FixedSizeListArray.from_arrays(pa.array(numbers), 16),
        }
        items = pa.table([data[name] for name in schema.names], schema=schema)

        def prepare(txn: WriteTxn) -> PublishPlan:
            return PublishPlan(txn.stage({"node:Item": lambda state: txn.root.staging.append(state, items)}))

        graph._workspace.commit("main", prepare, Intent(kind="load"))
        before = graph.snapshot()
        changed = [f'{{"type":"Item","data":{{"name":"item-{i * 99_991}","n":-1}}}}' for i in range(10)]
        graph.load("\n".join(changed), mode="merge")
        after = graph.snapshot()
        size = sum(f.stat().st_size for f in (tmp_path / "big").rglob("data/*.lance"))

        with Graph.open(tmp_path / "big") as fresh:
            tables = [fresh._workspace.root.reader.open(s.entry.tables["node:Item"]) for s in (before, after)]
            changes = fresh.diff(before.commit_id, after.commit_id)
            read = sum(lance_of(table).io_stats_snapshot().read_bytes for table in tables)
        assert [c.op.value for c in changes.changes] == ["update"] * 10
        assert read < size / 100, f"read {read} of {size} bytes"
