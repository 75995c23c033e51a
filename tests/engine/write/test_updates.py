"""Loads by `update`: only what a record has changes, of entities that exist, and every rule holds afterwards."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import AllowedBase, ExternalBlobPolicy, Graph
from omnigraph.api.governance import Limits
from omnigraph.engine.write.external_blobs import Scope
from omnigraph.errors import (
    BadRequestError,
    ConstraintError,
    IdempotencyKeyReusedError,
    PolicyError,
    ResourceLimitError,
)
from omnigraph.storage.log.tracing import Trace
from tests.engine.stored import everything, rows
from tests.engine.visibilities import visibility_on

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String?
    team: String?
    photo: Blob?
    scan: Blob?
    tags: [String]?
    @unique(email)
    @unique(age, team)
    @range(age, 0..150)
}
node Visit { day: Date  place: I32  note: String?  @key(day, place) }
node Memo { text: String  note: String?  mood: enum(good, bad)? }
edge Knows: Person -> Person @card(0..2) { since: I32?  note: String? }
edge Met: Person -> Person { note: String?  @key(@src, @dst) }
"""


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def memo(entity_id: str, **data: Any) -> dict[str, Any]:
    return {"type": "Memo", "id": entity_id, "data": data}


STORED = [
    person("ada", age=36, email="ada@x", team="a", photo="base64:aGk=", scan="base64:eW8=", tags=["x"]),
    person("bob", age=40, email="bob@x", team="b"),
    person("cy"),
    {"type": "Visit", "data": {"day": "2020-02-29", "place": 7, "note": "n"}},
    memo("m1", text="t", note="n", mood="good"),
    {"edge": "Knows", "id": "k1", "from": "ada", "to": "bob", "data": {"since": 1, "note": "n"}},
    {"edge": "Met", "from": "ada", "to": "bob", "data": {"note": "n"}},
]


def text(records: Iterable[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, records))


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
def graph(tmp_path: Path, trace: Trace) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA, trace=trace) as graph:
        graph.load(text(STORED), mode="append")
        yield graph


def update(graph: Graph, *records: dict[str, Any], **more: Any) -> Any:
    return graph.load(text(records), mode="update", **more)


def refusal(graph: Graph, *records: dict[str, Any]) -> ConstraintError:
    before = everything(graph), graph.snapshot().version
    with pytest.raises(ConstraintError) as caught:
        update(graph, *records)
    assert (everything(graph), graph.snapshot().version) == before
    return caught.value


# What changes


def test_only_the_members_of_a_record_change(graph: Graph) -> None:
    before = rows(graph, "node:Person")
    receipt = update(graph, person("ada", age=37), person("bob", email=None, tags=["y"]))
    after = rows(graph, "node:Person")
    assert after["ada"] == {**before["ada"], "age": 37}
    assert after["bob"] == {**before["bob"], "email": None, "tags": ["y"]}
    assert after["cy"] == before["cy"]
    assert (receipt.inserted, receipt.updated, receipt.unchanged, receipt.deleted) == (0, 2, 0, 0)
    assert rows(graph, "node:Person")["ada"]["photo"] == b"hi"


def test_a_node_is_found_by_its_key_or_its_id(graph: Graph) -> None:
    update(
        graph,
        {"type": "Visit", "data": {"day": "2020-02-29", "place": 7, "note": "by key"}},
        {"type": "Person", "id": "ada", "data": {"age": 1}},
        {"type": "Person", "data": {"id": "bob", "name": "bob", "age": 2}},
    )
    ((visit, row),) = rows(graph, "node:Visit").items()
    assert row["note"] == "by key"
    assert [rows(graph, "node:Person")[name]["age"] for name in ("ada", "bob")] == [1, 2]
    update(graph, {"type": "Visit", "id": visit, "data": {"place": 7, "note": "by id"}})
    assert rows(graph, "node:Visit")[visit]["note"] == "by id"


def test_an_edge_is_found_by_its_id_or_by_its_key_and_may_get_other_ends(graph: Graph) -> None:
    update(
        graph,
        {"edge": "Knows", "id": "k1", "data": {"since": 2}},
        {"edge": "Met", "from": "ada", "to": "bob", "data": {"note": None}},
    )
    assert rows(graph, "edge:Knows")["k1"] == {"src": "ada", "dst": "bob", "since": 2, "note": "n"}
    assert [row["note"] for row in rows(graph, "edge:Met").values()] == [None]
    update(graph, {"edge": "Knows", "id": "k1", "to": "cy"})
    assert rows(graph, "edge:Knows")["k1"] == {"src": "ada", "dst": "cy", "since": 2, "note": "n"}


