"""Vectors that a write computes: which rows get one, when nothing is asked for, and that a failure writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.errors import (
    BadRequestError,
    ConstraintError,
    EmbeddingError,
    IdempotencyKeyReusedError,
    KeyConflictError,
    ResourceLimitError,
)
from tests.engine.stored import rows

SCHEMA = """
node Book {
    title: String @key
    blurb: String?
    year: I32?
    @range(year, 0..3000)
    vec: Vector(2)? @embed("blurb", model="toy", on_write=true)
    other: Vector(2)? @embed("title")
}
node Note {
    name: String @key
    text: String?
    gist: Vector(2) @embed("text", on_write=true)
}
edge About: Note -> Book
"""
QUERIES = """
query add($title: String, $blurb: String?) { insert Book { title: $title, blurb: $blurb } }
query add_note($name: String, $text: String?) { insert Note { name: $name, text: $text } }
query reblurb($title: String, $blurb: String?) { update Book set { blurb: $blurb } where title = $title }
query redate($title: String, $year: I32) { update Book set { year: $year } where title = $title }
query both($title: String) { update Book set { blurb: "x", vec: [0.0, 1.0] } where title = $title }
query twice($title: String) {
    insert Book { title: $title, blurb: "first" }
    update Book set { blurb: "second!" } where title = $title
}
query renote($name: String, $text: String?) { update Note set { text: $text } where name = $name }
"""


class Toy:
    """Embeds a text as its length, and remembers the texts of each request. `before` is called within one."""

    model = "toy"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.before: Callable[[], None] = lambda: None

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return np.array([len(text), 1], np.float32)

    def embed_documents(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        self.before()
        return np.array([[len(text), 1] for text in texts], np.float32)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def graph(tmp_path: Path, toy: Toy) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as created:
        yield created.with_embedding(toy)


def vectors(graph: Graph, type_name: str = "Book", column: str = "vec") -> dict[str, list[float] | None]:
    return {name: row[column] for name, row in rows(graph, f"node:{type_name}").items()}


def load(graph: Graph, *books: dict[str, Any], mode: str = "merge", **more: Any) -> None:
    graph.load(list(books), type="Book", mode=mode, **more)


def test_a_load_computes_what_the_schema_says(graph: Graph, toy: Toy) -> None:
    load(
        graph,
        {"title": "a", "blurb": "tides"},
        {"title": "b", "blurb": "tides", "vec": [0.5, 0.5]},
        {"title": "c"},
        {"title": "d", "blurb": "  "},
        {"title": "e", "blurb": "tides"},
        {"title": "f", "blurb": "moon"},
    )
    assert vectors(graph) == {"a": [5, 1], "b": [0.5, 0.5], "c": None, "d": None, "e": [5, 1], "f": [4, 1]}
    assert toy.asked == [["tides", "moon"]]
    assert set(vectors(graph, column="other").values()) == {None}


def test_a_load_can_be_told_to_compute_all(graph: Graph, toy: Toy) -> None:
    load(graph, {"title": "abc", "blurb": "tides"}, embed=True)
    assert vectors(graph) == {"abc": [5, 1]}
    assert vectors(graph, column="other") == {"abc": [3, 1]}
    assert sorted(toy.asked[0]) == ["abc", "tides"]
    graph.branch("work", create=True).load([{"title": "abcd"}], type="Book", mode="merge", embed=True)
    assert rows(graph, "node:Book", "work")["abcd"]["other"] == [4, 1]


def test_graph_records_and_a_new_branch(graph: Graph, toy: Toy) -> None:
    record = '{"type": "Book", "data": {"title": "a", "blurb": "tides"}}'
    graph.load(record, mode="append", branch="new", base="main")
    assert rows(graph, "node:Book", "new")["a"]["vec"] == [5, 1]
    graph.load_lenient(record, mode="merge")
    assert vectors(graph) == {"a": [5, 1]}


def test_an_overwrite_computes_too(graph: Graph) -> None:
    load(graph, {"title": "a", "blurb": "tides"}, mode="overwrite")
    load(graph, {"title": "b", "blurb": "moon"}, mode="overwrite")
    assert vectors(graph) == {"b": [4, 1]}


def test_mutations_compute_and_refresh(graph: Graph, toy: Toy) -> None:
    graph.mutate(QUERIES, "add", {"title": "a", "blurb": "tides"})
    assert vectors(graph) == {"a": [5, 1]}
    graph.mutate(QUERIES, "reblurb", {"title": "a", "blurb": "moons!"})
    assert vectors(graph) == {"a": [6, 1]}
    asked = len(toy.asked)
    graph.mutate(QUERIES, "redate", {"title": "a", "year": 1900})
    assert len(toy.asked) == asked
    graph.mutate(QUERIES, "both", {"title": "a"})
    assert vectors(graph) == {"a": [0, 1]}
    graph.mutate(QUERIES, "reblurb", {"title": "a", "blurb": None})
    assert vectors(graph) == {"a": None}
    assert len(toy.asked) == asked


def test_the_last_text_of_a_mutation_counts(graph: Graph, toy: Toy) -> None:
    graph.mutate(QUERIES, "twice", {"title": "a"})
    assert vectors(graph) == {"a": [7, 1]}
    assert toy.asked == [["second!"]]


def test_a_vector_that_must_be_there_may_be_left_out(graph: Graph) -> None:
    graph.load([{"name": "n", "text": "tides"}], type="Note", mode="append")
    graph.mutate(QUERIES, "add_note", {"name": "m", "text": "moon"})
    assert vectors(graph, "Note", "gist") == {"n": [5, 1], "m": [4, 1]}
    graph.mutate(QUERIES, "renote", {"name": "n", "text": "ebb"})
    assert vectors(graph, "Note", "gist")["n"] == [3, 1]


@pytest.mark.parametrize("text", [None, " "])
def test_but_not_without_a_text(graph: Graph, toy: Toy, text: str | None) -> None:
    message = "non-nullable vector property 'gist' has no value, and 'text' has no text to embed"
    with pytest.raises(ConstraintError, match=message) as refused:
        graph.load([{"name": "k", "text": "good"}, {"name": "n", "text": text}], type="Note", mode="append")
    assert (refused.value.type_key, refused.value.property, refused.value.entity_id) == ("node:Note", "gist", "n")
    assert refused.value.line == 2
    with pytest.raises(ConstraintError, match=message):
        graph.mutate(QUERIES, "add_note", {"name": "n", "text": text})
    assert toy.asked == []
    assert rows(graph, "node:Note") == {}


def test_a_write_that_is_refused_costs_nothing(graph: Graph, toy: Toy) -> None:
    load(graph, {"title": "a", "blurb": "tides"})
    toy.asked.clear()
    with pytest.raises(KeyConflictError):
        load(graph, {"title": "a", "blurb": "moon"}, mode="append")
    with pytest.raises(ConstraintError):
        load(graph, {"title": "b", "blurb": "moon", "year": 9999})
    with pytest.raises(ConstraintError):
        graph.load('{"type": "Book", "data": {"title": "b", "blurb": "moon"}}\n'
                   '{"edge": "About", "from": "x", "to": "b"}', mode="merge")  # fmt: skip
    assert toy.asked == []


def test_a_provider_that_fails_fails_the_write_unwritten(graph: Graph, toy: Toy) -> None:
    def fail() -> None:
        raise EmbeddingError("no more credit")

    toy.before = fail
    before = graph.snapshot().commit_id
    with pytest.raises(EmbeddingError, match="no more credit"):
        load(graph, {"title": "a", "blurb": "tides"})
    with pytest.raises(EmbeddingError, match="no more credit"):
        graph.mutate(QUERIES, "add", {"title": "a", "blurb": "tides"})
    with pytest.raises(EmbeddingError, match="no more credit"):
        load(graph, {"title": "a", "blurb": "tides"}, branch="new", base="main")
    assert graph.snapshot().commit_id == before
    assert graph.list_branches() == ["main"]


def test_other_writers_do_not_wait_for_a_provider(graph: Graph, toy: Toy) -> None:
    """Whoever writes meanwhile is in front, and the write is checked against what they left."""

    def write_meanwhile() -> None:
        toy.before = lambda: None
        other = threading.Thread(target=load, args=(graph, {"title": "other", "year": 1}))
        other.start()
        other.join(120)
        assert not other.is_alive()
        assert "other" in rows(graph, "node:Book")

    toy.before = write_meanwhile
    graph.mutate(QUERIES, "add", {"title": "a", "blurb": "tides"})
    assert set(vectors(graph)) == {"a", "other"}
    toy.before = write_meanwhile
    load(graph, {"title": "b", "blurb": "moon"})
    assert vectors(graph)["b"] == [4, 1]


def test_texts_that_came_meanwhile_are_computed_too(graph: Graph, toy: Toy) -> None:
    """An update of rows that another writer added while the first ones were embedded."""
    update = "query u() { update Book set { year: 7 } where year = 1 }"
    plain = graph.with_embedding(None)  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match=r"Book\.vec is computed when it is written.*without an embedding client"):
        load(plain, {"title": "x", "blurb": "tides"})
    load(plain, {"title": "c", "year": 1})
    graph.schema.apply(SCHEMA.replace(", on_write=true)\n    other", ")\n    other"))
    load(plain, {"title": "a", "blurb": "one", "year": 1})
    graph.schema.apply(SCHEMA)
    assert vectors(graph) == {"a": None, "c": None}

    def add_another() -> None:
        toy.before = lambda: None
        load(graph, {"title": "b", "blurb": "three", "year": 1})

    toy.before = add_another
    graph.mutate(update, "u")
    assert vectors(graph) == {"a": [3, 1], "b": [5, 1], "c": None}
    assert {row["year"] for row in rows(graph, "node:Book").values()} == {7}


def test_vectors_of_another_model_are_not_written(graph: Graph, toy: Toy) -> None:
    class Other(Toy):
        model = "another"

    other = Other()
    message = r"Book\.vec holds vectors of model 'toy', but texts are embedded with 'another'"
    with pytest.raises(BadRequestError, match=message):
        load(graph.with_embedding(other), {"title": "a", "blurb": "tides"})
    assert other.asked == []
    load(graph.with_embedding(other), {"title": "a", "blurb": "tides", "vec": [1.0, 0.0]})
    assert vectors(graph) == {"a": [1, 0]}


def test_a_client_for_queries_alone_cannot_compute(graph: Graph) -> None:
    class ForQueries:
        model = "toy"

        def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
            return np.ones(dimension, np.float32)

    with pytest.raises(BadRequestError, match="with one that has no embed_documents"):
        load(graph.with_embedding(ForQueries()), {"title": "a", "blurb": "tides"})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[1.0, 2.0, 3.0, 4.0]], r"gave an array of shape \(1, 4\): 1 texts at dimension 2 need one of shape \(1, 2\)"),
        ([], "gave an array of shape"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, 1e300]], "not finite"),
        (None, "gave an array of shape|no vectors of numbers"),
        ([["a", "b"]], "no vectors of numbers"),
    ],
)
def test_what_a_client_of_ones_own_gives_is_checked(graph: Graph, answer: Any, message: str) -> None:
    class Odd(Toy):
        def embed_documents(self, texts: Sequence[str], dimension: int) -> Any:
            return answer

    with pytest.raises(EmbeddingError, match=message):
        load(graph.with_embedding(Odd()), {"title": "a", "blurb": "tides"})
    assert vectors(graph) == {}


def test_vectors_have_to_fit_in_memory(graph: Graph, toy: Toy) -> None:
    insert = "query q() { " + " ".join(f'insert Book {{ title: "{n}", blurb: "{n}" }}' for n in range(20)) + " }"
    with pytest.raises(ResourceLimitError, match="load bytes of computed vectors"):
        graph.with_limits(Limits(bytes=150)).mutate(insert, "q")
    assert toy.asked == []


def test_a_repeated_request_computes_nothing(graph: Graph, toy: Toy) -> None:
    for _ in range(2):
        load(graph, {"title": "a", "blurb": "tides"}, mode="append", idempotency_key="k")
    assert toy.asked == [["tides"]]
    with pytest.raises(IdempotencyKeyReusedError):
        load(graph, {"title": "a", "blurb": "tides"}, mode="append", idempotency_key="k", embed=True)


def test_an_update_computes_the_vectors_of_texts_that_change(graph: Graph, toy: Toy) -> None:
    load(graph, {"title": "a", "blurb": "tides"}, {"title": "b", "blurb": "moon"}, {"title": "c", "blurb": "sun"})
    toy.asked.clear()
    load(graph, {"title": "a", "year": 1}, {"title": "b", "blurb": "moon"}, mode="update")
    assert toy.asked == []
    load(
        graph,
        {"title": "a", "blurb": "storms"},
        {"title": "b", "year": 2},
        {"title": "c", "blurb": None},
        mode="update",
    )
    assert toy.asked == [["storms"]]
    assert vectors(graph) == {"a": [6, 1], "b": [4, 1], "c": None}
    load(graph, {"title": "b", "blurb": "moons", "vec": [0.5, 0.5]}, mode="update")
    assert vectors(graph)["b"] == [0.5, 0.5]


def test_an_update_leaves_no_vector_behind_that_the_schema_wants(graph: Graph) -> None:
    graph.load([{"name": "n", "text": "abc"}], type="Note", mode="append")
    with pytest.raises(ConstraintError, match="'text' has no text to embed"):
        graph.load([{"name": "n", "text": None}], type="Note", mode="update")
    graph.load([{"name": "n", "text": "abcd"}], type="Note", mode="update")
    assert vectors(graph, "Note", "gist") == {"n": [4, 1]}
