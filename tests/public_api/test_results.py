"""What a query gives back, in the hands of a person and of other libraries."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.api.values import text_width
from omnigraph.errors import BadRequestError

SCHEMA = "node Book { isbn: String @key  title: String?  pages: I32?  tags: [String]?  printed: Date? }"
ALL = """query books() {
  match { $b: Book }
  return { $b.isbn as isbn, $b.title as title, $b.pages as pages, $b.tags as tags, $b.printed as printed }
  order { $b.isbn }
}"""
ROWS = [
    {"isbn": "1", "title": "Solaris", "pages": 204, "tags": ["sea"], "printed": "1961-02-03"},
    {"isbn": "2", "title": "幻影の本\nin two lines", "pages": None, "tags": None, "printed": None},
    {"isbn": "3", "title": "<b>" + "long " * 40, "pages": 7, "tags": [], "printed": None},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path_factory.mktemp("results") / "graph", SCHEMA)
    graph.load(ROWS, type="Book", mode="append")
    return graph


@pytest.fixture(scope="module")
def result(graph: omnigraph.Graph) -> omnigraph.QueryResult:
    return graph.query(ALL)


def test_a_result_is_a_sequence_of_rows(result: omnigraph.QueryResult, graph: omnigraph.Graph) -> None:
    assert list(result) == result.to_dicts() == result.rows() == ROWS
    assert (len(result), bool(result)) == (3, True)
    assert result[0] == ROWS[0]
    assert result[-1] == ROWS[2]
    assert result[1:] == ROWS[1:]
    assert result[::-1] == ROWS[::-1]
    with pytest.raises(IndexError):
        _ = result[3]
    assert not graph.query('query none() { match { $b: Book { isbn: "9" } } return { $b.isbn } }')


def test_a_result_goes_to_other_libraries(result: omnigraph.QueryResult, graph: omnigraph.Graph) -> None:
    assert result.to_arrow() is result.table
    assert result.to_pandas()["title"].tolist() == [row["title"] for row in ROWS]
    assert result.to_polars().shape == (3, 5)
    assert result.to_polars().schema["printed"] == pl.Date
    frame = pl.DataFrame(result)
    assert frame.equals(result.to_polars())
    assert pa.table(result).equals(result.table)
    stream = graph.stream(ALL)
    assert pl.DataFrame(stream).equals(frame)
    assert repr(graph.stream(ALL)).startswith("<QueryStream books(isbn: String, title: String?, pages: I32?")
    shared = pa.RecordBatchReader.from_stream(result).read_all()
    assert (
        shared.column("isbn").chunk(0).buffers()[2].address == result.table.column("isbn").chunk(0).buffers()[2].address
    )
    assert isinstance(result.to_pandas(), pd.DataFrame)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named(
    name: str, result: omnigraph.QueryResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadRequestError, match=f"this needs {name}, which is not installed: pip install {name}"):
        getattr(result, f"to_{name}")()


def test_a_result_shows_itself_as_a_table(result: omnigraph.QueryResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = repr(result).splitlines()
    assert lines[:3] == [
        "books: 3 rows × 5 columns",
        "isbn   │ title                                    │ pages │ tags      │ printed",
        "String │ String?                                  │  I32? │ [String]? │ Date?",
    ]
    assert lines[4] == '1      │ Solaris                                  │   204 │ ["sea"]   │ 1961-02-03'
    assert lines[5] == r"2      │ 幻影の本\nin two lines                   │  null │ null      │ null"
    assert lines[6].startswith("3      │ <b>long long")
    assert "…" in lines[6]
    assert all(text_width(line) <= 100 for line in lines)
    monkeypatch.setenv("COLUMNS", "40")
    narrow = repr(result).splitlines()
    assert narrow[1].startswith("isbn")
    assert " │ … │ " in narrow[1]
    assert narrow[1].endswith("printed")


def test_a_long_result_shows_its_beginning(graph: omnigraph.Graph, tmp_path: Path) -> None:
    many = omnigraph.init(tmp_path / "many", SCHEMA)
    many.load([{"isbn": f"{n:04}"} for n in range(1200)], type="Book", mode="append")
    result = many.query(ALL)
    lines = repr(result).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("books: 1,200 rows × 5 columns", 15, "… 1,190 more rows")
    html = result._repr_html_()
    assert html.count("<tr>") == 11
    assert "1,190 more" in html


def test_a_notebook_shows_values_and_not_markup(result: omnigraph.QueryResult) -> None:
    html = result._repr_html_()
    assert "<th>pages<br><small>I32?</small></th>" in html
    assert "&lt;b&gt;long" in html
    assert "<b>" not in html


def test_nothing_of_a_repr_needs_pandas(result: omnigraph.QueryResult, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_pandas(name: str, *arguments: Any) -> Any:
        assert name.split(".")[0] not in ("pandas", "polars")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    assert repr(result)
    assert list(result)
