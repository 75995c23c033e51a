"""Rows of one type in every form that `load` takes: frames, dictionaries and files give the graph that records give."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.api import load
from omnigraph.api.governance import Limits
from omnigraph.engine.rows import stored_rows
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.errors import (
    BadRequestError,
    ConflictError,
    ConstraintError,
    IdempotencyKeyReusedError,
    KeyConflictError,
    NotFoundError,
    ResourceLimitError,
)
from tests.engine.stored import everything, rows
from tests.support.receipts import replayed

SCHEMA = """
node Book {
  isbn: String @key
  title: String
  pages: I32?
  price: F64?
  sold: Bool?
  genre: enum(novel, essay)?
  tags: [String]?
  mood: Vector(3)?
  printed: Date?
  seen: DateTime?
  cover: Blob?
  @unique(title)
  @range(pages, 1..5000)
}
node Note { text: String?  score: I64? }
edge Next: Book -> Book @card(0..1) { gap: I32? }
"""

BOOKS: list[dict[str, Any]] = [
    {
        "isbn": "b1",
        "title": 'Solaris, "the" novel\nin two lines',
        "pages": 204,
        "price": 9.5,
        "sold": True,
        "genre": "novel",
        "tags": ["sea", "mind"],
        "mood": [0.25, 1.0, -2.0],
        "printed": dt.date(1961, 2, 3),
        "seen": dt.datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC),
        "cover": b"\x00\xffjpeg",
    },
    {"isbn": "b2", "title": "Kyberiada"},
    {"isbn": "b3", "title": "幻影", "pages": 7, "tags": [], "printed": dt.date(1969, 12, 31), "sold": False},
]
NAMES = list(BOOKS[0])
FULL = [{name: book.get(name) for name in NAMES} for book in BOOKS]
EDGES = [{"from": "b1", "to": "b2", "gap": 3}, {"from": "b2", "to": "b3", "gap": None}]


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        import base64

        return "base64:" + base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, dt.date) else value


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {name: as_json(value) for name, value in record.items()}


def batch(records: list[dict[str, Any]], edges: list[dict[str, Any]]) -> str:
    nodes = [{"type": "Book", "data": plain(record)} for record in records]
    links = [{"edge": "Next", "from": e["from"], "to": e["to"], "data": {"gap": e["gap"]}} for e in edges]
    return "\n".join(json.dumps(record) for record in [*nodes, *links])


def csv_text(records: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        if value is None:
            return ""
        value = as_json(value)
        text = json.dumps(value) if isinstance(value, list | bool) else str(value)
        return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') or not text else text

    lines = [",".join(cell(record[name]) for name in records[0]) for record in records]
    return "\n".join([",".join(records[0]), *lines]) + "\n"


def to_csv(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text(csv_text(records))
    return path


def to_parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=2)
    return path


def to_ndjson(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(plain(record)) + "\n" for record in records))
    return path


def pandas_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(records)


FORMS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "dicts": lambda _, records: records,
    "generator": lambda _, records: (dict(record) for record in records),
    "table": lambda _, records: pa.Table.from_pylist(records),
    "batch": lambda _, records: pa.RecordBatch.from_pylist(records),
    "reader": lambda _, records: pa.Table.from_pylist(records).to_reader(max_chunksize=1),
    "pandas": lambda _, records: pandas_frame(records),
    "pandas index": lambda _, records: pandas_frame(records).set_index(next(iter(records[0]))),
    "polars": lambda _, records: pl.DataFrame(records),
    "csv": lambda path, records: to_csv(path / "rows.csv", records),
    "csv path as text": lambda path, records: str(to_csv(path / "rows.csv", records)),
    "parquet": lambda path, records: to_parquet(path / "rows.parquet", records),
    "ndjson": lambda path, records: to_ndjson(path / "rows.ndjson", records),
    "jsonl uri": lambda path, records: f"file://{to_ndjson(path / 'rows.jsonl', records)}",
}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "graph", SCHEMA)


def forget_ids(stored: dict[str, dict[str, Any]]) -> list[Any]:
    return sorted((row["src"], row["dst"], row["gap"]) for row in stored.values())


def test_every_form_gives_the_graph_that_records_give(graph: Graph, tmp_path: Path) -> None:
    expected = Graph.init(tmp_path / "expected", SCHEMA)
    expected.load(batch(FULL, EDGES), mode="append")
    for make in FORMS.values():
        books = graph.load(make(tmp_path, FULL), type="Book", mode="overwrite")
        links = graph.load(make(tmp_path, EDGES), type="edge:Next", mode="overwrite", actor="ada")
        assert (books.nodes_loaded, links.edges_loaded) == ({"Book": 3}, {"Next": 2})
        assert links.commit.actor_id == "ada"
        assert everything(graph)["node:Book"] == everything(expected)["node:Book"]
        assert forget_ids(rows(graph, "edge:Next")) == forget_ids(rows(expected, "edge:Next"))


def test_a_result_of_a_query_can_be_loaded(graph: Graph) -> None:
    graph.load(BOOKS, type="Book", mode="append")
    found = graph.query("query q() { match { $b: Book } return { $b.isbn as text, $b.pages as score } }")
    assert graph.load(found, type="Note", mode="append").total_entities == 3
    assert {row["text"]: row["score"] for row in rows(graph, "node:Note").values()} == {"b1": 204, "b2": None, "b3": 7}


def test_values_of_python_libraries_mean_what_they_say(graph: Graph) -> None:
    class Genre(Enum):
        ESSAY = "essay"

    moment = pd.Timestamp("2020-01-02 03:04:05.678901", tz="Europe/Berlin")
    odd = {
        "isbn": UUID(int=7),
        "title": np.str_("t"),
        "pages": np.int16(5),
        "price": Decimal("2.50"),
        "sold": np.bool_(True),
        "genre": Genre.ESSAY,
        "tags": ("a", "b"),
        "mood": np.array([1, 2, 3], np.float32),
        "printed": moment,
        "seen": np.datetime64("2020-01-02T02:04:05.678901999"),
        "cover": bytearray(b"x"),
    }
    graph.load(
        [odd, {"isbn": "n", "title": "u", "seen": pd.NaT, "pages": pd.NA, "mood": None}], type="Book", mode="merge"
    )
    stored = rows(graph, "node:Book")
    assert stored[str(UUID(int=7))] == {
        "isbn": str(UUID(int=7)),
        "title": "t",
        "pages": 5,
        "price": 2.5,
        "sold": True,
        "genre": "essay",
        "tags": ["a", "b"],
        "mood": [1.0, 2.0, 3.0],
        "printed": dt.date(2020, 1, 2),
        "seen": dt.datetime(2020, 1, 2, 2, 4, 5, 678000, tzinfo=dt.UTC),
        "cover": b"x",
    }
    assert stored["n"]["seen"] is stored["n"]["pages"] is None


def test_moments_of_numpy_are_dates_and_times_in_every_unit(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path, "node Day { day: Date @key  hours: [DateTime]? }\nedge Next: Day -> Day {}")
    hours = np.array(["2024-02-29T01:02:03.000000001", "1969-12-31T23:59:59.9999"], "datetime64[ns]")
    days = [np.datetime64("2024-02-29"), np.datetime64("2024-03"), np.datetime64("2024-03-02T01", "ns")]
    graph.load([{"day": days[0], "hours": hours}, {"day": days[1]}, {"day": days[2]}], type="Day", mode="append")
    graph.load([{"from": days[0], "to": days[1]}, {"from": days[1], "to": days[2]}], type="Next", mode="append")
    stored = rows(graph, "node:Day").values()
    assert {row["day"].isoformat() for row in stored} == {"2024-02-29", "2024-03-01", "2024-03-02"}
    assert [moment.isoformat() for row in stored for moment in row["hours"] or ()] == [
        "2024-02-29T01:02:03+00:00",
        "1969-12-31T23:59:59.999000+00:00",
    ]
    assert graph.count("Next") == 2
    for odd in (np.datetime64("NaT"), np.datetime64("20000-01-01"), np.datetime64(2**60, "s")):
        with pytest.raises(ConstraintError, match="row 1"):
            graph.load([{"day": odd}], type="Day", mode="append")


def test_a_moment_that_its_type_does_not_hold_is_named_by_its_row(tmp_path: Path) -> None:
    graph = Graph.init(
        tmp_path,
        """node Day { day: Date @key  seen: DateTime? }
        node Slot { day: Date  hour: I32  @key(day, hour) }
        edge Next: Day -> Day {}
        edge Then: Slot -> Slot {}""",
    )
    days = pa.array([0, 2**62], pa.timestamp("s"))
    slots = pa.StructArray.from_arrays([days, pa.array([1, 2], pa.int32())], ["day", "hour"])
    for type_, columns in (
        ("Day", {"day": days}),
        ("Day", {"day": days.view(pa.timestamp("ms"))}),
        ("Day", {"day": ["2020-01-01", "2020-01-02"], "seen": days}),
        ("Next", {"from": days, "to": days}),
        ("Then", {"from": slots, "to": slots}),
    ):
        with pytest.raises(ConstraintError, match=r"^row 2: ") as error:
            graph.load(pa.table(columns), type=type_, mode="append")
        assert error.value.line == 2


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b1", "b2"])])
def test_categories_of_polars_are_texts(graph: Graph, kind: Any) -> None:
    graph.load(BOOKS, type="Book", mode="append")
    ends = pl.DataFrame({"from": ["b1"], "to": ["b2"]}, schema={"from": kind, "to": kind})
    graph.load(ends, type="Next", mode="append")
    notes = pl.DataFrame({"text": ["b1", None, "b2"]}, schema={"text": kind})
    assert graph.load(notes, type="Note", mode="append").total_entities == 3
    assert {row["text"] for row in rows(graph, "node:Note").values()} == {"b1", None, "b2"}


# What can't be taken


def test_a_bad_row_is_named_by_its_place_and_property(graph: Graph, tmp_path: Path) -> None:
    bad = [*FULL[:2], {**FULL[2], "pages": 9999}]
    for form, place in {
        "dicts": "row 3",
        "reader": "row 3",
        "pandas": "row 3",
        "polars": "row 3",
        "parquet": f"{tmp_path}/rows.parquet, row 3",
        "csv": f"{tmp_path}/rows.csv, line 5",  # the title of the first book has two lines
        "ndjson": f"{tmp_path}/rows.ndjson, line 3",
    }.items():
        with pytest.raises(ConstraintError) as refused:
            graph.load(FORMS[form](tmp_path, bad), type="Book", mode="append")
        assert str(refused.value) == f"{place}: node:Book: @range violation on Book.pages: value 9999 > max 5000"
        broken = refused.value.rule, refused.value.property, refused.value.entity_id, refused.value.line
        assert broken == ("range", "pages", "b3", int(place[-1]))
    assert graph.snapshot().version == 1


REFUSED: list[tuple[Any, str | None, str]] = [
    ([{"isbn": "1", "title": "x", "pages": "12x"}], "Book", "row 1: node:Book: property 'pages': expects I32"),
    ([{"isbn": "1", "titel": "x"}], "Book", "unknown input field 'titel'; did you mean 'title'?"),
    (
        pa.table({"isbn": ["1"], "titel": ["x"]}),
        "Book",
        "no property for the column 'titel'; did you mean 'title'?",
    ),
    (pa.table({"isbn": ["1"]}), "Book", "row 1: node:Book: non-nullable property 'title' has null value"),
    ([{"isbn": "1", "title": "half \ud800"}], "Book", "row 1: node:Book: property 'title': the text holds half"),
    ([{"from": "1", "to": "half \ud800"}], "Next", "row 1: edge:Next: property 'to': the text holds half"),
    ([{"isbn": "1", "title": "x"}, 5], "Book", "row 2: node:Book: expected the properties of a Book by name"),
    ([{"isbn": "1", 2: "x"}], "Book", "row 1: node:Book: expected the properties of a Book by name"),
    ([{"from": "b1"}], "Next", "row 1: edge:Next: 'to' must be a string, the id of a node; got nothing"),
    (pa.table({"src": ["b1"]}), "Next", "need the columns from and to, or src and dst; there are src"),
    ([{"from": "b1", "to": "b9"}], "Next", "row 1: "),
    ({"isbn": "1"}, "Book", "can't load rows from a single dict"),
    (5, "Book", "give an Arrow table or reader, a pandas or Polars frame"),
    (pl.LazyFrame({"isbn": ["1"]}), "Book", "collect a lazy frame first"),
    ([{"isbn": "1"}], "Boook", "the graph has no type 'Boook'; did you mean 'Book'?"),
    ("rows.xml", "Book", "does not tell a format; say format='csv'"),
    (".", "Book", "does not tell a format"),
    ([{"isbn": "1"}], None, "dictionaries are rows of one type: name it with type="),
    (pl.DataFrame({"isbn": ["1"]}), None, "a frame holds rows of one type: name it with type="),
    ("books.csv", None, "name their type with type="),
    (7, None, "give text, bytes or a path"),
]


def test_what_can_not_be_loaded_is_refused_with_a_way_out(graph: Graph) -> None:
    for data, type_name, message in REFUSED:
        with pytest.raises(BadRequestError) as refused:
            graph.load(data, type=type_name, mode="append")
        assert message in str(refused.value)
    assert graph.snapshot().version == 1


def test_rows_are_checked_against_the_graph_like_records(graph: Graph) -> None:
    graph.load(BOOKS, type="Book", mode="append")
    with pytest.raises(KeyConflictError):
        graph.load([{"isbn": "b2", "title": "again"}], type="Book", mode="append")
    with pytest.raises(BadRequestError, match=r"row 2: .*@unique violation on Book.title"):
        graph.load(pa.table({"isbn": ["b8", "b9"], "title": ["new", "Kyberiada"]}), type="Book", mode="merge")
    with pytest.raises(BadRequestError, match="@card"):
        graph.load([{"src": "b1", "dst": "b2"}, {"src": "b1", "dst": "b3"}], type="Next", mode="append")
    graph.load(pa.table({"isbn": ["b9"], "title": ["only"]}), type="Book", mode="overwrite")
    assert set(rows(graph, "node:Book")) == {"b9"}


def test_files_that_can_not_be_read_are_named(graph: Graph, tmp_path: Path) -> None:
    cases: list[tuple[str, bytes, str]] = [
        ("a.csv", b"isbn,title\nb1,x,y\n", "a.csv, line 2: the record is malformed: it has 3 values"),
        ("b.csv", b"isbn,isbn\n", "b.csv: the header names the column 'isbn' twice"),
        ("c.parquet", b"PAR1 or so", "c.parquet: "),
        ("d.ndjson", b'{"isbn": "b1", "title": "x"}\n{"isbn"\n', "d.ndjson, line 2: "),
        (
            "e.json",
            b'[{"isbn": "b1"}]',
            "e.json, line 1: node:Book: expected the properties of a Book by name, got an array",
        ),
        ("f.csv", b"isbn,titel\nb1,x\n", "f.csv: node:Book has no property for the column 'titel'"),
    ]
    for name, content, message in cases:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadRequestError) as refused:
            graph.load(tmp_path / name, type="Book", mode="append")
        assert str(refused.value).startswith(f"{tmp_path}/{message}")
    for name in ("none.csv", "none.parquet", "none.ndjson"):
        with pytest.raises(NotFoundError, match="does not exist"):
            graph.load(tmp_path / name, type="Book", mode="append")


def test_how_a_file_is_written_can_be_said(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes("isbn;title\nb1;Zażółć\nb2;-\n".encode("iso8859-2"))
    semicolons = CsvDialect(delimiter=";", encoding="iso8859-2", null="-")
    with pytest.raises(BadRequestError, match=r"line 3: .*'title' has null value"):
        graph.load(tmp_path / "rows.txt", type="Book", mode="merge", format="csv", csv=semicolons)
    graph.load(io.BytesIO(b"isbn\ttitle\nb1\tx\n"), type="Book", mode="merge", format="csv", csv=CsvDialect("\t"))
    (tmp_path / "rows.tsv").write_text("isbn\ttitle\nb2\ty\n")
    graph.load(tmp_path / "rows.tsv", type="Book", mode="merge")
    (tmp_path / "more.tsv").write_text("isbn\ttitle\nb3\tz\n")
    with (tmp_path / "more.tsv").open("rb") as file:
        graph.load(file, type="Book", mode="merge")
    assert set(rows(graph, "node:Book")) == {"b1", "b2", "b3"}


def test_more_than_one_process_should_hold_is_refused_before_anything_is_written(graph: Graph, tmp_path: Path) -> None:
    for make in FORMS.values():
        with pytest.raises(ResourceLimitError, match="load --engine spark") as refused:
            graph.with_limits(Limits(rows=2)).load(make(tmp_path, FULL), type="Book", mode="append")
        assert (refused.value.resource, refused.value.limit, refused.value.actual) == ("load rows", 2, 3)
        with pytest.raises(ResourceLimitError) as refused:
            graph.with_limits(Limits(bytes=40)).load(make(tmp_path, FULL), type="Book", mode="append")
        assert refused.value.resource == "load bytes"
    assert graph.snapshot().version == 1


def test_no_rows_change_nothing_unless_they_replace_all(graph: Graph, tmp_path: Path) -> None:
    graph.load(BOOKS, type="Book", mode="append")
    nothing: list[Any] = [[], iter([]), pa.table({"isbn": pa.array([], pa.string())}), pd.DataFrame(), pl.DataFrame()]
    for mode in ("append", "merge"):
        for data in nothing:
            receipt = graph.load(data, type="Book", mode=mode)
            assert (receipt.nodes_loaded, receipt.commit) == ({}, None)
    assert (len(rows(graph, "node:Book")), graph.snapshot().version) == (3, 2)
    emptied = graph.load([], type="Book", mode="overwrite")
    assert (emptied.nodes_loaded, emptied.commit is None, graph.snapshot().version) == ({"Book": 0}, False, 3)
    assert rows(graph, "node:Book") == {}


# Repeats


def test_a_repeat_is_recognised_by_its_rows_in_whatever_form(graph: Graph, tmp_path: Path) -> None:
    notes = [{"text": "a", "score": 1}, {"text": None, "score": 2}]
    first = graph.load(notes, type="Note", mode="append", idempotency_key="k")
    for make in FORMS.values():
        again = graph.load(make(tmp_path, notes), type="Note", mode="append", idempotency_key="k")
        assert again == replayed(first)
        for other in ([{"text": "a", "score": 1}], [{"text": None, "score": 1}, {"text": "a", "score": 2}]):
            with pytest.raises(IdempotencyKeyReusedError):
                graph.load(make(tmp_path, other), type="Note", mode="append", idempotency_key="k")
        with pytest.raises(IdempotencyKeyReusedError):
            graph.load(make(tmp_path, notes), type="Note", mode="merge", idempotency_key="k")
    assert graph.snapshot().version == 2


def test_every_kind_of_value_counts_for_a_repeat(graph: Graph) -> None:
    first = graph.load(pl.DataFrame(FULL), type="Book", mode="merge", idempotency_key="k")
    assert graph.load(BOOKS, type="Book", mode="merge", idempotency_key="k") == replayed(first)
    others = {"pages": 205, "price": 9.25, "sold": False, "genre": "essay", "tags": ["se", "amind"], "cover": b"x"}
    others |= {"mood": [0.5, 1.0, -2.0], "printed": dt.date(1961, 2, 4), "seen": None, "title": "other"}
    for name, value in others.items():
        with pytest.raises(IdempotencyKeyReusedError):
            graph.load([{**BOOKS[0], name: value}, *BOOKS[1:]], type="Book", mode="merge", idempotency_key="k")


@pytest.mark.parametrize("form", ["generator", "reader", "long reader", "file"])
def test_an_input_that_is_gone_once_read_is_read_again_when_the_schema_changes(
    form: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema changes while the rows are read, so the load meets another one than it decoded for."""
    if form == "long reader":
        monkeypatch.setattr(load, "_IN_MEMORY", 0)
    notes = [{"text": "a", "score": 1}, {"text": "b", "score": 2}]
    changes = iter([lambda: graph.schema.apply(SCHEMA.replace("score: I64?", "score: I64?  extra: String?"))])

    def changing(items: Any) -> Iterator[Any]:
        for item in items:
            next(changes, lambda: None)()
            yield item

    table = pa.Table.from_pylist(notes)
    data: Any = changing(notes)
    if form.endswith("reader"):
        data = pa.RecordBatchReader.from_batches(table.schema, changing(table.to_batches(max_chunksize=1)))
    elif form == "file":
        pieces = changing([csv_text(notes).encode()])
        data = type("File", (), {"read": lambda self, size: next(pieces, b"")})()
    options = {"format": "csv"} if form == "file" else {}
    graph.load(data, type="Note", mode="append", idempotency_key="k", **options)
    assert next(changes, None) is None
    assert sorted((row["text"], row["score"]) for row in rows(graph, "node:Note").values()) == [("a", 1), ("b", 2)]
    assert graph.load(notes, type="Note", mode="append", idempotency_key="k").total_entities == 2
    assert len(rows(graph, "node:Note")) == 2


