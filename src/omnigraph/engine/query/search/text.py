"""Text predicates and BM25 ranking over one column of one table version.

A column has two parts: rows that an index knows, and rows analysed here. Both give the same facts, and the formulas
use facts only, so no result shows which part a row is in. `tokens_within` finds words within an edit distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.analyzer import Postings, are_plain_words, counts_of, query_words
from omnigraph.engine.query.search.ranked_rows import EVERY_ROW, Candidates, Measures, RankedRows, best_first, round_off
from omnigraph.engine.query.search.text_index import K1, Corpus, IndexedTexts, Occurrences, Term, length_normalisers
from omnigraph.errors import BadRequestError
from omnigraph.language.query.syntax import TextFunction
from omnigraph.storage.integer_sets import distinct, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds, row_ids_of

# A table of distances has one number per word and character, and is had three times.
_TABLE_CELLS: Final = 1 << 18
_CELL_BYTES: Final = 4 * 8
_WORDS_PER_CHECK: Final = 1 << 16
_COLUMNS_PER_CHECK: Final = 64


def tokens_within(
    token: str, vocabulary: Sequence[str], max_edits: int, budget: MemoryBudget | None = None
) -> list[str]:
    """The words of a vocabulary within `max_edits` insertions, deletions or substitutions of a character."""
    budget = budget or MemoryBudget()
    near: list[str] = []
    for start in range(0, len(vocabulary), _WORDS_PER_CHECK):
        budget.check()
        part = vocabulary[start : start + _WORDS_PER_CHECK]
        near += _near(token, [word for word in part if abs(len(word) - len(token)) <= max_edits], max_edits, budget)
    return near


def _near(token: str, words: Sequence[str], max_edits: int, budget: MemoryBudget) -> list[str]:
    near: list[str] = []
    start = 0
    while start < len(words):
        stop, width = start, 1
        while stop < len(words):
            width = max(width, len(words[stop]))
            if stop > start and (stop + 1 - start) * (width + 1) > _TABLE_CELLS:
                break
            stop += 1
        part = words[start:stop]
        budget.step((max(map(len, part)) + 1) * len(part) * _CELL_BYTES)
        distances = _edit_distances(token, part, budget)
        near += [part[i] for i in np.flatnonzero(distances <= max_edits).tolist()]
        start = stop
    return near


def _edit_distances(token: str, words: Sequence[str], budget: MemoryBudget) -> NDArray[np.int64]:
    """The classic table, computed for all words together: one row per character of the token."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    width = int(lengths.max())
    letters = np.array(words, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(words), max(width, 1))
    row = np.tile(np.arange(width + 1), (len(words), 1))
    for i, letter in enumerate(token, start=1):
        following = np.empty_like(row)
        following[:, 0] = i
        substituted = row[:, :-1] + (letters[:, :width] != ord(letter))
        best = np.minimum(substituted, row[:, 1:] + 1)
        for j in range(1, width + 1):
            if j % _COLUMNS_PER_CHECK == 1:
                budget.check()
            following[:, j] = np.minimum(best[:, j - 1], following[:, j - 1] + 1)
        row = following
    distances: NDArray[np.int64] = row[np.arange(len(words)), lengths]
    return distances


DEFAULT_MAX_EDITS: Final = 2

# Beyond this an index would have to build automata that explode with the length of the word.
_INDEXED_EDITS: Final = 2
# So few candidates are read and analysed faster than an index is asked about all rows.
_FEW_ROWS: Final = 2048
# Proposals beyond k cost Lance next to nothing, and asking again costs as much as asking.
_PROPOSALS_PER_ROW: Final = 4
_SPARE_PROPOSALS: Final = 24
_SINGLE_PRECISION: Final = 2e-6
_WORDS_PER_QUESTION: Final = 64
# The texts of a few rows as Python values, their words and how often each occurs.
_COUNTED_COPIES: Final = 8
# A score and a mark per document, and copies of those that match.
_SCORED_BYTES: Final = 4 * 8