FRAMES: dict[str, Any] = {
    "arrow": lambda made, _: pa.table(made),
    "pandas": lambda made, _: pd.DataFrame(made),
    "polars": lambda made, _: pl.DataFrame(made),
    "dictionaries": lambda made, _: [dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)],
    "parquet": lambda made, path: pq.write_table(pa.table(made), path / "in.parquet") or path / "in.parquet",
    "csv": lambda made, path: pd.DataFrame(made).to_csv(path / "in.csv", index=False) or path / "in.csv",
    "ndjson": lambda made, path: pl.DataFrame(made).write_ndjson(path / "in.ndjson") or path / "in.ndjson",
}


@pytest.mark.parametrize("form", FRAMES)
def test_columns_that_rows_do_not_have_stay(graph: Graph, tmp_path: Path, form: str) -> None:
    before = rows(graph, "node:Person")
    data = FRAMES[form]({"name": ["ada", "bob"], "age": [5, 6]}, tmp_path)
    receipt = graph.load(data, type="Person", mode="update")
    ages = {"ada": 5, "bob": 6}
    assert rows(graph, "node:Person") == {n: {**r, "age": ages.get(n, r["age"])} for n, r in before.items()}
    assert receipt.updated == 2
    edges = FRAMES[form]({"id": ["k1"], "to": ["cy"]}, tmp_path)
    graph.load(edges, type="Knows", mode="update")
    assert rows(graph, "edge:Knows")["k1"]["dst"] == "cy"
    assert rows(graph, "edge:Knows")["k1"]["note"] == "n"


def test_dictionaries_may_have_different_members(graph: Graph) -> None:
    before = rows(graph, "node:Person")
    graph.load([{"name": "ada", "age": 1}, {"name": "bob", "team": None}], type="Person", mode="update")
    after = rows(graph, "node:Person")
    assert after["ada"] == {**before["ada"], "age": 1}
    assert after["bob"] == {**before["bob"], "team": None}


def test_of_an_id_that_comes_twice_the_last_value_of_each_property_counts(graph: Graph) -> None:
    receipt = update(graph, memo("m1", text="1", note="1"), memo("m1", mood=None), memo("m1", text="2"))
    assert rows(graph, "node:Memo")["m1"] == {"text": "2", "note": "1", "mood": None}
    assert (receipt.total_entities, receipt.updated) == (3, 1)


def test_blobs_are_replaced_cleared_or_left(graph: Graph) -> None:
    update(graph, person("ada", photo=None, age=1), person("bob", scan="base64:bmV3"), person("cy", age=3))
    assert rows(graph, "node:Person")["ada"]["scan"] == b"yo"
    assert rows(graph, "node:Person")["bob"]["scan"] == b"new"
    assert rows(graph, "node:Person")["ada"]["photo"] is None


