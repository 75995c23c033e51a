"""The rows of a query on stdout: in the format that was chosen, as wide as the terminal, or as configured where nobody
watches."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.cli.operator_config import Defaults
from omnigraph.cli.output import print_lines, print_text
from omnigraph.cli.table_width import fitting_width

if TYPE_CHECKING:
    from omnigraph.api.graph import QueryRows


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
