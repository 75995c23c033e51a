"""The rows of a write beside the stored rows with the same ids: what partial rows leave as it is, and which rows would
change nothing.

Loads call it, in this process and on executors. It reads one immutable table version, some rows at a time, and only
columns that the question needs. The content of a blob is read when nothing else tells two rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.api.governance import Limits
from omnigraph.engine.rows.columns import RowMask, equal_values, rows_schema, whole_array
from omnigraph.engine.rows.kernels.ids import key_ids
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, Stage, TypedRows
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import Property, TableType
from omnigraph.language.violations import Sentence, quote
from omnigraph.storage.integer_sets import distinct
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.blobs import BlobDescriptors
from omnigraph.storage.tables.rows import ROW_ADDRESS, ROW_ID, ROW_ID_FIELD, RowIds, one_of, row_ids_of

ReadStored: TypeAlias = Callable[[pa.Array, Sequence[str]], Iterator[pa.Table]]
"""The stored rows with some ids: `id`, the columns asked for, and row ids, in parts."""

_ROWS_PER_LOOKUP: Final = 4_096
_ADDRESSES_PER_READ: Final = 8_192
_SCANNED_SHARE: Final = 16
_FIRST_ROWS: Final = 64
_ROWS_PER_PART: Final = 1 << 16
_PART_BYTES: Final = 32 << 20
_OFFSET_BITS: Final = 32
_REMEDY: Final = (
    "update fewer rows at a time, or load it on Spark (`omnigraph load --engine spark`, or a pipeline with "
    "`omnigraph pipeline run`)"
)


def stored_parts(table: Table, ids: pa.Array, columns: Sequence[str]) -> Iterator[tuple[pa.Array, pa.Table]]:
    """The stored rows with these ids, in parts of bounded size: the positions of their ids, and rows with `id`, the
    columns, and row ids."""
    names = list(dict.fromkeys(["id", *columns]))
    if len(ids) <= _ROWS_PER_LOOKUP:
        # A reader that watches gets batches of few bytes.
        for part in table.with_watch(lambda _: None).parts_among("id", ids, names, row_ids=True):
            yield pc.index_in(whole_array(part.column("id")), value_set=ids), part
        return
    matches = table.rows_among("id", ids, ["id"], row_ids=True).sort_by(ROW_ID)
    positions = pc.index_in(whole_array(matches.column("id")), value_set=ids)  # hashes all ids, so it is done once
    if matches.num_rows * _SCANNED_SHARE > table.state.rows:
        yield from _scan(table, matches, positions, names)
        return
    row_ids, start, nbytes, count = row_ids_of(matches), 0, 0, _FIRST_ROWS
    while start < matches.num_rows:
        part = row_ids[start : start + count]
        rows = table.take(part, names).append_column(ROW_ID_FIELD, pa.array(part.view(np.uint64)))
        yield positions.slice(start, len(part)), rows
        start, nbytes = start + len(part), nbytes + rows.nbytes
        count = max(1, min(_ROWS_PER_PART, start * _PART_BYTES // max(1, nbytes)))


def _scan(
    table: Table, matches: pa.Table, positions: pa.Array, names: Sequence[str]
) -> Iterator[tuple[pa.Array, pa.Table]]:
    """The same parts in one scan: for more than a few of the rows it costs less than taking each."""
    row_ids = row_ids_of(matches)
    for batch in table.with_watch(lambda _: None).batches(names, row_ids=True):
        rows = pa.table(batch)
        here = row_ids_of(rows)
        at = np.minimum(np.searchsorted(row_ids, here), len(row_ids) - 1)
        is_match = row_ids[at] == here
        if is_match.any():
            yield positions.take(pa.array(at[is_match])), rows.filter(pa.array(is_match))


def read_visible(
    table: Table,
    limits: Limits,
    is_visible: Callable[[RowIds], RowMask] | None,
    ids: pa.Array,
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    """`stored_parts`, of which the author of a write sees some, up to what one process may hold."""
    nbytes = 0
    for _, part in stored_parts(table, ids, columns):
        rows = part if is_visible is None else part.filter(pa.array(is_visible(row_ids_of(part))))
        nbytes += rows.nbytes
        if nbytes > limits.bytes:
            raise ResourceLimitError("load bytes of stored rows", limits.bytes, nbytes, _REMEDY)
        yield rows


def rows_at(table: Table, addresses: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """The rows at some addresses, at least one, in this order: the columns and row ids."""
    ascending = np.sort(addresses)
    parts = []
    for fragment in distinct(ascending >> _OFFSET_BITS).tolist():
        here = ascending[ascending >> _OFFSET_BITS == fragment]
        for start in range(0, len(here), _ADDRESSES_PER_READ):
            listed = one_of(ROW_ADDRESS, here[start : start + _ADDRESSES_PER_READ].tolist())
            names = [*columns, ROW_ADDRESS]
            parts.append(table.read(names, filter=listed, row_ids=True, fragments=[fragment]))
    rows = pa.concat_tables(parts)
    at = pc.index_in(pa.array(addresses.astype(np.uint64)), value_set=whole_array(rows.column(ROW_ADDRESS)))
    return rows.drop_columns([ROW_ADDRESS]).take(at)


# Rows that say nothing new ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """Row by row, whether an entity with its id is stored, and whether it is stored with the same values. `nulled` are
    the properties that a stored entity would lose because its record leaves them out."""

    is_stored: RowMask
    is_equal: RowMask
    nulled: frozenset[str] = frozenset()

    @classmethod
    def nothing(cls, count: int) -> StoredMatch:
        return cls(np.zeros(count, np.bool_), np.zeros(count, np.bool_))


def match_stored(table: Table, type_: TableType, rows: pa.Table, present: pa.Table | None = None) -> StoredMatch:
    """Compare complete rows, each with an id of its own, with what is stored. Without `present` nothing is known about
    what their records leave out."""
    match = StoredMatch.nothing(rows.num_rows)
    nulled: set[str] = set()
    blobs = {prop.column for prop in type_.property_list if prop.type.is_blob}
    columns = [name for name in rows.column_names if name in table.columns]
    names = {prop.column: prop.name for prop in type_.property_list}
    for at, stored in stored_parts(table, whole_array(rows.column("id")), columns):
        mine, numbers = rows.take(at), at.to_numpy()
        match.is_stored[numbers] = True
        match.is_equal[numbers] = equal_rows(table, mine, stored, columns, blobs)
        if present is not None and (unsaid := [name for name in columns if name in names]):
            left_out = present.select(unsaid).take(at)
            nulled.update(names[name] for name in unsaid if _loses_value(stored, mine, left_out, name))
    return StoredMatch(match.is_stored, match.is_equal, frozenset(nulled))


def _loses_value(stored: pa.Table, mine: pa.Table, present: pa.Table, name: str) -> bool:
    lost = pc.and_(pc.is_valid(stored.column(name)), pc.is_null(mine.column(name)))
    return bool(pc.any(pc.and_(lost, pc.invert(present.column(name))), min_count=0).as_py())


def equal_rows(
    table: Table, mine: pa.Table, stored: pa.Table, columns: Sequence[str], blobs: frozenset[str] | set[str]
) -> RowMask:
    """Row by row, whether rows hold the same values of some columns as stored rows, which have their row ids. Blobs
    are compared last, by their bytes."""
    same = np.ones(mine.num_rows, np.bool_)
    for name in sorted(columns, key=lambda name: name in blobs):
        if name in blobs:
            same &= _equal_blobs(table, name, mine.column(name), stored.column(name), row_ids_of(stored), same)
        elif name != "id":
            same &= equal_values(mine.column(name), stored.column(name).cast(mine.schema.field(name).type))
    return same


def _equal_blobs(
    table: Table, column: str, cells: pa.ChunkedArray, stored: pa.ChunkedArray, row_ids: RowIds, still_equal: RowMask
) -> RowMask:
    there, cells = BlobDescriptors.of(stored), whole_array(cells)
    data, uri = pc.struct_field(cells, "data"), pc.struct_field(cells, "uri")
    same: RowMask = ~cells.is_valid().to_numpy(zero_copy_only=False) & ~there.valid
    named = there.external & (there.position == 0)
    same |= named & pc.fill_null(pc.equal(uri, whole_array(there.uri)), False).to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.binary_length(data), -1).to_numpy(zero_copy_only=False)
    candidates = np.flatnonzero(there.managed & (sizes == there.size.astype(np.int64)) & still_equal)
    contents = table.blobs(column, row_ids[candidates])
    same[candidates] = [
        content.read() == data[row].as_py() for row, content in zip(candidates.tolist(), contents, strict=True)
    ]
    return same


# Partial rows ----------------------------------------------------------------------------------------------


def join_repeated(typed: TypedRows, *, keys: bool = False) -> TypedRows:
    """One row per id, in the order of their last rows: of each property the last value that a record has. Unless `keys`
    are joined as well, a key that comes twice is left to be refused."""
    ids = whole_array(typed.rows.column("id"))
    codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    count = int(codes.max()) + 1 if len(codes) else 0
    if (typed.type.key and not keys) or count == len(codes) or typed.present is None:
        return typed
    last = _last_rows(codes, np.arange(len(codes)), count)
    order = np.argsort(last)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"id": ids.take(pa.array(last[order]))}
    present: dict[str, RowMask] = {}
    for name in typed.present.column_names:
        has = np.flatnonzero(typed.present.column(name).to_numpy())
        rows = _last_rows(codes[has], has, count)[order]
        present[name] = rows >= 0
        columns[name] = typed.rows.column(name).take(pa.array(rows, mask=rows < 0))
    rows = pa.table([columns[name] for name in typed.rows.column_names], schema=typed.rows.schema)
    return TypedRows(typed.type, rows, typed.lines.take(pa.array(last[order])), pa.table(present))


def _last_rows(codes: NDArray[np.int32], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Per code its last row, -1 without one. Of several values for one index the last assignment stays."""
    last = np.full(count, -1, np.int64)
    last[codes] = rows
    return last


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Partial rows with what is stored of their entities.

    `typed` has a row for each that was found: its final values in the columns that were read, null in all others, and
    null for a blob that stays. `written` are the columns that may change, `stored` the rows as they are, row by row.
    `unknown` are rows that name no stored entity, `broken` those that would change a key.
    """

    typed: TypedRows
    written: tuple[str, ...]
    stored: pa.Table
    unknown: TypedRows
    broken: tuple[RejectedRow, ...] = ()

    def filter(self, keep: pa.Array) -> FilledRows:
        return replace(self, typed=self.typed.filter(keep), stored=self.stored.filter(keep))

    def take(self, rows: NDArray[np.int64]) -> FilledRows:
        return replace(self, typed=self.typed.take(pa.array(rows)), stored=self.stored.take(pa.array(rows)))

    def without(self, lines: Iterable[int]) -> FilledRows:
        """The rows that stand on none of these lines."""
        return self.filter(pc.invert(pc.is_in(self.typed.lines, value_set=pa.array(list(lines), pa.int64()))))

    def kept_blobs(self) -> dict[str, RowMask]:
        """Per blob column, the rows whose blob stays."""
        present, type_ = self.typed.present, self.typed.type
        blobs = [prop.column for prop in type_.property_list if prop.type.is_blob]
        if present is None:
            raise AssertionError("partial rows tell what they have")
        return {name: ~present.column(name).to_numpy() for name in blobs}

    def kept_ends(self) -> RowMask | None:
        """The rows of edges whose ends stay; None for nodes."""
        if self.typed.type.kind == "node" or not len(self.typed):
            return None
        rows = self.typed.rows
        return equal_values(rows.column("src"), self.stored.column("src")) & equal_values(
            rows.column("dst"), self.stored.column("dst")
        )

    def equal_mask(self, table: Table, rows: pa.Table) -> RowMask:
        """Which rows say nothing new. `rows` are those of `typed` once vectors and blobs are in place."""
        if not len(self.typed):
            return np.zeros(0, np.bool_)
        kept = self.kept_blobs()
        plain = [name for name in self.written if name not in kept]
        same = equal_rows(table, rows, self.stored, plain, frozenset())
        row_ids = row_ids_of(self.stored)
        for name in self.written:
            if name in kept:
                cells = (rows.column(name), self.stored.column(name), row_ids)
                same &= kept[name] | _equal_blobs(table, name, *cells, same & ~kept[name])
        return same


def fill_partial(
    read_stored: ReadStored, typed: TypedRows, is_computed: Callable[[Property], bool], *, whole: bool = False
) -> FilledRows:
    """Complete partial rows from the store. Ids are distinct, except for a repeated key, which is refused later. Of
    `whole` rows every column is read, and otherwise only those that rules about the written columns need to see."""
    type_, present = typed.type, typed.present
    if present is None:
        raise AssertionError("partial rows tell what they have")
    written = [name for name in present.column_names if pc.any(present.column(name), min_count=0).as_py()]
    vectors = _computed_from(type_, written, is_computed)
    blobs = {prop.column for prop in type_.property_list if prop.type.is_blob}
    written += [vector.column for vector, _ in vectors if vector.column not in written]
    read = rows_schema(type_).names if whole else _columns_to_read(type_, written, vectors)
    columns_to_read = [name for name in read if whole or name not in blobs or name in written]
    parts = [*read_stored(typed.rows.column("id").unique(), columns_to_read)]
    if not parts:
        nothing = TypedRows(type_, rows_schema(type_).empty_table(), typed.lines.slice(0, 0), present.slice(0, 0))
        return FilledRows(nothing, tuple(written), pa.schema([ROW_ID_FIELD]).empty_table(), typed)
    stored = pa.concat_tables(parts)
    at = pc.index_in(whole_array(typed.rows.column("id")), value_set=whole_array(stored.column("id")))
    unknown = typed.filter(at.is_null())
    typed, present = typed.filter(at.is_valid()), present.filter(at.is_valid())
    stored = stored.take(at.drop_null())
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field in typed.rows.schema:
        mine = typed.rows.column(field.name)
        if field.name in blobs or field.name == "id" or field.name not in read:
            columns.append(mine)
        else:
            has = present.column(field.name).to_numpy()
            columns.append(_merge_values(mine, stored.column(field.name).cast(field.type), has))
    rows = pa.table(columns, schema=typed.rows.schema)
    for vector, source in vectors:
        rows = _without_stale(rows, stored, present, vector, source)
    broken = tuple(_changed_keys(typed, rows))
    members = {column for column, _ in type_.key_columns}
    changing = tuple(name for name in written if name not in members)
    return FilledRows(TypedRows(type_, rows, typed.lines, typed.present), changing, stored, unknown, broken)


def _computed_from(
    type_: TableType, written: Sequence[str], is_computed: Callable[[Property], bool]
) -> list[tuple[Property, Property]]:
    """Computed vectors that the written columns concern, each with the text that it is made of."""
    pairs = [(p, type_.properties[p.embed.property]) for p in type_.property_list if p.embed and is_computed(p)]
    return [(vector, source) for vector, source in pairs if {vector.column, source.column} & set(written)]


def _columns_to_read(
    type_: TableType, written: Sequence[str], vectors: Sequence[tuple[Property, Property]]
) -> list[str]:
    """What the rules about the written columns need to see."""
    keys = [column for column, _ in type_.key_columns]
    rules = [[type_.rule_column(name) for name in members] for members in type_.uniques]
    members = [column for rule in rules if set(rule) & set(written) for column in rule]
    pairs = [prop.column for pair in vectors for prop in pair]
    return list(dict.fromkeys([*type_.system_columns, *keys, *members, *pairs, *written]))


def _merge_values(mine: pa.ChunkedArray, stored: pa.ChunkedArray, has: RowMask) -> pa.ChunkedArray:
    """Row by row, the value of a record that has one, or else the stored value."""
    if has.all():
        return mine
    if not has.any():
        return stored
    numbers = np.arange(len(has))
    both = pa.concat_arrays([whole_array(mine), whole_array(stored)])
    return pa.chunked_array([both.take(pa.array(np.where(has, numbers, numbers + len(has))))])


def _without_stale(rows: pa.Table, stored: pa.Table, present: pa.Table, vector: Property, source: Property) -> pa.Table:
    """The rows without the vectors of texts that change, unless their records have vectors: they are computed anew."""
    changed = ~equal_values(rows.column(source.column), stored.column(source.column))
    stale = changed & ~present.column(vector.column).to_numpy()
    index = rows.column_names.index(vector.column)
    numbers = pa.array(np.arange(rows.num_rows), mask=stale)
    return rows.set_column(index, rows.schema.field(index), rows.column(vector.column).take(numbers))


def _changed_keys(typed: TypedRows, rows: pa.Table) -> Iterator[RejectedRow]:
    """The rows whose id and key name different entities."""
    if not typed.type.key or not rows.num_rows:
        return
    ids, canonical = rows.column("id"), key_ids(typed.type, rows)
    for row in np.flatnonzero(pc.not_equal(ids, canonical).to_numpy()).tolist():
        texts = {"given": quote(ids[row].as_py()), "canonical": quote(canonical[row].as_py())}
        line, entity_id = typed.lines[row].as_py(), ids[row].as_py()
        reason, rule = Sentence.OTHER_KEY.text(**texts), Sentence.OTHER_KEY.rule
        yield RejectedRow(line, typed.type_key, "id", reason, Stage.KEYS, rule, entity_id)


def unknown_entity(typed: TypedRows, row: int) -> RejectedRow:
    """The rejection of a partial row that names no stored entity."""
    entity_id, sentence = typed.rows.column("id")[row].as_py(), Sentence.UNKNOWN_ENTITY
    reason = sentence.text(type=typed.type.name, entity_id=entity_id)
    return RejectedRow(typed.lines[row].as_py(), typed.type_key, "id", reason, Stage.KEYS, sentence.rule, entity_id)
