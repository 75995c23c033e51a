"""NDJSON graph batches to typed rows per type: the first step of every load.

Works block by block, so that Python objects exist for one block only, and goes on after a violation until the whole
input is read: the violation that is raised is the first in stage order, wherever it stands in the input.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from omnigraph.api.enums import Grammar
from omnigraph.api.governance import Limits
from omnigraph.engine.rows.kernels.envelope import EnvelopeReader, Records
from omnigraph.engine.rows.kernels.framing import lenient_blocks, strict_blocks
from omnigraph.engine.rows.kernels.ids import Mint, new_ulids
from omnigraph.engine.rows.kernels.rows import (
    DecodedInput,
    LostValues,
    RejectedRow,
    Stage,
    TypedRows,
    first_in_stage_order,
)
from omnigraph.engine.rows.kernels.typed import RecordTyper
from omnigraph.engine.rows.kernels.values import check_values
from omnigraph.language.catalog import Catalog, EdgeType, TableType

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
            found = len(self._rejected)
            self._lost.dropped += block.repeated
            sorted_records = self._envelopes.sort(block, self._rejected)
            if self._raises and len(self._rejected) > found:
                # Nothing later in the input can come before a bad envelope.
                bad = [row for row in self._rejected[found:] if row.stage is Stage.ENVELOPE]
                raise min(bad, key=lambda row: row.line).error(self._grammar.unit)
            for records in sorted_records:
                self._type(records)
        by_type = {key: _joined(parts) for key, parts in sorted(self._parts.items())}
        by_type = {key: self._constrained(self._remapped(rows)) for key, rows in by_type.items()}
        lost = self._lost if self._grammar is Grammar.LENIENT else None
        return DecodedInput(by_type, tuple(self._rejected), lost)

    def _type(self, records: Records) -> None:
        key = records.type.type_key
        endpoints = (records.sources, records.targets) if records.type.kind == "edge" else None
        typed = self._typers[key].read(records.members, records.lines, endpoints)
        self._parts.setdefault(key, []).append(typed)

    def _remapped(self, rows: TypedRows) -> TypedRows:
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

    def _constrained(self, rows: TypedRows) -> TypedRows:
        broken = check_values(rows)
        self._rejected.extend(broken)
        return rows.without(row.line for row in broken)


def _joined(parts: list[TypedRows]) -> TypedRows:
    rows = pa.concat_tables([part.rows for part in parts])
    return TypedRows(parts[0].type, rows, pa.concat_arrays([part.lines for part in parts]))
