"""What a graph writes, it reads back as it was: every type, in every format that is both written and read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.enums import ReadFormat
from omnigraph.api.service.routes import Media
from omnigraph.cli.printing.rows import render_read
from omnigraph.engine.query.result import QueryResult
from omnigraph.server.http.streaming import row_chunks
from tests.engine.every_type import SCHEMA

_SCHEMA = SCHEMA + "node Word { text: String? }\n"
_TEXTS = st.sampled_from(["", "null", "NULL", '""', "[]", "a\r\nb", " ", "1"]) | st.text(
    st.characters(codec="utf-8"), max_size=5
)
_DEFAULT = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
_F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXTS,
    "bool": st.booleans(),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "f32": _F32,
    "f64": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.integers(-(2**31), 2**31 - 1),
    "datetime": st.integers(-(2**60), 2**60),
}
_VALUES = {
    **_SCALARS,
    **{f"{name}s": st.lists(items, max_size=3) for name, items in _SCALARS.items()},
    "level": st.sampled_from(["high", "low"]),
    "vec": st.lists(_F32, min_size=3, max_size=3),
}
_BLOBS = st.sampled_from(["base64:", "base64:AAEC/w=="])
_ROWS = st.lists(
    st.fixed_dictionaries(
        {}, optional={name: st.none() | values for name, values in {**_VALUES, "blob": _BLOBS}.items()}
    ),
    min_size=1,
    max_size=4,
)
_COLUMNS = ", ".join(f"$e.{name} as {name}" for name in ("key", *_VALUES))
_ALL = f"query all() {{ match {{ $e: Every }} return {{ {_COLUMNS} }} }}"


def _lines(result: QueryResult, format_: ReadFormat) -> str:
    return render_read(result.read_output(), format_)


def _parquet(result: QueryResult) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(result.to_arrow(), file)
    return io.BytesIO(file.getvalue())


def _streamed(graph: Graph, media: Media) -> bytes:
    return b"".join(row_chunks(graph.stream(_ALL), media))


# Rows of one type as a query gives them, in a form that `load` takes together with the type.
WRITTEN: dict[str, Callable[[Graph], tuple[Any, str | None]]] = {
    "csv": lambda graph: (io.StringIO(_lines(graph.query(_ALL), ReadFormat.CSV)), "csv"),
    "json": lambda graph: (json.loads(_lines(graph.query(_ALL), ReadFormat.JSON))["rows"], None),
    "ndjson": lambda graph: (io.StringIO(_lines(graph.query(_ALL), ReadFormat.NDJSON)), "ndjson"),
    "jsonl": lambda graph: (io.StringIO(_lines(graph.query(_ALL), ReadFormat.JSONL).partition("\n")[2]), "jsonl"),
    "parquet": lambda graph: (_parquet(graph.query(_ALL)), "parquet"),
    "served csv": lambda graph: (io.BytesIO(_streamed(graph, Media.CSV)), "csv"),
    "served ndjson": lambda graph: (io.BytesIO(_streamed(graph, Media.NDJSON)), "ndjson"),
    "served arrow": lambda graph: (pa.ipc.open_stream(_streamed(graph, Media.ARROW)).read_all(), None),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph]]:
    """Where rows come from, and where they go."""
    root = tmp_path_factory.mktemp("round-trip")
    with Graph.init(root / "from", _SCHEMA) as source, Graph.init(root / "to", _SCHEMA) as target:
        yield source, target


@_DEFAULT
@given(rows=_ROWS)
@example(rows=[{"string": text} for text in ("", "null", '"', "\r", "a,b\n", "\ufeff", " x ")])
def test_rows_of_a_query_load_back_as_they_were(graphs: tuple[Graph, Graph], rows: list[dict[str, Any]]) -> None:
    source, target = graphs
    source.load(
        [{"key": str(n), **{k: v for k, v in row.items() if k != "blob"}} for n, row in enumerate(rows)],
        type="Every",
        mode="overwrite",
    )
    expected = list(source.export(types=["Every"]))
    for written in WRITTEN.values():
        data, format_ = written(source)
        target.load(data, type="Every", mode="overwrite", format=format_)
        assert list(target.export(types=["Every"])) == expected


def test_a_null_in_the_only_column_is_a_row(graphs: tuple[Graph, Graph]) -> None:
    source, target = graphs
    texts = [None, "", "null", None, "x", None]
    source.load([{"text": text} for text in texts], type="Word", mode="overwrite")
    words = "query words() { match { $w: Word } return { $w.text as text } }"
    written = [
        _lines(source.query(words), ReadFormat.CSV).encode(),
        b"".join(row_chunks(source.stream(words), Media.CSV)),
    ]
    for text in written:
        target.load(io.BytesIO(text), type="Word", mode="overwrite", format="csv")
        assert sorted(map(repr, (row["text"] for row in target.query(words)))) == sorted(map(repr, texts))


@_DEFAULT
@given(rows=_ROWS)
@example(rows=[{"blob": "base64:"}, {"blob": "base64:AAEC/w=="}, {"date": -719_529, "datetime": 253_402_300_800_000}])
def test_an_export_loads_back_as_it_was(
    graphs: tuple[Graph, Graph], tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    source, target = graphs
    source.load([{"key": str(n), **row} for n, row in enumerate(rows)], type="Every", mode="overwrite")
    expected = list(source.export(types=["Every"]))
    for epoch in (True, False):
        target.load(source.export(types=["Every"], epoch=epoch), mode="overwrite")
        assert list(target.export(types=["Every"])) == expected
    for format_ in ("parquet", "arrow", "csv"):
        folder = tmp_path_factory.mktemp("files")
        file = next(f for f in source.export_files(folder, format=format_) if f.type_key == "node:Every")
        target.load(Path(file.path), type="Every", mode="overwrite")
        assert list(target.export(types=["Every"])) == expected
