"""Analysed texts of rows that no index covers: for each token the rows that hold it, and how often.

Built by scanning a fragment once and kept in the memory that the process shares. A fragment with its deletions
never changes, so a new version of a table costs the analysis of its new fragments only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.analyzer import analyse_column
from omnigraph.engine.query.values.properties import one_array
from omnigraph.engine.shared_memory import SHARED_MEMORY, ByteBoundCache
from omnigraph.storage.ordered import counted
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import FragmentContent

POSTINGS_BYTES: Final = 512 << 20
# Texts, their characters by kind, their words and where those stand.
_ANALYSED_COPIES: Final = 6
_TOKENS_PER_CHECK: Final = 256


class Postings:
    """The analysed texts of some rows.

    `row_ids` are the documents, rows with at least one token, ascending; `lengths` are their token counts and `tokens`
    the sum of those.
    """

    __slots__ = ("_documents", "_frequencies", "_numbers", "_starts", "lengths", "row_ids", "tokens")

    def __init__(self, rows: pa.Table, column: str, budget: MemoryBudget | None = None) -> None:
        budget = budget or MemoryBudget()
        budget.step(rows.nbytes * _ANALYSED_COPIES)
        texts = one_array(rows.column(column))
        analysed = analyse_column(texts, budget.check)
        budget.check()
        all_ids = row_ids_of(rows)
        lengths = np.bincount(analysed.texts, minlength=len(texts))
        order = np.argsort(all_ids)
        order = order[lengths[order] > 0]
        place = np.full(len(texts), -1, np.int64)
        place[order] = np.arange(order.size)
        self.row_ids: RowIds = all_ids[order]
        self.lengths: NDArray[np.int64] = lengths[order].astype(np.int64)
        self.tokens = int(self.lengths.sum())
        self._numbers = {token: number for number, token in enumerate(analysed.vocabulary)}
        # Pairs are sorted as one number each; a token's rows come out ascending.
        budget.check()
        pairs, counts = counted(analysed.tokens.astype(np.int64) * max(order.size, 1) + place[analysed.texts])
        budget.check()
        tokens, documents = np.divmod(pairs, max(order.size, 1))
        self._documents = documents.astype(np.int32)
        self._frequencies = counts.astype(np.int32)
        self._starts = np.searchsorted(tokens, np.arange(len(self._numbers) + 1))

    @property
    def vocabulary(self) -> list[str]:
        return list(self._numbers)

    @property
    def documents(self) -> int:
        return int(self.row_ids.size)

    @property
    def cost(self) -> int:
        """Bytes in memory; a token of the vocabulary is a Python string in a dictionary."""
        arrays = (self.row_ids, self.lengths, self._documents, self._frequencies, self._starts)
        return sum(array.nbytes for array in arrays) + 150 * len(self._numbers) + 1024

    def occurrences(self, token: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Which documents hold a token, as positions in `row_ids`, and how often."""
        number = self._numbers.get(token)
        span = slice(0, 0) if number is None else slice(self._starts[number], self._starts[number + 1])
        return self._documents[span], self._frequencies[span]

    def rows_with_any(self, tokens: list[str], check: Callable[[], None] = lambda: None) -> RowIds:
        held = np.zeros(self.row_ids.size, np.bool_)
        for number, token in enumerate(tokens):
            if not number % _TOKENS_PER_CHECK:
                check()
            held[self.occurrences(token)[0]] = True
        return self.row_ids[held]


_POSTINGS: Final[ByteBoundCache[Postings]] = SHARED_MEMORY.add("postings", ByteBoundCache(POSTINGS_BYTES))


def fragment_postings(
    table: Table, column: str, fragment: FragmentContent, budget: MemoryBudget | None = None
) -> Postings:
    """The postings of one fragment's live rows."""
    key = (*fragment.name, column)
    if (known := _POSTINGS.get(key)) is not None:
        return known
    rows = table.read([column], row_ids=True, fragments=[fragment.fragment_id])
    return _POSTINGS.keep(key, Postings(rows, column, budget))
