"""Facts from a full-text index, and the documents of a column as BM25 counts them.

Lance's scores count documents that were deleted since, and after an update it may find a row by its former text. This
module keeps the rows for which the index is right and recovers plain facts from it: how many documents hold a token,
how often, and which documents pass a filter. What it recovers is kept in shared memory. It ranks nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.search.analyzer import Postings, counts_of
from omnigraph.engine.query.search.ranked_rows import Mask, Measures, positions_in, rank_ids
from omnigraph.storage.cache import SHARED_MEMORY, ByteBoundCache
from omnigraph.storage.integer_sets import distinct, find_positions, is_member
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import TEXT_INDEX_KIND, TEXT_INDEX_OPTIONS
from omnigraph.storage.tables.rows import RowIds, row_ids_of
from omnigraph.storage.tables.search import (
    SCORE,
    ColumnIndex,
    FragmentContent,
    IndexSegment,
    deleted_rows,
    filtered_rows,
    index_of,
    indexed_documents,
    matching_rows,
)

K1: Final = 1.2
B: Final = 0.75

_COVERAGE_BYTES: Final = 256 << 20
_OCCURRENCE_BYTES: Final = 128 << 20
_SATURATION_BYTES: Final = 64 << 20
_MASK_BYTES: Final = 32 << 20
_ID_RANK_BYTES: Final = 32 << 20
_SEGMENT_BYTES: Final = 64 << 20
_GONE_BYTES: Final = 64 << 20
# An earlier state further back is rarely in memory, and has lost more.
_MOST_GENERATIONS: Final = 8
_REMEMBERED_TERMS: Final = 1 << 15
_REMEMBERED_FILTERS: Final = 1 << 10
WORDS_PER_QUESTION: Final = 64
"""An index can't be interrupted, so it is asked for so many words at a time."""
# Measured: an index answers a question about the best rows in the time in which it lists so many occurrences, and one
# more for so many rows of the table.
_OCCURRENCES_PER_QUESTION: Final = 2048
_ROWS_PER_OCCURRENCE: Final = 22
# A term that more than one document in so many holds has a number for every document.
_DENSE: Final = 3
# Reading the id of one row costs what putting so many into an order does.
_ORDERED_PER_READ: Final = 6
# Lance computes in single precision: what its logarithm and its products may be off by.
_LOGARITHM_ERROR: Final = 1.2e-7
_PRODUCT_ERROR: Final = 4e-7


class Term(NamedTuple):
    """A token of a query, the word to ask an index for it with, and how often the query holds it."""

    token: str
    word: str
    weight: int


class _GoneTexts(NamedTuple):
    texts: Postings | None


class IndexedTerm(NamedTuple):
    """How many trusted documents hold a token, and the inverse document frequency by Lance's own counting."""

    documents: int
    lance_idf: float


