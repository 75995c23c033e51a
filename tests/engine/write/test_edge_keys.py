"""Edges with a key: writing the same edge again gives the same edge, whoever writes it and on whichever branch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.errors import ConstraintError, KeyConflictError, MergeConflictsError

SCHEMA = """
node Reader { card: String @key }
node Day { on: Date @key }
edge Follows: Reader -> Reader @card(0..3) { note: String?  @key(@src, @dst) }
edge Met: Reader -> Reader { since: Date  place: I32  warm: Bool?  @key(place, since, @dst, @src) }
edge Visited: Reader -> Day { @key(@src, @dst) }
edge Waved: Reader -> Reader { note: String? }
"""
READERS = [{"type": "Reader", "data": {"card": card}} for card in ("a", "b", 'c"x')]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(lines(*READERS, {"type": "Day", "data": {"on": "2024-05-01"}}), mode="append")
        yield graph


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def follows(source: str, target: str, note: str | None = None, **data: Any) -> dict[str, Any]:
    return {"edge": "Follows", "from": source, "to": target, "data": {"note": note, **data}}


def stored(graph: Graph, type_: str, **point: str) -> list[dict[str, Any]]:
    text = "".join(graph.export(types=[type_], **point))
    return sorted((json.loads(line) for line in text.splitlines()), key=json.dumps)


def test_the_id_is_made_of_the_ends_and_then_of_the_other_members_in_the_order_of_the_schema(graph: Graph) -> None:
    met = {"edge": "Met", "from": "a", "to": 'c"x', "data": {"since": "1970-01-02", "place": 7}}
    graph.load(lines(met, {"edge": "Visited", "from": "b", "to": "2024-05-01"}), mode="append")
    assert stored(graph, "Met")[0]["data"]["id"] == '["a","c\\"x","7","1"]'
    assert stored(graph, "Visited")[0]["data"]["id"] == '["b","19844"]'


def test_a_merge_replaces_and_an_append_refuses(graph: Graph) -> None:
    graph.load(lines(follows("a", "b", "first")), mode="append")
    graph.load(lines(follows("a", "b", "second"), follows("b", "a")), mode="merge")
    assert [edge["data"]["note"] for edge in stored(graph, "Follows")] == ["second", None]
    with pytest.raises(KeyConflictError, match='already holds the id \'\\["a","b"\\]'):
        graph.load(lines(follows("b", "b"), follows("a", "b")), mode="append")
    assert len(stored(graph, "Follows")) == 2
    graph.load(lines(follows("b", "b")), mode="overwrite")
    assert [edge["to"] for edge in stored(graph, "Follows")] == ["b"]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_key_occurs_once_in_an_input(graph: Graph, mode: str) -> None:
    with pytest.raises(ConstraintError, match=r"line 2: @unique violation on Follows\.\(@src, @dst\)"):
        graph.load(lines(follows("a", "b", "x"), follows("a", "b", "y")), mode=mode)
    assert stored(graph, "Follows") == []


def test_an_id_that_is_given_must_be_the_one_of_the_key(graph: Graph) -> None:
    graph.load(lines(follows("a", "b", id='["a","b"]')), mode="append")
    graph.load(lines({**follows("b", "a"), "id": '["b","a"]'}), mode="append")
    with pytest.raises(ConstraintError, match="id 'mine' does not match its canonical @key id '\\[\"b\",\"b\"\\]'"):
        graph.load(lines(follows("b", "b", id="mine")), mode="append")
    assert len(stored(graph, "Follows")) == 2


def test_an_insert_is_an_upsert(graph: Graph) -> None:
    insert = "query f($n: String?) { insert Follows { from: 'a', to: 'b', note: $n } }".replace("'", '"')
    for note in ("one", "two"):
        assert graph.mutate(insert, params={"n": note}).affected_edges == 1
    assert [edge["data"]["note"] for edge in stored(graph, "Follows")] == ["two"]


def test_rows_of_frames_have_the_same_ids(graph: Graph) -> None:
    graph.load(
        pa.table({"from": ["a"], "to": ["b"], "since": [date(1970, 1, 2)], "place": [7]}), type="Met", mode="append"
    )
    graph.load([{"src": "a", "dst": "b", "since": "1970-01-02", "place": 7, "warm": True}], type="Met", mode="merge")
    (met,) = stored(graph, "Met")
    assert (met["data"]["id"], met["data"]["warm"]) == ('["a","b","7","1"]', True)


def test_cardinality_counts_stored_edges(graph: Graph) -> None:
    for _ in range(5):
        graph.load(lines(follows("a", "a"), follows("a", "b"), follows("a", 'c"x')), mode="merge")
    assert len(stored(graph, "Follows")) == 3


def test_the_same_edge_of_two_branches_is_one(graph: Graph) -> None:
    graph.create_branch("other")
    for branch in ("main", "other"):
        graph.load(lines(follows("a", "b", "same")), mode="merge", branch=branch)
        graph.load(lines({"edge": "Waved", "from": "a", "to": "b"}), mode="merge", branch=branch)
    graph.merge("other")
    assert len(stored(graph, "Follows")) == 1
    assert len(stored(graph, "Waved")) == 2, "without a key every edge is an edge of its own"


def test_different_edges_of_one_key_conflict(graph: Graph) -> None:
    graph.create_branch("other")
    graph.load(lines(follows("a", "b", "ours")), mode="merge")
    graph.load(lines(follows("a", "b", "theirs")), mode="merge", branch="other")
    with pytest.raises(MergeConflictsError) as raised:
        graph.merge("other")
    (conflict,) = raised.value.conflicts
    assert conflict.kind == "divergent_insert"


def test_an_export_is_read_back(graph: Graph, tmp_path: Path) -> None:
    graph.load(lines(follows("a", "b", "x"), {"edge": "Visited", "from": "b", "to": "2024-05-01"}), mode="append")
    text = "".join(graph.export())
    with omnigraph.init(tmp_path / "copy", SCHEMA) as copy:
        copy.load(text, mode="append")
        copy.load(text, mode="merge")
        assert "".join(copy.export()) == text


edges = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("ab"), st.sampled_from([None, "x", "y"])),
    unique_by=lambda edge: edge[:2],
    max_size=4,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(loads=st.lists(edges, min_size=1, max_size=4))
def test_loads_are_repeatable(
    loads: list[list[tuple[str, str, str | None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A model: the last load of a key counts, however often each of them ran."""
    expected: dict[tuple[str, str], str | None] = {}
    with omnigraph.init(tmp_path_factory.mktemp("law") / "graph", SCHEMA) as graph:
        graph.load(lines(*READERS), mode="append")
        for load in loads:
            for _ in range(2):
                graph.load(lines(*(follows(*edge) for edge in load)), mode="merge")
            expected |= {edge[:2]: edge[2] for edge in load}
        assert {(e["from"], e["to"]): e["data"]["note"] for e in stored(graph, "Follows")} == expected
