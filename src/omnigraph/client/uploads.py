"""Rows of one type on their way to a server: frames as an Arrow stream, dictionaries by line, files as they are.

`operations` calls it for `load` with a type. Parquet and Arrow files become a plain Arrow stream here, because a server
does not unpack input of strangers. Dictionaries with bytes are sent as columns: JSON would turn the bytes into texts,
and the server could not tell whether the property takes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from omnigraph.api import load
from omnigraph.api.service.routes import Media
from omnigraph.api.values import json_problem, plain_value
from omnigraph.client.connection import Upload
from omnigraph.errors import BadRequestError, ConstraintError, ConstraintRule, DirectAccessError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES: Final = (bytes, bytearray, memoryview)
_PEEKED_ROWS: Final = 1024
_BLOCK_ROWS: Final = 1024
_BLOCK_BYTES: Final = 4 << 20
_ONE_TYPE: Final = "rows that hold bytes need values of one type in every column; give them as an Arrow table"

Row = dict[str, Any]


def sent_records(records: load.GivenRecords, *, partial: bool = False) -> load.GivenBatches | load.GivenRecords:
    """The rows as columns if they hold bytes, else as they are. An iterator is asked for its first rows only. A column
    has a value, or a null, for every row, so `partial` rows that go as columns need the same members."""
    check = _check_partial_rows if partial else _check_rows
    if not records.once:
        return _columns(lambda: check(records.rows)) if any(map(_holds_bytes, records.rows)) else records
    rest, first = iter(records.rows), list[object]()
    for row in islice(rest, _PEEKED_ROWS):
        first.append(row)
        if _holds_bytes(row):
            return _columns(load.Spooled(check(chain(first, rest))).__iter__)
    return load.GivenRecords(chain(first, rest), once=True)


def _holds_bytes(row: object) -> bool:
    return isinstance(row, Mapping) and any(map(_is_or_holds_bytes, row.values()))


def _is_or_holds_bytes(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(issubclass(kind, _BYTES) for kind in set(map(type, value)))
    return isinstance(value, _BYTES)


def _plain_row(number: int, row: object) -> Row:
    if not isinstance(row, Mapping) or any(not isinstance(name, str) for name in row):
        raise _refusal(number, None, "a row must be a dictionary whose keys are texts")
    plain: Row = {}
    for name, value in row.items():
        try:
            plain[name] = plain_value(value)
        except BadRequestError as error:
            raise _refusal(number, name, str(error)) from None
    return plain


def _refusal(number: int, name: str | None, reason: str) -> ConstraintError:
    rule = ConstraintRule.RECORD if name is None else ConstraintRule.TYPE
    where = f"row {number}: " if name is None else f"row {number}: property '{name}': "
    return ConstraintError(rule, None, name, None, number, message=where + reason)


# Lines


def lines(rows: Iterable[object]) -> Iterator[bytes]:
    """Each row as a line of JSON."""
    for number, row in enumerate(rows, 1):
        plain = _plain_row(number, row)
        try:
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise _unsendable(number, plain, error) from None
        yield text.encode(errors="surrogatepass") + b"\n"


def _unsendable(number: int, plain: Row, error: Exception) -> ConstraintError:
    if _holds_bytes(plain):
        return _refusal(number, None, "it holds bytes and the rows before it do not; give a list, or an Arrow table")
    for name, value in plain.items():
        if (problem := json_problem(value)) is not None:
            return _refusal(number, name, problem)
    return _refusal(number, None, str(error))


# Columns


def _columns(read: Callable[[], Iterable[Any]]) -> load.GivenBatches:
    """Rows as batches. They are read twice, because a stream begins with the types of its columns. What a row lacks is
    told beside them: it may have a default, and null would not."""
    import pyarrow as pa

    schema, rows, members = pa.schema([]), 0, 0
    with_bytes, with_texts = set[str](), set[str]()
    for first, block in _blocks(read()):
        names = dict.fromkeys(name for row in block for name in row)
        block_schema = pa.schema([pa.field(name, _array(first, name, block).type) for name in names])
        try:
            schema = pa.unify_schemas([schema, block_schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise BadRequestError(f"row {first} and those after it: {error}; {_ONE_TYPE}") from None
        rows, members = rows + len(block), members + sum(map(len, block))
        for row in block:
            with_bytes |= {name for name, value in row.items() if isinstance(value, bytes)}
            with_texts |= {name for name, value in row.items() if isinstance(value, str)}
    mixed = with_bytes & with_texts
    cell = pa.struct([("data", pa.large_binary()), ("uri", pa.large_string())])
    fields = [pa.field(field.name, cell if field.name in mixed else field.type) for field in schema]
    absent = [pa.field(load.ABSENT_COLUMN, pa.list_(pa.string()))] if members < rows * len(fields) else []
    typed = pa.schema([*fields, *absent])

    def batches() -> Iterator[pa.RecordBatch]:
        for first, block in _blocks(read()):
            cells = [{**row, **{name: _cell(row.get(name)) for name in mixed}} for row in block] if mixed else block
            columns = [_array(first, field.name, cells, field.type) for field in fields]
            lacking = ([name for name in schema.names if name not in row] for row in block)
            columns += [pa.array(list(lacking), field.type) for field in absent]
            yield pa.record_batch(columns, schema=typed)

    return load.GivenBatches(typed, batches)


def _check_rows(rows: Iterable[object]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        plain = _plain_row(number, row)
        for name, value in plain.items():
            if not _is_or_holds_bytes(value) and (problem := json_problem(value)) is not None:
                raise _refusal(number, name, problem)
        yield plain


def _check_partial_rows(rows: Iterable[object]) -> Iterator[Row]:
    names: set[str] | None = None
    for number, row in enumerate(_check_rows(rows), 1):
        names = set(row) if names is None else names
        if other := sorted(names ^ row.keys()):
            reason = f"rows that hold bytes have the same members in an update; '{other[0]}' is not in every row"
            raise _refusal(number, None, f"{reason}: load the others apart")
        yield row


def _blocks(rows: Iterable[Any]) -> Iterator[tuple[int, list[Row]]]:
    """Rows of a bounded size together, with the number of the first."""
    block, size, first = list[Row](), 0, 1
    for row in rows:
        block.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if len(block) == _BLOCK_ROWS or size >= _BLOCK_BYTES:
            yield first, block
            first, block, size = first + len(block), [], 0
    if block:
        yield first, block


def _array(first: int, name: str, block: list[Row], type_: pa.DataType | None = None) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array([row.get(name) for row in block], type_)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        where = f"rows {first} to {first + len(block) - 1}: property '{name}': "
        raise BadRequestError(f"{where}{str(error).splitlines()[0]}; {_ONE_TYPE}") from None


def _cell(value: object) -> dict[str, object] | None:
    """A blob of a column that holds references too, as our own files have it."""
    if value is None:
        return None
    return {"data": value, "uri": None} if isinstance(value, bytes) else {"data": None, "uri": value}


_PIECE_BYTES: Final = 256 << 10
_KEPT: Final = (str, bytes, bytearray, memoryview, os.PathLike, list, tuple)


def record_upload(data: str | bytes | os.PathLike[str] | Iterable[str | bytes]) -> Upload:
    """Graph records. Texts, bytes and files can be sent again, an iterator only once."""
    load.require_records(data)

    def pieces() -> Iterator[bytes]:
        if isinstance(data, str | bytes | bytearray | memoryview):
            whole = load.encode_piece(data)
            yield from (whole[at : at + _PIECE_BYTES] for at in range(0, len(whole), _PIECE_BYTES))
        elif isinstance(data, os.PathLike):
            yield from load.file_pieces(data, _PIECE_BYTES)
        else:
            yield from map(load.encode_piece, data)

    return Upload(pieces, once=not isinstance(data, _KEPT))


def row_upload(data: Any, format: str | None, csv: Any, *, partial: bool = False) -> Upload:
    """Rows of one type, `partial` ones of an update. The server finds out how a file without columns is written."""
    if isinstance(data, str | os.PathLike):
        return _file(os.fspath(data), format, csv)
    if hasattr(data, "read") and not isinstance(data, Mapping):
        return _open_file(data, format, csv)
    if format is not None or csv is not None:
        raise BadRequestError("format and csv say how a file is written; this input is not a file")
    rows = load.given_rows(data)
    sent = sent_records(rows, partial=partial) if isinstance(rows, load.GivenRecords) else rows
    if isinstance(sent, load.GivenRecords):
        return Upload(lambda: lines(sent.rows), Media.NDJSON, once=sent.once)
    return Upload(lambda: _arrow_stream(sent), Media.ARROW, once=sent.once)


def _file(text: str, format: str | None, csv: Any) -> Upload:
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    if "://" in path:
        raise DirectAccessError(f"loading from '{path}'")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise load.directory_error(text)
    # A compressed file is unpacked here, because a server does not unpack what strangers send.
    if (columns := load.column_format(path, format)) is not None:
        return Upload(lambda: _column_stream(path, columns, text), Media.ARROW, file=text)
    return Upload(lambda: load.local_pieces(path), Media.BYTES, file=text, format=format, **_dialect(csv))


def _open_file(file: Any, format: str | None, csv: Any) -> Upload:
    """A file that the caller opened, stdin for one: it is read once."""
    shown = load.open_file_name(file, format)
    if (columns := load.column_format(shown, format)) is not None:
        return Upload(lambda: _column_stream(file, columns, shown), Media.ARROW, once=True, file=shown)

    def pieces() -> Iterator[bytes]:
        while piece := file.read(_PIECE_BYTES):
            yield piece.encode() if isinstance(piece, str) else piece

    return Upload(pieces, Media.BYTES, once=True, file=shown, format=format, **_dialect(csv))


def _dialect(csv: Any) -> dict[str, Any]:
    """A `CsvDialect` as parameters: an empty quote stands for none."""
    if csv is None:
        return {}
    said = {name: getattr(csv, name) for name in ("delimiter", "header", "encoding", "null")}
    return {**said, "quote": "" if csv.quote is None else csv.quote}


# Arrow


def _arrow_stream(batches: load.GivenBatches) -> Iterator[bytes]:
    import pyarrow as pa

    schema = pa.schema([pa.field(field.name, load.plain_type(field.type)) for field in batches.schema])
    sink = BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches.read():
            try:
                plain = pa.record_batch(list(map(load.plain_array, batch.columns)), schema)
            except pa.ArrowException as error:
                raise BadRequestError(f"can't send these rows: {str(error).splitlines()[0]}; cast them") from error
            writer.write_batch(plain)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _column_stream(source: Any, format: str, name: str) -> Iterator[bytes]:
    """A file of columns as an Arrow stream. It is read at any position, a compressed one only when it is unpacked."""
    import pyarrow as pa

    if isinstance(source, str) and load.compression_of(source) is not None:
        source = pa.BufferReader(b"".join(load.local_pieces(source)))
    with load.column_file(source, format, name) as batches:
        yield from _arrow_stream(batches)
