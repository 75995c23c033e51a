"""BM25 ranking over one column of one table version: the best candidates, and the places of some of them.

A column has two parts: rows that an index knows, and rows analysed here. Both give the same facts, and the formula uses
facts only, so no result shows which part a row is in. What is asked decides the way, and every way gives the same
ranking: few listed candidates are read; words whose occurrences are in memory are scored there; else Lance proposes its
own best, which are scored exactly and accepted when no other row can be better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.analyzer import Postings, counts_of, query_words
from omnigraph.engine.query.search.corpus import Corpus, VisibleTexts
from omnigraph.engine.query.search.ranked_rows import (
    EVERY_ROW,
    NO_ROWS,
    Candidates,
    Mask,
    Measures,
    RankedRows,
    best_first,
    round_off,
)
from omnigraph.engine.query.search.scored_texts import (
    FILTERED_BY_ID,
    ROUNDING,
    SCORED_BYTES,
    DocumentFilter,
    Formula,
    Scored,
    ScoredPart,
    best_of,
    concatenate_scored,
)
from omnigraph.engine.query.search.text_index import (
    WORDS_PER_QUESTION,
    IndexedTexts,
    Occurrences,
    Term,
    length_normalisers,
)
from omnigraph.storage.integer_sets import find_positions, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of

# So few candidates are read and analysed faster than an index is asked about all rows.
_FEW_ROWS: Final = 2048
# Proposals beyond k cost Lance next to nothing, and asking again costs as much as asking.
_PROPOSALS_PER_ROW: Final = 4
_SPARE_PROPOSALS: Final = 24
_SINGLE_PRECISION: Final = 2e-6
# Scoring so many occurrences in memory costs what a question to the index does, of one word or of several.
_OCCURRENCES_OF_ONE: Final = 1 << 16
_OCCURRENCES_OF_SEVERAL: Final = 1 << 19
# The texts of a few rows as Python values, their words and how often each occurs.
_COUNTED_COPIES: Final = 8


def bm25(
    table: Table,
    column: str,
    text: str,
    candidates: Candidates = EVERY_ROW,
    k: int | None = None,
    visible: RowIds | None = None,
    *,
    budget: MemoryBudget | None = None,
) -> RankedRows:
    """The candidates that share a token with `text`, best score first; see `TextRanking`. `k` keeps the best k and
    saves scoring everything."""
    return TextRanking(table, column, text, candidates, visible, budget=budget).best(k)


class TextRanking:
    """The candidates that share a token with a text, by BM25: best score first, ties by entity id ascending.

    The statistics are those of the whole column, so a filter never changes a score; or those of the `visible` rows when
    others must not show. `with_places` says that places will be asked for, which takes the scores of all documents.
    `note` takes what is worth knowing about the way.
    """

    def __init__(
        self,
        table: Table,
        column: str,
        text: str,
        candidates: Candidates = EVERY_ROW,
        visible: RowIds | None = None,
        *,
        with_places: bool = False,
        budget: MemoryBudget | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._table = table
        self._column = column
        self._budget = budget or MemoryBudget()
        self._note = note
        self._visible = visible
        self._with_places = with_places
        if visible is not None and candidates.rows is not None:
            candidates = Candidates(candidates.filter, candidates.rows[is_member(candidates.rows, visible)])
        self._candidates = candidates
        self._terms = _terms_of(text, self._budget)

    def best(self, k: int | None = None) -> RankedRows:
        """The best k, all of them when k is None."""
        if not self._terms or k == 0:
            return NO_ROWS
        if self._are_few:
            row_ids, scores = self._score_listed()
        elif k is None:
            row_ids, scores = self._at_least(0.0)
        else:
            row_ids, scores = self._contenders(k)
        scores = round_off(scores)
        order = best_first(self._table, row_ids, -scores, k, self._id_ranks)
        return RankedRows(row_ids[order], scores[order])

    def places(self, rows: RowIds) -> NDArray[np.int64]:
        """The place of each of these candidates in the whole ranking, from 0; -1 for one that is not ranked. The rows
        that are better are counted; nothing else is put into an order."""
        places = np.full(rows.size, -1)
        if not self._terms or not rows.size:
            return places
        if self._are_few:
            ranked = self.best().row_ids
            order = np.argsort(ranked)
            positions, present = find_positions(ranked[order], rows)
            places[present] = order[positions[present]]
            return places
        own = np.zeros(rows.size)
        for part in self._parts:
            own += part.scores_of(rows)  # a row is in one of them
        ranked_here = np.flatnonzero(own)
        if ranked_here.size:
            places[ranked_here] = self._count_better(rows[ranked_here], round_off(own[ranked_here]))
        return places

    # ---- the corpus -------------------------------------------------------------------------------------

    @cached_property
    def _corpus(self) -> Corpus:
        return Corpus(self._table, self._column, self._budget, visible=self._visible, terms=self._terms)

    @cached_property
    def _formula(self) -> Formula:
        return Formula(self._corpus, self._terms)

    @cached_property
    def _filter(self) -> DocumentFilter | None:
        text = self._candidates.filter
        return None if text is None else DocumentFilter(self._corpus, text)

    @property
    def _are_few(self) -> bool:
        return self._candidates.rows is not None and self._candidates.rows.size <= _FEW_ROWS

    @cached_property
    def _counted_parts(self) -> list[ScoredPart]:
        """The documents that are counted here, scored, without parts that don't have the words."""
        scored = [self._score_counted(part) for part in self._corpus.counted]
        return [part for part in scored if part.scores.size]

    @cached_property
    def _parts(self) -> list[ScoredPart]:
        """All documents, scored in memory."""
        indexed, formula = self._corpus.indexed, self._formula
        if indexed is None:
            return self._counted_parts
        normalisers = indexed.normalisers(formula.average)
        positions, scores = formula.score(
            indexed.row_ids.size,
            lambda term: indexed.occurrences(self._table, term),
            lambda positions: normalisers[positions],
            self._budget,
            lambda term: indexed.saturations(self._table, term, formula.average),
        )
        return [*self._counted_parts, ScoredPart(indexed.row_ids, positions, scores, indexed)]

    def _score_counted(self, part: Postings | VisibleTexts) -> ScoredPart:
        formula = self._formula
        positions, scores = formula.score(
            part.row_ids.size,
            lambda term: part.occurrences(term.token),
            lambda positions: length_normalisers(part.lengths[positions], formula.average),
            self._budget,
        )
        return ScoredPart(part.row_ids, positions, scores)

    def _id_ranks(self, row_ids: RowIds) -> NDArray[np.int32] | None:
        indexed = self._corpus.indexed
        return None if indexed is None else indexed.id_ranks(self._table, row_ids)

    def _mask(self, part: ScoredPart) -> Mask | None:
        """The documents of a part that hold a term and are candidates; None for all that hold one."""
        rows = self._candidates.rows
        mask = None if self._filter is None else self._filter.mask(part)
        if rows is not None:
            listed = is_member(part.row_ids[part.positions], rows)
            mask = listed if mask is None else mask & listed
        return mask

    # ---- the best ---------------------------------------------------------------------------------------

    def _score_listed(self) -> Scored:
        """Score a few rows by reading their texts."""
        formula, budget = self._formula, self._budget
        rows = self._candidates.read(self._table, [self._column])
        budget.step(rows.nbytes * _COUNTED_COPIES)
        counted = counts_of(rows.column(self._column).to_pylist(), budget.check)
        normalisers = length_normalisers(np.array([sum(c.values()) for c in counted], np.int64), formula.average)

        def occurrences(term: Term) -> Occurrences:
            frequencies = np.array([c.get(term.token, 0) for c in counted], np.int64)
            positions = np.flatnonzero(frequencies)
            return positions, frequencies[positions]

        positions, scores = formula.score(len(counted), occurrences, lambda at: normalisers[at], budget)
        return row_ids_of(rows)[positions], scores

    def _contenders(self, k: int) -> Scored:
        """Candidates that hold all of the best k."""
        indexed = self._corpus.indexed
        if indexed is not None and self._asks_for_proposals(indexed):
            contenders = self._propose(indexed, k)
            if contenders is not None:
                return contenders
        else:
            documents = sum(part.positions.size for part in self._parts)
            self._note(f"bm25: {documents} documents scored in memory")
        best = self._filter_best(self._filter, k) if self._filter is not None else None
        return best_of([(part, self._mask(part)) for part in self._parts], k) if best is None else best

    def _filter_best(self, filter: DocumentFilter, k: int) -> Scored | None:
        """Of the best documents those that pass a filter; None when that leaves too few, or is not the cheapest way."""
        proposals = _PROPOSALS_PER_ROW * k + _SPARE_PROPOSALS
        if self._candidates.rows is not None or filter.mask_in_memory is not None or not filter.fits(proposals, k):
            return None
        row_ids, scores = best_of([(part, None) for part in self._parts], proposals)
        if row_ids.size > FILTERED_BY_ID:
            return None
        passing = filter.test(row_ids)
        if row_ids.size >= proposals and np.count_nonzero(passing) < k:
            return None
        self._note(f"filter tested on the best {row_ids.size}")
        return row_ids[passing], scores[passing]

    def _asks_for_proposals(self, indexed: IndexedTexts) -> bool:
        """Whether an index finds the best documents at a lower cost than scoring all that hold a term."""
        terms = self._terms
        if self._with_places or self._candidates.rows is not None or len(terms) > WORDS_PER_QUESTION:
            return False
        if not indexed.has_in_memory(self._table, terms):
            return True
        occurrences = sum(indexed.term(self._table, term).documents for term in terms)
        return occurrences > (_OCCURRENCES_OF_ONE if len(terms) == 1 else _OCCURRENCES_OF_SEVERAL)

    def _propose(self, indexed: IndexedTexts, k: int) -> Scored | None:
        """The best of the counted documents, and indexed ones that hold all of the best k; None where Lance would have
        to propose a great part of them.

        Lance proposes its own best. They suffice once the k-th best exact score is out of reach for any row that was
        not proposed; a tie with such a row would have to be broken by id, so it must be proposed too. A filter is
        tested on what is proposed as long as enough of it passes.
        """
        counted = best_of([(part, self._mask(part)) for part in self._counted_parts], k)
        least, most = self._score_ratios(indexed)
        text = " ".join(term.word for term in self._terms for _ in range(term.weight))
        filter = self._filter
        proposals = _PROPOSALS_PER_ROW * k + _SPARE_PROPOSALS
        afterwards = filter is not None and filter.fits(proposals, k)
        while proposals * 2 < indexed.row_ids.size:
            self._budget.check()
            positions, proposed, floor = indexed.search(
                self._table,
                text,
                filter=None if filter is None or afterwards else filter.text,
                limit=proposals,
                filter_by_index=filter is None or filter.is_selective,
            )
            if filter is not None and afterwards:
                passing = filter.test_documents(indexed, positions)
                positions, proposed = positions[passing], proposed[passing]
            if proposed.size > k:
                possible = proposed * most >= np.partition(proposed, -k)[-k] * least
                positions, proposed = positions[possible], proposed[possible]
            scores = self._score_proposals(indexed, positions, proposed)
            best = np.concatenate((scores, counted[1]))
            if floor is None or (best.size >= k and np.partition(best, -k)[-k] > floor * most):
                how = "" if filter is None else " that pass" if afterwards else " among those that pass"
                self._note(f"bm25: the best of {proposals} proposals of the index{how}")
                return concatenate_scored([counted, (indexed.row_ids[positions], scores)])
            if afterwards and best.size < k:
                afterwards = False
            else:
                proposals *= 4
                afterwards = filter is not None and afterwards and filter.fits(proposals, k)
        return None

    def _score_proposals(self, indexed: IndexedTexts, positions: NDArray[np.int64], proposed: Measures) -> Measures:
        """The exact scores of documents that Lance proposed with its own."""
        if len(self._terms) == 1:
            (term,) = self._terms
            counts = indexed.frequencies(self._table, term, positions, proposed / term.weight).reshape(1, -1)
        else:
            counts = indexed.count_terms(self._table, self._terms, positions)
        normalisers = length_normalisers(indexed.lengths[positions], self._formula.average)
        scores = np.zeros(positions.size)
        for number, frequencies in enumerate(counts):
            scores += self._formula.contribution(number, frequencies, normalisers)
        return scores

    def _score_ratios(self, indexed: IndexedTexts) -> tuple[float, float]:
        """How an exact score may relate to Lance's for the same document: at least and at most so many times it. Lance
        counts other documents than we do, which scales each term's idf, and has another average length, which scales
        the rest by at most the ratio of the averages."""
        formula = self._formula
        lance = [indexed.term(self._table, term).lance_idf for term in self._terms]
        scales = [idf / lance_idf for idf, lance_idf in zip(formula.idf, lance, strict=True) if lance_idf > 0]
        stretch = formula.average / indexed.lance_average
        least = min(scales, default=1.0) * min(1.0, stretch) * (1 - _SINGLE_PRECISION)
        return least, max(scales, default=1.0) * max(1.0, stretch) * (1 + _SINGLE_PRECISION)

    # ---- places -----------------------------------------------------------------------------------------

    def _count_better(self, rows: RowIds, scores: Measures) -> NDArray[np.int64]:
        """How many candidates come before each of these, which have these scores."""
        row_ids, others = self._at_least(float(scores.min()) * (1 - ROUNDING))
        others = round_off(others)
        ordered = np.sort(others)
        better = ordered.size - np.searchsorted(ordered, scores, side="right")
        ties = ordered.size - np.searchsorted(ordered, scores) - better
        if tied_scores := set(scores[ties > 1].tolist()):
            tied = np.concatenate([np.flatnonzero(others == score) for score in tied_scores])
            self._budget.step(tied.size * SCORED_BYTES)
            order = best_first(self._table, row_ids[tied], -others[tied], ranks_of=self._id_ranks)
            ids, values = row_ids[tied[order]], others[tied[order]]
            by_row = np.argsort(ids)
            positions, present = find_positions(ids[by_row], rows)
            at = by_row[positions[present]]
            # The rows of a score follow each other, best first, so the first of them tells how many are tied before.
            better[present] += at - np.searchsorted(-values, -values[at])
        return better

    def _at_least(self, score: float) -> Scored:
        """The candidates whose score is at least so high."""
        if self._filter is not None and self._candidates.rows is None and self._filter.mask_in_memory is None:
            row_ids, scores = concatenate_scored([part.best(score, None) for part in self._parts])
            if row_ids.size <= FILTERED_BY_ID:
                passing = self._filter.test(row_ids)
                return row_ids[passing], scores[passing]
        return concatenate_scored([part.best(score, self._mask(part)) for part in self._parts])


def _terms_of(text: str, budget: MemoryBudget) -> list[Term]:
    """The distinct tokens of a query, each with a word to ask an index for."""
    words: dict[str, list[str]] = {}
    for word, token in query_words(text, budget.check):
        words.setdefault(token, []).append(word)
    return [Term(token, spelled[0], len(spelled)) for token, spelled in words.items()]
