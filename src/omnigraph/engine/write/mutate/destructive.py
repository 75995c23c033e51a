"""Deletes of one mutation: what they remove from the committed state, incident edges included.

Every statement sees the committed state, so overlapping statements remove, and count, each entity once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from omnigraph.engine.write.author_sight import AuthorSight
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.mutate.cells import sought
from omnigraph.engine.write.mutate.conditions import Condition
from omnigraph.engine.write.mutate.stored import StoredRows
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue


class Destruction:
    """The state of a mutation that deletes."""

    def __init__(self, txn: WriteTxn, values: Mapping[str, BoundValue], sight: AuthorSight) -> None:
        self._txn = txn
        self._sight = sight
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
        conditions = [(s.type, Condition(s.where, sought(s.type, s.where, self._values, catalog))) for s in deletes]
        stored = StoredRows(self._txn, conditions)
        for delete, (type_, condition) in zip(deletes, conditions, strict=True):
            matched = self._sight.matched(type_, stored.matching(type_, condition, ["id"]))
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
        found: set[str] = set()
        for column, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
            gone = self._removed.get(f"node:{node_type}", set())
            found.update(table.rows_among(column, gone, ["id"]).column("id").to_pylist())
        return found

    def _remove(self, type_: TableType, ids: Iterable[str]) -> None:
        self._types[type_.type_key] = type_
        self._removed[type_.type_key].update(ids)

    def _count(self, kind: type[NodeType] | type[EdgeType]) -> int:
        return sum(len(ids) for key, ids in self._removed.items() if isinstance(self._types[key], kind))
