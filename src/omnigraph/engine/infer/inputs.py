"""Reads the sources of a proposal, files and frames, into facts about their types, with the readers of loads.

A file of graph records has all its types; every other source holds rows of one. What a load would refuse to read is
refused here in the same words. A sample ends the reading, never a limit of a load.
"""

from __future__ import annotations

import os.path
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, Final

import pyarrow as pa

from omnigraph.api.governance import Limits
from omnigraph.api.load import without_compression
from omnigraph.engine.infer.tables import TableFacts
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.rows.kernels.ndjson import Block
from omnigraph.engine.write.row_input import RowFormat, RowInput, row_file, row_input
from omnigraph.errors import BadRequestError
from omnigraph.storage.location import Location

_NO_LIMITS: Final = Limits(rows=sys.maxsize, bytes=sys.maxsize)
_NODE_MEMBERS: Final = {"type", "id", "data"}
_END_TYPES: Final = ("from_type", "to_type")
_EDGE_MEMBERS: Final = {"edge", "id", "from", "to", "data", *_END_TYPES}


@dataclass(frozen=True, slots=True)
class Source:
    """Something to read: a path, or what a load takes as rows. Without a name, the file tells it. `ends` are the types
    at the ends, where the caller says that the rows are edges."""

    data: Any
    type_name: str | None = None
    ends: tuple[str, str] | None = None
    csv: CsvDialect | None = None


@dataclass(slots=True)
class Tables:
    """The types that were read, by kind and name, and the ends that callers said."""

    by_name: dict[tuple[bool, str], TableFacts] = field(default_factory=dict)
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    files: list[tuple[str, int, bool]] = field(default_factory=list)
    """Each source with its rows, and whether all of them were read."""

    def table(self, name: str, file: str, *, is_edge: bool = False, spells: bool = False) -> TableFacts:
        table = self.by_name.setdefault((is_edge, name), TableFacts(name, spells, is_edge=is_edge))
        if file not in table.files:
            table.files.append(file)
        return table


def read_sources(sources: Sequence[Source], *, sample: int | None, format: str | None) -> Tables:
    """Facts about all types. `format` is that of files whose names do not tell it."""
    tables = Tables()
    for source in sources:
        _read(source, tables, sample, format)
    return tables


def _read(source: Source, tables: Tables, sample: int | None, format: str | None) -> None:
    here, spells = Location.parse("."), False
    if isinstance(source.data, str | PathLike):
        path = fspath(source.data)
        if os.path.isdir(path):
            raise BadRequestError(f"'{path}' is a directory; name the files in it")
        file = row_file(path, format, source.csv, here)
        rows = RowInput.of_file(source.type_name or type_name_of(path), file)
        spells = file.format is RowFormat.CSV
    else:
        rows = row_input(source.data, source.type_name or "", graph=here)
    name = rows.file or rows.type_name
    blocks = _Reading(rows, sample)
    if source.ends is not None:
        tables.ends[rows.type_name] = source.ends
    is_edge = source.ends is not None
    for first, values in enumerate(blocks):
        if not first and source.type_name is None and _is_record(values):
            _read_records(values, blocks, name, tables)
            break
        table = tables.table(rows.type_name, name, is_edge=is_edge, spells=spells)
        _add_rows(table, values, name)
    if not blocks.rows:
        tables.table(rows.type_name, name, is_edge=is_edge, spells=spells)
    tables.files.append((name, blocks.rows, blocks.is_complete))


class _Reading:
    """The rows of an input, block by block, up to the end of the sample."""

    def __init__(self, source: RowInput, sample: int | None) -> None:
        self._source, self._sample = source, sample
        self.rows = 0
        self.is_complete = True
        self._blocks = iter(self._read())

    def __iter__(self) -> Iterator[Any]:
        return self._blocks

    def _read(self) -> Iterator[Any]:
        for block in self._source.blocks(_NO_LIMITS):
            values, count = self._values(block), len(block.positions)
            if self._sample is not None and self.rows + count > self._sample:
                count = self._sample - self.rows
                values = values.slice(0, count) if isinstance(values, pa.RecordBatch) else values[:count]
                self.is_complete = False
            self.rows += count
            if count or isinstance(values, pa.RecordBatch):
                yield values
            if not self.is_complete:
                return

    def _values(self, block: Block) -> Any:
        if block.malformed:
            number, reason = min(block.malformed)
            raise BadRequestError(f"{self._source.place} {number}: {reason}")
        return block.values


def _add_rows(table: TableFacts, values: Any, name: str) -> None:
    if isinstance(values, pa.RecordBatch):
        table.add_batch(values)
        return
    for number, row in enumerate(values, table.rows + 1):
        if not isinstance(row, Mapping) or not all(isinstance(each, str) for each in row):
            raise BadRequestError(f"{name}: row {number} is not an object with named values")
    table.add_records(values)


def _is_record(values: Any) -> bool:
    """Whether the first row is a record of a graph, which names its type."""
    first = None if isinstance(values, pa.RecordBatch) or not values else values[0]
    return isinstance(first, dict) and _record_name(first) is not None


def _record_name(value: Mapping[str, Any]) -> str | None:
    is_edge = "edge" in value
    name, members = value.get("edge" if is_edge else "type"), _EDGE_MEMBERS if is_edge else _NODE_MEMBERS
    is_whole = value.keys() <= members and isinstance(value.get("data", {}), dict)
    has_ends = not is_edge or {"from", "to"} <= value.keys()
    has_ends = has_ends and all(isinstance(value.get(each, ""), str) for each in _END_TYPES)
    return name if isinstance(name, str) and is_whole and has_ends else None


def _read_records(first: Any, rest: Any, name: str, tables: Tables) -> None:
    number = 0
    values = first
    while values is not None:
        by_type: dict[tuple[bool, str], list[dict[str, Any]]] = {}
        for value in values:
            number += 1
            type_name = _record_name(value) if isinstance(value, dict) else None
            if type_name is None:
                raise BadRequestError(
                    f"{name}: record {number} is not a graph record as the first one is; if these are rows of one "
                    "type, name it"
                )
            by_type.setdefault(("edge" in value, type_name), []).append(value)
        for (is_edge, type_name), records in by_type.items():
            table = tables.table(type_name, name, is_edge=is_edge)
            table.is_record = True
            if is_edge:
                table.add_ends(records)
            table.add_records([record.get("data", {}) for record in records], [each.get("id") for each in records])
        values = next(iter(rest), None)


def type_name_of(path: str) -> str:
    """The name of a type for a file of rows: `library-books.csv.gz` as `LibraryBooks`."""
    stem = os.path.splitext(os.path.basename(without_compression(path)))[0]
    return legal_type_name(stem)


def legal_type_name(name: str) -> str:
    parts = re.split(r"[^A-Za-z0-9]+", _ascii(name))
    joined = "".join(part[:1].upper() + part[1:] for part in parts)
    return joined if joined[:1].isalpha() else f"T{joined}"


def legal_property_name(name: str) -> str:
    """A name of a column as the language allows it: `First Name` as `first_name`."""
    if re.fullmatch(r"[a-z_][A-Za-z0-9_]*", name) and not name.startswith("__"):
        return name
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", _ascii(name))
    joined = re.sub(r"[^A-Za-z0-9]+", "_", spaced).strip("_").lower()
    return joined if joined[:1].isalpha() else f"column_{joined}".rstrip("_")


def _ascii(name: str) -> str:
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
