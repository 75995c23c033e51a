"""Graph records (NDJSON) and rows of one type (Arrow columns, dictionaries) to typed rows: the first step of a load.

Works block by block, so Python objects exist for one block only, and reads the whole input after a violation: the one
that is raised is the first in stage order. In rows of one type, columns are named like properties; `id` is an id, and
`from` and `to`, or `src` and `dst`, are the ends of an edge. Nothing here knows files or frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from typing import Final, TypeVar

import pyarrow as pa

from omnigraph.api.enums import Grammar
from omnigraph.api.governance import Limits
from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.rows.end_ids import interface_ends, stored_id
from omnigraph.engine.rows.kernels.ids import EdgeEnds, EndpointIds, EnvelopeError, Mint, edge_ends, new_ulids
from omnigraph.engine.rows.kernels.json_columns import JsonColumns
from omnigraph.engine.rows.kernels.ndjson import Block, Meter, lenient_blocks, line_chunks, strict_blocks
from omnigraph.engine.rows.kernels.records import EnvelopeReader, Records, RecordTyper, type_batch
from omnigraph.engine.rows.kernels.source_values import plain_value, plain_values
from omnigraph.engine.rows.kernels.spool import RowSpool
from omnigraph.engine.rows.kernels.typed_rows import (
    DecodedInput,
    LostValues,
    RecordForm,
    RejectedRow,
    Stage,
    TypedRows,
    check_values,
    first_in_stage_order,
)
from omnigraph.errors import BadRequestError, ConstraintRule
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.source import LONE_SURROGATE, did_you_mean
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import shape_of
from omnigraph.language.violations import Sentence

DEFAULT_LIMITS = Limits()


def decode(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar = Grammar.STRICT,
    *,
    limits: Limits = DEFAULT_LIMITS,
    mint: Mint = new_ulids,
    form: RecordForm = RecordForm.WHOLE,
    threads: int = 1,
) -> DecodedInput:
    """Typed rows of the whole input, or a ConstraintError for its first violation in stage order, value constraints
    included. Raises ResourceLimitError beyond `limits`. `mint` makes ids for entities that have none. What comes out
    does not depend on the number of `threads`."""
    decoded = _decode(data, catalog, grammar, limits, mint, form, threads)
    if decoded.rejected:
        types: dict[str, TableType] = {type_.type_key: type_ for type_ in _table_types(catalog)}
        raise first_in_stage_order(decoded.rejected, types).error(grammar.unit)
    return decoded


def decode_collecting(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar = Grammar.STRICT,
    *,
    limits: Limits = DEFAULT_LIMITS,
    mint: Mint = new_ulids,
    form: RecordForm = RecordForm.WHOLE,
) -> DecodedInput:
    """As `decode`, but bad rows are left out and listed in `rejected`. Every row that is left is valid by itself."""
    return _decode(data, catalog, grammar, limits, mint, form, threads=0)


def _decode(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar,
    limits: Limits,
    mint: Mint,
    form: RecordForm,
    threads: int,
) -> DecodedInput:
    """With `threads` it raises for a bad envelope, and else collects those, too."""
    rejected: list[RejectedRow] = []
    lost = LostValues()
    envelopes = EnvelopeReader(catalog, grammar, lost, form)
    typers = {
        type_.type_key: RecordTyper(type_, rejected, grammar, mint, lost, form=form) for type_ in _table_types(catalog)
    }
    spool = RowSpool()
    columns = JsonColumns(catalog, form, mint) if grammar is Grammar.STRICT and threads else None
    for block in _typed_or_values(data, grammar, limits, columns, threads):
        if isinstance(block, TypedRows):
            spool.add(block)
            continue
        before = len(rejected)
        lost.dropped += block.repeated
        by_type = envelopes.sort(block, rejected)
        if threads and len(rejected) > before:
            # Nothing later in the input can come before a bad envelope.
            raise min(rejected[before:], key=lambda row: row.line).error(grammar.unit)
        for records in by_type:
            spool.add(_without_forbidden(typers[records.type.type_key].read(records), rejected))
    typed = {key: _remap_endpoints(rows, typers) for key, rows in spool.rows_by_type().items()}
    return DecodedInput(typed, tuple(rejected), lost if grammar is Grammar.LENIENT else None)


def _typed_or_values(
    data: bytes | Iterable[bytes], grammar: Grammar, limits: Limits, columns: JsonColumns | None, threads: int
) -> Iterator[TypedRows | Block]:
    """The input in order: rows of blocks that were read as columns, and the values of all others."""
    if columns is None:
        yield from (strict_blocks if grammar is Grammar.STRICT else lenient_blocks)(data, limits)
        return
    meter = Meter(limits)
    for chunk, typed in read_ahead(columns.read, line_chunks(data, meter), threads):
        if typed is None:
            yield chunk.read(meter)
        else:
            meter.count_rows(chunk.lines)
            yield typed


Item = TypeVar("Item")
Result = TypeVar("Result")


def read_ahead(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[tuple[Item, Result]]:
    """Items with the results of some work, in their order. With several threads the next items are worked on meanwhile;
    an error of the items comes when those before it were taken."""
    if threads <= 1:
        for item in items:
            yield item, work(item)
        return
    pending: deque[tuple[Item, Future[Result]]] = deque()
    rest = iter(items)
    failure: Exception | None = None
    with ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-decode") as workers:
        try:
            while True:
                while failure is None and len(pending) <= threads:
                    try:
                        item = next(rest)
                    except Exception as error:  # StopIteration, too
                        failure = error
                    else:
                        pending.append((item, workers.submit(work, item)))
                if not pending:
                    break
                item, result = pending.popleft()
                yield item, result.result()
        finally:
            for _, result in pending:
                result.cancel()
    if failure is not None and not isinstance(failure, StopIteration):
        raise failure


def _table_types(catalog: Catalog) -> Iterator[TableType]:
    yield from catalog.nodes.values()
    yield from catalog.edges.values()


def _remap_endpoints(rows: TypedRows, typers: Mapping[str, RecordTyper]) -> TypedRows:
    """Edges whose endpoints used an old spelling of a key point at the canonical id."""
    edge, table = rows.type, rows.rows
    if not isinstance(edge, EdgeType):
        return rows
    for end in edge.ends:
        for node in end.types:
            if respelled := typers[f"node:{node}"].respelled:
                stored = {stored_id(end, node, old): stored_id(end, node, new) for old, new in respelled.items()}
                ids = [stored.get(node_id, node_id) for node_id in table.column(end.column).to_pylist()]
                index = table.column_names.index(end.column)
                table = table.set_column(index, table.schema.field(index), pa.array(ids, pa.string()))
    return rows.with_rows(table)


def _without_forbidden(rows: TypedRows, rejected: list[RejectedRow]) -> TypedRows:
    broken = check_values(rows)
    rejected.extend(broken)
    return rows.without(row.line for row in broken)


ENDS: Final = (("from", "to"), ("src", "dst"))
"""What the columns that hold the ends of an edge may be called."""


def end_names(type_: TableType) -> list[tuple[str, str]]:
    """What the columns that hold the ends of these edges may be called: nothing that is a property."""
    return [pair for pair in ENDS if type_.properties.keys().isdisjoint(pair)]


def _row_end(end: EndpointIds, record: Mapping[str, object], name: str) -> str | None:
    """The end that a row calls `name`, with its type if the row gives one; None where a partial row leaves it out."""
    type_name = record.get(f"{name}_type") if end.is_interface else None
    if name not in record and type_name is not None:
        raise end.type_alone()
    return (end if type_name is None else end.of_type(type_name)).id_of_python(record[name]) if name in record else None


def _names_in(type_: TableType, names: Collection[str]) -> tuple[str, ...]:
    """What a record calls the ends of an edge, if it has one of them, or the type of one."""
    columns = [end.column for end in interface_ends(type_)]
    for pair in end_names(type_):
        types = [f"{name}_type" for name, column in zip(pair, ENDS[1], strict=True) if column in columns]
        if any(name in names for name in (*pair, *types)):
            return pair
    return ()


_ID: Final = PropertyType(Scalar.STRING)


def ends_of(
    type_: TableType, columns: Sequence[str], file: str | None = None, form: RecordForm = RecordForm.WHOLE
) -> dict[str, str]:
    """What the columns that hold the ends of an edge, and the types of ends that are interfaces, are in a record; none
    for a node, or where partial records leave both out. Refuses columns that are not a property: they would be lost."""
    where = "" if file is None else f"{file}: "
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise BadRequestError(f"{where}the column '{twice}' is there twice")
    ends: dict[str, str] = {}
    if isinstance(type_, EdgeType):
        end_columns: tuple[str, ...] | None
        if form is RecordForm.PARTIAL:
            end_columns = _names_in(type_, columns)
        else:
            end_columns = next((pair for pair in end_names(type_) if set(pair) <= set(columns)), None)
        if end_columns is None:
            raise BadRequestError(
                f"{where}rows of the edge type {type_.name} need the columns "
                f"{', or '.join(' and '.join(pair) for pair in end_names(type_))}; "
                f"there are {', '.join(columns)}"
            )
        for column, end in zip(end_columns, type_.ends, strict=False):
            type_column = f"{column}_type"
            if column in columns:
                ends[column] = end.name
            if end.interface is not None and type_column in columns:
                if column not in columns:
                    reason = Sentence.END_TYPE_ALONE.text(name=type_column, end=column)
                    raise BadRequestError(f"{where}{reason}")
                ends[type_column] = f"{end.name}_type"
    columns_of_type = {type_.system_name("id"), *type_.properties}
    unknown = next((column for column in columns if column not in ends and column not in columns_of_type), None)
    if unknown is not None:
        hint = did_you_mean(unknown, columns_of_type)
        raise BadRequestError(
            f"{where}{type_.type_key} has no property for the column '{unknown}'{f'; {hint}' if hint else ''}; "
            "leave the column out or rename it, here or in a pipeline file (`omnigraph pipeline run`)"
        )
    return ends


def decode_rows(
    type_: TableType,
    blocks: Iterable[Block],
    catalog: Catalog,
    unit: str,
    limits: Limits,
    mint: Mint,
    file: str | None,
    form: RecordForm = RecordForm.WHOLE,
) -> DecodedInput:
    """Typed rows of the whole input, or a BadRequestError for its first failure in the order of `decode`. Messages say
    `unit` before the number of a row. Raises ResourceLimitError beyond `limits`."""
    reader = _RowReader(type_, catalog, mint, file, form)
    meter = Meter(limits)
    spool = RowSpool()
    spool.add(TypedRows(type_, rows_schema(type_).empty_table(), pa.array([], pa.int64())))
    for block in blocks:
        meter.count_rows(len(block.positions) + len(block.malformed))
        if block.malformed:
            number, reason = min(block.malformed)
            raise RejectedRow(number, None, None, reason, Stage.ENVELOPE, ConstraintRule.RECORD).error(unit)
        rows = reader.read(block)
        meter.count_bytes(rows.rows.nbytes)
        spool.add(rows)
        # No later violation can precede a row that is not a row of the type at all.
        if unreadable := [row for row in reader.rejected if row.stage is Stage.ENVELOPE]:
            raise min(unreadable, key=lambda row: row.line).error(unit)
    if reader.rejected:
        raise first_in_stage_order(reader.rejected, {type_.type_key: type_}).error(unit)
    return DecodedInput(spool.rows_by_type())


class _RowReader:
    def __init__(self, type_: TableType, catalog: Catalog, mint: Mint, file: str | None, form: RecordForm) -> None:
        self._type = type_
        self._form = form
        self._catalog = catalog
        self._node_ids = edge_ends(catalog, type_) if isinstance(type_, EdgeType) else None
        self._file = file
        self._typer = RecordTyper(type_, rejected=[], mint=mint, form=form)
        self._columns_of_ends: dict[tuple[str, ...], dict[str, str]] = {}
        self.rejected = self._typer.rejected

    def read(self, block: Block) -> TypedRows:
        if not isinstance(block.values, pa.RecordBatch):
            return self._records(block.values, block.positions)
        names = tuple(block.values.schema.names)
        if names not in self._columns_of_ends:
            self._columns_of_ends[names] = ends_of(self._type, names, self._file, self._form)
        renamed = self._columns_of_ends[names]
        batch = block.values.rename_columns([renamed.get(name, name) for name in names])
        return type_batch(
            self._type,
            batch,
            block.positions,
            self.rejected,
            catalog=self._catalog,
            mint=self._typer.mint,
            form=self._form,
        )

    def _records(self, rows: Sequence[object], numbers: Sequence[int]) -> TypedRows:
        records = self._dictionaries(rows, numbers)
        if self._node_ids is not None:
            records = self._take_apart(records, self._node_ids)
        records.members = self._plain(records.members)
        try:
            typed = self._typer.read(records)
        except UnicodeEncodeError:
            typed = self._typer.read(self._without_lone_surrogates(records))
        return _without_forbidden(typed, self.rejected)

    def _dictionaries(self, rows: Sequence[object], numbers: Sequence[int]) -> Records:
        if set(map(type, rows)) <= {dict} and set(map(type, set().union(*rows))) <= {str}:  # type: ignore[arg-type]
            return Records(self._type, list(numbers), rows)  # type: ignore[arg-type]
        good = Records(self._type)
        for number, row in zip(numbers, rows, strict=True):
            if isinstance(row, Mapping) and all(isinstance(name, str) for name in row):
                good.add(number, row)
            else:
                self._reject(Stage.ENVELOPE, number, None, Sentence.NO_ROW, type=self._type.name, shape=shape_of(row))
        return good

    def _take_apart(self, records: Records, node_ids: EdgeEnds) -> Records:
        """Edges as their properties and their two ends; rows that lack an end are refused, unless they are partial."""
        if (plain := self._take_plain_apart(records, node_ids)) is not None:
            return plain
        edges, is_partial = Records(self._type), self._form is RecordForm.PARTIAL
        for number, record in zip(records.lines, records.members, strict=True):
            names = _names_in(self._type, record) or ENDS[0]
            if not is_partial and (absent := next((name for name in names if name not in record), None)) is not None:
                self._reject(Stage.ENVELOPE, number, absent, Sentence.NO_NODE_ID, name=absent, shape="nothing")
                continue
            try:
                source, target = (_row_end(end, record, name) for end, name in zip(node_ids, names, strict=True))
            except EnvelopeError as error:
                end, _, suffix = str(error.values["name"]).partition("_")
                own = names[ENDS[0].index(end)]
                name = own + (f"_{suffix}" if suffix else "")
                values = {**error.values, "name": name, "end": own}
                self._reject(Stage.ENVELOPE, number, name, error.sentence, **values)
                continue
            taken = {*names, *(f"{n}_type" for end, n in zip(node_ids, names, strict=True) if end.is_interface)}
            rest = {name: value for name, value in record.items() if name not in taken}
            edges.add(number, rest, (source, target))
        return edges

    def _take_plain_apart(self, records: Records, node_ids: EdgeEnds) -> Records | None:
        """The same for rows that have equal members, and texts that are ids at both ends; None for any other rows."""
        members = records.members
        if not members or not all(end.takes_any_text and not end.is_interface for end in node_ids):
            return None
        names = members[0].keys()
        pair = _names_in(self._type, names)
        if len(pair) != len(node_ids) or not names >= set(pair) or not all(row.keys() == names for row in members):
            return None
        source, target = (list(map(itemgetter(name), members)) for name in pair)
        if set(map(type, source)) | set(map(type, target)) != {str}:
            return None
        others = [name for name in names if name not in pair]
        rest: list[Mapping[str, object]] = [{name: row[name] for name in others} for row in members]
        return Records(self._type, records.lines, rest, source, target)

    def _plain(self, records: list[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """The same rows with values as JSON has them. An id that is null is none."""
        names: set[str] = set().union(*records)
        identity = self._type.system_name("id")
        changed: dict[str, Sequence[object]] = {}
        for prop in self._type.property_list:
            if prop.name in names:
                values = [record.get(prop.name) for record in records]
                plain = plain_values(prop.type, values)
                if plain is not values:
                    changed[prop.name] = plain
        if identity in names:
            ids = (plain_value(_ID, record.get(identity)) for record in records)
            # An integer is the id of the node whose key has that value.
            changed[identity] = [str(value) if type(value) is int else value for value in ids]
        if not changed:
            return records
        return [
            {
                name: changed[name][row] if name in changed else value
                for name, value in record.items()
                if name != identity or changed[identity][row] is not None
            }
            for row, record in enumerate(records)
        ]

    def _without_lone_surrogates(self, records: Records) -> Records:
        whole = Records(self._type)
        pairs: Sequence[tuple[str | None, str | None] | None]
        pairs = list(zip(records.sources, records.targets, strict=True)) or [None] * len(records.lines)
        for line, members, ends in zip(records.lines, records.members, pairs, strict=True):
            values = {**members, **dict(zip(ENDS[0], ends or (), strict=False))}
            broken = (n for n, value in values.items() if LONE_SURROGATE.search(n) or LONE_SURROGATE.search(str(value)))
            if (name := next(broken, None)) is None:
                whole.add(line, members, ends)
            else:
                shown = name.encode(errors="backslashreplace").decode()
                self._reject(Stage.VALUES, line, name, Sentence.LONE_SURROGATE, property=shown)
        return whole

    def _reject(self, stage: Stage, number: int, member: str | None, sentence: Sentence, /, **values: object) -> None:
        self.rejected.append(RejectedRow.of(number, self._type.type_key, member, stage, sentence, **values))
