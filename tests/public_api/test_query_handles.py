"""`omnigraph.queries`: names and parameters fail where they are written, and handles run like texts."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import numpy as np
import pytest

import omnigraph
from omnigraph.errors import BadRequestError, CompileError, NotFoundError

SCHEMA = """
node Book { isbn: String @key  title: String  author: String?  printed: Date?  mood: Vector(2)? }
edge Next: Book -> Book
"""
TEXT = """
query books_of($author: String, $since: Date?) @description("By one author") {
  match { $b: Book { author: $author } } return { $b.isbn as isbn, $b.title as title } order { $b.isbn }
}
query near($v: Vector(2)) { match { $b: Book } return { $b.isbn as isbn } order { nearest($b.mood, $v) } limit 1 }
query add($name: String, $branch: String) { insert Book { isbn: $name, title: $branch } }
query rename($isbn: String, $title: String) { update Book set { title: $title } where isbn = $isbn }
query printed_on($day: Date) { match { $b: Book { printed: $day } } return { $b.isbn as isbn } }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path_factory.mktemp("handles") / "graph", SCHEMA)
    rows = [
        {"isbn": "1", "title": "Solaris", "author": "lem", "printed": dt.date(1961, 2, 3), "mood": [0.0, 1.0]},
        {"isbn": "2", "title": "Roadside Picnic", "author": "strugatsky", "mood": [1.0, 0.0]},
    ]
    graph.load(rows, type="Book", mode="append")
    return graph


@pytest.fixture(scope="module")
def q() -> omnigraph.Queries:
    return omnigraph.queries(TEXT)


def test_a_source_offers_its_queries(q: omnigraph.Queries, tmp_path: Path) -> None:
    assert [query.name for query in q] == ["books_of", "near", "add", "rename", "printed_on"]
    assert q["rename"] is q.rename
    assert (len(q), "near" in q, "far" in q) == (5, True, False)
    assert {"books_of", "rename"} <= set(dir(q))
    assert repr(q.books_of) == "<query books_of($author: String, $since: Date?)>"
    assert repr(q.rename) == "<mutation rename($isbn: String, $title: String)>"
    assert repr(q).splitlines()[:2] == ["<queries of a text>", "  <query books_of($author: String, $since: Date?)>"]
    assert q.books_of.description == "By one author"
    assert dict(q.near.parameters) == {"v": "Vector(2)"}
    (tmp_path / "library.gq").write_text(TEXT)
    assert omnigraph.queries(tmp_path / "library.gq").near == q.near
    assert repr(omnigraph.queries(str(tmp_path / "library.gq"))).startswith(f"<queries of {tmp_path}/library.gq>")
    assert pickle.loads(pickle.dumps(q.near)) == q.near


def test_what_is_not_there_fails_where_it_is_named(q: omnigraph.Queries, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="no query 'book_of'; did you mean 'books_of'"):
        _ = q.book_of
    with pytest.raises(BadRequestError, match="no query 'zzz'; there are books_of, near, add, rename, printed_on"):
        _ = q["zzz"]
    assert not hasattr(q, "zzz")
    with pytest.raises(NotFoundError, match=r"there is no file '.*none.gq' of queries"):
        omnigraph.queries(tmp_path / "none.gq")
    with pytest.raises(CompileError):
        omnigraph.queries("query broken( { }")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "parameter 'author' not provided; the query needs a String"),
        ({"author": 5}, "param 'author': expected String, got an integer"),
        ({"autor": "lem"}, "there is no parameter 'autor'; did you mean 'author'?"),
        ({"author": "lem", "params": {"author": "x"}}, "parameter 'author' is given twice, in params and as a keyword"),
        ({"params": ["lem"]}, "params must be a mapping of names to values, not 'list'"),
    ],
)
def test_parameters_fail_with_the_signature(given: dict[str, object], message: str, graph: omnigraph.Graph) -> None:
    for source in (omnigraph.queries(TEXT).books_of, TEXT):
        name = [] if not isinstance(source, str) else ["books_of"]
        if isinstance(source, str) and not (given.keys() - {"params"}):
            continue
        with pytest.raises(BadRequestError) as refused:
            graph.query(source, *name, **given)  # type: ignore[arg-type]
        assert message in str(refused.value)
        if "mapping" not in message:
            assert str(refused.value).startswith("books_of($author: String, $since: Date?): ")


def test_a_handle_runs_like_its_text(graph: omnigraph.Graph, q: omnigraph.Queries) -> None:
    expected = [{"isbn": "1", "title": "Solaris"}]
    assert graph.query(q.books_of, author="lem").to_dicts() == expected
    assert graph.query(q.books_of, params={"author": "lem"}, since=None).to_dicts() == expected
    assert graph.query(TEXT, "books_of", {"author": "lem"}).to_dicts() == expected
    assert graph.query(TEXT, "books_of", author="lem").to_dicts() == expected
    assert [row for batch in graph.stream(q.books_of, author="lem") for row in batch.to_pylist()] == expected
    assert graph.explain(q.books_of, author="lem") == graph.explain(TEXT, "books_of", {"author": "lem"})
    assert graph.at().query(q.books_of, author="lem").to_dicts() == expected
    assert graph.branch("main").query(q.books_of, author="lem").to_dicts() == expected
    with pytest.raises(BadRequestError, match="contains mutations"):
        graph.query(q.rename, isbn="1", title="x")
    with pytest.raises(BadRequestError, match="is a read"):
        graph.mutate(q.near, v=[1, 2])


def test_values_of_python_are_parameters(graph: omnigraph.Graph, q: omnigraph.Queries) -> None:
    assert graph.query(q.near, v=np.array([1, 0], np.float32))[0] == {"isbn": "2"}
    assert graph.query(q.near, v=(0, 1))[0] == {"isbn": "1"}
    assert graph.query(q.printed_on, day=dt.date(1961, 2, 3))[0] == {"isbn": "1"}
    assert graph.query(TEXT, "printed_on", {"day": dt.date(1961, 2, 3)})[0] == {"isbn": "1"}


def test_a_parameter_called_like_an_option_goes_into_params(graph: omnigraph.Graph, q: omnigraph.Queries) -> None:
    work = graph.branch("options", create=True)
    with pytest.raises(BadRequestError) as refused:
        graph.mutate(q.add, name="3", branch="options")
    assert "'branch' is a parameter of the query and an option of the call" in str(refused.value)
    assert "params={'branch': …}" in str(refused.value)
    assert work.mutate(q.add, name="3", params={"branch": "A title"}).affected_nodes == 1
    assert work.entity("Book", "3") == {**(graph.at().entity("Book", "1") or {}), "id": "3", "isbn": "3"} | {
        "title": "A title",
        "author": None,
        "printed": None,
        "mood": None,
    }
