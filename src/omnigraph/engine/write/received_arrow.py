"""An Arrow stream that a stranger sent, read without trusting it.

A few bytes of a compressed, dictionary-encoded or run-length-encoded column, or of one whose values are views, stand
for any amount of memory, and buffers that contradict each other crash the code that follows them. So the stream must be
plain, every batch is checked as a whole before anybody looks into it, and its values count as if each were a word.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.api.governance import Limits
from omnigraph.api.load import BATCH_ROWS
from omnigraph.engine.rows.kernels.framing import Meter
from omnigraph.engine.rows.kernels.rows_of_type import RowBlock
from omnigraph.errors import BadRequestError

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_WORD: Final = 8
_HEADER: Final = 2
_COMPRESSION: Final = 3
"""Which members of a message, and of the description of a batch, these are."""


def received_batches(name: str, path: str, limits: Limits) -> Iterator[RowBlock]:
    """The rows of a received stream, counted from 1. Values may take as much memory as the limits allow."""
    meter = Meter(limits)
    first = 1
    try:
        with pa.OSFile(path) as source:
            source.seek(max(source.size() - len(_END), 0))
            if source.read(len(_END)) != _END:
                raise BadRequestError(f"{name} is not a whole Arrow stream: it lacks its end")
            source.seek(0)
            for whole in _batches(source):
                whole.validate()  # looking into a batch whose lengths contradict each other aborts the process
                meter.count_bytes(_WORD * sum(map(_leaves, whole.columns)))
                whole.validate(full=True)
                for start in range(0, whole.num_rows, BATCH_ROWS):
                    batch = whole.slice(start, BATCH_ROWS)
                    yield RowBlock(batch, pa.array(np.arange(first, first + batch.num_rows)))
                    first += batch.num_rows
    except (OSError, EOFError, UnicodeDecodeError, struct.error, pa.ArrowException) as error:
        text = (str(error).splitlines() or ["it ends too early"])[0]
        raise BadRequestError(f"{name} is not a whole Arrow stream: {text}") from error


def _batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    schema: pa.Schema | None = None
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "schema" and schema is None:
            schema = pa.ipc.read_schema(message)
            for field in schema:
                _require_plain(field.name, field.type)
        elif message.type == "record batch" and schema is not None:
            if _is_compressed(message.metadata.to_pybytes()):
                raise BadRequestError("an Arrow stream of rows must not be compressed")
            yield pa.ipc.read_record_batch(message, schema)
        else:
            raise BadRequestError(f"an Arrow stream of rows has no place for a {message.type} message")


def _require_plain(column: str, type_: pa.DataType) -> None:
    kinds = pa.types
    refused = (
        kinds.is_dictionary,
        kinds.is_run_end_encoded,
        kinds.is_string_view,
        kinds.is_binary_view,
        kinds.is_list_view,
        kinds.is_large_list_view,
        kinds.is_union,
    )
    if any(is_kind(type_) for is_kind in refused):
        raise BadRequestError(f"the column '{column}' is a '{type_}', which rows of a request can't be: cast it")
    for inner in (type_.field(at) for at in range(type_.num_fields)):
        _require_plain(f"{column}.{inner.name}", inner.type)  # raises for a name that is not a text, too


def _leaves(array: pa.Array) -> int:
    """How many values an array stands for, those of its lists included."""
    if pa.types.is_struct(array.type):
        return len(array) + sum(_leaves(array.field(at)) for at in range(array.type.num_fields))
    nested = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
    if any(is_kind(array.type) for is_kind in nested):
        return len(array) + _leaves(array.values)
    return len(array)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the description of a batch, a flatbuffer, has the member that names a compression."""
    message = struct.unpack_from("<I", metadata)[0]
    header = _member(metadata, message, _HEADER)
    if header is None:
        return False
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _member(metadata, batch, _COMPRESSION) is not None


def _member(data: bytes, table: int, number: int) -> int | None:
    """Where a member of a flatbuffer's table is, if it is there."""
    members = table - struct.unpack_from("<i", data, table)[0]
    at = 4 + 2 * number
    if at >= struct.unpack_from("<H", data, members)[0]:
        return None
    offset = struct.unpack_from("<H", data, members + at)[0]
    return table + offset if offset else None
