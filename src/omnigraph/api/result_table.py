"""A result as a small table: for a Python prompt, and for a notebook.

Bounded in both directions, whatever the result holds: a few rows, the columns that fit, and cells of one line. Called
by results only; the command line prints whole results by itself.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from omnigraph.api.cell_text import cell_text, cut_to_width, one_line, padded, text_width

Columns: TypeAlias = Sequence[tuple[str, str]]
"""The name and the type of each column."""

_WIDEST_CELL: Final = 40
_USUAL_WIDTH: Final = 100
_GAP: Final = " │ "
_MORE: Final = "…"


def text_table(name: str, columns: Columns, count: int, values: Sequence[Sequence[Any]]) -> str:
    """The first rows below the names and types of the columns. `values` are by column."""
    cells = [
        [one_line(head), type_, *(one_line(cell_text(value)) for value in column)]
        for (head, type_), column in zip(columns, values, strict=True)
    ]
    numeric = [bool(column) and all(_is_number(v) for v in column if v is not None) for column in values]
    kept = _fitting([min(_WIDEST_CELL, max(map(text_width, column))) for column in cells])
    lines = [_headline(name, columns, count)]
    for row in range(len(cells[0]) if cells else 0):
        shown = [_MORE if at is None else _aligned(cells[at][row], width, numeric[at]) for at, width in kept]
        lines.append(_GAP.join(shown).rstrip())
        if row == 1:
            lines.append("─┼─".join("─" * width for _, width in kept))
    if (hidden := count - _rows_in(values)) > 0:
        lines.append(f"{_MORE} {hidden:,} more row{'' if hidden == 1 else 's'}")
    return "\n".join(lines)


def html_table(name: str, columns: Columns, count: int, values: Sequence[Sequence[Any]]) -> str:
    """The same for a notebook, with every column."""
    heads = "".join(f"<th>{html.escape(head)}<br><small>{html.escape(type_)}</small></th>" for head, type_ in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(cell_text(value)))}</td>" for value in row) + "</tr>"
        for row in zip(*values, strict=True)
    )
    hidden = count - _rows_in(values)
    more = f"<p>{_MORE} {hidden:,} more</p>" if hidden > 0 else ""
    title = html.escape(_headline(name, columns, count))
    return f"<p>{title}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _headline(name: str, columns: Columns, count: int) -> str:
    rows, wide = f"{count:,} row{'' if count == 1 else 's'}", len(columns)
    return f"{name}: {rows} × {wide} column{'' if wide == 1 else 's'}"


def _rows_in(values: Sequence[Sequence[Any]]) -> int:
    return len(values[0]) if values else 0


def _fitting(widths: Sequence[int]) -> list[tuple[int | None, int]]:
    """The columns that a line has room for, with their widths; what is left out shows as one mark before the last."""
    room = shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns

    def taken(chosen: Sequence[tuple[int | None, int]]) -> int:
        return sum(width for _, width in chosen) + len(_GAP) * (len(chosen) - 1)

    everything: list[tuple[int | None, int]] = list(enumerate(widths))
    if taken(everything) <= room or len(widths) < 3:
        return everything
    tail: list[tuple[int | None, int]] = [(None, 1), (len(widths) - 1, widths[-1])]
    kept: list[tuple[int | None, int]] = [(0, widths[0])]
    while len(kept) < len(widths) - 2 and taken([*kept, (len(kept), widths[len(kept)]), *tail]) <= room:
        kept.append((len(kept), widths[len(kept)]))
    return [*kept, *tail]


def _aligned(text: str, width: int, to_the_right: bool) -> str:
    if text_width(text) > width:
        text = cut_to_width(text, width - 1) + _MORE
    return " " * (width - text_width(text)) + text if to_the_right else padded(text, width)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(text: str) -> str:
    return text if len(text) <= 4 * _WIDEST_CELL else text[: 4 * _WIDEST_CELL] + _MORE