def text_match(
    table: Table,
    column: str,
    text: str,
    mode: TextFunction,
    max_edits: int | None = None,
    candidates: Candidates = EVERY_ROW,
    *,
    budget: MemoryBudget | None = None,
) -> RowIds:
    """Row ids, ascending, of the candidates whose analysed text shares a token with the analysed `text`. `fuzzy`
    accepts tokens within `max_edits` edits (2 when None) of a token of the query; the other modes ignore it."""
    budget = budget or MemoryBudget()
    edits = 0
    if mode is TextFunction.FUZZY:
        edits = DEFAULT_MAX_EDITS if max_edits is None else max_edits
        if edits < 0:
            raise BadRequestError(f"fuzzy needs a distance of at least 0, not {edits}")
    tokens = list(dict.fromkeys(token for _, token in query_words(text, budget.check)))
    if not tokens:
        return np.empty(0, np.int64)
    if candidates.rows is not None and candidates.rows.size <= _FEW_ROWS:
        postings = Postings(candidates.read(table, [column]), column, budget)
        return postings.rows_with_any(_accepted_tokens(postings, tokens, edits, budget), budget.check)
    # A fuzzy query is not analysed by an index, only split: it is asked for tokens, and only for those that stay whole.
    askable = not edits or (edits <= _INDEXED_EDITS and are_plain_words(tokens, budget.check))
    corpus = Corpus(table, column, budget, indexed=askable)
    matches = [
        part.rows_with_any(_accepted_tokens(part, tokens, edits, budget), budget.check) for part in corpus.analysed
    ]
    if candidates.filter is not None and any(rows.size for rows in matches):
        allowed = corpus.counted_rows(candidates.filter)
        matches = [rows[is_member(rows, allowed)] for rows in matches]
    if corpus.indexed is not None:
        words = tokens if edits else list(dict.fromkeys(word for word, _ in query_words(text, budget.check)))
        # An index can't be interrupted, so it is asked for a few words at a time.
        for start in range(0, len(words), _WORDS_PER_QUESTION):
            budget.check()
            question = " ".join(words[start : start + _WORDS_PER_QUESTION])
            matches.append(corpus.indexed.matches(table, question, candidates.filter, edits))
    rows = distinct(np.concatenate(matches)) if matches else np.empty(0, np.int64)
    return rows if candidates.rows is None else rows[is_member(rows, candidates.rows)]


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
    """The candidates that share a token with `text`, best BM25 score first, ties by entity id ascending. The statistics
    are those of the whole column, so a filter never changes a score; or those of the `visible` rows when others must
    not show. `k` keeps the best k and saves scoring everything."""
    budget = budget or MemoryBudget()
    words: dict[str, list[str]] = {}
    for word, token in query_words(text, budget.check):
        words.setdefault(token, []).append(word)
    terms = [Term(token, spelled[0], len(spelled)) for token, spelled in words.items()]
    if not terms or k == 0:
        return RankedRows(np.empty(0, np.int64), np.empty(0, np.float64))
    corpus = Corpus(table, column, budget, visible=visible, terms=terms)
    if visible is not None and candidates.rows is not None:
        candidates = Candidates(candidates.filter, candidates.rows[is_member(candidates.rows, visible)])
    formula = Formula(corpus, terms)
    if candidates.rows is not None and candidates.rows.size <= _FEW_ROWS:
        row_ids, scores = _score_rows(table, column, candidates, formula, budget)
    else:
        row_ids, scores = _score_corpus(corpus, candidates, formula, k)
    scores = round_off(scores)
    order = best_first(table, row_ids, -scores, k)
    return RankedRows(row_ids[order], scores[order])


Scored: TypeAlias = tuple[RowIds, Measures]


class Formula:
    """BM25 for one query over one corpus. Every score is summed in the order of `terms`, so equal facts tie exactly."""

    def __init__(self, corpus: Corpus, terms: Sequence[Term]) -> None:
        indexed, counted = corpus.indexed, corpus.counted
        total = sum(part.documents for part in counted) + (0 if indexed is None else indexed.row_ids.size)
        tokens = sum(part.tokens for part in counted) + (0 if indexed is None else indexed.tokens)
        self.terms = terms
        self.average = tokens / max(total, 1) or 1.0
        self.idf: list[float] = []
        for term in terms:
            corpus.budget.check()
            holding = sum(part.occurrences(term.token)[0].size for part in counted)
            holding += 0 if indexed is None else indexed.term(corpus.table, term).documents
            self.idf.append(math.log(1 + (total - holding + 0.5) / (holding + 0.5)))

    def contribution(self, number: int, frequencies: NDArray[np.integer], lengths: NDArray[np.int64]) -> Measures:
        """What term `number` adds to the scores of documents that hold it."""
        saturated = frequencies * (K1 + 1) / (frequencies + length_normalisers(lengths, self.average))
        return self.terms[number].weight * self.idf[number] * saturated

    def score(
        self,
        row_ids: RowIds,
        lengths: NDArray[np.int64],
        occurrences: Callable[[str], Occurrences],
        budget: MemoryBudget,
    ) -> Scored:
        """The documents that hold a term, with their scores. `occurrences` finds those that hold a token."""
        budget.step(row_ids.size * _SCORED_BYTES)
        scores, matching = np.zeros(row_ids.size), np.zeros(row_ids.size, np.bool_)
        for number, term in enumerate(self.terms):
            budget.check()
            documents, frequencies = occurrences(term.token)
            scores[documents] += self.contribution(number, frequencies, lengths[documents])
            matching[documents] = True
        return row_ids[matching], scores[matching]


