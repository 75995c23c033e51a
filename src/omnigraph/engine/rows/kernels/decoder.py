"""Graph records (NDJSON) and rows of one type (Arrow columns, dictionaries) to typed rows: the first step of a load.

Works block by block, so Python objects exist for one block only, and reads the whole input after a violation: the one
that is raised is the first in stage order. In rows of one type, columns are named like properties; `id` is an id, and
`from` and `to`, or `src` and `dst`, are the ends of an edge. Nothing here knows files or frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.api.enums import Grammar
from omnigraph.api.governance import Limits
from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.rows.kernels.ids import EdgeEnds, Mint, NotANodeError, ends_of_type, new_ulids
from omnigraph.engine.rows.kernels.ndjson import Meter, lenient_blocks, strict_blocks
from omnigraph.engine.rows.kernels.records import EnvelopeReader, Records, RecordTyper, type_batch, type_records
from omnigraph.engine.rows.kernels.source_values import plain_value, plain_values
from omnigraph.engine.rows.kernels.typed_rows import (
    DecodedInput,
    LostValues,
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
) -> DecodedInput:
    """Typed rows of the whole input, or a ConstraintError for its first violation in stage order.

    Value constraints (`@range`, `@check`, enum) are part of it. Raises ResourceLimitError beyond `limits`. `mint`
    makes ids for entities that have none.
    """
    decoder = _Decoder(catalog, grammar, mint, raises=True)
    decoded = decoder.decode(data, limits, 1)
    if decoded.rejected:
        raise first_in_stage_order(decoded.rejected, decoder.types).error(grammar.unit)
    return decoded


def decode_collecting(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar = Grammar.STRICT,
    *,
    limits: Limits = DEFAULT_LIMITS,
    first_line: int = 1,
    mint: Mint = new_ulids,
) -> DecodedInput:
    """As `decode`, but bad rows are left out and listed in `rejected`.

    `first_line` numbers a part of a larger input. Every row that is left is valid by itself.
    """
    return _Decoder(catalog, grammar, mint, raises=False).decode(data, limits, first_line)


class _Decoder:
    def __init__(self, catalog: Catalog, grammar: Grammar, mint: Mint, *, raises: bool) -> None:
        self.types: dict[str, TableType] = {
            **{node.type_key: node for node in catalog.nodes.values()},
            **{edge.type_key: edge for edge in catalog.edges.values()},
        }
        self._grammar = grammar
        self._raises = raises
        self._lost = LostValues()
        self._envelopes = EnvelopeReader(catalog, grammar, self._lost)
        self._rejected: list[RejectedRow] = []
        self._typers = {
            key: RecordTyper(type_, self._rejected, grammar, mint, self._lost) for key, type_ in self.types.items()
        }
        self._parts: dict[str, list[TypedRows]] = {}

    def decode(self, data: bytes | Iterable[bytes], limits: Limits, first: int) -> DecodedInput:
        blocks = (strict_blocks if self._grammar is Grammar.STRICT else lenient_blocks)(data, limits, first)
        for block in blocks:
            rejected = len(self._rejected)
            self._lost.dropped += block.repeated
            sorted_records = self._envelopes.sort(block, self._rejected)
            if self._raises and len(self._rejected) > rejected:
                # Nothing later in the input can come before a bad envelope.
                bad = [row for row in self._rejected[rejected:] if row.stage is Stage.ENVELOPE]
                raise min(bad, key=lambda row: row.line).error(self._grammar.unit)
            for records in sorted_records:
                self._type(records)
        by_type = {key: _join_rows(parts) for key, parts in sorted(self._parts.items())}
        by_type = {key: self._check_constraints(self._remap_endpoints(rows)) for key, rows in by_type.items()}
        lost = self._lost if self._grammar is Grammar.LENIENT else None
        return DecodedInput(by_type, tuple(self._rejected), lost)

    def _type(self, records: Records) -> None:
        key = records.type.type_key
        endpoints = (records.sources, records.targets) if records.type.kind == "edge" else None
        typed = self._typers[key].read(records.members, records.lines, endpoints)
        self._parts.setdefault(key, []).append(typed)

    def _remap_endpoints(self, rows: TypedRows) -> TypedRows:
        """Edges whose endpoints used an old spelling of a key point at the canonical id."""
        edge = rows.type
        if not isinstance(edge, EdgeType):
            return rows
        for column, node in (("src", edge.from_type), ("dst", edge.to_type)):
            respelled = self._typers[f"node:{node}"].respelled
            if respelled:
                index = rows.rows.column_names.index(column)
                ends = [respelled.get(end, end) for end in rows.rows.column(index).to_pylist()]
                table = rows.rows.set_column(index, rows.rows.schema.field(index), pa.array(ends, pa.string()))
                rows = TypedRows(edge, table, rows.lines)
        return rows

    def _check_constraints(self, rows: TypedRows) -> TypedRows:
        broken = check_values(rows)
        self._rejected.extend(broken)
        return rows.without(row.line for row in broken)


def _join_rows(parts: list[TypedRows]) -> TypedRows:
    rows = pa.concat_tables([part.rows for part in parts])
    return TypedRows(parts[0].type, rows, pa.concat_arrays([part.lines for part in parts]))


ENDS: Final = (("from", "to"), ("src", "dst"))
"""What the columns that hold the ends of an edge may be called."""

_ID: Final = PropertyType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some rows with their numbers in the input, and the numbers of those that could not be read, with reasons."""

    rows: pa.RecordBatch | Sequence[object]
    numbers: pa.Array | Sequence[int]
    bad: Sequence[tuple[int, str]] = ()


