"""Text analysis of full-text search, and the analysed texts of rows that no index covers.

The analysis is Lance's own tokenizer under the options that the index builder uses, so indexed and scanned rows are
found by the same tokens. A column is analysed by its distinct words. Postings of a fragment are built by one scan and
kept in shared memory: a fragment never changes, so a new table version costs the analysis of its new fragments only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.properties import one_array, value_bytes
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache, Lookups
from omnigraph.storage.integer_sets import count_values
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import TEXT_INDEX_OPTIONS
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import FragmentContent, text_tokens

_ANALYSIS: Final[dict[str, Any]] = {k: v for k, v in TEXT_INDEX_OPTIONS.items() if k != "with_position"}
"""What analyses a text; whether an index also stores positions has no part in it."""

_WORDS_ONLY: Final = _ANALYSIS | dict.fromkeys(("lower_case", "stem", "remove_stop_words", "ascii_folding"), False)

_SEPARATOR: Final = np.array([b < 128 and not chr(b).isalnum() for b in range(256)])
_LOWERED: Final = np.array([ord(chr(b).lower()) if b < 128 else b for b in range(256)], np.uint8)
_ASCII_LOWERING: Final = {b: b + 32 for b in range(ord("A"), ord("Z") + 1)}
_ASCII_BREAKS: Final = re.compile(r"[^0-9A-Za-z\x80-\U0010ffff]+")

_WORD_BYTES: Final = 64 << 20
_BYTES_PER_WORD: Final = 256
_WORDS_PER_CALL: Final = 2048
_CHARACTERS_PER_CALL: Final = 16 << 10
_WORDS_PER_CHECK: Final = 256
_BYTES_PER_CHECK: Final = 512 << 10
# Survives analysis as itself, so positions after it count from a known one.
_ANCHOR: Final = "zq"


class _KnownWords:
    """The tokens of words met before. Emptied when it is full: the words of the texts at hand come back at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lookups = Lookups()
        self._tokens: dict[str, tuple[str, ...]] = {}

    def among(self, words: Collection[str]) -> dict[str, tuple[str, ...]]:
        tokens_of = self._tokens
        tokens_by_word = {word: tokens for word in words if (tokens := tokens_of.get(word)) is not None}
        self.lookups.count(len(tokens_by_word), len(words) - len(tokens_by_word))
        return tokens_by_word

    def learn(self, fresh: Mapping[str, tuple[str, ...]]) -> None:
        if self.held_bytes() + len(fresh) * _BYTES_PER_WORD > self.limit:
            self.clear()
        if len(fresh) * _BYTES_PER_WORD <= self.limit:
            self._tokens.update(fresh)

    def held_bytes(self) -> int:
        return len(self._tokens) * _BYTES_PER_WORD

    def clear(self) -> None:
        self._tokens = {}


_KNOWN_WORDS: Final = SHARED_MEMORY.add("words", _KnownWords(_WORD_BYTES))


def tokens_of(text: str) -> list[str]:
    """The tokens of a text, in order, repeats included."""
    return [token for token, _ in text_tokens(text, _ANALYSIS)]


def query_words(text: str, check: Callable[[], None] = lambda: None) -> list[tuple[str, str]]:
    """The words of a query that are worth asking for, each with its token, in order and with repeats. The word is what
    an index has to be given: it analyses it once more, and stemming a stem may change it."""
    words: list[str] = []
    start = 0
    while start < len(text):  # in parts that end with a space, so that each has whole words
        check()
        space = text.find(" ", start + _CHARACTERS_PER_CALL)
        stop = len(text) if space < 0 else space + 1
        words += [word for word, _ in text_tokens(text[start:stop], _WORDS_ONLY)]
        start = stop
    tokens_by_word = _tokens_of_words(set(words), check)
    return [(word, token) for word in words for token in tokens_by_word[word]]


def are_plain_words(tokens: Sequence[str], check: Callable[[], None]) -> bool:
    """Whether splitting and lower-casing leave tokens as they are. Folding can make others: `⑴` becomes `(1)`."""
    for number, token in enumerate(tokens):
        if not number % _TOKENS_PER_CHECK:
            check()
        if token != token.lower() or [word for word, _ in text_tokens(token, _WORDS_ONLY)] != [token]:
            return False
    return True


def counts_of(texts: Iterable[str | None], check: Callable[[], None] = lambda: None) -> list[Counter[str]]:
    """How often each token occurs in each of a few texts."""
    counted = []
    for text in texts:
        check()
        words = _ASCII_BREAKS.split(text.translate(_ASCII_LOWERING)) if text else []
        tokens_by_word = _tokens_of_words(set(words), check)
        counted.append(Counter(token for word in words for token in tokens_by_word[word]))
    return counted


def analyse_column(
    column: pa.Array, check: Callable[[], None] = lambda: None
) -> tuple[dict[str, int], NDArray[np.int32], NDArray[np.int64]]:
    """Every token of every text of a string array: numbers of tokens, the number of each occurrence, and the text that
    it occurs in, ascending. Nulls have no tokens. Asks often whether to go on."""
    numbers: dict[str, int] = {}
    tokens, texts = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    ends = np.cumsum(value_bytes(column))
    start = 0
    while start < len(column):
        check()
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _BYTES_PER_CHECK, side="right")))
        part, text_of = _analysed_part(column[start:stop], numbers, check)
        tokens.append(part)
        texts.append(text_of + start)
        start = stop
    return numbers, np.concatenate(tokens), np.concatenate(texts)


