"""Writes, described once for threads and for asyncio: each is one commit, or nothing.

Each function is a call: it yields requests, is sent their replies, and returns its result. It does no I/O.

Rows of one type on their way to a server: frames as an Arrow stream, dictionaries mostly by line, files as
they are.

Parquet and Arrow files become an Arrow stream here, because a server does not unpack what strangers send. The types
that only save memory (dictionaries, views, runs) become plain ones for the same reason.

Dictionaries on their way to a server: a line of JSON for each, or columns of Arrow where they hold bytes.

JSON has only texts for bytes, which a String would take too. From a column of bytes a server tells, as the engine does
for dictionaries, whether the property takes them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from msgspec.structs import replace

from omnigraph.api.branches import (
    NO_RESOLUTIONS,
    BranchCreated,
    BranchCreateRequest,
    BranchDeleted,
    BranchMergeRequest,
    MergeResult,
    Resolutions,
)
from omnigraph.api.enums import LoadMode
from omnigraph.api.graph import LoadInput
from omnigraph.api.history import required_commit
from omnigraph.api.load import (
    ChangeRequest,
    GivenBatches,
    GivenRecords,
    GraphBatchLoadOutput,
    IngestRequest,
    LoadReceipt,
    MutationReceipt,
    Spooled,
    column_file,
    column_format,
    compression_of,
    directory_error,
    given_rows,
    local_pieces,
    open_file_name,
    plain_array,
    plain_type,
)
from omnigraph.api.queries import InvokeStoredQueryRequest, ReadPoint
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest
from omnigraph.api.service import http as api_parameters
from omnigraph.api.service.routes import IF_COMMIT_HEADER, Media
from omnigraph.api.values import json_problem, plain_parameters, plain_value
from omnigraph.client.connection import MAIN, Remote, Request, Steps, Upload, branch_of, require_json, target_of
from omnigraph.client.reads import ROWS, read
from omnigraph.client.rows import JsonRows, RemoteRows, holds_rows, received_rows
from omnigraph.errors import BadRequestError, ConstraintError, ConstraintRule, DirectAccessError

if TYPE_CHECKING:
    import pyarrow as pa


_BYTES: Final = (bytes, bytearray, memoryview)
_PEEKED_ROWS: Final = 1024
_BLOCK_ROWS: Final = 1024
_BLOCK_BYTES: Final = 4 << 20
_ONE_TYPE: Final = "rows that hold bytes need values of one type in every column; give them as an Arrow table"

Row = dict[str, Any]


def sent_records(given: GivenRecords) -> GivenBatches | GivenRecords:
    """The rows as columns if they hold bytes, else as they are. An iterator is asked for its first rows only."""
    if not given.once:
        return _columns(lambda: _checked(given.rows)) if any(map(_holds_bytes, given.rows)) else given
    rest, first = iter(given.rows), list[object]()
    for row in islice(rest, _PEEKED_ROWS):
        first.append(row)
        if _holds_bytes(row):
            return _columns(Spooled(_checked(chain(first, rest))).__iter__)
    return GivenRecords(chain(first, rest), once=True)


def _holds_bytes(row: object) -> bool:
    return isinstance(row, Mapping) and any(map(_is_or_holds_bytes, row.values()))


def _is_or_holds_bytes(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(issubclass(kind, _BYTES) for kind in set(map(type, value)))
    return isinstance(value, _BYTES)


def _plain_row(number: int, row: object) -> Row:
    if not isinstance(row, Mapping) or any(not isinstance(name, str) for name in row):
        raise _refused(number, None, "a row must be a dictionary whose keys are texts")
    plain: Row = {}
    for name, value in row.items():
        try:
            plain[name] = plain_value(value)
        except BadRequestError as error:
            raise _refused(number, name, str(error)) from None
    return plain


def _refused(number: int, name: str | None, reason: str) -> ConstraintError:
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
        return _refused(number, None, "it holds bytes and the rows before it do not; give a list, or an Arrow table")
    for name, value in plain.items():
        if (problem := json_problem(value)) is not None:
            return _refused(number, name, problem)
    return _refused(number, None, str(error))


# Columns


def _columns(read: Callable[[], Iterable[Any]]) -> GivenBatches:
    """Rows as batches. They are read twice, because a stream begins with the types of its columns."""
    import pyarrow as pa

    schema = pa.schema([])
    with_bytes, with_texts = set[str](), set[str]()
    for first, block in _blocks(read()):
        names = dict.fromkeys(name for row in block for name in row)
        found = pa.schema([pa.field(name, _array(first, name, block).type) for name in names])
        try:
            schema = pa.unify_schemas([schema, found], promote_options="permissive")
        except pa.ArrowException as error:
            raise BadRequestError(f"row {first} and those after it: {error}; {_ONE_TYPE}") from None
        with_bytes |= _names_of(bytes, block)
        with_texts |= _names_of(str, block)
    mixed = with_bytes & with_texts
    cell = pa.struct([("data", pa.large_binary()), ("uri", pa.large_string())])
    typed = pa.schema([pa.field(field.name, cell if field.name in mixed else field.type) for field in schema])

    def batches() -> Iterator[pa.RecordBatch]:
        for first, block in _blocks(read()):
            cells = [{**row, **{name: _cell(row.get(name)) for name in mixed}} for row in block] if mixed else block
            columns = [_array(first, field.name, cells, field.type) for field in typed]
            yield pa.record_batch(columns, schema=typed)

    return GivenBatches(typed, batches)


def _checked(rows: Iterable[object]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        plain = _plain_row(number, row)
        for name, value in plain.items():
            if not _is_or_holds_bytes(value) and (problem := json_problem(value)) is not None:
                raise _refused(number, name, problem)
        yield plain


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


def _names_of(kind: type, block: list[Row]) -> set[str]:
    return {name for row in block for name, value in row.items() if isinstance(value, kind)}


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


class RowUpload(Upload):
    """A body of rows. `parameters` say how it is written, as far as its media type does not."""

    def __init__(
        self, pieces: Callable[[], Iterator[bytes]], media: Media, *, once: bool = False, **parameters: Any
    ) -> None:
        self._pieces = pieces
        self._once = once
        self._opened = False
        self.media = media
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    @property
    def can_be_sent(self) -> bool:
        return not (self._once and self._opened)

    def pieces(self) -> Iterator[bytes]:
        self._opened = True
        return self._pieces()


def row_upload(data: Any, format: str | None, csv: Any) -> RowUpload:
    """What a caller gave as rows of one type. The server finds out what a file is that holds no columns."""
    if isinstance(data, str | os.PathLike):
        return _file(os.fspath(data), format, csv)
    if hasattr(data, "read") and not isinstance(data, Mapping):
        return _open_file(data, format, csv)
    if format is not None or csv is not None:
        raise BadRequestError("format and csv say how a file is written; this input is not a file")
    given = given_rows(data)
    sent = sent_records(given) if isinstance(given, GivenRecords) else given
    if isinstance(sent, GivenRecords):
        return RowUpload(lambda: lines(sent.rows), Media.NDJSON, once=sent.once)
    return RowUpload(lambda: _arrow_stream(sent), Media.ARROW, once=sent.once)


def _file(text: str, format: str | None, csv: Any) -> RowUpload:
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    if "://" in path:
        raise DirectAccessError(f"loading from '{path}'")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise directory_error(text)
    if (columns := column_format(path, format)) is not None:
        return RowUpload(lambda: _column_stream(_columns_at(path), columns, text), Media.ARROW, file=text)
    # A compressed file is unpacked here, because a server does not unpack what strangers send.
    return RowUpload(lambda: local_pieces(path), Media.BYTES, file=text, format=format, **_dialect(csv))


def _open_file(file: Any, format: str | None, csv: Any) -> RowUpload:
    """A file that the caller opened, stdin for one: it is read once."""
    shown = open_file_name(file, format)
    if (columns := column_format(shown, format)) is not None:
        return RowUpload(lambda: _column_stream(file, columns, shown), Media.ARROW, once=True, file=shown)

    def pieces() -> Iterator[bytes]:
        for piece in iter(lambda: file.read(_PIECE_BYTES), b""):
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece

    return RowUpload(pieces, Media.BYTES, once=True, file=shown, format=format, **_dialect(csv))


def _dialect(csv: Any) -> dict[str, Any]:
    """A `CsvDialect` as parameters: an empty quote stands for none."""
    if csv is None:
        return {}
    said = {name: getattr(csv, name) for name in ("delimiter", "header", "encoding", "null")}
    return {**said, "quote": "" if csv.quote is None else csv.quote}


# Arrow


def _arrow_stream(given: GivenBatches) -> Iterator[bytes]:
    import pyarrow as pa

    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in given.schema])
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in given.read():
            try:
                plain = pa.record_batch(list(map(plain_array, batch.columns)), schema)
            except pa.ArrowException as error:
                raise BadRequestError(f"can't send these rows: {str(error).splitlines()[0]}; cast them") from error
            writer.write_batch(plain)
            yield from sink.taken()
    yield from sink.taken()


def _columns_at(path: str) -> Any:
    """A file that can be read at any place: one that is compressed only when it is unpacked."""
    import pyarrow as pa

    return path if compression_of(path) is None else pa.BufferReader(b"".join(local_pieces(path)))


def _column_stream(source: Any, format: str, name: str) -> Iterator[bytes]:
    with column_file(source, format, name) as given:
        yield from _arrow_stream(given)


class _Sink:
    """Keeps what is written to it until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Nothing is held back."""

    def taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces


def mutate(
    remote: Remote,
    /,
    source: Any,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    if_commit: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
    **parameters: Any,
) -> Steps[MutationReceipt]:
    """Run a mutation as one commit, only if the branch head is `if_commit` when that is given.

    The write carries an idempotency key, one of its own when none is given, so a lost answer is asked for again.
    """
    options = {"branch": branch, "if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
    asked = remote._bound(source, name, params, parameters, options)
    plain = None if asked.params is None else dict(asked.params)
    target = branch_of(branch)
    if if_commit is None:
        # The first spelling of a mutation, which servers of all versions take.
        body = ChangeRequest(params=plain, branch=target, query_source=asked.source, query_name=asked.name)
        request = remote._request("change", body=body)
    else:
        body = ChangeRequest(asked.source, asked.name, plain, target)
        request = _conditional(remote._request("mutate_if_graph_commit", body=body), if_commit)
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._wrote(target, reply)
    return reply.decoded(MutationReceipt)


def _conditional(request: Request, if_commit: str) -> Request:
    return request.with_headers({IF_COMMIT_HEADER: required_commit(if_commit, "if_commit")})


def load(
    remote: Remote,
    /,
    data: Any,
    *,
    mode: str,
    type: str | None = None,
    branch: str = MAIN,
    base: str | None = None,
    format: str | None = None,
    csv: Any = None,
    embed: bool = False,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[LoadReceipt]:
    """Load data as one commit, all or nothing; what it takes is what `Graph.load` takes.

    With `type`, the data are rows of that type: a frame, an Arrow table or reader, dictionaries, or the path of a local
    csv, parquet, arrow or ndjson file. Without it they are graph records: text, bytes, pieces of them, or a `Path`.
    Both are sent as they are read: memory stays bounded. An iterator can be read only once, so a load from one is not
    repeated when its answer is lost. `embed` has the server compute every missing vector whose `@embed` source has a
    text.
    """
    target = branch_of(branch)
    said: dict[str, Any] = {"branch": target, "base": base, "mode": _mode(mode), "embed": embed or None}
    content: Upload
    if type is not None:
        content = rows = row_upload(data, format, csv)
        request = remote._request("loadRows", api_parameters.RowsParameters(type=type, **said, **rows.parameters))
    elif format is not None or csv is not None:
        raise BadRequestError("format and csv are for rows of one type: name it with type=")
    else:
        content, request = Upload(data), remote._request("loadNdjson", api_parameters.LoadParameters(**said))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key, content=content)
    remote._wrote(target, reply)
    told = reply.decoded(GraphBatchLoadOutput)
    return LoadReceipt(**{each: getattr(told, each) for each in GraphBatchLoadOutput.__struct_fields__})


def load_lenient(
    remote: Remote,
    /,
    data: LoadInput,
    *,
    mode: str,
    branch: str = MAIN,
    base: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[LoadReceipt]:
    """As `load`, in the lenient grammar that old exports need: a value of a wrong type becomes null, and members that
    the type does not have are left out. The receipt counts both (`values_nulled`, `values_dropped`). The records travel
    in one piece.
    """
    target = branch_of(branch)
    try:
        text = b"".join(Upload(data).pieces()).decode()
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the records are not UTF-8 text (byte {error.start})") from None
    request = remote._request("ingest", body=IngestRequest(text, target, base, _mode(mode)))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._wrote(target, reply)
    return replace(reply.decoded(LoadReceipt), uri=None)


def _mode(text: str) -> LoadMode:
    try:
        return LoadMode(text)
    except ValueError:
        raise BadRequestError(f"unknown load mode '{text}'; use one of: {', '.join(LoadMode)}") from None


def invoke(
    remote: Remote,
    /,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
    at: datetime | None = None,
    if_commit: str | None = None,
    expect_mutation: bool | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[RemoteRows | JsonRows | MutationReceipt]:
    """Run a stored query: rows of a read, or the receipt of a mutation.

    `expect_mutation` refuses a query of the other kind. A mutation carries an idempotency key and is repeated when
    its answer is lost.
    """
    point = ReadPoint(branch, snapshot, version, at)
    plain = None if params is None else plain_parameters(params)
    require_json(plain or {})
    body = InvokeStoredQueryRequest(plain, branch, snapshot, version, at, expect_mutation)
    if if_commit is None:
        request = remote._reading(remote._request("invoke_query", body=body, name=name), point)
    else:
        request = _conditional(remote._request("invoke_query_if_graph_commit", body=body, name=name), if_commit)
    request = remote._writing(request, actor=actor, key=idempotency_key).with_headers(ROWS)
    # Of a query that can only read nothing stays open when its answer is lost.
    reply = yield from read(remote, dataclasses.replace(request, writes=expect_mutation is not False), point)
    if holds_rows(reply):
        return received_rows(reply, target_of(point))
    remote._wrote(branch_of(branch), reply)
    return reply.decoded(MutationReceipt)


def create_branch(
    remote: Remote,
    /,
    name: str,
    *,
    source: str | None = None,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[BranchCreated]:
    """A branch from another branch's head, or from any commit that a live branch still has."""
    request = remote._request("createBranch", body=BranchCreateRequest(name, source))
    reply = yield remote._writing(request, actor=actor, key=idempotency_key)
    remote._forget(branch_of(name))
    return replace(reply.decoded(BranchCreated), uri=remote.uri)