Occurrences: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""The documents that hold a token, as positions, and how often each holds it."""


_OCCURRENCES: Final[ByteBoundCache[Occurrences]] = SHARED_MEMORY.add(
    "occurrences of words", ByteBoundCache(_OCCURRENCE_BYTES)
)

_SATURATIONS: Final[ByteBoundCache[Measures]] = SHARED_MEMORY.add(
    "saturated counts of words", ByteBoundCache(_SATURATION_BYTES)
)
_MASKS: Final[ByteBoundCache[Mask]] = SHARED_MEMORY.add("filtered documents", ByteBoundCache(_MASK_BYTES))


_ID_RANKS: Final[ByteBoundCache[NDArray[np.int32]]] = SHARED_MEMORY.add("order of ids", ByteBoundCache(_ID_RANK_BYTES))


@dataclass(eq=False)
class IndexedTexts:
    """The rows of a table version whose text an index knows as it is.

    `row_ids` are the trusted documents, ascending, and `lengths` their token counts. `moved` are live documents that
    an index segment also knows by an older text; their `moved_postings` take the index's place. `left` are the
    documents of segments whose rows have left the fragments of these, which are `fragment_ids`. `name` tells the
    content apart from all others. `lance_documents` and `lance_tokens` are the totals that Lance's scores are based on.
    """

    name: tuple[Hashable, ...]
    column: str
    row_ids: RowIds
    lengths: NDArray[np.int64]
    moved: RowIds
    moved_postings: Postings
    left: RowIds
    fragment_ids: frozenset[int]
    lance_documents: int
    lance_tokens: int
    terms: dict[str, IndexedTerm] = field(default_factory=dict)
    questions: dict[str, int] = field(default_factory=dict)
    """How often the index was asked about a token since its occurrences were last listed."""
    shares: dict[str, float] = field(default_factory=dict)
    """The share of rows that passed each filter, for the choice of a way."""
    tied_rows: int = 0
    """How many ids were read to put rows with the same score into an order."""
    _normalisers: dict[float, Measures] = field(default_factory=dict)
    _parent: Callable[[], IndexedTexts | None] = lambda: None
    _of_parent: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def nbytes(self) -> int:
        documents = self.row_ids.nbytes + 2 * self.lengths.nbytes  # with their normalisers
        moved = self.moved.nbytes + self.moved_postings.nbytes
        return documents + self._of_parent.nbytes + self.left.nbytes + moved

    @cached_property
    def digest(self) -> bytes:
        """The name in short, for what is kept for each word."""
        return blake2b(repr(self.name).encode(), digest_size=16).digest()

    @cached_property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def lance_average(self) -> float:
        return self.lance_tokens / self.lance_documents

    def matches(self, table: Table, text: str, filter: str | None, max_edits: int = 0) -> RowIds:
        """The trusted rows that share a token with the text. With `max_edits` the text consists of tokens already."""
        row_ids = row_ids_of(matching_rows(table, self.column, text, filter=filter, max_edits=max_edits))
        return row_ids[find_positions(self.row_ids, row_ids)[1]]

    def search(
        self,
        table: Table,
        text: str,
        *,
        filter: str | None = None,
        limit: int | None = None,
        filter_by_index: bool = True,
    ) -> tuple[NDArray[np.int64], Measures, float | None]:
        """Documents that share a token with the text, as positions, ascending, with Lance's scores: the best, if there
        is a limit. Others score at most the number returned last; None without others."""
        rows = matching_rows(table, self.column, text, filter=filter, limit=limit, filter_by_index=filter_by_index)
        row_ids, scores = row_ids_of(rows), rows.column(SCORE).to_numpy().astype(np.float64)
        floor = None if limit is None or rows.num_rows < limit else float(scores.min())
        order = np.argsort(row_ids)  # many are looked up much faster in their order
        positions, mask = find_positions(self.row_ids, row_ids[order])
        return positions[mask], scores[order][mask], floor

    def term(self, table: Table, term: Term) -> IndexedTerm:
        if (entry := self.terms.get(term.token)) is None:
            if len(self.terms) >= _REMEMBERED_TERMS:
                self.terms.clear()
                self.questions.clear()
            entry = self.terms[term.token] = self._inherited_term(term.token) or self._look_up(table, term)
        return entry

    def has_in_memory(self, table: Table, terms: Sequence[Term]) -> bool:
        """Whether the occurrences of all terms are in memory, or should be. Listing them costs as much as many
        questions about the best documents, so a term is listed once so many were asked about it."""
        every = True
        for term in terms:
            if _OCCURRENCES.get((self.digest, term.token)) is not None or self._inherited_term(term.token) is not None:
                continue
            asked = self.questions[term.token] = self.questions.get(term.token, 0) + 1
            bearable = asked * (_OCCURRENCES_PER_QUESTION + self.row_ids.size // _ROWS_PER_OCCURRENCE)
            every = every and self.term(table, term).documents <= bearable
        return every

    def occurrences(self, table: Table, term: Term) -> Occurrences:
        """The documents that hold a term, remembered."""
        key = (self.digest, term.token)
        if (cached := _OCCURRENCES.get(key)) is not None:
            return cached
        if (occurrences := self._inherited_occurrences(term.token)) is None:
            positions, scores, _ = self.search(table, term.word)
            frequencies = self.frequencies(table, term, positions, scores)
            occurrences = positions.astype(np.int32), frequencies.astype(np.int32)
            self.questions.pop(term.token, None)
        return _OCCURRENCES.keep(key, occurrences, sum(part.nbytes for part in occurrences) + 256)

    def descend_from(self, parent: IndexedTexts) -> None:
        """Take over what is known of an earlier state of the same index, if it has all documents of this one."""
        positions, present = find_positions(parent.row_ids, self.row_ids)
        if present.all():
            self._parent = weakref.ref(parent)
            self._of_parent = np.full(parent.row_ids.size, -1, np.int32)
            self._of_parent[positions] = np.arange(self.row_ids.size, dtype=np.int32)

    def _inherited_occurrences(self, token: str) -> Occurrences | None:
        """Those in memory for an earlier state, without documents that have left since: a document that the index still
        knows rightly has the text that it had."""
        ways: list[NDArray[np.int32]] = []
        texts: IndexedTexts | None = self
        while texts is not None and len(ways) < _MOST_GENERATIONS:
            ways.append(texts._of_parent)
            texts = texts._parent()
            if texts is not None and (cached := _OCCURRENCES.get((texts.digest, token))) is not None:
                positions, frequencies = cached
                for way in reversed(ways):
                    positions = way[positions]
                    present = positions >= 0
                    positions, frequencies = positions[present], frequencies[present]
                return positions, frequencies
        return None

    def _inherited_term(self, token: str) -> IndexedTerm | None:
        parent = self._parent()
        entry = None if parent is None else parent.terms.get(token)
        occurrences = None if entry is None else self._inherited_occurrences(token)
        # Lance counts all documents that were ever indexed, which are the same ones.
        return None if entry is None or occurrences is None else IndexedTerm(occurrences[0].size, entry.lance_idf)

    def normalisers(self, average: float) -> Measures:
        """Those of all documents for an average length, which stays the same as long as the corpus does."""
        if (normalisers := self._normalisers.get(average)) is None:
            normalisers = length_normalisers(self.lengths, average)
            self._normalisers.clear()
            self._normalisers[average] = normalisers
        return normalisers

    def saturations(self, table: Table, term: Term, average: float) -> Measures | None:
        """The saturated count of a term in every document, remembered: for terms that most of them hold, which are
        added up like this in a fraction of the time. None for other terms."""
        if self.term(table, term).documents * _DENSE < self.row_ids.size:
            return None
        key = (self.digest, term.token, average)
        if (cached := _SATURATIONS.get(key)) is not None:
            return cached
        positions, frequencies = self.occurrences(table, term)
        saturations = np.zeros(self.row_ids.size)
        saturations[positions] = saturate(frequencies, self.normalisers(average)[positions])
        return _SATURATIONS.keep(key, saturations, saturations.nbytes + 256)

    def id_ranks(self, table: Table, row_ids: RowIds) -> NDArray[np.int32] | None:
        """The order of documents by entity id, as a number for each; None when it is not known. The order of all
        documents is made once reading the ids of some has cost as much."""
        positions, present = find_positions(self.row_ids, row_ids)
        ranks = _ID_RANKS.get(self.digest)
        if ranks is None:
            self.tied_rows += row_ids.size
            if self.tied_rows * _ORDERED_PER_READ < self.row_ids.size or not present.all():
                return None
            self.tied_rows = 0
            ranks = rank_ids(table.read(["id"], row_ids=True), self.row_ids).astype(np.int32)
            _ID_RANKS.keep(self.digest, ranks, ranks.nbytes + 256)
        return ranks[positions] if present.all() else None

    def mask_in_memory(self, table: Table, filter: str) -> Mask | None:
        """The documents of this version that pass a filter, if that is known already."""
        return _MASKS.get((self.digest, table.key, filter))

    def mask(self, table: Table, filter: str, *, by_index: bool) -> Mask:
        """The documents of this version that pass a filter, remembered: the columns of the filter are read, or their
        indexes are asked."""
        if (cached := self.mask_in_memory(table, filter)) is not None:
            return cached
        mask = is_member(self.row_ids, filtered_rows(table, filter, by_index=by_index))
        return _MASKS.keep((self.digest, table.key, filter), mask, mask.nbytes + 2 * len(filter) + 256)

    def note_share(self, filter: str, share: float) -> None:
        if len(self.shares) >= _REMEMBERED_FILTERS:
            self.shares.clear()
        self.shares[filter] = share

    def frequencies(
        self, table: Table, term: Term, positions: NDArray[np.int64], scores: Measures
    ) -> NDArray[np.int64]:
        """How often documents hold a term, from the score that Lance gave each of them for it alone. The score grows
        with the count, so it tells it; where single precision leaves a doubt the text is counted."""
        if not positions.size:
            return np.empty(0, np.int64)
        normalised = length_normalisers(self.lengths[positions], self.lance_average)
        share = scores / (self.term(table, term).lance_idf * (K1 + 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            estimated = normalised * share / (1 - share)
            # How far the estimate may be off: the derivative of the line above times the error of the score.
            slack = _PRODUCT_ERROR * 4 * normalised * share / (1 - share) ** 2
        frequencies = np.maximum(np.rint(np.nan_to_num(estimated, posinf=1.0)), 1).astype(np.int64)
        doubtful = np.flatnonzero(~((np.abs(estimated - frequencies) < 0.1) & (slack < 0.4)))
        if doubtful.size:
            frequencies[doubtful] = self.count_terms(table, [term], positions[doubtful])[0]
        return frequencies

    def count_terms(self, table: Table, terms: Sequence[Term], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often documents hold each term (one row per term), by reading their texts."""
        row_ids = self.row_ids[positions]
        rows = table.select(row_ids, [self.column])
        counts = counts_of(rows.column(self.column).to_pylist())
        table_of_counts = np.array([[c.get(term.token, 0) for c in counts] for term in terms], np.int64)
        return table_of_counts.reshape(len(terms), len(counts))[:, positions_in(row_ids_of(rows), row_ids)]

    def _gone_texts(self, table: Table) -> Postings | None:
        """The texts that the index still counts and no row has any more, remembered; None when the files don't hold
        them: they may have lost texts of rows that left, or have others."""
        if (cached := _GONE.get(self.digest)) is not None:
            return cached.texts
        deleted = deleted_rows(table, [self.column], self.fragment_ids)
        texts = None if deleted is None else Postings(deleted, self.column)
        if texts is not None and not np.array_equal(texts.row_ids, self.left):
            texts = None
        return _GONE.keep(self.digest, _GoneTexts(texts), 256 if texts is None else texts.nbytes).texts

    def _look_up(self, table: Table, term: Term) -> IndexedTerm:
        # One trusted document with its score tells Lance's idf; as many as have moved could come before it.
        positions, scores, _ = self.search(table, term.word, limit=1 + self.moved.size)
        if not positions.size:
            return IndexedTerm(0, 0.0)
        frequency = float(self.count_terms(table, [term], positions[:1])[0, 0])
        normaliser = float(length_normalisers(self.lengths[positions[:1]], self.lance_average)[0])
        idf = float(scores[0]) * (frequency + normaliser) / (frequency * (K1 + 1))
        if (gone := self._gone_texts(table)) is not None:
            # Lance's idf tells its count, unless that is huge, and then we know what it counted too much.
            documents = (self.lance_documents + 1) * math.exp(-idf) - 0.5
            if documents * (_LOGARITHM_ERROR + idf * _PRODUCT_ERROR) < 0.25:
                surplus = sum(part.occurrences(term.token)[0].size for part in (gone, self.moved_postings))
                return IndexedTerm(round(documents) - surplus, idf)
        return IndexedTerm(self.matches(table, term.word, None).size, idf)


