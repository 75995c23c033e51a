"""How wide the columns of a table may be so that a row of it fits into a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.query import ReadOutput


_BETWEEN_COLUMNS = 3


def fitting_width(output: ReadOutput, terminal: int, widest: int) -> int:
    """The largest width, up to `widest`, at which capping every column makes a row fit; narrow columns keep theirs."""
    from omnigraph.api.cell_text import cell_text, one_line, text_width
    from omnigraph.engine.query.output import columns_of

    columns = columns_of(output)
    longest = [
        max(text_width(one_line(text)) for text in (name, *(cell_text(row.get(name)) for row in output.rows)))
        for name in columns
    ]
    room = terminal - _BETWEEN_COLUMNS * (len(columns) - 1)
    for position, width in enumerate(sorted(longest)):
        share = room // (len(columns) - position)
        if width > share:
            return max(1, min(widest, share))
        room -= width
    return widest
