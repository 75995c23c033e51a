"""Read output as text for people and pipes: table, kv, csv, ndjson, jsonl, json.

Pure functions over a read output as HTTP and the engine give it, so that a served answer and an embedded one look
the same. Called by the CLI; all it knows of a terminal is the width it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.api import wire
from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.api.queries import ReadHeader, ReadOutput
from omnigraph.api.values import (
    cell_text,
    compact_json,
    counted,
    csv_line,
    cut_to_width,
    first_piece,
    one_line,
    padded,
    text_width,
)

NO_ROWS: Final = "(no rows)"
_NARROWEST_COLUMN: Final = 8


@dataclass(frozen=True, slots=True)
class TableStyle:
    max_column_width: int = 80
    cell_layout: CellLayout = CellLayout.TRUNCATE


def render_read(output: ReadOutput, format_: ReadFormat, style: TableStyle | None = None) -> str:
    """The whole text, with one newline at its end; nothing at all where there is not one line."""
    if format_ is ReadFormat.TABLE:
        return _table(output, style or TableStyle()) + "\n"
    text = _RENDERERS[format_](output)
    return text + "\n" if text else text


def columns_of(output: ReadOutput) -> list[str]:
    """The columns in projection order; an output that does not name them has those that its rows have."""
    return list(output.columns) or sorted({key for row in output.rows for key in row})


def _headline(output: ReadOutput) -> str:
    target = output.target
    where = f"branch {target.branch}" if target.branch else f"snapshot {target.snapshot}"
    return f"{counted(output.row_count, 'row')} from {where} via {output.query_name}"


# ---- table ----------------------------------------------------------------------------------------------


def _table(output: ReadOutput, style: TableStyle) -> str:
    columns = columns_of(output)
    if not columns:
        return f"{_headline(output)}\n{NO_ROWS}"
    cells = [[one_line(cell_text(row.get(column))) for column in columns] for row in output.rows]
    headers = [one_line(column) for column in columns]
    cap = max(_NARROWEST_COLUMN, style.max_column_width)
    widths = [min(cap, max(text_width(line[i]) for line in (headers, *cells))) for i in range(len(columns))]
    lines = [_headline(output), *_row_lines(headers, widths, style), "-+-".join("-" * width for width in widths)]
    for row in cells:
        lines += _row_lines(row, widths, style)
    return "\n".join(lines)


def _row_lines(cells: Sequence[str], widths: Sequence[int], style: TableStyle) -> list[str]:
    fit: Callable[[str, int], list[str]] = _wrap if style.cell_layout is CellLayout.WRAP else _truncate
    pieces = [fit(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(len(piece) for piece in pieces)
    return [
        " | ".join(
            padded(piece[i] if i < len(piece) else "", width) for piece, width in zip(pieces, widths, strict=True)
        )
        for i in range(height)
    ]


def _truncate(text: str, width: int) -> list[str]:
    return [text] if text_width(text) <= width else [cut_to_width(text, width - 1) + "…"]


def _wrap(text: str, width: int) -> list[str]:
    lines = []
    while text_width(text) > width:
        piece = cut_to_width(text, width) or first_piece(text)
        lines.append(piece)
        text = text[len(piece) :]
    return [*lines, text]


# ---- the others -----------------------------------------------------------------------------------------


def _kv(output: ReadOutput) -> str:
    columns = columns_of(output)
    blocks = [
        "\n".join((f"row {i}", *(f"{column}: {cell_text(row.get(column))}" for column in columns)))
        for i, row in enumerate(output.rows, start=1)
    ]
    return _headline(output) + "\n" + ("\n\n".join(blocks) or NO_ROWS)


def _csv(output: ReadOutput) -> str:
    columns = columns_of(output)
    return "\n".join((csv_line(columns), *(csv_line([row.get(column) for column in columns]) for row in output.rows)))


def _jsonl(output: ReadOutput) -> str:
    return "\n".join(map(compact_json, (wire.to_builtins(ReadHeader.of(output)), *output.rows)))


def _ndjson(output: ReadOutput) -> str:
    return "\n".join(map(compact_json, output.rows))


def _json(output: ReadOutput) -> str:
    return json.dumps(wire.to_builtins(output), ensure_ascii=False, indent=2)


_RENDERERS: Final[dict[ReadFormat, Callable[[ReadOutput], str]]] = {
    ReadFormat.KV: _kv,
    ReadFormat.CSV: _csv,
    ReadFormat.NDJSON: _ndjson,
    ReadFormat.JSONL: _jsonl,
    ReadFormat.JSON: _json,
}
