"""What a schema change makes of one table: columns that come, go or are written again, rows with new values, indexes.

`schema plan` describes a `TableChange` and `schema apply` stages the same one, so that a plan predicts what is written.
Most changes write nothing again. A wider number and a new required property write their column once, a renamed enum
value and a filled null write the column of the fragments that have such rows, and only a new key writes whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.api.schema import Dedupe, StepEffect
from omnigraph.engine.maintenance.declared_indexes import declared_indexes
from omnigraph.engine.rows.carry import absent_column, carry
from omnigraph.engine.rows.columns import arrow_type, as_table_rows, rows_schema, table_field, table_schema
from omnigraph.engine.rows.kernels.ids import key_ids
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.schema.repeated_keys import rows_to_drop
from omnigraph.language.catalog import Property, TableType
from omnigraph.language.schema.migration import fresh_renames
from omnigraph.storage.integer_sets import distinct, is_member
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import ROW_ADDRESS, RowIds, fragment_sizes, identifier, one_of, row_ids_of
from omnigraph.storage.tables.staging import StagedTable, Staging, TableColumn

_SAMPLED_ROWS: Final = 1_000
_ROWS_AT_ONCE: Final = 32_768


@dataclass(frozen=True)
class ColumnRewrite:
    """New values of one stored column, for the rows of a filter."""

    prop: Property
    filter: str


@dataclass(frozen=True)
class TableChange:
    """One table, by its declaration before and after a change of the schema."""

    reader: TableReader
    old: TableType
    new: TableType
    state: TableState
    dedupe: Dedupe | None = None

    @cached_property
    def table(self) -> Table:
        return self.reader.open(self.state)

    @cached_property
    def _before(self) -> dict[int, Property]:
        return {prop.id: prop for prop in self.old.property_list}

    @cached_property
    def gets_key(self) -> bool:
        """Whether the edges get ids of their own, made of a key."""
        return bool(self.new.key) and not self.old.key

    @cached_property
    def computed(self) -> tuple[Property, ...]:
        """Properties whose column is written for every row: another type, or a default for existing rows."""
        return tuple(prop for prop in self.new.property_list if self._is_computed(prop))

    def _is_computed(self, prop: Property) -> bool:
        before = self._before.get(prop.id)
        if before is None:
            return not prop.type.nullable
        return bool(arrow_type(before.type) != arrow_type(prop.type))

    @cached_property
    def rewrites(self) -> tuple[ColumnRewrite, ...]:
        """Columns in which some rows get another value."""
        rewrites = []
        for prop in self.new.property_list:
            before = self._before.get(prop.id)
            if before is None or self._is_computed(prop):
                continue
            conditions = []
            if renamed := fresh_renames(before, prop):
                conditions.append(one_of(prop.column, sorted(renamed)))
            if fills_nulls(before, prop):
                conditions.append(f"{identifier(prop.column)} IS NULL")
            if conditions:
                rewrites.append(ColumnRewrite(prop, " OR ".join(conditions)))
        return tuple(rewrites)

    @cached_property
    def repeated(self) -> RowIds:
        """The edges that leave, because others have the key that they would get."""
        if self.dedupe is None or not self.gets_key:
            return np.empty(0, np.int64)
        state = TypeState(self.reader, self.new, self.state, carries=True)
        return rows_to_drop(state, [column for column, _ in self.new.key_columns], self.dedupe)

    @property
    def _has_other_columns(self) -> bool:
        columns = {prop.column: prop.type.nullable for prop in self.old.property_list}
        after = {prop.column: prop.type.nullable for prop in self.new.property_list}
        relaxed = any(after[name] and not columns[name] for name in columns.keys() & after.keys())
        return bool(self.computed) or columns.keys() != after.keys() or relaxed

    @property
    def _has_other_indexes(self) -> bool:
        before = {(spec.name, repr(spec.options)) for spec in declared_indexes(self.old)}
        return not before <= {(spec.name, repr(spec.options)) for spec in declared_indexes(self.new)}

    # What it writes

    def stage(self, staging: Staging) -> StagedTable:
        """The table as its new declaration wants it; the same one where nothing has to change."""
        staged = StagedTable(self.state)
        for rewrite in self.rewrites:

            def values(stored: pa.Array, prop: Property = rewrite.prop) -> pa.Array:
                return carry(prop, stored)

            rewritten = staging.rewrite_column(staged.state, rewrite.prop.column, rewrite.filter, values)
            # Values that only changed with their schema do not count as updates of entities.
            staged = StagedTable(rewritten.state, staged.changes)
        if self._has_other_indexes:
            # An index that is not declared any more could answer in place of one that is.
            declared = {(spec.name, repr(spec.options)) for spec in declared_indexes(self.new)}
            kept = {spec.name for spec in declared_indexes(self.old) if (spec.name, repr(spec.options)) in declared}
            staged = staged.followed_by(staging.drop_indexes(staged.state, kept))
        if self._has_other_columns:
            staged = staged.followed_by(staging.reshape(staged.state, list(self._columns())))
        return self._rekey(staging, staged) if self.gets_key else staged

    def _columns(self) -> Iterator[TableColumn]:
        """The columns of the table in their order, new ones last."""
        after = {prop.column: prop for prop in self.new.property_list}
        stored = [name for name in self.table.schema.names if name in after or name in self.new.system_columns]
        for name in dict.fromkeys([*stored, *after]):
            prop = after.get(name)
            if prop is None:
                yield TableColumn(self.table.schema.field(name))
            elif self._is_computed(prop):
                yield self._computed_column(prop)
            else:
                yield TableColumn(table_field(prop))

    def _computed_column(self, prop: Property) -> TableColumn:
        if prop.id in self._before:
            return TableColumn(table_field(prop), (prop.column,), lambda rows: carry(prop, rows.column(prop.column)))
        return TableColumn(table_field(prop), ("id",), lambda rows: absent_column(prop, rows.num_rows))

    def _rekey(self, staging: Staging, staged: StagedTable) -> StagedTable:
        """The edges with the ids of their new key. Edges are other entities afterwards, so all rows are written."""
        state = TypeState(self.reader, self.new, staged.state)
        dropped = self.repeated
        kept = row_ids_of(state.table.read([], row_ids=True))
        kept = np.sort(kept[~is_member(kept, dropped)])
        schema = table_schema(self.new)

        def batches() -> Iterator[pa.RecordBatch]:
            for rows in state.batches(kept, _ROWS_AT_ONCE):
                ids = key_ids(self.new, rows)
                keyed = rows.set_column(0, rows.schema.field("id"), ids)
                yield from as_table_rows(self.new, keyed).select(schema.names).combine_chunks().to_batches()

        if not len(kept):
            rewritten = staging.overwrite(staged.state, as_table_rows(self.new, rows_schema(self.new).empty_table()))
        else:
            reader = pa.RecordBatchReader.from_batches(pa.schema([f.remove_metadata() for f in schema]), batches())
            rewritten = staging.overwrite(staged.state, reader)
        return StagedTable(rewritten.state, ChangeCounts(deleted=len(dropped)))

    # What a plan says of it

    def effect_on(self, prop: Property) -> StepEffect:
        """What is written again of one property."""
        if any(each.id == prop.id for each in self.computed):
            width = self._width(prop) if prop.id in self._before else absent_column(prop, 1).nbytes
            files = len(fragment_sizes(self.table))
            return StepEffect.of_rewrite(self.state.rows, width * self.state.rows, files)
        for rewrite in self.rewrites:
            if rewrite.prop.id == prop.id:
                return self._effect_of(rewrite)
        return StepEffect()

    def _effect_of(self, rewrite: ColumnRewrite) -> StepEffect:
        addresses = self.table.read([ROW_ADDRESS], filter=rewrite.filter).column(ROW_ADDRESS).to_numpy()
        fragments = distinct(addresses >> np.uint64(32)).tolist()
        rows = fragment_sizes(self.table)
        size = self._width(rewrite.prop) * sum(rows[fragment] for fragment in fragments)
        return StepEffect.of_rewrite(len(addresses), size, len(fragments))

    @property
    def effect_of_key(self) -> StepEffect:
        """What is written where edges get a key: every row."""
        dropped = len(self.repeated)
        names = [*self.new.system_columns, *(prop.column for prop in self.old.property_list if not prop.type.is_blob)]
        sample = self.table.read([name for name in names if name in self.table.columns], limit=_SAMPLED_ROWS)
        rows = self.state.rows - dropped
        return StepEffect.of_rewrite(rows, sample.nbytes / max(1, sample.num_rows) * rows, min(1, rows))

    def _width(self, prop: Property) -> float:
        """The bytes of one value of a stored property, by a sample."""
        sample = carry(prop, self.table.read([prop.column], limit=_SAMPLED_ROWS).column(prop.column))
        return float(sample.nbytes) / max(1, len(sample))


def fills_nulls(before: Property, after: Property) -> bool:
    """Whether a property that gets required gets its default where it is null."""
    return before.type.nullable and not after.type.nullable and after.default is not None


def changes_values(before: Property, after: Property) -> bool:
    """Whether some stored values become others that a rule could forbid."""
    return bool(fresh_renames(before, after)) or fills_nulls(before, after)
