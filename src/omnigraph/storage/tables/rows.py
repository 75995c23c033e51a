"""Reading rows of one immutable table version: by predicate, by value, by row id, and the content of their blobs.

Every read of a graph's rows goes through `Table`. A row id names the same entity through every update within one line
of versions; two branches may give the same new number to different rows, so ids of one version mean nothing in another
(`version_diff`). Lance plans a scan in time that grows with the square of its columns, so a read of very many columns
finds its rows by a scan of no column and takes them by row id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import IntegrityError
from omnigraph.storage.integer_sets import is_ascending, is_member
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState, manifest_name
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables.blobs import BlobContent, read_field
from omnigraph.storage.tables.lance_errors import stored_files, translate_errors


def string_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(value: str | int) -> str:
    return string_literal(value) if isinstance(value, str) else str(value)


def identifier(column: str) -> str:
    """A column name: any name, its case kept, even one that is a keyword there."""
    return f"`{column}`"


def one_of(column: str, values: Iterable[str | int]) -> str:
    """The rows whose column holds one of these values."""
    return f"{identifier(column)} IN ({', '.join(map(literal, values))})"


RowIds: TypeAlias = NDArray[np.int64]
"""Lance numbers rows with unsigned 64-bit integers and never comes near 2^63; NumPy computes with signed ones."""

ROW_ID: Final = "_rowid"
ROW_ID_FIELD: Final = pa.field(ROW_ID, pa.uint64())
"""The row ids of rows that were read, as Lance gives them."""
ROW_ADDRESS: Final = "_rowaddr"
"""The address of a row: its fragment in the upper half, its offset there in the lower. Can be read like a column."""

Watch: TypeAlias = Callable[[int], None]

WIDE_COLUMNS: Final = 500
TAKEN_ROWS: Final = 4_096
"""Up to so many rows of very many columns are taken by row id. For more of them a scan earns its planning back."""

# One long list is parsed once and walks the index in order, so it beats several short ones.
_VALUES_PER_LOOKUP: Final = 10_000
# Measured with and without an index: beyond the list above and this share of the rows, one scan costs less.
_LOOKUP_SHARE: Final = 200
# Every batch of a scan hashes all wanted values anew, so batches are large.
_ROWS_PER_SCANNED_BATCH: Final = 1 << 19
_LARGE_BLOB_BYTES: Final = 1 << 30
# Above this share of the table a sequential scan is faster than fetching rows one by one.
_TAKEN_SHARE: Final = 16
# Bytes per batch for a reader that watches, of rows that can have any size.
_WATCHED_BATCH_BYTES: Final = 4 << 20
_FIRST_TAKEN: Final = 64
_INT32_OFFSETS: Final = 1 << 31


class Table:
    """One table at one version. Everything read from it comes from that version."""

    def __init__(self, state: TableState, dataset: Any, location: Location) -> None:
        self.state = state
        self._dataset = dataset
        self._location = location
        self._watch: Watch | None = None

    def with_watch(self, watch: Watch) -> Table:
        """The same table for one reader, which learns how many bytes a read has brought so far and may end it by
        raising."""
        _ = self.columns, self.key  # made once for the version and not for each of its readers
        table = Table(self.state, self._dataset, self._location)
        table.__dict__.update(self.__dict__, _watch=watch)
        return table

    @cached_property
    def key(self) -> str:
        """The table and its version: the rows under one key never change."""
        return f"{self.state.path}@{self.state.version}"

    @cached_property
    def schema(self) -> pa.Schema:
        """Kept, because Lance makes it anew, column by column, each time it is asked."""
        return self._dataset.schema

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(self.schema.names)

    def reading(self) -> AbstractContextManager[None]:
        """Lance reads this version: a failure leaves as one of our errors, which names the damaged file."""
        return translate_errors(f"reading {self.state.path}", self._location, self.state, self._dataset)

    def writing(self, doing: str = "writing") -> AbstractContextManager[None]:
        """Lance writes files on top of this version, and reads it for that."""
        return translate_errors(
            f"{doing} {self.state.path}", self._location, self.state, self._dataset, only_reads=False
        )

    # By predicate

    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        row_ids: bool = False,
        fragments: Collection[int] | None = None,
    ) -> pa.Table:
        """The rows that satisfy `filter`, of some fragments only if they are given; `row_ids` adds `ROW_ID`. A blob
        column comes as the descriptors of its cells, without any content."""
        names = self.schema.names if columns is None else list(columns)
        chosen = None if fragments is None else self._fragments_among(fragments)
        if chosen == []:
            return self._no_rows(names, row_ids)
        if chosen is None and (rows := self._find_and_take(names, filter, limit, row_ids)) is not None:
            return rows
        return self._collect(self._scanner(names, filter=filter, limit=limit, with_row_id=row_ids, fragments=chosen))

    def batches(
        self, columns: Sequence[str] | None = None, *, filter: str | None = None, row_ids: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as `read`, a batch at a time."""
        names = self.schema.names if columns is None else list(columns)
        if (rows := self._find_and_take(names, filter, None, row_ids)) is not None:
            yield from pa.RecordBatchReader.from_stream(rows)
            return
        with self.reading():
            yield from self._scanner(names, filter=filter, with_row_id=row_ids).to_reader()

    def count(self, filter: str | None = None) -> int:
        if filter is None:
            return self.state.rows
        with self.reading():
            return int(self._dataset.count_rows(filter=filter))

    def _find_and_take(
        self, columns: Sequence[str], filter: str | None, limit: int | None, row_ids: bool
    ) -> pa.Table | None:
        """The rows of a scan of very many columns, taken by row id; None when a scan is better."""
        if len(columns) <= WIDE_COLUMNS:
            return None
        matches = self.read([], filter=filter, limit=limit, row_ids=True)
        if matches.num_rows > TAKEN_ROWS:
            return None
        rows = self.take(row_ids_of(matches), columns)
        return rows.append_column(ROW_ID_FIELD, matches.column(ROW_ID)) if row_ids else rows

    def _scanner(self, columns: list[str], **options: Any) -> Any:
        bound = _WATCHED_BATCH_BYTES if self._must_measure(columns) else None
        with self.reading():
            return self._dataset.scanner(columns=columns, batch_size_bytes=bound, **options)

    def _must_measure(self, columns: Sequence[str]) -> bool:
        """Whether the batches of a read have to be bounded: somebody watches it, and its rows can have any size."""
        types = (self.schema.field(name).type for name in columns if name in self.columns)
        return self._watch is not None and any(
            pa.types.is_nested(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_) for type_ in types
        )

    def _collect(self, scanner: Any) -> pa.Table:
        """Everything that a scan gives. The watcher is asked with each batch."""
        with self.reading():
            if self._watch is None:
                return scanner.to_table()
            batches: list[pa.RecordBatch] = []
            nbytes = 0
            self._watch(nbytes)
            with scanner.to_reader() as reader:
                for batch in reader:
                    nbytes += batch.nbytes
                    self._watch(nbytes)
                    batches.append(batch)
                return pa.Table.from_batches(batches, reader.schema)

    # By value

    def existing_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that the table holds."""
        return set(self.rows_among("id", set(ids), ["id"]).column("id").to_pylist())

    def rows_among(
        self, column: str, values: Collection[str | int], columns: Sequence[str], *, row_ids: bool = False
    ) -> pa.Table:
        """The rows whose `column` holds one of `values`: looked up when they are few, else found in one scan."""
        parts: list[pa.Table] = []
        nbytes = 0
        for part in self.parts_among(column, values, columns, row_ids=row_ids):
            nbytes += part.nbytes
            self._tell(nbytes)
            parts.append(part)
        return pa.concat_tables(parts) if parts else self._no_rows(columns, row_ids)

    def parts_among(
        self, column: str, values: Collection[str | int], columns: Sequence[str], *, row_ids: bool = False
    ) -> Iterator[pa.Table]:
        """The same rows, some at a time."""
        if not values or not self.state.rows:
            return
        wanted = list(values)
        if len(wanted) <= max(_VALUES_PER_LOOKUP, self.state.rows // _LOOKUP_SHARE):
            for start in range(0, len(wanted), _VALUES_PER_LOOKUP):
                listed = one_of(column, wanted[start : start + _VALUES_PER_LOOKUP])
                for batch in self.batches(columns, filter=listed, row_ids=row_ids):
                    yield pa.table(batch)
            return
        value_set = pa.array(wanted, self.schema.field(column).type)
        scanned = list(dict.fromkeys((*columns, column)))
        kept = [*columns, ROW_ID] if row_ids else list(columns)
        with self.reading():
            scanner = self._dataset.scanner(columns=scanned, with_row_id=row_ids, batch_size=_ROWS_PER_SCANNED_BATCH)
            for batch in scanner.to_reader():
                yield pa.table(batch).filter(pc.is_in(batch.column(column), value_set=value_set)).select(kept)

    # By row id

    def take(self, row_ids: RowIds, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows with these ids, in this order. Every id must be of this version."""
        parts = [
            self._take(row_ids, list(columns[start : start + WIDE_COLUMNS]))
            for start in range(0, max(1, len(columns)), WIDE_COLUMNS)
        ]
        if any(part.num_rows != len(row_ids) for part in parts):
            raise IntegrityError(self.state.path, f"version {self.state.version} lacks rows that it numbered itself")
        if len(parts) == 1:
            return parts[0]
        schema = pa.schema([field for part in parts for field in part.schema])
        return pa.table([column for part in parts for column in part.columns], schema=schema)

    def _take(self, row_ids: RowIds, columns: list[str]) -> pa.Table:
        """For a reader who watches, rows of unknown size are taken a few at first, and as many as fit a batch then."""
        wanted = pa.array(np.ascontiguousarray(row_ids, np.int64).view(np.uint64))
        size = _FIRST_TAKEN if self._must_measure(columns) else len(wanted)
        parts: list[pa.Table] = []
        start = nbytes = 0
        while not parts or start < len(wanted):
            self._tell(nbytes)
            with self.reading():
                parts.append(self._dataset._take_rows(wanted[start : start + size], columns=columns))
            start, nbytes = start + size, nbytes + parts[-1].nbytes
            if start < len(wanted):
                size = max(1, min(len(wanted) - start, start * _WATCHED_BATCH_BYTES // max(1, nbytes)))
        self._tell(nbytes)
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)

    def _tell(self, nbytes: int) -> None:
        if self._watch is not None:
            self._watch(nbytes)

    def select(self, row_ids: RowIds, columns: Sequence[str], *, filter: str | None = None) -> pa.Table:
        """Of the rows with these distinct ids those that exist and pass `filter`, with `ROW_ID`, in any order."""
        if not row_ids.size:
            return self._no_rows(columns, row_ids=True)
        if row_ids.size * _TAKEN_SHARE > self.state.rows:
            rows = self.read(columns, filter=filter, row_ids=True)
            return rows.filter(pa.array(is_member(row_ids_of(rows), row_ids)))
        if filter is None:
            rows = self._take(row_ids, list(columns))
            # Ids that don't exist are skipped without a word, and then positions no longer tell which is which.
            if rows.num_rows == row_ids.size:
                return rows.append_column(ROW_ID_FIELD, pa.array(row_ids.view(np.uint64)))
        listed = f"{ROW_ID} IN ({', '.join(map(str, row_ids.tolist()))})"
        return self.read(columns, filter=listed if filter is None else f"{listed} AND ({filter})", row_ids=True)

    def blobs(self, column: str, row_ids: Sequence[int] | RowIds) -> list[BlobContent]:
        """The managed blobs of these rows, in this order; every row must have one. Content is read when asked for."""
        if not len(row_ids):
            return []
        with self.reading():
            files = self._dataset.take_blobs(column, ids=[int(row_id) for row_id in row_ids])
        blobs = [BlobContent(file, self.reading) for file in files]
        # Lance reads without end where a damaged descriptor says so. Most blobs are too small to be worth a look.
        if (size := max(map(len, blobs))) >= _LARGE_BLOB_BYTES:
            stored = stored_files(Objects(self._location), self.state)
            if size > max(stored.values(), default=0):
                raise IntegrityError(self.state.path, f"a blob of {size} bytes is larger than every file of its table")
        return blobs

    # The parts of the version

    def _fragments(self) -> list[Any]:
        """As Lance knows them; only for the modules of this package, like everything of Lance's."""
        with self.reading():
            return list(self._dataset.get_fragments())

    def _fragments_among(self, fragment_ids: Collection[int]) -> list[Any]:
        wanted = frozenset(fragment_ids)
        return [fragment for fragment in self._fragments() if fragment.fragment_id in wanted]

    def _described_indexes(self) -> list[Any]:
        with self.reading():
            return list(self._dataset.describe_indices())

    def files(self) -> set[str]:
        """Every file this version names, relative to the table: data, deletion vectors, its manifest. An index segment
        is a directory whose content only Lance knows; it ends in a slash. Large blobs lie in `data/<name>/` beside the
        data file `data/<name>.lance` and belong to it."""
        named = {f"_versions/{manifest_name(self.state.number)}"}
        for fragment in self._fragments():
            named.update(f"data/{file.path}" for file in fragment.metadata.files)
            if (deletions := fragment.deletion_file()) is not None:
                named.add(deletions)
        for index in self._described_indexes():
            named.update(f"_indices/{segment.uuid}/" for segment in index.segments)
        return named

    def requests(self) -> tuple[int, int]:
        """Reads and writes this process has sent for this table's dataset so far."""
        stats = self._dataset.io_stats_snapshot()
        return stats.read_iops, stats.write_iops

    def _no_rows(self, columns: Sequence[str], row_ids: bool) -> pa.Table:
        addresses = pa.field(ROW_ADDRESS, pa.uint64())
        fields = [addresses if name == ROW_ADDRESS else read_field(self.schema.field(name)) for name in columns]
        return pa.schema([*fields, ROW_ID_FIELD] if row_ids else fields).empty_table()


def fragment_sizes(table: Table) -> dict[int, int]:
    """How many rows each fragment shows, by its id."""
    return {fragment.fragment_id: fragment.metadata.num_rows for fragment in table._fragments()}


def fragment_bytes(metadata: Any) -> int:
    """The size of the data files of a fragment."""
    return sum(file.file_size_bytes or 0 for file in metadata.files)


def row_ids_of(rows: pa.Table) -> RowIds:
    """The row ids of rows that were read with them."""
    column = rows.column(ROW_ID)
    one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    ids: RowIds = one.to_numpy(zero_copy_only=False).view(np.int64)
    return ids


def by_row_id(rows: pa.Table) -> pa.Table:
    """The same rows, ascending by row id. A scan follows the fragments, and an updated row has moved to a newer one."""
    ids = row_ids_of(rows)
    if is_ascending(ids):
        return rows
    if rows.nbytes >= _INT32_OFFSETS:
        rows = rows.cast(pa.schema([field.with_type(wide_type(field.type)) for field in rows.schema]))
    return rows.take(pa.array(np.argsort(ids, kind="stable")))


def wide_type(type_: pa.DataType) -> pa.DataType:
    """The type whose arrays hold any number of bytes: texts, and lists of them, end at 2 GiB otherwise."""
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_list(type_):
        return pa.large_list(type_.value_field.with_type(wide_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(wide_type(field.type)) for field in type_])
    return type_
