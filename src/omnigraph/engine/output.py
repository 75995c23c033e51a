"""Read results as text: a table, key-value blocks, CSV, JSON lines or JSON.

The input is the read output that `QueryResult.to_json_dict` gives and that a server sends, so a result looks the same
wherever it was computed. Pure text work: it never touches a graph.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NARROWEST_COLUMN = 8
_VISIBLE = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class ReadFormat(StrEnum):
    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


class CellLayout(StrEnum):
    """What happens to a cell that is wider than its column."""

    TRUNCATE = "truncate"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """`total_width` is the room there is for a whole row, when the reader has an edge: a terminal."""

    max_column_width: int = 80
    cells: CellLayout = CellLayout.TRUNCATE
    total_width: int | None = None


DEFAULT_LAYOUT = TableLayout()


def render_read(output: Mapping[str, Any], format: ReadFormat, layout: TableLayout = DEFAULT_LAYOUT) -> Iterator[str]:
    """The lines of a read output. A line may hold line breaks of its own where a CSV cell does."""
    columns, rows = _columns(output), output["rows"]
    match format:
        case ReadFormat.TABLE:
            yield _headline(output)
            yield from _table(columns, rows, layout)
        case ReadFormat.KV:
            yield _headline(output)
            yield from _key_values(columns, rows)
        case ReadFormat.CSV:
            yield ",".join(_quoted(name) for name in columns)
            for row in rows:
                yield ",".join(_quoted(cell_text(row.get(name))) for name in columns)
        case ReadFormat.JSONL:
            about = {key: output[key] for key in ("query_name", "target", "row_count")}
            yield _compact({"kind": "metadata", **about})
            for row in rows:
                yield _compact(row)
        case ReadFormat.JSON:
            yield json.dumps(output, indent=2, ensure_ascii=False)


def cell_text(value: object) -> str:
    """One value as it stands in a cell."""
    return value if isinstance(value, str) else _compact(value)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _columns(output: Mapping[str, Any]) -> list[str]:
    named = output.get("columns")
    return list(named) if named else sorted({key for row in output["rows"] for key in row})


def _headline(output: Mapping[str, Any]) -> str:
    target = output["target"]
    branch, snapshot = target.get("branch"), target.get("snapshot")
    place = f"branch {branch}" if branch is not None else f"snapshot {snapshot}"
    return f"{output['row_count']} rows from {place} via {output['query_name']}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _key_values(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "(no rows)"
    for number, row in enumerate(rows, 1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for name in columns:
            yield f"{name}: {cell_text(row.get(name))}"


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], layout: TableLayout) -> Iterator[str]:
    if not columns:
        yield "(no rows)"
        return
    cells = [[cell_text(row.get(name)).translate(_VISIBLE) for name in columns] for row in rows]
    widths = _widths(columns, cells, layout)
    yield from _table_row(columns, widths, layout.cells)
    yield "-+-".join("-" * width for width in widths)
    for row in cells:
        yield from _table_row(row, widths, layout.cells)


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], layout: TableLayout) -> list[int]:
    cap = max(NARROWEST_COLUMN, layout.max_column_width)
    longest = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    widths = [min(width, cap) for width in longest]
    if layout.total_width is None:
        return widths
    # The widest column gives way first, down to the narrowest that can still be read.
    excess = sum(widths) + 3 * (len(widths) - 1) - layout.total_width
    while excess > 0 and max(widths) > NARROWEST_COLUMN:
        widest = widths.index(max(widths))
        second = max([width for i, width in enumerate(widths) if i != widest], default=NARROWEST_COLUMN)
        step = min(excess, max(1, widths[widest] - max(second, NARROWEST_COLUMN)))
        widths[widest] -= step
        excess -= step
    return widths


def _table_row(cells: Sequence[str], widths: Sequence[int], layout: CellLayout) -> Iterator[str]:
    fitted = [_fitted(cell, width, layout) for cell, width in zip(cells, widths, strict=True)]
    for line in range(max(len(pieces) for pieces in fitted)):
        texts = [pieces[line] if line < len(pieces) else "" for pieces in fitted]
        yield " | ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))


def _fitted(text: str, width: int, layout: CellLayout) -> list[str]:
    if len(text) <= width:
        return [text]
    if layout is CellLayout.TRUNCATE:
        return [text[: width - 1] + "…"]
    return textwrap.wrap(text, width, break_on_hyphens=False, drop_whitespace=False)
