"""What two states differ in for whoever reads them: the deltas of the graphs that only hold what is seen of each.

An entity is there on a side if its row of that side is seen there. So an update can make an entity appear or vanish,
and an edge whose own row did not change appears and vanishes with a node at its end. Rows that the two versions of a
table share are still left out, unless the side they are looked at from makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.history import EVERYTHING, ChangeScope
from omnigraph.engine.history.type_delta import (
    TypeDelta,
    TypePair,
    delta_of_rows,
    no_rows,
    paired_types,
    rows_of_one_side,
    type_delta,
    unshared_rows,
)
from omnigraph.engine.query.seen_entities import seen_entities
from omnigraph.engine.query.values.bindings import Mask
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import EdgeType, TableType
from omnigraph.language.query.lens import EVERY_ROW, NO_ROW
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.ordered import contained
from omnigraph.storage.tables.rows import row_ids_of


def deltas(before: Snapshot, after: Snapshot, scope: ChangeScope = EVERYTHING) -> Iterator[TypeDelta]:
    """The deltas of the selected types that may differ, by type key."""
    if before.lens.is_open and after.lens.is_open:
        for pair in paired_types(before, after):
            if not pair.unchanged and scope.selects_type(pair.type.kind, pair.type.name):
                yield type_delta(pair)
        return
    seen = _SeenStates(before, after)
    for pair in seen.pairs:
        if scope.selects_type(pair.type.kind, pair.type.name):
            yield seen.rows(pair).delta


class _SeenRows:
    """The rows of one type that may differ, and which of them are seen."""

    def __init__(self, pair: TypePair, old: pa.Table, new: pa.Table, masks: tuple[Mask, Mask]) -> None:
        self._pair = pair
        self._old, self._new = old, new
        self._masks = masks

    @cached_property
    def delta(self) -> TypeDelta:
        old, new = (rows.filter(pa.array(mask)) for rows, mask in zip((self._old, self._new), self._masks, strict=True))
        return delta_of_rows(self._pair, old, new)

    @cached_property
    def flipped(self) -> list[str]:
        """Ids that both states hold, and that are seen in one of them alone."""
        place = pc.index_in(self._new.column("id"), value_set=self._old.column("id").combine_chunks())
        common = pc.is_valid(place).to_numpy(zero_copy_only=False)
        was, is_ = self._masks[0][place.drop_null().to_numpy().astype(np.int64)], self._masks[1][common]
        ids: list[str] = self._new.column("id").filter(pa.array(common)).filter(pa.array(was != is_)).to_pylist()
        return ids


class _SeenStates:
    """Two states, each through its own lens, at one moment."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self._after = before, after
        self._now = now_micros() // 1000
        self._lenses = before.lens, after.lens
        self.pairs = paired_types(before, after)
        self._known: dict[str, _SeenRows] = {}

    def rows(self, pair: TypePair) -> _SeenRows:
        lifetime = pair.newest.lifetime
        found = self._known.get(lifetime)
        if found is None:
            old, new = self._candidates(pair)
            masks = self._mask(self._before, pair.before, old), self._mask(self._after, pair.after, new)
            found = self._known[lifetime] = _SeenRows(pair, old, new, masks)
        return found

    def _mask(self, snapshot: Snapshot, state: TypeState | None, rows: pa.Table) -> Mask:
        if state is None:
            return np.zeros(0, dtype=bool)
        return seen_entities(snapshot, state.type, row_ids_of(rows), self._now)

    def _candidates(self, pair: TypePair) -> tuple[pa.Table, pa.Table]:
        """The rows of either side that may make a difference."""
        before, after = pair.before, pair.after
        if self._shows_nothing(pair):
            return no_rows(pair.newest), no_rows(pair.newest)
        if before is None or after is None:
            return rows_of_one_side(pair)
        if self._looks_different(before.type, after.type):
            return before.keys_of_all(), after.keys_of_all()
        old, new = (no_rows(after), no_rows(after)) if pair.unchanged else unshared_rows(before, after)
        if not isinstance(before.type, EdgeType) or not isinstance(after.type, EdgeType):
            return old, new
        for column, name_before, name_after in (
            ("src", before.type.from_type, after.type.from_type),
            ("dst", before.type.to_type, after.type.to_type),
        ):
            flipped = self._flipped(name_before, name_after)
            if flipped is None:
                return before.keys_of_all(), after.keys_of_all()
            if flipped:
                old, new = _with_edges_at(before, column, flipped, old), _with_edges_at(after, column, flipped, new)
        return old, new

    def _shows_nothing(self, pair: TypePair) -> bool:
        sides = zip(self._lenses, (pair.before, pair.after), strict=True)
        return all(side is None or lens.of(side.type).rows == NO_ROW for lens, side in sides)

    def _looks_different(self, before: TableType, after: TableType) -> bool:
        """Whether a row that both versions share may be seen, or read, differently on the two sides."""
        lenses = self._lenses[0].of(before), self._lenses[1].of(after)
        return lenses[0] != lenses[1] and not all(lens.is_open for lens in lenses)

    def _flipped(self, before: str, after: str) -> list[str] | None:
        """Nodes at the ends of edges that are seen in one state alone; None when all of them have to be looked at."""
        ends = self._before.catalog.nodes[before], self._after.catalog.nodes[after]
        if all(lens.of(end).rows == EVERY_ROW for lens, end in zip(self._lenses, ends, strict=True)):
            return []
        keys = tuple(end.type_key for end in ends)
        for pair in self.pairs:
            if pair.before and pair.after and (pair.before.type_key, pair.after.type_key) == keys:
                return self.rows(pair).flipped
        return None


def _with_edges_at(state: TypeState, column: str, ids: list[str], rows: pa.Table) -> pa.Table:
    """Some edges of a state together with those at some nodes, each once."""
    found = state.table.rows_among(column, ids, state.keys, row_ids=True).select(rows.column_names).cast(rows.schema)
    fresh = ~contained(row_ids_of(found), row_ids_of(rows))
    return pa.concat_tables([rows, found.filter(pa.array(fresh))])
