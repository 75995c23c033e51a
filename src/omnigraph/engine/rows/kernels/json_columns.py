"""Graph records to columns without Python objects: blocks of NDJSON that Arrow's reader can take as a whole.

`decode` asks it first, block by block and in several threads: Arrow does not hold Python's lock while it reads. A block
is taken only if all its records are of one type and break no rule, and if its columns tell what `RecordTyper` would
make of them. Every other block is left to the exact reader, which knows the reasons; so nothing here writes a message.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.columns import whole_array
from omnigraph.engine.rows.kernels.ids import Mint, edge_ends
from omnigraph.engine.rows.kernels.ndjson import LineChunk
from omnigraph.engine.rows.kernels.records import type_batch
from omnigraph.engine.rows.kernels.typed_rows import RecordForm, RejectedRow, TypedRows
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.types import FLOATS, PropertyType, Scalar

_KIND_MEMBERS: Final = {"node": "type", "edge": "edge"}
_FEWEST_BYTES: Final = 16 << 10
"""A smaller block is read faster record by record."""
_MOST_PROPERTIES: Final = 200
"""Every record pays for every column, so types with more properties, which records rarely have, are read by members."""
_ESCAPE: Final = b"\\u"
_ESCAPED_NAME: Final = re.compile(rb'\\u[^"]*"[ \t\r]*:')
"""A member whose name has a character by its number; other escapes spell nothing that an identifier has."""
_BETWEEN_RECORDS: Final = b"}\n{"
_JSON_TYPES: Final = {
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int64(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint64(),
    Scalar.U64: pa.uint64(),
    **dict.fromkeys(FLOATS, pa.float64()),
    **dict.fromkeys((Scalar.STRING, Scalar.DATE, Scalar.DATETIME), pa.string()),
}
"""What Arrow reads the values of a property as: a type that holds them all, and no value of another JSON type."""


class JsonColumns:
    """Reads blocks of one input. It keeps nothing between blocks, so threads may share it."""

    def __init__(self, catalog: Catalog, form: RecordForm, mint: Mint) -> None:
        self._catalog = catalog
        self._form = form
        self._mint = mint
        types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
        self._readers: dict[tuple[str, str], _TypeReader] = {
            (type_.kind, type_.name): _TypeReader(type_, catalog) for type_ in types if _is_plain(type_)
        }

    def read(self, chunk: LineChunk) -> TypedRows | None:
        """The rows of a block; None where the exact reader has to look at it."""
        if len(chunk.text) < _FEWEST_BYTES or (reader := self._reader_of(chunk)) is None:
            return None
        if (columns := reader.columns(chunk, self._form)) is None:
            return None
        lines = pa.array(np.arange(chunk.first, chunk.first + chunk.lines))
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        rejected: list[RejectedRow] = []
        try:
            typed = type_batch(
                reader.type, batch, lines, rejected, catalog=self._catalog, mint=self._mint, form=self._form
            )
        except BadRequestError:  # a column that has to be there is missing
            return None
        return None if rejected else typed

    def _reader_of(self, chunk: LineChunk) -> _TypeReader | None:
        """What reads the type of the first record, if columns can hold its values."""
        try:
            record = msgspec.json.decode(chunk.text[: chunk.text.find(b"\n")])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        for kind, member in _KIND_MEMBERS.items() if isinstance(record, dict) else ():
            if isinstance(name := record.get(member), str):
                return self._readers.get((kind, name))
        return None


class _TypeReader:
    """Reads blocks of records of one type."""

    def __init__(self, type_: TableType, catalog: Catalog) -> None:
        self.type = type_
        self._kind = _KIND_MEMBERS[type_.kind]
        self._data = pa.struct([(prop.name, _json_type(prop.type)) for prop in type_.property_list])
        ends = edge_ends(catalog, type_) if isinstance(type_, EdgeType) else ()
        self._ends = [name for end in ends for name in (end.name, *([f"{end.name}_type"] if end.is_interface else []))]
        texts = [(name, pa.string()) for name in (self._kind, "id", *self._ends)]
        self._schema = pa.schema([*texts, ("data", self._data)])

    def columns(self, chunk: LineChunk, form: RecordForm) -> dict[str, pa.Array] | None:
        """The columns of a block as `type_batch` takes them, without those that no record has."""
        records = _parse(chunk, self._schema)
        if records is None:
            return None
        kind, data, names = records[self._kind], records["data"], _MemberNames(chunk.text)
        if kind.null_count or not pc.all(pc.equal(kind, self.type.name)).as_py():
            return None
        if data.null_count and (data.null_count < len(data) or not names.lack("data")):
            return None
        columns: dict[str, pa.Array] = {}
        for name in ("id", *self._ends):
            if not records[name].null_count:
                columns[self.type.system_name(name)] = records[name]
            elif records[name].null_count < len(data) or not names.lack(name):
                return None  # a null that is written there breaks a rule
        for prop, column in zip(self.type.property_list, data.flatten(), strict=True):
            if column.null_count and (form is not RecordForm.WHOLE or prop.default is not None):
                if column.null_count == len(column) and names.lack(prop.name):
                    continue
                return None  # a null that is written there is not like a value that is not there
            if _has_negative_zero(column):
                return None
            columns[prop.name] = column
        return columns or None


def _is_plain(type_: TableType) -> bool:
    """Whether every property has a column of JSON values, and a name that nothing else in the batch has."""
    names = {"id", "from", "to", "from_type", "to_type"}
    if len(type_.property_list) > _MOST_PROPERTIES or not names.isdisjoint(type_.properties):
        return False
    return all(
        prop.name.isidentifier() and (prop.type.is_vector or prop.type.scalar in _JSON_TYPES)
        for prop in type_.property_list
    )


def _json_type(type_: PropertyType) -> pa.DataType:
    if type_.is_vector:
        return pa.list_(pa.float64())
    return pa.list_(_JSON_TYPES[type_.scalar]) if type_.list else _JSON_TYPES[type_.scalar]


def _parse(chunk: LineChunk, schema: pa.Schema) -> dict[str, pa.Array] | None:
    """The columns of a block in which every line holds one object, with these members and no other.

    The reader knows no lines. Two records may share a line for it, and one may take several. But no value can go on
    behind a line end between braces: a text holds none, and within an array or an object a comma would have to follow.
    So where every line end is one of those, and there are as many records as lines, each line holds a record.
    """
    from pyarrow import json

    text = chunk.text
    end = len(text) - text.endswith(b"\n")
    if text[:1] != b"{" or text[end - 1 : end] != b"}" or text.count(_BETWEEN_RECORDS) != chunk.lines - 1:
        return None
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    try:
        table = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if table.num_rows != chunk.lines:
        return None
    return {name: whole_array(table.column(name)) for name in schema.names}


class _MemberNames:
    """The names of members that the records of a block can have, by its text alone."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def lack(self, member: str) -> bool:
        """Whether no record has this member."""
        return f'"{member}"'.encode() not in self._text and not self._are_escaped

    @cached_property
    def _are_escaped(self) -> bool:
        return _ESCAPE in self._text and _ESCAPED_NAME.search(self._text) is not None


def _has_negative_zero(column: pa.Array) -> bool:
    """JSON has integers that are -0, which is 0; as a float that would be another value."""
    if pa.types.is_list(column.type):
        column = column.flatten()
    if not pa.types.is_floating(column.type):
        return False
    values = column.to_numpy(zero_copy_only=False)
    return bool((np.signbit(values) & (values == 0)).any())
