"""Loads and mutations: requests, receipts, and the inputs that Python programs give.

The engine loads inputs and the client sends them to a server; both use this module to find out what an input is: frames
and Arrow streams as batches, dictionaries, graph records, or files, decompressed by the ending of their names. pandas,
Polars and Arrow are never imported before a caller has given an object of theirs.
"""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct, field

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import Grammar, LoadMode, MergeOutcome
from omnigraph.api.values import count_noun
from omnigraph.errors import BadRequestError, NotFoundError, RequestShapeError

if TYPE_CHECKING:
    import pyarrow as pa


class TypeLoaded(Struct, frozen=True, omit_defaults=True):
    """How many records of one declared type a load took, and what they did.

    A record is `inserted`, `updated`, or `unchanged` where its entity had these values already; of records that a later
    one of the same id replaced, only that one counts. `deleted` are entities that an overwrite removed. All four are
    None in the receipt of an older version. `nulled` names the properties that existing entities lost in a merge,
    because their records left them out.
    """

    name: str
    entities_loaded: int
    inserted: int | None = None
    updated: int | None = None
    unchanged: int | None = None
    deleted: int | None = None
    nulled: tuple[str, ...] = ()

    WIRE_NAME: ClassVar[str] = "GraphBatchDeclarationOutput"


class LoadReceipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A load that ran. Counts are input records per declared type, sorted by name. `uri` is set on request.

    `inserted`, `updated`, `unchanged` and `deleted` are the sums over all types; see `TypeLoaded`. `commit` is None
    where there was nothing to load, or where nothing changed.

    `values_nulled` and `values_dropped` are there in the lenient grammar only: values of a wrong type that became null,
    and members that were left out because the type does not have them or a later one of the same name replaced them.
    """

    uri: str | None = None
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    inserted: int | None = None
    updated: int | None = None
    unchanged: int | None = None
    deleted: int | None = None
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False
    values_nulled: int | None = None
    values_dropped: int | None = None

    WIRE_NAME: ClassVar[str] = "IngestOutput"

    def __repr__(self) -> str:
        types = ", ".join(f"{each.entities_loaded:,} {each.name}" for each in (*self.nodes, *self.edges))
        made = f" (new, from '{self.base_branch}')" if self.branch_created else ""
        commit = "" if self.commit is None else f", commit {self.commit.id}"
        loaded = f"loaded {types or 'nothing'} into '{self.branch}'{made} by {self.mode.value}"
        done = f": {', '.join(self.changes)}" if self.changes else ""
        return f"<{loaded}{done}{commit}{', replayed' if self.replayed else ''}>"

    @classmethod
    def of(
        cls,
        branch: str,
        base_branch: str | None,
        branch_created: bool,
        mode: LoadMode,
        nodes: Sequence[TypeLoaded],
        edges: Sequence[TypeLoaded],
        commit: CommitReceipt | None,
        replayed: bool = False,
        values_nulled: int | None = None,
        values_dropped: int | None = None,
        actor_id: str | None = None,
    ) -> LoadReceipt:
        """`actor_id` is for a load without a commit; otherwise the commit tells it."""
        types = (*nodes, *edges)
        return cls(
            branch=branch,
            base_branch=base_branch,
            branch_created=branch_created,
            mode=mode,
            nodes=tuple(sorted(nodes, key=lambda each: each.name)),
            edges=tuple(sorted(edges, key=lambda each: each.name)),
            total_entities=sum(each.entities_loaded for each in types),
            inserted=_total([each.inserted for each in types]),
            updated=_total([each.updated for each in types]),
            unchanged=_total([each.unchanged for each in types]),
            deleted=_total([each.deleted for each in types]),
            actor_id=actor_id if commit is None else commit.actor_id,
            commit=commit,
            replayed=replayed,
            values_nulled=values_nulled,
            values_dropped=values_dropped,
        )

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """How many records of each node type were loaded."""
        return {each.name: each.entities_loaded for each in self.nodes}

    @property
    def edges_loaded(self) -> dict[str, int]:
        """How many records of each edge type were loaded."""
        return {each.name: each.entities_loaded for each in self.edges}

    @property
    def nulled(self) -> tuple[str, ...]:
        """The properties, as `Type.property`, that existing entities lost because their records left them out."""
        return tuple(f"{each.name}.{name}" for each in (*self.nodes, *self.edges) for name in each.nulled)

    @property
    def changes(self) -> list[str]:
        """What the records did, each as a number and a word; nothing in the receipt of an older version."""
        if self.inserted is None:
            return []
        deleted = [f"{self.deleted:,} deleted"] if self.deleted else []
        return [
            f"{self.inserted:,} inserted",
            f"{self.updated or 0:,} updated",
            f"{self.unchanged or 0:,} unchanged",
            *deleted,
        ]


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum of some counts; None when one is not known."""
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if len(numbers) == len(counts) else None


class LoadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `omnigraph load` prints."""

    uri: str
    branch: str
    mode: LoadMode
    base_branch: str | None = None
    branch_created: bool
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    inserted: int | None = None
    updated: int | None = None
    unchanged: int | None = None
    deleted: int | None = None
    commit: CommitReceipt | None

    @classmethod
    def of(cls, uri: str, receipt: LoadReceipt) -> LoadOutput:
        return cls(**{**{name: getattr(receipt, name) for name in cls.__struct_fields__}, "uri": uri})


class IngestRequest(Struct, frozen=True, omit_defaults=True):
    """A whole load as one JSON body; `data` holds the records as text.

    The grammar of `/load` is strict where it is not named, that of the deprecated `/ingest` lenient.
    """

    data: str
    branch: str | None = None
    base: str | None = field(default=None, name="from")
    mode: LoadMode | None = LoadMode.MERGE
    grammar: Grammar | None = None


class GraphBatchLoadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As `LoadReceipt`, without the location of the graph."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    inserted: int | None = None
    updated: int | None = None
    unchanged: int | None = None
    deleted: int | None = None
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False


class ChangeRequest(Struct, frozen=True, omit_defaults=True):
    """A mutation: the source, the name in it, its parameters and the branch.

    `query_source` and `query_name` are what the first API called the source and the name.
    """

    query: str | None = None
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    query_source: str | None = None
    query_name: str | None = None

    @property
    def source(self) -> str:
        if self.query is not None and self.query_source is not None:
            raise RequestShapeError("give the mutation as 'query' or as 'query_source', not both")
        source = self.query if self.query is not None else self.query_source
        if source is None:
            raise RequestShapeError("not a valid ChangeRequest: Object missing required field `query`")
        return source

    @property
    def chosen_name(self) -> str | None:
        return self.name if self.name is not None else self.query_name


class BranchOutcome(Struct, frozen=True, omit_defaults=True):
    """What a `branch` statement did. `merge` is how a merge ended."""

    kind: Literal["created", "deleted", "merged"]
    merge: MergeOutcome | None = None

    WIRE_NAME: ClassVar[str] = "BranchOutcomeOutput"


class MutationReceipt(Struct, frozen=True, omit_defaults=True):
    """A mutation that ran. `commit` is None when no statement matched anything.

    `replayed` says that an earlier request with the same idempotency key wrote it, and this one nothing. Only a
    `branch` statement has an `outcome`; `branch` is then the one that was created, deleted or merged into.
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False
    outcome: BranchOutcome | None = None

    WIRE_NAME: ClassVar[str] = "ChangeOutput"

    def __repr__(self) -> str:
        if self.outcome is not None:
            made = "" if self.commit is None else f", commit {self.commit.id}"
            how = "" if self.outcome.merge is None else f": {self.outcome.merge.value}"
            return f"<{self.query_name} '{self.branch}'{how}{made}{', replayed' if self.replayed else ''}>"
        changed = f"{count_noun(self.affected_nodes, 'node')}, {count_noun(self.affected_edges, 'edge')}"
        done = "nothing to change" if self.commit is None else f"changed {changed}, commit {self.commit.id}"
        again = ", replayed" if self.replayed else ""
        return f"<{self.query_name} on '{self.branch}': {done}{again}>"


