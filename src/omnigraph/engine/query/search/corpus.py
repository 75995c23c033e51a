"""The documents of a column as text predicates and BM25 count them: a whole column, or what a restricted reader sees.

A document is a row with at least one token. An index knows some of them, the others are analysed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.analyzer import Postings, fragment_postings
from omnigraph.engine.query.search.text_index import IndexedTexts, Occurrences, Term, indexed_texts
from omnigraph.storage.integer_sets import is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import fragment_contents


class Corpus:
    """A column of a table version: `indexed` documents, and `counted` ones. Analysed texts are counted.

    With `visible` it is as if the column held the texts of those rows alone. An index counts and ranks for everybody,
    so it is only asked which documents hold the `terms` of the query, which is remembered for all readers, and those
    of each reader are counted here.
    """

    def __init__(
        self,
        table: Table,
        column: str,
        budget: MemoryBudget,
        *,
        indexed: bool = True,
        visible: RowIds | None = None,
        terms: Sequence[Term] = (),
    ) -> None:
        self.table = table
        self.budget = budget
        budget.check()
        contents = fragment_contents(table)
        self.indexed: IndexedTexts | None = None
        covered: set[int] = set()
        if indexed:
            self.indexed, covered = indexed_texts(table, column, contents)
            budget.check()
        loose = [content for content in contents if content.fragment_id not in covered]
        self.analysed = [fragment_postings(table, column, content, budget) for content in loose]
        self._counted_in: frozenset[int] | None = frozenset(content.fragment_id for content in loose)
        if self.indexed is not None and self.indexed.moved.size:
            self.analysed.append(self.indexed.moved_postings)
            self._counted_in = None
        self.counted: Sequence[Postings | VisibleTexts] = self.analysed
        if visible is not None:
            self._count_visible(visible, {term.token: term for term in terms})

    def _count_visible(self, visible: RowIds, terms: Mapping[str, Term]) -> None:
        self.counted = [VisibleTexts(p.row_ids, p.lengths, p.occurrences, visible) for p in self.analysed]
        if (indexed := self.indexed) is not None:

            def occurrences(token: str) -> Occurrences:
                return indexed.occurrences(self.table, terms[token])

            self.counted.append(VisibleTexts(indexed.row_ids, indexed.lengths, occurrences, visible))
            self.indexed = self._counted_in = None

    def counted_rows(self, filter: str) -> RowIds:
        """The rows of the counted documents that pass a filter, perhaps with others."""
        return row_ids_of(self.table.read([], filter=filter, row_ids=True, fragments=self._counted_in))


class VisibleTexts:
    """Documents of which only the visible ones count. `occurrences` finds those that hold a token."""

    def __init__(
        self, row_ids: RowIds, lengths: NDArray[np.int64], occurrences: Callable[[str], Occurrences], visible: RowIds
    ) -> None:
        self.row_ids = row_ids
        self.lengths = lengths
        self._mask = is_member(row_ids, visible)
        self.documents = int(np.count_nonzero(self._mask))
        self.tokens = int(lengths[self._mask].sum())
        self._all_occurrences = occurrences
        self._occurrences: dict[str, Occurrences] = {}

    def occurrences(self, token: str) -> Occurrences:
        if (occurrences := self._occurrences.get(token)) is None:
            documents, frequencies = self._all_occurrences(token)
            visible = self._mask[documents]
            occurrences = self._occurrences[token] = documents[visible], frequencies[visible]
        return occurrences