def _analysed_part(
    column: pa.Array, numbers: dict[str, int], check: Callable[[], None]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The tokens of some texts by their numbers, which new ones get here, and which text each occurs in."""
    words, texts = _words(column.fill_null("").cast(pa.large_string()))
    encoded = words.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    tokens_by_word = _tokens_of_words(distinct, check)
    produced = [[numbers.setdefault(token, len(numbers)) for token in tokens_by_word[word]] for word in distinct]
    # Words become tokens through a ragged map: usually one token, none for a stop word, several around a dash.
    counts = np.fromiter(map(len, produced), np.int64, len(produced))
    starts = np.concatenate(([0], np.cumsum(counts)))
    flat = np.fromiter((n for tokens in produced for n in tokens), np.int32, int(starts[-1]))
    indices = encoded.indices.to_numpy()
    per_word = counts[indices]
    first = np.repeat(starts[indices] - np.concatenate(([0], np.cumsum(per_word)[:-1])), per_word)
    return flat[first + np.arange(first.size)], np.repeat(texts, per_word)


def _words(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The lower-cased runs between ASCII separators, and the text that each belongs to."""
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    if data_buffer is None or not len(column) or offsets[0] == offsets[-1]:
        return pa.array([], pa.large_string()), np.empty(0, np.int64)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    bounds = offsets - offsets[0]
    inside = ~_SEPARATOR[data]
    boundary = np.zeros(data.size + 1, np.bool_)
    boundary[bounds] = True
    starts = inside.copy()
    starts[1:] &= ~inside[:-1] | boundary[1:-1]
    ends = inside.copy()
    ends[:-1] &= ~inside[1:] | boundary[1:-1]
    first = np.flatnonzero(starts)
    lengths = np.flatnonzero(ends) + 1 - first
    spans = np.concatenate(([0], np.cumsum(lengths)))
    words = pa.Array.from_buffers(
        pa.large_string(), first.size, [None, pa.py_buffer(spans), pa.py_buffer(_LOWERED[data[inside]])]
    )
    return words, np.searchsorted(bounds, first, side="right") - 1


def _tokens_of_words(words: Collection[str], check: Callable[[], None] = lambda: None) -> dict[str, tuple[str, ...]]:
    """The tokens of each word. Words met before are remembered, up to a bound."""
    cached = _KNOWN_WORDS.among(words)
    unknown = [word for word in words if word not in cached]
    fresh: dict[str, tuple[str, ...]] = {}
    for number, word in enumerate(unknown):
        if not number % _WORDS_PER_CHECK:
            check()
        fresh[word] = () if word.isascii() else tuple(tokens_of(word))
    plain = iter([word for word in unknown if word and word.isascii()])
    while batch := list(islice(plain, _WORDS_PER_CALL)):
        check()
        # ASCII words are one word to the tokenizer too, so a position tells which word a token came from.
        for token, position in text_tokens(" ".join((_ANCHOR, *batch)), _ANALYSIS)[1:]:
            fresh[batch[position - 1]] = (token,)
    _KNOWN_WORDS.learn(fresh)
    return cached | fresh


POSTINGS_BYTES: Final = 512 << 20
# Texts, their characters by kind, their words and the positions of those.
_ANALYSED_COPIES: Final = 6
_TOKENS_PER_CHECK: Final = 256


class Postings:
    """The analysed texts of some rows. `row_ids` are the documents, rows with at least one token, ascending; `lengths`
    are their token counts and `tokens` the sum of those."""

    __slots__ = ("_documents", "_frequencies", "_numbers", "_starts", "documents", "lengths", "row_ids", "tokens")

    def __init__(self, rows: pa.Table, column: str, budget: MemoryBudget | None = None) -> None:
        budget = budget or MemoryBudget()
        budget.step(rows.nbytes * _ANALYSED_COPIES)
        texts = one_array(rows.column(column))
        self._numbers, occurring, text_of = analyse_column(texts, budget.check)
        budget.check()
        all_ids = row_ids_of(rows)
        lengths = np.bincount(text_of, minlength=len(texts))
        order = np.argsort(all_ids)
        order = order[lengths[order] > 0]
        place = np.full(len(texts), -1, np.int64)
        place[order] = np.arange(order.size)
        self.row_ids: RowIds = all_ids[order]
        self.lengths: NDArray[np.int64] = lengths[order].astype(np.int64)
        self.documents = int(self.row_ids.size)
        self.tokens = int(self.lengths.sum())

        # Pairs are sorted as one number each; a token's rows come out ascending.
        budget.check()
        pairs, counts = count_values(occurring.astype(np.int64) * max(order.size, 1) + place[text_of])
        budget.check()
        tokens, documents = np.divmod(pairs, max(order.size, 1))
        self._documents = documents.astype(np.int32)
        self._frequencies = counts.astype(np.int32)
        self._starts = np.searchsorted(tokens, np.arange(len(self._numbers) + 1))

    @property
    def vocabulary(self) -> list[str]:
        return list(self._numbers)

    @property
    def nbytes(self) -> int:
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
    if (cached := _POSTINGS.get(key)) is not None:
        return cached
    rows = table.read([column], row_ids=True, fragments=[fragment.fragment_id])
    postings = Postings(rows, column, budget)
    return _POSTINGS.keep(key, postings, postings.nbytes)
