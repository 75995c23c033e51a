"""Committed rows that satisfy the condition of an update or delete, read from the pinned head."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.kernels import Limits
from omnigraph.engine.mutate.conditions import Condition
from omnigraph.engine.publish import WriteTxn
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.storage.tables.reading import identifier, literal


def matching_rows(
    txn: WriteTxn, type_: TableType, condition: Condition, columns: Sequence[str], limits: Limits | None = None
) -> pa.Table:
    """The matching rows, tested a batch at a time, so that a large table costs no more memory than what matches.

    Raises ResourceLimitError as soon as they are more than `limits` allow.
    """
    table = txn.snapshot.table(type_.type_key)
    empty = pa.schema([table.schema.field(name) for name in columns]).empty_table()
    if condition.never_holds or not table.state.rows:
        return empty
    read = list(dict.fromkeys((*columns, condition.column)))
    parts, count, size = [empty], 0, 0
    for batch in table.batches(read, filter=_narrowing(type_, condition)):
        rows = pa.table(batch)
        matching = rows.filter(condition.test(rows.column(condition.column))).select(columns)
        parts.append(matching)
        count, size = count + matching.num_rows, size + matching.nbytes
        if limits is not None:
            refuse_beyond(limits, type_, count, size)
    return pa.concat_tables(parts)


def refuse_beyond(limits: Limits, type_: TableType, count: int, size: int) -> None:
    """What one mutation may hold of one type, stored rows that it rewrites included."""
    remedy = "change fewer at a time, or use the Spark pipeline"
    if count > limits.rows:
        raise ResourceLimitError(f"keyed entities for {type_.type_key}", limits.rows, count, remedy)
    if size > limits.bytes:
        raise ResourceLimitError(f"keyed entity bytes for {type_.type_key}", limits.bytes, size, remedy)


def _narrowing(type_: TableType, condition: Condition) -> str | None:
    """A text key is the id itself, and ids are what every table can look up."""
    key = type_.key if isinstance(type_, NodeType) else ()
    text = condition.equals_text()
    if text is not None and len(key) == 1:
        prop = type_.properties[key[0]]
        if prop.type.is_text and prop.column == condition.column:
            return f"{identifier('id')} = {literal(text)}"
    return condition.narrowing()