_DICTIONARIES: Final = "dictionaries are rows of one type: name it with type="


def require_records(data: Any) -> None:
    """Refuse what holds no graph records. A dictionary is a row of something, and only a type says of what."""
    if isinstance(data, str) and "\n" not in data and not data.lstrip().startswith("{") and data.strip():
        raise BadRequestError(
            f"'{data}' is not a graph record; if it is the path of a file of rows, name their type with type=; "
            "if it is a file of graph records, give a Path"
        )
    if not isinstance(data, str | bytes) and (hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_arrow")):
        raise BadRequestError("a frame holds rows of one type: name it with type=")
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        raise BadRequestError(_DICTIONARIES)
    if isinstance(data, Mapping) or not isinstance(data, str | bytes | os.PathLike | Iterable):
        raise BadRequestError(f"can't load graph records from '{type(data).__name__}'; give text, bytes or a path")


def encode_piece(piece: Any) -> bytes:
    """A piece of the records as bytes."""
    if isinstance(piece, Mapping):
        raise BadRequestError(_DICTIONARIES)
    if not isinstance(piece, str | bytes | bytearray | memoryview):
        raise BadRequestError(f"can't load graph records from '{type(piece).__name__}'; give text, bytes or a path")
    try:
        return piece.encode() if isinstance(piece, str) else bytes(piece)
    except UnicodeEncodeError as error:
        raise BadRequestError(f"the input is not valid Unicode: {error.reason}") from None


def file_pieces(path: str | os.PathLike[str], piece_bytes: int) -> Iterator[bytes]:
    """The content of a local file as it is."""
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(piece_bytes), b"")
    except (OSError, ValueError) as error:
        raise BadRequestError(f"can't read '{os.fspath(path)}': {getattr(error, 'strerror', None) or error}") from None


RECORDS_PER_BLOCK: Final = 8192
_IN_MEMORY: Final = 64 << 20


def scratch_file() -> IO[bytes]:
    """A file without a name, deleted when it is closed."""
    import tempfile

    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


class Spooled:
    """Rows of an iterator, which are gone once read: they are copied, on disk when there are many."""

    def __init__(self, rows: Iterable[object]) -> None:
        self._rest = iter(rows)
        self._copy = scratch_file()
        self._complete = False

    def __iter__(self) -> Iterator[object]:
        import pickle

        if self._complete:
            self._copy.seek(0)
            with suppress(EOFError):
                while True:
                    yield from pickle.load(self._copy)
            return
        while block := list(islice(self._rest, RECORDS_PER_BLOCK)):
            try:
                pickle.dump(block, self._copy, pickle.HIGHEST_PROTOCOL)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise BadRequestError(
                    f"a row holds something that is not a value: {error}; give a list of dictionaries"
                ) from None
            yield from block
        self._complete = True


class SpooledBatches:
    """Batches of a stream, which are gone once read: they are kept, and copied to disk when there are many."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._schema = schema
        self._rest = iter(batches)
        self._kept: list[pa.RecordBatch] = []
        self._copy = scratch_file()
        self._complete = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if not self._complete:
            with pa.ipc.new_stream(self._copy, self._schema) as writer:
                kept_bytes = 0
                for batch in self._rest:
                    kept_bytes += batch.nbytes
                    if kept_bytes > _IN_MEMORY:
                        writer.write_batch(batch)
                    else:
                        self._kept.append(batch)
                    yield batch
            self._complete = True
            return
        yield from self._kept
        self._copy.seek(0)
        with pa.ipc.open_stream(self._copy) as reader:
            yield from reader


PIECE_BYTES: Final = 4 << 20
COMPRESSIONS: Final = (".gz", ".bz2", ".zst", ".deflate")
"""The endings of compressed files that can be read here."""
NOT_READ_HERE: Final = (".lz4", ".snappy")
"""The endings of compressed files that only Spark reads."""


def compression_of(path: str) -> str | None:
    """The ending that says how a file is compressed, also when it can't be read here."""
    return next((ending for ending in (*COMPRESSIONS, *NOT_READ_HERE) if path.lower().endswith(ending)), None)


