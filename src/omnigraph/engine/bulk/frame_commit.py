"""A commit of fragments that other processes wrote for one type, checked in this process by the constraint stage.

For a sink whose committing process has no data plane to join with: the ids, endpoints and unique values of the new
rows are read back and checked like those of a load, within the limits of a load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.pinned_table import PinnedTable
from omnigraph.engine.bulk.places import PLACE, by_fragment
from omnigraph.engine.rows.columns import column_of, table_schema
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.constraints import FinalImage, check_constraints
from omnigraph.engine.write.constraints.identity import refuse_repeated_ids, taken_id
from omnigraph.engine.write.publish import PublishPlan, WriteTxn
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.fragments import FragmentStaging, fragments_of
from omnigraph.storage.tables.rows import ROW_ADDRESS


@dataclass(frozen=True, slots=True)
class FrameCommit:
    """Fragments of one type, in input order, as `RemoteTable.write` made them."""

    type: TableType
    mode: LoadMode
    fragments: Sequence[str]

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        mode, key = self.mode, self.type.type_key
        replaces = mode is LoadMode.OVERWRITE
        base = txn.state(key)
        staging = FragmentStaging(txn.root.reader, txn.root.trace)
        staged = staging.add_fragments(base, self.fragments, replaces=replaces).state
        known = set() if replaces else {f.file for f in fragments_of(txn.root.reader.open(base))}
        incoming = PinnedTable.of(txn.resources, staged).only(lambda fragment: fragment.file not in known)
        if incoming.rows > txn.resources.limits.rows:
            raise ResourceLimitError(
                "rows of one DataFrame write",
                txn.resources.limits.rows,
                incoming.rows,
                "use omnigraph.pipeline.write_frame, which has no such limit",
            )
        rows = _narrow_rows(incoming, self.type)
        superseded: list[int] = []
        if mode is LoadMode.MERGE:
            rows, superseded = _last_per_id(rows)
        change = TypeChange(self.type, rows, replaces=replaces, fresh=mode is LoadMode.APPEND)
        read_set = check_constraints(FinalImage(txn, GraphChange.of(change)), [change])
        if mode is not LoadMode.MERGE:
            refuse_repeated_ids(key, rows.column("id"))
        replaced = [] if replaces else self._stored_places(txn, base, rows)
        gone = by_fragment([*superseded, *replaced])
        remaining = {fragment: incoming.remote.without_rows(fragment, offsets) for fragment, offsets in gone.items()}
        final = staging.without_rows(staged, remaining)
        counts = ChangeCounts(
            inserted=rows.num_rows - len(replaced), updated=len(replaced), deleted=base.rows if replaces else 0
        )
        return PublishPlan(staged={key: StagedTable(final.state, counts)}, read_set=read_set)

    def _stored_places(self, txn: WriteTxn, base: TableState, rows: pa.Table) -> list[int]:
        """Where ids of the new rows are stored already; an error for an append."""
        table = txn.root.reader.open(base)
        stored = table.rows_among("id", rows.column("id").to_pylist(), ["id", ROW_ADDRESS])
        if stored.num_rows and self.mode is LoadMode.APPEND:
            raise taken_id(self.type.type_key, min(stored.column("id").to_pylist()))
        places: list[int] = stored.column(ROW_ADDRESS).to_pylist()
        return places


def _narrow_rows(incoming: PinnedTable, type_: TableType) -> pa.Table:
    """The columns that constraints look at, with the place of each row."""
    members = {name for rule in type_.uniques for name in rule}
    if isinstance(type_, NodeType):
        members |= set(type_.key)
    columns = [*type_.system_columns, *(column_of(type_, name) or name for name in sorted(members))]
    wanted = list(dict.fromkeys(columns))
    batches = list(incoming.remote.scan(incoming.fragment_ids, wanted, places=True)) if incoming.fragments else []
    if batches:
        return pa.Table.from_batches(batches)
    schema = table_schema(type_)
    return pa.schema([*(schema.field(name) for name in wanted), pa.field(PLACE, pa.int64())]).empty_table()


def _last_per_id(rows: pa.Table) -> tuple[pa.Table, list[int]]:
    """The last row of every id, and the places of the others."""
    numbered = rows.append_column("#", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by("id").aggregate([("#", "max")]).column("#_max").combine_chunks()
    if len(last) == rows.num_rows:
        return rows, []
    kept = pc.is_in(numbered.column("#"), value_set=last)
    return rows.filter(kept), rows.filter(pc.invert(kept)).column(PLACE).to_pylist()