def ends_of(type_: TableType, columns: Sequence[str], file: str | None = None) -> tuple[str, ...]:
    """The columns that hold the ends of an edge; none for a node. Refuses columns that are not a property: they would
    be lost."""
    where = "" if file is None else f"{file}: "
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise BadRequestError(f"{where}the column '{twice}' is there twice")
    ends: tuple[str, ...] = ()
    if type_.kind == "edge":
        found = next((pair for pair in ENDS if set(pair) <= set(columns)), None)
        if found is None:
            raise BadRequestError(
                f"{where}rows of the edge type {type_.name} need the columns from and to, or src and dst; "
                f"there are {', '.join(columns)}"
            )
        ends = found
    columns_of_type = {"id", *type_.properties}
    for column in columns:
        if column not in ends and column not in columns_of_type:
            hint = did_you_mean(column, columns_of_type)
            raise BadRequestError(
                f"{where}{type_.type_key} has no property for the column '{column}'"
                + (f"; {hint}" if hint else "")
                + "; leave the column out or rename it, here or in a pipeline file (`omnigraph pipeline run`)"
            )
    return ends


def decode_rows(
    type_: TableType,
    blocks: Iterable[RowBlock],
    *,
    catalog: Catalog,
    unit: str,
    limits: Limits,
    mint: Mint,
    file: str | None = None,
) -> DecodedInput:
    """Typed rows of the whole input, or a BadRequestError for its first failure in the order of `decode`.

    `unit` is what the numbers of rows count. Raises ResourceLimitError beyond `limits`.
    """
    unit = unit if file is None else f"{file}, {unit}"
    reader = _RowReader(type_, catalog, mint, file)
    meter = Meter(limits)
    parts: list[TypedRows] = []
    for block in blocks:
        meter.count_rows(len(block.numbers) + len(block.bad))
        if block.bad:
            number, reason = min(block.bad)
            raise RejectedRow(number, None, None, reason, Stage.ENVELOPE, ConstraintRule.RECORD).error(unit)
        parts.append(reader.read(block))
        meter.count_bytes(parts[-1].rows.nbytes)
        if (worst := reader.unreadable()) is not None:
            raise worst.error(unit)
    if reader.rejected:
        raise first_in_stage_order(reader.rejected, {type_.type_key: type_}).error(unit)
    schema = rows_schema(type_)
    rows = pa.concat_tables([part.rows for part in parts]) if parts else schema.empty_table()
    numbers = pa.concat_arrays([part.lines for part in parts]) if parts else pa.array([], pa.int64())
    return DecodedInput({type_.type_key: TypedRows(type_, rows, numbers)})