def without_compression(path: str) -> str:
    """The name that the file has when it is unpacked."""
    return path[: len(path) - len(compression_of(path) or "")]


def local_pieces(path: str) -> Iterator[bytes]:
    """The content of a file."""
    compression = compression_of(path)
    if compression in NOT_READ_HERE:
        remedy = "use --engine spark, or unpack it"
        raise BadRequestError(f"'{path}' is compressed in a way that only Spark reads; {remedy}")
    try:
        with _open(path, compression) as file:
            if compression == ".deflate":
                yield from _inflate(file)
            else:
                yield from iter(lambda: file.read(PIECE_BYTES), b"")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequestError(f"can't read '{path}': {getattr(error, 'strerror', None) or error}") from error


def _open(path: str, compression: str | None) -> Any:
    if compression == ".zst":
        import pyarrow as pa

        return pa.input_stream(path, compression="zstd")
    openers: dict[str | None, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return openers.get(compression, open)(path, "rb")


def _inflate(file: IO[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while not inflate.eof and (piece := file.read(PIECE_BYTES)):
        while piece:
            yield inflate.decompress(piece, PIECE_BYTES)
            piece = inflate.unconsumed_tail
    if not inflate.eof:
        raise EOFError("the compressed data end too soon")
    if inflate.unused_data or file.read(1):
        raise EOFError("the file goes on behind the compressed data")


BATCH_ROWS: Final = 1 << 16
_TAKEN: Final = (
    "an Arrow table or reader, a pandas or Polars frame, a list or iterator of dictionaries, or the path of a csv, "
    "parquet, arrow or ndjson file"
)
ABSENT_COLUMN: Final = "#absent"
"""The column of dictionaries that a client sends as columns: the names that each of them lacks."""
COLUMN_FILES: Final = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""The formats of files that hold columns, by the ending of their names."""


@dataclass(frozen=True, slots=True)
class GivenBatches:
    """Columns. Calling `read` again gives the same batches, unless they come from a stream that is read `once`."""

    schema: pa.Schema
    read: Callable[[], Iterable[pa.RecordBatch]]
    once: bool = False
    rows: int | None = None
    """How many rows there are, where that is known before one is read."""

    @classmethod
    def of(cls, table: pa.Table) -> GivenBatches:
        return cls(table.schema, lambda: table.to_batches(max_chunksize=BATCH_ROWS))


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Dictionaries. An iterator gives them `once`."""

    rows: Iterable[object]
    once: bool = False


def given_rows(data: Any) -> GivenBatches | GivenRecords:
    """What a caller gave that is not a file."""
    import pyarrow as pa

    name = type(data).__name__
    kind = f"a single {name}" if isinstance(data, Mapping) else f"'{name}'"

    if isinstance(data, pa.RecordBatchReader):
        return GivenBatches(data.schema, lambda: data, once=True)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return GivenBatches.of(data)
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        # Nothing tells a frame, which gives its stream again, from what streams once.
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowException as error:
            raise BadRequestError(f"can't load rows from {kind}: {str(error).splitlines()[0]}") from None
        return GivenBatches(reader.schema, lambda: reader, once=True)
    if isinstance(data, list | tuple):
        return GivenRecords(data)
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        collect = "; collect a lazy frame first" if hasattr(data, "collect") else ""
        raise BadRequestError(f"can't load rows from {kind}: give {_TAKEN}{collect}")
    return GivenRecords(data, once=True)


def _of_pandas(frame: Any) -> GivenBatches | GivenRecords:
    """Columns where Arrow can have them; a frame that mixes types within a column is read row by row.

    A named index is a column, as it was before somebody made it the index; one without a name only counts rows.
    """
    import pyarrow as pa

    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    frame = frame.reset_index(drop=True)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return GivenRecords(frame.astype(object).where(frame.notna(), None).to_dict("records"))
    return GivenBatches.of(table)


@contextmanager
def column_file(source: Any, format: str, name: str) -> Iterator[GivenBatches]:
    """A Parquet or Arrow file, open for the block. Errors of the file are raised with its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if format == "parquet":
            with pq.ParquetFile(source) as parquet:
                rows = parquet.metadata.num_rows
                yield GivenBatches(parquet.schema_arrow, lambda: parquet.iter_batches(BATCH_ROWS), rows=rows)
        else:
            with pa.ipc.open_file(source) as arrow:
                yield GivenBatches(arrow.schema, lambda: _checked_batches(arrow))
    except FileNotFoundError:
        raise NotFoundError(f"'{name}' does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise BadRequestError(f"{name}: {str(error).splitlines()[0]}") from error


def _checked_batches(file: pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file, in small parts. Buffers that contradict each other would crash what reads them."""
    for number in range(file.num_record_batches):
        whole = file.get_batch(number)
        whole.validate(full=True)
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def column_format(path: str, format: str | None) -> str | None:
    """The format of a file that holds columns; None for any other file."""
    if format is None:
        return COLUMN_FILES.get(os.path.splitext(without_compression(path))[1].lower())
    return format.lower() if format.lower() in COLUMN_FILES.values() else None


def open_file_name(file: Any, format: str | None) -> str:
    """What messages call a file that the caller opened, stdin for one."""
    name = getattr(file, "name", None)
    shown = name if isinstance(name, str) else "the input"
    if format is None and shown != name:
        raise BadRequestError(f"say how {shown} is written: format='csv', 'parquet', 'arrow' or 'ndjson'")
    return shown


def directory_error(path: str) -> BadRequestError:
    return BadRequestError(f"'{path}' is a directory; load its files one by one, or with Spark (`omnigraph load`)")


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The plain type that holds the same values."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if kinds.is_string_view(type_):
        return pa.large_string()
    if kinds.is_binary_view(type_):
        return pa.large_binary()
    if kinds.is_fixed_size_list(type_):
        return pa.list_(plain_type(type_.value_type), type_.list_size)
    if kinds.is_list(type_) or kinds.is_list_view(type_):
        return pa.list_(plain_type(type_.value_type))
    if kinds.is_large_list(type_) or kinds.is_large_list_view(type_):
        return pa.large_list(plain_type(type_.value_type))
    return type_


def plain_array(array: pa.Array) -> pa.Array:
    """The same values as `plain_type` has them; a column that is plain as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted, kinds = plain_type(array.type), pa.types
    if array.type == wanted:
        return array
    if kinds.is_dictionary(array.type):
        return plain_array(array.dictionary).take(array.indices)
    if kinds.is_run_end_encoded(array.type):
        return plain_array(pc.run_end_decode(array))
    if kinds.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = plain_array(array.values.slice(array.offset * size, len(array) * size))
        return pa.FixedSizeListArray.from_arrays(items, type=wanted, mask=array.is_null())
    if kinds.is_nested(array.type):
        items, lengths = plain_array(array.flatten()), pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int64()))
        lists, offset = (pa.LargeListArray, pa.int64()) if kinds.is_large_list(wanted) else (pa.ListArray, pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(offset)
        return lists.from_arrays(offsets, items, type=wanted, mask=array.is_null() if len(array) else None)
    return array.cast(wanted)
