"""Text predicates over one column of one table version.

A column has two parts: rows that an index knows, and rows analysed here. Both are matched by the same tokens, so no
result shows which part a row is in. `tokens_within` finds words within an edit distance; `bm25` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.search.analyzer import Postings, are_plain_words, query_words
from omnigraph.engine.query.search.corpus import Corpus
from omnigraph.engine.query.search.ranked_rows import EVERY_ROW, Candidates
from omnigraph.engine.query.search.text_index import WORDS_PER_QUESTION
from omnigraph.errors import BadRequestError
from omnigraph.language.query.syntax import TextFunction
from omnigraph.storage.integer_sets import distinct, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import RowIds

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
        for start in range(0, len(words), WORDS_PER_QUESTION):
            budget.check()
            question = " ".join(words[start : start + WORDS_PER_QUESTION])
            matches.append(corpus.indexed.matches(table, question, candidates.filter, edits))
    rows = distinct(np.concatenate(matches)) if matches else np.empty(0, np.int64)
    return rows if candidates.rows is None else rows[is_member(rows, candidates.rows)]


def _accepted_tokens(part: Postings, tokens: list[str], edits: int, budget: MemoryBudget) -> list[str]:
    """The tokens of a part that a query accepts."""
    if not edits:
        return tokens
    vocabulary = part.vocabulary
    return list({near for token in tokens for near in tokens_within(token, vocabulary, edits, budget)})
