"""Several local files read as one input of a load.

Rows are numbered through all files. `InputFiles.naming_places` turns the number of a refused row back into its file and
line, so that an error names the place where its reader will look.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from omnigraph.api.governance import Limits
from omnigraph.api.load import local_pieces
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect, refuse_other_columns
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock
from omnigraph.engine.write.row_files import RowFile, RowFormat, local_row_file
from omnigraph.engine.write.row_input import RowInput
from omnigraph.errors import BadRequestError, ConstraintError


class InputFiles:
    """Files of one format, read in the order they are given."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._starts: list[int] = []
        """The number of the last row before each file that was begun."""
        self._is_read = False

    def records(self) -> Iterator[bytes]:
        """The lines of all files. A file that ends within a line ends that line."""
        lines = 0
        for path in self._begin():
            self._starts.append(lines)
            last = b"\n"
            for piece in local_pieces(path):
                lines += piece.count(b"\n")
                last = piece[-1:] or last
                yield piece
            if last != b"\n":
                lines += 1
                yield b"\n"
        self._is_read = True

    def rows(self, type_name: str, format: str | None, csv: Callable[[str], CsvDialect | None]) -> RowInput:
        """The rows of all files, as rows of a type. `csv` tells how a file is written, where its name does not."""
        files = [local_row_file(path, format, csv(path)) for path in self._paths]
        return RowInput(type_name, files[0].unit, lambda limits: self._blocks(files, limits))

    def _blocks(self, files: Sequence[RowFile], limits: Limits) -> Iterator[RowBlock]:
        before, header = 0, (files[0].name, list[str]())
        for file, _ in zip(files, self._begin(), strict=True):
            self._starts.append(before)
            last = 0
            for block in file.blocks(limits):
                if file.format is RowFormat.CSV and isinstance(block.rows, pa.RecordBatch):
                    header = (header[0], header[1] or list(block.rows.schema.names))
                    refuse_other_columns(block.rows.schema.names, header[1], header[0])
                numbers = np.asarray(block.numbers, np.int64)
                last = max([last, *numbers[-1:].tolist(), *(number for number, _ in block.bad)])
                bad = [(number + before, reason) for number, reason in block.bad]
                yield RowBlock(block.rows, pa.array(numbers + before), bad)
            before += last
        self._is_read = True

    def _begin(self) -> Iterator[str]:
        self._starts.clear()
        self._is_read = False
        yield from self._paths

    @contextmanager
    def naming_places(self, unit: str = "line") -> Iterator[None]:
        """Let errors of the load within name a file, and the row of that file; `unit` is what its numbers count."""
        try:
            yield
        except ConstraintError as error:
            if type(error) is not ConstraintError or error.line is None:
                raise
            at = bisect_left(self._starts, error.line) - 1
            line = error.line - self._starts[at]
            told = str(error).removeprefix(f"{unit} {error.line}: ")
            raise ConstraintError(
                error.rule,
                error.type_key,
                error.property,
                error.entity_id,
                line,
                message=f"{self._paths[at]}, {unit} {line}: {told}",
            ) from error
        except BadRequestError as error:
            if self._is_read or not self._starts or (path := self._paths[len(self._starts) - 1]) in str(error):
                raise
            raise BadRequestError(f"{path}: {error}") from error