def delete_branch(
    remote: Remote, /, name: str, *, actor: str | None = None, idempotency_key: str | None = None
) -> Steps[BranchDeleted]:
    """Delete a branch. Commits that another branch has stay."""
    reply = yield remote._writing(remote._request("deleteBranch", branch=name), actor=actor, key=idempotency_key)
    remote._forget(branch_of(name))
    return replace(reply.decoded(BranchDeleted), uri=remote.uri)


def merge(
    remote: Remote,
    /,
    source: str,
    target: str = MAIN,
    *,
    delete_branch: bool = False,
    resolutions: Resolutions = NO_RESOLUTIONS,
    actor: str | None = None,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[MergeResult]:
    """Merge a branch into another as one commit, or raise every conflict at once with nothing changed."""
    body = BranchMergeRequest(source, target, delete_branch, settled(resolutions), message)
    reply = yield remote._writing(remote._request("mergeBranches", body=body), actor=actor, key=idempotency_key)
    remote._wrote(branch_of(target), reply)
    result = reply.decoded(MergeResult)
    if result.branch_deleted:
        remote._forget(branch_of(source))
    return result


def settled(resolutions: Resolutions) -> Resolutions | None:
    return None if resolutions == NO_RESOLUTIONS else resolutions


def apply_schema(
    remote: Remote,
    /,
    text: str,
    *,
    branch: str = MAIN,
    allow_data_loss: bool = False,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Steps[SchemaApplied]:
    """Change the schema of a branch in one commit, together with the data change it needs.

    A server that serves a cluster refuses it: there the schema is changed by `omnigraph cluster apply`.
    """
    body = SchemaApplyRequest(text, allow_data_loss, None if branch_of(branch) == MAIN else branch)
    reply = yield remote._writing(remote._request("applySchema", body=body), actor=actor, key=idempotency_key)
    remote._wrote(branch_of(branch), reply)
    return replace(reply.decoded(SchemaApplied), uri=remote.uri)
