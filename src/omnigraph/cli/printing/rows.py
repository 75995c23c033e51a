"""The rows of a query on stdout, in the chosen format and as wide as the terminal; with a profile on stderr if wanted.

Only the process that runs a query can measure it. A server returns rows or a profile, so there the query runs twice,
the second time on the commit of the rows.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.cli.config import Defaults
from omnigraph.cli.params import ReadPoint
from omnigraph.cli.printing.output import print_lines, print_text

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi, QueryRows
    from omnigraph.api.queries import ReadOutput


_BETWEEN_COLUMNS = 3


def fitting_width(output: ReadOutput, terminal: int, widest: int) -> int:
    """The largest width, up to `widest`, at which capping every column makes a row fit; narrow columns keep theirs."""
    from omnigraph.api.values import cell_text, one_line, text_width
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


@dataclass
class ReadPrinter:
    format: ReadFormat
    defaults: Defaults

    @classmethod
    def chosen(cls, format: ReadFormat | None, defaults: Defaults) -> ReadPrinter:
        """What a flag says, else what the operator has configured, else a table."""
        return cls(format or ReadFormat(defaults.output or ReadFormat.TABLE), defaults)

    def show(self, result: QueryRows) -> None:
        from omnigraph.engine.query.output import TableStyle, render_read

        output = result.read_output()
        widest = self.defaults.table_max_column_width
        if sys.stdout.isatty():
            widest = fitting_width(output, shutil.get_terminal_size().columns, widest)
        style = TableStyle(widest, CellLayout(self.defaults.table_cell_layout))
        text = render_read(output, self.format, style)
        if self.format in (ReadFormat.TABLE, ReadFormat.KV):
            print_lines(text.removesuffix("\n").split("\n"), _table_style)
        else:
            print_text(text)


_HEADLINE = re.compile(r"\d+ rows? from ")


def _table_style(line: str) -> str:
    return "dim" if set(line) <= {"-", "+"} or _HEADLINE.match(line) else ""


def show_profiled(
    graph: GraphApi,
    source: str,
    name: str | None,
    given: Mapping[str, Any],
    point: ReadPoint,
    printer: ReadPrinter,
) -> None:
    from omnigraph.engine.query.read import ReadOptions
    from omnigraph.graph import Graph

    if isinstance(graph, Graph):
        result = graph.query(source, name, given, **point, options=ReadOptions(profile=True))
        printer.show(result)
        profile = result.profile.report
    else:
        rows = graph.query(source, name, given, **point)
        printer.show(rows)
        profile = graph.profile(source, name, given, snapshot=rows.graph_commit_id)
    sys.stdout.flush()
    print(*profile.lines(), sep="\n", file=sys.stderr)
