"""A column as documents: the texts that an index knows, the others analysed here, and what BM25 counts of them.

A corpus is the whole column, or the texts of those rows that one reader sees. It holds facts and ranks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.postings import fragment_postings
from omnigraph.engine.query.search.text_index import IndexedTexts, Term, indexed_texts
from omnigraph.storage.ordered import contained
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import fragment_contents

Occurrences: TypeAlias = tuple[NDArray[Any], NDArray[Any]]


class Documents(Protocol):
    """Some documents: `row_ids` ascending, and `lengths` in tokens. How many count, and how many tokens they have, is
    said apart, because some may not count."""

    @property
    def row_ids(self) -> RowIds: ...

    @property
    def lengths(self) -> NDArray[np.int64]: ...

    @property
    def documents(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    def occurrences(self, token: str) -> Occurrences:
        """Which documents hold a token, as positions in `row_ids`, and how often."""
        ...


class Corpus:
    """A column of a table version: `indexed` documents, and `counted` ones. Analysed texts are counted."""

    def __init__(self, table: Table, column: str, *, indexed: bool = True, budget: MemoryBudget | None = None) -> None:
        self.table = table
        self.budget = budget or MemoryBudget()
        self.budget.check()
        contents = fragment_contents(table)
        self.indexed: IndexedTexts | None = None
        covered: set[int] = set()
        if indexed:
            self.indexed, covered = indexed_texts(table, column, contents)
            self.budget.check()
        loose = [content for content in contents if content.fragment_id not in covered]
        self.analysed = [fragment_postings(table, column, content, self.budget) for content in loose]
        self._counted_in: frozenset[int] | None = frozenset(content.fragment_id for content in loose)
        if self.indexed is not None and self.indexed.moved.size:
            self.analysed.append(self.indexed.moved_postings)
            self._counted_in = None
        self.counted: Sequence[Documents] = self.analysed

    @cached_property
    def documents(self) -> int:
        indexed = self.indexed.row_ids.size if self.indexed is not None else 0
        return indexed + sum(part.documents for part in self.counted)

    @cached_property
    def average_length(self) -> float:
        indexed = self.indexed.tokens if self.indexed is not None else 0
        return (indexed + sum(part.tokens for part in self.counted)) / max(self.documents, 1)

    def documents_with(self, term: Term) -> int:
        self.budget.check()
        indexed = self.indexed.term(self.table, term).documents if self.indexed is not None else 0
        return indexed + sum(part.occurrences(term.token)[0].size for part in self.counted)

    def counted_rows(self, filter: str) -> RowIds:
        """The rows of the counted documents that pass a filter, perhaps with others."""
        return row_ids_of(self.table.read([], filter=filter, row_ids=True, fragments=self._counted_in))


class SeenCorpus(Corpus):
    """As if the column held the texts of some rows alone.

    What an index counts, and ranks by, it counts for everybody. So it is only asked which documents hold the words of
    the query, which is remembered for all readers, and each reader's are counted here.
    """

    def __init__(
        self, table: Table, column: str, seen: RowIds, terms: Sequence[Term], *, budget: MemoryBudget | None = None
    ) -> None:
        super().__init__(table, column, budget=budget)
        parts: list[Documents] = list(self.analysed)
        if self.indexed is not None:
            parts.append(_IndexedWords(table, self.indexed, terms))
            self.indexed = self._counted_in = None
        self.counted = [_SeenTexts(part, seen) for part in parts]


class _IndexedWords:
    """The documents of an index, as far as the words of one query go."""

    def __init__(self, table: Table, indexed: IndexedTexts, terms: Sequence[Term]) -> None:
        self.row_ids = indexed.row_ids
        self.lengths = indexed.lengths
        self.documents = indexed.row_ids.size
        self.tokens = indexed.tokens
        self._table = table
        self._indexed = indexed
        self._terms = {term.token: term for term in terms}

    def occurrences(self, token: str) -> Occurrences:
        return self._indexed.all_occurrences(self._table, self._terms[token])


class _SeenTexts:
    """Documents of which those count that are seen."""

    def __init__(self, part: Documents, seen: RowIds) -> None:
        self.row_ids = part.row_ids
        self.lengths = part.lengths
        self._part = part
        self._mask = contained(part.row_ids, seen)
        self._occurrences: dict[str, Occurrences] = {}

    @property
    def documents(self) -> int:
        return int(np.count_nonzero(self._mask))

    @property
    def tokens(self) -> int:
        return int(self.lengths[self._mask].sum())

    def occurrences(self, token: str) -> Occurrences:
        if (known := self._occurrences.get(token)) is None:
            documents, frequencies = self._part.occurrences(token)
            seen = self._mask[documents]
            known = self._occurrences[token] = documents[seen], frequencies[seen]
        return known
