"""Search on one table version: nearest vectors, text predicates, BM25 ranking and rank fusion.

The operators of a read plan call it. Results depend on the rows of the version alone, never on which indexes cover
them. Nothing here writes, and nothing here knows the plan.
"""

from __future__ import annotations

from omnigraph.engine.query.search.ranked_rows import (
    DEFAULT_FUSION_K,
    EVERY_ROW,
    Candidates,
    FusedRows,
    RankedRows,
    fuse,
)
from omnigraph.engine.query.search.text import DEFAULT_MAX_EDITS, bm25, text_match
from omnigraph.engine.query.search.vectors import nearest

__all__ = [
    "DEFAULT_FUSION_K",
    "DEFAULT_MAX_EDITS",
    "EVERY_ROW",
    "Candidates",
    "FusedRows",
    "RankedRows",
    "bm25",
    "fuse",
    "nearest",
    "text_match",
]
