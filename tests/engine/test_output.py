"""Read results as text."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.output import CellLayout, ReadFormat, TableLayout, cell_text, render_read


def output(rows: list[dict[str, Any]], columns: list[str] | None = None) -> dict[str, Any]:
    named = {"columns": columns} if columns is not None else {}
    target = {"branch": "main", "snapshot": None}
    return {"query_name": "q", "target": target, "row_count": len(rows), **named, "rows": rows}


def lines(rows: list[dict[str, Any]], format: ReadFormat, columns: list[str] | None = None, **layout: Any) -> list[str]:
    return list(render_read(output(rows, columns), format, TableLayout(**layout)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("a b", "a b"),
        (1, "1"),
        (1.5, "1.5"),
        (True, "true"),
        ([1, "é"], '[1,"é"]'),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_columns_are_the_sorted_keys_when_the_output_names_none() -> None:
    assert lines([{"b": 1}, {"a": 2}], ReadFormat.CSV) == ["a,b", "null,1", "2,null"]


def test_a_snapshot_is_named() -> None:
    read = output([], ["a"]) | {"target": {"branch": None, "snapshot": "01X"}}
    assert next(render_read(read, ReadFormat.TABLE)) == "0 rows from snapshot 01X via q"


@pytest.mark.parametrize(
    ("format", "columns", "expected"),
    [
        (ReadFormat.TABLE, [], ["0 rows from branch main via q", "(no rows)"]),
        (ReadFormat.TABLE, ["a"], ["0 rows from branch main via q", "a", "-"]),
        (ReadFormat.KV, ["a"], ["0 rows from branch main via q", "(no rows)"]),
        (ReadFormat.CSV, ["a", "b"], ["a,b"]),
    ],
)
def test_nothing_found(format: ReadFormat, columns: list[str], expected: list[str]) -> None:
    assert lines([], format, columns) == expected


def test_a_wide_cell_is_cut_or_wrapped() -> None:
    rows = [{"a": "abcdefghijk", "b": 1}]
    cut = lines(rows, ReadFormat.TABLE, ["a", "b"], max_column_width=8)
    assert cut[1:] == ["a        | b", "---------+--", "abcdefg… | 1"]
    wrapped = lines(rows, ReadFormat.TABLE, ["a", "b"], max_column_width=8, cells=CellLayout.WRAP)
    assert wrapped[1:] == ["a        | b", "---------+--", "abcdefgh | 1", "ijk      |  "]


def test_a_column_is_never_narrower_than_eight() -> None:
    assert lines([{"a": "abcdefgh"}], ReadFormat.TABLE, ["a"], max_column_width=2)[-1] == "abcdefgh"


def test_line_breaks_in_cells_do_not_break_the_table() -> None:
    assert lines([{"a": "x\ny"}], ReadFormat.TABLE, ["a"])[-1] == "x\\ny"


def test_the_widest_columns_give_way_to_the_edge_of_a_terminal() -> None:
    rows = [{"id": "short", "text": "x" * 200, "more": "y" * 60}]
    shown = lines(rows, ReadFormat.TABLE, ["id", "text", "more"], total_width=60)
    assert {len(line) for line in shown[1:]} == {60}
    assert shown[-1].startswith("short | x")


TEXTS = st.text(st.sampled_from('ab,"\r\n é'), max_size=8)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), TEXTS | st.none() | st.integers()), max_size=5))
def test_csv_is_read_back_by_a_csv_reader(rows: list[dict[str, Any]]) -> None:
    text = "\n".join(lines(rows, ReadFormat.CSV, ["a", "b"])) + "\n"
    back = list(csv.reader(io.StringIO(text, newline="")))
    assert back == [["a", "b"], *([cell_text(row.get(name)) for name in ("a", "b")] for row in rows)]


@given(st.lists(st.dictionaries(TEXTS, TEXTS | st.none() | st.integers() | st.lists(TEXTS, max_size=3)), max_size=5))
def test_json_and_json_lines_keep_the_rows(rows: list[dict[str, Any]]) -> None:
    about, *found = lines(rows, ReadFormat.JSONL)
    assert json.loads(about)["row_count"] == len(rows)
    assert [json.loads(line) for line in found] == rows
    assert json.loads("".join(lines(rows, ReadFormat.JSON))) == output(rows)
