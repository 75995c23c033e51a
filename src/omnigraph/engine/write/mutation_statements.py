"""The statements of a mutation, executed over the pinned head: inserts and updates, or deletes.

`mutation` calls it. Later inserts and updates see earlier ones; deletes see the committed state and count each entity
once. Consecutive inserts are typed together, one block per type, and the violation of the earliest statement is raised.
Constraints that span rows are checked afterwards, on the final image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.governance import Limits
from omnigraph.engine.rows.columns import rows_field
from omnigraph.engine.rows.kernels import RejectedRow, Stage, TypedRows, type_records
from omnigraph.engine.rows.kernels.ids import EdgeEnds, EndpointIds, NotANodeError, edge_ends
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.mutation_rows import Condition, PendingRows, StoredRows, refuse_beyond
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.language.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue

UNIT = "statement"


@dataclass(slots=True)
class _Block:
    type: TableType
    records: list[Mapping[str, BoundValue]] = field(default_factory=list)
    statements: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


class WaitingInserts:
    """Records by type, in the order of their statements. `readable` is the form of a type that records are read by."""

    def __init__(self, readable: Callable[[TableType], TableType]) -> None:
        self._readable = readable
        self._blocks: dict[str, _Block] = {}

    def add(
        self,
        type_: TableType,
        record: Mapping[str, BoundValue],
        statement: int,
        endpoints: tuple[str, str] | None = None,
    ) -> None:
        block = self._blocks.get(type_.type_key)
        if block is None:
            block = self._blocks[type_.type_key] = _Block(type_)
        block.records.append(record)
        block.statements.append(statement)
        if endpoints is not None:
            block.sources.append(endpoints[0])
            block.targets.append(endpoints[1])

    def take(self) -> Iterator[TypedRows]:
        """All waiting inserts as typed rows; raises the violation of the earliest statement that has one."""
        blocks, self._blocks = self._blocks, {}
        rejected: list[RejectedRow] = []
        typed = [
            replace(
                type_records(
                    self._readable(block.type),
                    block.records,
                    block.statements,
                    rejected,
                    endpoints=(block.sources, block.targets) if block.sources else None,
                ),
                type=block.type,
            )
            for block in blocks.values()
        ]
        refuse_first(rejected)
        return iter(typed)


def refuse_first(rejected: list[RejectedRow]) -> None:
    """Raise for the earliest statement, and of its violations the one that is checked first."""
    if rejected:
        raise min(rejected, key=lambda row: (row.line, row.stage)).error(UNIT)


def evaluate(value: ir.Value, bound: Mapping[str, BoundValue]) -> BoundValue:
    """A plain value. Dates stay texts here; they are read where their column is known."""
    match value:
        case ir.Constant():
            return list(value.value) if isinstance(value.value, tuple) else value.value
        case ir.ParameterValue():
            return bound[value.name]
        case ir.Now():
            return bound[ir.NOW_PARAMETER]
        case _:
            raise AssertionError(f"{type(value).__name__} is not a cell of a statement")


def compared_value(type_: TableType, where: ir.Where, bound: Mapping[str, BoundValue], catalog: Catalog) -> BoundValue:
    """The value that a `where` compares its column with. The ends of edges are stored as ids, so a key becomes one."""
    value = evaluate(where.value, bound)
    is_equality = where.operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL)
    if not isinstance(type_, EdgeType) or not isinstance(where.column, ir.Endpoint) or value is None or not is_equality:
        return value
    end = edge_ends(catalog, type_)[0 if where.column is ir.Endpoint.FROM else 1]
    try:
        return end.id_of(value)
    except NotANodeError:
        return str(value)  # no node has this key, so no edge has this text at its end


class Construction:
    """The state of a mutation that inserts and updates."""

    def __init__(
        self,
        txn: WriteTxn,
        values: Mapping[str, BoundValue],
        limits: Limits,
        visibility: AuthorVisibility,
        vectors: OnWriteVectors,
    ) -> None:
        self._txn = txn
        self._visibility = visibility
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
                    self._flush_inserts()
                    _, condition = next(conditions_left)
                    self._update(statement, number, condition, stored)
                case _:
                    raise AssertionError("deletes never share a mutation with inserts and updates")
        self._flush_inserts()

    def change(self) -> GraphChange:
        return GraphChange({key: pending.change() for key, pending in self._pending.items() if len(pending)})

    def _conditions(self, statements: Sequence[ir.WriteStatement]) -> Iterator[tuple[TableType, Condition]]:
        for statement in statements:
            if isinstance(statement, ir.UpdateNodes):
                yield statement.type, Condition(statement.where, evaluate(statement.where.value, self._values))

    def _flush_inserts(self) -> None:
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
            self._flush_inserts()
            key, rule = insert.type.type_key, error.sentence.rule
            raise RejectedRow(number, key, end.name, str(error), Stage.ENVELOPE, rule).error(UNIT) from None

    def _update(self, update: ir.UpdateNodes, number: int, condition: Condition, stored: StoredRows) -> None:
        assigned = self._assigned_row(update, number)
        pending = self._pending_of(update.type)
        self.tables_read.add(update.type.type_key)
        rows = self._visibility.visible_matches(
            update.type, stored.matching(update.type, condition, pending.stored_columns)
        )
        rows = rows.filter(pc.invert(pending.holds(rows.column("id"))))
        self.affected_nodes += pending.update(condition, rows, assigned, number)
        refuse_beyond(self._limits, update.type, len(pending), pending.nbytes(self._limits.bytes))

    def _assigned_row(self, update: ir.UpdateNodes, number: int) -> pa.Table:
        """One row of the assigned values in their stored types, or the reason why there is none."""
        rejected: list[RejectedRow] = []
        typed = type_records(_only_assigned(update), [self._record(update.assignments)], [number], rejected)
        refuse_first(rejected)
        return self._clear_vectors(update.type, typed.rows.drop_columns(["id"]))

    def _clear_vectors(self, type_: NodeType, assigned: pa.Table) -> pa.Table:
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


class Destruction:
    """The state of a mutation that deletes."""

    def __init__(self, txn: WriteTxn, values: Mapping[str, BoundValue], visibility: AuthorVisibility) -> None:
        self._txn = txn
        self._visibility = visibility
        self._values = values
        self._removed: defaultdict[str, set[str]] = defaultdict(set)
        self._types: dict[str, TableType] = {}
        self._cascades: dict[str, EdgeType] = {}
        self.tables_read: set[str] = set()

    @property
    def affected_nodes(self) -> int:
        return self._count(NodeType)

    @property
    def affected_edges(self) -> int:
        return self._count(EdgeType)

    def run(self, statements: Sequence[ir.WriteStatement]) -> None:
        deletes = [s for s in statements if isinstance(s, ir.DeleteNodes | ir.DeleteEdges)]
        if len(deletes) < len(statements):
            raise AssertionError("inserts and updates never share a mutation with deletes")
        catalog = self._txn.snapshot.catalog
        conditions = [
            (s.type, Condition(s.where, compared_value(s.type, s.where, self._values, catalog))) for s in deletes
        ]
        stored = StoredRows(self._txn, conditions)
        for delete, (type_, condition) in zip(deletes, conditions, strict=True):
            matched = self._visibility.visible_matches(type_, stored.matching(type_, condition, ["id"]))
            self.tables_read.add(type_.type_key)
            self._remove(type_, matched.column("id").to_pylist())
            if isinstance(delete, ir.DeleteNodes) and matched.num_rows:
                self._cascades |= {edge.type_key: edge for edge in delete.cascades}
        self._cascade()

    def change(self) -> GraphChange:
        return GraphChange(
            {key: TypeChange.removing(self._types[key], frozenset(ids)) for key, ids in self._removed.items() if ids}
        )

    def _cascade(self) -> None:
        """Every edge that touches a removed node goes with it; all edge types are searched at the same time."""
        self.tables_read |= self._cascades.keys()
        edges = list(self._cascades.values())
        for edge, incident in zip(edges, self._txn.root.workers.map(self._incident, edges), strict=True):
            self._remove(edge, incident)

    def _incident(self, edge: EdgeType) -> set[str]:
        table = self._txn.snapshot.table(edge.type_key)
        ids: set[str] = set()
        for column, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
            gone = self._removed.get(f"node:{node_type}", set())
            ids.update(table.rows_among(column, gone, ["id"]).column("id").to_pylist())
        return ids

    def _remove(self, type_: TableType, ids: Iterable[str]) -> None:
        self._types[type_.type_key] = type_
        self._removed[type_.type_key].update(ids)

    def _count(self, kind: type[NodeType] | type[EdgeType]) -> int:
        return sum(len(ids) for key, ids in self._removed.items() if isinstance(self._types[key], kind))
