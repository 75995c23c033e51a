"""The law of inference: files load into a graph of the schema that was inferred from them, and every value comes back.

Random tables are written as CSV, Parquet, Arrow and NDJSON. Each is inferred, loaded and read again.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.api.schema import SchemaProposal

COUNTER = itertools.count()
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
    lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=UTC)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NARROW = st.floats(allow_nan=False, allow_infinity=False, width=32)
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "bool": (st.booleans(), pa.bool_()),
    "small": (st.integers(-(2**31), 2**31 - 1), pa.int32()),
    "int": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
    "float": (FLOATS, pa.float64()),
    "narrow": (NARROW, pa.float32()),
    "text": (TEXTS, pa.string()),
    "digits": (st.from_regex(r"[0-9]{1,4}", fullmatch=True), pa.string()),
    "word": (st.sampled_from(["red", "green", "blue"]), pa.string()),
    "looks": (
        st.sampled_from(["2020-01-02", "true", "1.5", "7", "[1]", "base64:QQ==", "2020-01-02T03:04:05Z"]),
        pa.string(),
    ),
    "day": (st.dates(), pa.date32()),
    "moment": (MOMENTS, pa.timestamp("ms", "UTC")),
    "texts": (st.lists(TEXTS, max_size=3), pa.list_(pa.string())),
    "ints": (st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), pa.list_(pa.int64())),
    "vector": (st.lists(NARROW, min_size=3, max_size=3), pa.list_(pa.float32(), 3)),
    "bytes": (st.binary(max_size=4), pa.binary()),
}  # fmt: skip
NAMES = st.one_of(st.sampled_from(["id", "name", "src", "First Name", "Über", "2nd", "a-b", "@id", "__x"]), TEXTS)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
    names = draw(
        st.lists(NAMES.filter(lambda n: n and n != "@id"), min_size=len(kinds), max_size=len(kinds), unique=True)
    )
    rows = draw(st.integers(1, 12))
    columns = []
    for kind in kinds:
        values, type_ = COLUMNS[kind]
        present = draw(st.booleans())
        columns.append(pa.array([draw(values if present else st.none() | values) for _ in range(rows)], type_))
    return pa.table(columns, names=names)


def plain(value: Any) -> Any:
    """A value as JSON and CSV have it."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z".rjust(24, "0")
        case date():
            return value.isoformat()
        case bytes():
            return f"base64:{base64.b64encode(value).decode()}"
        case list():
            return [plain(each) for each in value]
    return value


def as_parquet(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def as_arrow(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as file:
        file.write_table(table)
    return path.with_suffix(".arrow")


def as_ndjson(table: pa.Table, path: Path) -> Path:
    lines = [msgspec.json.encode({name: plain(value) for name, value in row.items()}) for row in table.to_pylist()]
    path.with_suffix(".ndjson").write_bytes(b"\n".join(lines))
    return path.with_suffix(".ndjson")


def as_csv(table: pa.Table, path: Path) -> Path:
    rows = [[None if each is None else _cell(plain(each)) for each in row.values()] for row in table.to_pylist()]
    path.with_suffix(".csv").write_bytes("".join(map(_line, [table.schema.names, *rows])).encode())
    return path.with_suffix(".csv")


def _line(cells: Sequence[str | None]) -> str:
    """A record of CSV with quotes around everything but null."""
    quoted = ("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells)
    return f"{','.join(quoted)}\n"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, list) else str(value)


WRITERS = (as_csv, as_parquet, as_arrow, as_ndjson)


def renamed(path: Path, proposal: SchemaProposal) -> Any:
    """The file, with columns called as the properties; the file itself when they are called so already."""
    [type_] = proposal.types
    if all(column == name for column, name in type_.columns.items()):
        return path
    if path.suffix == ".ndjson":
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [{type_.columns.get(name, name): value for name, value in row.items()} for row in rows]
    if path.suffix == ".csv":
        whole = path.read_bytes()
        header = next(csv.reader(io.StringIO(whole.decode(), newline="")))
        rest = whole.removeprefix(_line(header).encode())
        path.write_bytes(_line([type_.columns.get(name, name) for name in header]).encode() + rest)
        return path
    read = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    return read.rename_columns([type_.columns.get(name, name) for name in read.schema.names])


def loaded(path: Path, directory: Path) -> list[dict[str, Any]]:
    """The rows of a file after their way through a graph of the schema that was inferred from it."""
    proposal = omnigraph.infer_schema(Row=path)
    [type_] = proposal.types
    with Graph.init(directory / f"g{next(COUNTER)}", proposal.schema) as graph:
        graph.load(renamed(path, proposal), type="Row", mode="append")
        records = [json.loads(line)["data"] for line in graph.export()]
    by_column = {name: column for column, name in type_.columns.items()}
    return [{by_column[name]: record[name] for name in record if name in by_column} for record in records]


def comparable(value: Any) -> Any:
    """Equal for values that mean the same: texts that a type reads, floats of any width, moments of any spelling."""
    if isinstance(value, list):
        return tuple(comparable(each) for each in value)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("number", float(np.float64(value)) if isinstance(value, float) else value)
    if isinstance(value, str):
        for kind, read in _SPELLINGS.items():
            try:
                return read(value) if kind == "list" else (kind, read(value))
            except (ValueError, KeyError, TypeError):
                continue
    return value


def _moment(text: str) -> datetime:
    """A moment, or the beginning of a day."""
    if text[4:5] != "-":
        raise ValueError(text)
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_SPELLINGS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "list": lambda text: comparable(json.loads(text if text.startswith("[") else "no list")),
    "number": lambda text: json.loads(text if text[:1] in "-0123456789" else "none"),
    "moment": _moment,
}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_value_comes_back(
    write: Callable[[pa.Table, Path], Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = data.draw(tables())
    directory = tmp_path_factory.mktemp("infer")
    rows = loaded(write(table, directory / "rows"), directory)
    expected = [{name: comparable(plain(value)) for name, value in row.items()} for row in table.to_pylist()]
    key = lambda row: repr(sorted(row.items(), key=lambda item: item[0]))  # noqa: E731
    actual = [{name: comparable(value) for name, value in row.items()} for row in rows]
    assert sorted(actual, key=key) == sorted(expected, key=key)
