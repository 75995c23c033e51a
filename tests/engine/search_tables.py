"""A real table for search tests: written, updated, deleted from and indexed the way a graph does it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.query.search import bm25, scored_texts, text_index
from omnigraph.engine.query.search.analyzer import tokens_of
from omnigraph.language.catalog import Metric
from omnigraph.storage.cache import ByteBoundCache
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.indexes import (
    TEXT_INDEX_KIND,
    TEXT_INDEX_OPTIONS,
    VECTOR_INDEX_KIND,
    vector_index_options,
)
from tests.support.lance_tables import build_index, lance_of

DIMENSION = 3

TEXT_WAYS = ("proposed", "proposed and filtered before", "in memory", "in memory and filtered before")
"""How a text ranking finds the best of indexed rows."""


def choose_text_way(patch: pytest.MonkeyPatch, way: str) -> None:
    """Let text rankings go one way, however many words and rows there are."""
    if way.startswith("proposed"):
        patch.setattr(text_index, "_OCCURRENCES", ByteBoundCache(0))
        patch.setattr(text_index, "_OCCURRENCES_PER_QUESTION", 0)
        patch.setattr(text_index, "_ROWS_PER_OCCURRENCE", 1 << 40)
    else:
        patch.setattr(text_index, "_OCCURRENCES_PER_QUESTION", 1 << 40)
        patch.setattr(bm25, "_OCCURRENCES_OF_ONE", 1 << 40)
    if way.endswith("filtered before"):
        for module in (bm25, scored_texts):
            patch.setattr(module, "FILTERED_BY_ID", 0)
    else:
        patch.setattr(text_index, "_MASKS", ByteBoundCache(0))


class Shelf:
    """One table with `id`, `text`, `shelf` (a number to filter by) and `vector`, at its newest version."""

    def __init__(self, place: Path | Location) -> None:
        self._root = create_root(place if isinstance(place, Location) else Location.parse(place), {})
        self.schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("text", pa.string()),
                pa.field("shelf", pa.int32()),
                pa.field("vector", pa.list_(pa.field("item", pa.float32()), DIMENSION)),
            ]
        )
        self.state = self._root.create_table("node:Book", self.schema)

    @property
    def table(self) -> Table:
        return self._root.reader.open(self.state)

    def add(self, *rows: Any, **columns: Any) -> Shelf:
        self.state = self._root.staging.append(self.state, self._rows(*rows, **columns)).state
        return self

    def put(self, *rows: Any, **columns: Any) -> Shelf:
        self.state = self._root.staging.upsert(self.state, self._rows(*rows, **columns)).state
        return self

    def remove(self, ids: Iterable[str]) -> Shelf:
        self.state = self._root.staging.delete(self.state, ids).state
        return self

    def index_text(self) -> Shelf:
        self.state = build_index(
            self._root, self.state, "text", TEXT_INDEX_KIND, "text_words", **TEXT_INDEX_OPTIONS
        ).state
        return self

    def index_vectors(self, metric: Metric) -> Shelf:
        options = vector_index_options(metric)
        self.state = build_index(self._root, self.state, "vector", VECTOR_INDEX_KIND, "vector_near", **options).state
        return self

    def compact_covered(self) -> Shelf:
        """Rewrite the fragments that the text index covers, as an optimize would."""
        (index,) = lance_of(self.table).describe_indices()
        covered = {f for segment in index.segments for f in segment.fragment_ids}
        self.state = self._root.staging.compact(self.state, covered).state
        return self

    def ids_of(self, row_ids: np.ndarray) -> list[str]:
        rows = self.table.read(["id"], row_ids=True)
        names = dict(zip(rows.column("_rowid").to_pylist(), rows.column("id").to_pylist(), strict=True))
        return [names[row] for row in row_ids.tolist()]

    def row_ids_of(self, ids: Iterable[str]) -> np.ndarray:
        rows = self.table.read(["id"], row_ids=True)
        names = dict(zip(rows.column("id").to_pylist(), rows.column("_rowid").to_pylist(), strict=True))
        return np.array([names[i] for i in ids], np.int64)

    def texts(self) -> dict[str, str | None]:
        rows = self.table.read(["id", "text"])
        return dict(zip(rows.column("id").to_pylist(), rows.column("text").to_pylist(), strict=True))

    def _rows(
        self,
        ids: Sequence[str],
        texts: Sequence[str | None] | None = None,
        shelves: Sequence[int] | None = None,
        vectors: Sequence[Sequence[float] | None] | None = None,
    ) -> pa.Table:
        return pa.table(
            {
                "id": list(ids),
                "text": list(texts) if texts is not None else [None] * len(ids),
                "shelf": list(shelves) if shelves is not None else [0] * len(ids),
                "vector": list(vectors) if vectors is not None else [None] * len(ids),
            },
            schema=self.schema,
        )


def naive_bm25(texts: dict[str, str | None], query: str) -> dict[str, float]:
    """BM25 by the book: one dictionary per document, one loop per term."""
    documents = {i: Counter(tokens_of(text)) for i, text in texts.items() if text is not None}
    documents = {i: counts for i, counts in documents.items() if counts}
    if not documents:
        return {}
    average = sum(sum(counts.values()) for counts in documents.values()) / len(documents)
    scores: dict[str, float] = {}
    for token in tokens_of(query):
        holding = sum(token in counts for counts in documents.values())
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for i, counts in documents.items():
            if (frequency := counts[token]) > 0:
                length = sum(counts.values())
                share = frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / average))
                scores[i] = scores.get(i, 0.0) + idf * share
    return scores


def naive_distance(metric: Metric, left: Sequence[float], right: Sequence[float]) -> float:
    inner = math.fsum(a * b for a, b in zip(left, right, strict=True))
    match metric:
        case Metric.L2:
            return math.dist(left, right)
        case Metric.DOT:
            return 1 - inner
        case Metric.COSINE:
            return 1 - inner / (math.hypot(*left) * math.hypot(*right))
