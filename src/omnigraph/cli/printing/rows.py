"""Prints the rows of a query in a chosen format: table, kv, csv, ndjson, jsonl or json.

The formatters are pure functions over a read output as HTTP and the engine give it, so that a served result and an
embedded one look the same. With a profile, a served query runs twice, the second time on the commit of the rows,
because a server returns rows or a profile.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from omnigraph.api import values
from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.cli.config import Defaults
from omnigraph.cli.printing.output import print_lines, print_text

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi, QueryRows
    from omnigraph.api.queries import ReadOutput
    from omnigraph.engine.query.read import ReadOptions


_BETWEEN_COLUMNS = 3


def fitting_width(output: ReadOutput, terminal: int, widest: int) -> int:
    """The largest width, up to `widest`, at which capping every column makes a row fit; narrow columns keep theirs."""
    columns = columns_of(output)
    longest = [
        max(
            values.text_width(values.one_line(text))
            for text in (name, *(values.cell_text(row.get(name)) for row in output.rows))
        )
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
    def choose(cls, format: ReadFormat | None, defaults: Defaults) -> ReadPrinter:
        """The format of a flag, else the one that the operator has configured, else a table."""
        return cls(format or ReadFormat(defaults.output or ReadFormat.TABLE), defaults)

    def show(self, result: QueryRows) -> None:
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


_HEADLINE = re.compile(r"\d+ rows? (from|via) ")


def _table_style(line: str) -> str:
    return "dim" if set(line) <= {"-", "+"} or _HEADLINE.match(line) else ""


def read_options(traversal_work: int | None, *, profile: bool = False) -> ReadOptions | None:
    """The options of a read; None when nothing is asked for. The engine is not loaded for that."""
    if traversal_work is None and not profile:
        return None
    from omnigraph.engine.query.read import ReadOptions

    options = ReadOptions(profile=profile)
    return options if traversal_work is None else replace(options, traversal_work=traversal_work)


def show_profiled(
    graph: GraphApi,
    source: str,
    name: str | None,
    arguments: Mapping[str, Any],
    point: Mapping[str, Any],
    printer: ReadPrinter,
    traversal_work: int | None = None,
) -> None:
    from omnigraph.graph import Graph

    options = read_options(traversal_work)
    if isinstance(graph, Graph):
        result = graph.query(source, name, arguments, **point, options=read_options(traversal_work, profile=True))
        printer.show(result)
        profile = result.profile.report
    else:
        rows = graph.query(source, name, arguments, **point, options=options)
        printer.show(rows)
        if not rows.graph_commit_id:
            return  # the names of branches are of no state, and no operator reads them
        profile = graph.profile(source, name, arguments, snapshot=rows.graph_commit_id, options=options)
    sys.stdout.flush()
    print(*profile.lines(), sep="\n", file=sys.stderr)


NO_ROWS: Final = "(no rows)"
_NARROWEST_COLUMN: Final = 8


@dataclass(frozen=True, slots=True)
class TableStyle:
    max_column_width: int = 80
    cell_layout: CellLayout = CellLayout.TRUNCATE


def render_read(output: ReadOutput, format_: ReadFormat, style: TableStyle | None = None) -> str:
    """The whole text, with one newline at its end; nothing at all where there is not one line."""
    from omnigraph.api import wire
    from omnigraph.api.queries import ReadHeader

    columns, lines = columns_of(output), list[str]()
    match format_:
        case ReadFormat.TABLE:
            lines = _table(output, columns, style or TableStyle())
        case ReadFormat.KV:
            lines = [_headline(output), *([] if output.rows else [NO_ROWS])]
            for number, row in enumerate(output.rows, start=1):
                lines += [""] if number > 1 else []
                lines += [f"row {number}", *(f"{column}: {values.cell_text(row.get(column))}" for column in columns)]
        case ReadFormat.CSV if columns:
            lines = [
                values.csv_line(columns),
                *(values.csv_line([row.get(column) for column in columns]) for row in output.rows),
            ]
        case ReadFormat.NDJSON:
            lines = list(map(values.compact_json, output.rows))
        case ReadFormat.JSONL:
            lines = list(map(values.compact_json, (wire.to_builtins(ReadHeader.of(output)), *output.rows)))
        case ReadFormat.JSON:
            lines = [json.dumps(wire.to_builtins(output), ensure_ascii=False, indent=2)]
    return "".join(f"{line}\n" for line in lines)


def columns_of(output: ReadOutput) -> list[str]:
    """The columns in projection order; an output that does not name them has those that its rows have."""
    return list(output.columns) or sorted({key for row in output.rows for key in row})


def _headline(output: ReadOutput) -> str:
    target = output.target
    where = f" from branch {target.branch}" if target.branch else f" from snapshot {target.snapshot}"
    if not (target.branch or target.snapshot):  # of no state of the graph, as the names of branches
        where = ""
    return f"{values.count_noun(output.row_count, 'row')}{where} via {output.query_name}"


def _table(output: ReadOutput, columns: Sequence[str], style: TableStyle) -> list[str]:
    if not columns:
        return [_headline(output), NO_ROWS]
    cells = [[values.one_line(values.cell_text(row.get(column))) for column in columns] for row in output.rows]
    headers = [values.one_line(column) for column in columns]
    cap = max(_NARROWEST_COLUMN, style.max_column_width)
    widths = [min(cap, max(values.text_width(line[i]) for line in (headers, *cells))) for i in range(len(columns))]
    lines = [_headline(output), *_row_lines(headers, widths, style), "-+-".join("-" * width for width in widths)]
    for row in cells:
        lines += _row_lines(row, widths, style)
    return lines


def _row_lines(cells: Sequence[str], widths: Sequence[int], style: TableStyle) -> list[str]:
    pieces = [_fit(cell, width, style.cell_layout) for cell, width in zip(cells, widths, strict=True)]
    height = max(len(piece) for piece in pieces)
    return [
        " | ".join(
            values.pad(piece[i] if i < len(piece) else "", width) for piece, width in zip(pieces, widths, strict=True)
        )
        for i in range(height)
    ]


def _fit(text: str, width: int, layout: CellLayout) -> list[str]:
    """The text in lines of a width, or its beginning."""
    if layout is CellLayout.TRUNCATE:
        return [text] if values.text_width(text) <= width else [values.cut_to_width(text, width - 1) + "…"]
    lines = []
    while values.text_width(text) > width:
        piece = values.cut_to_width(text, width) or values.first_piece(text)
        lines.append(piece)
        text = text[len(piece) :]
    return [*lines, text]
