"""Committed rows that satisfy the condition of an update or delete, read from the pinned head."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.mutate.conditions import Condition
from omnigraph.engine.publish import WriteTxn
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.storage.tables.reading import identifier, literal


def matching_rows(txn: WriteTxn, type_: TableType, condition: Condition, columns: Sequence[str]) -> pa.Table:
    """The matching rows, a batch at a time, so that a condition that only a scan can answer holds little memory."""
    table = txn.snapshot.table(type_.type_key)
    empty = pa.schema([table.schema.field(name) for name in columns]).empty_table()
    if condition.never_holds or not table.state.rows:
        return empty
    read = list(dict.fromkeys((*columns, condition.column)))
    parts = [empty]
    for batch in table.batches(read, filter=_narrowing(type_, condition)):
        rows = pa.table(batch)
        parts.append(rows.filter(condition.test(rows.column(condition.column))).select(columns))
    return pa.concat_tables(parts)


def _narrowing(type_: TableType, condition: Condition) -> str | None:
    """A text key is the id itself, and ids are what every table can look up."""
    key = type_.key if isinstance(type_, NodeType) else ()
    text = condition.equals_text()
    if text is not None and len(key) == 1:
        prop = type_.properties[key[0]]
        if prop.type.is_text and prop.column == condition.column:
            return f"{identifier('id')} = {literal(text)}"
    return condition.narrowing()
