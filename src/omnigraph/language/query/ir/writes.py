"""The statements of a mutation and the plan they form."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from omnigraph.language.catalog import EdgeType, NodeType, Property, TableType
from omnigraph.language.query.ir.operators import QueryParameter, ReadOperator, ReadPlan
from omnigraph.language.query.ir.values import Predicate, Value


class Assign(Struct, frozen=True):
    """A property and the value it gets, converted to the stored type, with range checks, when the query runs.

    An integer that meets a float property is widened; a float never becomes an integer. In an update the value may
    read `PropertyValue`s of `ROW`: the row before the statement; after a feed, the variables of the feed.
    """

    property: Property
    value: Value


ROW: Final = "#row"
"""The variable of the row that a condition or an assignment of a plain write, or a row filter, is about."""


class InsertNode(Struct, frozen=True):
    """A keyed type: replace the whole node of the derived id, or add it. Otherwise: add one with a fresh id.

    Properties that are not assigned become null. `must_be_new` (`insert new`): an existing id is a key conflict.
    `keeps_rest` (`upsert`): an existing node keeps what is not assigned.
    """

    type: NodeType
    assignments: tuple[Assign, ...]
    must_be_new: bool = False
    keeps_rest: bool = False


class InsertEdge(Struct, frozen=True):
    """Add one edge between two nodes: with a fresh id, or, of a keyed type, as an upsert of the derived id.

    `source` and `target` are ids or keys of nodes, or node variables of a feed (`EntityValue`). A null entity of a feed
    skips the row.
    """

    type: EdgeType
    source: Value
    target: Value
    assignments: tuple[Assign, ...]
    must_be_new: bool = False
    keeps_rest: bool = False


class Update(Struct, frozen=True):
    """Give every row of the type for which `where` is true the assigned values and leave the rest of it alone.
    Never touches key members or ends. `where` reads `PropertyValue`s and `MetaValue`s of `ROW`; an end that is compared
    with a key is compared with a `NodeKey`."""

    type: TableType
    assignments: tuple[Assign, ...]
    where: Predicate


class Delete(Struct, frozen=True):
    """Remove every row of the type for which `where` is true and, from each of the `cascades`, every edge that touches
    a removed node."""

    type: TableType
    where: Predicate
    cascades: tuple[EdgeType, ...] = ()


class UpdateVariable(Struct, frozen=True):
    """Give the entity of a feed's variable the assigned values; a null entity is skipped."""

    variable: str
    type: TableType
    assignments: tuple[Assign, ...]


class DeleteVariable(Struct, frozen=True):
    """Remove the entity of a feed's variable; a null entity is skipped."""

    variable: str
    type: TableType
    cascades: tuple[EdgeType, ...] = ()


RowWrite: TypeAlias = InsertNode | InsertEdge | UpdateVariable | DeleteVariable


class ForEachRow(Struct, frozen=True):
    """The statements once for each row of `rows`, which is read from the snapshot that the query began with, before
    anything is written. Rows keep the values that the statements read: `rows` is a `Bind`."""

    rows: ReadOperator
    statements: tuple[RowWrite, ...]


WriteStatement: TypeAlias = InsertNode | InsertEdge | Update | Delete | ForEachRow


class WritePlan(Struct, frozen=True):
    """A mutation, ready to run: statements in order, one atomic commit.

    Either inserts and updates, of which later plain statements see earlier ones, or deletes, which all see the
    committed state; never both.
    """

    name: str
    parameters: tuple[QueryParameter, ...]
    statements: tuple[WriteStatement, ...]

    @property
    def writes(self) -> tuple[WriteStatement | RowWrite, ...]:
        """Every statement, those of feeds too."""
        return tuple(
            write
            for statement in self.statements
            for write in (statement.statements if isinstance(statement, ForEachRow) else (statement,))
        )

    @property
    def only_deletes(self) -> bool:
        return all(isinstance(write, Delete | DeleteVariable) for write in self.writes)

    @property
    def is_insert_only(self) -> bool:
        """Whether the same writes may be prepared again on a newer head: the statements of feeds are looked at, too."""
        return all(isinstance(write, InsertNode | InsertEdge) for write in self.writes)


Plan: TypeAlias = ReadPlan | WritePlan
