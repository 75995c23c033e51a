"""All rows of a table version that a lens shows, remembered for those who look often.

Named by the version and by what the lens shows, so nothing goes stale and whoever sees the same shares it; a lens that
reads the clock is never remembered. `sight` finds the rows and asks here whether that pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.shared_memory import SHARED_MEMORY, ByteBoundCache
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.tables.rows import RowIds

_BYTES: Final = 64 << 20
_REMEMBERED_COSTS: Final = 4_096

# Seconds: what it costs to look at rows, and to find all that are seen.
_LOOK, _LOOK_PER_ROW = 5e-4, 2e-6
_FIND, _FIND_PER_ROW = 2e-3, 1.5e-7

_Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _SeenRows:
    """Ascending."""

    rows: RowIds

    @property
    def cost(self) -> int:
        return int(self.rows.nbytes)


_SEEN: Final[ByteBoundCache[_SeenRows]] = SHARED_MEMORY.add("seen rows", ByteBoundCache(_BYTES))
_SPENT: Final[RecentlyUsed[_Key, float]] = RecentlyUsed(_REMEMBERED_COSTS)


def at_hand(type_: NodeType | EdgeType, context: ReadContext) -> RowIds | None:
    """The rows of a type that are seen, ascending, if somebody has found them."""
    if context.lens.reads_the_clock:
        return None
    found = _SEEN.get(_key(type_, context))
    return None if found is None else found.rows


def keep(type_: NodeType | EdgeType, rows: RowIds, context: ReadContext) -> RowIds:
    """Remember what was found."""
    if not context.lens.reads_the_clock:
        _SEEN.keep(_key(type_, context), _SeenRows(rows))
    return rows


def pays(type_: NodeType | EdgeType, looks: int, context: ReadContext) -> bool:
    """Whether so much was looked at, row by row, that finding all that is seen would have been cheaper. `looks` are
    rows that somebody is about to look at."""
    stored = context.table(type_).state.rows
    if context.lens.reads_the_clock or stored * 8 > _BYTES // 4:
        return False
    key = _key(type_, context)
    spent = (_SPENT.get(key) or 0.0) + _LOOK + looks * _LOOK_PER_ROW
    _SPENT[key] = spent
    return spent > _FIND + stored * _FIND_PER_ROW


def _key(type_: NodeType | EdgeType, context: ReadContext) -> _Key:
    return context.snapshot.resources.graph_id, context.table(type_).key, context.lens.digest
