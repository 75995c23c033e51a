"""Reads: the point they read at, their requests and results, stored queries, blob cells and exports.

`ReadPoint` is the one description of a state, with the one check. `QueryRows` and `ArrowBatches` present rows alike,
whether they were read in this process or came over HTTP. Arrow is imported when rows are looked at, never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, Self, overload

from msgspec import Meta, Struct, field, structs

from omnigraph.api.commits import shorten
from omnigraph.api.enums import Dates, Integers
from omnigraph.api.values import Columns, count_noun, html_table, is_rendered_as_is, render_column, text_table
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    import pyarrow as pa


class _NamesPoint(Protocol):
    """A request with the four fields of a point among its own."""

    @property
    def branch(self) -> str | None: ...
    @property
    def snapshot(self) -> str | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def at(self) -> datetime | None: ...


class ReadPoint(Struct, frozen=True, omit_defaults=True):
    """The state that a read is of: the head of a branch, one of its versions or moments, or a commit."""

    branch: str | None = None
    snapshot: str | None = None
    version: Annotated[int, Meta(ge=1)] | None = None
    at: datetime | None = None

    @classmethod
    def of(cls, request: _NamesPoint) -> ReadPoint:
        """The point that a request names."""
        return ReadPoint(request.branch, request.snapshot, request.version, request.at)

    def normalize(self) -> ReadPoint:
        """The same point without white space, `main` when it names neither a branch nor a commit. Raises
        `BadRequestError` for a point that names more than one state."""
        if sum(part is not None for part in (self.snapshot, self.version, self.at)) > 1:
            raise BadRequestError("give at most one of snapshot, version and at")
        if self.snapshot is not None:
            if self.branch is not None:
                raise BadRequestError("name a branch or snapshot, not both; a snapshot is a commit id")
            return ReadPoint(snapshot=self.snapshot.strip())
        if self.at is not None and self.at.tzinfo is None:
            raise BadRequestError("the moment to read at needs a time zone")
        branch = "main" if self.branch is None else self.branch.strip()
        if not branch:
            raise BadRequestError("a branch name must not be blank")
        return ReadPoint(branch, None, self.version, self.at)

    @property
    def is_head(self) -> bool:
        """Whether the point moves with its branch."""
        return self.snapshot is None and self.version is None and self.at is None

    @property
    def keywords(self) -> dict[str, Any]:
        """The point as the keywords of a graph's public methods."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @property
    def target(self) -> ReadPoint:
        """What a result says it was read from: the commit, or the branch."""
        point = self.normalize()
        return ReadPoint(point.branch, point.snapshot)


class ReadTargetOutput(Struct, frozen=True):
    """Where rows were read, in a response: the branch, or the commit that the request named."""

    branch: str | None
    snapshot: str | None

    @classmethod
    def of(cls, point: ReadPoint) -> Self:
        return cls(point.branch, point.snapshot)


class QueryRequest(Struct, frozen=True, omit_defaults=True):
    """A read: the source, the name in it, its parameters, the state, and how much it may traverse, if less than the
    server allows."""

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None
    traversal_work: Annotated[int, Meta(ge=0)] | None = None


class LegacyReadRequest(Struct, frozen=True, omit_defaults=True):
    """A read as clients of the first API spell it."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None

    WIRE_NAME: ClassVar[str] = "ReadRequest"

    @property
    def request(self) -> QueryRequest:
        return QueryRequest(
            self.query_source, self.query_name, self.params, self.branch, self.snapshot, self.version, self.at
        )


class ReadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of one query, in order; columns in projection order. The commit is what a precondition can name."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: tuple[str, ...] = ()
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = None


class LegacyReadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As `ReadOutput`, without the commit that was read."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: tuple[str, ...] = ()
    rows: list[dict[str, Any]]


class ReadHeader(Struct, frozen=True):
    """The first line of a read written as JSON lines."""

    kind: Literal["metadata"]
    query_name: str
    target: ReadTargetOutput
    row_count: int

    @classmethod
    def of(cls, output: ReadOutput) -> ReadHeader:
        return cls("metadata", output.query_name, output.target, output.row_count)


class OperatorProfile(Struct, frozen=True):
    """What one operator of a query did. Times and requests include those of its inputs."""

    operator: str
    rows: int
    milliseconds: float
    requests: int
    notes: tuple[str, ...]
    inputs: tuple[OperatorProfile, ...]

    def __repr__(self) -> str:
        return f"<profile of {shorten(self.operator, 60)}: {self._cost()}; lines() shows its operators>"

    def _cost(self) -> str:
        return f"{count_noun(self.rows, 'row')}, {self.milliseconds:.2f} ms, {count_noun(self.requests, 'request')}"

    def lines(self, depth: int = 0) -> Iterator[str]:
        """A readable tree, the last operator first."""
        waiting = [(self, depth)]
        while waiting:
            entry, depth = waiting.pop()
            yield f"{'  ' * depth}{entry.operator}  [{entry._cost()}]"
            for note in entry.notes:
                yield f"{'  ' * depth}    {note}"
            waiting += [(child, depth + 1) for child in reversed(entry.inputs)]


class QueryPlan(Struct, frozen=True):
    """How a read would be run: the lines of an indented tree."""

    plan: tuple[str, ...]

    WIRE_NAME: ClassVar[str] = "QueryPlanOutput"


class ParamDescriptor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column of a result or one parameter of a query."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class DeclaredQuery(Protocol):
    """What the text of a query says of it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def instruction(self) -> str | None: ...
    @property
    def is_mutation(self) -> bool: ...


class StoredQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query that a server offers by name."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: tuple[ParamDescriptor, ...]

    WIRE_NAME: ClassVar[str] = "QueryCatalogEntry"

    @classmethod
    def of(cls, query: DeclaredQuery, parameters: Iterable[Struct]) -> Self:
        """The query under its own name. Its parameters are described by structs with the fields of a descriptor."""
        return cls(
            name=query.name,
            tool_name=query.name,
            description=query.description,
            instruction=query.instruction,
            mutation=query.is_mutation,
            params=tuple(ParamDescriptor(**structs.asdict(parameter)) for parameter in parameters),
        )


def require_kind(name: str, is_mutation: bool, expect_mutation: bool | None) -> None:
    """Refuse a stored query of the other kind than its caller expects."""
    if expect_mutation is not None and expect_mutation != is_mutation:
        kind, verb = ("mutation", "mutate") if is_mutation else ("read", "query")
        raise BadRequestError(f"'{name}' is a {kind} — use omnigraph {verb} {name}")


def require_branch(name: str, is_mutation: bool, point: ReadPoint) -> None:
    """Refuse a stored query as a write that can't be one: of a read, or of a state that is past."""
    if not is_mutation:
        raise BadRequestError(f"'{name}' is a read; only stored mutations have a precondition")
    if point.snapshot is not None or point.version is not None or point.at is not None:
        raise BadRequestError(f"'{name}' is a mutation: it runs on a branch, not on a snapshot")


class StoredQueries(Struct, frozen=True):
    """Sorted by name."""

    queries: tuple[StoredQuery, ...]

    WIRE_NAME: ClassVar[str] = "QueriesCatalogOutput"

    def __repr__(self) -> str:
        lines = [f"  {'mutation' if each.mutation else 'query'} {each.name}" for each in self.queries]
        return "\n".join([f"<{count_noun(len(lines), 'stored query', 'stored queries')}>", *lines])


class InvokeStoredQueryRequest(Struct, frozen=True, omit_defaults=True):
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None
    expect_mutation: bool | None = None


MOST_SHOWN_ROWS: Final = 10
_ROWS_AT_ONCE: Final = 4096
_CELLS_AT_ONCE: Final = 1 << 15
_BYTES_AT_ONCE: Final = 128 << 10


