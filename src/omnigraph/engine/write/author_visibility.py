"""The visibility of a write's author: rows that it can't see do not exist for it.

Loads and mutations call it. Updates and deletes match visible rows only. A write that would change an invisible row,
or leave a row that its author could not see, is refused as a whole. An unrestricted author pays nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.plans import property_values
from omnigraph.engine.query.properties import one_array
from omnigraph.engine.query.visibility import row_filter_mask, visible_entities
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import ConstraintError, ConstraintRule, PolicyError
from omnigraph.language.catalog import TableType
from omnigraph.language.query import ir
from omnigraph.language.query.row_filter import EVERY_ROW
from omnigraph.storage.tables.rows import RowIds, row_ids_of

_TELLS_OF_OTHERS = frozenset({ConstraintRule.UNIQUE, ConstraintRule.KEY, ConstraintRule.CARDINALITY})


class AuthorVisibility:
    """The visibility of a write, on the head that it is prepared against."""

    def __init__(self, txn: WriteTxn) -> None:
        self._visibility = txn.resources.visibility
        self.state = txn.snapshot if self._visibility.is_unrestricted else txn.snapshot.restricted_to(self._visibility)
        """The captured head as the author sees it."""
        self._now = txn.intent.authored_at // 1_000

    @property
    def is_unrestricted(self) -> bool:
        return self._visibility.is_unrestricted

    def visible_among(self, type_: TableType, ids: Sequence[str]) -> set[str]:
        """Those of some ids that are stored and visible."""
        rows = self.state.table(type_.type_key).rows_among("id", ids, ["id"], row_ids=True)
        mask = visible_entities(self.state, type_, row_ids_of(rows))
        return set(one_array(rows.column("id")).filter(pa.array(mask)).to_pylist())

    def visible_rows(self, type_: TableType, rows: RowIds) -> Mask:
        """Which of some stored rows are visible."""
        return visible_entities(self.state, type_, rows, self._now)

    def refuse_masked_names(self, plan: ir.WritePlan) -> None:
        """A statement, or the rows it runs for, may not name a masked property, nor insert a row that has one."""
        if self.is_unrestricted:
            return
        for value in property_values(plan.statements):
            self._refuse_masked(value.owner, value.prop.name)
        for write in plan.writes:
            if isinstance(write, ir.InsertNode | ir.InsertEdge):
                self.refuse_partial_rows([write.type])
            elif isinstance(write, ir.Update | ir.UpdateVariable):
                for assign in write.assignments:
                    self._refuse_masked(write.type, assign.property.name)

    def _refuse_masked(self, type_: TableType, name: str) -> None:
        if name in self._masked_properties(type_):
            raise PolicyError(f"policy: '{type_.name}.{name}' is hidden from you; leave it out")

    def refuse_masked_columns(self, type_: TableType, columns: Collection[str]) -> None:
        """Partial rows may not have a masked property."""
        for prop in type_.property_list:
            if prop.column in columns:
                self._refuse_masked(type_, prop.name)

    def refuse_partial_rows(self, types: Sequence[TableType]) -> None:
        """Refuse whole rows of types with masked properties."""
        for type_ in types:
            if self._masked_properties(type_):
                raise PolicyError(
                    f"policy: some properties of {type_.name} are hidden from you, so you may not write whole rows of "
                    "it; update the others"
                )

    def refuse_invisible(self, change: GraphChange) -> None:
        """Refuse a change that touches an invisible row or leaves one behind."""
        if self.is_unrestricted:
            return
        for type_change in change.by_type.values():
            if type_change.replaces:
                raise PolicyError("policy: an overwrite changes everything, and you see a part of it")
            self._refuse_invisible_rows(type_change)

    def _refuse_invisible_rows(self, change: TypeChange) -> None:
        name = change.type.name
        ids = [*change.deleted, *pc.unique(change.ids).to_pylist()]
        stored = self.state.table(change.type_key).existing_ids(ids)
        if stored - self.visible_among(change.type, sorted(stored)):
            raise PolicyError(f"policy: this would change a {name} that you do not see; nothing was written")
        # The endpoint check covers the ends of edges: an invisible node does not exist for it.
        test = self.state.visibility.of(change.type).rows
        if test != EVERY_ROW and change.rows.num_rows and not row_filter_mask(test, change.rows, self._now).all():
            raise PolicyError(f"policy: this would leave a {name} that you could not see yourself; nothing was written")

    def _masked_properties(self, type_: TableType) -> frozenset[str]:
        return frozenset() if self.is_unrestricted else self.state.visibility.of(type_).masked

    @contextmanager
    def redact_conflicts(self) -> Iterator[None]:
        """A rule that spans rows may be broken by an invisible row; the message then says nothing about that row."""
        try:
            yield
        except ConstraintError as error:
            if self.is_unrestricted or error.rule not in _TELLS_OF_OTHERS:
                raise
            where = error.type_key if error.property is None else f"{error.type_key}.{error.property}"
            message = f"{error.rule} violation on {where}; nothing was written"
            key, property, line = error.type_key, error.property, error.line
            raise ConstraintError(error.rule, key, property, line=line, message=message) from None