def saturate(frequencies: NDArray[np.integer], normalisers: Measures) -> Measures:
    """What BM25 makes of the counts of a term."""
    return frequencies * (K1 + 1) / (frequencies + normalisers)


def length_normalisers(lengths: NDArray[np.int64], average: float) -> Measures:
    """What BM25 adds to the count of a term in its denominator."""
    return K1 * (1 - B + B * (lengths / average))


_COVERAGES: Final[ByteBoundCache[IndexedTexts]] = SHARED_MEMORY.add("indexed texts", ByteBoundCache(_COVERAGE_BYTES))
_GONE: Final[ByteBoundCache[_GoneTexts]] = SHARED_MEMORY.add(
    "texts that indexes still count", ByteBoundCache(_GONE_BYTES)
)
_NEWEST: Final[weakref.WeakValueDictionary[tuple[Hashable, ...], IndexedTexts]] = weakref.WeakValueDictionary()
"""The state of each index that was examined last, as long as shared memory has it."""
_SEGMENTS: Final[ByteBoundCache[tuple[RowIds, NDArray[np.uint32]]]] = SHARED_MEMORY.add(
    "documents of text indexes", ByteBoundCache(_SEGMENT_BYTES)
)


def indexed_texts(
    table: Table, column: str, contents: Sequence[FragmentContent]
) -> tuple[IndexedTexts | None, set[int]]:
    """What an index of this version knows about a column, and the fragments it covers; None without a usable one."""
    index = index_of(table, column, TEXT_INDEX_KIND)
    if index is None or any(index.parameters.get(k) != v for k, v in TEXT_INDEX_OPTIONS.items()):
        return None, set()
    covered = [content for content in contents if content.fragment_id in index.fragment_ids]
    key = (column, *(s.uuid for s in index.segments), *(content.name for content in covered))
    texts = _COVERAGES.get(key)
    if texts is None:
        texts = _examine(key, table, column, index)
        origin = (column, *(s.uuid for s in index.segments))
        if (parent := _NEWEST.get(origin)) is not None:
            texts.descend_from(parent)
        _NEWEST[origin] = texts
        _COVERAGES.keep(key, texts, texts.nbytes)
    return (texts, set(index.fragment_ids)) if texts.row_ids.size else (None, set())


