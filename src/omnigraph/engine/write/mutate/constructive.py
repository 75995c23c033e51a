"""Inserts and updates of one mutation, statement after statement, over the pinned head.

Later statements see earlier ones: the predicate of an update is tested on stored rows as this mutation has left them.
Constraints are checked afterwards, once, on the final image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.governance import Limits
from omnigraph.engine.rows.columns import rows_field
from omnigraph.engine.rows.kernels import RejectedRow, Stage, type_records
from omnigraph.engine.rows.kernels.endpoints import EdgeEnds, EndpointIds, NotANodeError, edge_ends
from omnigraph.engine.write.author_sight import AuthorSight
from omnigraph.engine.write.change import GraphChange
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.mutate.cells import evaluate
from omnigraph.engine.write.mutate.conditions import Condition
from omnigraph.engine.write.mutate.inserts import UNIT, WaitingInserts, refuse_first
from omnigraph.engine.write.mutate.pending import PendingRows
from omnigraph.engine.write.mutate.stored import StoredRows, refuse_beyond
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.language.catalog import NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue


class Construction:
    """The state of a mutation that inserts and updates."""

    def __init__(
        self,
        txn: WriteTxn,
        values: Mapping[str, BoundValue],
        limits: Limits,
        sight: AuthorSight,
        vectors: OnWriteVectors,
    ) -> None:
        self._txn = txn
        self._sight = sight
        self._values = values
        self._limits = limits
        self._vectors = vectors
        self._waiting = WaitingInserts(vectors.fillable)
        self._pending: dict[str, PendingRows] = {}
        self._ends: dict[str, EdgeEnds] = {}
        self.affected_nodes = 0
        self.affected_edges = 0
        self.tables_read: set[str] = set()

    def run(self, statements: Sequence[ir.WriteStatement]) -> None:
        conditions = list(self._conditions(statements))
        stored = StoredRows(self._txn, conditions, self._limits)
        conditions_left = iter(conditions)
        for number, statement in enumerate(statements, start=1):
            match statement:
                case ir.InsertNode():
                    self._waiting.add(statement.type, self._record(statement.assignments), number)
                    self.affected_nodes += 1
                case ir.InsertEdge():
                    ends = self._node_ids(statement, number)
                    self._waiting.add(statement.type, self._record(statement.assignments), number, ends)
                    self.affected_edges += 1
                case ir.UpdateNodes():
                    self._settle_inserts()
                    _, condition = next(conditions_left)
                    self._update(statement, number, condition, stored)
                case _:
                    raise AssertionError("deletes never share a mutation with inserts and updates")
        self._settle_inserts()

    def change(self) -> GraphChange:
        return GraphChange({key: pending.change() for key, pending in self._pending.items() if len(pending)})

    def _conditions(self, statements: Sequence[ir.WriteStatement]) -> Iterator[tuple[TableType, Condition]]:
        for statement in statements:
            if isinstance(statement, ir.UpdateNodes):
                yield statement.type, Condition(statement.where, evaluate(statement.where.value, self._values))

    def _settle_inserts(self) -> None:
        """Inserts so far become pending rows, before a later statement reads them or fails for a reason of its own."""
        for typed in self._waiting.take():
            self._pending_of(typed.type).insert(typed)

    def _node_ids(self, insert: ir.InsertEdge, number: int) -> tuple[str, str]:
        if insert.type.name not in self._ends:
            self._ends[insert.type.name] = edge_ends(self._txn.snapshot.catalog, insert.type)
        source, target = self._ends[insert.type.name]
        return self._node_id(insert, source, insert.source, number), self._node_id(
            insert, target, insert.target, number
        )

    def _node_id(self, insert: ir.InsertEdge, end: EndpointIds, value: ir.Value, number: int) -> str:
        try:
            return end.id_of(evaluate(value, self._values))
        except NotANodeError as error:
            self._settle_inserts()
            key, rule = insert.type.type_key, error.sentence.rule
            raise RejectedRow(number, key, end.name, str(error), Stage.ENVELOPE, rule).error(UNIT) from None

    def _update(self, update: ir.UpdateNodes, number: int, condition: Condition, stored: StoredRows) -> None:
        assigned = self._assigned(update, number)
        pending = self._pending_of(update.type)
        self.tables_read.add(update.type.type_key)
        rows = self._sight.matched(update.type, stored.matching(update.type, condition, pending.stored_columns))
        rows = rows.filter(pc.invert(pending.holds(rows.column("id"))))
        self.affected_nodes += pending.update(condition, rows, assigned, number)
        refuse_beyond(self._limits, update.type, len(pending), pending.nbytes(self._limits.bytes))

    def _assigned(self, update: ir.UpdateNodes, number: int) -> pa.Table:
        """One row of the assigned values in their stored types, or the reason why there is none."""
        rejected: list[RejectedRow] = []
        typed = type_records(_only_assigned(update), [self._record(update.assignments)], [number], rejected)
        refuse_first(rejected)
        return self._outdated(update.type, typed.rows.drop_columns(["id"]))

    def _outdated(self, type_: NodeType, assigned: pa.Table) -> pa.Table:
        """Also take away the vectors that are computed from an assigned text, so that they are computed anew."""
        for prop in type_.property_list:
            if prop.embed is None or not self._vectors.is_computed(prop) or prop.column in assigned.column_names:
                continue
            if type_.properties[prop.embed.property].column in assigned.column_names:
                field = rows_field(prop)
                assigned = assigned.append_column(field, pa.nulls(1, field.type))
        return assigned

    def _record(self, assignments: Sequence[ir.Assign]) -> dict[str, BoundValue]:
        return {assign.property.name: evaluate(assign.value, self._values) for assign in assignments}

    def _pending_of(self, type_: TableType) -> PendingRows:
        pending = self._pending.get(type_.type_key)
        if pending is None:
            pending = self._pending[type_.type_key] = PendingRows(type_)
        return pending


def _only_assigned(update: ir.UpdateNodes) -> NodeType:
    """The updated type reduced to what an update assigns, so that the rules of its values apply and no others."""
    assigned = tuple(assign.property for assign in update.assignments)
    return msgspec.structs.replace(update.type, property_list=assigned, key=())