class _Columns:
    """What results and streams know of their query."""

    if TYPE_CHECKING:

        @property
        def query_name(self) -> str: ...
        @property
        def typed_columns(self) -> Columns: ...

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in projection order."""
        return [name for name, _ in self.typed_columns]


class QueryRows(_Columns):
    """The rows of one query, in order.

    Iterating gives a dictionary per row; `result[0]` is one, `result[1:3]` is a list of them. Values are plain Python
    values: dates and times as ISO texts, which `to_arrow`, `to_pandas` and `to_polars` give as real ones.
    """

    if TYPE_CHECKING:

        @property
        def target(self) -> ReadPoint: ...
        @property
        def graph_commit_id(self) -> str: ...
        @property
        def table(self) -> pa.Table: ...

    @property
    def num_rows(self) -> int:
        """How many rows there are; the same as `len(result)`."""
        return len(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return len(self.table) > 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.table.to_batches():
            for part in rendering_parts(batch):
                yield from json_rows(part, self.columns)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        chosen = range(len(self.table))[at]  # raises IndexError as a list does
        if isinstance(chosen, int):
            return json_rows(self.table.slice(chosen, 1), self.columns)[0]
        if chosen.step == 1:
            return json_rows(self.table.slice(chosen.start, len(chosen)), self.columns)
        # Row by row: Arrow gathers no more than 2 GiB of text at once.
        return [json_rows(self.table.slice(row, 1), self.columns)[0] for row in chosen]

    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]:
        """One dictionary per row, keys in projection order; of a repeated name the last value stays."""
        return json_rows(self.table, self.columns, integers)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row; the same as `rows()`."""
        return self.rows()

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Nothing is copied."""
        return self.table

    def to_pandas(self) -> Any:
        """A pandas DataFrame; needs pandas."""
        _package("pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """A Polars DataFrame; needs polars."""
        return _package("polars").from_arrow(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that reads Arrow streams: `polars.DataFrame(result)`, `duckdb.from_arrow(result)`"""
        return self.table.__arrow_c_stream__(requested_schema)

    def to_ipc(self) -> bytes:
        """The Arrow IPC stream of the table."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def read_output(self, integers: Integers = Integers.NATIVE) -> ReadOutput:
        """The answer as HTTP and the CLI give it."""
        return ReadOutput(
            query_name=self.query_name,
            target=ReadTargetOutput.of(self.target),
            row_count=self.num_rows,
            columns=tuple(self.columns),
            rows=self.rows(integers),
            graph_commit_id=self.graph_commit_id or None,
        )

    def __repr__(self) -> str:
        return text_table(self.query_name, *self._preview())

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return html_table(self.query_name, *self._preview())

    def _preview(self) -> tuple[Columns, int, list[list[Any]]]:
        """Names and types of the columns, the number of rows, and the values of as many as are shown."""
        head = self.table.slice(0, MOST_SHOWN_ROWS)
        values = [render_column(head.column(i)) for i in range(len(self.typed_columns))]
        return self.typed_columns, len(self), values


class ArrowBatches(_Columns):
    """What all streams of rows say of themselves."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {type_}" for name, type_ in self.typed_columns)
        return f"<{type(self).__name__} {self.query_name}({columns})>"


def json_rows(
    table: pa.Table | pa.RecordBatch, names: Sequence[str], integers: Integers = Integers.NATIVE
) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain values."""
    plain = all(is_rendered_as_is(field.type, integers) for field in table.schema)
    if plain and len(set(names)) == len(names) and table.schema.names == list(names):
        rows: list[dict[str, Any]] = table.to_pylist()  # in half of the time
        return rows
    columns = [render_column(table.column(i), integers) for i in range(len(names))]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def rendering_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts of which each is rendered in an instant and takes little memory as Python values."""
    rows = min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, batch.num_columns))
    rows = max(1, min(rows, len(batch) * _BYTES_AT_ONCE // max(1, batch.nbytes)))
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _package(name: str) -> ModuleType:
    """A package that results can be converted with, and that OmniGraph itself does not need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BadRequestError(f"this needs {name}, which is not installed: pip install {name}") from None


LONGEST_READ: Final = 4 << 20
"""How many bytes of a value can be asked for at a time."""


class BlobCell(Struct, frozen=True):
    """Which cell: an entity by kind, type and id, and one of its properties."""

    kind: str = field(name="entity")
    type: str
    id: str
    property: str

    WIRE_NAME: ClassVar[str] = "BlobSelector"


class BlobTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a cell was read: what was asked for, and the commit that this meant."""

    branch: str | None = None
    snapshot: str | None = None
    resolved_snapshot: str


class BlobDescription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A managed value has a size and a tag; an external one is a reference that is never opened."""

    selector: BlobCell
    kind: Literal["managed", "external"]
    size: int | None = None
    etag: str | None = None
    uri: str | None = None
    target: BlobTarget

    def not_downloaded(self) -> BadRequestError:
        """Why the bytes of an external value can't be had."""
        return BadRequestError(
            f"external Blob is not downloaded; URI: {self.uri}; see its reference with blob stat --json"
        )


class BlobValue(Protocol):
    """A blob cell that was found: its description, and its bytes when the graph owns them."""

    @property
    def description(self) -> BlobDescription: ...

    def read(self) -> bytes:
        """The whole value."""
        ...

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        ...


class ByteWriter(Protocol):
    """Anything that takes bytes: an open binary file, a socket, a buffer."""

    def write(self, data: bytes, /) -> object: ...


class ExportRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of an export request. A member that is not known is refused, since it might narrow the export."""

    branch: str | None = None
    type_names: tuple[str, ...] | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None
    dates: Dates | None = None


class ExportedFile(Struct, frozen=True):
    """The file that one type was written to."""

    type_key: str
    path: str
    rows: int

    def __repr__(self) -> str:
        return f"<{count_noun(self.rows, 'row')} of {self.type_key} in {self.path}>"