def test_a_reference_to_an_external_blob_stays(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media/a.bin").write_bytes(b"outside")
    policy = ExternalBlobPolicy.allow(AllowedBase((tmp_path / "media").as_uri(), Scope.EMBEDDED_ONLY))
    graph = Graph.init(tmp_path / "graph", SCHEMA).with_external_blobs(policy)
    uri = (tmp_path / "media/a.bin").as_uri()
    graph.load(text([person("ada", photo=uri)]), mode="overwrite")
    update(graph, person("ada", age=1))
    assert rows(graph, "node:Person")["ada"]["photo"] == uri
    assert graph.load(text([person("ada", photo=uri, age=1)]), mode="overwrite").unchanged == 1


def test_thousands_of_member_sets_are_a_few_writes(graph: Graph, trace: Trace) -> None:
    names = ["age", "email", "team", "photo", "scan", "tags"]
    people = [person(f"p{n}", age=n % 100, team=f"t{n}", photo="base64:aGk=", scan="base64:aGk=") for n in range(2_000)]
    graph.load(text(people), mode="append")
    values = {"age": None, "email": None, "team": None, "photo": None, "scan": "base64:eW8=", "tags": ["a"]}
    made = [
        person(f"p{n}", **{name: values[name] for bit, name in enumerate(names) if n >> bit & 1}) for n in range(2_000)
    ]
    passed: Counter[str] = Counter()
    trace.observer = lambda point: passed.update([point])
    update(graph, *made)
    trace.observer = None
    assert passed["stage.data.after"] <= 4, "one write of plain columns, and one for each blob"
    stored = rows(graph, "node:Person")
    for n, each in enumerate(made):
        row = stored[f"p{n}"]
        assert row["age"] == (None if "age" in each["data"] else n % 100)
        assert row["team"] == each["data"].get("team", f"t{n}")
        assert (row["photo"] is None) == ("photo" in each["data"])


def test_random_updates_are_what_a_dictionary_does(graph: Graph) -> None:
    chance = random.Random(5)
    graph.load(text([memo(f"m{n}", text="t") for n in range(20)]), mode="merge")
    model = rows(graph, "node:Memo")
    values: dict[str, list[Any]] = {"text": ["t", "u"], "note": [None, "", "n"], "mood": [None, "good", "bad"]}
    for _ in range(15):
        made = []
        for _ in range(chance.randint(1, 12)):
            data = {name: chance.choice(of) for name, of in values.items() if chance.random() < 0.5}
            made.append(memo(f"m{chance.randrange(1, 20)}", **data))
        touched = {each["id"] for each in made}
        expected = {key: dict(row) for key, row in model.items()}
        for each in made:
            expected[each["id"]] |= each["data"]
        receipt = update(graph, *made)
        changed = {key for key in touched if expected[key] != model[key]}
        assert (receipt.updated, receipt.unchanged) == (len(changed), len(touched) - len(changed))
        assert (receipt.commit is None) == (not changed)
        if changed:
            feed = graph.changes.page(receipt.commit.id).block.changes
            assert {each.id for each in feed} == changed
            assert graph.snapshot().entry.commit.changes["node:Memo"].updated == len(changed)
        model = expected
        assert rows(graph, "node:Memo") == model


def test_a_type_with_very_many_properties(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(600)]
    graph = Graph.init(tmp_path / "g", "node Wide { key: String @key " + " ".join(f"{n}: I32?" for n in names) + " }")
    graph.load([{"key": "a", **dict.fromkeys(names, 1)}, {"key": "b"}], type="Wide", mode="append")
    graph.load([{"key": "a", "p3": 5}, {"key": "b", "p599": 6}], type="Wide", mode="update")
    assert graph.entity("node:Wide", "a") == {"id": "a", "key": "a", **dict.fromkeys(names, 1), "p3": 5}
    assert graph.entity("node:Wide", "b")["p599"] == 6


# What is refused


def test_an_entity_that_does_not_exist_is_named(graph: Graph) -> None:
    error = refusal(graph, person("ada", age=1), person("zoe", age=2), person("ida", age=3))
    assert (error.rule, error.type_key, error.entity_id, error.line) == ("key", "node:Person", "zoe", 2)
    assert "no Person with the id 'zoe'" in str(error)
    assert "the mode merge" in str(error)


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no key": ([{"type": "Person", "data": {"age": 1}}], "an update needs 'name', or 'id'"),
    "a part of a key": ([{"type": "Visit", "data": {"place": 7}}], "an update needs 'day' and 'place', or 'id'"),
    "an edge without its id": ([{"edge": "Knows", "from": "ada", "to": "bob"}], "an update needs 'id'"),
    "one end of a key": ([{"edge": "Met", "from": "ada"}], "an update needs '@src' and '@dst', or 'id'"),
    "another key": ([{"type": "Person", "id": "ada", "data": {"name": "bob"}}], "id 'ada' does not match"),
    "an end of a key": ([{"edge": "Met", "id": '["ada","bob"]', "to": "cy"}], "does not match its canonical @key id"),
    "a null for a value": ([memo("m1", text=None)], "non-nullable property 'text' has null value"),
    "a value of a wrong type": ([person("ada", age="x")], "property 'age'"),
    "an unknown member": ([person("ada", agee=1)], "unknown input field 'agee'; did you mean 'age'"),
    "a range": ([person("ada", age=200)], "@range violation on Person.age"),
    "an enum": ([memo("m1", mood="odd")], "invalid enum value"),
    "a unique value": ([person("cy", email="ada@x")], "@unique violation on Person.email"),
    "a key twice": ([person("ada", age=1), person("ada", team="c")], "@unique violation on Person.name"),
    "an end that nobody has": ([{"edge": "Knows", "id": "k1", "to": "zoe"}], "dst 'zoe' not found in Person"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_record_is_refused(graph: Graph, case: str) -> None:
    made, reason = REFUSED[case]
    error = refusal(graph, *made)
    assert reason in str(error)
    assert error.line == len(made)


def test_rules_see_stored_values_beside_those_of_a_record(graph: Graph) -> None:
    update(graph, person("cy", age=36))
    assert "@unique violation on Person.(age, team)" in str(refusal(graph, person("cy", team="a")))
    update(graph, person("cy", team="a", age=1), person("ada", email="new@x"), person("bob", email="ada@x"))
    edges = [{"edge": "Knows", "id": f"k{n}", "from": "bob", "to": "cy"} for n in (2, 3)]
    graph.load(text(edges), mode="merge")
    assert "@card violation" in str(refusal(graph, {"edge": "Knows", "id": "k1", "from": "bob"}))


def test_the_lenient_grammar_is_refused(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="the mode update takes strict records only"):
        graph.load_lenient(text([person("ada", age="x")]), mode="update")


def test_stored_rows_beyond_the_limit_are_refused(graph: Graph) -> None:
    graph.load(text([memo(f"big{n}", text="x" * 50_000) for n in range(40)]), mode="append")
    small = graph.with_limits(Limits(bytes=1_000_000))
    with pytest.raises(ResourceLimitError, match="load bytes of stored rows"):
        update(small, *(memo(f"big{n}", text="y") for n in range(40)))


def test_an_update_without_records_makes_no_commit(graph: Graph) -> None:
    assert graph.load("", mode="update").commit is None
    assert graph.load([], type="Person", mode="update").commit is None


def test_a_repeat_is_known_by_what_it_has(graph: Graph) -> None:
    first = graph.load([{"name": "ada", "age": 1}], type="Person", mode="update", idempotency_key="k")
    again = graph.load(pa.table({"age": [1], "name": ["ada"]}), type="Person", mode="update", idempotency_key="k")
    assert (again.replayed, again.commit, again.updated) == (True, first.commit, 1)
    more = [{"name": "ada", "age": 1, "team": None}]
    with pytest.raises(IdempotencyKeyReusedError):
        graph.load(more, type="Person", mode="update", idempotency_key="k")


# Restricted authors


def test_an_invisible_entity_is_an_unknown_one(graph: Graph) -> None:
    seen = graph._restricted_to(visibility_on(graph.catalog, {"node:Person": ('team = "a"', lambda _: True)}))
    update(seen, person("ada", age=50))
    unknown = [str(refusal(seen, person(name, age=1))) for name in ("bob", "zoe")]
    assert unknown[0].replace("bob", "zoe") == unknown[1]
    with pytest.raises(PolicyError, match="you could not see yourself"):
        update(seen, person("ada", team="b"))
    assert rows(graph, "node:Person")["ada"]["age"] == 50


def test_a_masked_property_may_not_be_written_and_the_others_may(graph: Graph) -> None:
    masked = graph._restricted_to(visibility_on(graph.catalog, {}, {"node:Person": ["email"]}))
    update(masked, person("ada", age=51))
    with pytest.raises(PolicyError, match=r"'Person\.email' is hidden from you"):
        update(masked, person("ada", email=None))
    assert rows(graph, "node:Person")["ada"]["email"] == "ada@x"


# What other modes count


def test_a_merge_counts_and_names_what_it_nulls(graph: Graph) -> None:
    receipt = graph.load(text([person("ada", age=36, email=None), person("new"), person("cy")]), mode="merge")
    (people,) = receipt.nodes
    assert (people.inserted, people.updated, people.unchanged) == (1, 1, 1)
    assert people.nulled == ("photo", "scan", "tags", "team"), "an email was given as null"
    assert graph.snapshot().entry.commit.changes["node:Person"].inserted == 1
    feed = graph.changes.page(receipt.commit.id).block.changes
    assert sorted((each.id, each.op.value) for each in feed) == [("ada", "update"), ("new", "insert")]
    again = graph.load([{"name": "bob"}], type="Person", mode="merge")
    assert again.nulled == ("Person.age", "Person.email", "Person.team")


def test_a_merge_of_equal_blobs_and_vectors_changes_nothing(graph: Graph) -> None:
    version = graph.snapshot().version
    receipt = graph.load(text(STORED[:5]), mode="merge")
    assert (receipt.commit, receipt.unchanged, graph.snapshot().version) == (None, 5, version)
    one = {**STORED[0]["data"], "scan": "base64:eWE="}
    assert graph.load(text([{"type": "Person", "data": one}]), mode="merge").updated == 1


def test_an_overwrite_counts_what_it_removes(graph: Graph) -> None:
    receipt = graph.load(text([memo("m1", text="t", note="n", mood="good"), memo("m2", text="u")]), mode="overwrite")
    assert (receipt.inserted, receipt.updated, receipt.unchanged, receipt.deleted) == (1, 0, 1, 0)
    receipt = graph.load(text([memo("m2", text="v")]), mode="overwrite")
    assert (receipt.inserted, receipt.updated, receipt.unchanged, receipt.deleted) == (0, 1, 0, 1)
    assert graph.load(text([memo("m2", text="v")]), mode="overwrite").commit is None
    assert graph.load([], type="Memo", mode="overwrite").deleted == 1
    assert graph.load([], type="Memo", mode="overwrite").commit is None


def test_a_large_merge_compares_in_parts(graph: Graph) -> None:
    many = [memo(f"n{n}", text="x" * 20, note=str(n)) for n in range(9_000)]
    graph.load(text(many), mode="append")
    many[10]["data"]["note"] = "other"
    receipt = graph.load(text([*many, memo("new", text="t")]), mode="merge")
    assert (receipt.inserted, receipt.updated, receipt.unchanged) == (1, 1, 8_999)
