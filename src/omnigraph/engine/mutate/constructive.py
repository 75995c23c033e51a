"""Inserts and updates of one mutation, statement after statement, over the pinned head.

Later statements see earlier ones: an update tests stored rows as this mutation has left them. Whether the result is
allowed is decided afterwards, once, on the final image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.change import GraphChange
from omnigraph.engine.kernels import Limits, RejectedRow, TypedRows, type_records
from omnigraph.engine.mutate.cells import evaluate
from omnigraph.engine.mutate.conditions import Condition
from omnigraph.engine.mutate.pending import PendingRows
from omnigraph.engine.mutate.stored import matching_rows, refuse_beyond
from omnigraph.engine.publish import WriteTxn
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue

_UNIT = "statement"


class Construction:
    """The state of a mutation that makes things."""

    def __init__(self, txn: WriteTxn, values: Mapping[str, BoundValue], limits: Limits) -> None:
        self._txn = txn
        self._values = values
        self._limits = limits
        self._pending: dict[str, PendingRows] = {}
        self.affected_nodes = 0
        self.affected_edges = 0
        self.tables_read: set[str] = set()

    def run(self, statements: Iterable[ir.WriteStatement]) -> None:
        for number, statement in enumerate(statements, start=1):
            match statement:
                case ir.InsertNode():
                    self._insert_node(statement, number)
                case ir.InsertEdge():
                    self._insert_edge(statement, number)
                case ir.UpdateNodes():
                    self._update(statement, number)
                case _:
                    raise AssertionError("deletes never share a mutation with inserts and updates")

    def change(self) -> GraphChange:
        return GraphChange({key: pending.change() for key, pending in self._pending.items() if len(pending)})

    def _insert_node(self, insert: ir.InsertNode, number: int) -> None:
        rows = self._typed(insert.type, insert.assignments, number)
        self._pending_of(insert.type).insert(rows, number)
        self.affected_nodes += 1

    def _insert_edge(self, insert: ir.InsertEdge, number: int) -> None:
        ends = []
        for end, value in (("from", insert.source), ("to", insert.target)):
            node_id = evaluate(value, self._values)
            if not isinstance(node_id, str):
                raise BadRequestError(f"{_UNIT} {number}: {insert.type.type_key}: '{end}' must be a node id, got null")
            ends.append([node_id])
        rows = self._typed(insert.type, insert.assignments, number, endpoints=(ends[0], ends[1]))
        self._pending_of(insert.type).insert(rows, number)
        self.affected_edges += 1

    def _update(self, update: ir.UpdateNodes, number: int) -> None:
        condition = Condition(update.where, evaluate(update.where.value, self._values))
        assigned = self._typed(_only_assigned(update), update.assignments, number).drop_columns(["id"])
        pending = self._pending_of(update.type)
        self.tables_read.add(update.type.type_key)
        stored = matching_rows(self._txn, update.type, condition, pending.stored_columns, self._limits)
        stored = stored.filter(pc.invert(pending.holds(stored.column("id"))))
        self.affected_nodes += pending.update(condition, stored, assigned, number)
        refuse_beyond(self._limits, update.type, len(pending), pending.nbytes)

    def _typed(
        self,
        type_: TableType,
        assignments: Sequence[ir.Assign],
        number: int,
        endpoints: tuple[Sequence[str], Sequence[str]] | None = None,
    ) -> pa.Table:
        """One row of the assigned values in their stored types, or the reason why there is none."""
        record = {assign.property.name: evaluate(assign.value, self._values) for assign in assignments}
        rejected: list[RejectedRow] = []
        typed: TypedRows = type_records(type_, [record], [number], rejected, endpoints=endpoints)
        if rejected:
            raise min(rejected, key=lambda row: row.stage).error(_UNIT)
        return typed.rows

    def _pending_of(self, type_: TableType) -> PendingRows:
        return self._pending.setdefault(type_.type_key, PendingRows(type_))


def _only_assigned(update: ir.UpdateNodes) -> NodeType:
    """The updated type reduced to what an update assigns, so that the rules of its values apply and no others."""
    assigned = tuple(assign.property for assign in update.assignments)
    return msgspec.structs.replace(update.type, property_list=assigned, key=())