@pytest.mark.parametrize("share", [0, stored_rows._SCANNED_SHARE])
def test_thousands_of_rows_meet_what_is_stored_wherever_it_is(
    share: int, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken row by row, or found in one scan."""
    monkeypatch.setattr(stored_rows, "_SCANNED_SHARE", share)
    count = 5_000
    books: list[dict[str, Any]] = [{"isbn": f"b{i}", "title": f"t{i}", "pages": 1, "tags": ["a"]} for i in range(count)]
    books[::500] = [{**book, "cover": b"x"} for book in books[::500]]
    graph.load(books, type="Book", mode="append")
    changed = [{**book, "pages": 2} for book in books[::-7]]
    assert graph.load(changed, type="Book", mode="merge").updated == len(changed)
    last = [*books[: count // 2 : 2], *({**book, "pages": 3} for book in books[count // 2 :])]
    receipt = graph.load([*reversed(last), {"isbn": "new", "title": "n"}], type="Book", mode="merge")
    stale = {book["isbn"] for book in changed} & {book["isbn"] for book in books[: count // 2 : 2]}
    assert (receipt.inserted, receipt.updated) == (1, len(stale) + count // 2)
    assert receipt.unchanged == count // 4 - len(stale)
    graph.load([{"isbn": book["isbn"], "pages": 9} for book in books], type="Book", mode="update")
    stored = rows(graph, "node:Book")
    assert {isbn for isbn, book in stored.items() if book["pages"] == 9} == {book["isbn"] for book in books}
    assert {(book["title"], book["cover"]) for book in stored.values()} == {
        *((book["title"], book.get("cover")) for book in books),
        ("n", None),
    }


def test_graph_records_of_an_iterator_still_can_not_be_read_twice(graph: Graph) -> None:
    def pieces() -> Iterator[str]:
        graph.schema.apply(SCHEMA.replace("score: I64?", "score: I64?  extra: String?"))
        yield '{"type": "Note", "data": {"text": "a"}}'

    with pytest.raises(ConflictError, match="the schema changed"):
        graph.load(pieces(), mode="append")


def test_a_path_without_a_type_is_a_file_of_graph_records(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "all.ndjson").write_text(batch(FULL, EDGES))
    assert graph.load(tmp_path / "all.ndjson", mode="append").total_entities == 5