def _segment_documents(table: Table, segment: IndexSegment) -> tuple[RowIds, NDArray[np.uint32]]:
    """What a segment was built from, ascending by row id. It never changes, so it is read once."""
    if (cached := _SEGMENTS.get(segment.uuid)) is not None:
        return cached
    row_ids, lengths = indexed_documents(table, segment)
    order = np.argsort(row_ids, kind="stable")
    documents = row_ids[order], lengths[order]
    return _SEGMENTS.keep(segment.uuid, documents, sum(part.nbytes for part in documents) + 256)


def _examine(name: tuple[Hashable, ...], table: Table, column: str, index: ColumnIndex) -> IndexedTexts:
    """Compare what each segment was built from with what its fragments hold now."""
    row_ids: list[RowIds] = []
    lengths: list[NDArray[np.uint32]] = []
    left: list[RowIds] = []
    living: list[RowIds] = []
    documents = tokens = 0
    for segment in index.segments:
        segment_rows, segment_lengths = _segment_documents(table, segment)
        documents += segment_rows.size
        tokens += int(segment_lengths.sum(dtype=np.int64))
        now = np.sort(row_ids_of(table.read([], row_ids=True, fragments=segment.fragment_ids)))
        stays = find_positions(now, segment_rows)[1]
        row_ids.append(segment_rows[stays])
        lengths.append(segment_lengths[stays])
        left.append(segment_rows[~stays])
        living.append(now)
    # A document that left its segment's fragments and lives in those of another: the index knows two texts of it.
    all_left = np.sort(np.concatenate(left))
    gone = distinct(all_left)
    moved = gone[np.logical_or.reduce([find_positions(now, gone)[1] for now in living])]
    trusted, trusted_lengths = np.concatenate(row_ids), np.concatenate(lengths).astype(np.int64)
    order = np.argsort(trusted, kind="stable")
    order = order[~find_positions(moved, trusted[order])[1]]
    return IndexedTexts(
        name=name,
        column=column,
        row_ids=trusted[order],
        lengths=trusted_lengths[order],
        moved=moved,
        moved_postings=Postings(table.select(moved, [column]), column),
        left=all_left,
        fragment_ids=index.fragment_ids,
        lance_documents=documents,
        lance_tokens=tokens,
    )