class _RowReader:
    def __init__(self, type_: TableType, catalog: Catalog, mint: Mint, file: str | None) -> None:
        self._type = type_
        self._catalog = catalog
        self._node_ids = ends_of_type(catalog, type_)
        self._file = file
        self._mint = mint
        self._columns_of_ends: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.rejected: list[RejectedRow] = []

    def unreadable(self) -> RejectedRow | None:
        """The first row that is not a row of the type at all; no later violation can precede it."""
        bad = [row for row in self.rejected if row.stage is Stage.ENVELOPE]
        return min(bad, key=lambda row: row.line, default=None)

    def read(self, block: RowBlock) -> TypedRows:
        if isinstance(block.rows, pa.RecordBatch):
            return self._columns(block.rows, block.numbers)
        return self._records(block.rows, list(block.numbers))

    def _columns(self, batch: pa.RecordBatch, numbers: pa.Array | Sequence[int]) -> TypedRows:
        names = tuple(batch.schema.names)
        if names not in self._columns_of_ends:
            self._columns_of_ends[names] = ends_of(self._type, names, self._file)
        renamed = dict(zip(self._columns_of_ends[names], ENDS[0], strict=False))
        batch = batch.rename_columns([renamed.get(name, name) for name in names])
        return type_batch(self._type, batch, numbers, self.rejected, catalog=self._catalog, mint=self._mint)

    # Dictionaries

    def _records(self, rows: Sequence[object], numbers: list[int]) -> TypedRows:
        records, kept = self._dictionaries(rows, numbers)
        ends: tuple[list[str], list[str]] | None = None
        if self._node_ids is not None:
            records, kept, ends = self._taken_apart(records, kept, self._node_ids)
        members = self._plain(records)
        try:
            typed = self._type_rows(members, kept, ends)
        except UnicodeEncodeError:
            whole = [row for row in range(len(members)) if not self._holds_half_a_character(members, ends, row, kept)]
            ends = None if ends is None else ([ends[0][row] for row in whole], [ends[1][row] for row in whole])
            typed = self._type_rows([members[row] for row in whole], [kept[row] for row in whole], ends)
        broken = check_values(typed)
        self.rejected.extend(broken)
        return typed.without(row.line for row in broken)

    def _type_rows(
        self, members: Sequence[Mapping[str, object]], numbers: list[int], ends: tuple[list[str], list[str]] | None
    ) -> TypedRows:
        rejected: list[RejectedRow] = []
        typed = type_records(self._type, members, numbers, rejected, endpoints=ends, mint=self._mint)
        self.rejected.extend(rejected)
        return typed

    def _dictionaries(
        self, rows: Sequence[object], numbers: list[int]
    ) -> tuple[Sequence[Mapping[str, object]], list[int]]:
        if set(map(type, rows)) <= {dict} and set(map(type, set().union(*rows))) <= {str}:  # type: ignore[arg-type]
            return rows, numbers  # type: ignore[return-value]
        good: list[Mapping[str, object]] = []
        kept: list[int] = []
        for number, row in zip(numbers, rows, strict=True):
            if isinstance(row, Mapping) and all(isinstance(name, str) for name in row):
                good.append(row)
                kept.append(number)
            else:
                self._reject(number, None, Sentence.NO_ROW, type=self._type.name, shape=shape_of(row))
        return good, kept

    def _taken_apart(
        self, records: Sequence[Mapping[str, object]], numbers: list[int], node_ids: EdgeEnds
    ) -> tuple[Sequence[Mapping[str, object]], list[int], tuple[list[str], list[str]]]:
        """Edges as their properties and their two ends; rows that lack an end are refused."""
        rest: list[Mapping[str, object]] = []
        kept: list[int] = []
        ends: tuple[list[str], list[str]] = ([], [])
        for number, record in zip(numbers, records, strict=True):
            names = next((pair for pair in ENDS if pair[0] in record or pair[1] in record), ENDS[0])
            if (absent := next((name for name in names if name not in record), None)) is not None:
                self._reject(number, absent, Sentence.NO_NODE_ID, name=absent, shape="nothing")
                continue
            found: list[str] = []
            try:
                for name, end in zip(names, node_ids, strict=True):
                    found.append(end.id_of_python(record[name]))
            except NotANodeError as error:
                name = names[len(found)]
                self._reject(number, name, error.sentence, **{**error.values, "name": name})
                continue
            rest.append({name: value for name, value in record.items() if name not in names})
            kept.append(number)
            ends[0].append(found[0])
            ends[1].append(found[1])
        return rest, kept, ends

    def _plain(self, records: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
        """The same rows with values as JSON has them. An `id` that is null is none."""
        names: set[str] = set().union(*records)
        changed: dict[str, Sequence[object]] = {}
        for prop in self._type.property_list:
            if prop.name in names:
                values = [record.get(prop.name) for record in records]
                plain = plain_values(prop.type, values)
                if plain is not values:
                    changed[prop.name] = plain
        if "id" in names:
            changed["id"] = [_as_id(record.get("id")) for record in records]
        if not changed:
            return records
        return [
            {
                name: changed[name][row] if name in changed else value
                for name, value in record.items()
                if name != "id" or changed["id"][row] is not None
            }
            for row, record in enumerate(records)
        ]

    def _holds_half_a_character(
        self,
        members: Sequence[Mapping[str, object]],
        ends: tuple[list[str], list[str]] | None,
        row: int,
        numbers: list[int],
    ) -> bool:
        named = {} if ends is None else dict(zip(ENDS[0], (ends[0][row], ends[1][row]), strict=True))
        for name, value in {**members[row], **named}.items():
            if LONE_SURROGATE.search(name) or LONE_SURROGATE.search(str(value)):
                text = Sentence.LONE_SURROGATE.text(property=name.encode(errors="backslashreplace").decode())
                rule = Sentence.LONE_SURROGATE.rule
                key = self._type.type_key
                self.rejected.append(RejectedRow(numbers[row], key, name, text, Stage.VALUES, rule))
                return True
        return False

    def _reject(self, number: int, member: str | None, sentence: Sentence, **values: object) -> None:
        key, text = self._type.type_key, sentence.text(**values)
        self.rejected.append(RejectedRow(number, key, member, text, Stage.ENVELOPE, sentence.rule))


def _as_id(value: object) -> object:
    """An id as text. An integer names the node whose key has that value."""
    value = plain_value(_ID, value)
    return str(value) if type(value) is int else value
