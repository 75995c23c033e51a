"""Read output as text: every format on the same small outputs, character by character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.api import wire
from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.api.queries import ReadOutput
from omnigraph.cli.printing.rows import TableStyle, render_read

ROWS: list[dict[str, Any]] = [
    {"title": "Lichen, field guide", "pages": 12, "tags": ["a", "b"], "price": None},
    {"title": 'Moss "and"\nmore', "pages": 3000000000, "tags": [], "price": 30.0},
]


def output(rows: list[dict[str, Any]], **changes: Any) -> ReadOutput:
    columns = list(rows[0]) if rows else []
    base = {"query_name": "books", "target": {"branch": "main", "snapshot": None}, "row_count": len(rows)}
    return wire.convert({**base, "columns": columns, "rows": rows, **changes}, ReadOutput)


def test_table_pads_every_column_to_its_widest_cell() -> None:
    assert render_read(output(ROWS), ReadFormat.TABLE) == (
        "2 rows from branch main via books\n"
        "title               | pages      | tags      | price\n"
        "--------------------+------------+-----------+------\n"
        'Lichen, field guide | 12         | ["a","b"] | null \n'
        'Moss "and"\\nmore    | 3000000000 | []        | 30.0 \n'
    )


def test_table_truncates_a_cell_that_is_too_wide() -> None:
    text = render_read(output([{"t": "abcdefghijkl"}]), ReadFormat.TABLE, TableStyle(max_column_width=9))
    assert text.splitlines()[1:] == ["t        ", "---------", "abcdefgh…"]


def test_a_column_is_never_capped_below_eight() -> None:
    text = render_read(output([{"t": "abcdefghi"}]), ReadFormat.TABLE, TableStyle(max_column_width=1))
    assert text.splitlines()[3] == "abcdefg…"


def test_table_wraps_on_request() -> None:
    style = TableStyle(max_column_width=8, cell_layout=CellLayout.WRAP)
    text = render_read(output([{"t": "abcdefghij", "n": 1}]), ReadFormat.TABLE, style)
    assert text.splitlines()[3:] == ["abcdefgh | 1", "ij       |  "]


def test_table_counts_wide_characters_as_two() -> None:
    text = render_read(output([{"t": "東京", "n": 1}]), ReadFormat.TABLE)
    assert text.splitlines()[1:] == ["t    | n", "-----+--", "東京 | 1"]


@pytest.mark.parametrize("format_", [ReadFormat.TABLE, ReadFormat.KV])
def test_nothing_found_is_said(format_: ReadFormat) -> None:
    assert render_read(output([]), format_) == "0 rows from branch main via books\n(no rows)\n"


def test_a_snapshot_is_named_instead_of_a_branch() -> None:
    read = output(ROWS, target={"branch": None, "snapshot": "01ABC"})
    assert render_read(read, ReadFormat.KV).startswith("2 rows from snapshot 01ABC via books\n")


def test_kv_numbers_rows_and_separates_them() -> None:
    assert render_read(output([{"a": 1}, {"a": None}]), ReadFormat.KV) == (
        "2 rows from branch main via books\nrow 1\na: 1\n\nrow 2\na: null\n"
    )


def test_csv_quotes_what_needs_it() -> None:
    assert render_read(output(ROWS), ReadFormat.CSV) == (
        'title,pages,tags,price\n"Lichen, field guide",12,"[""a"",""b""]",\n"Moss ""and""\nmore",3000000000,[],30.0\n'
    )


def test_jsonl_begins_with_its_metadata() -> None:
    first, *rows = render_read(output(ROWS), ReadFormat.JSONL).splitlines()
    assert first == (
        '{"kind":"metadata","query_name":"books","target":{"branch":"main","snapshot":null},"row_count":2}'
    )
    assert [json.loads(row) for row in rows] == ROWS


def test_ndjson_is_rows_and_nothing_else() -> None:
    assert [json.loads(line) for line in render_read(output(ROWS), ReadFormat.NDJSON).splitlines()] == ROWS
    assert render_read(output([]), ReadFormat.NDJSON) == ""


def test_json_is_the_read_output_itself() -> None:
    text = render_read(output(ROWS), ReadFormat.JSON)
    assert json.loads(text) == wire.to_builtins(output(ROWS))
    assert text.endswith("}\n")


def test_columns_come_from_the_rows_when_they_are_not_named() -> None:
    read = output([{"b": 1}, {"a": 2}], columns=[])
    assert render_read(read, ReadFormat.CSV) == "a,b\n,1\n2,\n"
