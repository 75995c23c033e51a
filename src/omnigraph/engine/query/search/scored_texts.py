"""Documents with their BM25 scores, the best of them, and which of them pass a filter.

`bm25` makes rankings of them. The formula uses facts only, which an index and analysed texts give alike; nothing here
knows where they come from, and no score depends on a filter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.corpus import Corpus
from omnigraph.engine.query.search.ranked_rows import Mask, Measures
from omnigraph.engine.query.search.text_index import IndexedTexts, Occurrences, Term, saturate
from omnigraph.storage.integer_sets import distinct, find_positions, is_member
from omnigraph.storage.tables.rows import RowIds, row_ids_of

ROUNDING: Final = 2.0**-38
"""More than rounding off may change of a score."""
SCORED_BYTES: Final = 4 * 8
"""The position and the score of a document, and a copy of both."""
FILTERED_BY_ID: Final = 512
"""So few rows are tested by id in the time in which a filter is tested on all."""
# When less than this share of the rows passes a filter, an index of its column is asked for all that do.
_SELECTIVE: Final = 1 / 16
# Documents are scored in an array of all of them unless they are less than one in so many.
_SPARSE: Final = 4

Scored: TypeAlias = tuple[RowIds, Measures]
"""Documents with their scores, in any order."""


class Formula:
    """BM25 for one query over one corpus. Every score is summed in the order of `terms`, so equal facts tie exactly."""

    def __init__(self, corpus: Corpus, terms: Sequence[Term]) -> None:
        indexed, counted = corpus.indexed, corpus.counted
        total = sum(part.documents for part in counted) + (0 if indexed is None else indexed.row_ids.size)
        tokens = sum(part.tokens for part in counted) + (0 if indexed is None else indexed.tokens)
        self.terms = terms
        self.average = tokens / max(total, 1) or 1.0
        self.idf: list[float] = []
        self._holding = 0
        for term in terms:
            corpus.budget.check()
            holding = sum(part.occurrences(term.token)[0].size for part in counted)
            holding += 0 if indexed is None else indexed.term(corpus.table, term).documents
            self._holding += holding
            self.idf.append(math.log(1 + (total - holding + 0.5) / (holding + 0.5)))

    def contribution(self, number: int, frequencies: NDArray[np.integer], normalisers: Measures) -> Measures:
        """What term `number` adds to the scores of documents that hold it, which is more than nothing."""
        return self.terms[number].weight * self.idf[number] * saturate(frequencies, normalisers)

    def score(
        self,
        documents: int,
        occurrences: Callable[[Term], Occurrences],
        normalisers: Callable[[NDArray[np.integer]], Measures],
        budget: MemoryBudget,
        saturations: Callable[[Term], Measures | None] = lambda _: None,
    ) -> tuple[NDArray[np.integer], Measures]:
        """Those of some documents that hold a term, as positions, ascending, with their scores. `occurrences` finds
        those that hold one, and `saturations` has the saturated count of every document for some terms."""
        if self._holding * _SPARSE < documents:
            return self._score_sparsely(occurrences, normalisers, budget)
        budget.step(documents * SCORED_BYTES)
        scores = np.zeros(documents)
        for number, term in enumerate(self.terms):
            budget.check()
            if (saturated := saturations(term)) is not None:
                scores += term.weight * self.idf[number] * saturated
                continue
            positions, frequencies = occurrences(term)
            scores[positions] += self.contribution(number, frequencies, normalisers(positions))
        held = np.flatnonzero(scores > 0)
        return held, scores[held]

    def _score_sparsely(
        self,
        occurrences: Callable[[Term], Occurrences],
        normalisers: Callable[[NDArray[np.integer]], Measures],
        budget: MemoryBudget,
    ) -> tuple[NDArray[np.integer], Measures]:
        """The same without a number for every document."""
        budget.step(self._holding * SCORED_BYTES)
        listed: list[Occurrences] = []
        for term in self.terms:
            budget.check()
            listed.append(occurrences(term))
        held = distinct(np.concatenate([positions for positions, _ in listed]))
        scores = np.zeros(held.size)
        for number, (positions, frequencies) in enumerate(listed):
            scores[np.searchsorted(held, positions)] += self.contribution(number, frequencies, normalisers(positions))
        return held, scores


class ScoredPart(NamedTuple):
    """Documents of a corpus, ascending by row id, and those of them that hold a term, as positions, with their scores.
    `indexed` are the texts of an index where they are the documents."""

    row_ids: RowIds
    positions: NDArray[np.integer]
    scores: Measures
    indexed: IndexedTexts | None = None

    def best(self, least: float, mask: Mask | None) -> Scored:
        """The documents with a score of at least `least`. `mask` leaves out some of those that hold a term."""
        reaching = self.scores >= least
        chosen = np.flatnonzero(reaching if mask is None else reaching & mask)
        return self.row_ids[self.positions[chosen]], self.scores[chosen]

    def scores_of(self, rows: RowIds) -> Measures:
        """The score of each row, 0 for one that holds no term."""
        scores = np.zeros(rows.size)
        positions, present = find_positions(self.row_ids, rows)
        at, held = find_positions(self.positions, positions)
        ranked = present & held
        scores[ranked] = self.scores[at[ranked]]
        return scores


class DocumentFilter:
    """Which documents of a corpus pass a filter. It is tested on a few rows by id, on all documents by reading its
    columns or by asking their indexes, or is known; the share of rows that passed before tells what costs least."""

    def __init__(self, corpus: Corpus, text: str) -> None:
        self.text = text
        self._corpus = corpus
        self._indexed = corpus.indexed
        self._share: float | None = None

    @property
    def mask_in_memory(self) -> Mask | None:
        """The indexed documents that pass, if that is known already."""
        return None if self._indexed is None else self._indexed.mask_in_memory(self._corpus.table, self.text)

    @property
    def share(self) -> float | None:
        """The share of rows that pass, as far as that is known."""
        if self._share is None and self._indexed is not None:
            mask = self.mask_in_memory
            self._share = self._indexed.shares.get(self.text) if mask is None else float(mask.mean())
        return self._share

    @property
    def is_selective(self) -> bool:
        """Whether an index of its columns had better be asked for the rows that pass."""
        return self.share is None or self.share < _SELECTIVE

    def fits(self, rows: int, k: int) -> bool:
        """Whether that many rows can be tested by id, and k of them can be expected to pass."""
        return rows <= FILTERED_BY_ID and (self.share is None or self.share * rows >= k)

    def test(self, row_ids: RowIds) -> Mask:
        """Which of a few rows pass."""
        passing: Mask = is_member(row_ids, row_ids_of(self._corpus.table.select(row_ids, [], filter=self.text)))
        if row_ids.size:
            self._share = float(passing.mean())
            if self._indexed is not None:
                self._indexed.note_share(self.text, self._share)
        return passing

    def test_documents(self, indexed: IndexedTexts, positions: NDArray[np.int64]) -> Mask:
        """Which of a few indexed documents pass."""
        mask = self.mask_in_memory
        return self.test(indexed.row_ids[positions]) if mask is None else mask[positions]

    def mask(self, part: ScoredPart) -> Mask:
        """Which documents of a part that hold a term pass."""
        if part.indexed is None:
            return is_member(part.row_ids[part.positions], self._counted_rows)
        every = part.indexed.mask(self._corpus.table, self.text, by_index=self.is_selective)
        mask: Mask = every[part.positions]
        return mask

    @cached_property
    def _counted_rows(self) -> RowIds:
        return self._corpus.counted_rows(self.text)


def best_of(parts: Sequence[tuple[ScoredPart, Mask | None]], k: int) -> Scored:
    """The best k documents of all parts that are in their masks, with all that may tie with the last of them."""
    best = [part.best(_k_th(part.scores if mask is None else part.scores[mask], k), mask) for part, mask in parts]
    row_ids, scores = concatenate_scored(best)
    reaching = scores >= _k_th(scores, k)
    return row_ids[reaching], scores[reaching]


def _k_th(scores: Measures, k: int) -> float:
    """What a document needs to be among the best k, or to tie with one once scores are rounded off."""
    return float(np.partition(scores, -k)[-k]) * (1 - ROUNDING) if k < scores.size else 0.0


def concatenate_scored(parts: Sequence[Scored]) -> Scored:
    if len(parts) == 1:
        return parts[0]
    row_ids, scores = zip(*parts, strict=True) if parts else ((), ())
    return np.concatenate((np.empty(0, np.int64), *row_ids)), np.concatenate((np.empty(0), *scores))
