"""Properties called `id`, `src` and `dst` are not the ids and ends that every row has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import BadRequestError, ConstraintError

SCHEMA = """
node Reader { id: I64 @key  name: String? }
node Thing { id: String @index  n: I32? }
node Plain { p: String }
edge Follows: Reader -> Reader { src: String?  dst: I32?  id: String?  @key(@src, @dst)  @unique(src) }
edge Owns: Reader -> Thing { id: I64  @index(id) }
"""
ROWS = """\
{"type":"Reader","data":{"id":1}}
{"type":"Reader","id":"2","data":{"id":2}}
{"type":"Thing","id":"t1","data":{"id":"not the id","n":4}}
{"edge":"Follows","from":1,"to":2,"data":{"id":"x","src":"s","dst":3}}
{"edge":"Owns","id":"o1","from":1,"to":"t1","data":{"id":77}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(ROWS, mode="append")
        yield graph


def test_queries_read_the_properties(graph: Graph) -> None:
    query = """
    query q($id: String) {
        match { $t: Thing { id: $id }  $r $o:owns $t  $o.id = 77  $r $f:follows $other  $f.dst = 3 }
        return { $t.id as thing, $o.id as owns, $r.id as reader, $other.id as other, $f.src as src, $f.id as follows }
    }"""
    expected = {"thing": "not the id", "owns": 77, "reader": 1, "other": 2, "src": "s", "follows": "x"}
    assert list(graph.query(query, params={"id": "not the id"})) == [expected]
    graph.maintenance.optimize()
    assert list(graph.query(query, params={"id": "not the id"})) == [expected]
    assert list(graph.query(query, params={"id": "t1"})) == []


def test_an_entity_has_both(graph: Graph) -> None:
    assert graph.entity("Thing", "t1") == {"@id": "t1", "id": "not the id", "n": 4}
    assert graph.entity("Owns", "o1") == {"@id": "o1", "src": "1", "dst": "t1", "id": 77}
    (follows,) = (line for line in "".join(graph.export(types=["Follows"])).splitlines())
    edge = graph.entity("Follows", json.loads(follows)["id"])
    assert edge == {"@id": '["1","2"]', "@src": "1", "@dst": "2", "src": "s", "dst": 3, "id": "x"}


def test_exports_are_read_back(graph: Graph, tmp_path: Path) -> None:
    text = "".join(graph.export())
    assert '{"type":"Thing","id":"t1","data":{"id":"not the id","n":4}}\n' in text
    with omnigraph.init(tmp_path / "copy", SCHEMA) as copy:
        copy.load(text, mode="append")
        assert "".join(copy.export()) == text


@pytest.mark.parametrize("form", ["arrow", "dictionaries"])
def test_rows_of_a_type_have_the_id_in_a_column_of_its_own(graph: Graph, form: str) -> None:
    rows = [{"@id": "t2", "id": "again", "n": None}, {"@id": "t3", "id": "more", "n": 1}]
    graph.load(pa.Table.from_pylist(rows) if form == "arrow" else rows, type="Thing", mode="append")
    assert [graph.entity("Thing", row["@id"]) for row in rows] == rows


def test_files_of_a_type_are_read_back(graph: Graph, tmp_path: Path) -> None:
    before = "".join(graph.export())
    for file in graph.export_files(tmp_path / "files", types=["Thing", "Follows"]):
        graph.load(Path(file.path), type=file.type_key.split(":")[1], mode="merge")
    assert "".join(graph.export()) == before


def test_a_record_has_one_id(graph: Graph) -> None:
    with pytest.raises(ConstraintError, match="the record has two ids"):
        graph.load('{"type":"Plain","id":"a","data":{"id":"b","p":"x"}}\n', mode="append")
    with pytest.raises(ConstraintError, match="id '7' does not match its canonical @key id '8'"):
        graph.load('{"type":"Reader","id":"7","data":{"id":8}}\n', mode="append")
    with pytest.raises(ConstraintError, match="'id' must be a string"):
        graph.load('{"type":"Plain","id":7,"data":{"p":"x"}}\n', mode="append")
    graph.load('{"type":"Plain","id":"a","data":{"p":"x"}}\n', mode="append")
    assert graph.entity("Plain", "a") == {"id": "a", "p": "x"}


def test_the_ends_of_an_edge_are_from_and_to_where_a_property_is_called_src(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="need the columns from and to; there are src, dst"):
        graph.load(pa.table({"src": ["1"], "dst": [2]}), type="Follows", mode="append")


def test_changes_tell_the_property_from_the_id(graph: Graph) -> None:
    commit = graph.mutate('query m() { update Thing set { id: "changed" } where id = "not the id" }').commit
    assert commit is not None
    (change,) = graph.changes.of(commit.graph_commit_id)
    assert change.before is not None
    assert change.after is not None
    assert (change.id, change.before.properties["id"], change.after.properties["id"]) == ("t1", "not the id", "changed")


def test_branches_meet_by_the_id_and_not_by_the_property(graph: Graph) -> None:
    graph.create_branch("other")
    graph.load('{"type":"Thing","id":"t2","data":{"id":"same"}}\n', mode="append")
    graph.load('{"type":"Thing","id":"t3","data":{"id":"same"}}\n', mode="append", branch="other")
    graph.merge("other")
    assert [graph.entity("Thing", entity_id) for entity_id in ("t2", "t3")] == [
        {"@id": "t2", "id": "same", "n": None},
        {"@id": "t3", "id": "same", "n": None},
    ]