def _score_ratios(table: Table, indexed: IndexedTexts, formula: Formula) -> tuple[float, float]:
    """How an exact score may relate to Lance's for the same document: at least and at most so many times it. Lance
    counts other documents than we do, which scales each term's idf, and has another average length, which scales the
    rest by at most the ratio of the averages."""
    lance = [indexed.term(table, term).lance_idf for term in formula.terms]
    scales = [idf / lance_idf for idf, lance_idf in zip(formula.idf, lance, strict=True) if lance_idf > 0]
    stretch = formula.average / indexed.lance_average
    least = min(scales, default=1.0) * min(1.0, stretch) * (1 - _SINGLE_PRECISION)
    return least, max(scales, default=1.0) * max(1.0, stretch) * (1 + _SINGLE_PRECISION)


def _accepted_tokens(part: Postings, tokens: list[str], edits: int, budget: MemoryBudget) -> list[str]:
    """The tokens of a part that a query accepts."""
    if not edits:
        return tokens
    vocabulary = part.vocabulary
    return list({near for token in tokens for near in tokens_within(token, vocabulary, edits, budget)})


def _score_rows(table: Table, column: str, candidates: Candidates, formula: Formula, budget: MemoryBudget) -> Scored:
    """Score a few rows by reading their texts."""
    rows = candidates.read(table, [column])
    budget.step(rows.nbytes * _COUNTED_COPIES)
    counted = counts_of(rows.column(column).to_pylist(), budget.check)
    lengths = np.array([sum(c.values()) for c in counted], np.int64)

    def occurrences(token: str) -> Occurrences:
        frequencies = np.array([c.get(token, 0) for c in counted], np.int64)
        documents = np.flatnonzero(frequencies)
        return documents, frequencies[documents]

    return formula.score(row_ids_of(rows), lengths, occurrences, budget)


def _score_corpus(corpus: Corpus, candidates: Candidates, formula: Formula, k: int | None) -> Scored:
    """Score matching candidates: all of them, or at least those that can be among the best k."""
    budget = corpus.budget
    parts = [formula.score(part.row_ids, part.lengths, part.occurrences, budget) for part in corpus.counted]
    if candidates.filter is not None and any(rows.size for rows, _ in parts):
        allowed = corpus.counted_rows(candidates.filter)
        parts = [_only(part, allowed) for part in parts]
    if candidates.rows is not None:
        parts = [_only(part, candidates.rows) for part in parts]
    if (indexed := corpus.indexed) is not None:
        if k is not None and candidates.rows is None and len(formula.terms) <= _WORDS_PER_QUESTION:
            reached = np.concatenate([scores for _, scores in parts]) if parts else np.empty(0)
            parts.append(_best_indexed(corpus, indexed, candidates.filter, formula, k, reached))
        else:
            every = _score_indexed(corpus, indexed, candidates.filter, formula)
            parts.append(every if candidates.rows is None else _only(every, candidates.rows))
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([scores for _, scores in parts])


def _only(scored: Scored, allowed: RowIds) -> Scored:
    rows, scores = scored
    kept = is_member(rows, allowed)
    return rows[kept], scores[kept]


def _score_indexed(corpus: Corpus, indexed: IndexedTexts, filter: str | None, formula: Formula) -> Scored:
    terms = {term.token: term for term in formula.terms}

    def occurrences(token: str) -> Occurrences:
        return indexed.occurrences(corpus.table, terms[token], filter)

    return formula.score(indexed.row_ids, indexed.lengths, occurrences, corpus.budget)


def _best_indexed(
    corpus: Corpus, indexed: IndexedTexts, filter: str | None, formula: Formula, k: int, reached: Measures
) -> Scored:
    """Indexed rows that hold all of the best k; `reached` are the scores of rows found elsewhere. Lance proposes its
    own best. They suffice once the k-th best exact score is out of reach for any row that was not proposed; a tie with
    such a row would have to be broken by id, so it must be proposed too."""
    table = corpus.table
    least, most = _score_ratios(table, indexed, formula)
    text = " ".join(term.word for term in formula.terms for _ in range(term.weight))
    proposals = _PROPOSALS_PER_ROW * k + _SPARE_PROPOSALS
    while proposals * 2 < indexed.row_ids.size:
        corpus.budget.check()
        positions, proposed, floor = indexed.search(table, text, filter=filter, limit=proposals)
        if proposed.size > k:
            possible = proposed * most >= np.partition(proposed, -k)[-k] * least
            positions, proposed = positions[possible], proposed[possible]
        if len(formula.terms) == 1:
            (term,) = formula.terms
            counts = indexed.frequencies(table, term, positions, proposed / term.weight).reshape(1, -1)
        else:
            counts = indexed.count_terms(table, formula.terms, positions)
        scores, lengths = np.zeros(positions.size), indexed.lengths[positions]
        for number, frequencies in enumerate(counts):
            scores += formula.contribution(number, frequencies, lengths)
        best = np.concatenate((scores, reached))
        if floor is None or (best.size >= k and np.partition(best, -k)[-k] > floor * most):
            return indexed.row_ids[positions], scores
        proposals *= 4
    return _score_indexed(corpus, indexed, filter, formula)
