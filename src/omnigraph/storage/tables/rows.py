"""Reading rows of one immutable table version: by predicate, by value, by row id, and the content of their blobs.

Every read of a graph's rows goes through `Table`. A row id names the same entity through every update within one line
of versions; two branches may give the same new number to different rows, so ids of one version mean nothing in another
(`version_diff`). Lance plans a scan in time that grows with the square of its columns, so a read of very many columns
finds its rows by a scan of no column and takes them by row id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType
from lance.dataset import serialize_row_addrs

from omnigraph.errors import IntegrityError
from omnigraph.storage.integer_sets import distinct, factorize, find_positions, is_ascending, is_member
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState, manifest_name
from omnigraph.storage.objects import Objects
from omnigraph.storage.tables.blobs import BlobContent, read_field
from omnigraph.storage.tables.lance_errors import stored_files, translate_errors
from omnigraph.storage.tables.memory.addresses import NOWHERE, OFFSET_BITS, OFFSET_MASK, RowAddresses
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.tables.memory.columns import wide_type as wide_type
from omnigraph.storage.tables.memory.row_space import RowIds as RowIds
from omnigraph.storage.tables.memory.value_index import MOST_LOOKUPS, rows_with


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


ROW_ID: Final = "_rowid"
ROW_ID_FIELD: Final = pa.field(ROW_ID, pa.uint64())
"""The row ids of rows that were read, as Lance gives them."""
ROW_ADDRESS: Final = "_rowaddr"
"""The address of a row: its fragment in the upper half, its offset there in the lower. Can be read like a column."""

Watch: TypeAlias = Callable[[int], None]
Values: TypeAlias = "Collection[str | int] | pa.Array | pa.ChunkedArray"
"""Values of one column, to be looked up."""

WIDE_COLUMNS: Final = 500
TAKEN_ROWS: Final = 4_096
"""Up to so many rows of very many columns are taken by row id. For more of them a scan earns its planning back."""

# One long list is parsed once and walks the index in order, so it beats several short ones.
_VALUES_PER_LOOKUP: Final = 10_000
# Measured with and without an index: beyond the list above and this share of the rows, one scan costs less.
_LOOKUP_SHARE: Final = 200
# Where nothing else is read, a value looked up costs as much as so many rows scanned: 2.4 microseconds.
_NARROW_LOOKUP_SHARE: Final = 100
_FEW_VALUES: Final = 100
_ROWS_PER_SCANNED_BATCH: Final = 1 << 19
_ROWS_PER_WANTED: Final = 2
_LARGE_BLOB_BYTES: Final = 1 << 30
# Above this share of the table a sequential scan is faster than fetching rows one by one.
_TAKEN_SHARE: Final = 16
# Bytes per batch for a reader that watches, of rows that can have any size.
_WATCHED_BATCH_BYTES: Final = 4 << 20
_FIRST_TAKEN: Final = 64
# Rows for one scan: their ids are listed for it.
_MOST_TAKEN: Final = 1 << 18
# Up to so many rows of so few fragments are taken from each fragment, which plans nothing.
_TAKEN_SINGLY: Final = 256
_FRAGMENTS_TAKEN_SINGLY: Final = 4
# With more columns planning a scan costs more than taking rows one by one.
_PLANNED_COLUMNS: Final = 50
_INT32_OFFSETS: Final = 1 << 31
# Of the rows of a commit that its own process keeps for its next reader; within what an open table is taken to cost.
_APPENDED_BYTES: Final = 8 << 10


class Table:
    """One table at one version. Everything read from it comes from that version."""

    def __init__(self, state: TableState, dataset: Any, location: Location) -> None:
        self.state = state
        self._dataset = dataset
        self._location = location
        self._watch: Watch | None = None
        self._origin: Table | None = None
        self._appended: tuple[str, pa.Table] | None = None

    def with_appended(self, base: Table, rows: pa.Table) -> None:
        """These rows are all that this version adds to `base`, of which it keeps every row. Only the writer of a
        version may say so: what another process has committed is read. Many rows are not worth their memory."""
        if rows.nbytes <= _APPENDED_BYTES:
            self._appended = base.key, rows

    def appended_to(self, base: Table) -> pa.Table | None:
        """The rows that this version adds to another one, if it is known to differ in nothing else."""
        return self._appended[1] if self._appended is not None and self._appended[0] == base.key else None

    def with_watch(self, watch: Watch) -> Table:
        """The same table for one reader, which learns how many bytes a read has brought so far and may end it by
        raising."""
        _ = self.columns, self.key  # made once for the version and not for each of its readers
        table = Table(self.state, self._dataset, self._location)
        table.__dict__.update(self.__dict__, _watch=watch, _origin=self._origin or self)
        return table

    @property
    def is_local(self) -> bool:
        return self._location.is_local

    @cached_property
    def uri(self) -> str:
        return self._location.child(self.state.path)

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

    @cached_property
    def _blob_columns(self) -> frozenset[str]:
        return frozenset(field.name for field in self.schema if isinstance(field.type, BlobType))

    @property
    def addresses(self) -> RowAddresses:
        """Where the rows of this version are."""
        return (self._origin or self)._addresses

    @cached_property
    def _addresses(self) -> RowAddresses:
        with self.reading():
            return RowAddresses.of(self.state.path, self._fragments(), self._location, self._dataset)

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The number of each column, which no other column of the table ever has."""
        return (self._origin or self)._field_ids

    @cached_property
    def _field_ids(self) -> Mapping[str, int]:
        return {field.name(): field.id() for field in self._dataset.lance_schema.fields()}

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

    def physical_batches(self, columns: Sequence[str], fragment_ids: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Columns of some fragments, one after the other, as their files hold them: rows that were deleted included."""
        with self.reading():
            scanner = self._dataset.scanner(
                columns=list(columns),
                fragments=self._fragments_among(fragment_ids),
                with_row_id=True,
                include_deleted_rows=True,
                scan_in_order=True,
                batch_size=_ROWS_PER_SCANNED_BATCH,
                batch_size_bytes=_WATCHED_BATCH_BYTES if self._must_measure(columns) else None,
            )
            nbytes = 0
            for batch in scanner.to_reader():
                nbytes += batch.nbytes
                self._tell(nbytes)
                yield batch.select(list(columns))

    # By value

    def existing_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that the table holds."""
        return set(self.rows_among("id", set(ids), ["id"]).column("id").to_pylist())

    def ids_among(self, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Those of some distinct ids that the table holds. Many of them never become Python objects."""
        return self.rows_among("id", ids, ["id"]).column("id").combine_chunks()

    def rows_among(self, column: str, values: Values, columns: Sequence[str], *, row_ids: bool = False) -> pa.Table:
        """The rows whose `column` holds one of `values`: looked up when they are few, else found in one scan."""
        parts: list[pa.Table] = []
        nbytes = 0
        for part in self.parts_among(column, values, columns, row_ids=row_ids):
            nbytes += part.nbytes
            self._tell(nbytes)
            parts.append(part)
        return pa.concat_tables(parts) if parts else self._no_rows(columns, row_ids)

    def parts_among(
        self, column: str, values: Values, columns: Sequence[str], *, row_ids: bool = False
    ) -> Iterator[pa.Table]:
        """The same rows, some at a time."""
        if not len(values) or not self.state.rows:
            return
        if (rows := self.rows_in_memory(column, values, columns, row_ids=row_ids)) is not None:
            yield rows
            return
        narrow = set(columns) <= {column}
        few = max(_FEW_VALUES, self.state.rows // _NARROW_LOOKUP_SHARE) if narrow else _VALUES_PER_LOOKUP
        if len(values) <= max(few, self.state.rows // _LOOKUP_SHARE):
            wanted = values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
            for start in range(0, len(wanted), _VALUES_PER_LOOKUP):
                listed = one_of(column, wanted[start : start + _VALUES_PER_LOOKUP])
                for batch in self.batches(columns, filter=listed, row_ids=row_ids):
                    yield pa.table(batch)
            return
        value_set = values
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            value_set = pa.array(list(values), self.schema.field(column).type)
        scanned = list(dict.fromkeys((*columns, column)))
        # Every batch hashes all wanted values anew. One that is twice as long keeps that from being most of the work.
        batch_rows = max(_ROWS_PER_SCANNED_BATCH, _ROWS_PER_WANTED * len(values) if narrow else 0)
        kept = [*columns, ROW_ID] if row_ids else list(columns)
        with self.reading():
            scanner = self._dataset.scanner(columns=scanned, with_row_id=row_ids, batch_size=batch_rows)
            for batch in scanner.to_reader():
                yield pa.table(batch).filter(pc.is_in(batch.column(column), value_set=value_set)).select(kept)

    def rows_in_memory(
        self, column: str, values: Values, columns: Sequence[str], *, row_ids: bool = False
    ) -> pa.Table | None:
        """The same rows for a few texts, if an index in memory finds them."""
        if len(values) > MOST_LOOKUPS or not pa.types.is_string(self.schema.field(column).type):
            return None
        texts = values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else values
        matches = rows_with(self, column, [text for text in texts if isinstance(text, str)])
        if matches is None:
            return None
        ids = pa.array(matches.view(np.uint64))
        if not columns:
            return pa.table([ids], schema=pa.schema([ROW_ID_FIELD])) if row_ids else self._no_rows(columns, row_ids)
        rows = self.take(matches, columns)
        return rows.append_column(ROW_ID_FIELD, ids) if row_ids else rows

    # By row id

    def take(self, row_ids: RowIds, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows with these ids, in this order. Every id must be of this version."""
        if (rows := COLUMNS.take(self, row_ids, columns)) is not None:
            self._tell(rows.nbytes)
            return rows
        parts = [
            self._take(row_ids, list(columns[start : start + WIDE_COLUMNS]))
            for start in range(0, max(1, len(columns)), WIDE_COLUMNS)
        ]
        if len(parts) == 1:
            return parts[0]
        schema = pa.schema([field for part in parts for field in part.schema])
        return pa.table([column for part in parts for column in part.columns], schema=schema)

    def _take(self, row_ids: RowIds, columns: list[str]) -> pa.Table:
        """For a reader who watches, rows of unknown size are taken a few at first, and as many as fit a batch then."""
        size = _FIRST_TAKEN if self._must_measure(columns) else _MOST_TAKEN
        parts: list[pa.Table] = []
        start = nbytes = 0
        while not parts or start < len(row_ids):
            self._tell(nbytes)
            parts.append(self._take_part(np.ascontiguousarray(row_ids[start : start + size], np.int64), columns))
            start, nbytes = start + size, nbytes + parts[-1].nbytes
            if start < len(row_ids) and self._must_measure(columns):
                size = max(1, min(len(row_ids) - start, start * _WATCHED_BATCH_BYTES // max(1, nbytes), _MOST_TAKEN))
        self._tell(nbytes)
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)

    def check_watch(self) -> None:
        """Raises if the watcher of this reader ends the read."""
        self._tell(0)

    def _tell(self, nbytes: int) -> None:
        if self._watch is not None:
            self._watch(nbytes)

    def _take_part(self, row_ids: RowIds, columns: list[str]) -> pa.Table:
        """By address, because Lance would build an index of all row ids to find a few: a few rows from their fragments
        each, more rows in one scan of nothing else."""
        if not len(row_ids):
            return self._no_rows(columns, row_ids=False)
        addresses = self._addresses_of(row_ids)
        if self._is_taken_singly(addresses, columns):
            return self._take_from_fragments(addresses, columns)
        rows = self._scan_rows(row_ids, addresses, columns)
        scanned = row_ids_of(rows)
        if not np.array_equal(scanned, row_ids):
            order = np.argsort(scanned, kind="stable")
            positions, is_here = find_positions(scanned[order], row_ids)
            if not is_here.all():
                raise self._lacks_rows()
            rows = rows.take(pa.array(order[positions]))
        return rows.select(columns)

    def _addresses_of(self, row_ids: RowIds) -> RowIds:
        """An object store is not asked for deletion files of our own accord: Lance reads them, and leaves out rows that
        do not exist."""
        addresses = self.addresses.addresses(row_ids, live=not self._location.is_local)
        if (addresses == NOWHERE).any():
            raise self._lacks_rows()
        return addresses

    def _lacks_rows(self) -> IntegrityError:
        return IntegrityError(self.state.path, f"version {self.state.version} lacks rows that it numbered itself")

    def _is_taken_singly(self, addresses: RowIds, columns: Sequence[str]) -> bool:
        # Lance gives the descriptors of blobs in scans only.
        if not columns or any(name not in self.columns or name in self._blob_columns for name in columns):
            return False
        if len(columns) > _PLANNED_COLUMNS and len(addresses) <= TAKEN_ROWS:
            return True
        if len(addresses) > _TAKEN_SINGLY:
            return False
        fragments = [self.addresses.by_id[number] for number in distinct(addresses >> OFFSET_BITS).tolist()]
        may_rank = self._location.is_local or not any(fragment.deletion_count for fragment in fragments)
        return may_rank and len(fragments) <= _FRAGMENTS_TAKEN_SINGLY

    def _take_from_fragments(self, addresses: RowIds, columns: list[str]) -> pa.Table:
        wanted, _, order = factorize(addresses)
        parts = []
        for number in distinct(wanted >> OFFSET_BITS).tolist():
            offsets = wanted[wanted >> OFFSET_BITS == number] & OFFSET_MASK
            ranks = self.addresses.by_id[number].ranks(offsets)
            with self.reading():
                parts.append(self._dataset.get_fragment(number).take(ranks.tolist(), columns=columns))
        rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
        return rows if is_ascending(order) else rows.take(pa.array(order))

    def _scan_rows(
        self, row_ids: RowIds, addresses: RowIds, columns: Sequence[str], filter: str | None = None
    ) -> pa.Table:
        """Of these rows those that exist and pass the filter, with `ROW_ID`."""
        fragments = self._fragments_among(distinct(np.sort(addresses >> OFFSET_BITS)).tolist())
        with self.reading():
            return self._dataset.scanner(
                columns=list(columns),
                filter=filter,
                fragments=fragments,
                with_row_id=True,
                row_addr_allowlist=serialize_row_addrs(row_ids.tolist()),
                # Else Lance reads the columns of the rows that pass by row id.
                late_materialization=False,
                use_scalar_index=False,
            ).to_table()

    def select(self, row_ids: RowIds, columns: Sequence[str], *, filter: str | None = None) -> pa.Table:
        """Of the rows with these distinct ids those that exist and pass `filter`, with `ROW_ID`, in any order."""
        if not row_ids.size:
            return self._no_rows(columns, row_ids=True)
        if row_ids.size * _TAKEN_SHARE > self.state.rows:
            rows = self.read(columns, filter=filter, row_ids=True)
            return rows.filter(pa.array(is_member(row_ids_of(rows), row_ids)))
        addresses = self.addresses.addresses(row_ids, live=not self._location.is_local)
        exists = addresses != NOWHERE
        row_ids, addresses = row_ids[exists], addresses[exists]
        if filter is None and (held := COLUMNS.take(self, row_ids, columns)) is not None:
            return held.append_column(ROW_ID_FIELD, pa.array(row_ids.view(np.uint64)))
        if not len(row_ids):
            return self._no_rows(columns, row_ids=True)
        if filter is None and self._is_taken_singly(addresses, columns):
            rows = self._take(row_ids, list(columns))
            return rows.append_column(ROW_ID_FIELD, pa.array(row_ids.view(np.uint64)))
        return self._scan_rows(row_ids, addresses, columns, filter)

    def blobs(self, column: str, row_ids: Sequence[int] | RowIds) -> list[BlobContent]:
        """The managed blobs of these rows, in this order; every row must have one. Content is read when asked for."""
        if not len(row_ids):
            return []
        addresses = self._addresses_of(np.asarray(row_ids, np.int64))
        with self.reading():
            files = self._dataset.take_blobs(column, addresses=addresses.tolist())
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
        return list((self._origin or self)._all_fragments)

    @cached_property
    def _all_fragments(self) -> tuple[Any, ...]:
        """Kept, because Lance makes each of them anew, in 50 microseconds."""
        with self.reading():
            return tuple(self._dataset.get_fragments())

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
            named.update(f"data/{file._path}" for file in fragment.metadata.files)
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
